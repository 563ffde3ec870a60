"""Arithmetic on constants that exporters leave in an ONNX graph, mostly with shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from microtrain.convert.ir import ConvertError

from .onnx_file import DTYPES, Step

MOST = 1 << 24  # numbers of a result
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


def _constant(step: Step, arrays: Sequence[Array]) -> np.ndarray:
    found = constant_of(step)
    if found is not None:
        return found
    raise ConvertError(f"layer {step.name}: a constant without a number")


def _filled(step: Step, arrays: Sequence[Array]) -> np.ndarray:
    shape = tuple(int(d) for d in np.ravel(_all(step, arrays)[0]))
    fill = np.ravel(step.attributes.get("value", np.zeros(1, np.float32)))
    if any(d < 0 for d in shape) or int(np.prod(shape, dtype=object)) > MOST or not len(fill):
        raise ConvertError(f"layer {step.name}: a constant of shape {list(shape)} is more than fits")
    return np.full(shape, fill[0])


def _slice(step: Step, arrays: Sequence[Array]) -> np.ndarray:
    x, starts, ends, *rest = _all(step, arrays)
    axes = np.ravel(rest[0]) if rest else range(len(np.ravel(starts)))
    steps = np.ravel(rest[1]) if len(rest) > 1 else [1] * len(np.ravel(starts))
    index = [slice(None)] * x.ndim
    for axis, start, end, each in zip(axes, np.ravel(starts), np.ravel(ends), steps, strict=True):
        index[int(axis)] = slice(int(start), int(end), int(each))
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
    return x.reshape([int(d) for d in np.ravel(shape)])


def _expanded(arrays: Sequence[np.ndarray]) -> np.ndarray:
    x, shape = arrays
    wanted = np.broadcast_shapes(x.shape, tuple(int(d) for d in np.ravel(shape)))
    if int(np.prod(wanted, dtype=object)) > MOST:
        raise ConvertError(f"a constant of shape {list(wanted)} is more than fits")
    return np.broadcast_to(x, wanted)


FOLDS: dict[str, Callable[[Step, Sequence[Array]], np.ndarray]] = {
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "Shape": lambda step, arrays: np.array(_all(step, arrays)[0].shape, np.int64),
    "Gather": lambda step, arrays: np.take(
        _all(step, arrays)[0], _all(step, arrays)[1].astype(np.int64), axis=step.attributes.get("axis") or 0
    ),
    "Unsqueeze": lambda step, arrays: np.expand_dims(_all(step, arrays)[0], _axes(step, arrays)),
    "Squeeze": lambda step, arrays: np.squeeze(_all(step, arrays)[0], _axes(step, arrays) or None),
    "Concat": lambda step, arrays: np.concatenate(_all(step, arrays), axis=step.attributes.get("axis") or 0),
    "Slice": _slice,
    "Cast": _cast,
    "Reshape": _reshape,
    "Transpose": lambda step, arrays: _all(step, arrays)[0].transpose(step.attributes.get("perm")),
    "Identity": lambda step, arrays: _all(step, arrays)[0].copy(),
    "Expand": lambda step, arrays: _expanded(_all(step, arrays)),
    "Equal": lambda step, arrays: np.equal(*_all(step, arrays)),
    "Where": lambda step, arrays: np.where(*_all(step, arrays)),
    "Mod": lambda step, arrays: np.mod(*_all(step, arrays)),
    "Add": lambda step, arrays: np.add(*_all(step, arrays)),
    "Sub": lambda step, arrays: np.subtract(*_all(step, arrays)),
    "Mul": lambda step, arrays: np.multiply(*_all(step, arrays)),
    "Div": lambda step, arrays: (
        np.floor_divide(*_all(step, arrays))
        if _all(step, arrays)[0].dtype.kind in "iu"
        else np.divide(*_all(step, arrays))
    ),
    "ReduceProd": lambda step, arrays: np.prod(
        _all(step, arrays)[0], axis=_axes(step, arrays), keepdims=bool(step.attributes.get("keepdims", 1))
    ),
    "Sqrt": lambda step, arrays: np.sqrt(_all(step, arrays)[0]),
}


def folded(step: Step, arrays: Sequence[Array]) -> np.ndarray:
    """What a step makes of constants; inputs that were left out are None."""
    sizes = [a.shape for a in arrays if a is not None]
    largest = (
        int(np.prod(np.broadcast_shapes(*sizes), dtype=object))
        if step.op in ("Add", "Sub", "Mul", "Div", "Equal", "Where", "Mod")
        else 0
    )
    if largest > MOST:
        raise ConvertError(f"layer {step.name}: a constant of {largest:,} numbers is more than fits")
    with np.errstate(all="ignore"):
        return np.asarray(FOLDS[step.op](step, arrays))
