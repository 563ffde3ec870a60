"""Front-end rule of transposed convolutions: zeros between the pixels, and a convolution of those."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from microtrain.base.mirrored import mirrored
from microtrain.base.trained import MIRRORED
from microtrain.convert.aten_call import Act, Call, Param, pair, sides, stride_of
from microtrain.convert.axis import Axis
from microtrain.convert.lowering import Lowering, of_series

from ..table import Aten
from . import conv
from .resample import NOTHING, chosen, fits, sampled


def convolution(low: Lowering, call: Call) -> Act:
    """Of an image, or of a series."""
    weight = low.constant(call, call.args.get("weight"), "weight")
    return of_series(low, call, conv2d) if weight.value.ndim == 3 else conv2d(low, call)


def conv2d(low: Lowering, call: Call) -> Act:
    """Weights [c_in, c_out / groups, kh, kw]; with `straight` they are those of the convolution already."""
    x = low.image(call, call.x)
    weight, groups = low.constant(call, call.args.get("weight"), "weight"), int(call.get("groups", 1))
    if weight.value.ndim != 4:
        raise call.error("only transposed convolutions of images and series are supported")
    if not call.get("straight", False):
        weight = _straight(call, weight, groups, low.shape(x)[2])
    apart, strides = pair(call.get("dilation", 1)), stride_of(call, (1, 1))
    left_out, more = (*sides(call.get("padding", 0)), 0, 0)[:4], pair(call.get("output_padding", 0))
    axes, around = list[Axis](), list[tuple[int, int]]()
    for i, size in enumerate(low.shape(x)[:2]):
        reach = (weight.value.shape[2 + i] - 1) * apart[i]
        before, behind = reach - left_out[i], reach - left_out[i] - left_out[2 + i] + more[i]
        fits(call, size * strides[i] + abs(before) + abs(behind))
        places = spread(size, strides[i])[max(-before, 0) :]
        places = places[: max(len(places) + min(behind, 0), 0)]
        if len(places) + max(before, 0) + max(behind, 0) <= reach:
            raise call.error(
                f"a transposed convolution leaves nothing of {size} pixels: its padding is too large"
            )
        axes.append(chosen(places, size))
        around.append((max(before, 0), max(behind, 0)))
    wide = sampled(low, replace(call, builtin=False), x, *axes)
    padding = [*(before for before, _ in around), *(behind for _, behind in around)]
    args = {"input": wide, "weight": weight, "bias": call.args.get("bias"), "padding": padding}
    plain = {**args, "stride": 1, "dilation": list(apart), "groups": groups}
    return conv.conv2d(low, replace(call, args=plain))


def spread(size: int, stride: int) -> list[int]:
    """Places with stride - 1 zeros between them."""
    places = [NOTHING] * ((size - 1) * stride + 1)
    places[::stride] = range(size)
    return places


def _straight(call: Call, weight: Param, groups: int, c_in: int) -> Param:
    """The weights of the convolution that does the same."""
    if groups < 1 or len(weight.value) != c_in or c_in % groups:
        raise call.error(
            f"the transposed convolution wants {len(weight.value)} input channels in {groups} groups and "
            f"gets {c_in}"
        )
    stored = MIRRORED if weight.origin is None else None
    return replace(weight, value=mirrored(weight.value, groups), origin=weight.place, stored=stored)


_SIZES = "input weight bias stride padding output_padding groups dilation"
RULES: Mapping[str, Aten] = dict.fromkeys(("conv_transpose1d", "conv_transpose2d"), Aten(_SIZES, convolution))
