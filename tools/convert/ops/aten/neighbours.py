"""Front-end rules of means over neighbouring channels, as local response normalisation has them (AlexNet).

PyTorch sees the channels as the depth of a volume, with zeros around it, and takes a pooling over that. Here
it is a convolution of one pixel with equal weights beside the diagonal, which stays frozen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call
from microtrain.convert.ir import Layer, Source, Window
from microtrain.convert.lowering import Lowering

from ..calls import FINEST, Calls, Natural
from . import across

PADS, POOL, WHOLE = ("pad", "constant_pad_nd"), "avg_pool3d", "local_response_norm"
NEAREST = "a mean over neighbouring channels, kernel_size=(n, 1, 1) with a stride of 1, or poolings of images"
ARGUMENTS = {
    POOL: "self kernel_size stride padding ceil_mode count_include_pad divisor_override",
    WHOLE: "input size alpha beta k",
}


@dataclass(frozen=True)
class Volume:
    """A map [n, 1, c, h, w] with channels of zeros before and behind its own, which is no tensor yet."""

    of: Act
    before: int
    behind: int

    @property
    def acts(self) -> tuple[Act]:
        """What a stand-in reads in its place."""
        return (self.of,)

    @property
    def dims(self) -> tuple[int, ...]:
        n, one, c, h, w = self.of.dims
        return n, one, c + self.before + self.behind, h, w


def concerns(low: Lowering, call: Call) -> bool:
    """Whether a call makes such a volume, or reads one; or is the whole normalisation."""
    if isinstance(call.x, Volume) or call.op in (POOL, WHOLE):
        return isinstance(call.x, Act | Volume)
    return call.op in PADS and isinstance(call.x, Act) and _is_volume(low, call.x)


def lower(low: Lowering, call: Call, natural: Natural) -> Any:
    x = call.x
    if call.op == WHOLE:
        return _normalised(low, call, natural)
    if call.op in PADS and isinstance(x, Act):
        widths = [int(n) for n in call.get("pad", None) or call.args["padding"]]
        plain = call.get("mode", "constant") == "constant" and not call.get("value", None)
        if not plain or any(widths[:4]) or any(widths[6:]) or len(widths) < 6 or min(widths) < 0:
            raise _refused(call)
        return Volume(x, widths[4], widths[5])
    volume = x if isinstance(x, Volume) else Volume(x, 0, 0)
    kernel, strides = call.get("kernel_size", None), call.get("stride", None)
    size = int(kernel[0]) if isinstance(kernel, list | tuple) else 0
    plain = list(kernel or ())[1:] == [1, 1] and (strides == 1 or list(strides or ()) == [1, 1, 1])
    around = call.get("padding", 0)
    plain = plain and not np.any(around) and call.args.get("divisor_override") is None
    if call.op != POOL or not plain or not _is_volume(low, volume.of):
        raise _refused(call)
    return _mean(low, call, volume, size)


def _normalised(low: Lowering, call: Call, natural: Natural) -> Act:
    """x / (k + alpha * mean of squares) ** beta, of `size` channels, `before` of them before its own."""
    x, made = call.x, Calls(low, call, natural)
    x = low.image(call, x if x.order is None else across.as_image(low, call, x))
    size = int(call.args["size"])
    before = int(call.get("before", size // 2))
    n, c, h, w = (*x.dims, 1)[:4]
    squares = made("mul", x, x)
    volume = Volume(replace(squares, dims=(n, 1, c, h, w)), before, size - 1 - before)
    mean = replace(_mean(low, replace(call, op=POOL, builtin=False), volume, size), dims=x.dims)
    under = made("add", made("mul", mean, float(call.get("alpha", 1e-4))), float(call.get("k", 1.0)))
    found: Act = made("div", x, made("pow", under, exponent=float(call.get("beta", 0.75))))
    return found


def _is_volume(low: Lowering, x: Act) -> bool:
    h, w, c = low.shape(x)
    return x.order is None and x.dims in ((low.batch, 1, c, h, w), (low.batch, 1, c, h * w, 1))


def _mean(low: Lowering, call: Call, volume: Volume, size: int) -> Act:
    h, w, c = low.shape(volume.of)
    made = c + volume.before + volume.behind - size + 1
    if size < 1 or made < 1:
        raise _refused(call)
    apart = np.arange(c) + volume.before - np.arange(made)[:, None]
    weight = np.where((apart >= 0) & (apart < size), 1.0 / size, 0.0).astype(np.float32)
    name = call.node_name("neighbours")
    name = f"{len(low.nodes)}.{name}" if name in low.layers else name
    scales = np.full(made, 1.0 / size / FINEST)
    low.layers[name] = Layer(weight.reshape(made, 1, 1, c), np.zeros(made, np.float32), Source(""), scales)
    found = low.emit(call, "conv2d", (volume.of,), (h, w, made), layer=name, window=Window(1, 1))
    n, one, _, *rest = volume.of.dims
    return Act(found.tensor, (n, one, made, *rest))


def _refused(call: Call) -> Exception:
    return call.error(f"the op {call.op} of a volume is not supported; the nearest that is: {NEAREST}")
