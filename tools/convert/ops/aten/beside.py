"""Front-end rule of channels in front of those of a map and behind them: zeros, a number, or its own.

Shortcuts of ResNets for CIFAR have them (He et al. 2016, option A), where a block has more channels than what
comes to it. Channels of zeros are those of the map times 0, by a layer of one weight each that stays frozen.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from microtrain.convert.aten_call import Act, Call
from microtrain.convert.ir import Window
from microtrain.convert.lowering import Lowering

from ..calls import frozen
from .channels import take
from .resample import AROUND, fits


def beside(low: Lowering, call: Call, given: Act, widths: tuple[int, int], mode: str, value: float) -> Act:
    """An image, a series or a vector with more channels.

    widths  how many come before and behind; mode: "constant", or one of AROUND; value: what a constant is
    """
    x = low.channelled(call, given)
    c = low.shape(x)[2]
    if min(widths) < 0 or (mode != "constant" and max(widths) >= c):
        raise call.error(
            f"padding of {c} channels by {list(widths)} with mode={mode!r} is not supported; the nearest "
            "that is: zeros before and behind them, or cuts of channels"
        )
    fits(call, c + sum(widths))
    if mode != "constant":
        return take(low, call, x, np.pad(np.arange(c), widths, mode=AROUND[mode]).tolist())  # type: ignore[call-overload]
    own = np.pad(np.ones(c, bool), widths)
    places, apart = np.pad(np.arange(c), widths, "edge").tolist(), replace(call, op="take", builtin=False)
    wide = take(low, apart, x, places, (widths[0], widths[0] + c))  # behind those times 0 nothing comes back
    return replace(masked(low, call, wide, call.node_name("channels"), own, value), dims=wide.dims)


def masked(low: Lowering, call: Call, x: Act, name: str, own: np.ndarray, value: float = 0.0) -> Act:
    """A map with a constant in the place of channels that are not its own, by a frozen layer of this name."""
    layer = frozen(low, name, own.astype(np.float32)[:, None, None], np.where(own, 0.0, value))
    shape = (*low.shape(x)[:2], len(own))
    return low.emit(call, "dwconv2d", (x,), shape, layer=layer, window=Window(1, 1))
