"""What calls make of constants alone, in NumPy: a rule for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ops.aten.resample import factors_of
from microtrain.convert.ops.functions import OF_ONE

from . import reparametrized, resized
from .affine import scaled

FLOAT, DOUBLE, BOOL = 6, 7, 11  # c10::ScalarType
DTYPES = {
    **{0: np.uint8, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.int64},
    **{5: np.float16, FLOAT: np.float32, DOUBLE: np.float64, BOOL: np.bool_},
}
Rule = Callable[[Call], Any]
Size = Sequence[int]


def array(value: Any) -> Any:
    """A constant as an array; a number of Python's stays one, so that it widens nothing."""
    return value.value if isinstance(value, Param) else value


def x_of(call: Call) -> Any:
    """The array that a call begins with."""
    return array(call.x)


def _other(call: Call) -> Any:
    return array(call.args.get("other", call.args.get("exponent")))


def _of_type(call: Call, values: Any, otherwise: Any = np.float32) -> np.ndarray:
    dtype = call.args.get("dtype")
    return np.asarray(values, DTYPES.get(dtype, otherwise) if dtype is not None else otherwise)


def _divided(call: Call) -> Any:
    made = x_of(call) / _other(call)
    rounding = {"floor": np.floor, "trunc": np.trunc}.get(call.get("rounding_mode", ""))
    return made if rounding is None else rounding(made)


ARITHMETIC: dict[str, Rule] = {  # of two, which are brought to one shape
    "add": lambda call: x_of(call) + scaled(call, _other(call)),
    "sub": lambda call: x_of(call) - scaled(call, _other(call)),
    "rsub": lambda call: _other(call) - scaled(call, x_of(call)),
    "mul": lambda call: x_of(call) * _other(call),
    **dict.fromkeys(("div", "true_divide"), _divided),
    "floor_divide": lambda call: x_of(call) // _other(call),
    "remainder": lambda call: x_of(call) % _other(call),
    "pow": lambda call: np.power(*np.broadcast_arrays(x_of(call), _other(call), subok=False)),
    **{name: lambda call, f=f: f(x_of(call), _other(call)) for name, f in (  # type: ignore[misc]
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
    values, axis, step = x_of(call), int(call.get("dim", 0)), int(call.get("step", 1))
    index: list[slice] = [slice(None)] * values.ndim
    index[axis] = slice(call.get("start", None), call.get("end", None), step)
    return np.asarray(values[tuple(index)])


def _flat(call: Call) -> np.ndarray:
    values = x_of(call)
    first, last = call.get("start_dim", 0) % values.ndim, call.get("end_dim", -1) % values.ndim
    return np.asarray(values.reshape(*values.shape[:first], -1, *values.shape[last + 1 :]))


def _squeezed(call: Call) -> np.ndarray:
    values, axes = x_of(call), call.get("dim", None)
    chosen = range(values.ndim) if axes is None else [axes] if isinstance(axes, int) else axes
    gone = tuple(a % values.ndim for a in chosen if values.shape[a] == 1)
    return np.asarray(np.squeeze(values, gone))


def _swapped(call: Call) -> np.ndarray:
    return np.asarray(np.swapaxes(x_of(call), call.get("dim0", 0), call.get("dim1", 1)))


SHAPES: dict[str, Rule] = {  # the same numbers, seen otherwise
    **dict.fromkeys(("view", "_unsafe_view", "reshape"), lambda call: x_of(call).reshape(sizes(call))),
    "unsqueeze": lambda call: np.expand_dims(x_of(call), int(call.args["dim"])),
    "squeeze": _squeezed,
    "flatten": _flat,
    **dict.fromkeys(("expand", "broadcast_to"), lambda call: _expanded(x_of(call), sizes(call))),
    "slice": _part,
    "select": lambda call: np.moveaxis(x_of(call), int(call.args["dim"]), 0)[int(call.args["index"])],
    "clone": lambda call: np.array(x_of(call)),
    "permute": lambda call: x_of(call).transpose([int(d) for d in call.args["dims"]]),
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
    return np.asarray(x_of(call)) if same else _of_type(call, x_of(call))


def _counted(call: Call) -> np.ndarray:
    ends = [call.get("start", 0), call.args["end"], call.get("step", 1)]
    whole = all(isinstance(e, int) for e in ends)
    return _of_type(call, np.arange(*ends), np.int64 if whole else np.float32)


def _spread(call: Call) -> np.ndarray:
    return _of_type(call, np.linspace(call.args["start"], call.args["end"], int(call.args["steps"])))


def _listed(call: Call) -> list[Any]:
    return [array(value) for value in call.args.get("tensors", [])]


def _table(call: Call) -> np.ndarray:
    """x[indices], of whole numbers along the first axes."""
    indices = [slice(None) if i is None else np.asarray(array(i)) for i in call.args["indices"]]
    return np.asarray(x_of(call)[tuple(indices)])


def _grid(call: Call) -> list[np.ndarray]:
    return list(np.meshgrid(*_listed(call), indexing=call.get("indexing", "ij")))


def _linear(call: Call) -> np.ndarray:
    x, w, bias = (array(call.args.get(name)) for name in ("input", "weight", "bias"))
    return np.asarray(x @ w.T + (0 if bias is None else bias))


def _product(call: Call) -> Any:
    return x_of(call) @ array(call.args.get("other", call.args.get("mat2")))


def _bounded(call: Call) -> np.ndarray:
    return np.asarray(np.clip(x_of(call), call.get("min", None), call.get("max", None)))


def _convolved(call: Call) -> np.ndarray:
    """By a kernel of one pixel, which is all that positions are taken through."""
    x, w, bias = (array(call.args.get(name)) for name in ("input", "weight", "bias"))
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
        return np.asarray(function(x_of(call), axis=axes or None if axes == () else axes,
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
    "zeros_like": lambda call: np.zeros(dims_of(call), _type(call)),
    "ones_like": lambda call: np.ones(dims_of(call), _type(call)),
    "full_like": lambda call: np.full(dims_of(call), call.args["fill_value"], _type(call)),
}


def _cut(call: Call) -> list[np.ndarray]:
    """chunk and split, as PyTorch counts their parts."""
    axis, given = int(call.get("dim", 0)), call.get("split_size", None) or call.get("split_sizes", None)
    size = x_of(call).shape[axis]
    each = -(-size // int(call.args["chunks"])) if given is None else given
    ends = np.cumsum(each)[:-1] if isinstance(each, list) else np.arange(int(each), size, int(each))
    return np.split(x_of(call), ends, axis)


PRODUCTS, KERNELS = ("matmul", "mm", "bmm"), ("conv2d", "conv1d")
OTHERS: dict[str, Rule] = {
    **dict.fromkeys(("chunk", "split", "split_with_sizes"), _cut),
    "cat": lambda call: np.concatenate(_listed(call), int(call.get("dim", 0))),
    "stack": lambda call: np.stack(_listed(call), int(call.get("dim", 0))),
    "repeat": lambda call: np.tile(x_of(call), sizes(call)),
    "index": _table,
    "index_select": lambda call: np.take(x_of(call), array(call.args["index"]), int(call.args["dim"])),
    "embedding": lambda call: np.take(array(call.args["weight"]), array(call.args["indices"]), 0),
    "meshgrid": _grid,
    "cumsum": lambda call: np.cumsum(x_of(call), int(call.args["dim"])),
    **dict.fromkeys(("clamp", "clip", "clamp_min"), _bounded),
    "flip": lambda call: np.flip(x_of(call), call.args["dims"]).copy(),
    "roll": lambda call: np.roll(x_of(call), call.args["shifts"], call.args.get("dims") or None),
    **dict.fromkeys(("outer", "ger"), lambda call: np.outer(x_of(call), array(call.args.get("vec2")))),
    **dict.fromkeys(PRODUCTS, _product),
    "where": lambda call: np.where(array(call.args["condition"]), x_of(call), array(call.args["other"])),
    "masked_fill": lambda call: np.where(array(call.args["mask"]), array(call.args["value"]), x_of(call)),
    "copy": lambda call: np.array(np.broadcast_to(array(call.args["src"]), x_of(call).shape)),
    "fill": lambda call: np.full_like(x_of(call), array(call.args["value"])),
    "linear": _linear,
    **dict.fromkeys(KERNELS, _convolved),
    "sum": _over(np.sum), "mean": _over(np.mean), "amax": _over(np.max), "amin": _over(np.min),
    **dict.fromkeys(("std", "var"), _deviation),
    **reparametrized.RULES,
}  # fmt: skip


def _type(call: Call) -> Any:
    return DTYPES.get(call.args.get("dtype", FLOAT), np.float32)


def dims_of(call: Call) -> tuple[int, ...]:
    """The shape of what a call begins with, an activation too."""
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


def new_sides(call: Call) -> list[int]:
    """Height and width that a map of constants gets."""
    given, sides = call.get("output_size", None), x_of(call).shape[2:]
    if given is None:
        given = [int(s * f) for s, f in zip(sides, factors_of(call), strict=True) if f is not None]
    return [int(side) for side in given]


def _resized(call: Call) -> np.ndarray:
    mode, smooth = RESIZED[call.op]
    return resized.resized(
        x_of(call), new_sides(call), mode, bool(call.get("align_corners", False)), smooth, factors_of(call)
    )


def rule_of(call: Call) -> Rule:
    """What works a call out."""
    if call.op in SINGLE:
        return lambda given: SINGLE[given.op](x_of(given))
    if call.op in RESIZED:
        return _resized
    return next(rules[call.op] for rules in (MAKING, SHAPES, ARITHMETIC, OTHERS) if call.op in rules)


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
