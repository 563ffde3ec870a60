"""Builds and loads native.c, once for each version of it and each kind of machine."""

from __future__ import annotations

import ctypes
from pathlib import Path

from microtrain.base.hostcc import Parts, compiled

from .errors import EmulatorError

HERE = Path(__file__).parent
SOURCES = (HERE / "native.c", HERE / "translate" / "run.c")
RX_QUEUE = 4096  # as in native.h
TX_QUEUE = 65536
RX_FRAMING_ERROR = 1 << 8
EXC_RETURN = 0xFFFF_FFE0
VIOLATION_ALIGNMENT, VIOLATION_NO_FPU = 1, 2
STOPPED_AT_LIMIT, STOPPED_AT_FPU = 2, 3
CALLS_MAX, SRAM_PAGES_MAX, SETS_MAX, WAYS_MAX = 64, 80, 64, 4  # as in native.h and cache.h
DTCM_BYTES = 64 * 1024  # as in cache.h
FUNCTIONS_MAX = 512  # as in native.h
NEVER = (1 << 64) - 1
REGISTERS = (
    *("r0", "r1", "r2", "r3", "r12", "lr", "sp", "pc"),
    *("xpsr", "nzcvqg", "epsr", "ipsr", "control", "s0", "fpscr"),
    *("primask", "basepri", "faultmask"),
)

Pointer = ctypes.c_void_p
U32 = ctypes.c_uint32
U64 = ctypes.c_uint64
SlowRead = ctypes.CFUNCTYPE(U64, Pointer, U32, U32)
SlowWrite = ctypes.CFUNCTYPE(None, Pointer, U32, U32, U64)


class Registers(ctypes.Structure):
    """Unicorn's numbers of the registers that native.c uses; struct registers."""

    _fields_ = [(name, ctypes.c_int) for name in REGISTERS]


class UsartState(ctypes.Structure):
    """struct usart: the part of the serial line that must be fast."""

    _fields_ = [
        *((name, U32) for name in ("page", "status", "receive", "send", "clear", "older", "enable", "seen")),
        ("powered", U32),
        ("cr1", U32),
        ("full", U32),
        ("rdr", U32),
        ("errors", U32),
        ("rx_head", U32),
        ("rx_tail", U32),
        ("tx_count", U32),
        ("tx_stop", U32),
        ("rx", ctypes.c_uint16 * RX_QUEUE),
        ("tx", ctypes.c_uint8 * TX_QUEUE),
    ]


class SpiState(ctypes.Structure):
    """struct spi: a burst read of the camera's picture."""

    _fields_ = [
        ("streaming", U32),
        ("full", U32),
        ("rdr", U32),
        ("at", U32),
        ("end", U32),
        ("stream", Pointer),
    ]


class FlashState(ctypes.Structure):
    """struct flash: programming a unit after the other."""

    _fields_ = [
        ("control", U32),
        ("status", U32),
        ("rest", U32),
        ("operations", U64),
        ("seen_from", U64),
        ("unit_cycles", U64),
    ]


class Call(ctypes.Structure):
    """struct call: a function whose calls are counted."""

    _fields_ = [
        ("entry", U32),
        ("active", U32),
        ("back", U32),
        ("sp", U32),
        ("since", U64),
        ("count", U64),
        ("instructions", U64),
    ]


class Cache(ctypes.Structure):
    """struct cache of cache.h."""

    _fields_ = [("sets", U32), ("ways", U32), ("lines", U32 * WAYS_MAX * SETS_MAX)]


class CacheCounts(ctypes.Structure):
    """struct cache_use: misses and lines written back."""

    _fields_ = [("instruction_misses", U64), ("data_misses", U64), ("write_backs", U64)]


class NativeState(ctypes.Structure):
    """struct native: what the callbacks and Python share. Index 0 is flash, 1 SRAM."""

    _fields_ = [
        ("memory", Pointer * 2),
        ("base", U32 * 2),
        ("size", U32 * 2),
        ("alias", U32),
        ("external", U32),
        ("external_size", U32),
        ("external_line", U32),
        ("external_command", U32),
        ("external_next", U32),
        ("entries", Pointer * 2),
        ("retired", Pointer * 2),
        ("blocks", Pointer * 2),
        ("stalls", Pointer * 2),
        ("code_pages", ctypes.c_uint8 * SRAM_PAGES_MAX),
        ("total", U64),
        ("thread", U64),
        ("idle", U64),
        ("deadline", U64),
        ("hard_limit", U64),
        ("stopped", U32),
        ("fpu_off", U32),
        ("watch_masks", U32),
        ("masks", U32),
        ("block", U32),
        ("interrupt", ctypes.c_int32),
        ("violation", U32),
        ("violation_pc", U32),
        ("violation_address", U32),
        ("handlers", U32),
        ("may_return", U32),
        ("returned", U32),
        ("call_count", U32),
        ("inside", U32),
        ("only_inside", U32),
        ("caches_on", U32),
        ("caches_seen", U32),
        ("calls", Call * CALLS_MAX),
        ("instruction_cache", Cache),
        ("data_cache", Cache),
        ("cache_use", CacheCounts),
        ("emu_start", Pointer),
        ("emu_stop", Pointer),
        ("reg_read", Pointer),
        ("reg_write", Pointer),
        ("slow_read", SlowRead),
        ("slow_write", SlowWrite),
        ("reg", Registers),
        ("usart", UsartState),
        ("spi", SpiState),
        ("flash", FlashState),
        ("translation", Pointer),
        ("runs", Pointer),
        ("owners", Pointer),
        ("readable", Pointer),
        ("writable", Pointer),
        ("resumed", U32),
        ("handed_over", ctypes.c_uint8 * FUNCTIONS_MAX),
        ("translated", U64),
    ]


def load() -> ctypes.CDLL:
    """The compiled native.c.

    Errors   Error where there is no C compiler, or it fails
    """
    flags = ("-std=c11", "-O2", "-shared", "-fPIC")
    library = compiled(Parts("the emulator's native.c", "native", SOURCES, flags, (HERE,)))
    loaded = ctypes.CDLL(str(library))
    loaded.native_enter.argtypes = [Pointer, ctypes.POINTER(NativeState), U32, U32, U32]
    loaded.native_enter.restype = U32
    loaded.native_leave.argtypes = [Pointer, ctypes.POINTER(NativeState), U32, U32, ctypes.POINTER(U32)]
    loaded.native_leave.restype = U32
    loaded.native_run.argtypes = [Pointer, ctypes.POINTER(NativeState), U32, U32]
    loaded.native_run.restype = ctypes.c_int
    loaded.native_masks.argtypes = [Pointer, ctypes.POINTER(NativeState)]
    loaded.native_masks.restype = U32
    loaded.native_usart_status.argtypes = [ctypes.POINTER(NativeState)]
    loaded.native_usart_status.restype = U32
    loaded.native_usart_interrupts.argtypes = [ctypes.POINTER(NativeState)]
    loaded.native_usart_interrupts.restype = U32
    loaded.native_forget.argtypes = [ctypes.POINTER(NativeState), U32, U32]
    loaded.native_forget.restype = U32
    loaded.native_flash_moved.argtypes = [ctypes.POINTER(NativeState), Pointer]
    loaded.native_flash_moved.restype = U32
    loaded.native_install.argtypes = [ctypes.POINTER(NativeState), Pointer]
    loaded.native_install.restype = None
    loaded.native_external.argtypes = [ctypes.POINTER(NativeState), Pointer]
    loaded.native_external.restype = None
    if loaded.native_size() != ctypes.sizeof(NativeState):
        raise EmulatorError(f"{library} does not fit native.py: delete it and start again.")
    return loaded
