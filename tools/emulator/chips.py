"""The chips that the board model knows, each on its board. A firmware's ELF says which it is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

KB = 1024
MHZ = 1_000_000


@dataclass(frozen=True)
class SerialLine:
    """The USART that is the ST-LINK's virtual COM port.

    clock   (offset of its enable register in RCC, bit)
    apb     the bus that clocks it, 1 or 2
    older   the STM32F4's kind, with SR and DR
    send, receive   the pins that go to the ST-LINK: (port, pin)
    function        the alternate function by which they are the USART's
    """

    name: str
    base: int
    irq: int
    clock: tuple[int, int]
    apb: int
    older: bool
    send: tuple[str, int]
    receive: tuple[str, int]
    function: int = 7


@dataclass(frozen=True)
class ExternalFlash:
    """Flash beside the chip, seen through the window of QUADSPI.

    base, size    of the window and of the flash
    controller    address of QUADSPI; clock: its enable register in RCC and the bit
    pins          what each is for -> (port, pin, alternate function)
    identity      what it answers to READ ID
    max_hz        of its clock; dummy_cycles: that quad reading takes then
    high_s        seconds that its chip select must be high behind a read
    """

    name: str
    base: int
    size: int
    controller: int
    clock: tuple[int, int]
    pins: Mapping[str, tuple[str, int, int]]
    identity: bytes
    max_hz: int
    dummy_cycles: int
    high_s: float


@dataclass(frozen=True)
class Chip:
    """What one chip, and the board that it is on, have of their own.

    board         its name in platformio.ini
    device_id     low 12 bits of DBGMCU_IDCODE, and the linker script's __device_id
    revision      the high 16
    cpu           as gcc and llvm-mca call it
    flash_alias   where the same flash is seen once more, None: nowhere
    unique_id     address of the chip's unique id; flash_kb of the halfword with the size of its flash
    sectors       bytes of each flash sector, from the start of the flash on
    erase_s       seconds that erasing a sector takes, by its bytes (data sheet, typical, 32 bits at once)
    hse_hz        the clock on the board
    max_hz        of the core; apb_max_hz of APB1 and APB2
    pressed       the level of the user button's pin while it is pressed
    external      flash beside the chip, which weights may lie in
    has_camera    an Arduino header with SPI2 and I2C1 for the camera demo, SDRAM and display
    """

    name: str
    board: str
    device_id: int
    revision: int
    cpu: str
    sram_size: int
    flash_alias: int | None
    unique_id: int
    flash_kb: int
    sectors: tuple[int, ...]
    erase_s: Mapping[int, float]
    hse_hz: int
    max_hz: int
    max_hz_without_overdrive: int
    apb_max_hz: tuple[int, int]
    ports: str
    serial: SerialLine
    led: tuple[str, int]
    button: tuple[str, int]
    pressed: bool
    has_camera: bool = False
    external: ExternalFlash | None = None

    @property
    def has_caches(self) -> bool:
        """Caches of the core itself."""
        return self.cpu == "cortex-m7"

    @property
    def flash_size(self) -> int:
        return sum(self.sectors)

    @property
    def places(self) -> list[tuple[int, int]]:
        """(offset in flash, bytes) of each sector."""
        starts = accumulate(self.sectors, initial=0)
        return list(zip(starts, self.sectors, strict=False))


N25Q128A = ExternalFlash(  # UM1907, section on the Quad-SPI flash; data sheet of the N25Q128A, 3 V
    name="N25Q128A",
    base=0x9000_0000,
    size=16 * KB * KB,
    controller=0xA000_1000,
    clock=(0x38, 1),
    pins={
        "CLK": ("B", 2, 9),
        "NCS": ("B", 6, 10),
        "IO0": ("D", 11, 9),
        "IO1": ("D", 12, 9),
        "IO2": ("E", 2, 9),
        "IO3": ("D", 13, 9),
    },
    identity=bytes([0x20, 0xBA, 0x18, 0x10]),
    max_hz=108 * MHZ,
    dummy_cycles=10,
    high_s=20e-9,
)

STM32F746 = Chip(  # RM0385; data sheet DS10916, tables on clocks and on flash; board: UM1907
    name="STM32F746NG",
    board="disco_f746ng",
    device_id=0x449,
    revision=0x1001,
    cpu="cortex-m7",
    sram_size=320 * KB,
    flash_alias=0x0020_0000,  # through the ITCM bus
    unique_id=0x1FF0_F420,
    flash_kb=0x1FF0_F442,
    sectors=(*[32 * KB] * 4, 128 * KB, *[256 * KB] * 3),
    erase_s={32 * KB: 0.25, 128 * KB: 0.5, 256 * KB: 1.0},
    hse_hz=25 * MHZ,
    max_hz=216 * MHZ,
    max_hz_without_overdrive=180 * MHZ,
    apb_max_hz=(54 * MHZ, 108 * MHZ),
    ports="ABCDEFGHIJK",
    serial=SerialLine("USART1", 0x4001_1000, 37, (0x44, 4), 2, older=False, send=("A", 9), receive=("B", 7)),
    led=("I", 1),
    button=("I", 11),
    pressed=True,
    has_camera=True,
    external=N25Q128A,
)

STM32F446 = Chip(  # RM0390; data sheet DS10693, tables on clocks and on flash; board: UM1724
    name="STM32F446RE",
    board="nucleo_f446re",
    device_id=0x421,
    revision=0x1000,
    cpu="cortex-m4",
    sram_size=128 * KB,
    flash_alias=None,  # it is at 0, too: there the model leaves it out, so that a null pointer faults
    unique_id=0x1FFF_7A10,
    flash_kb=0x1FFF_7A22,
    sectors=(*[16 * KB] * 4, 64 * KB, *[128 * KB] * 3),
    erase_s={16 * KB: 0.25, 64 * KB: 0.55, 128 * KB: 1.0},
    hse_hz=8 * MHZ,  # from the ST-LINK
    max_hz=180 * MHZ,
    max_hz_without_overdrive=168 * MHZ,
    apb_max_hz=(45 * MHZ, 90 * MHZ),
    ports="ABCDEFGH",
    serial=SerialLine("USART2", 0x4000_4400, 38, (0x40, 17), 1, older=True, send=("A", 2), receive=("A", 3)),
    led=("A", 5),
    button=("C", 13),
    pressed=False,
)

CHIPS = {chip.device_id: chip for chip in (STM32F746, STM32F446)}
