"""Front-end rules of calls on sequences: linear layers, normalisations, sums and attention over tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.base.plan import HWC
from microtrain.convert.ir import Window
from microtrain.convert.lowering import SOFTMAX, Act, Call, Lowering, Param
from microtrain.convert.nearest import unsupported

from . import attention_aten, blocks_aten, channels_aten, inside_aten, position, recurrent_aten
from .activations import ALSO
from .attention_aten import Scores
from .calls import Natural, one_number
from .functions import ACTIVATIONS
from .multiply import glu
from .normalise_aten import normalised
from .tokens import (
    as_map,
    constant_of,
    cut,
    numbers,
    places,
    reshaped,
    same,
    sequence,
    settled,
    turnable,
    turned,
    vectors,
    view_of,
    viewed,
    whole,
)

Rule = Callable[[Lowering, Call, Natural], Any]
NEAREST_LINEAR = "one over the features of each token, the last axis, or over a flattened map"


def concerns(low: Lowering, call: Call) -> bool:
    """Whether a call is one on tokens: on a view whose numbers are turned, or over the last axis of one."""
    given = given_to(call)
    acts = [v for v in given if isinstance(v, Act)]
    if any(isinstance(v, Scores) for v in given):
        return True
    if not acts or any(a.pad for a in acts):
        return False
    if any(a.order is not None or a.factor != 1 or _is_sequence(low, a) for a in acts):
        return True
    op, x = call.op.rstrip("_"), acts[0]
    if op == "linear":
        return len(x.dims) > 2
    if op in ("matmul", "add"):
        return len(x.dims) > 2 and _is_table(call, op, x, given)
    if op == "layer_norm":
        return (
            len(x.dims) > 2
            and len(call.args["normalized_shape"]) == 1
            and x.dims[1:-1] != (1,) * (len(x.dims) - 2)
        )
    if op in ("permute", "transpose", "t"):
        return len(x.dims) != 5 or not channels_aten.swaps(low, x, axes_of(call, len(x.dims)))
    return op in (*attention_aten.RULES, "einsum", "select", "unbind", "unflatten")


def given_to(call: Call) -> list[Any]:
    """Arguments, those of lists too."""
    return [v for value in call.args.values() for v in (value if isinstance(value, list) else [value])]


def _is_sequence(low: Lowering, act: Act) -> bool:
    return act.tensor in low.last and act != whole(low, act)


def _is_table(call: Call, op: str, x: Act, given: list[Any]) -> bool:
    """A product of tokens with anything, or a sum with one number for each place."""
    constants = [v.value for v in given if isinstance(v, Param)]
    if op == "matmul":
        return not constants or constants[0].ndim == 2
    channel = x.dims[1] if len(x.dims) > 1 else 0
    return any(v.size > max(channel, 1) for v in constants)


def axes_of(call: Call, rank: int) -> list[int]:
    """The axes of a turned tensor, as permute has them."""
    if call.op.startswith("permute"):
        return [int(d) % rank for d in call.args["dims"]]
    axes = list(range(rank))
    a, b = (int(call.get(key, at)) % rank for at, key in enumerate(("dim0", "dim1")))
    axes[a], axes[b] = axes[b], axes[a]
    return axes


def lower(low: Lowering, call: Call, natural: Natural) -> Any:
    """What a call on tokens means. natural: the rules of images, which work on a map whatever its view"""
    name = call.op.rstrip("_")
    if any(isinstance(v, Scores) for v in given_to(call)):
        rule = attention_aten.OF_SCORES.get(name)
        if rule is None:
            raise attention_aten.of_scores(call)
        return rule(low, call)
    if name in attention_aten.RULES:
        return attention_aten.RULES[name](low, call)
    found = RULES.get(name) or (elementwise if name in ELEMENTWISE else None)
    if found is None:
        return _as_image(low, call, natural)
    return found(low, call, natural)


def _as_image(low: Lowering, call: Call, natural: Natural) -> Any:
    """Any other call reads an image; of tokens it is refused, unless they are seen as one."""
    seen = {
        name: blocks_aten.seen(low, call, as_map(low, _as_stored(low, v))) if isinstance(v, Act) else v
        for name, v in call.args.items()
    }
    call = replace(call, args=seen)
    sequences = [v for v in seen.values() if isinstance(v, Act)]
    if sequences and all(v.order is None and v.factor == 1 and not _is_sequence(low, v) for v in sequences):
        return natural(low, call)
    dims = ", ".join(str(list(v.dims)) for v in sequences) or "tokens"
    raise call.error(
        f"the op {call.op} of tokens {dims} is not supported; the nearest that is: linear, layer_norm, "
        "attention, add and activations of tokens, and convolutions of maps [n, c, h, w]"
    )


def _as_stored(low: Lowering, x: Act) -> Act:
    """The input as an image of other sides, where a view of it is one in the order of the samples.

    Of a series x.transpose(1, 2).unsqueeze(1) is one: a pixel for each number, sensors side by side.
    """
    if len(x.dims) != 4 or x.factor != 1 or x.tensor in low.last or not low.is_input(x):
        return x
    at, (_, c, h, w) = places(low, x), x.dims
    stored = np.array_equal(at.transpose(0, 2, 3, 1).ravel(), np.arange(math.prod(low.shape(x))))
    if not stored or not low.redeclare((h, w, c)):
        return x
    low.reshaped = True
    return Act(x.tensor, x.dims)


def _again(low: Lowering, made: Act, x: Act) -> Act:
    """What an op made of a map, seen as its input was."""
    if low.shape(made) != low.shape(x):
        raise ValueError("a map of another shape")
    return view_of(low, made.tensor, places(low, x))


def elementwise(low: Lowering, call: Call, natural: Natural) -> Any:
    x = settled(low, call, call.x)
    key = "self" if "self" in call.args else "input"
    return _again(low, natural(low, replace(call, args={**call.args, key: whole(low, x)})), x)


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
        window, pixels, pixels_first = _patches(low, call, x)
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
    h, w, _ = low.shape(x)
    classes = len(weight.value)
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


def _patches(low: Lowering, call: Call, x: Act) -> tuple[Window, np.ndarray, bool]:
    """A view whose last axis is a patch and whose other axes are the patches of a map.

    Returns its window, the place of each patch, and whether its numbers are in the order HWC, else in CHW
    """
    h, w, c = low.shape(x)
    at = places(low, x)
    rows, columns = at // c // w, at // c % w
    top, left = rows.min(axis=-1), columns.min(axis=-1)
    kh, kw = (int((v[(0,) * (v.ndim - 1)].max() - v.min()) + 1) for v in (rows, columns))
    fits = at.shape[-1] == kh * kw * c and h % kh == 0 and w % kw == 0
    pixels_first = False
    if fits:
        y, z = np.mgrid[0:kh, 0:kw]
        inside = np.arange(c)[:, None, None] + (y * w + z) * c
        begin = ((top * w + left) * c)[..., None]
        pixels_first = c > 1 and np.array_equal(at, begin + inside.transpose(1, 2, 0).ravel())
        fits = pixels_first or np.array_equal(at, begin + inside.ravel())
        fits = fits and not (top % kh).any() and not (left % kw).any()
    if not fits and at.shape[-1] == h * w and (at % c == at[..., :1] % c).all():
        raise call.error(
            f"a linear layer over the tokens of each feature, {list(x.dims)}, as in MLP-Mixer, is not "
            "supported; the nearest that is: attention over tokens, or a linear layer over the features of "
            "each"
        )
    if not fits:
        raise call.error(
            f"a linear layer reads a tensor of shape {list(x.dims)}; flatten the image before it, or the "
            f"nearest that is supported: {NEAREST_LINEAR}"
        )
    return Window(kh, kw, kh, kw), top // kh * (w // kw) + left // kw, pixels_first


def matmul(low: Lowering, call: Call, natural: Natural) -> Any:
    other = call.args["mat2"] if "mat2" in call.args else call.args.get("other")
    if not isinstance(other, Param):
        return attention_aten.product(low, call)
    if other.value.ndim != 2 or call.get("alpha", 1) != 1 or call.get("beta", 1) != 1:
        raise unsupported(call)
    x, bias = (call.args["mat1"], call.x) if call.op == "addmm" else (call.x, None)
    args = {"input": x, "weight": other.t, "bias": bias}
    return linear(low, replace(call, args=args), natural)


def einsum(low: Lowering, call: Call, natural: Natural) -> Any:
    """A linear layer whose features are several axes, as those of heads; else the products of attention."""
    tensors = call.args.get("tensors") or []
    letters, out = attention_aten.letters_of(call)
    if len(tensors) != 2 or not isinstance(tensors[1], Param):
        return attention_aten.einsum(low, call)
    (left, right), x = letters, turnable(low, call, tensors[0])
    weight = low.constant(call, tensors[1], "weight")
    kept = 0
    while kept < len(left) and left[kept] in out:
        kept += 1
    inner, made = left[kept:], out[kept:]
    if not inner or left[:kept] + made != out or inner + made != right or len(x.dims) != len(left):
        raise attention_aten.no_einsum(call)
    flat = weight.value.reshape(math.prod(weight.value.shape[: len(inner)]), -1)
    x = viewed(x, numbers(low, x).reshape(*x.dims[:kept], len(flat)))
    has_place = weight.value.ndim == 2 or weight.origin is not None  # for what is trained
    matrix = replace(weight, value=flat, computed=weight.computed or not has_place)
    args = {"input": x, "weight": matrix.t}
    found = linear(low, replace(call, op="linear", args=args), natural)
    dims = (*x.dims[:kept], *weight.value.shape[len(inner) :])
    return viewed(found, numbers(low, found).reshape(dims))


def layer_norm(low: Lowering, call: Call, natural: Natural) -> Act:
    """Over the features of each token."""
    x, pixels = vectors(low, call, call.x)
    over = [int(d) for d in call.args["normalized_shape"]]
    if pixels is None or over != [x.dims[-1]]:
        raise call.error(
            f"a layer norm over the last {len(over)} of the dimensions {list(x.dims)} is not supported; the "
            "nearest that is: one over the channels of each token or pixel, one over all but the batch, or "
            "nn.GroupNorm(1, channels)"
        )
    made = normalised(low, replace(call, args={**call.args, "input": whole(low, x)}), 1, apart=True)
    return _again(low, made, x)


def add(low: Lowering, call: Call, natural: Natural) -> Any:
    """Of two views of one order, or of tokens and a constant: a position embedding."""
    a, b = call.x, call.args.get("other")
    if isinstance(a, Act) and isinstance(b, Act):
        return _of_two(low, call, natural, a, b)
    x, constant = (a, b) if isinstance(a, Act) else (b, a)
    if not isinstance(constant, Param) or call.get("alpha", 1) != 1:
        raise call.error(
            f"the op {call.op} of tokens and a number is not supported; the nearest that is: a "
            "position embedding, a constant for each token"
        )
    x = turnable(low, call, x)
    values = constant_of(call, low.constant(call, constant, "constant"), x.dims)
    if values is None:
        raise call.error(
            f"{constant.name}, of shape {list(constant.value.shape)}, does not fit {list(x.dims)}"
        )
    x = settled(low, call, x)
    table = np.empty(values.size, np.float32)
    table[places(low, x).ravel()] = values.ravel()
    if _is_bias(low, x, table):
        bias = Param(constant.name, table[: low.shape(x)[2]].reshape(-1, 1, 1))
        return _again(low, natural(low, replace(call, args={"self": whole(low, x), "other": bias})), x)
    made = position.added(low, call, whole(low, x), constant.name, table)
    return _again(low, made, x)


def subtract(low: Lowering, call: Call, natural: Natural) -> Any:
    """Of two views of one order."""
    a, b = call.x, call.args.get("other")
    if not isinstance(a, Act) or not isinstance(b, Act):
        return _as_image(low, call, natural)
    return _of_two(low, call, natural, a, b)


def _is_bias(low: Lowering, x: Act, table: np.ndarray) -> bool:
    """Whether a sum gives a layer without biases one for each of its channels."""
    maker = low.maker(x.tensor)
    layer = low.layers.get(maker.layer or "") if maker is not None else None
    rows = table.reshape(-1, low.shape(x)[2])
    return layer is not None and layer.source.bias is None and bool((rows == rows[0]).all())


def _of_two(low: Lowering, call: Call, natural: Natural, a: Act, b: Act) -> Any:
    """Both are seen alike, so that their maps are added, or multiplied, as they lie in memory."""
    if low.is_stand_in(a) or low.is_stand_in(b):  # how its numbers lie is not known
        return low.unknown(call, a.dims)
    a, b = settled(low, call, a), settled(low, call, b)
    if a.dims != b.dims:
        raise call.error(
            f"the op {call.op} of tokens {list(a.dims)} and {list(b.dims)} is not supported; the nearest "
            "that is: of two of one shape, or a map [n, c, h, w] times one factor per channel [n, c, 1, 1]"
        )
    if low.shape(a) != low.shape(b) or not np.array_equal(places(low, a), places(low, b)):
        raise call.error(
            f"the op {call.op} of tensors of shapes {list(a.dims)} and {list(b.dims)} is not supported, as "
            "their numbers lie in different orders; the nearest that is: of two of one shape and order"
        )
    args = {**call.args, "self": whole(low, a), "other": whole(low, b)}
    return _again(low, natural(low, replace(call, args=args)), a)


def multiply(low: Lowering, call: Call, natural: Natural) -> Any:
    """By a number: noted, for attention takes it in. By one for each feature: a scale."""
    a, b = call.x, call.args.get("other")
    if isinstance(a, Act) and isinstance(b, Act):
        return _of_each(low, call, natural, a, b) or _of_two(low, call, natural, a, b)
    x, by = (a, b) if isinstance(a, Act) else (b, a)
    number = _number(by)
    if number is not None and (x is a or call.op.startswith("mul")):
        x = turnable(low, call, x)
        factor = x.factor * (number if call.op.startswith("mul") else 1.0 / number)
        return Act(x.tensor, x.dims, order=numbers(low, x), factor=factor)
    turned_round = x is not a and not call.op.startswith("mul")  # a constant divided by tokens
    x, pixels = vectors(low, call, x)
    features = low.shape(x)[2:]
    if not isinstance(by, Param) or not by.value.shape[-1:] == features == (by.value.size,):
        raise unsupported(call)
    if pixels is None or turned_round:
        raise unsupported(call)
    scale = Param(by.name, by.value.reshape(-1, 1, 1))
    made = natural(low, replace(call, args={**call.args, "self": whole(low, x), "other": scale}))
    return _again(low, made, x)


def _of_each(low: Lowering, call: Call, natural: Natural, a: Act, b: Act) -> Act | None:
    """Tokens times one number for each of them; None where it is another product."""
    x, gate = (a, b) if b.dims[-1:] == (1,) else (b, a)
    if gate.dims != (*x.dims[:-1], 1) or x.dims[-1] == 1 or low.is_stand_in(a) or low.is_stand_in(b):
        return None
    x, pixels = vectors(low, call, x)
    gate = settled(low, call, gate)
    if pixels is None or low.shape(gate) != (*low.shape(x)[:2], 1):
        return None
    if not np.array_equal(places(low, gate)[..., 0], pixels):
        return None
    made = natural(low, replace(call, args={"self": whole(low, x), "other": whole(low, gate)}))
    return _again(low, made, x)


def _number(value: Any) -> float | None:
    return one_number(value) or None


def over_tokens(low: Lowering, call: Call, natural: Natural) -> Any:
    """The mean, the sum or the maximum over all tokens."""
    x = settled(low, call, call.x)
    rank, at, (_, _, c) = len(x.dims), places(low, x), low.shape(x)
    given = call.get("dim", None)
    if given is None:
        given = list(range(rank))
    over = sorted({int(a) % rank for a in ([given] if isinstance(given, int) else given)})
    rest = [a for a in range(rank) if a not in over]
    lines = at.transpose(*over, *rest).reshape(-1, c) if at.size % c == 0 else at
    kept = [x.dims[a] for a in rest if x.dims[a] > 1]
    if kept != ([c] if c > 1 else []) or not (lines % c == np.arange(c)).all():
        raise call.error(
            f"the op {call.op} of {list(x.dims)} over {over} is not supported; the nearest that is: over all "
            "tokens"
        )
    keep = bool(call.get("keepdim", False))
    dims = tuple(1 if i in over else d for i, d in enumerate(x.dims) if keep or i not in over)
    args = {"self": whole(low, x), "dim": [2, 3], "keepdim": False}
    alone = replace(call, op="amax" if call.op == "max" else call.op, args=args)
    found = view_of(low, natural(low, alone).tensor, np.arange(c).reshape(dims))
    return (found, None) if call.op == "max" else found


def softmax(low: Lowering, call: Call) -> Any:
    """Of the scores of attention; else of a view, as of any other map."""
    if isinstance(call.x, Scores):
        return attention_aten.softmax(low, call)
    x = sequence(low, call, call.x)
    factors = inside_aten.over(low, call, x)
    return viewed(low.emit(call, SOFTMAX, (x,), low.shape(x), factors=factors), numbers(low, x))


def size(call: Call) -> Any:
    """size(), size(dim) and dim(): plain numbers."""
    dims, at = call.x.dims, call.args.get("dim")
    return len(dims) if call.op == "dim" else list(dims) if at is None else dims[int(at)]


def cat(low: Lowering, call: Call, natural: Natural) -> Any:
    """A constant token in front of the others; or vectors, one of which is a token."""
    given, axis = call.args.get("tensors") or [], int(call.get("dim", 0))
    if all(isinstance(v, Act) and len(v.dims) == 2 for v in given):
        given = [settled(low, call, v) for v in given]
        call = replace(call, args={**call.args, "tensors": given})
    if all(isinstance(v, Act) and v.order is None and v.tensor not in low.last for v in given):
        return natural(low, call)
    first, x = (given[0], given[1]) if len(given) == 2 else (None, None)
    if not isinstance(first, Param) or not isinstance(x, Act):
        raise call.error(
            f"the op {call.op} of tokens is not supported; the nearest that is: a constant token before them"
        )
    x, pixels = vectors(low, call, x)
    value, c = low.constant(call, first, "token").value, low.shape(x)[2]
    straight = pixels is not None and np.array_equal(pixels.ravel(), np.arange(pixels.size))
    if (
        not straight
        or axis % len(x.dims) != len(x.dims) - 2
        or value.shape[-1:] != (c,)
        or value.ndim != len(x.dims)
    ):
        raise call.error(
            f"the op {call.op} of a constant {list(value.shape)} and tokens {list(x.dims)} along dimension "
            f"{axis} is not supported; the nearest that is: a constant token before them"
        )
    lead = value.size // c
    made = position.preceded(low, call, whole(low, x), first.name, value.reshape(lead, c))
    dims = (*x.dims[:-2], x.dims[-2] + lead, c)
    return view_of(low, made.tensor, np.arange(np.prod(dims)).reshape(dims))


VIEWS = ("view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze")
ELEMENTWISE = (*ACTIVATIONS, *ALSO, "relu", "relu6", "hardtanh", "clamp", "clamp_min")
RULES: dict[str, Rule] = {
    **dict.fromkeys(VIEWS, lambda low, call, natural: reshaped(low, call)),
    **dict.fromkeys(
        ("permute", "transpose", "t"),
        lambda low, call, natural: turned(low, call, axes_of(call, len(call.x.dims))),
    ),
    **dict.fromkeys(
        ("select", "slice", "unbind", "chunk", "split", "split_with_sizes"),
        lambda low, call, natural: cut(low, call),
    ),
    **dict.fromkeys(
        (
            "contiguous",
            "clone",
            "detach",
            "alias",
            "identity",
            "dropout",
            "expand",
            "to",
            "float",
        ),
        lambda low, call, natural: same(low, call),
    ),
    **dict.fromkeys(("size", "sym_size", "dim"), lambda low, call, natural: size(call)),
    "linear": linear,
    **dict.fromkeys(("matmul", "mm", "bmm", "addmm"), matmul),
    "layer_norm": layer_norm,
    "einsum": einsum,
    "add": add,
    **dict.fromkeys(("sub", "rsub"), subtract),
    **dict.fromkeys(("mul", "div", "true_divide"), multiply),
    "glu": glu,
    **dict.fromkeys(("mean", "sum", "amax", "max"), over_tokens),
    **dict.fromkeys(
        ("softmax", "_softmax", "log_softmax", "_log_softmax"),
        lambda low, call, natural: softmax(low, call),
    ),
    **dict.fromkeys(("cat", "concat", "concatenate"), cat),
    **{
        name: lambda low, call, natural: recurrent_aten.ATEN[call.op].rule(low, call)
        for name in recurrent_aten.ATEN
    },
}
