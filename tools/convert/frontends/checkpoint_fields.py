"""The fields of a published checkpoint, each checked before anything is made of it.

`where` names the file and the layer in messages; every error is a ConvertError of one sentence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from microtrain.convert.ir import ConvertError

CONV_KEYS = ("in_channel", "out_channel", "kernel_size", "stride", "groups", "params")
PARAM_KEYS = ("weight", "bias", "w_scales", "x_scale", "x_zero", "y_scale", "y_zero")
BLOCK_KEYS = ("pointwise1", "depthwise", "pointwise2", "residual", "se")
CHANNELS_MAX, KERNEL_MAX = 65535, 255


@dataclass(frozen=True)
class Quantization:
    """real = scale * (q - zero)"""

    scale: float
    zero: int


@dataclass(frozen=True, eq=False)
class Conv:
    """One convolution.

    weight        int8 [c_out][c_in / groups][kh][kw]
    bias          int64 [c_out], within int32
    weight_scale  float64 [c_out], finite, >= 0
    """

    c_in: int
    c_out: int
    kernel: tuple[int, int]
    stride: int
    depthwise: bool
    weight: np.ndarray
    bias: np.ndarray
    weight_scale: np.ndarray
    x: Quantization
    y: Quantization


def read_conv(where: str, found: Any) -> Conv:
    """Check one convolution of the file."""
    conv = mapping(where, found, CONV_KEYS)
    params = mapping(f"{where}.params", conv["params"], PARAM_KEYS)
    c_in, c_out = (whole(where, conv, key, 1, CHANNELS_MAX) for key in ("in_channel", "out_channel"))
    groups = whole(where, conv, "groups", 1, CHANNELS_MAX)
    if groups != 1 and not groups == c_in == c_out:
        raise ConvertError(f"{where} has {groups} groups for {c_in} channels; 1 and depthwise are supported")
    kernel = _kernel(where, conv["kernel_size"])
    weight_scale = array(where, params, "w_scales", "f", (c_out,)).astype(np.float64)
    if not (np.isfinite(weight_scale).all() and (weight_scale >= 0).all() and weight_scale.any()):
        raise ConvertError(f"{where}: w_scales must be finite numbers above 0 (0 for a dead channel)")
    bias = array(where, params, "bias", "i", (c_out,)).astype(np.int64)
    if np.abs(bias).max() > 2**31:
        raise ConvertError(f"{where}: bias holds {bias[np.abs(bias).argmax()]}, which is no int32")
    weight = array(where, params, "weight", "i", (c_out, c_in // groups, *kernel))
    if weight.dtype != np.int8:
        raise ConvertError(f"{where}: weight holds {weight.dtype}, not int8")
    return Conv(
        c_in=c_in,
        c_out=c_out,
        kernel=kernel,
        stride=whole(where, conv, "stride", 1, KERNEL_MAX),
        depthwise=groups > 1,
        weight=weight,
        bias=bias,
        weight_scale=weight_scale,
        x=quantization(where, params, "x"),
        y=quantization(where, params, "y"),
    )


def read_block(where: str, found: Any) -> Mapping[str, Any]:
    """Check what a block consists of; its convolutions are checked one by one."""
    block = mapping(where, found, BLOCK_KEYS)
    if block["se"] is not None:
        raise ConvertError(f"{where} has a squeeze-and-excite branch, which is not supported")
    if all(block[part] is None for part in BLOCK_KEYS[:3]):
        raise ConvertError(f"{where} has no convolution")
    return block


def read_residual(where: str, found: Any) -> tuple[Quantization, Quantization]:
    """Check a residual add: what the skip input and the sum are quantized to."""
    params = mapping(
        f"{where}.residual.params", mapping(f"{where}.residual", found, ("params",))["params"], ()
    )
    if "weight" in params:
        raise ConvertError(f"{where} has a convolution in its skip path, which is not supported")
    return quantization(f"{where}.residual", params, "x"), quantization(f"{where}.residual", params, "y")


def mapping(where: str, found: Any, keys: Iterable[str]) -> Mapping[str, Any]:
    """A dict that has all of the keys."""
    if not isinstance(found, Mapping):
        raise ConvertError(f"{where} is a {type(found).__name__}, not a dict")
    missing = next((key for key in keys if key not in found), None)
    if missing is not None:
        raise ConvertError(f"{where} has no {missing}")
    return found


def whole(where: str, fields: Mapping[str, Any], key: str, least: int, most: int) -> int:
    """A whole number between two limits, both included."""
    value = fields[key]
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise ConvertError(f"{where}: {key} is {_short(value)}; it must be a whole number {least} to {most}")
    return int(value)


def quantization(where: str, params: Mapping[str, Any], side: str) -> Quantization:
    """Scale and zero point of one side, "x" or "y": a normal float32 above 0, and an int8."""
    mapping(where, params, (f"{side}_scale", f"{side}_zero"))
    scale = params[f"{side}_scale"]
    real = isinstance(scale, float | int | np.floating) and not isinstance(scale, bool)
    if not real or not np.finfo(np.float32).tiny <= scale <= np.finfo(np.float32).max:
        raise ConvertError(f"{where}: {side}_scale is {_short(scale)}; it must be a number above 0")
    return Quantization(float(scale), whole(where, params, f"{side}_zero", -128, 127))


def array(where: str, params: Mapping[str, Any], key: str, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """An array of integers (kind "i") or floats ("f") of that shape."""
    value = params[key]
    if not isinstance(value, np.ndarray) or value.dtype.kind != kind or value.shape != shape:
        is_array = isinstance(value, np.ndarray)
        found = f"{value.dtype} {value.shape}" if is_array else type(value).__name__
        wanted = "int8" if key == "weight" else {"i": "integers", "f": "floats"}[kind]
        raise ConvertError(f"{where}: {key} is {found}, not {wanted} {shape}")
    return value


def _kernel(where: str, found: Any) -> tuple[int, int]:
    sizes = tuple(found) if isinstance(found, tuple | list) else ()
    if len(sizes) != 2 or not all(type(s) is int and 0 < s <= KERNEL_MAX and s % 2 for s in sizes):
        raise ConvertError(f"{where}: kernel_size is {_short(found)}; it must be two odd numbers")
    return sizes[0], sizes[1]


def _short(value: Any) -> str:
    """A value for a message."""
    if isinstance(value, np.ndarray):
        return f"an array {value.shape}"
    if isinstance(value, float | np.floating) and not math.isfinite(value):
        return str(float(value))
    return repr(value)[:40]
