"""Arithmetic on constants that exporters leave in an ONNX graph, mostly with shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from microtrain.convert.ir import ConvertError
from microtrain.convert.ops.functions import OF_ONE

from ..aten.constant_rules import pointwise
from ..aten.constants import MOST, MOST_PRODUCTS
from ..aten.resized import count, resized
from .file import DTYPES, Step

Array = np.ndarray | None


def _axes(step: Step, arrays: Sequence[Array]) -> tuple[int, ...]:
    given = arrays[1] if len(arrays) > 1 else None
    return tuple(int(a) for a in np.ravel(step.attributes.get("axes", []) if given is None else given))


def constant_of(step: Step) -> np.ndarray | None:
    """What a step Constant makes; None where it says no number."""
    for name in ("value", "value_float", "value_int", "value_floats", "value_ints"):
        if step.attributes.get(name) is not None:
            return np.asarray(step.attributes[name])
    return None


def shape_of(step: Step, dims: Sequence[int]) -> np.ndarray:
    """What a step Shape makes of a tensor of these dimensions: of those from `start` to `end`, or of all."""
    return np.array(dims[step.attributes.get("start") : step.attributes.get("end")], np.int64)


def _constant(step: Step, arrays: Sequence[Array]) -> np.ndarray:
    found = constant_of(step)
    if found is not None:
        return found
    raise ConvertError(
        f"layer {step.name}: a constant of texts or in a sparse form is not supported; write its "
        "numbers, as value"
    )


def _filled(step: Step, arrays: Sequence[Array]) -> np.ndarray:
    shape = tuple(int(d) for d in np.ravel(_all(step, arrays)[0]))
    fill = np.ravel(step.attributes.get("value", np.zeros(1, np.float32)))
    if any(d < 0 for d in shape) or int(np.prod(shape, dtype=object)) > MOST or not len(fill):
        raise ConvertError(f"layer {step.name}: a constant of shape {list(shape)} is more than fits")
    return np.full(shape, fill[0])


def _slice(step: Step, arrays: Sequence[Array]) -> np.ndarray:
    x, starts, ends = _all(step, arrays[:3])
    axes, steps = (*arrays[3:], None, None)[:2]
    axes = np.arange(starts.size) if axes is None else np.ravel(axes)
    steps = np.ones(starts.size, int) if steps is None else np.ravel(steps)
    index = [slice(None)] * x.ndim
    for axis, start, end, each in zip(axes, np.ravel(starts), np.ravel(ends), steps, strict=True):
        behind = int(end) if each > 0 or end >= -x.shape[int(axis)] else None  # before the first
        index[int(axis)] = slice(int(start), behind, int(each))
    return np.asarray(x[tuple(index)])


def _all(step: Step, arrays: Sequence[Array]) -> list[np.ndarray]:
    found = [a for a in arrays if a is not None]
    if len(found) < max(1, len(arrays) - 1):
        raise ConvertError(f"layer {step.name}: {step.op} lacks an input")
    return found


def _cast(step: Step, arrays: Sequence[Array]) -> np.ndarray:
    dtype = DTYPES.get(int(step.attributes.get("to") or 0))
    if dtype is None:
        raise ConvertError(f"layer {step.name}: a cast to a type that is not supported; use float32")
    return _all(step, arrays)[0].astype(dtype)


def _reshape(step: Step, arrays: Sequence[Array]) -> np.ndarray:
    x, shape = _all(step, arrays)
    kept = dict(enumerate(x.shape)) if not step.attributes.get("allowzero") else {}
    return x.reshape([kept.get(i, 0) if d == 0 else int(d) for i, d in enumerate(np.ravel(shape))])


def _expanded(arrays: Sequence[np.ndarray]) -> np.ndarray:
    x, shape = arrays
    wanted = np.broadcast_shapes(x.shape, tuple(int(d) for d in np.ravel(shape)))
    if int(np.prod(wanted, dtype=object)) > MOST:
        raise ConvertError(f"a constant of shape {list(wanted)} is more than fits")
    return np.broadcast_to(x, wanted)


def _range(step: Step, arrays: Sequence[Array]) -> np.ndarray:
    start, limit, delta = (np.ravel(a)[0] for a in _all(step, arrays))
    _bounded(step, float(limit - start) / float(delta or 1))
    return np.asarray(np.arange(start, limit, delta, dtype=_all(step, arrays)[0].dtype))


def _tile(step: Step, arrays: Sequence[Array]) -> np.ndarray:
    x, repeats = _all(step, arrays)
    _bounded(step, x.size * math.prod(map(float, np.ravel(repeats))))
    return np.tile(x, [int(n) for n in np.ravel(repeats)])


def _product(step: Step, arrays: Sequence[Array]) -> np.ndarray:
    a, b = _all(step, arrays)
    _bounded(step, a.size * b.size * MOST / MOST_PRODUCTS)
    return np.asarray(a @ b)


def _conv(step: Step, arrays: Sequence[Array]) -> np.ndarray:
    """By a kernel of one pixel, which is all that positions are taken through."""
    x, w, *bias = arrays
    whole = {1, *step.attributes.get("strides", [1]), *step.attributes.get("dilations", [1])}
    padded = any(step.attributes.get("pads", [0])) or step.attributes.get("group", 1) != 1
    if x is None or w is None or set(w.shape[2:]) != {1} or whole != {1} or padded:
        raise ConvertError(
            f"layer {step.name}: Conv of constants by a kernel larger than a pixel is not supported; store "
            "its result in the model"
        )
    _bounded(step, x.size * w.size * MOST / MOST_PRODUCTS)
    return pointwise(x, w, bias[0] if bias else None)


def _resize(step: Step, arrays: Sequence[Array]) -> np.ndarray:
    """As PyTorch writes it."""
    x, scales, sizes = (*arrays, None, None)[0], (*arrays, None)[2], (*arrays, None, None)[3]
    assert x is not None
    ways = {"half_pixel": False, "pytorch_half_pixel": False, "align_corners": True, "asymmetric": False}
    way = step.attributes.get("coordinate_transformation_mode", "half_pixel")
    mode = step.attributes.get("mode", "nearest")
    nearest = mode == "nearest"
    if way not in ways or (way == "asymmetric") != nearest or step.attributes.get("exclude_outside"):
        raise ConvertError(
            f"layer {step.name}: Resize of constants in the mode {mode}, {way}, is not supported; store its "
            "result in the model"
        )
    factors = [None] * (x.ndim - 2) if scales is None or not scales.size else np.ravel(scales)[2:].tolist()
    new = [int(np.float32(n) * np.float32(f or 1)) for n, f in zip(x.shape[2:], factors, strict=True)]
    new = new if sizes is None else [int(n) for n in np.ravel(sizes)[2:]]
    _bounded(step, count(x.shape, new, MOST / MOST_PRODUCTS))
    smooth = bool(step.attributes.get("antialias"))
    return resized(x, new, mode, ways[way], smooth, factors if sizes is None else ())


def _over(function: Callable[..., np.ndarray]) -> Callable[[Step, Sequence[Array]], np.ndarray]:
    """A sum and its kin, over some axes or over all."""

    def run(step: Step, arrays: Sequence[Array]) -> np.ndarray:
        axes, keep = _axes(step, arrays) or None, bool(step.attributes.get("keepdims", 1))
        if axes is None and step.attributes.get("noop_with_empty_axes"):
            axes = ()
        return np.asarray(function(_all(step, arrays)[0], axis=axes, keepdims=keep))

    return run


def _each(function: Callable[..., np.ndarray]) -> Callable[[Step, Sequence[Array]], np.ndarray]:
    """Of one or two arrays, number by number."""
    return lambda step, arrays: np.asarray(function(*_all(step, arrays)))


def _gemm(step: Step, arrays: Sequence[Array]) -> np.ndarray:
    """A linear layer, alpha * a @ b + beta * c, where a and b may be turned."""
    (a, b), c, about = arrays[:2], arrays[2] if len(arrays) > 2 else None, step.attributes
    assert a is not None and b is not None
    a, b = a.T if about.get("transA") else a, b.T if about.get("transB") else b
    _bounded(step, float(len(a)) * b.size * MOST / MOST_PRODUCTS)
    made = about.get("alpha", 1.0) * (a @ b)
    return np.asarray(made if c is None else made + about.get("beta", 1.0) * c, np.float32)


def _normed(step: Step, arrays: Sequence[Array]) -> np.ndarray:
    """A batch norm; in training mode, by the mean and variance of what it reads (standardised weights)."""
    x, scale, shift, mean, var = _all(step, arrays)
    over = tuple(axis for axis in range(x.ndim) if axis != 1)
    if step.attributes.get("training_mode"):
        mean, var = x.mean(over), x.var(over)
    each = [v.reshape(-1, *[1] * (x.ndim - 2)) for v in (scale, shift, mean, var)]
    eps = step.attributes.get("epsilon", 1e-5)
    return np.asarray((x - each[2]) / np.sqrt(each[3] + eps) * each[0] + each[1], np.float32)


def _clip(step: Step, arrays: Sequence[Array]) -> np.ndarray:
    x, least, most = (*arrays, None, None)[:3]
    assert x is not None
    return np.asarray(np.clip(x, least, most))


EACH: dict[str, Callable[..., np.ndarray]] = {
    **{name.capitalize(): function for name, function in OF_ONE.items()},
    "Exp": np.exp, "Log": np.log, "Abs": np.abs, "Neg": np.negative, "Reciprocal": np.reciprocal,
    "Relu": lambda x: np.maximum(x, 0),
    "Not": np.logical_not, "Sqrt": np.sqrt, "Pow": np.power,
    "And": np.logical_and, "Or": np.logical_or, "Less": np.less, "LessOrEqual": np.less_equal,
    "Greater": np.greater, "GreaterOrEqual": np.greater_equal, "Equal": np.equal,
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Where": np.where,
    "Min": lambda *arrays: reduce(np.minimum, arrays), "Max": lambda *arrays: reduce(np.maximum, arrays),
    "Sum": lambda *arrays: reduce(np.add, arrays),
}  # fmt: skip
FOLDS: dict[str, Callable[[Step, Sequence[Array]], np.ndarray]] = {
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "Shape": lambda step, arrays: shape_of(step, _all(step, arrays)[0].shape),
    "Gather": lambda step, arrays: np.take(
        _all(step, arrays)[0], _all(step, arrays)[1].astype(np.int64), axis=step.attributes.get("axis") or 0
    ),
    "GatherND": lambda step, arrays: _gathered(step, *_all(step, arrays)),
    "Unsqueeze": lambda step, arrays: np.expand_dims(_all(step, arrays)[0], _axes(step, arrays)),
    "Squeeze": lambda step, arrays: np.squeeze(_all(step, arrays)[0], _axes(step, arrays) or None),
    "Concat": lambda step, arrays: np.concatenate(_all(step, arrays), axis=step.attributes.get("axis") or 0),
    "Slice": _slice,
    "Cast": _cast,
    "CastLike": lambda step, arrays: _all(step, arrays)[0].astype(_all(step, arrays)[1].dtype),
    "Reshape": _reshape,
    "Transpose": lambda step, arrays: _all(step, arrays)[0].transpose(step.attributes.get("perm")),
    "Identity": lambda step, arrays: _all(step, arrays)[0].copy(),
    "Expand": lambda step, arrays: _expanded(_all(step, arrays)),
    **{op: _each(function) for op, function in EACH.items()},
    "Range": _range,
    "Tile": _tile,
    "MatMul": _product,
    "Gemm": _gemm,
    "Conv": _conv,
    "Resize": _resize,
    "Clip": _clip,
    "BatchNormalization": _normed,
    "CumSum": lambda step, arrays: _summed(step, *_all(step, arrays)),
    "Mod": lambda step, arrays: (np.fmod if step.attributes.get("fmod") else np.mod)(*_all(step, arrays)),
    "Flatten": lambda step, arrays: _flat(_all(step, arrays)[0], step.attributes.get("axis", 1)),
    "ReduceMean": _over(np.mean),
    "ReduceSum": _over(np.sum),
    "ReduceMax": _over(np.max),
    "ReduceMin": _over(np.min),
    "Div": lambda step, arrays: _quotient(*_all(step, arrays)),
    "ReduceProd": _over(np.prod),
    "ReduceL1": _over(lambda x, **about: np.abs(x).sum(**about)),
    "ReduceL2": _over(lambda x, **about: np.sqrt(np.square(x).sum(**about))),
    "ReduceSumSquare": _over(lambda x, **about: np.square(x).sum(**about)),
}


def _gathered(step: Step, x: np.ndarray, places: np.ndarray) -> np.ndarray:
    """GatherND; of a list of places along one axis, along the one that `onnx_places` has found."""
    axis, of_one = step.attributes.get("axis", 0), places.ndim == 2 and places.shape[1] == 1
    if step.attributes.get("batch_dims") or (axis and not of_one):
        raise ConvertError(
            f"layer {step.name}: GatherND of constants in batches is not supported; store its result in the "
            "model"
        )
    _bounded(step, float(math.prod(places.shape[:-1])) * math.prod(x.shape) / max(x.shape[axis], 1))
    return np.asarray(np.take(x, places[:, 0], axis) if of_one else x[tuple(np.moveaxis(places, -1, 0))])


def _summed(step: Step, x: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """CumSum: sums of all before, each with its own or without; from the end where it is reversed."""
    at, back = int(np.ravel(axis)[0]), bool(step.attributes.get("reverse"))
    turned = np.flip(x, at) if back else x
    made = np.cumsum(turned, at, dtype=x.dtype) - (turned if step.attributes.get("exclusive") else 0)
    return np.asarray(np.flip(made, at) if back else made, x.dtype)


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of whole numbers without its fraction, toward 0."""
    return np.asarray((a - np.fmod(a, b)) // b if a.dtype.kind in "iu" else np.divide(a, b))


def _flat(x: np.ndarray, axis: int) -> np.ndarray:
    axis += x.ndim if axis < 0 else 0
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _bounded(step: Step, numbers: float) -> None:
    if numbers > MOST:
        raise ConvertError(f"layer {step.name}: a constant of {numbers:,.0f} numbers is more than fits")


def folded(step: Step, arrays: Sequence[Array]) -> np.ndarray:
    """What a step makes of constants; inputs that were left out are None."""
    shapes = [a.shape for a in arrays if a is not None]
    if step.op in EACH or step.op in ("Div", "Mod"):
        _bounded(step, float(math.prod(np.broadcast_shapes(*shapes))))
    with np.errstate(all="ignore"):
        return np.asarray(FOLDS[step.op](step, arrays))
