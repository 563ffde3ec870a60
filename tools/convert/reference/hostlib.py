"""The firmware's kernels on this machine: compiled by the host's C compiler, bound with ctypes.

    HostLib(build(), signatures).conv2d_fwd_s8(p, x, weights, b, y, mask, scratch)
    scratch_bytes("conv2d_fwd", conv2d_struct(...))

A kernel takes what its header in firmware/include/kernels says, NumPy arrays in place of pointers and None
for NULL. Arrays must have the exact dtype and be C-contiguous: nothing is converted or copied. The struct
classes mirror the headers field by field: those of one op stand with its entry, which also says what its
kernels take (`ops/host.py` gathers that); those that several share stand here.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from microtrain.base.errors import Error
from microtrain.base.hostcc import Parts, compiled
from microtrain.base.paths import FIRMWARE

FLAGS = ("-std=c11", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")

S8, U8, S16, U16, S32, U32, F32 = (
    np.dtype(t) for t in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.float32)
)


class Record(ctypes.Structure):
    """A C struct that is filled by keyword; pointer fields take arrays, which it keeps alive.

    _arrays_   dtype of the array behind each pointer field
    _tflite_   last fields, which kernels alone have that round as TensorFlow Lite does; for others they are 0
    """

    _arrays_: ClassVar[dict[str, np.dtype[Any]]] = {}
    _tflite_: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self._alive: dict[str, np.ndarray | None] = {}
        names = _fields_of(type(self))
        for name, value in values.items():
            if name not in names:
                raise Error(f"struct {type(self).__name__} has no field {name}")
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._arrays_:
            self._alive[name] = value
            value = address(value, self._arrays_[name], f"{type(self).__name__}.{name}")
        super().__setattr__(name, value)
        if isinstance(value, int) and name not in self._arrays_ and getattr(self, name) != value:
            raise Error(f"{type(self).__name__}.{name} has no room for {value}")


@functools.cache
def _fields_of(struct: type[Record]) -> frozenset[str]:
    return frozenset(field[0] for field in struct._fields_)


class ErrorS8(Record):
    _fields_ = (("q", ctypes.c_void_p), ("scale", ctypes.c_void_p))
    _arrays_: ClassVar = {"q": S8, "scale": F32}


class Clamp(Record):
    _fields_ = (("mask", ctypes.c_void_p), ("m", ctypes.c_void_p))
    _arrays_: ClassVar = {"mask": U8, "m": S32}


class Sgd(Record):
    _fields_ = (
        *((n, ctypes.c_float) for n in ("lr_weight", "lr_bias", "lr_head")),
        ("seed", ctypes.c_uint32),
        ("step", ctypes.c_uint32),
    )


NUMBER, FACTOR, SCRATCH = "uint32", "float", "scratch"
Signature = tuple[Any, tuple[Any, ...]]  # what a kernel returns and takes; a dtype: an array or None

BASICS: dict[str, Signature] = {
    "exp_f32": (ctypes.c_float, (FACTOR,)),
    "log_f32": (ctypes.c_float, (FACTOR,)),
}


def address(array: np.ndarray | None, dtype: np.dtype[Any], name: str) -> int | None:
    """Address of an array's first element; None for None."""
    if array is None:
        return None
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        found = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise Error(f"{name} must be an array of {dtype}, not {found}")
    if not array.flags.c_contiguous:
        raise Error(f"{name} must be C-contiguous: pass numpy.ascontiguousarray of it")
    return int(array.ctypes.data)


def _c_type(spec: Any) -> Any:
    if spec is NUMBER:
        return ctypes.c_uint32
    if spec is FACTOR:
        return ctypes.c_float
    if isinstance(spec, type) and issubclass(spec, Record):
        return ctypes.POINTER(spec)
    return ctypes.c_void_p


def _argument(spec: Any, value: Any, name: str) -> Any:
    """What ctypes is given for one argument."""
    if spec in (NUMBER, FACTOR):
        return value
    if spec is SCRATCH:
        if value is not None and (not value.flags.c_contiguous or value.ctypes.data % 4):
            raise Error(f"{name} must be C-contiguous and 4-byte aligned")
        return None if value is None else value.ctypes.data
    if isinstance(spec, np.dtype):
        return address(value, spec, name)
    if not isinstance(value, spec):
        raise Error(f"{name} must be a {spec.__name__}, not {type(value).__name__}")
    return ctypes.byref(value)


class HostLib:
    """The compiled kernels as methods, by the names of the headers. signatures: of all that may be called."""

    def __init__(self, path: Path, signatures: Mapping[str, Signature]) -> None:
        self.path = path
        self.library = ctypes.CDLL(str(path))
        self.signatures = signatures

    def __getattr__(self, name: str) -> Any:
        if name not in self.signatures:
            raise AttributeError(f"there is no kernel {name}; kernels: {', '.join(self.signatures)}")
        result, specs = self.signatures[name]
        function = getattr(self.library, name)
        function.restype = result
        function.argtypes = [_c_type(s) for s in specs]
        return functools.partial(self._call, name, function, specs)

    @staticmethod
    def _call(name: str, function: Any, specs: tuple[Any, ...], *values: Any) -> Any:
        if len(values) != len(specs):
            raise Error(f"{name} takes {len(specs)} arguments, not {len(values)}")
        pairs = enumerate(zip(specs, values, strict=True), 1)
        return function(*(_argument(s, v, f"argument {i} of {name}") for i, (s, v) in pairs))


def build(
    cc: str | None = None, kernels: Path | None = None, cache: Path | None = None, level: str = "-O2"
) -> Path:
    """Compile the kernels unless the cache holds them already. Returns the library's path.

    kernels  folder of the sources, the firmware's if None; cache  folder of the results
    level    flags of optimisation, which change no result
    """
    kernels = kernels or FIRMWARE / "src/kernels"
    sources = tuple(sorted(kernels.glob("*.c")))
    if not sources:
        raise Error(f"no kernel sources in {kernels}: the checkout is not complete")
    include = (FIRMWARE / "include", kernels)
    parts = Parts("the kernels", "kernels", sources, (*FLAGS, *level.split()), include)
    return compiled(parts, cache, cc)


@functools.cache
def library() -> ctypes.CDLL:
    """The firmware's kernels as they are, built if need be."""
    return ctypes.CDLL(str(build()))


def ask(function: str, params: ctypes.Structure, *more: ctypes.Structure | int) -> int:
    """What a kernel says of itself: a C function of parameter structs, and of numbers, that returns one.

    Raises AttributeError where there is no such function.
    """
    found = getattr(library(), function)
    found.restype = ctypes.c_uint32
    given = (ctypes.c_uint32(v) if isinstance(v, int) else ctypes.byref(v) for v in more)
    return int(found(ctypes.byref(params), *given))


def scratch_bytes(kernel: str, params: Record, *extra: Record | int) -> int:
    """Scratch that a kernel needs, asked of the kernel's own C function.

    kernel  "conv2d_fwd", "conv2d_fwd_s8", ...; a kernel without scratch needs 0
    extra   further structs, and c_trained for bwd_w
    """
    types = ("_s8", "_s32", "_f32")
    stem = next((kernel.removesuffix(end) for end in types if kernel.endswith(end)), kernel)
    if hasattr(library(), f"{stem}_scratch"):
        return ask(f"{stem}_scratch", params, *extra)
    if any(hasattr(library(), stem + end) for end in types):
        return 0
    raise Error(f"there is no kernel {kernel}")
