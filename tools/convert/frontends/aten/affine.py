"""Arithmetic of an activation and constants: of the image it normalises.

`(x - mean) / std` in forward(), with numbers, parameters or buffers, becomes a raw op `bn` on the input, as
does a batch norm there: y = x * factor + shift a channel. `fold.py` takes it into the graph's input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.lowering import Lowering

Numbers = np.ndarray | float


def scaled(call: Call, values: Any) -> Any:
    """What PyTorch's add and sub take of their second operand: alpha times it."""
    return values * call.get("alpha", 1)


ARITHMETIC: dict[str, Callable[[Call, Any, Any], Any]] = {
    "add": lambda call, a, b: a + scaled(call, b),
    "sub": lambda call, a, b: a - scaled(call, b),
    "rsub": lambda call, a, b: b - scaled(call, a),
    "mul": lambda call, a, b: a * b,
    **dict.fromkeys(("div", "true_divide"), lambda call, a, b: a / b),
    "neg": lambda call, a, b: -a,
}


def normalises(low: Lowering, call: Call) -> bool:
    """Whether a call scales or shifts an activation by a constant: the image, or what a layer has made."""
    sides = (call.x, call.args.get("other"))
    images = [side for side in sides if isinstance(side, Act)]
    if _name(call) not in ARITHMETIC or len(images) != 1 or call.args.get("rounding_mode") is not None:
        return False
    constants = [side for side in sides if side is not None and not isinstance(side, Act)]
    whole = all(isinstance(side, Param | int | float) for side in constants)
    whole = whole and (bool(constants) or _name(call) == "neg")
    return low.is_input(images[0]) or whole


def normalise(low: Lowering, call: Call) -> Act:
    """The activation behind such a call: a raw op `bn` with a factor and a shift a channel.

    Any of these ops is affine in x, so its values at 0 and 1 tell both; a constant divided by x is refused.
    """
    first, other = call.x, call.args.get("other")
    given = low.activation(call, first if isinstance(first, Act) else other)
    deep = _as_image(low, call, given)
    if deep is not None:
        return replace(normalise(low, deep), dims=given.dims)
    constant = other if isinstance(first, Act) else first
    single = not isinstance(constant, Param) or constant.value.size == 1
    vector = len(given.dims) == 2 and given.dims[0] == low.batch
    image = given if single or vector else low.image(call, given)
    if not isinstance(first, Act) and _name(call) in ("div", "true_divide"):
        raise call.error("a constant divided by the image is not supported; divide the image by a constant")
    channels = low.shape(image)[2]

    def at(x: float) -> np.ndarray:
        sides = (
            np.float64(x) if isinstance(v, Act) else _channelwise(call, v, channels, len(image.dims))
            for v in (first, other)
        )
        return np.broadcast_to(ARITHMETIC[_name(call)](call, *sides), (channels,)).astype(np.float64)

    with np.errstate(all="ignore"):
        shift, factor = at(0.0), at(1.0) - at(0.0)
    if not (np.isfinite(shift).all() and np.isfinite(factor).all()):
        raise call.error("multiplies by what is no number, as behind a division by 0; std must be above 0")
    if not isinstance(constant, Param) and not shift.any() and (factor == 1.0).all():
        return given  # as sum() begins with 0
    source = ""
    if isinstance(constant, Param) and constant.value.size == channels and _name(call) in ("add", "mul"):
        source = constant.name  # what is learned is what stands there
    return low.scaled(call, image, factor, shift, source)


def _as_image(low: Lowering, call: Call, given: Act) -> Call | None:
    """A call on an image whose pixels have three axes, as one on that image; None where it is none.

    As exporters write the scale and shift of a group norm of volumes: constants of shape [c, 1, 1, 1].
    """
    h, w, c = low.shape(given)
    if len(given.dims) != 5 or given.dims[:2] != (low.batch, c) or given.order is not None or given.pad:
        return None

    def flat(value: Any) -> Any:
        if isinstance(value, Act):
            return replace(value, dims=(low.batch, c, h, w))
        deep = isinstance(value, Param) and value.value.shape in ((c, 1, 1, 1), (1, c, 1, 1, 1))
        return replace(value, value=value.value.reshape(c, 1, 1)) if deep else value

    return replace(call, args={key: flat(value) for key, value in call.args.items()})


def _channelwise(call: Call, value: Any, channels: int, rank: int) -> Numbers:
    """A constant as one number, or one a channel: of an image [(1,) c, 1, 1], of a series [(1,) c, 1]."""
    if value is None or isinstance(value, int | float):
        return 0.0 if value is None else float(value)
    values = np.asarray(value.value, np.float64)
    if values.size == 1:
        return float(values.reshape(()))
    shape = (1,) * (4 - values.ndim) + values.shape
    flat = rank == 2 and values.shape in ((channels,), (1, channels))
    series = rank == 3 and values.shape in ((channels, 1), (1, channels, 1))
    if not flat and not series and shape != (1, channels, 1, 1):
        raise call.error(
            f"{value.name}, of shape {list(values.shape)}, scales or shifts it; it must be one number, or "
            f"one a channel, [{channels}, {'1' if rank == 3 else '1, 1'}]"
        )
    return values.reshape(channels)


def _name(call: Call) -> str:
    return call.op.rstrip("_") or call.op
