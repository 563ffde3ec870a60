"""TFLite's ops that move numbers and compute none: views, padding, cuts, larger maps."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import ConvertError
from microtrain.convert.nearest import unsupported
from microtrain.convert.ops.aten import unflatten
from microtrain.convert.ops.aten.attention import Scores
from microtrain.convert.ops.aten.resample import ALIGNED, ASYMMETRIC, HALF_PIXEL, settled
from microtrain.convert.ops.aten.upsample import of_tflite

from ..aten.rules import lower
from .file import OF_ONE, Flatbuffer, Operator
from .tokens import in_order, reshaped, seen, turned
from .values import Walker, channels_first, held


def view(walk: Walker, op: Operator, name: str) -> Any:
    """Numbers stay in their order, NHWC, so only the shape is noted; an input is declared anew."""
    x, shape = walk.value(op.inputs[0]), walk.file.tensors[op.outputs[0]].shape
    if isinstance(x, Scores):
        return lower(walk.low, Call("reshape", name, True, {"self": x, "shape": shape}))
    if not isinstance(x, Act | Param):
        raise unsupported(Call(op.kind.lower(), name, True, {}))
    if not isinstance(x, Act):
        return Param(x.name, x.value.reshape(shape))
    if math.prod(shape) != math.prod(x.dims):
        raise ConvertError(
            f"layer {name}: {op.kind} of {list(x.dims)} has {list(shape)} in the file, whose batch is open; "
            f"{OF_ONE}"
        )
    if x.order is not None:
        return reshaped(walk, op, name, shape)
    if x.pad and (len(shape) < 3 or walk.low.shape(x)[:2] == (1, 1)):  # else a convolution takes the zeros
        x = settled(walk.low, Call(op.kind.lower(), name, False, {"self": x})).x
    own = walk.low.shape(x)
    row_first = len(shape) == 4 and shape[1] == 1 and own == (shape[2], 1, shape[3])
    plain = walk.low.is_input(x) and not x.pad and shape[:1] == (walk.low.batch,)
    if plain and len(shape) in (3, 4) and not row_first and (made := walk.declared(x, channels_first(shape))):
        return made
    a_row = shape[-1] == 1 == math.prod(shape[1:-2])  # of one channel: a convolution goes over the channels
    many = len(shape) in (3, 4) and max(shape[1:-1]) > 1
    if own[:2] == (1, 1) and many and not a_row and not walk.low.is_input(x):
        row = len(shape) == 4 and shape[1] == 1  # which the IR has as a column
        sizes = (shape[2], 1, shape[3]) if row else (shape[1], shape[2] if len(shape) == 4 else 1, shape[-1])
        x = unflatten.of_vector(walk.low, Call(op.kind.lower(), name, True, {}), x, sizes)
    natural = len(shape) < 3 or shape[-1] == walk.low.shape(x)[2] or x.pad
    return replace(x, dims=channels_first(shape)) if natural else reshaped(walk, op, name, shape)


def pad(walk: Walker, op: Operator, name: str) -> Any:
    """Zeros around an image, which a convolution behind it takes as its padding; what no maximum takes, for
    a pooling behind it; or mirrored pixels."""
    x, widths = walk.value(op.inputs[0]), walk.value(op.inputs[1])
    rank = len(walk.file.tensors[op.inputs[0]].shape)
    if not isinstance(x, Act) or not isinstance(widths, Param) or widths.value.shape != (rank, 2):
        raise ConvertError(f"layer {name}: only constant padding of an image or a series is supported")
    sides = widths.value.astype(int).tolist()
    if any(sides[0]) or rank not in (3, 4):
        raise ConvertError(
            f"layer {name}: only padding above, below and beside an image, before and behind a series, or "
            "around the channels, is supported"
        )
    inner = sides[-2:0:-1]
    if rank == 4 and x.order is None:
        x, turned_round = walk.image(op, name)  # one row of pixels is a column here
        inner = sides[1:-1] if turned_round else inner
        one_row(op, name, turned_round and any(sides[1]))
    pads = [width for side in (*inner, sides[-1]) for width in side]
    mode = ("reflect", "symmetric")[op.options["Mode"]] if op.kind == "MIRROR_PAD" else "constant"
    value = _padded_with(walk, op, name) if op.kind == "PADV2" else 0.0
    return lower(walk.low, Call("pad", name, True, {"self": x, "pad": pads, "mode": mode, "value": value}))


def one_row(op: Operator, name: str, grows: bool) -> None:
    """ConvertError where a map of one row, which is a column here, gets more of them."""
    if grows:
        raise ConvertError(
            f"layer {name}: {op.kind} adds rows to a map of one row; the nearest that is supported: more "
            "columns, before, behind or between those that there are"
        )


def _padded_with(walk: Walker, op: Operator, name: str) -> float:
    """The number that PADV2 puts there; the least of a quantized file is what no maximum takes."""
    given, stored = walk.value(op.inputs[2]), walk.file.tensors[op.inputs[2]]
    if not isinstance(given, Param) or given.value.size != 1 or stored.data is None:
        raise ConvertError(f"layer {name}: what {op.kind} puts there must be a constant, one number")
    least = {np.dtype(np.int8): -128, np.dtype(np.int16): -32767}.get(stored.data.dtype)  # int16: symmetric
    if stored.quantized is not None and least is not None and stored.data.flat[0] <= least:
        return -math.inf
    return float(given.value.flat[0])


def resize(walk: Walker, op: Operator, name: str) -> Any:
    """Lines between pixels, or nearest neighbours."""
    x, turned = walk.image(op, name)
    size, aligned = walk.value(op.inputs[1]), bool(op.options.get("AlignCorners"))
    way = ALIGNED if aligned else HALF_PIXEL if op.options.get("HalfPixelCenters") else ASYMMETRIC
    if not isinstance(size, Param):
        raise unsupported(Call(op.kind.lower(), name, True, {}))
    sides = [int(side) for side in np.ravel(size.value)]
    one_row(op, name, turned and sides[0] > 1)
    args = {"self": x, "output_size": sides[::-1] if turned else sides}
    if op.kind.endswith("NEIGHBOR"):
        args["places"] = of_tflite(way)
        return lower(walk.low, Call("upsample_nearest2d", name, True, args))
    args |= {"way": way, "in_1024ths": walk.file.tensors[op.inputs[0]].dtype in ("i1", "u1")}
    return lower(walk.low, Call("upsample_bilinear2d", name, True, args))


def tile(walk: Walker, op: Operator, name: str) -> Any:
    """What stands several times behind itself; of UpSampling (Keras) rows or columns stand side by side."""
    x, times = walk.straight(op, name, walk.value(op.inputs[0])), walk.value(op.inputs[1])
    shape, made = (walk.file.tensors[t].shape for t in (op.inputs[0], op.outputs[0]))
    many = [int(n) for n in np.ravel(times.value)] if isinstance(times, Param) else []
    axes = [axis for axis, n in enumerate(many) if n != 1]
    if isinstance(x, Act) and x.order is None and len(axes) == 1 and shape[axes[0]] == 1:
        h, w, c = walk.low.shape(x)
        before, n = math.prod(shape[: axes[0]]), many[axes[0]]
        size = [h * n, w] if before == h else [h, w * n]
        if before in (h, h * w) and math.prod(shape) == h * w * c:
            image = replace(x, dims=(walk.low.batch, c, h, w))
            args = {"self": image, "output_size": size, "places": of_tflite(ASYMMETRIC)}
            found = lower(walk.low, Call("upsample_nearest2d", name, True, args))
            return held(walk.low, found.tensor, np.arange(math.prod(made)).reshape(made))
    if not isinstance(x, Act) or any(shape[axis] == 1 for axis in axes):
        raise unsupported(Call("tile", name, True, {}))
    if x.order is None and x.dims == channels_first(shape):
        return walk.call("repeat", op, name, repeats=list(channels_first(tuple(many))))
    return in_order(walk, "repeat", name, self=seen(walk, op, name), repeats=many)


def broadcast(walk: Walker, op: Operator, name: str) -> Any:
    """What stands many times is noted, for the product or the sum that reads it."""
    shape = channels_first(walk.file.tensors[op.outputs[0]].shape)
    return walk.call("expand", op, name, size=list(shape))


def blocks(walk: Walker, op: Operator, name: str) -> Any:
    """Channels that become blocks of pixels, and blocks that become channels."""
    word, size = (
        ("shuffle", "upscale_factor") if op.kind.startswith("DEPTH") else ("unshuffle", "downscale_factor")
    )
    x, turned = walk.image(op, name)
    if turned:
        raise ConvertError(
            f"layer {name}: {op.kind} of one row is not supported; the nearest that is: of a map"
        )
    args = {"self": x, "blocks_first": True, size: int(op.options["BlockSize"])}
    return lower(walk.low, Call(f"pixel_{word}", name, True, args))


def _alone(file: Flatbuffer, tensor: int) -> bool:
    """Whether what is made of the input up to a tensor, and that itself, has one reader each."""
    readers, at = file.readers(), file.inputs[0]
    for _ in file.operators:
        found = readers.get(at, [])
        if at == tensor or len(found) != 1:
            return len(found) == 1
        at = file.operators[found[0]].outputs[0]
    return False


def transpose(walk: Walker, op: Operator, name: str) -> Any:
    """Only how a tensor is seen; an input in the order NCHW is declared anew as what it is turned into."""
    x, order = walk.value(op.inputs[0]), walk.value(op.inputs[1])
    shape = walk.file.tensors[op.outputs[0]].shape
    axes = [int(a) for a in np.ravel(order.value)] if isinstance(order, Param) else []
    if not isinstance(x, Act) or len(axes) != len(shape):
        raise ConvertError(f"layer {name}: the axes of {op.kind} must be constants")
    if axes == list(range(len(axes))):
        return x
    plain = walk.low.is_input(x) and x.order is None and not x.pad and _alone(walk.file, op.inputs[0])
    if plain and axes == [0, *range(2, len(axes)), 1] and (made := walk.declared(x, channels_first(shape))):
        return made
    return turned(walk, op, name, axes)
