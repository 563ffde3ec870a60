"""The processor: Unicorn with the memory map, and the native callbacks that count, guard and stop it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import unicorn
from unicorn import arm_const
from unicorn.unicorn_py3.unicorn import uclib

from . import native
from .counters import Counters
from .errors import EmulatorError
from .mapping import cached, map_memory
from .memory import FLASH_BASE, SRAM_BASE, Memory
from .native import EXC_RETURN, NEVER, SRAM_PAGES_MAX, STOPPED_AT_FPU, NativeState
from .registers import Register
from .speedup import Speedup

PAGE = 4096
SPI_PAGE = 0x4000_3000
FLASH_PAGE = 0x4002_3000
SYSTEM_PAGE = 0xE000_E000
CPU_MODEL = {
    "cortex-m4": arm_const.UC_CPU_ARM_CORTEX_M4,
    "cortex-m7": arm_const.UC_CPU_ARM_CORTEX_M7,
}  # UC_MODE_MCLASS would make each a Cortex-M33
INSTRUCTION_CACHE, DATA_CACHE = (64, 2), (32, 4)  # sets and ways; 4 KB each
UNICORN_MINIMUM = (2, 1, 4)
ReadRegister = Callable[[int, int], int]  # (address, size) -> value
WriteRegister = Callable[[int, int, int], None]  # (address, size, value)
BadAccess = Callable[[int, int, bytes], bool]  # (kind of access, address, data) -> whether it may go on


class Engine:
    """One processor from reset to reset.

    state      what native.c and Python share
    counters   of flash and of SRAM
    speedup    what is translated
    """

    def __init__(
        self, memory: Memory, read: ReadRegister, write: WriteRegister, bad_access: BadAccess
    ) -> None:
        if unicorn.__version__ and unicorn.uc_version()[:2] < UNICORN_MINIMUM[:2]:
            raise EmulatorError("Unicorn is too old: pip install 'unicorn>=2.1.4,<2.2'")
        self.memory = memory
        self._read, self._write, self._bad_access = read, write, bad_access
        self._library = native.load()
        self.counters = (Counters(len(memory.flash)), Counters(len(memory.sram)))
        self.state = NativeState()
        self._watched: list[tuple[int, Callable[[], None]]] = []
        self._running = False
        self._stale: list[tuple[int, int]] = []  # offset and size of code in flash that is another one now
        self._made_as: tuple[bool, bool] | None = None  # strict, with caches
        self._flash_seen = (ctypes.c_char * len(memory.flash))()  # at the last restart
        self._word = ctypes.c_uint32()
        self._word_at = ctypes.byref(self._word)
        self._fill_state()
        self.speedup = Speedup(self._library, self.state, memory)

    def _fill_state(self) -> None:
        state = self.state
        areas = (
            (self.memory.flash_view, FLASH_BASE, len(self.memory.flash)),
            (self.memory.sram_view, SRAM_BASE, len(self.memory.sram)),
        )
        for i, (view, base, size) in enumerate(areas):
            state.memory[i], state.base[i], state.size[i] = ctypes.addressof(view), base, size
            for name in ("entries", "retired", "stalls", "blocks"):
                getattr(state, name)[i] = ctypes.addressof(getattr(self.counters[i], name))
        state.alias = self.memory.flash_bases[-1]
        if external := self.memory.chip.external:
            state.external, state.external_size = external.base, external.size
        for name in ("emu_start", "emu_stop", "reg_read", "reg_write"):
            setattr(state, name, ctypes.cast(getattr(uclib, f"uc_{name}"), ctypes.c_void_p).value)
        for name in native.REGISTERS:
            setattr(state.reg, name, Register[name.upper()].value)
        state.slow_read = native.SlowRead(lambda _uc, address, size: self._read(address, size))
        state.slow_write = native.SlowWrite(
            lambda _uc, address, size, value: self._write(address, size, value)
        )
        state.hard_limit = NEVER
        state.interrupt = -1

    # ---------------------------------------------------------------- set-up
    def restart(self, pages: list[int], strict: bool, caches: bool) -> None:
        """The processor as a reset leaves it. `pages`: addresses of the pages with peripherals."""
        self._forget_calls()
        self._empty_caches(caches)
        if self._made_as != (strict, caches):
            self._make(pages, strict, caches)
            self._made_as = strict, caches
        else:
            self._make_new_again()
        self.state.fpu_off, self.state.flash.rest = 1, 0

    def _make(self, pages: list[int], strict: bool, caches: bool) -> None:
        """A processor with everything mapped."""
        self._uc = uc = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB)
        uc.ctl_set_cpu_model(CPU_MODEL[self.memory.chip.cpu])
        map_memory(uc, self.memory)
        for page in pages:
            self._map_page(page)
        self._guard_memory(uc)
        self._hook(unicorn.UC_HOOK_BLOCK, "native_block")
        self._hook(unicorn.UC_HOOK_INTR, "native_interrupt")
        if strict:
            self._hook(unicorn.UC_HOOK_CODE, "native_alignment")
        for first, last in cached(self.memory) if caches else ():
            self._hook(
                unicorn.UC_HOOK_MEM_READ | unicorn.UC_HOOK_MEM_WRITE, "native_data_access", first, last
            )
        self._until_reset: list[int] = []
        self._fpu_guard: int | None = None
        self._external_open = False
        for address, callback in self._watched:
            self._watch(address, callback)
        self._library.native_flash_moved(self.state, ctypes.addressof(self._flash_seen))
        self._fresh = uc.context_save()

    def _make_new_again(self) -> None:
        """Registers as in a new processor, and nothing that the last run has left behind. Translated code
        stays while the code itself does: translating it is most of what a boot takes."""
        uc = self._uc
        uc.context_restore(self._fresh)
        stale = self._library.native_flash_moved(self.state, ctypes.addressof(self._flash_seen))
        if stale:
            self.speedup.end()
        self.remove_fpu_guard()
        if self._until_reset:
            for hook in self._until_reset:
                uc.hook_del(hook)
            self._until_reset.clear()
            stale = 1
        if any(self.state.code_pages):  # of SRAM, whose content is another one now
            ctypes.memset(self.state.code_pages, 0, SRAM_PAGES_MAX)
            uc.ctl(unicorn.UC_CTL_TLB_FLUSH, unicorn.UC_CTL_IO_WRITE)
            stale = 1
        if stale:
            self.translate_anew()
        self.open_external(False)

    def translate_anew(self) -> None:
        """Forget all translated code: hooks on blocks and instructions are part of it."""
        self._uc.ctl_flush_tb()  # type: ignore[attr-defined]  # not in the stubs

    def _guard_memory(self, uc: unicorn.Uc) -> None:
        """Have forbidden accesses reported. None of SRAM is forbidden: Unicorn stores slowly where such a
        hook might see it, and where it takes a page for one with code."""
        uc.ctl_set_tlb_mode(unicorn.UC_TLB_VIRTUAL)  # type: ignore[attr-defined]  # not in the stubs
        ctypes.memset(self.state.code_pages, 0, SRAM_PAGES_MAX)
        self._hook(unicorn.UC_HOOK_TLB_FILL, "native_tlb_fill")
        flash_end = FLASH_BASE + len(self.memory.flash) - 1
        self._hook(unicorn.UC_HOOK_MEM_WRITE_PROT, "native_flash_store", FLASH_BASE, flash_end)
        end = SRAM_BASE + len(self.memory.sram)
        self._hook(unicorn.UC_HOOK_MEM_FETCH_UNMAPPED, "native_exc_return", EXC_RETURN, 0xFFFF_FFFF)
        for first, last in ((0, SRAM_BASE - 1), (end, EXC_RETURN - 1)):
            uc.hook_add(unicorn.UC_HOOK_MEM_INVALID, self._on_bad_access, None, first, last)

    def watch(self, address: int, callback: Callable[[], None]) -> None:
        """Call back each time the instruction at this address is about to run, now and after every reset."""
        self._watched.append((address & ~1, callback))
        self.speedup.end()
        self._watch(address & ~1, callback)
        self._uc.ctl_remove_cache(address & ~1, (address & ~1) + 2)

    def _watch(self, address: int, callback: Callable[[], None]) -> None:
        self._uc.hook_add(unicorn.UC_HOOK_CODE, lambda *_: callback(), None, address, address)

    def on_block(self, callback: Callable[[int, int], None]) -> None:
        """Call back where a block begins within a watched call, handlers left out, until a restart; slow."""
        state = self.state

        def note(_uc: unicorn.Uc, address: int, size: int, _data: object) -> None:
            if state.inside and not state.handlers:
                callback(address, size)

        self._until_reset.append(self._uc.hook_add(unicorn.UC_HOOK_BLOCK, note))
        self.speedup.end()
        self.translate_anew()

    def _forget_calls(self) -> None:
        """No exception and no watched call is in progress."""
        self.state.handlers = self.state.inside = self.state.returned = 0
        for call in self.state.calls:
            call.active = 0

    def _empty_caches(self, modelled: bool) -> None:
        self.state.caches_on = int(modelled)
        for cache, (sets, ways) in (
            (self.state.instruction_cache, INSTRUCTION_CACHE),
            (self.state.data_cache, DATA_CACHE),
        ):
            ctypes.memset(ctypes.addressof(cache), 0, ctypes.sizeof(cache))
            cache.sets, cache.ways = sets, ways

    def watch_calls(self, entries: list[int], only_inside: bool) -> None:
        """Count the calls of the functions at these addresses from now on, CALLS_MAX at most.

        only_inside   entries, instructions, stalls and misses count nothing but what runs in these calls
        """
        state = self.state
        ctypes.memset(ctypes.addressof(state.calls), 0, ctypes.sizeof(state.calls))
        for call, entry in zip(state.calls, entries, strict=False):
            call.entry = entry
        state.call_count, state.inside, state.only_inside = len(entries), 0, int(only_inside)

    def _map_page(self, page: int) -> None:
        served = {self.state.usart.page: "usart", FLASH_PAGE: "flash", SYSTEM_PAGE: "system"}
        if self.memory.chip.has_camera:
            served[SPI_PAGE] = "spi"
        if name := served.get(page):
            read = getattr(self._library, f"native_{name}_read")
            write = getattr(self._library, f"native_{name}_write")
            argument = ctypes.byref(self.state)
            status = uclib.uc_mmio_map(
                self._handle, page, PAGE, *(_pointer(read), argument, _pointer(write), argument)
            )
            if status:
                raise unicorn.UcError(status)
            return
        self._uc.mmio_map(
            page,
            PAGE,
            lambda _uc, offset, size, _data: self._read(page + offset, size),
            None,
            lambda _uc, offset, size, value, _data: self._write(page + offset, size, value),
            None,
        )

    @property
    def _handle(self) -> ctypes.c_void_p:
        handle = self._uc._uch
        assert handle is not None
        return handle

    def _hook(self, kind: int, function: str, first: int = 1, last: int = 0) -> int:
        """Install a callback of native.c for a range of addresses; an empty one, 1..0, means all."""
        hook = ctypes.c_size_t()
        status = uclib.uc_hook_add(
            self._handle,
            ctypes.byref(hook),
            kind,
            _pointer(getattr(self._library, function)),
            ctypes.byref(self.state),
            ctypes.c_uint64(first),
            ctypes.c_uint64(last),
        )
        if status:
            raise unicorn.UcError(status)
        return hook.value

    def _guard_fpu(self) -> None:
        """Look at each instruction from now on: one of the FPU comes before the FPU is on."""
        self.state.fpu_off = 0
        self._fpu_guard = self._hook(unicorn.UC_HOOK_CODE, "native_fpu_guard")
        self.translate_anew()

    def remove_fpu_guard(self) -> None:
        self.state.fpu_off = 0
        if self._fpu_guard is not None:
            uclib.uc_hook_del(self._handle, ctypes.c_size_t(self._fpu_guard))
            self._fpu_guard = None

    def _on_bad_access(
        self, _uc: object, kind: int, address: int, size: int, value: int, _data: object
    ) -> bool:
        data = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
        allowed = self._bad_access(kind, address, data)
        self.set(Register.EPSR, 1 << 24)  # such a hook leaves a stale ITSTATE behind
        return allowed

    # ---------------------------------------------------------------- running
    def run(self, pc: int, until: int = 0xFFFF_FFFF) -> unicorn.UcError | None:
        """Run from `pc` until the state's deadline, a sleep, an exception or an error, which is returned."""
        self.state.stopped = self.state.violation = 0
        self.state.interrupt = -1
        self._uc._hook_exception = None  # what a callback of Python's raises; the binding's emu_start is slow
        self._running = True
        status = self._library.native_run(self._handle, self.state, pc, until)
        self._running = False
        self._drop_stale()
        self.speedup.look(self.counters[0])
        if status:
            return unicorn.UcError(status)
        if self._uc._hook_exception is not None:
            raise self._uc._hook_exception
        if self.state.stopped == STOPPED_AT_FPU:
            self._guard_fpu()
            return self.run(pc=self.get(Register.PC), until=until)
        return None

    @property
    def translated(self) -> int:
        """Instructions that ran as translated code."""
        return int(self.state.translated)

    def step(self, pc: int, count: int) -> None:
        """Retire exactly `count` instructions of the block at `pc`; those in an IT block go together."""
        end = pc & ~1
        for _ in range(count):
            half = int.from_bytes(self.memory.read(end, 2), "little")
            end += 4 if half >> 11 >= 0x1D else 2
        total, deadline, limit = self.state.total, self.state.deadline, self.state.hard_limit
        thread = self.state.thread + (0 if self.state.handlers else count)
        self.state.deadline = self.state.hard_limit = NEVER
        self._uc.ctl_remove_cache(pc & ~1, (pc & ~1) + 256)
        error = self.run(pc, end)
        self._uc.ctl_remove_cache(pc & ~1, (pc & ~1) + 256)
        self.state.total, self.state.deadline, self.state.hard_limit = total + count, deadline, limit
        self.state.thread = thread
        if error is not None:
            raise error

    def get(self, register: int) -> int:
        uclib.uc_reg_read(self._handle, register, self._word_at)  # the binding's own is five times slower
        return self._word.value

    def set(self, register: int, value: int) -> None:
        self._word.value = value
        uclib.uc_reg_write(self._handle, register, self._word_at)

    def enter(self, number: int, pc: int, nested: bool, stacked: bool = True) -> int:
        """Enter an exception. Returns 0, or the address where there is no room for its frame.

        stacked   False: make do without a frame, as the chip does where there is no room for one
        """
        flags = int(nested) | int(not stacked) << 1
        result: int = self._library.native_enter(self._handle, self.state, number, pc & ~1, flags)
        return result

    def leave(self, exc_return: int, outer: int) -> tuple[int, int]:
        """Unstack a frame. Returns (0, where to go on), or (address where there is no frame, 0)."""
        pc = ctypes.c_uint32()
        result = self._library.native_leave(self._handle, self.state, exc_return, outer, ctypes.byref(pc))
        return result, pc.value

    def masks(self) -> int:
        """PRIMASK in bit 0, FAULTMASK in bit 1, BASEPRI in bits 8 to 15."""
        masks: int = self._library.native_masks(self._handle, self.state)
        return masks

    def usart_status(self) -> int:
        status: int = self._library.native_usart_status(self.state)
        return status

    def usart_interrupts(self) -> bool:
        return bool(self._library.native_usart_interrupts(self.state))

    # ---------------------------------------------------------------- flash
    def open_external(self, readable: bool) -> None:
        """Let loads through to the flash beside the chip, or no longer."""
        external = self.memory.chip.external
        if external is None or readable == self._external_open:
            return
        self.memory.erase_external()
        self._external_open = readable
        view = self.memory.external_view
        self.speedup.map_external(ctypes.addressof(view) if readable and view is not None else None)
        self._uc.mem_protect(
            external.base, external.size, unicorn.UC_PROT_READ if readable else unicorn.UC_PROT_NONE
        )

    def external_cycles(self, line: int, command: int) -> None:
        """Core cycles that a line of that flash takes, and a new command before one."""
        self.state.external_line, self.state.external_command = line, command

    def flash_changed(self, offset: int, size: int) -> None:
        """Drop translations of code that was overwritten. While the guest runs it is left first: Unicorn
        does not bear it within a hook."""
        if self._library.native_forget(self.state, offset, size):
            self._stale.append((offset, size))
            self.speedup.end()
            self.state.deadline = 0
            if not self._running:
                self._drop_stale()

    def _drop_stale(self) -> None:
        for offset, size in self._stale:
            for base in self.memory.flash_bases:
                self._uc.ctl_remove_cache(base + offset, base + offset + size)
        self._stale.clear()


def _pointer(function: object) -> ctypes.c_void_p:
    return ctypes.cast(function, ctypes.c_void_p)  # type: ignore[arg-type]
