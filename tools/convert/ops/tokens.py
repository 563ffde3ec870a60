"""Sequences of vectors: tokens are the pixels of a map, whatever way a model's views turn them.

A view keeps which number of the map stands at each of its places (`Act.order`), so that transpositions,
reshapes, cuts and heads cost nothing: what reads the view looks for the pixels and channels behind it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import WINDOW_MOST, Layer, Shape, Source, Tensor, Window
from microtrain.convert.lowering import NORM, Lowering

from .aten.channels import TAKE, take
from .aten.resample import chosen, sampled
from .aten.unflatten import of_vector
from .conv import DEPTHWISE
from .pool import AVERAGE

# Over rows: what makes all of them leave something, and what only the last.
LAST = {cell: f"{cell}_last" for cell in ("gru", "lstm", "integer_lstm")}
VIEWS = ("view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze")
MOST_NUMBERS = 1 << 22  # of a map that is turned: no board holds as many


def places(low: Lowering, act: Act) -> np.ndarray:
    """Where each number of a view stands in memory, of the map [h][w][c]."""
    h, w, c = low.shape(act)
    order = numbers(low, act)
    return order if act.tensor in low.last else order % (h * w) * c + order // (h * w)


def numbers(low: Lowering, act: Act) -> np.ndarray:
    """Act.order, whether it is written down or not."""
    if act.order is not None:
        return act.order
    return np.arange(math.prod(act.dims)).reshape(act.dims)


def view_of(low: Lowering, tensor: str, at: np.ndarray, factor: float = 1.0) -> Act:
    """The view with these places of memory."""
    h, w, c = low.tensors[tensor].shape
    order = at if tensor in low.last else at % c * (h * w) + at // c
    return viewed(low, Act(tensor, at.shape, factor=factor), order)


def viewed(low: Lowering, act: Act, order: np.ndarray) -> Act:
    """The view with these numbers; plain again where they follow one another and are all that there are."""
    plain = order.size == math.prod(low.shape(act)) and np.array_equal(order.ravel(), np.arange(order.size))
    return replace(act, dims=order.shape, order=None if plain and act.factor == 1 else order)


def whole(low: Lowering, act: Act) -> Act:
    """The map that a view is of, as an image."""
    h, w, c = low.shape(act)
    return Act(act.tensor, (low.batch, c, h, w))


def turnable(low: Lowering, call: Call, value: Any) -> Act:
    """A value whose numbers may be looked at one by one."""
    if not isinstance(value, Act) or value.pad:
        return low.activation(call, value)
    if low.batch != 1:
        raise call.error(
            f"the op {call.op} of a batch of {low.batch} is not supported; the nearest that is: the model "
            "saved with a batch of one"
        )
    if math.prod(low.shape(value)) > MOST_NUMBERS:
        raise call.error(f"the op {call.op} of {math.prod(low.shape(value)):,} numbers is too large")
    if low.is_stand_in(value) and value.order is None and len(value.dims) > 1:  # only its dims are known
        shape = (math.prod(value.dims[:-1]), 1, value.dims[-1])
        low.tensors[value.tensor] = Tensor(value.tensor, shape)
        low.last.add(value.tensor)
    return value


def pixels_of(low: Lowering, act: Act) -> np.ndarray | None:
    """The pixel behind each vector of a view whose last axis is the channels of a map; else None."""
    found, c = places(low, act), low.shape(act)[2]
    straight = found.shape[-1:] == (c,) and np.array_equal(found, found[..., :1] + np.arange(c))
    return found[..., 0] // c if straight and not (found[..., 0] % c).any() else None


def as_sequence(low: Lowering, act: Act) -> None:
    """An input [n, tokens, features] that nothing has read as a series gets its features as channels."""
    h, w, c = low.shape(act)
    declared = w == 1 and h > 1 and pixels_of(low, act) is None and _declared_last(low, act, (c, 1, h))
    if declared and pixels_of(low, act) is None:
        low.redeclare((h, w, c))
        low.last.clear()


def _declared_last(low: Lowering, act: Act, shape: Shape) -> bool:
    """Whether the input gets this shape, (h, w, c), and its own order for it, since no layer has read it yet.

    A map that a layer made may have as many rows as channels: its shape alone does not say that it is not.
    """
    norms = [low.layers[node.layer or ""] for node in low.nodes if node.op == NORM]
    by_channel = any(np.ptp(v) for norm in norms for v in (norm.weight, norm.bias))
    untouched = not low.last and low.is_input(act) and len(norms) == len(low.nodes)
    if low.fixed or by_channel or not untouched or not low.redeclare(shape):
        return False
    low.last.update(low.tensors)
    return True


def as_map(low: Lowering, act: Act) -> Act:
    """A view of a map as PyTorch has images, [n, c, h, w] or [n, c, time], as that map; others as they are.

    An input whose axes are turned first of all, from [n, h, w, c] say, is such an image.
    """
    if len(act.dims) not in (3, 4) or act.factor != 1 or act.order is None:
        return act
    _, c, h, w = (*act.dims, 1)[:4]
    natural = np.arange(h * w * c).reshape(h, w, c).transpose(2, 0, 1).ravel()
    if np.array_equal(act.order.ravel(), natural):
        _declared_last(low, act, (h, w, c))
    same = low.shape(act) == (h, w, c) and np.array_equal(places(low, act).ravel(), natural)
    return whole(low, act) if same else act


def sequence(low: Lowering, call: Call, value: Any) -> Act:
    """A view of a whole map, an input's last axis as its channels."""
    act = turnable(low, call, value)
    as_sequence(low, act)
    return settled(low, call, act)


def settled(low: Lowering, call: Call, value: Any) -> Act:
    """A view of all numbers of a map: of a cut of one, and of one times a number, the map is made first."""
    act, call = turnable(low, call, value), replace(call, builtin=False)  # a node beside that of the call
    if act.factor != 1:
        scaled = low.scaled(call, whole(low, act), act.factor)
        return settled(low, call, view_of(low, scaled.tensor, places(low, act)))
    h, w, c = low.shape(act)
    at = places(low, act)
    if at.size == h * w * c and (act.order is None or not _several(at)):
        return act
    if low.is_stand_in(act):  # how its numbers lie is not known
        return low.unknown(call, act.dims)
    maker = low.maker(low.tensor_of(act))
    listed = _listed(low, call, act, at) if maker is None or maker.op not in LAST else None
    if listed is not None:
        return listed
    if at.size == c and set((at // c).ravel()) == {0}:  # the first token
        window = Window(1, 1, more_h=1 - h, more_w=1 - w)
        made = low.emit(call, AVERAGE, (act,), (1, 1, c), window=window)
        return view_of(low, made.tensor, at)
    last = at.size == c and np.array_equal(np.sort(at, axis=None), (h - 1) * c + np.arange(c))
    if last and maker is not None and maker.op in LAST:
        call, x = replace(call, module=maker.name), Act(low.as_made(maker.inputs[0]), ())
        made = low.emit(call, LAST[maker.op], (x,), (1, 1, c), window=maker.window, factors=maker.factors)
        given = low.tensors[act.tensor].given
        if given is not None:
            low.give(made, *given)
        return view_of(low, made.tensor, at % c)
    if _several(at):
        raise _several_times(call, recurrent=maker is not None and maker.op in LAST)
    kept, pixels = _among(at % c, c), _among(at // c, h * w)
    if pixels.size == 1:
        token = view_of(low, _one_token(low, call, act, int(at.flat[0]) // c).tensor, np.arange(c))
        return view_of(low, token.tensor, at % c) if at.size == c else _some(low, call, token, at % c)
    if at.size < pixels.size * kept.size:
        raise call.error(
            f"the op {call.op} of some numbers of some tokens, {list(act.dims)}, is not supported; the "
            "nearest that is: of some tokens, or of some of their features"
        )
    if pixels.size < h * w:
        return _some_tokens(low, call, act, pixels)
    return _some(low, call, act, at)


def _several_times(call: Call, recurrent: bool) -> Exception:
    """What is refused of numbers that stand several times: as do places that recurrent layers do not keep."""
    what, nearest = "numbers that stand several times", "each once"
    if recurrent:
        what, nearest = "what an inner layer of several leaves", "what the last one leaves"
    return call.error(f"the op {call.op} of {what} is not supported; the nearest that is: of {nearest}")


def _several(found: np.ndarray) -> bool:
    """Whether a number stands in several places; counted, since maps are large and sorting takes long."""
    return bool(np.bincount(found.ravel()).max() > 1)


def _among(found: np.ndarray, count: int) -> np.ndarray:
    """Which of the numbers below count there are."""
    return np.flatnonzero(np.bincount(found.ravel(), minlength=count))


def _listed(low: Lowering, call: Call, act: Act, at: np.ndarray) -> Act | None:
    """The features that a view lists, in its order, some of them more than once, the same of each token; None
    of any other view."""
    h, w, c = low.shape(act)
    channels, pixels = at.reshape(-1, at.shape[-1])[0] % c, at[..., 0] // c
    if pixels.size != h * w or _several(pixels):
        return None
    if not np.array_equal(at, pixels[..., None] * c + channels):
        return None
    made = low.emit(call, TAKE, (act,), (h, w, channels.size), channels=tuple(channels.tolist()))
    return view_of(low, made.tensor, pixels[..., None] * channels.size + np.arange(channels.size))


def _some_tokens(low: Lowering, call: Call, act: Act, pixels: np.ndarray) -> Act:
    """A view of some pixels of a map, of the map of these: rows and columns, or else pixels of one column.

    That map is made once for all that read it.
    """
    h, w, c = low.shape(act)
    rows, columns = _among(pixels // w, h), _among(pixels % w, w)
    x, sizes = whole(low, act), (h, w)
    if rows.size * columns.size > pixels.size:
        x, sizes, rows, columns = of_vector(low, call, x, (h * w, 1, c)), (h * w, 1), pixels, np.zeros(1)
    axes = (chosen(rows, sizes[0]), chosen(columns, sizes[1]))
    about = ((low.tensor_of(x),), axes)
    known = next((node.outputs[0] for node in low.nodes if (node.inputs, node.axes) == about), None)
    made = low.as_made(known) if known else sampled(low, call, x, *axes).tensor
    at = places(low, act)
    return settled(low, call, view_of(low, made, np.searchsorted(pixels, at // c) * c + at % c))


def _some(low: Lowering, call: Call, act: Act, at: np.ndarray) -> Act:
    """The view with these places of memory, which are the same features of each token of a map."""
    h, w, c = low.shape(act)
    kept = _among(at % c, c)
    made = low.emit(call, TAKE, (act,), (h, w, len(kept)), channels=tuple(int(i) for i in kept))
    return view_of(low, made.tensor, at // c * len(kept) + np.searchsorted(kept, at % c))


def _one_token(low: Lowering, call: Call, act: Act, pixel: int) -> Act:
    """One token of a map: a depthwise window over all of it, whose weights are 1 there and else 0.

    Of a map that is larger than a window, its row and its column.
    """
    h, w, c = low.shape(act)
    if max(h, w) > WINDOW_MOST:
        return sampled(low, call, whole(low, act), chosen([pixel // w], h), chosen([pixel % w], w))
    weight = np.zeros((c, h * w), np.float32)
    weight[:, pixel] = 1.0
    layer = f"{call.node_name('token').strip('/').replace('/', '.')}{len(low.nodes)}"
    low.layers[layer] = Layer(weight.reshape(c, h, w), np.zeros(c, np.float32), Source(""))
    return low.emit(call, DEPTHWISE, (whole(low, act),), (1, 1, c), layer=layer, window=Window(h, w))


def vectors(low: Lowering, call: Call, value: Any) -> tuple[Act, np.ndarray | None]:
    """A view of a whole map, and the pixel of each of its vectors if the last axis is the channels."""
    act = in_order(low, call, sequence(low, call, value))
    return act, pixels_of(low, act)


def in_order(low: Lowering, call: Call, act: Act) -> Act:
    """A view whose vectors all have a pixel's channels in one other order, of a map that has them so."""
    at, c = places(low, act), low.shape(act)[2]
    if (
        at.shape[-1:] != (c,)
        or at.size != math.prod(low.shape(act))
        or low.is_input(act)
        or low.is_stand_in(act)
    ):
        return act
    own = at.reshape(-1, c) % c
    others = np.ptp(at.reshape(-1, c) // c, axis=1).any() or (own != own[0]).any()
    if others or np.array_equal(own[0], np.arange(c)):
        return act
    made = take(low, replace(call, op=TAKE, builtin=False), whole(low, act), own[0].tolist())
    return view_of(low, made.tensor, at // c * c + np.arange(c))


def again(low: Lowering, made: Act, x: Act) -> Act:
    """What an op made of a map, seen as its input was."""
    if low.shape(made) != low.shape(x):
        raise ValueError("a map of another shape")
    return view_of(low, made.tensor, places(low, x))


# ---------------------------------------------------------------- views


def turned(low: Lowering, call: Call, axes: Sequence[int]) -> Act:
    act = turnable(low, call, call.x)
    return viewed(low, act, numbers(low, act).transpose(axes))


def reshaped(low: Lowering, call: Call) -> Act:
    act = turnable(low, call, call.x)
    return viewed(low, act, numbers(low, act).reshape(seen_as(call, act.dims)))


def seen_as(call: Call, dims: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions that one of VIEWS gives a tensor."""
    wanted = _dims(call, dims)
    known = math.prod(d for d in wanted if d != -1)
    made = tuple(math.prod(dims) // known if d == -1 and known else d for d in wanted)
    if math.prod(made) != math.prod(dims) or min(made, default=1) < 1:
        raise call.error(f"cannot view {list(dims)} as {list(wanted)}")
    return made


def _dims(call: Call, dims: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions that a call asks for."""
    rank, op = len(dims), call.op.rstrip("_")
    if op == "flatten":
        first, last = int(call.get("start_dim", 0)) % rank, int(call.get("end_dim", -1)) % rank
        return (*dims[:first], math.prod(dims[first : last + 1]), *dims[last + 1 :])
    if op == "unflatten":
        at = int(call.args["dim"]) % rank
        return (*dims[:at], *(int(d) for d in call.args["sizes"]), *dims[at + 1 :])
    if op == "unsqueeze":
        at = int(call.args["dim"]) % (rank + 1)
        return (*dims[:at], 1, *dims[at:])
    if op == "squeeze":
        axes = call.get("dim", None)
        chosen = range(rank) if axes is None else [axes] if isinstance(axes, int) else axes
        gone = {int(a) % rank for a in chosen}
        return tuple(d for i, d in enumerate(dims) if not (i in gone and d == 1))
    given = call.args.get("size", call.args.get("shape"))
    return tuple(int(d) for d in given or ())


def cut(low: Lowering, call: Call) -> Any:
    """select, slice, unbind, chunk, split: parts of a view, along any axis."""
    act = turnable(low, call, call.x)
    order, op = numbers(low, act), call.op.rstrip("_")
    axis = int(call.get("dim", 0)) % order.ndim
    size = order.shape[axis]
    if op == "select":
        return viewed(low, act, order.take(int(call.args["index"]) % size, axis))
    if op == "unbind":
        return [viewed(low, act, order.take(i, axis)) for i in range(size)]
    if op == "slice":
        span = slice(call.get("start", None), call.get("end", None), call.get("step", None))
        chosen = [range(size)[span]]
    else:
        chosen = [range(size)[start:end] for start, end in _parts(call, size)]
    if not all(chosen):
        raise call.error(f"a {op} of {size} leaves none")
    parts = [viewed(low, act, order.take(list(part), axis)) for part in chosen]
    return parts[0] if op == "slice" else parts


def _parts(call: Call, size: int) -> list[tuple[int, int]]:
    given = call.get("split_size", None) or call.get("split_sizes", None)
    if isinstance(given, Sequence):
        ends = np.cumsum([int(n) for n in given]).tolist()
        return list(zip([0, *ends[:-1]], ends, strict=True))
    each = int(given) if given else -(-size // max(1, int(call.args.get("chunks", 1))))
    return [(start, min(start + each, size)) for start in range(0, size, max(each, 1))]


def same(low: Lowering, call: Call) -> Any:
    """Ops that change nothing in inference; expand, if it repeats nothing."""
    if call.op.startswith("expand"):
        size = [int(d) for d in call.args["size"]]
        own = (1,) * (len(size) - len(call.x.dims)) + tuple(call.x.dims)
        if any(d not in (-1, o) for d, o in zip(size, own, strict=True)):
            raise call.error("the op expand of tokens is not supported; the nearest that is: each once")
        return call.x if len(own) == len(call.x.dims) else reshaped(low, _viewing(call, own))
    return call.x


def _viewing(call: Call, dims: tuple[int, ...]) -> Call:
    return replace(call, op="view", args={"self": call.x, "size": list(dims)})


def constant_of(call: Call, value: Param, dims: tuple[int, ...]) -> np.ndarray | None:
    """A constant as large as a view; None where it is not of its shape."""
    try:
        return np.broadcast_to(value.value, dims)
    except ValueError:
        return None
