"""Attention as models write it: one call, or products, a softmax and products again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.lowering import Lowering
from microtrain.convert.nearest import no_matrix

from ..tokens import VIEWS, numbers, places, seen_as, settled, turnable, view_of, viewed
from .across import relabelled
from .attention_bias import Wide, constant_bias, factored, widened
from .attention_groups import Order, order_of, ordered
from .attention_heads import heads_of, joined, split, steps_of
from .attention_tokens import repeated
from .channels import TAKE, take

ATTENTION = "attention"
NO_MASK = "attention of every token to every other, with a constant for each pair of them or with none"


@dataclass(frozen=True)
class Scores:
    """Products of queries and keys [..., tokens, size], which are no tensor of the network.

    factor  they are multiplied with; softmax: they are shares by now
    bias    what is added behind that, of their dimensions
    turned  shares whose last two axes were swapped
    """

    q: Act
    k: Act
    factor: float = 1.0
    softmax: bool = False
    bias: np.ndarray | None = None
    turned: bool = False

    @property
    def dims(self) -> tuple[int, ...]:
        return (*self.q.dims[:-1], self.k.dims[-2])

    @property
    def acts(self) -> tuple[Act, Act]:
        """What a stand-in reads in their place."""
        return self.q, self.k


def of_scores(call: Call) -> Exception:
    """What is refused of the scores of attention."""
    wrong = (
        "a mask or a bias" if call.op.rstrip("_") in ("add", "masked_fill", "where") else f"the op {call.op}"
    )
    return call.error(f"{wrong} on the scores of attention is not supported; the nearest that is: {NO_MASK}")


def product(low: Lowering, call: Call) -> Any:
    """Of queries and keys, or of the shares that a softmax made of these and values."""
    a, b = call.x, call.args.get("mat2", call.args.get("other"))
    if isinstance(a, Act) and isinstance(b, Scores) and b.turned:  # values [size, tokens]
        found = attention(low, call, (b.q, b.k, _turned(low, call, a)), b.factor, b.bias)
        return _turned(low, call, found)
    if isinstance(a, Scores) and isinstance(b, Act):
        if not a.softmax or a.turned:
            raise of_scores(call)
        return attention(low, call, (a.q, a.k, b), a.factor, a.bias)
    if not isinstance(a, Act) or not isinstance(b, Act):
        raise no_matrix(call, both=False)
    a, b = (turnable(low, call, v) for v in (a, b))
    k = _turned(low, call, b)
    if len(a.dims) < 3 or len(b.dims) != len(a.dims) or a.dims[-1] != k.dims[-1]:
        raise no_matrix(call, both=True)
    return Scores(replace(a, factor=1.0), replace(k, factor=1.0), a.factor * b.factor)


def _turned(low: Lowering, call: Call, x: Act) -> Act:
    """A view with its last two axes swapped."""
    x = turnable(low, call, x)
    return viewed(low, x, numbers(low, x).swapaxes(-1, -2))


def turn(low: Lowering, call: Call) -> Any:
    """The last two axes swapped: of shares in front of a product, and of scores, which are others then."""
    scores, rank = call.x, len(call.x.dims)
    given = call.args.get("dims")
    axes = [int(d) % rank for d in given] if given is not None else list(range(rank))
    if given is None:
        a, b = (int(call.get(key, at)) % rank for at, key in enumerate(("dim0", "dim1")))
        axes[a], axes[b] = axes[b], axes[a]
    if axes != [*range(rank - 2), rank - 1, rank - 2]:
        raise of_scores(call)
    if scores.softmax:
        return replace(scores, turned=not scores.turned)
    bias = None if scores.bias is None else scores.bias.swapaxes(-1, -2)
    return replace(scores, q=scores.k, k=scores.q, bias=bias)


def seen(low: Lowering, call: Call) -> Any:
    """Scores of the same queries and keys, whose heads and samples are counted by other axes."""
    scores = call.x
    dims = seen_as(call, scores.dims)
    if dims[-2:] != scores.dims[-2:] or scores.turned:
        raise of_scores(call)
    parts = (turnable(low, call, part) for part in scores.acts)
    q, k = (viewed(low, part, numbers(low, part).reshape(*dims[:-2], *part.dims[-2:])) for part in parts)
    bias = None if scores.bias is None else np.broadcast_to(scores.bias, scores.dims).reshape(dims)
    return replace(scores, q=q, k=k, bias=bias)


def softmax(low: Lowering, call: Call) -> Any:
    scores = call.x
    if not isinstance(scores, Scores):
        raise call.error(
            "a softmax inside the network is not supported; the nearest that is: that of attention, over the "
            "products of queries and keys"
        )
    if int(call.get("dim", -1)) not in (-1, len(scores.q.dims) - 1) or scores.softmax:
        raise of_scores(call)
    return replace(scores, softmax=True)


def scaled(low: Lowering, call: Call) -> Any:
    """Scores times a number."""
    scores, by = (
        (call.x, call.args.get("other")) if isinstance(call.x, Scores) else (call.args.get("other"), call.x)
    )
    number = by.value.reshape(()).item() if isinstance(by, Param) and by.value.size == 1 else by
    if not isinstance(scores, Scores) or not isinstance(number, int | float) or scores.softmax or not number:
        raise of_scores(call)
    by = number if call.op.startswith("mul") else 1.0 / number
    bias = None if scores.bias is None else scores.bias * by
    return replace(scores, factor=scores.factor * by, bias=bias)


def biased(low: Lowering, call: Call) -> Any:
    """Scores and a constant for each."""
    scores, other = call.x, call.args.get("other")
    if not isinstance(scores, Scores):
        scores, other = other, scores
    bias = constant_bias(call, other, scores.dims) if isinstance(scores, Scores) else None
    if bias is None or scores.softmax or call.get("alpha", 1) != 1:
        raise of_scores(call)
    return replace(scores, bias=bias if scores.bias is None else scores.bias + bias)


def same(low: Lowering, call: Call) -> Any:
    """Dropout, in inference, and what changes no number."""
    if call.op.startswith("dropout") and call.get("train", False):
        raise call.error("the dropout is in training mode; call model.eval() before the model is saved")
    return call.x


def fused(low: Lowering, call: Call) -> Any:
    """scaled_dot_product_attention."""
    args, bias = call.args, None
    q, k, mask = (args.get(name) for name in ("query", "key", "attn_mask"))
    if mask is not None and isinstance(q, Act) and isinstance(k, Act):
        bias = constant_bias(call, mask, (*q.dims[:-1], k.dims[-2]))
    if (mask is not None and bias is None) or call.get("is_causal", False):
        raise call.error(f"attention with a mask is not supported; the nearest that is: {NO_MASK}")
    if call.get("dropout_p", 0.0):
        raise call.error(
            "attention with dropout is in training mode; call model.eval() before the model is saved"
        )
    parts = [turnable(low, call, args[name]) for name in ("query", "key", "value")]
    factor = float(call.get("scale", parts[0].dims[-1] ** -0.5))
    for part in parts[:2]:
        factor *= part.factor
    return attention(low, call, [replace(p, factor=1.0) for p in parts[:2]] + parts[2:], factor, bias)


def einsum(low: Lowering, call: Call) -> Any:
    """The two products of attention, whatever their letters and the order of these."""
    letters, out = letters_of(call)
    given = dict(zip(letters, call.args.get("tensors") or [], strict=False))
    if len(given) != 2 or any(isinstance(v, Param) for v in given.values()):
        raise no_einsum(call)
    left, right = letters
    shares = next((each for each, value in given.items() if isinstance(value, Scores)), None)
    if shares == right or (shares is None and out[-1:] in left):
        left, right = right, left
    row, column = (_only(a, b) for a, b in ((left, right), (right, left)))
    inner, batch = _only(left, row + out), "".join(c for c in left if c in right and c in out)
    batch = batch if shares else "".join(c for c in out if c in batch)
    whole = all(len(each) == 1 for each in (row, column, inner)) and {*out} == {*batch, row, column}
    if not whole or (left != batch + row + inner if shares else out != batch + row + column):
        raise no_einsum(call)
    first = given[left] if shares else _in_order(low, call, given[left], left, batch + row + inner)
    second = _in_order(low, call, given[right], right, batch + inner + column)
    made = product(low, replace(call, args={"self": first, "other": second}))
    return _in_order(low, call, made, batch + row + column, out) if shares else made


def letters_of(call: Call) -> tuple[list[str], str]:
    """The letters of the operands and of the result of an einsum; each has a letter once."""
    left, _, out = str(call.args.get("equation", "")).replace(" ", "").partition("->")
    letters = left.split(",")
    if len({*letters}) != len(letters) or any(len({*each}) != len(each) for each in (*letters, out)):
        raise no_einsum(call)
    return letters, out


def _only(letters: str, others: str) -> str:
    return "".join(c for c in letters if c not in others)


def no_einsum(call: Call) -> Exception:
    return call.error(
        f"einsum {call.args.get('equation', '')} is not supported; the nearest that is: a linear layer over "
        "axes that the result has not, or the products of attention"
    )


def _in_order(low: Lowering, call: Call, x: Any, letters: str, wanted: str) -> Any:
    """A view whose axes are in the order of some letters."""
    act = turnable(low, call, x)
    if len(act.dims) != len(letters):
        raise no_einsum(call)
    return viewed(low, act, numbers(low, act).transpose([letters.index(c) for c in wanted]))


def attention(
    low: Lowering, call: Call, parts: Sequence[Act], factor: float, bias: np.ndarray | None = None
) -> Act:
    """The node, and its result seen as the queries were: [..., tokens, size of a head of values].

    bias  what is added to the scores, of their dimensions
    """
    if not factor > 0:
        raise call.error(f"attention of scores times {factor:g}; the factor must be above 0")
    if any(part.factor != 1 for part in parts):
        raise call.error("attention of scaled values is not supported; the nearest that is: to plain values")
    parts = _of_all_heads(low, parts)
    if (other := repeated(low, call, parts, bias)) is not None:
        made = attention(low, call, other.parts, factor, other.bias)
        return settled(low, call, viewed(low, made, numbers(low, made).take(other.read, axis=-2)))
    q, k, v = parts
    if k.dims != q.dims or v.dims[:-1] != q.dims[:-1]:
        dims = ", ".join(str(list(part.dims)) for part in parts)
        raise call.error(
            f"attention of queries, keys and values of shapes {dims} is not supported; the nearest that is: "
            "self-attention, whose queries, keys and values are of the same tokens, or one key for each value"
        )
    tokens, sizes = q.dims[-2], [part.dims[-1] for part in parts]
    views = [places(low, part).reshape(-1, *part.dims[-2:]) for part in parts]
    pixels, starts = split(low, call, parts, views)
    h, w, _ = low.shape(q)
    order = None if steps_of(pixels, h, w) else order_of(pixels, h, w)
    seen = pixels if order is None else order.moved(pixels)
    steps = steps_of(seen, *(order.shape if order else (h, w)))
    if steps is None:
        raise call.error(
            f"attention within groups of {tokens} of {h}x{w} tokens is not supported; the nearest that is: "
            "of all tokens, or of groups of one size that share none"
        )
    heads = heads_of(call, pixels, starts, sizes[0])
    number = np.array([heads.index(int(start)) for start in starts[0]])
    x, tables = joined(low, call, parts, starts, heads), None
    if bias is not None and np.ptp(bias, axis=-1).any():
        flat = bias.reshape(-1, tokens, tokens)
        tables = factored(flat, pixels, number, (h * w, len(heads)), factor)
    wide = widened(low, call, x, sizes, tables)
    made = _node(low, call, wide, order, (factor, float(len(heads)), *(float(s) for s in steps)))
    if wide.size > sizes[2]:
        kept = [head * wide.size + i for head in range(len(heads)) for i in range(sizes[2])]
        made = take(low, replace(call, op=TAKE, builtin=False), made, kept)
    first = number[:, None, None] * sizes[2]
    at = pixels[..., None] * low.shape(made)[2] + first + np.arange(sizes[2])
    return view_of(low, made.tensor, at.reshape(v.dims))


def _of_all_heads(low: Lowering, parts: Sequence[Act]) -> Sequence[Act]:
    """Keys and values that one head has for all queries (Shazeer 2019) as those of each."""
    leads = [part.dims[:-2] for part in parts]
    try:
        lead = np.broadcast_shapes(*leads)
    except ValueError:
        return parts
    if len({*leads}) == 1 or leads[0] != lead or parts[0].dims[:1] != lead[:1]:
        return parts
    return [
        viewed(low, part, np.broadcast_to(part.order, (*lead, *part.dims[-2:])))
        if part.order is not None
        else part
        for part in parts
    ]


def _node(low: Lowering, call: Call, wide: Wide, order: Order | None, factors: tuple[float, ...]) -> Act:
    """What attention makes, its pixels where they were before they were put in order."""
    x = wide.x if order is None else ordered(low, call, wide.x, order)
    (h, w, _), c = low.shape(x), int(factors[1]) * wide.size
    made = low.emit(call, ATTENTION, (x,), (h, w, c), factors=factors)
    if order is None:
        return made
    before = low.shape(wide.x)[:2]
    return relabelled(low, call, ordered(low, call, made, order.back), (*before, c))


RULES: dict[str, Callable[[Lowering, Call], Any]] = {
    "scaled_dot_product_attention": fused,
}
# Calls on scores.
OF_SCORES: dict[str, Callable[[Lowering, Call], Any]] = {
    **dict.fromkeys(("matmul", "bmm"), product),
    **dict.fromkeys(("softmax", "_softmax"), softmax),
    "add": biased,
    **dict.fromkeys(("transpose", "permute"), turn),
    **dict.fromkeys(VIEWS, seen),
    **dict.fromkeys(("mul", "div", "true_divide"), scaled),
    **dict.fromkeys(("dropout", "contiguous", "clone", "detach", "identity", "to", "float"), same),
    "einsum": einsum,
}
ARGUMENTS = {
    "scaled_dot_product_attention": "query key value attn_mask dropout_p is_causal scale enable_gqa",
    "einsum": "equation tensors path",
    "bmm": "self mat2",
    "unflatten": "self dim sizes",
    "select": "self dim index",
    "unbind": "self dim",
}
