"""The firmware's kernels on this machine: compiled by the host's C compiler, bound with ctypes.

    lib = load()                                  builds build/host/kernels-<hash>.so the first time
    lib.conv2d_fwd_s8(p, x, weights, b, y, mask, scratch)
    scratch_bytes("conv2d_fwd", conv2d_struct(...))

A kernel takes what its header in firmware/include/kernels says, NumPy arrays in place of pointers and None
for NULL. Arrays must have the exact dtype and be C-contiguous: nothing is converted or copied. The struct
classes below mirror the headers field by field.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from microtrain.base.errors import Error
from microtrain.base.hostcc import Parts, compiled
from microtrain.base.paths import FIRMWARE
from microtrain.convert.ir import Shape, Window

FLAGS = ("-std=c11", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")

S8, U8, S16, U16, S32, F32 = (
    np.dtype(t) for t in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.float32)
)


class Record(ctypes.Structure):
    """A C struct that is filled by keyword; pointer fields take arrays, which it keeps alive.

    _arrays_   dtype of the array behind each pointer field
    """

    _arrays_: ClassVar[dict[str, np.dtype[Any]]] = {}

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self._alive: dict[str, np.ndarray | None] = {}
        for name, value in values.items():
            if name not in {f[0] for f in self._fields_}:
                raise Error(f"struct {type(self).__name__} has no field {name}")
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._arrays_:
            self._alive[name] = value
            value = address(value, self._arrays_[name], f"{type(self).__name__}.{name}")
        super().__setattr__(name, value)
        if isinstance(value, int) and name not in self._arrays_ and getattr(self, name) != value:
            raise Error(f"{type(self).__name__}.{name} has no room for {value}")


class Conv2d(Record):
    _fields_ = (
        *((n, ctypes.c_uint16) for n in ("h_in", "w_in", "c_in", "h_out", "w_out", "c_out")),
        *((n, ctypes.c_uint8) for n in ("kh", "kw", "stride_h", "stride_w", "pad_h", "pad_w")),
        ("x_zero", ctypes.c_int16),
        ("y_zero", ctypes.c_int16),
        ("guard", ctypes.c_uint8),
        ("m", ctypes.c_void_p),
    )
    _arrays_: ClassVar = {"m": F32}


class SplitWeights(Record):
    _fields_ = (
        ("frozen", ctypes.c_void_p),
        ("trained", ctypes.c_void_p),
        ("order", ctypes.c_void_p),
        ("c_trained", ctypes.c_uint16),
    )
    _arrays_: ClassVar = {"frozen": S8, "trained": S8, "order": U16}


class TrainedWeights(Record):
    _fields_ = (
        ("w", ctypes.c_void_p),
        ("frac", ctypes.c_void_p),
        ("frac_bits", ctypes.c_uint8),
        ("qas", ctypes.c_void_p),
        ("id", ctypes.c_uint32),
    )
    _arrays_: ClassVar = {"w": S8, "frac": U8, "qas": F32}


class SavedInput(Record):
    _fields_ = (("x", ctypes.c_void_p), ("index", ctypes.c_void_p), ("c_x", ctypes.c_uint16))
    _arrays_: ClassVar = {"x": S8, "index": U16}


class TrainedBias(Record):
    _fields_ = (
        *((n, ctypes.c_void_p) for n in ("delta", "base", "m", "qas")),
        ("limit", ctypes.c_int32),
        ("id", ctypes.c_uint32),
    )
    _arrays_: ClassVar = {"delta": S16, "base": S32, "m": F32, "qas": F32}


class ErrorS8(Record):
    _fields_ = (("q", ctypes.c_void_p), ("scale", ctypes.c_void_p))
    _arrays_: ClassVar = {"q": S8, "scale": F32}


class Clamp(Record):
    _fields_ = (("mask", ctypes.c_void_p), ("m", ctypes.c_void_p))
    _arrays_: ClassVar = {"mask": U8, "m": F32}


class Sgd(Record):
    _fields_ = (
        *((n, ctypes.c_float) for n in ("lr_weight", "lr_bias", "lr_head")),
        ("seed", ctypes.c_uint32),
        ("step", ctypes.c_uint32),
    )


class Add(Record):
    _fields_ = (
        ("pixels", ctypes.c_uint32),
        ("c", ctypes.c_uint16),
        *((n, ctypes.c_int16) for n in ("a_zero", "b_zero", "y_zero")),
        *((n, ctypes.c_float) for n in ("a_scale", "b_scale", "y_scale")),
    )


class Pool(Record):
    _fields_ = (
        *((n, ctypes.c_uint16) for n in ("h_in", "w_in", "c", "h_out", "w_out")),
        *((n, ctypes.c_uint8) for n in ("kh", "kw", "stride_h", "stride_w", "pad_h", "pad_w")),
        ("x_zero", ctypes.c_int16),
    )


class Head(Record):
    _fields_ = (
        *((n, ctypes.c_uint16) for n in ("pixels", "c", "classes")),
        ("x_zero", ctypes.c_int16),
        ("x_scale", ctypes.c_float),
    )


NUMBER, FACTOR, SCRATCH = "uint32", "float", "scratch"
_CONV = (Conv2d, ErrorS8)
_STEP = (TrainedWeights, Sgd, SCRATCH)

# One row a kernel: what it returns and what it takes; a dtype stands for an array or None.
KERNELS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "conv2d_fwd_s8": (None, (Conv2d, S8, SplitWeights, S32, S8, U8, SCRATCH)),
    "conv2d_bwd_x_s8": (None, (*_CONV, SplitWeights, Clamp, ErrorS8, SCRATCH)),
    "conv2d_bwd_w_s8": (None, (*_CONV, SavedInput, NUMBER, *_STEP)),
    "dwconv2d_fwd_s8": (None, (Conv2d, S8, SplitWeights, S32, S8, U8, SCRATCH)),
    "dwconv2d_bwd_x_s8": (None, (*_CONV, SplitWeights, Clamp, ErrorS8, SCRATCH)),
    "dwconv2d_bwd_w_s8": (None, (*_CONV, SavedInput, U16, NUMBER, *_STEP)),
    "bias_update_s32": (None, (NUMBER, NUMBER, ErrorS8, TrainedBias, Sgd)),
    "bias_expand_s32": (None, (NUMBER, TrainedBias, S32)),
    "gather_s8": (None, (NUMBER, NUMBER, S8, U16, NUMBER, S8)),
    "add_fwd_s8": (None, (Add, S8, S8, S8, U8)),
    "error_pass_s8": (None, (NUMBER, NUMBER, ErrorS8, FACTOR, Clamp, ErrorS8)),
    "error_add_s8": (None, (NUMBER, NUMBER, ErrorS8, FACTOR, ErrorS8, FACTOR, Clamp, ErrorS8)),
    "avgpool_fwd_s8": (None, (Pool, S8, S8)),
    "avgpool_bwd_x_s8": (None, (Pool, ErrorS8, Clamp, ErrorS8, SCRATCH)),
    "maxpool_fwd_s8": (None, (Pool, S8, S8, U8)),
    "maxpool_bwd_x_s8": (None, (Pool, ErrorS8, U8, Clamp, ErrorS8, SCRATCH)),
    "head_fwd_f32": (None, (Head, S8, F32, F32, F32)),
    "loss_cross_entropy_f32": (ctypes.c_float, (NUMBER, F32, NUMBER, F32)),
    "loss_mse_f32": (ctypes.c_float, (NUMBER, F32, NUMBER, F32)),
    "head_bwd_x_f32": (None, (Head, F32, F32, Clamp, ErrorS8, SCRATCH)),
    "head_bwd_w_f32": (None, (Head, F32, S8, F32, F32, Sgd)),
    "exp_f32": (ctypes.c_float, (FACTOR,)),
    "log_f32": (ctypes.c_float, (FACTOR,)),
    "conv2d_fwd_scratch": (ctypes.c_uint32, (Conv2d,)),
    "conv2d_bwd_x_scratch": (ctypes.c_uint32, (Conv2d,)),
    "conv2d_bwd_w_scratch": (ctypes.c_uint32, (Conv2d, NUMBER)),
    "dwconv2d_fwd_scratch": (ctypes.c_uint32, (Conv2d,)),
    "dwconv2d_bwd_x_scratch": (ctypes.c_uint32, (Conv2d,)),
    "dwconv2d_fwd_in_place": (ctypes.c_uint32, (Conv2d,)),
    "dwconv2d_bwd_x_in_place": (ctypes.c_uint32, (Conv2d,)),
    "dwconv2d_bwd_w_scratch": (ctypes.c_uint32, (Conv2d, NUMBER)),
    "avgpool_bwd_x_scratch": (ctypes.c_uint32, (Pool,)),
    "maxpool_bwd_x_scratch": (ctypes.c_uint32, (Pool,)),
    "head_bwd_x_scratch": (ctypes.c_uint32, (Head,)),
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
    """The compiled kernels as methods, by the names of the headers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.library = library = ctypes.CDLL(str(path))
        for name, (result, specs) in KERNELS.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = [_c_type(s) for s in specs]
            setattr(self, name, functools.partial(self._call, name, function, specs))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"there is no kernel {name}; kernels: {', '.join(KERNELS)}")

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
def load(cc: str | None = None) -> HostLib:
    """The firmware's kernels, built if need be. cc: name of a compiler, the default one if None."""
    return HostLib(build(cc))


def conv2d_struct(x: Shape, y: Shape, window: Window, x_zero: int, y_zero: int, guard: int) -> Conv2d:
    """Parameters of a convolution from x to y, without its table of multipliers (assign `.m` for a call)."""
    values = dict(zip(("h_in", "w_in", "c_in", "h_out", "w_out", "c_out"), (*x, *y), strict=True))
    return Conv2d(**values, **vars(window), x_zero=x_zero, y_zero=y_zero, guard=guard)


def pool_struct(x: Shape, y: Shape, window: Window, x_zero: int) -> Pool:
    """Parameters of a pooling from x to y."""
    values = dict(zip(("h_in", "w_in", "c", "h_out", "w_out"), (*x, *y[:2]), strict=True))
    return Pool(**values, **vars(window), x_zero=x_zero)


class StreamStage(ctypes.Structure):
    _fields_ = (
        ("conv", ctypes.POINTER(Conv2d)),
        ("w", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("depthwise", ctypes.c_uint8),
    )


class Stream(ctypes.Structure):
    _fields_ = (
        ("stage", ctypes.POINTER(StreamStage)),
        ("add", ctypes.POINTER(Add)),
        *((n, ctypes.c_uint8) for n in ("stages", "rows", "resident")),
    )


def stream_scratch(stages: list[tuple[Conv2d, bool]], add: Add | None, rows: int, resident: bool) -> int:
    """Scratch of a chain of convolutions (parameters, depthwise) that takes `rows` input rows at a time."""
    array = (StreamStage * len(stages))()
    for stage, (conv, depthwise) in zip(array, stages, strict=True):
        stage.conv, stage.depthwise = ctypes.pointer(conv), int(depthwise)
    stream = Stream(array, ctypes.pointer(add) if add else None, len(stages), rows, int(resident))
    function = load().library.stream_fwd_scratch
    function.restype = ctypes.c_uint32
    return int(function(ctypes.byref(stream)))


def scratch_bytes(kernel: str, params: Record, *extra: int) -> int:
    """Scratch that a kernel needs, asked of the kernel's own C function.

    kernel  "conv2d_fwd", "conv2d_fwd_s8", ...; a kernel without scratch needs 0
    extra   c_trained for bwd_w
    """
    stem = kernel.removesuffix("_s8").removesuffix("_s32").removesuffix("_f32")
    if f"{stem}_scratch" in KERNELS:
        return int(getattr(load(), f"{stem}_scratch")(params, *extra))
    if any(name.startswith(stem + "_") for name in KERNELS):
        return 0
    raise Error(f"there is no kernel {kernel}")
