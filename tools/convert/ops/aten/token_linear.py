"""Front-end rules of linear layers over the last axis of a view: features, patches, tokens, all of a map."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.base.trained import HWC
from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import Window
from microtrain.convert.lowering import Lowering
from microtrain.convert.nearest import unsupported

from ..calls import Calls, Natural
from ..tokens import numbers, pixels_of, places, settled, turnable, vectors, view_of, viewed, whole
from . import across, attention

NEAREST_LINEAR = "one over the features of each token, the last axis, or over a flattened map"


def linear(low: Lowering, call: Call, natural: Natural) -> Act:
    """Over the features of each token: a convolution of one pixel; over a patch of pixels: of its size."""
    x, pixels = vectors(low, call, call.x)
    weight = low.constant(call, call.args.get("weight"), "weight")
    classes, features = weight.value.shape
    if x.dims[-1] != features:
        raise call.error(f"the linear layer wants {features} features and gets {x.dims[-1]}")
    window = Window(1, 1)
    if pixels is None and np.array_equal(places(low, x).ravel(), np.arange(features)):
        return _over_all(low, call, x, weight)
    pixels_first = False
    if pixels is None:
        patches = _patches(low, x)
        if patches is None:
            found = across.linear(low, call, x, weight) or _in_any_order(low, call, x, weight)
            return found or _of_features(low, call, natural, x)
        window, pixels, pixels_first = patches
    shape = (classes, window.kh, window.kw, low.shape(x)[2])
    if pixels_first:
        layer = _by_pixels(low, call, weight, shape)
    else:
        values = weight.value.reshape(classes, shape[3], *shape[1:3]).transpose(0, 2, 3, 1)
        layer = low.layer(call, weight, values, call.args.get("bias"), shape)
    out = (*window.outputs(*low.shape(x)[:2]), classes)
    made = low.emit(call, "conv2d", (whole(low, x),), out, layer=layer, window=window)
    return view_of(low, made.tensor, pixels[..., None] * classes + np.arange(classes))


def _over_all(low: Lowering, call: Call, x: Act, weight: Param) -> Act:
    """A linear layer over all tokens, one behind the other."""
    h, w, c = low.shape(x)
    classes, features = weight.value.shape
    if features != h * w * c:
        raise call.error(f"the linear layer wants {features} features and gets {h * w * c}")
    name = _by_pixels(low, call, weight, (classes, *low.shape(x)))
    out, dims = (1, 1, classes), (*x.dims[:-1], classes)
    return low.emit(call, "linear", (whole(low, x),), out, dims=dims, layer=name, window=Window(h, w))


def _by_pixels(low: Lowering, call: Call, weight: Param, shape: tuple[int, int, int, int]) -> str:
    """The layer of a matrix whose columns are in the order of pixels. shape: (classes, h, w, c)"""
    name = low.layer(call, weight, weight.value.reshape(shape), call.args.get("bias"), shape)
    layer = low.layers[name]
    if layer.source.columns is not None:
        raise call.error(
            f"{call.op} of tokens that are flattened, by a matrix [inputs, outputs], is not supported; the "
            "nearest that is: nn.Linear"
        )
    low.layers[name] = replace(layer, source=replace(layer.source, columns=HWC))
    return name


def _in_any_order(low: Lowering, call: Call, x: Act, weight: Param) -> Act | None:
    """A linear layer over all numbers of a map, whose columns are put in the order of the memory."""
    at = places(low, x).ravel()
    whole_map = at.size == np.prod(low.shape(x)) == x.dims[-1] and np.unique(at).size == at.size
    if not whole_map or low.is_input(x):  # which may be declared in that order
        return None
    columns = np.empty_like(weight.value)
    columns[:, at] = weight.value
    shape = (len(columns), *low.shape(x))
    own = replace(weight, value=columns, computed=True, origin=None)
    layer = low.layer(call, own, columns.reshape(shape), call.args.get("bias"), shape)
    dims, window = (*x.dims[:-1], len(columns)), Window(*shape[1:3])
    return low.emit(
        call, "linear", (whole(low, x),), (1, 1, len(columns)), dims=dims, layer=layer, window=window
    )


def _of_features(low: Lowering, call: Call, natural: Natural, x: Act) -> Act:
    """Of a map that is turned first: its rows are more than a window reaches."""
    turned, pixels = across.featured(low, call, x)
    if pixels is None:
        return _no_linear(low, call, x)
    return linear(low, replace(call, args={**call.args, "input": turned}), natural)


def _no_linear(low: Lowering, call: Call, x: Act) -> Act:
    raise call.error(
        f"a linear layer reads a tensor of shape {list(x.dims)}; flatten the image before it, or the "
        f"nearest that is supported: {NEAREST_LINEAR}"
    )


def _patches(low: Lowering, x: Act) -> tuple[Window, np.ndarray, bool] | None:
    """A view whose last axis is a patch and whose other axes are the patches of a map; else None.

    Returns its window, the place of each patch, and whether its numbers are in the order HWC, else in CHW
    """
    h, w, c = low.shape(x)
    at = places(low, x)
    rows, columns = at // c // w, at // c % w
    top, left = rows.min(axis=-1), columns.min(axis=-1)
    kh, kw = (int((v[(0,) * (v.ndim - 1)].max() - v.min()) + 1) for v in (rows, columns))
    if at.shape[-1] != kh * kw * c or h % kh or w % kw or (top % kh).any() or (left % kw).any():
        return None
    y, z = np.mgrid[0:kh, 0:kw]
    inside = np.arange(c)[:, None, None] + (y * w + z) * c
    begin = ((top * w + left) * c)[..., None]
    pixels_first = c > 1 and np.array_equal(at, begin + inside.transpose(1, 2, 0).ravel())
    if not pixels_first and not np.array_equal(at, begin + inside.ravel()):
        return None
    return Window(kh, kw, kh, kw), top // kh * (w // kw) + left // kw, pixels_first


def matmul(low: Lowering, call: Call, natural: Natural) -> Any:
    other = call.args["mat2"] if "mat2" in call.args else call.args.get("other")
    if (
        isinstance(call.x, Param)
        and call.x.value.ndim == 2
        and isinstance(other, Act)
        and len(other.dims) > 2
    ):
        return _from_the_left(low, call, natural, other)
    if (found := _weighted_sum(Calls(low, call, natural), call.x, other)) is not None:
        return found
    if not isinstance(other, Param):
        return attention.product(low, call)
    if other.value.ndim != 2 or call.get("alpha", 1) != 1 or call.get("beta", 1) != 1:
        raise unsupported(call)
    x, bias = (call.args["mat1"], call.x) if call.op == "addmm" else (call.x, None)
    args = {"input": x, "weight": other.t, "bias": bias}
    return linear(low, replace(call, args=args), natural)


def _weighted_sum(made: Calls, x: Any, column: Any) -> Act | None:
    """Features [..., c, tokens] times a number for each token [..., tokens, 1]: their sum over all pixels.

    None where it is another product
    """
    low = made.low
    if not isinstance(x, Act) or not isinstance(column, Act) or len(x.dims) != len(column.dims):
        return None
    if len(x.dims) < 3 or column.dims[-1] != 1 or min(x.dims[-2:]) < 2 or low.is_stand_in(column):
        return None
    x = settled(low, made.call, viewed(low, x, numbers(low, x)))
    column = settled(low, made.call, column)
    pixels = pixels_of(low, viewed(low, x, numbers(low, x).swapaxes(-1, -2)))
    own = places(low, column)
    if pixels is None or low.shape(column) != (*low.shape(x)[:2], 1) or pixels.size != own.size:
        return None
    if not np.array_equal(pixels.ravel(), own.ravel()):
        return None
    total = made("sum", made("mul", whole(low, x), whole(low, column)), dim=[2, 3], keepdim=True)
    return view_of(low, total.tensor, np.arange(low.shape(x)[2]).reshape(*x.dims[:-1], 1))


def _from_the_left(low: Lowering, call: Call, natural: Natural, x: Act) -> Act:
    """A matrix times tokens: a linear layer over the tokens of each feature."""
    x = turnable(low, call, x)
    x = viewed(low, x, numbers(low, x).swapaxes(-1, -2))
    made = linear(low, replace(call, args={"input": x, "weight": call.x}), natural)
    return viewed(low, made, numbers(low, made).swapaxes(-1, -2))
