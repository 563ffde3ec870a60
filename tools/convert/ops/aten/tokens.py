"""Front-end rules of calls on sequences: linear layers, normalisations, sums and attention over tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.lowering import SOFTMAX, Lowering

from ..activations import ALSO
from ..calls import Natural
from ..functions import ACTIVATIONS
from ..multiply import glu
from ..tokens import (
    MOST_NUMBERS,
    VIEWS,
    again,
    cut,
    numbers,
    pixels_of,
    places,
    reshaped,
    same,
    sequence,
    settled,
    turned,
    view_of,
    viewed,
    whole,
)
from . import (
    across,
    attention,
    channels,
    einsum,
    inside,
    joins,
    recurrent,
    token_arithmetic,
    token_images,
    token_joins,
    token_linear,
)
from .attention import Scores
from .normalise import normalised
from .token_images import as_image, is_other, is_row, is_sequence
from .unflatten import is_last

Rule = Callable[[Lowering, Call, Natural], Any]


def concerns(low: Lowering, call: Call) -> bool:
    """Whether a call is one on tokens: on a view whose numbers are turned, or over the last axis of one."""
    given = given_to(call)
    acts = [v for v in given if isinstance(v, Act)]
    if any(isinstance(v, Scores) for v in given):
        return True
    if not acts or any(a.pad for a in acts):
        return False
    if any(a.order is not None or a.factor != 1 or is_sequence(low, a) for a in acts):
        return True
    op, x = call.op.rstrip("_"), acts[0]
    if any(is_row(low, a) for a in acts) and not any(word in op for word in SEEN):
        return True
    if any(word in op for word in WINDOWS) and any(is_other(low, a) and not is_row(low, a) for a in acts):
        return True
    if op in ARITHMETIC and len({low.shape(a) for a in acts}) > 1 and any(_is_made(low, a) for a in acts):
        return True
    if op in CUTS and not _cuts_a_map(low, x):
        return True
    if op in (*REDUCTIONS, *ARITHMETIC) and any(is_last(a) and low.shape(a)[:2] == (1, 1) for a in acts):
        return True
    if op in REDUCTIONS and blocks_under(low, call) is not None:
        return True
    if op == "linear":
        return len(x.dims) > 2
    if op in ("matmul", *ARITHMETIC):
        return len(x.dims) > 2 and _is_table(call, op, x, given)
    if op == "layer_norm":
        return (
            len(x.dims) > 2
            and len(call.args["normalized_shape"]) == 1
            and x.dims[1:-1] != (1,) * (len(x.dims) - 2)
        )
    if op in ("permute", "transpose", "t"):
        return len(x.dims) != 5 or not channels.swaps(low, x, axes_of(call, len(x.dims)))
    return op in (*attention.RULES, "einsum", "select", "unbind", "unflatten")


def _is_made(low: Lowering, x: Act) -> bool:
    """Whether a view is an image of other sides than the map that a layer made."""
    return not low.is_input(x) and is_other(low, x)


def _cuts_a_map(low: Lowering, x: Act) -> bool:
    """Whether a view that is cut is an image, a series or a vector, whose channels are known as such."""
    (h, w, c), dims = low.shape(x), x.dims[1:]
    return (
        dims in ((c, h, w), (c,))
        or (dims == (c, h) and w == 1)
        or low.is_input(x)
        or x.half
        or low.batch != 1
    )


def given_to(call: Call) -> list[Any]:
    """Arguments, those of lists too."""
    return [v for value in call.args.values() for v in (value if isinstance(value, list) else [value])]


def _is_table(call: Call, op: str, x: Act, given: list[Any]) -> bool:
    """A product of tokens with anything, or arithmetic with a constant for each place."""
    constants = [v.value for v in given if isinstance(v, Param)]
    if op == "matmul":
        return not constants or constants[0].ndim == 2
    channel = x.dims[1] if len(x.dims) > 1 else 0
    return any(v.size > max(channel, 1) or _is_by_places(v.shape, x.dims) for v in constants)


def _is_by_places(shape: tuple[int, ...], dims: tuple[int, ...]) -> bool:
    """Whether a constant beside a view has numbers along other axes than that of channels."""
    full = (1,) * (len(dims) - len(shape)) + shape
    fits = len(full) == len(dims) and all(n in (1, size) for n, size in zip(full, dims, strict=True))
    return fits and any(n > 1 for place, n in enumerate(full) if place != 1)


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
        rule = attention.OF_SCORES.get(name)
        if rule is None:
            raise attention.of_scores(call)
        return rule(low, call)
    if name in attention.RULES:
        return attention.RULES[name](low, call)
    found = RULES.get(name) or (elementwise if name in ELEMENTWISE else None)
    if found is None:
        return as_image(low, call, natural)
    return found(low, call, natural)


def elementwise(low: Lowering, call: Call, natural: Natural) -> Any:
    x = settled(low, call, call.x)
    key = "self" if "self" in call.args else "input"
    return again(low, natural(low, replace(call, args={**call.args, key: whole(low, x)})), x)


def layer_norm(low: Lowering, call: Call, natural: Natural) -> Act:
    """Over the features of each token."""
    x, pixels = across.featured(low, call, call.x)
    over = [int(d) for d in call.args["normalized_shape"]]
    if pixels is None or over != [x.dims[-1]]:
        raise call.error(
            f"a layer norm over the last {len(over)} of the dimensions {list(x.dims)} is not supported; the "
            "nearest that is: one over the channels of each token or pixel, one over all but the batch, or "
            "nn.GroupNorm(1, channels)"
        )
    made = normalised(low, replace(call, args={**call.args, "input": whole(low, x)}), 1, apart=True)
    return again(low, made, x)


def by_channels(low: Lowering, call: Call, natural: Natural) -> Any:
    """A norm of channels, the second dimension of a view; in whatever order pixels lie."""
    x = settled(low, call, call.x)
    apart = "group" in call.op and x.dims[0] != low.batch
    if (
        len(x.dims) < 2
        or apart
        or pixels_of(low, viewed(low, x, np.moveaxis(numbers(low, x), 1, -1))) is None
    ):
        return as_image(low, call, natural)
    return again(low, natural(low, replace(call, args={**call.args, "input": whole(low, x)})), x)


def over_tokens(low: Lowering, call: Call, natural: Natural) -> Any:
    """The mean, the sum or the maximum over all tokens, or over blocks of pixels."""
    if (blocks := blocks_under(low, call)) is not None:
        return _pooled(low, call, natural, blocks)
    x = settled(low, call, call.x)
    rank, at, (_, _, c) = len(x.dims), places(low, x), low.shape(x)
    given = call.get("dim", None)
    if given is None:
        given = list(range(rank))
    over = sorted({int(a) % rank for a in ([given] if isinstance(given, int) else given)})
    rest = [a for a in range(rank) if a not in over]
    pixels = (
        pixels_of(low, viewed(low, x, np.moveaxis(numbers(low, x), over[0], -1))) if len(over) == 1 else None
    )
    if pixels is not None:
        pixels = np.expand_dims(pixels, over[0]) if call.get("keepdim", False) else pixels
        return _over_channels(low, call, natural, x, pixels)
    lines = at.transpose(*over, *rest).reshape(-1, c) if at.size % c == 0 else at
    kept = [x.dims[a] for a in rest if x.dims[a] > 1]
    if kept != ([c] if c > 1 else []) or not (lines % c == np.arange(c)).all():
        if rank in (3, 4) and min(over) > 1:  # of an image that lies in another order
            return as_image(low, replace(call, args={**call.args, "self": x}), natural)
        turned, pixels = across.featured(low, call, x)
        if rank - 1 not in over and pixels is not None and turned.tensor != x.tensor:
            return over_tokens(low, replace(call, args={**call.args, "self": turned}), natural)
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


@dataclass(frozen=True)
class Blocks:
    """Blocks of pixels of a map, side by side, which a call makes one number each of.

    at  where each number of the result stands in the map of one pixel a block
    """

    rows: int
    columns: int
    at: np.ndarray


def blocks_under(low: Lowering, call: Call) -> Blocks | None:
    """What a mean, a sum or a maximum over axes of a view is over, as einops' Reduce has poolings; None where
    it is another."""
    x, given, rank = call.x, call.get("dim", None), len(call.x.dims)
    axes = sorted({int(a) % rank for a in ([given] if isinstance(given, int) else given or [])})
    h, w, c = low.shape(x)
    size = math.prod(x.dims)
    split = x.order is not None or rank > 4 or is_other(low, x)
    if not axes or not split or x.factor != 1 or x.pad or x.half or low.is_stand_in(x):
        return None
    if size != h * w * c or size > MOST_NUMBERS:
        return None
    over = math.prod(x.dims[a] for a in axes)
    at = np.moveaxis(places(low, x), axes, range(-len(axes), 0)).reshape(-1, over)
    first = at.min(axis=1)
    within = at[0] - first[0]
    rows, columns = int(within.max()) // c // w + 1, int((within // c % w).max()) + 1
    block = ((np.arange(rows)[:, None] * w + np.arange(columns)) * c).ravel()
    row, column = first // c // w, first // c % w
    plain = block.size == over and bool((np.sort(at - first[:, None], axis=1) == block).all())
    if not plain or over in (1, h * w) or (row % rows).any() or (column % columns).any():
        return None
    made = (row // rows * (w // columns) + column // columns) * c + first % c
    keep = call.get("keepdim", False)
    dims = [1 if a in axes else d for a, d in enumerate(x.dims) if keep or a not in axes]
    return Blocks(rows, columns, made.reshape(dims))


def _pooled(low: Lowering, call: Call, natural: Natural, blocks: Blocks) -> Any:
    """A pooling of windows side by side."""
    name = call.op.rstrip("_")
    sides = [blocks.rows, blocks.columns]
    pool = "avg_pool2d" if name in ("mean", "sum") else "max_pool2d"
    args = {"self": whole(low, call.x), "kernel_size": sides, "stride": sides}
    if name == "sum":
        args["divisor_override"] = 1
    found = view_of(low, natural(low, replace(call, op=pool, args=args)).tensor, blocks.at)
    return (found, None) if name == "max" else found


def _over_channels(low: Lowering, call: Call, natural: Natural, x: Act, pixels: np.ndarray) -> Any:
    """The mean, the sum or the maximum over the channels. pixels: which one stands at each place"""
    args = {"self": whole(low, x), "dim": [1], "keepdim": True}
    made = natural(low, replace(call, op="amax" if call.op == "max" else call.op, args=args))
    found = view_of(low, made.tensor, pixels)
    return (found, None) if call.op == "max" else found


def softmax(low: Lowering, call: Call) -> Any:
    """Of the scores of attention; else of a view, as of any other map."""
    if isinstance(call.x, Scores):
        return attention.softmax(low, call)
    x = sequence(low, call, call.x)
    if low.is_stand_in(x):  # it may be that of attention
        return low.unknown(call, x.dims)
    factors = inside.over(low, call, x)
    return viewed(low, low.emit(call, SOFTMAX, (x,), low.shape(x), factors=factors), numbers(low, x))


def size(call: Call) -> Any:
    """size(), size(dim) and dim(): plain numbers."""
    dims, at = call.x.dims, call.args.get("dim")
    return len(dims) if call.op == "dim" else list(dims) if at is None else dims[int(at)]


WINDOWS = ("conv", "pool", "pad", "upsample", "cat")  # in the names of calls that read images alone
CUTS = ("slice", "chunk", "split", "split_with_sizes")
SEEN = ("pad", "pool")  # in the names of calls that see to lines of pixels themselves
SUMS = ("add", "sub", "rsub")
ARITHMETIC = (*SUMS, "mul", "div", "true_divide")
REDUCTIONS = ("mean", "sum", "amax", "max")
ELEMENTWISE = (*ACTIVATIONS, *ALSO, "relu", "relu6", "hardtanh", "clamp", "clamp_min")
RULES: dict[str, Rule] = {
    **dict.fromkeys(VIEWS, lambda low, call, natural: reshaped(low, call)),
    **dict.fromkeys(
        ("permute", "transpose", "t"),
        lambda low, call, natural: turned(low, call, axes_of(call, len(call.x.dims))),
    ),
    **dict.fromkeys(("select", "unbind", *CUTS), lambda low, call, natural: cut(low, call)),
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
            "type_as",
        ),
        lambda low, call, natural: same(low, call),
    ),
    **dict.fromkeys(("size", "sym_size", "dim"), lambda low, call, natural: size(call)),
    "linear": token_linear.linear,
    **dict.fromkeys(("matmul", "mm", "bmm", "addmm"), token_linear.matmul),
    "layer_norm": layer_norm,
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_no_training", "group_norm"), by_channels),
    **dict.fromkeys(("pad", "constant_pad_nd"), token_images.pad),
    "einsum": einsum.einsum,
    "add": token_arithmetic.add,
    **dict.fromkeys(("sub", "rsub"), token_arithmetic.subtract),
    **dict.fromkeys(("mul", "div", "true_divide"), token_arithmetic.multiply),
    "glu": glu,
    **dict.fromkeys(REDUCTIONS, over_tokens),
    **dict.fromkeys(
        ("softmax", "_softmax", "log_softmax", "_log_softmax"),
        lambda low, call, natural: softmax(low, call),
    ),
    **dict.fromkeys(joins.NAMES, token_joins.cat),
    **{name: lambda low, call, natural: recurrent.ATEN[call.op].rule(low, call) for name in recurrent.ATEN},
}
