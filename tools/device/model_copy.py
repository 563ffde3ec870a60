"""Trained weights in a model again: a PyTorch state dict, or a copy of an ONNX or TFLite file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from microtrain.base.files import replacing
from microtrain.base.plan import OWN_HEAD, Plan, block_of
from microtrain.base.reading import reading
from microtrain.base.trained import PROTOTYPES, SCORES, Trained
from microtrain.convert.aten_call import Homes
from microtrain.convert.frontends.onnx.reader import onnx_homes
from microtrain.convert.frontends.onnx.trained import trained_onnx
from microtrain.convert.frontends.tflite.reader import tflite_homes
from microtrain.convert.frontends.tflite.trained import trained_tflite

from .errors import DeviceError
from .merging import State, bias_name, merge
from .weights import Arrays
from .whole import whole

Head = tuple[str, str] | None
Reader = Callable[[Path, tuple[int, ...]], Homes]  # of a file with an input (c, h, w)
Writer = Callable[[Path, Homes, Mapping[str, np.ndarray], Head], bytes]
KINDS: dict[str, tuple[Reader, Writer]] = {
    "onnx": (onnx_homes, trained_onnx),
    "tflite": (lambda path, shape: tflite_homes(path), trained_tflite),
}
CLOSE = 1e-5  # of a float that was written, beside the largest of its tensor


def save_model(kind: str, plan: Plan, arrays: Arrays, model: Path, out: Path) -> list[str]:
    """Write the model that was converted with the trained tensors in it; returns what to say of it.

    kind  of KINDS, or state_dict
    """
    plan, own = of_model(plan, model)
    if kind != "state_dict":
        refuse_modules(plan, model)
        return save_copy(kind, plan, arrays, model, out) + own
    from . import state_dict
    from .model_file import load_state, save_state

    merged, notes = state_dict.merge(plan, arrays, load_state(model))
    save_state(out, merged)
    return [f"{out}: {len(merged)} tensors", *notes, *own]


def refuse_modules(plan: Plan, model: Path) -> None:
    """DeviceError where modules learned that a copy of the model's file has no place for."""
    blocks = dict.fromkeys(block for t in plan.trainables.tensors if (block := block_of(t.layer)))
    if blocks:
        raise DeviceError(
            f"a copy of {model.name} has no place for the lite residual modules beside {', '.join(blocks)}: "
            "take the weights with -o, or with --state-dict if it is a model of PyTorch."
        )


def of_model(plan: Plan, model: Path) -> tuple[Plan, list[str]]:
    """The plan with the trained tensors that the model has a place for, and a remark on those left out.

    Errors   DeviceError where nothing else was trained
    """
    tensors = plan.trainables.tensors
    head = [t.name for t in tensors if t.layer == OWN_HEAD]
    scores = [t.name for t in tensors if t.kind == SCORES]
    prototypes = [t.name for t in tensors if t.kind in PROTOTYPES]
    kept = tuple(t for t in tensors if t.name not in (*head, *scores, *prototypes))
    own = [
        f"{' and '.join(names)}: only in the .npz of -o, as {model.name} has no place for {what}."
        for names, what in (
            (head, "the head that --until made"),
            (scores, "what scores are normal"),
            (prototypes, "prototypes of classes"),
        )
        if names
    ]
    if not kept:
        raise DeviceError(
            f"nothing of {model.name} was trained but the head; take it from -o. {' '.join(own)}"
        )
    return replace(plan, trainables=replace(plan.trainables, tensors=kept)), own


def save_copy(kind: str, plan: Plan, arrays: Arrays, model: Path, out: Path) -> list[str]:
    """Write a copy of the model's file with the trained tensors in it; returns what to say of it.

    kind     of KINDS
    Errors   DeviceError, ConvertError where it is another file, or one that cannot take them
    """
    if not model.is_file():
        raise DeviceError(f"no such file: {model}.")
    h, w, c = plan.input.shape
    read, write = KINDS[kind]
    with reading(
        DeviceError, lambda why: f"{model.name} cannot be read ({why}): give the --model that was converted."
    ):
        homes = read(model, (c, h, w))
        found, known = as_in_file(*whole(plan, arrays), homes)
        trained, notes = merge(found, known, {name: home.value for name, home in homes.items()})
        data = write(model, homes, trained, head_of(plan))
    with replacing(out) as part:
        part.write_bytes(data)
        check(read(part, (c, h, w)), homes, trained, head_of(plan))
    return [f"{out}: {len(trained)} trained tensors in a copy of {model.name}", *notes]


def head_of(plan: Plan) -> Head:
    """Names of the head's weights and biases in the model's file."""
    heads = [t for t in plan.trainables.tensors if t.kind == "head_weight"]
    return (heads[0].source.weight, bias_name(heads[0])) if heads else None


def as_in_file(plan: Plan, arrays: Arrays, homes: Homes) -> tuple[Plan, Arrays]:
    """The trained tensors in the units of the file, where that has integers and takes those of the device.

    Conversion may have counted the input in other units, and with it the first layers' weights, by a power of
    two. What a weight has between two integers is not used by the device to answer, and left out.
    """
    stored = {
        t.layer: t
        for t in plan.trainables.tensors
        if t.kind == "weight" and t.source.weight in homes and homes[t.source.weight].scale is not None
    }
    tensors = tuple(
        replace(t, scale=file_scale(t, homes)) if t.kind == "weight" and t.layer in stored else t
        for t in plan.trainables.tensors
        if not (t.kind == "fraction" and t.layer in stored)
    )
    return replace(plan, trainables=replace(plan.trainables, tensors=tensors)), arrays


def file_scale(t: Trained, homes: Homes) -> tuple[float, ...]:
    """Real value of a unit of trained weights in the file, by output channels as in the plan."""
    home = homes[t.source.weight]
    assert home.scale is not None and t.scale is not None
    own = np.broadcast_to(home.scale, (len(home.value),))
    if len(t.scale) != len(own):
        own = own[list(t.channels or ())]
    alive = [i for i in range(len(own)) if i not in t.dead]
    factor = np.log2(np.array(t.scale)[alive] / own[alive])
    if len(factor) and not np.allclose(factor, np.rint(factor[0]), atol=1e-4):
        raise DeviceError(
            f"{t.source.weight} has other scales in the file than on the device: give the --model that was "
            "converted."
        )
    return tuple(float(s) for s in own)


def check(written: Homes, homes: Homes, trained: State, head: Head) -> None:
    """DeviceError where a file that was written lacks a trained tensor: nothing is kept of it.

    Names do not count: of layers without one the file counts its operators, and some came in.
    """
    for name, value in trained.items():
        units = homes[name].units if name in homes and name not in (head or ()) else None
        apart = max(homes[name].apart if name in homes else 0.0, CLOSE)
        close = np.maximum(apart * np.abs(value).max(initial=0.0), 0.0 if units is None else 0.51 * units)
        like = [home.value for home in written.values() if home.value.shape == value.shape]
        if not any((np.abs(found - value) <= close).all() for found in like):
            raise DeviceError(
                f"{name} cannot be written into this file, as something else in it uses it: take the weights "
                "with -o."
            )
