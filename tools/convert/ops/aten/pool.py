"""Front-end rules of pooling: what calls of aten ops become in the float graph."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from microtrain.convert.aten_call import Act, Call, pair, sides, stride_of
from microtrain.convert.ir import Shape, Window, out_size
from microtrain.convert.lowering import Lowering, of_series
from microtrain.convert.nearest import unsupported

from ..table import Aten
from .resample import adaptive_spans, averages, chosen, fits, sampled

AVERAGE, MAXIMUM = "avgpool", "maxpool"
DOWN = (1.0,)  # factors of a pooling of whole columns whose row [1, w, c] lies down as [w, 1, c], a series
CHANNEL_MEAN, CHANNEL_MAXIMUM = "channel_mean", "channel_max"
MOST_OF_MAXIMUM = 256  # pixels of a window (kernels/pool.h)


def avg_pool2d(low: Lowering, call: Call) -> Act:
    """Windows that count alike are a pooling; of others each sum has weights of its own.

    A divisor_override is a factor behind the plain average.
    """
    x, k = low.image(call, call.x), _pool_window(call)
    divisor = call.get("divisor_override", None)
    if divisor == 0:
        raise call.error("divisor_override=0 divides by nothing; leave it out")
    padding = divisor is None and bool(call.get("count_include_pad", True))
    fits(call, *(size + abs(pad) for size, pad in zip(low.shape(x), (k.pad_h, k.pad_w), strict=False)))
    both = _sides(low, call, x, k)
    counts = [side.kernels if divisor else side.counts(padding) for side in both]
    if counts == [side.kernels for side in both] and not any(side.is_cut for side in both):
        made = low.emit(call, AVERAGE, (x,), (*k.outputs(*low.shape(x)[:2]), low.shape(x)[2]), window=k)
    else:
        axes = (averages(side.spans, own, side.size) for side, own in zip(both, counts, strict=True))
        made = sampled(low, call, x, *axes)
    taps = k.kh * k.kw
    return made if divisor in (None, taps) else low.scaled(call, made, taps / divisor)


@dataclass(frozen=True)
class _Side:
    """Windows along one axis. more: padding at the end beyond that at the beginning; ceil: ceil_mode"""

    size: int
    kernel: int
    stride: int
    pad: int
    more: int
    ceil: bool

    @property
    def padded(self) -> int:
        """Padding at the end beyond that at the beginning, with what ceil_mode adds.

        A window must begin in the image or before it.
        """
        room = self.size + 2 * self.pad + self.more - self.kernel
        rest = room % self.stride
        added = self.ceil and rest and room - rest + self.stride < self.size + self.pad
        return self.more + (self.stride - rest if added else 0)

    @property
    def is_cut(self) -> bool:
        """Whether ceil_mode adds a window."""
        return self.padded > self.more

    @property
    def begins(self) -> list[int]:
        outputs = out_size(self.size + self.padded, self.kernel, self.stride, self.pad)
        return [i * self.stride - self.pad for i in range(outputs)]

    @property
    def spans(self) -> list[range]:
        """What each sees of the image."""
        return [range(max(at, 0), min(at + self.kernel, self.size)) for at in self.begins]

    @property
    def kernels(self) -> list[int]:
        return [self.kernel] * len(self.begins)

    def counts(self, padding: bool) -> list[int]:
        """By how much each sum is divided. padding: it counts too, but not what ceil_mode adds to it"""
        if not padding:
            return [max(len(span), 1) for span in self.spans]
        end = self.size + self.pad + self.more
        return [max(min(self.kernel, end - at), 1) for at in self.begins]


def _sides(low: Lowering, call: Call, x: Act, k: Window) -> tuple[_Side, _Side]:
    (h, w, _), ceil = low.shape(x), bool(call.get("ceil_mode", False))
    return (
        _Side(h, k.kh, k.stride_h, k.pad_h, k.more_h, ceil),
        _Side(w, k.kw, k.stride_w, k.pad_w, k.more_w, ceil),
    )


def max_pool2d(low: Lowering, call: Call) -> Act:
    if pair(call.get("dilation", 1)) != (1, 1):
        raise call.error("dilation is not supported; the nearest that is: a pooling without")
    x, k = low.image(call, call.x), _pool_window(call)
    rows, columns = _sides(low, call, x, k)
    return _largest(low, call, x, replace(k, more_h=rows.padded, more_w=columns.padded))


def _pool_window(call: Call) -> Window:
    kh, kw = pair(call.args["kernel_size"])
    sh, sw = stride_of(call, (kh, kw))
    return Window(kh, kw, sh, sw, *sides(call.get("padding", 0)))


def _largest(low: Lowering, call: Call, x: Act, k: Window, dims: tuple[int, ...] | None = None) -> Act:
    """Max pooling; of larger windows than a kernel takes along the rows first, then along the columns, each
    in two steps where it can be."""
    if k.kh * k.kw > MOST_OF_MAXIMUM and min(k.kh, k.kw) > 1:
        x = _largest(low, call, x, Window(1, k.kw, 1, k.stride_w, 0, k.pad_w, 0, k.more_w))
        k = Window(k.kh, 1, k.stride_h, 1, k.pad_h, 0, k.more_h, 0)
    if k.kh * k.kw > MOST_OF_MAXIMUM and (steps := _steps(k, low.shape(x))):
        x, k = _largest(low, call, x, steps[0]), steps[1]
    h, w, c = low.shape(x)
    return low.emit(call, MAXIMUM, (x,), (*k.outputs(h, w), c), dims=dims, window=k)


def _steps(k: Window, shape: Shape) -> tuple[Window, Window] | None:
    """The maxima of parts of a line, and the maximum of these; None where windows overlap, have padding, or
    do not fall into parts.

    k  along one axis
    """
    down = k.kw == 1
    size, n, stride = (shape[0], k.kh, k.stride_h) if down else (shape[1], k.kw, k.stride_w)
    if any((k.pad_h, k.pad_w, k.more_h, k.more_w)) or (n != size and n != stride):
        return None
    divisors = (part for part in range(MOST_OF_MAXIMUM, 1, -1) if n % part == 0)
    part = math.isqrt(n - 1) + 1 if n == size else next(divisors, n)
    if part == n:
        return None
    parts = -(-n // part)
    spare = parts * part - n  # padding, which never wins
    if down:
        return Window(part, 1, part, 1, more_h=spare), Window(parts, 1, parts, 1)
    return Window(1, part, 1, part, more_w=spare), Window(1, parts, 1, parts)


def adaptive_avg_pool2d(low: Lowering, call: Call) -> Act:
    x = low.image(call, call.x)
    h, w, c = low.shape(x)
    rows, columns = pair(call.args["output_size"])
    if h % rows == 0 and w % columns == 0:
        return low.emit(call, AVERAGE, (x,), (rows, columns, c), window=_dividing(low, x, (rows, columns)))
    fits(call, rows, columns)
    spans = ((adaptive_spans(h, rows), h), (adaptive_spans(w, columns), w))
    return sampled(low, call, x, *(averages(own, [len(s) for s in own], size) for own, size in spans))


def adaptive_max_pool2d(low: Lowering, call: Call) -> Act:
    """Windows of different sizes are made alike: the last pixel of a smaller one stands twice."""
    x, outputs = low.image(call, call.x), pair(call.args["output_size"])
    if (low.shape(x)[0] % outputs[0], low.shape(x)[1] % outputs[1]) == (0, 0):
        return _largest(low, call, x, _dividing(low, x, outputs))
    fits(call, *outputs)
    for axis in (0, 1):
        spans = adaptive_spans(low.shape(x)[axis], outputs[axis])
        most = max(map(len, spans))
        places = [span[min(i, len(span) - 1)] for span in spans for i in range(most)]
        axes = [chosen(range(size), size) for size in low.shape(x)[:2]]
        axes[axis] = chosen(places, low.shape(x)[axis])
        side = [1, 1]
        side[axis] = most
        x = _largest(low, call, sampled(low, call, x, *axes), Window(*side, *side))
    return x


def _dividing(low: Lowering, x: Act, outputs: tuple[int, int]) -> Window:
    """The window of adaptive pooling where the outputs divide the map."""
    sizes = [size // own for size, own in zip(low.shape(x), outputs, strict=False)]
    return Window(*sizes, *sizes)


def mean(low: Lowering, call: Call) -> Act:
    """Of the whole map, over height and width in one call or over the width and then the height; of rows, of
    columns; or of the channels."""
    x = call.x
    if not isinstance(x, Act):
        raise unsupported(call)
    h, w, c = low.shape(x)
    axes = call.get("dim", None) or range(len(x.dims))
    over = {int(a) % len(x.dims) for a in ([axes] if isinstance(axes, int) else axes)}
    keep = bool(call.get("keepdim", False))
    dims = tuple(1 if i in over else d for i, d in enumerate(x.dims) if keep or i not in over)
    if over == {1} and len(x.dims) in (2, 3, 4) and (made := _over_channels(low, call, CHANNEL_MEAN, dims)):
        return made
    n = low.batch
    whole = over == set(range(2, len(x.dims))) and x.dims[:2] == (n, c) and math.prod(x.dims[2:]) == h * w
    if x.half and over == {2}:
        whole = True
    elif x.dims == (n, c, h, w) and keep and not x.half and (over == {2} or (over == {3} and h == 1)):
        window = Window(h, 1, h, 1) if over == {2} else Window(1, w, 1, w)
        return low.emit(call, AVERAGE, (x,), (1, w if over == {2} else 1, c), dims=dims, window=window)
    elif x.dims == (n, c, h, w) and over == {3} and not x.half:
        return Act(x.tensor, dims, half=True)
    elif x.dims == (n, c, h, w) and over == {2} and not x.half:
        return _of_columns(low, call, AVERAGE, x, dims)
    if not whole and low.is_stand_in(x):  # how its numbers lie is not known
        return low.unknown(call, dims)
    if not whole:
        raise call.error(
            f"a {call.op} of {list(x.dims)} over {sorted(over)} is not supported; the nearest that "
            "is: over height, width or both, over time, or over the channels"
        )
    return low.emit(call, AVERAGE, (Act(x.tensor, x.dims),), (1, 1, c), dims=dims, window=Window(h, w, h, w))


def total(low: Lowering, call: Call) -> Act:
    """A sum: the mean, times how many numbers there are."""
    x, made = low.activation(call, call.x), mean(low, call)
    made = of_rows(low, call, made) if made.half else made
    return low.scaled(call, made, math.prod(x.dims) / math.prod(made.dims))


def _of_columns(low: Lowering, call: Call, op: str, x: Act, dims: tuple[int, ...]) -> Act:
    """One number for each column, as a series over the width."""
    h, w, c = low.shape(x)
    return low.emit(call, op, (x,), (w, 1, c), dims=dims, window=Window(h, 1, h, 1), factors=DOWN)


def of_rows(low: Lowering, call: Call, x: Act) -> Act:
    """The mean over the width that was only asked for, of an image as of a series over the height."""
    (h, w, c), window = low.shape(x), Window(1, low.shape(x)[1], 1, low.shape(x)[1])
    tensor = low.tensor_of(x)
    known = next((v for v in low.nodes if (v.op, v.inputs, v.window) == (AVERAGE, (tensor,), window)), None)
    if known is not None:
        return Act(low.as_made(known.outputs[0]), x.dims)
    apart = replace(call, op="mean", builtin=False)
    return low.emit(
        apart, AVERAGE, (Act(x.tensor, (low.batch, c, h, w)),), (h, 1, c), dims=x.dims, window=window
    )


def of_half(low: Lowering, call: Call) -> Call:
    """A call whose images have the mean over the width that was only asked for, unless that over the height
    follows."""
    given = call.args.get("dim")
    axes = [given] if isinstance(given, int) else given or []
    if call.op == "mean" and isinstance(x := call.x, Act) and [a % len(x.dims) for a in axes] == [2]:
        return call

    def whole(value: Any) -> Any:
        if isinstance(value, list):
            return [whole(each) for each in value]
        return of_rows(low, call, value) if isinstance(value, Act) and value.half else value

    return replace(call, args={name: whole(value) for name, value in call.args.items()})


def _over_channels(low: Lowering, call: Call, op: str, dims: tuple[int, ...]) -> Act | None:
    """One number for each pixel of an image, or None of what is no image."""
    x = low.activation(call, call.x)
    low.declare_anew(x)
    h, w, c = low.shape(x)
    vector = x.dims == (low.batch, c) and h == w == 1
    if not vector and (
        x.dims not in ((low.batch, c, h, w), (low.batch, c, h)) or (len(x.dims) == 3 and w > 1)
    ):
        return None
    return low.emit(call, op, (x,), (h, w, 1), dims=dims)


def maximum(low: Lowering, call: Call) -> Act:
    """amax, and max along one dimension: over a whole map, its rows, its columns, or its channels."""
    if call.args.get("other") is not None or call.get("dim", None) is None:
        raise unsupported(call)
    x, given = call.x, call.args["dim"]
    if (flat := _as_whole(low, x, given)) is not None:
        whole = maximum(low, replace(call, args={**call.args, "self": flat, "dim": [2, 3], "keepdim": False}))
        return replace(whole, dims=(*whole.dims, 1)[: 2 + bool(call.get("keepdim", False))])
    x = x if isinstance(x, Act) and len(x.dims) == 2 else low.image(call, x)
    rank = len(x.dims)
    over = sorted({int(a) % rank for a in ([given] if isinstance(given, int) else given)})
    keep = bool(call.get("keepdim", False))
    dims = tuple(1 if i in over else d for i, d in enumerate(x.dims) if keep or i not in over)
    if over == [1] and (made := _over_channels(low, call, CHANNEL_MAXIMUM, dims)):
        return made
    if not over or over[0] < 2:
        raise call.error(
            f"a maximum of {list(x.dims)} over {over} is not supported; the nearest that is: over height or "
            "width, over time, or over the channels"
        )
    h, w, _ = low.shape(x)
    if over == [2] and w > 1 and not keep:
        return _of_columns(low, call, MAXIMUM, x, dims)
    kh, kw = (size if axis in over else 1 for axis, size in ((2, h), (3, w)))
    return _largest(low, call, x, Window(kh, kw, kh, kw), dims)


def _as_whole(low: Lowering, x: Any, given: Any) -> Act | None:
    """A map whose pixels forward() has in one axis, over which something runs; else None."""
    if not isinstance(x, Act) or x.order is not None or len(x.dims) != 3 or x.tensor in low.last:
        return None
    h, w, c = low.shape(x)
    over = [given] if isinstance(given, int) else list(given)
    whole = w > 1 and x.dims == (low.batch, c, h * w) and [int(a) % 3 for a in over] == [2]
    return replace(x, dims=(low.batch, c, h, w)) if whole else None


_ADAPTIVE = Aten("self output_size", adaptive_avg_pool2d)
_LARGEST = Aten("self output_size", adaptive_max_pool2d)
_OVER = Aten("self dim keepdim", maximum)

_MAXIMUM = Aten("self kernel_size stride padding dilation ceil_mode", max_pool2d)
_AVERAGE = Aten("self kernel_size stride padding ceil_mode count_include_pad divisor_override", avg_pool2d)


def _of_series(found: Aten) -> Aten:
    return Aten(found.arguments, partial(of_series, rule=found.rule))


def _with_places(found: Aten) -> Aten:
    """Of calls that also return where the largest numbers stood, which nothing here can read."""
    return Aten(found.arguments, lambda low, call: (found.rule(low, call), None))


def _or_row(found: Aten) -> Aten:
    """Of an image, or of a series that lies as a row (n, c, 1, time), as PyTorch decomposes its poolings."""

    def rule(low: Lowering, call: Call) -> Any:
        x = call.x
        if not isinstance(x, Act) or len(x.dims) != 4 or low.shape(x)[:2] != (x.dims[3], 1) or x.dims[3] == 1:
            return found.rule(low, call)
        args = {k: v[::-1] if isinstance(v, list) else v for k, v in call.args.items()}
        made = found.rule(
            low, replace(call, args={**args, "self": replace(x, dims=(*x.dims[:2], x.dims[3]))})
        )
        return replace(made, dims=(*made.dims[:2], 1, made.dims[2]))

    return Aten(found.arguments, rule)


MAXIMUM_ATEN = {
    **dict.fromkeys(("max_pool2d", "max_pool2d_with_indices"), _or_row(_MAXIMUM)),
    **dict.fromkeys(("max_pool1d", "max_pool1d_with_indices"), _of_series(_MAXIMUM)),
    "adaptive_max_pool2d": _with_places(_LARGEST),
    "adaptive_max_pool1d": _with_places(_of_series(_LARGEST)),
    "amax": _OVER,
    "max": _with_places(_OVER),
}
AVERAGE_ATEN = {
    "avg_pool2d": _or_row(_AVERAGE),
    "avg_pool1d": _of_series(_AVERAGE),
    "adaptive_avg_pool1d": _of_series(_ADAPTIVE),
    "adaptive_avg_pool2d": _ADAPTIVE,
    "_adaptive_avg_pool2d": _ADAPTIVE,
    "mean": Aten("self dim keepdim", mean),
    "sum": Aten("self dim keepdim", total),
}
