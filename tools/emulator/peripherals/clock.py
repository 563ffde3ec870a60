"""Reset and clock control, and power control: how fast the core runs (RM0385, 4 and 5; RM0390, 5 and 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from microtrain.emulator.errors import PeripheralFault

from .base import Peripheral, bit

if TYPE_CHECKING:
    from microtrain.emulator.board import Board

HSI_HZ = 16_000_000
HZ_PER_WAIT_STATE = 30_000_000  # at 2.7 to 3.6 V, on both chips (RM0385, table 5)
RCC_BASE = 0x4002_3800
PWR_BASE = 0x4000_7000
CR, PLLCFGR, CFGR, BDCR, CSR = 0x00, 0x04, 0x08, 0x70, 0x74
AHB1ENR, AHB2ENR, APB1ENR, APB2ENR = 0x30, 0x34, 0x40, 0x44
HSE_SOURCE, PLL_SOURCE = 1, 2
AHB_DIVIDERS = (2, 4, 8, 16, 64, 128, 256, 512)


PIN = 1 << 26  # in CSR, set with every cause of a reset
POWER_ON, SOFTWARE, WATCHDOG = 1 << 27 | 1 << 25 | PIN, 1 << 28 | PIN, 1 << 29 | PIN
CSR_FORGET = 1 << 24


class Rcc(Peripheral):
    """Oscillators are ready as soon as they are on; the clocks that follow from them are computed.

    causes   of the resets since the firmware last cleared them, as in CSR
    """

    causes = POWER_ON

    def __init__(self, board: Board) -> None:
        super().__init__(board, "RCC", RCC_BASE, None, {CR: 0x83, PLLCFGR: 0x2400_3010, AHB1ENR: 0x0010_0000})

    def read(self, offset: int) -> int:
        value = super().read(offset)
        if offset == CR:  # each xxxRDY follows its xxxON
            for on in (0, 16, 24, 26, 28):
                value |= bit(value, on) << (on + 1)
        elif offset == CFGR:  # SWS follows SW
            value = value & ~0xC | (value & 3) << 2
        elif offset in (BDCR, CSR):
            value |= bit(value, 0) << 1
        return value | self.causes if offset == CSR else value

    def write(self, offset: int, value: int) -> None:
        super().write(offset, value & ~CSR_FORGET if offset == CSR else value)
        if offset == CSR and value & CSR_FORGET:
            self.causes = 0
        if offset in (CR, PLLCFGR, CFGR):
            self.board.clock_changed()
        elif AHB1ENR <= offset <= APB2ENR:
            self.board.usart.power(self.is_on(self.board.usart.clock))

    def is_on(self, clock: tuple[int, int] | None) -> bool:
        """Whether a peripheral's clock is enabled."""
        return clock is None or bool(bit(self.registers.get(clock[0], 0), clock[1]))

    @property
    def system_hz(self) -> int:
        """SYSCLK."""
        source = self.registers.get(CFGR, 0) & 3
        if source == HSE_SOURCE:
            return self.board.chip.hse_hz
        return self._pll_hz() if source == PLL_SOURCE else HSI_HZ

    def _pll_hz(self) -> int:
        """Frequency of the main PLL's output P (RM0385, 5.3.2)."""
        config = self.registers[PLLCFGR]
        m, n, p = config & 63, config >> 6 & 511, 2 * ((config >> 16 & 3) + 1)
        if m < 2 or not bit(self.registers[CR], 24):
            raise PeripheralFault(
                "SYSCLK is the PLL, but RCC_CR has it off or PLLM is below 2", RCC_BASE + CFGR
            )
        return (self.board.chip.hse_hz if bit(config, 22) else HSI_HZ) // m * n // p

    @property
    def core_hz(self) -> int:
        """HCLK, the core's clock."""
        divider = self.registers.get(CFGR, 0) >> 4 & 15
        return self.system_hz // (AHB_DIVIDERS[divider - 8] if divider >= 8 else 1)

    def apb_hz(self, bus: int) -> int:
        """PCLK1 or PCLK2, which clock the peripherals."""
        divider = self.registers.get(CFGR, 0) >> {1: 10, 2: 13}[bus] & 7
        return self.core_hz >> (divider - 3 if divider >= 4 else 0)

    def check(self, wait_states: int, overdrive: bool) -> None:
        """Whether flash and regulator can follow the clock.

        Errors   PeripheralFault where they cannot: the chip would read wrong instructions
        """
        hz, chip = self.core_hz, self.board.chip
        needed = (hz - 1) // HZ_PER_WAIT_STATE
        clocks = (
            ("core", hz, chip.max_hz),
            *((f"APB{i}", self.apb_hz(i), chip.apb_max_hz[i - 1]) for i in (1, 2)),
        )
        for name, found, limit in clocks:
            if found > limit:
                kind = f"a clock of {found} Hz is above the {limit} of the chip's {name}"
                raise PeripheralFault(kind, RCC_BASE + CFGR)
        if wait_states < needed:
            kind = f"{hz} Hz needs {needed} flash wait states, FLASH_ACR has {wait_states}"
            raise PeripheralFault(kind, RCC_BASE + CFGR)
        if hz > chip.max_hz_without_overdrive and not overdrive:
            raise PeripheralFault(f"{hz} Hz needs over-drive, PWR_CR1 has it off", RCC_BASE + CFGR)


class Pwr(Peripheral):
    """Over-drive is ready as soon as it is on."""

    def __init__(self, board: Board) -> None:
        super().__init__(board, "PWR", PWR_BASE, (APB1ENR, 28), {0x00: 0xC000})

    def read(self, offset: int) -> int:
        value = super().read(offset)
        if offset == 0x04:  # CSR1: VOSRDY always, ODRDY follows ODEN, ODSWRDY follows ODSWEN
            value |= 1 << 14 | self.registers[0x00] & 3 << 16
        return value

    @property
    def overdrive(self) -> bool:
        return self.registers[0x00] >> 16 & 3 == 3
