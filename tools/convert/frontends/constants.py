"""Calls that make constants of constants: they are worked out here, in NumPy, and the graph has none of them.

Nothing is larger than MOST, and all of a file together than MOST_IN_ALL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.base import weight_norm
from microtrain.base.errors import one_line
from microtrain.convert.lowering import Act, Call, Lowering, Param
from microtrain.convert.ops.functions import OF_ONE
from microtrain.convert.ops.resample_aten import factors_of

from . import reparametrized, resized
from .affine import scaled

MOST, MOST_IN_ALL = 1 << 22, 1 << 27  # numbers of a constant, and of all that a file makes
MOST_PRODUCTS = 1 << 30  # of a product of matrices
FLOAT, DOUBLE, BOOL = 6, 7, 11  # c10::ScalarType
DTYPES = {
    **{0: np.uint8, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.int64},
    **{5: np.float16, FLOAT: np.float32, DOUBLE: np.float64, BOOL: np.bool_},
}
PLACES = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "copy")  # say nothing of numbers
Rule = Callable[[Call], Any]
Size = Sequence[int]


def _array(value: Any) -> Any:
    """A constant as an array; a number of Python's stays one, so that it widens nothing."""
    return value.value if isinstance(value, Param) else value


def _x(call: Call) -> Any:
    return _array(call.x)


def _other(call: Call) -> Any:
    return _array(call.args.get("other", call.args.get("exponent")))


def _of_type(call: Call, values: Any, otherwise: Any = np.float32) -> np.ndarray:
    dtype = call.args.get("dtype")
    return np.asarray(values, DTYPES.get(dtype, otherwise) if dtype is not None else otherwise)


def _divided(call: Call) -> Any:
    made = _x(call) / _other(call)
    rounding = {"floor": np.floor, "trunc": np.trunc}.get(call.get("rounding_mode", ""))
    return made if rounding is None else rounding(made)


ARITHMETIC: dict[str, Rule] = {  # of two, which are brought to one shape
    "add": lambda call: _x(call) + scaled(call, _other(call)),
    "sub": lambda call: _x(call) - scaled(call, _other(call)),
    "rsub": lambda call: _other(call) - scaled(call, _x(call)),
    "mul": lambda call: _x(call) * _other(call),
    **dict.fromkeys(("div", "true_divide"), _divided),
    "floor_divide": lambda call: _x(call) // _other(call),
    "remainder": lambda call: _x(call) % _other(call),
    "pow": lambda call: np.power(*np.broadcast_arrays(_x(call), _other(call), subok=False)),
    **{name: lambda call, f=f: f(_x(call), _other(call)) for name, f in (  # type: ignore[misc]
        ("maximum", np.maximum), ("minimum", np.minimum), ("eq", np.equal), ("ne", np.not_equal),
        ("lt", np.less), ("le", np.less_equal), ("gt", np.greater), ("ge", np.greater_equal),
        ("logical_and", np.logical_and), ("logical_or", np.logical_or),
    )},
}  # fmt: skip
SINGLE: dict[str, Callable[[Any], Any]] = {  # of each number alone
    **OF_ONE,
    "neg": lambda a: -a,
    "reciprocal": lambda a: 1.0 / a,
    "rsqrt": lambda a: 1.0 / np.sqrt(a),
    "abs": np.abs, "sqrt": np.sqrt, "exp": np.exp, "log": np.log,
    "logical_not": np.logical_not,
    "bitwise_not": np.invert, "square": np.square, "relu": lambda a: np.maximum(a, 0.0),
}  # fmt: skip


def sizes(call: Call) -> tuple[int, ...]:
    """The size that a call names."""
    for key in ("size", "shape", "repeats"):
        if isinstance(call.args.get(key), list):
            return tuple(int(d) for d in call.args[key])
    return ()


def _expanded(values: np.ndarray, size: Size) -> np.ndarray:
    own = (1,) * (len(size) - values.ndim) + values.shape
    return np.broadcast_to(values, tuple(o if d == -1 else d for o, d in zip(own, size, strict=True)))


def _part(call: Call) -> np.ndarray:
    values, axis, step = _x(call), int(call.get("dim", 0)), int(call.get("step", 1))
    index: list[slice] = [slice(None)] * values.ndim
    index[axis] = slice(call.get("start", None), call.get("end", None), step)
    return np.asarray(values[tuple(index)])


def _flat(call: Call) -> np.ndarray:
    values = _x(call)
    first, last = call.get("start_dim", 0) % values.ndim, call.get("end_dim", -1) % values.ndim
    return np.asarray(values.reshape(*values.shape[:first], -1, *values.shape[last + 1 :]))


def _squeezed(call: Call) -> np.ndarray:
    values, axes = _x(call), call.get("dim", None)
    chosen = range(values.ndim) if axes is None else [axes] if isinstance(axes, int) else axes
    gone = tuple(a % values.ndim for a in chosen if values.shape[a] == 1)
    return np.asarray(np.squeeze(values, gone))


def _swapped(call: Call) -> np.ndarray:
    return np.asarray(np.swapaxes(_x(call), call.get("dim0", 0), call.get("dim1", 1)))


SHAPES: dict[str, Rule] = {  # the same numbers, seen otherwise
    **dict.fromkeys(("view", "_unsafe_view", "reshape"), lambda call: _x(call).reshape(sizes(call))),
    "unsqueeze": lambda call: np.expand_dims(_x(call), int(call.args["dim"])),
    "squeeze": _squeezed,
    "flatten": _flat,
    **dict.fromkeys(("expand", "broadcast_to"), lambda call: _expanded(_x(call), sizes(call))),
    "slice": _part,
    "select": lambda call: np.moveaxis(_x(call), int(call.args["dim"]), 0)[int(call.args["index"])],
    "clone": lambda call: np.array(_x(call)),
    "permute": lambda call: _x(call).transpose([int(d) for d in call.args["dims"]]),
    **dict.fromkeys(("transpose", "t"), _swapped),
    **dict.fromkeys(("to", "_to_copy", "float", "type_as"), lambda call: _cast(call)),
}


TURNS = ("permute", "transpose", "t")
VIEWS = {*SHAPES} - {
    *TURNS,
    "slice",
    "select",
    "clone",
    "expand",
    "broadcast_to",
}  # which keep all numbers in their order


def _cast(call: Call) -> np.ndarray:
    same = call.args.get("dtype") is None and call.op != "float"
    return np.asarray(_x(call)) if same else _of_type(call, _x(call))


def _counted(call: Call) -> np.ndarray:
    ends = [call.get("start", 0), call.args["end"], call.get("step", 1)]
    whole = all(isinstance(e, int) for e in ends)
    return _of_type(call, np.arange(*ends), np.int64 if whole else np.float32)


def _spread(call: Call) -> np.ndarray:
    return _of_type(call, np.linspace(call.args["start"], call.args["end"], int(call.args["steps"])))


def _listed(call: Call) -> list[Any]:
    return [_array(value) for value in call.args.get("tensors", [])]


def _table(call: Call) -> np.ndarray:
    """x[indices], of whole numbers along the first axes."""
    indices = [slice(None) if i is None else np.asarray(_array(i)) for i in call.args["indices"]]
    return np.asarray(_x(call)[tuple(indices)])


def _grid(call: Call) -> list[np.ndarray]:
    return list(np.meshgrid(*_listed(call), indexing=call.get("indexing", "ij")))


def _linear(call: Call) -> np.ndarray:
    x, w, bias = (_array(call.args.get(name)) for name in ("input", "weight", "bias"))
    return np.asarray(x @ w.T + (0 if bias is None else bias))


def _product(call: Call) -> Any:
    return _x(call) @ _array(call.args.get("other", call.args.get("mat2")))


def _bounded(call: Call) -> np.ndarray:
    return np.asarray(np.clip(_x(call), call.get("min", None), call.get("max", None)))


def _convolved(call: Call) -> np.ndarray:
    """By a kernel of one pixel, which is all that positions are taken through."""
    x, w, bias = (_array(call.args.get(name)) for name in ("input", "weight", "bias"))
    plain = {*call.get("stride", [1]), *call.get("dilation", [1]), call.get("groups", 1)} == {1}
    if w.shape[1] != x.shape[1] or {*w.shape[2:]} != {1} or any(call.get("padding", [0])) or not plain:
        raise ValueError("its kernel is larger than a pixel")
    return pointwise(x, w, bias)


def pointwise(x: np.ndarray, w: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """x [n, c, ...], w [c_out, c, 1, ...]"""
    made = np.moveaxis(np.tensordot(w.reshape(len(w), -1), x, (1, 1)), 0, 1)
    return np.asarray(made if bias is None else made + bias.reshape(-1, *[1] * (x.ndim - 2)))


def _over(function: Callable[..., Any]) -> Rule:
    """A sum and its kin, over some axes or over all."""

    def run(call: Call) -> np.ndarray:
        axes = call.get("dim", None)
        axes = tuple(axes) if isinstance(axes, list) else axes
        return np.asarray(function(_x(call), axis=axes or None if axes == () else axes,
                                   keepdims=bool(call.get("keepdim", False))))  # fmt: skip

    return run


def _deviation(call: Call) -> np.ndarray:
    """std and var, of one less than there are numbers unless the call says otherwise."""
    correction = call.args.get("correction")
    less = int(call.get("unbiased", True)) if correction is None else correction
    function = np.std if call.op == "std" else np.var
    made = _over(lambda x, axis, keepdims: function(x, axis=axis, keepdims=keepdims, ddof=less))(call)
    return np.asarray(made)


FRESH = ("tensor", "as_tensor", "scalar_tensor")  # of plain numbers
MAKING: dict[str, Rule] = {  # of what there is not yet
    **dict.fromkeys(FRESH, lambda call: np.asarray(call.args.get("data", call.args.get("s")), np.float32)),
    "arange": _counted,
    "linspace": _spread,
    "full": lambda call: np.full(sizes(call), call.args["fill_value"], _type(call)),
    "ones": lambda call: np.ones(sizes(call), _type(call)),
    "zeros": lambda call: np.zeros(sizes(call), _type(call)),
    "eye": lambda call: np.eye(int(call.args["n"]), dtype=_type(call)),
    "new_zeros": lambda call: np.zeros(sizes(call), _type(call)),
    "new_ones": lambda call: np.ones(sizes(call), _type(call)),
    "new_full": lambda call: np.full(sizes(call), call.args["fill_value"], _type(call)),
    "zeros_like": lambda call: np.zeros(_dims(call), _type(call)),
    "ones_like": lambda call: np.ones(_dims(call), _type(call)),
    "full_like": lambda call: np.full(_dims(call), call.args["fill_value"], _type(call)),
}


def _cut(call: Call) -> list[np.ndarray]:
    """chunk and split, as PyTorch counts their parts."""
    axis, given = int(call.get("dim", 0)), call.get("split_size", None) or call.get("split_sizes", None)
    size = _x(call).shape[axis]
    each = -(-size // int(call.args["chunks"])) if given is None else given
    ends = np.cumsum(each)[:-1] if isinstance(each, list) else np.arange(int(each), size, int(each))
    return np.split(_x(call), ends, axis)


OTHERS: dict[str, Rule] = {
    **dict.fromkeys(("chunk", "split", "split_with_sizes"), _cut),
    "cat": lambda call: np.concatenate(_listed(call), int(call.get("dim", 0))),
    "stack": lambda call: np.stack(_listed(call), int(call.get("dim", 0))),
    "repeat": lambda call: np.tile(_x(call), sizes(call)),
    "index": _table,
    "index_select": lambda call: np.take(_x(call), _array(call.args["index"]), int(call.args["dim"])),
    "embedding": lambda call: np.take(_array(call.args["weight"]), _array(call.args["indices"]), 0),
    "meshgrid": _grid,
    "cumsum": lambda call: np.cumsum(_x(call), int(call.args["dim"])),
    **dict.fromkeys(("clamp", "clip", "clamp_min"), _bounded),
    "flip": lambda call: np.flip(_x(call), call.args["dims"]).copy(),
    "roll": lambda call: np.roll(_x(call), call.args["shifts"], call.args.get("dims") or None),
    **dict.fromkeys(("outer", "ger"), lambda call: np.outer(_x(call), _array(call.args.get("vec2")))),
    **dict.fromkeys(("matmul", "mm", "bmm"), _product),
    "where": lambda call: np.where(_array(call.args["condition"]), _x(call), _array(call.args["other"])),
    "masked_fill": lambda call: np.where(_array(call.args["mask"]), _array(call.args["value"]), _x(call)),
    "copy": lambda call: np.array(np.broadcast_to(_array(call.args["src"]), _x(call).shape)),
    "fill": lambda call: np.full_like(_x(call), _array(call.args["value"])),
    "linear": _linear,
    **dict.fromkeys(("conv2d", "conv1d"), _convolved),
    "sum": _over(np.sum), "mean": _over(np.mean), "amax": _over(np.max), "amin": _over(np.min),
    **dict.fromkeys(("std", "var"), _deviation),
    **reparametrized.RULES,
}  # fmt: skip


def _type(call: Call) -> Any:
    return DTYPES.get(call.args.get("dtype", FLOAT), np.float32)


def _dims(call: Call) -> tuple[int, ...]:
    x = call.x
    return tuple(x.dims) if isinstance(x, Act) else x.value.shape


RESIZED = {  # op -> mode, and whether it is antialiased
    **{f"upsample_{name}2d": (mode, False) for name, mode in (("bicubic", "cubic"), ("bilinear", "linear"))},
    **{
        f"_upsample_{name}2d_aa": (mode, True)
        for name, mode in (("bicubic", "cubic"), ("bilinear", "linear"))
    },
    "upsample_linear1d": ("linear", False),
    **{f"upsample_nearest{n}d": ("nearest", False) for n in (1, 2)},
    **{f"_upsample_nearest_exact{n}d": ("nearest_exact", False) for n in (1, 2)},
}


def _new_sides(call: Call) -> list[int]:
    given, sides = call.get("output_size", None), _x(call).shape[2:]
    if given is None:
        given = [int(s * f) for s, f in zip(sides, factors_of(call), strict=True) if f is not None]
    return [int(side) for side in given]


def _resized(call: Call) -> np.ndarray:
    mode, smooth = RESIZED[call.op]
    return resized.resized(
        _x(call), _new_sides(call), mode, bool(call.get("align_corners", False)), smooth, factors_of(call)
    )


# Names of arguments by position, for files that name none.
ARGUMENTS: dict[str, str] = {
    **dict.fromkeys(FRESH, "data"),
    **dict.fromkeys(SINGLE, "self"),
    **dict.fromkeys(ARITHMETIC, "self other"),
    "arange": "end", "linspace": "start end steps", "full": "size fill_value", "eye": "n",
    **dict.fromkeys(("ones", "zeros"), "size"),
    **dict.fromkeys(("new_zeros", "new_ones"), "self size"), "new_full": "self size fill_value",
    **dict.fromkeys(("zeros_like", "ones_like"), "self"), "full_like": "self fill_value",
    **dict.fromkeys(("cat", "stack"), "tensors dim"),
    **dict.fromkeys(("expand", "broadcast_to"), "self size"), "repeat": "self repeats",
    "index": "self indices", "index_select": "self dim index",
    "embedding": "weight indices", "meshgrid": "tensors", "cumsum": "self dim",
    "flip": "self dims", "roll": "self shifts dims", "outer": "self vec2", "ger": "self vec2",
    "where": "condition self other", "masked_fill": "self mask value",
    "copy": "self src", "fill": "self value", "pow": "self exponent", "sum": "self dim keepdim",
    "upsample_bicubic2d": "self output_size align_corners scale_factors",
    **reparametrized.ARGUMENTS,
}  # fmt: skip


def concerns(call: Call) -> bool:
    """Whether a call makes a constant of constants, in a way that is understood."""
    op = call.op
    if op.endswith("_"):
        return _is_ours(call.x) and concerns(replace(call, op=op.rstrip("_")))
    if op in MAKING:
        of_any = op.endswith("_like") or op.startswith("new_")
        known = (isinstance(call.x, Act | Param) or not of_any) and (op not in FRESH or _is_filled(call))
        return known and all(_is_plain(v) for name, v in _told(call).items() if name not in ("self", "input"))
    known = any(op in rules for rules in (SHAPES, ARITHMETIC, SINGLE, OTHERS, RESIZED))
    given = given_to(call)
    plain = all(isinstance(v, Param | int | float | str | None) for v in given)
    return known and plain and (op in ARITHMETIC or any(isinstance(v, Param) for v in given))


def _is_ours(value: Any) -> bool:
    """Whether a constant was made here, and may be written: all SHAPES share memory where PyTorch's do."""
    return isinstance(value, Param) and value.computed and bool(value.value.flags.writeable)


def _told(call: Call) -> dict[str, Any]:
    """The arguments that numbers depend on."""
    return {name: value for name, value in call.args.items() if name not in PLACES}


def given_to(call: Call) -> list[Any]:
    """Arguments, those of lists too."""
    values = _told(call).values()
    return [v for value in values for v in (value if isinstance(value, list) else [value])]


def _is_filled(call: Call) -> bool:
    """Whether there are numbers in lists of equal lengths."""
    data = call.args.get("data", call.args.get("s"))
    try:
        found = np.asarray(data, np.float64)
    except (ValueError, TypeError):
        return False
    return data is not None and bool(found.size and np.isfinite(found).all())


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def made(low: Lowering, call: Call) -> Param | list[Param]:
    """The constant that such a call makes, named after the first one in it; some make several.

    Errors  LayerError where it is larger than MOST, or cannot be
    """
    if call.op.endswith("_"):
        found = made(low, replace(call, op=call.op.rstrip("_")))
        if not isinstance(found, Param) or found.value.shape != call.x.value.shape:
            raise call.error(f"{call.op} of a constant changes its shape; write it without changing in place")
        call.x.value[...] = found.value
        same: Param = call.x
        return same
    constants = [v for v in given_to(call) if isinstance(v, Param)]
    name = weight_norm.plain(constants[0].name) if constants else call.node_name(call.op)
    views = call.op in VIEWS and not any(v.computed for v in constants)
    with np.errstate(all="ignore"):
        try:
            _check(low, call, _count(call, [np.asarray(v.value) for v in constants]))
            if call.op in SHAPES and (matrix := _turned(call)) is not None:
                return matrix
            if (normed := reparametrized.learnable(call)) is not None:
                return normed
            found = _rule(call)(call)
        except (ValueError, IndexError, TypeError, KeyError, OverflowError, np.exceptions.AxisError) as error:
            why = f"not without {error.args[0]}" if isinstance(error, KeyError) else one_line(str(error))
            raise call.error(f"{call.op} of constants cannot be worked out: {why}") from error
    if isinstance(found, list):
        return [Param(name, np.asarray(each), computed=True) for each in found]
    return Param(name, np.asarray(found), computed=not views)


def _turned(call: Call) -> Param | None:
    """A matrix with its axes the other way round, or as it is; None for other views."""
    x, dims = call.x, [int(d) % 2 for d in call.get("dims", (1, 0))]
    if call.op not in TURNS or not isinstance(x, Param) or x.value.ndim != 2:
        return None
    straight = dims == [0, 1] if call.op == "permute" else call.get("dim0", 0) % 2 == call.get("dim1", 1) % 2
    return x if straight else x.t


def _rule(call: Call) -> Rule:
    if call.op in SINGLE:
        return lambda given: SINGLE[given.op](_x(given))
    if call.op in RESIZED:
        return _resized
    return next(rules[call.op] for rules in (MAKING, SHAPES, ARITHMETIC, OTHERS) if call.op in rules)


def _count(call: Call, arrays: Sequence[np.ndarray]) -> float:
    """How many numbers the call makes, or more."""
    op, own = call.op, [float(a.size) for a in arrays]
    if op == "arange":
        steps = (call.args["end"] - call.get("start", 0)) / (call.get("step", 1) or 1)
        return max(float(steps), 0.0)
    if op in MAKING:
        side = float(call.get("steps", 0) or call.get("n", 0))
        return side * (side if op == "eye" else 1) or float(
            math.prod(_dims(call) if op.endswith("_like") else sizes(call))
        )
    if op in ("repeat", "expand", "broadcast_to"):
        return math.prod(map(float, map(abs, sizes(call)))) * (own[0] if op == "repeat" else 1.0)
    if op in RESIZED:
        return resized.count(_x(call).shape, _new_sides(call), MOST / MOST_PRODUCTS)
    if op in ("cat", "stack", "meshgrid"):
        return sum(own) if op != "meshgrid" else len(own) * math.prod(own)
    if op == "index":
        return _looked_up(call)
    if op == "embedding":
        return own[0] / len(_array(call.args["weight"])) * own[1]
    if op in ("outer", "ger"):
        return math.prod(own)
    if op in ("matmul", "mm", "bmm", "linear", "conv2d", "conv1d"):
        return own[0] * own[1] / (MOST_PRODUCTS / MOST)
    return float(math.prod(np.broadcast_shapes(*(a.shape for a in arrays)))) if op in ARITHMETIC else max(own)


def _looked_up(call: Call) -> float:
    """How many numbers x[indices] has, or more: what is left of x for each place."""
    indices = [np.asarray(_array(i)) if i is not None else None for i in call.args["indices"]]
    named = [(place, side) for place, side in zip(indices, _x(call).shape, strict=False) if place is not None]
    rows = float(math.prod(np.broadcast_shapes(*(place.shape for place, _ in named))))
    sides = float(math.prod(side for place, side in named if place.dtype.kind in "iu"))
    return rows * float(_x(call).size) / max(1.0, sides)


def _check(low: Lowering, call: Call, count: float) -> None:
    low.computed += int(min(count, MOST_IN_ALL + 1))
    if count > MOST:
        raise call.error(f"a constant of {count:,.0f} numbers is too large; {MOST:,} are the most")
    if low.computed > MOST_IN_ALL:
        raise call.error(f"the model makes more than {MOST_IN_ALL:,} numbers of constants; store them in it")
