"""Front-end rules of blocks of pixels that become channels, and of channels that become blocks of pixels.

Both are convolutions in groups, of one tap each, which stay frozen: down with a stride, up transposed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from microtrain.convert.aten_call import Act, Call, pair, stride_of
from microtrain.convert.ir import Window
from microtrain.convert.lowering import Lowering

from ..calls import frozen
from ..table import Aten
from .channels import take
from .resample import chosen, fits, sampled
from .transposed import spread

BANDS = ".bands"  # ends the names of layers that take bands apart


def down(low: Lowering, call: Call) -> Act:
    """[n, c, h, w] as [n, c * r * r, h / r, w / r], channels in the order (c, row, column).

    With `blocks_first` in the order (row, column, c).
    """
    x = low.image(call, call.x)
    side, (h, w, c) = _side(call), low.shape(x)
    if side == 1:
        return x
    if h % side or w % side:
        raise call.error(
            f"blocks of {side}x{side} pixels do not divide {h}x{w}; the nearest that is supported: a padding "
            "before them"
        )
    layer = _chosen(low, call, c * side * side, side, 1)
    window = Window(side, side, side, side)
    shape = (h // side, w // side, c * side * side)
    made = low.emit(call, "gconv2d" if c > 1 else "conv2d", (x,), shape, layer=layer, window=window)
    return take(low, call, made, _blocks_first(c, side)) if call.get("blocks_first", False) else made


def up(low: Lowering, call: Call) -> Act:
    """[n, c * r * r, h, w] as [n, c, h * r, w * r]; the inverse of down()."""
    x = low.image(call, call.x)
    side, (h, w, c) = _side(call), low.shape(x)
    if side == 1:
        return x
    if c % (side * side):
        raise call.error(
            f"{c} channels are no blocks of {side}x{side} pixels; the nearest that is supported: a multiple "
            f"of {side * side}"
        )
    made = c // (side * side)
    if call.get("blocks_first", False):
        x = take(low, call, x, np.argsort(_blocks_first(made, side)).tolist())
    fits(call, h * side, w * side)
    wide = sampled(low, replace(call, builtin=False), x, *(chosen(spread(n, side), n) for n in (h, w)))
    layer = _chosen(low, call, made, side, side * side)
    window = Window(side, side, 1, 1, side - 1, side - 1)
    op = "gconv2d" if made > 1 else "conv2d"
    return low.emit(call, op, (wide,), (h * side, w * side, made), layer=layer, window=window)


def windows(low: Lowering, call: Call) -> Act:
    """im2col: what each window of an image sees, [n, c * kh * kw, windows]; nn.Unfold."""
    x, (kh, kw) = low.image(call, call.x), pair(call.args["kernel_size"])
    (h, w, c), apart = low.shape(x), pair(call.get("dilation", 1))
    (ph, pw), stride = pair(call.get("padding", 0)), stride_of(call, (1, 1))
    if apart != (1, 1):
        raise call.error("windows with a dilation are not supported; the nearest that is: windows without")
    window = Window(kh, kw, *stride, ph, pw)
    rows, columns = window.outputs(h, w)
    weight = np.tile(np.eye(kh * kw, dtype=np.float32), (c, 1)).reshape(c * kh * kw, kh, kw, 1)
    layer, shape = frozen(low, f"{call.node_name('windows')}.seen", weight), (rows, columns, c * kh * kw)
    made = low.emit(call, "gconv2d" if c > 1 else "conv2d", (x,), shape, layer=layer, window=window)
    return replace(made, dims=(low.batch, shape[2], rows * columns))


def seen(low: Lowering, call: Call, x: Act) -> Act:
    """What up() or down() makes, or a list of channels, where a view that turned its numbers is just that;
    else the view."""
    if x.order is None or len(x.dims) != 4 or x.dims[0] != low.batch or x.factor != 1 or x.tensor in low.last:
        return x
    (h, w, c), (_, channels, rows, columns) = low.shape(x), x.dims
    order = x.order.reshape(channels, rows, columns)
    image = Act(x.tensor, (low.batch, c, h, w))
    taken = order[:, 0, 0] // (h * w)
    if (rows, columns) == (h, w) and np.array_equal(
        order.reshape(channels, -1), taken[:, None] * (h * w) + np.arange(h * w)
    ):
        return take(low, replace(call, op="take", builtin=False), image, taken.tolist())
    for rule, side in ((down, h // rows), (up, rows // h)):
        small, large = ((rows, columns), (h, w)) if rule is down else ((h, w), (rows, columns))
        if side < 2 or large != (small[0] * side, small[1] * side) or order.size != c * h * w:
            continue
        for first in (False, True):
            if np.array_equal(order, _numbers(rule is down, first, side, (c, h, w), channels)):
                args = {"self": image, "upscale_factor": side, "blocks_first": first}
                return rule(low, replace(call, op="blocks", builtin=False, args=args))
    return x


def _numbers(down: bool, first: bool, side: int, sizes: tuple[int, int, int], channels: int) -> np.ndarray:
    """Which number of CHW stands where, in CHW, behind down() or up(). first: blocks_first"""
    c, h, w = sizes
    every = np.arange(c * h * w)
    if down:
        made = every.reshape(c, h // side, side, w // side, side)
        return made.transpose((2, 4, 0, 1, 3) if first else (0, 2, 4, 1, 3)).reshape(-1, h // side, w // side)
    if first:
        made = every.reshape(side, side, channels, h, w).transpose(2, 3, 0, 4, 1)
    else:
        made = every.reshape(channels, side, side, h, w).transpose(0, 3, 1, 4, 2)
    return made.reshape(channels, h * side, w * side)


def bands(low: Lowering, call: Call, x: Act) -> Act:
    """A view of an image whose bands of rows are seen as channels, [n, c * s, h / s, w], as that map.

    So a batch norm has a scale for each band (SubSpectralNorm, Chang et al. 2021). Other views as they are.
    """
    h, w, c = low.shape(x)
    n, channels, rows, columns = (*x.dims, 0, 0)[:4]
    if len(x.dims) != 4 or n != low.batch or columns != w or rows < 1 or h <= rows or x.order is not None:
        return x
    count = h // rows
    if rows * count != h or channels != c * count:
        return x
    weight = np.zeros((channels, count, 1, 1), np.float32)
    weight[np.arange(channels), np.arange(channels) % count] = 1.0
    layer = frozen(low, f"{call.node_name(call.op.strip('_'))}{BANDS}", weight)
    window = Window((count - 1) * rows + 1, 1)
    return low.emit(
        call, "gconv2d", (Act(x.tensor, (n, c, h, w)),), (rows, w, channels), layer=layer, window=window
    )


def joined(low: Lowering, call: Call, x: Act, dims: tuple[int, ...]) -> Act | None:
    """What bands() took apart, where a view of what was made of it puts it together again; else None."""
    rows, w, channels = low.shape(x)
    if x.dims != (low.batch, channels, rows, w) or len(dims) != 4 or dims[0] != low.batch or dims[3] != w:
        return None
    count = dims[2] // rows
    if dims[1:3] != (channels // max(count, 1), rows * count) or count < 2 or not _of_bands(low, x):
        return None
    weight = np.zeros((dims[1], count, 1, count), np.float32)
    for tap in range(count):
        weight[:, tap, 0, count - 1 - tap] = 1.0
    layer = frozen(low, f"{call.node_name('joined')}{BANDS}", weight)
    reach = (count - 1) * rows
    window = Window(reach + 1, 1, pad_h=reach)
    return low.emit(call, "gconv2d", (x,), (rows * count, w, dims[1]), layer=layer, window=window)


def _of_bands(low: Lowering, x: Act) -> bool:
    """True for what bands() made, with what was done to each number since."""
    name = low.tensor_of(x)
    for node in reversed(low.nodes):
        if name in node.outputs:
            if (node.layer or "").endswith(BANDS):
                return True
            name = node.inputs[0] if len(node.inputs) == 1 else ""
    return False


def _side(call: Call) -> int:
    given = call.args.get("upscale_factor", call.args.get("downscale_factor"))
    if not isinstance(given, int) or given < 1:
        raise call.error(f"{call.op} by {given}: 1 is the least")
    return given


def _blocks_first(c: int, side: int) -> list[int]:
    """Channels (c, row, column) in the order (row, column, c)."""
    order: list[int] = np.arange(c * side * side).reshape(c, side * side).T.ravel().tolist()
    return order


def _chosen(low: Lowering, call: Call, channels: int, side: int, each: int) -> str:
    """The name of a layer each of whose output channels takes one pixel of a block, or one channel of `each`.

    Its weights are 1 or 0, so that nothing is rounded.
    """
    place = np.arange(channels) % (side * side)
    weight = np.zeros((channels, side, side, each), np.float32)
    if each == 1:
        weight[np.arange(channels), place // side, place % side, 0] = 1.0
    else:
        for tap in range(each):  # the last pixel of a block meets the first tap
            weight[:, side - 1 - tap // side, side - 1 - tap % side, tap] = 1.0
    return frozen(low, call.node_name(call.op), weight)


ATEN: Mapping[str, Aten] = {
    "pixel_unshuffle": Aten("self downscale_factor", down),
    "pixel_shuffle": Aten("self upscale_factor", up),
    "im2col": Aten("self kernel_size dilation padding stride", windows),
}
