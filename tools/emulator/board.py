"""A board: memory, core and peripherals of its chip, and the loop that runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from . import native
from .calls import costs, entries
from .chips import Chip
from .clock import VirtualClock
from .core import Core
from .elf import Image
from .engine import Engine
from .errors import EmulatorError, Fault
from .loop import Loop, Stop, Until
from .memory import ERASED, FLASH_BASE, Memory
from .native import NEVER
from .peripherals import usart
from .peripherals.base import Peripheral
from .peripherals.bus import Bus
from .peripherals.camera import Camera
from .peripherals.clock import PIN, POWER_ON, SOFTWARE, WATCHDOG, Pwr, Rcc
from .peripherals.flash import FlashController
from .peripherals.gpio import Gpio
from .peripherals.i2c import I2c
from .peripherals.quadspi import QuadSpi
from .peripherals.spi import Spi
from .peripherals.watchdog import Watchdog
from .registers import Register
from .report import CacheUse, CallCost, FunctionCost, SramUse, profile, sram_use
from .systick import CycleCounter
from .translate.blocks import Span
from .translate.build import Translate

PERIPHERALS, DEBUG_PAGE = 0x4000_0000, 0xE004_2000
LABEL_PORT, LABEL_PIN = "G", 6  # D2 of the Arduino header, to ground
PAINT = 0xA5


class Board:
    """The board with a firmware in its flash, switched on.

    elf            the firmware, which says which board it is for
    strict         fault on unaligned LDM, LDRD, VLDR and so on as the chip does; costs speed
    guest_faults   give faults to the firmware's own handlers instead of raising Fault
    paced          bytes arrive at the programmed baud rate, whether the firmware reads them or not
    caches         model the Cortex-M7's caches: needed by estimates of cycles (cycles.py); costs speed
    paint          what SRAM holds after power-on
    translate      when to translate what is hot: nothing but the speed depends on it

    chip           the board's chip
    output         what the firmware has sent and nobody has taken, while no listener is there
    """

    def __init__(
        self,
        elf: Path | str,
        *,
        strict: bool = False,
        guest_faults: bool = False,
        paced: bool = False,
        caches: bool = False,
        paint: int = PAINT,
        translate: Translate = Translate.WHEN_LONG,
    ) -> None:
        self.image = Image(Path(elf))
        self.strict, self.guest_faults, self.caches, self.paint = strict, guest_faults, caches, paint
        self.chip: Chip = self.image.chip
        if caches and not self.chip.has_caches:
            raise EmulatorError(f"the {self.chip.cpu} of {self.chip.board} has no caches to model.")
        self.memory = Memory(self.chip)
        self._bus = Bus(self)
        self._loop = Loop(self)
        self._engine = Engine(self.memory, self._bus.read, self._bus.write, self._loop.bad_access)
        functions = [Span(f.address & ~1, f.size) for f in self.image.functions]
        self._engine.speedup.begin(functions, translate, strict)
        self._state = self._engine.state
        self._make_peripherals(paced)
        self.output = bytearray()
        self._watched: tuple[str, ...] = ()
        self.last_fault: Fault | None = None
        for address, data in self.image.elf.segments:
            self.memory.program(address, data)
        if self.memory.flash[:8] == bytes([ERASED]) * 8:
            raise EmulatorError(f"{elf} has no vector table at {FLASH_BASE:#010x}: check the linker script.")
        self.power_on()

    def _make_peripherals(self, paced: bool) -> None:
        self.core = Core(self)
        self.cycle_counter = CycleCounter(self)
        self.rcc, self.pwr, self.flash = Rcc(self), Pwr(self), FlashController(self)
        self.usart = usart.Usart(self, self._state.usart, self.chip.serial, paced)
        self.gpio = {port: Gpio(self, port) for port in self.chip.ports}
        id_code = self.chip.revision << 16 | 0x6000 | self.chip.device_id
        plain = [
            Peripheral(self, "SYSCFG", 0x4001_3800, (0x44, 14)),
            Peripheral(self, "DBGMCU", DEBUG_PAGE, None, {0: id_code}),
        ]
        self.watchdog = Watchdog(self)
        known = [self.rcc, self.pwr, self.flash, self.usart, self.watchdog]
        self.quadspi = QuadSpi(self, self.chip.external) if self.chip.external else None
        known += [self.quadspi] if self.quadspi else []
        self.camera: Camera | None = None
        if self.chip.has_camera:
            self.spi2, self.i2c1 = Spi(self, self._state.spi), I2c(self)
            self.fmc = Peripheral(self, "FMC", 0xA000_0000, (0x38, 0))
            self.ltdc = Peripheral(self, "LTDC", 0x4001_6800, (0x44, 26))
            plain += [self.spi2, self.i2c1, self.fmc, self.ltdc]
            self.label_button(False)
        self.peripherals = [*known, *self.gpio.values(), *plain]
        self._bus.connect(self.peripherals)
        self.button(False)
        self.core.lines[self.chip.serial.irq] = self.usart.requests_interrupt

    # ---------------------------------------------------------------- power
    def power_on(self, paint: int | None = None) -> None:
        """Switch on, or off and on again: flash is kept, SRAM is not, counting starts over.

        paint   what SRAM then holds, from now on
        """
        self.paint = self.paint if paint is None else paint
        self.memory.paint(self.paint)
        self._state.total = self._state.idle = self._state.thread = 0
        self.clock = VirtualClock()
        self.cut_count = NEVER
        self.flash.cut_at = None
        self.powered = True
        self.output.clear()
        self.clear_profile()
        self.rcc.causes = POWER_ON
        if self.camera is not None:
            self.camera.reset()
        if self.quadspi is not None:
            self.quadspi.flash.lines = 1
        self.reset()

    def power_cut_at(
        self,
        instruction: int | None = None,
        flash_operation: int | None = None,
        torn: Callable[[int], bytes] | None = None,
    ) -> None:
        """Cut the power later; `run` then returns Stop.POWER_CUT.

        instruction       after this many instructions since power-on
        flash_operation   in the n-th programmed unit or erased sector from now on, 1 is the next
        torn              what that operation leaves: see FlashController; None: just after it
        """
        self.cut_count = NEVER if instruction is None else instruction
        self.flash.cut_at = None if flash_operation is None else self.flash.operations + flash_operation
        self.flash.torn = torn

    def cut_power(self) -> None:
        self.powered = False
        self.look_again()

    def reset(self) -> None:
        """System reset: core and peripherals, not SRAM."""
        self._engine.restart(self._bus.pages, self.strict, self.caches)
        self.core.reset()
        self.cycle_counter.reset()
        for peripheral in self.peripherals:
            peripheral.reset()
        self.clock.set_rate(self.now, self.rcc.core_hz)
        self.flash.tell()
        self.initial_sp = int.from_bytes(self.memory.flash[0:4], "little") & ~3
        self._engine.set(Register.SP, self.initial_sp)
        self._loop.restart(int.from_bytes(self.memory.flash[4:8], "little"))

    # ---------------------------------------------------------------- what a user of the board sees
    def run(
        self,
        seconds: float | None = None,
        instructions: int | None = None,
        *,
        stop_on_sleep: bool = False,
        until: Until | None = None,
    ) -> Stop:
        """Run the firmware, until the first of the reasons to stop.

        seconds         virtual time
        instructions    exact count
        stop_on_sleep   return when the firmware sleeps and has taken all bytes
        until           return after a line, or any byte, of output
        Errors          Fault where the firmware fails; EmulatorError where the board has no power
        """
        if not self.powered:
            raise EmulatorError("the power was cut: switch the board on again with power_on().")
        return self._loop.run(seconds, instructions, stop_on_sleep, until)

    def feed(self, data: bytes) -> None:
        """Bytes for the serial line, at the rate of its host's end: `usart.host_baud`."""
        self.usart.feed(data)

    def deliver(self) -> None:
        """Hand what the firmware has sent to who listens."""
        self._loop.deliver()

    def take_output(self) -> bytes:
        """What the firmware has sent since the last call."""
        data = bytes(self.output)
        self.output.clear()
        return data

    @property
    def instructions(self) -> int:
        """Retired since power-on."""
        return int(self._state.total)

    @property
    def now(self) -> int:
        """Core cycles since power-on, an instruction counted as one; sleep and stalls included."""
        return int(self._state.total) + int(self._state.idle)

    @property
    def seconds(self) -> float:
        """Virtual time since power-on."""
        return self.clock.seconds(self.now)

    @property
    def pc(self) -> int:
        return self._loop.pc & ~1

    @property
    def engine(self) -> Engine:
        return self._engine

    @property
    def loop(self) -> Loop:
        return self._loop

    @property
    def asleep(self) -> bool:
        """Whether the firmware waits for an interrupt."""
        return self._loop.asleep

    @property
    def led(self) -> bool:
        port, pin = self.chip.led
        return self.gpio[port].is_high(pin)

    def button(self, on: bool) -> None:
        """Press or release the blue button."""
        port, pin = self.chip.button
        self.gpio[port].hold(pin, on == self.chip.pressed)

    def label_button(self, on: bool) -> None:
        """Press or release the second button, which the camera demo has."""
        self.gpio[LABEL_PORT].hold(LABEL_PIN, not on)

    def connect_camera(self) -> Camera:
        """Put an ArduCAM on the Arduino header.

        Errors   EmulatorError where the camera demo knows no such board
        """
        if not self.chip.has_camera:
            raise EmulatorError(f"{self.chip.board} has no camera: the demo is the STM32F746G-DISCO's.")
        self.camera = Camera(self)
        return self.camera

    def profile(self) -> dict[str, FunctionCost]:
        """Instructions by function since power-on or `clear_profile`, the dearest first."""
        return profile(self.image, self._engine.counters[0])

    def clear_profile(self) -> None:
        for counters in self._engine.counters:
            counters.clear()
        self._state.cache_use = native.CacheCounts()

    def watch_calls(self, functions: Iterable[str], only_inside: bool = False) -> None:
        """Count what calls of these functions take, from now on, and clear the profile.

        only_inside   the profile and the cache model count nothing but what runs inside such calls
        Errors        EmulatorError where the ELF has no such function, or there are too many
        """
        self._watched = tuple(functions)
        self._engine.watch_calls(entries(self.image, self._watched), only_inside)
        self.clear_profile()

    def calls(self) -> dict[str, CallCost]:
        """Calls of each watched function since `watch_calls`, and the instructions in those that returned."""
        return costs(self._watched, self._state.calls)

    def cache_use(self) -> CacheUse:
        """What the caches did since power-on or `clear_profile`; zeros where they are not modelled."""
        counts = self._state.cache_use
        stalls = sum(sum(memoryview(c.stalls).cast("B").cast("Q")) for c in self._engine.counters)
        return CacheUse(counts.instruction_misses, counts.data_misses, counts.write_backs, stalls)

    def sram_touched(self) -> SramUse:
        """SRAM that differs from the paint; `measure_sram` also finds what was written with its value."""
        return sram_use(self.image, self.initial_sp, self.touched_mask())

    def touched_mask(self) -> bytes:
        """A byte for each one of SRAM: 0 where it still is the paint, 1 elsewhere."""
        table = bytes(int(value != self.paint) for value in range(256))
        return self.memory.sram[:].translate(table)

    def press_reset(self) -> None:
        """The black button: a reset that leaves SRAM alone."""
        self.rcc.causes |= PIN
        self.reset()

    def read_memory(self, address: int, size: int) -> bytes:
        return self.memory.read(address, size)

    def watch(self, function: str, callback: Callable[[], None]) -> None:
        """Call back each time the firmware enters a function; `register` then tells its arguments.

        Errors   EmulatorError where the firmware has no such function
        """
        found = next((f for f in self.image.functions if f.name == function), None)
        if found is None:
            raise EmulatorError(f"{self.image.path} has no function {function}.")
        self._engine.watch(found.address, callback)

    def on_block(self, callback: Callable[[int, int], None]) -> None:
        """Call back with address and bytes of each block inside a watched call, until the next reset."""
        self._engine.on_block(callback)

    def flash_content(self) -> bytes:
        """What a power cut at this moment leaves in flash."""
        return self.memory.flash[:]

    def write_memory(self, address: int, data: bytes) -> None:
        """Change flash or SRAM from outside, as a debugger does."""
        memory, offset = self.memory.locate(address, len(data))
        if memory is self.memory.flash:
            self.write_flash(offset, data)
        else:
            memory[offset : offset + len(data)] = data

    def debug_read(self, address: int, size: int) -> int:
        """1, 2 or 4 bytes as a debugger reads them, also of a peripheral's register."""
        if address >= PERIPHERALS and not self.memory.in_external(address):
            return self._bus.read(address, size)
        return int.from_bytes(self.read_memory(address, size), "little")

    def debug_write(self, address: int, size: int, value: int) -> None:
        if address >= PERIPHERALS and not self.memory.in_external(address):
            self._bus.write(address, size, value)
        else:
            self.write_memory(address, value.to_bytes(size, "little"))

    # ---------------------------------------------------------------- services for core and peripherals
    def register(self, register: Register) -> int:
        return self._engine.get(register)

    def usart_status(self) -> int:
        return self._engine.usart_status()

    def stall(self, seconds: float) -> None:
        """The core stands still for a while."""
        self._state.idle += self.clock.cycles(seconds)
        self.look_again()

    def stop_for(self, error: Exception) -> None:
        """A register access failed; the run loop raises the error as soon as it may."""
        if self._loop.trouble is None:
            self._loop.trouble = error
        self.look_again()

    def look_again(self) -> None:
        """Something may have changed for the run loop: leave the guest at the next basic block."""
        self._state.deadline = 0

    def window_changed(self) -> None:
        """QUADSPI or the MPU may have opened or shut the window to the flash beside the chip."""
        if self.quadspi is not None:
            opened = self.quadspi.mapped and self.core.may_read(self.quadspi.kind.base)
            if self.quadspi.mapped:
                self._engine.external_cycles(*self.quadspi.cycles())
            self._engine.open_external(opened)

    def clock_changed(self) -> None:
        self.rcc.check(self.flash.wait_states, self.pwr.overdrive)
        self.clock.set_rate(self.now, self.rcc.core_hz)
        self.flash.tell()
        self.look_again()

    def watchdog_reset(self) -> None:
        self.rcc.causes |= WATCHDOG
        self.reset()

    def request_reset(self) -> None:
        self.rcc.causes |= SOFTWARE
        self._loop.reset_requested = True
        self.look_again()

    def fpu_enabled(self) -> None:
        self._engine.remove_fpu_guard()

    def write_flash(self, offset: int, data: bytes) -> None:
        self.memory.flash[offset : offset + len(data)] = data
        self._engine.flash_changed(offset, len(data))
