"""Dilated convolutions that TFLite's converter cut into batches, where the batch of the model is open.

Every d-th row or column becomes a batch of its own (SPACE_TO_BATCH_ND), a convolution without a dilation goes
over these, and they are woven together again. Here it is one convolution with that dilation: operators keep
their places, since layers are called after them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .file import Flatbuffer, Operator, Stored

APART, TOGETHER = "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"
VIEW = "RESHAPE"
VIEWS = ("EXPAND_DIMS", VIEW, "SQUEEZE")
CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")
DILATIONS = ("DilationHFactor", "DilationWFactor")
PLAIN = {"Padding": 1, "StrideH": 1, "StrideW": 1, **dict.fromkeys(DILATIONS, 1)}


@dataclass(frozen=True, eq=False)
class Dilated:
    """One of these convolutions. steps: its operators, first to last; pads: before and behind, by axis"""

    steps: tuple[int, ...]
    block: tuple[int, ...]
    pads: np.ndarray


def woven(file: Flatbuffer) -> Flatbuffer:
    """The file with a dilation in each of these convolutions; others stay as they are."""
    readers, tensors, operators = file.readers(), list(file.tensors), list(file.operators)
    for place, op in enumerate(file.operators):
        found = _dilated(file, _chain(file, place, readers)) if op.kind == APART else None
        if found is not None:
            _rewrite(tensors, operators, found)
    return replace(file, tensors=tuple(tensors), operators=tuple(operators))


def _chain(file: Flatbuffer, place: int, readers: dict[int, list[int]]) -> list[int]:
    """The operators from where rows come apart to where they are together again; none where others read."""
    found = [place]
    while file.operators[found[-1]].kind != TOGETHER:
        out = file.operators[found[-1]].outputs[0]
        later = readers.get(out, [])
        if len(later) != 1 or later[0] <= found[-1] or out in file.outputs:
            return []
        found += later
    return found


def _dilated(file: Flatbuffer, steps: list[int]) -> Dilated | None:
    """What a chain of operators is; None where it is no such convolution."""
    middle = [file.operators[i] for i in steps[1:-1]]
    convolutions = [op for op in middle if op.kind in CONVOLUTIONS]
    alike = all(op.options.get(key) == value for op in convolutions for key, value in PLAIN.items())
    if len(convolutions) != 1 or not alike or any(op.kind not in (*VIEWS, *CONVOLUTIONS) for op in middle):
        return None
    numbers = [file.tensors[t].data for i in (steps[0], steps[-1]) for t in file.operators[i].inputs[1:3]]
    known = [each for each in numbers if each is not None]
    if len(known) != 4 or not np.array_equal(known[0], known[2]) or np.any(known[1] < known[3]):
        return None
    return Dilated(tuple(steps), tuple(int(n) for n in known[0].ravel()), known[1] - known[3])


def _rewrite(tensors: list[Stored], operators: list[Operator], found: Dilated) -> None:
    """A padding, the convolution with its dilation, and a view of what it makes.

    Biases that are all 0 are left out: the model's own are added behind, once all is together.
    """
    first, last = (operators[found.steps[i]] for i in (0, -1))
    none = np.zeros((1, 2), np.int32)
    sides = np.concatenate([none, found.pads.astype(np.int32), none])
    tensors.append(Stored("padding", sides.shape, "<i4", sides, None))
    kind = "PAD" if sides.any() else VIEW
    operators[found.steps[0]] = replace(first, kind=kind, inputs=(first.inputs[0], len(tensors) - 1))
    operators[found.steps[-1]] = replace(last, kind=VIEW, inputs=last.inputs[:1])
    inner = tensors[first.inputs[0]].shape[1:-1]
    sizes = [int(size + more) for size, more in zip(inner, found.pads.sum(axis=1), strict=True)]
    for place in found.steps[:-1]:
        op = operators[place]
        if op.kind in CONVOLUTIONS:
            apart = [*[1] * (2 - len(found.block)), *found.block]
            about = {**op.options, **dict(zip(DILATIONS, apart, strict=True))}
            biases = [t for t in op.inputs[2:] if t < 0 or np.any(tensors[t].data)]
            operators[place] = replace(op, options=about, inputs=(*op.inputs[:2], *biases))
            sizes = list(tensors[last.outputs[0]].shape[1:-1])
        out = tensors[op.outputs[0]]
        ones = [1] * (len(out.shape) - 2 - len(sizes))
        tensors[op.outputs[0]] = replace(out, shape=(1, *ones, *sizes, out.shape[-1]))
