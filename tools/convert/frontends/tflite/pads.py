"""Padding that stands in front of what turns its axes, as PyTorch's converter (litert-torch) writes it.

Behind it, where a convolution takes it: [n, c, time] is padded, seen as one row and turned to NHWC. Both
operators exchange their places, since layers are called after these.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .file import Flatbuffer, Operator, Stored

PADS = ("PAD", "PADV2", "MIRROR_PAD")
VIEWS = ("RESHAPE", "EXPAND_DIMS")


def padded_last(file: Flatbuffer) -> Flatbuffer:
    """The file with each padding behind the views that read it alone, where these add axes of 1, or turn the
    order NCHW to NHWC."""
    readers, tensors, operators = file.readers(), list(file.tensors), list(file.operators)
    for place in range(len(operators)):
        at = place
        while (later := _reader(operators[at], readers, file.outputs)) is not None:
            if later <= at or not _exchanged(tensors, operators, at, later):  # a damaged file goes in circles
                break
            readers[operators[at].outputs[0]] = [later]
            at = later
    return replace(file, tensors=tuple(tensors), operators=tuple(operators))


def _reader(op: Operator, readers: dict[int, list[int]], outputs: tuple[int, ...]) -> int | None:
    """The one operator that reads a padding."""
    if op.kind not in PADS or op.outputs[0] in outputs:
        return None
    found = readers.get(op.outputs[0], [])
    return found[0] if len(found) == 1 else None


def _exchanged(tensors: list[Stored], operators: list[Operator], place: int, later: int) -> bool:
    """Let a view read what was padded, and the padding read the view. False: it is no view of this kind."""
    pad, view = operators[place], operators[later]
    given, made = (tensors[op.outputs[0]].shape for op in (pad, view))
    axes, widths = _axes(tensors, view, given, made), tensors[pad.inputs[1]].data
    if axes is None or widths is None or widths.shape != (len(given), 2):
        return False
    moved = np.array([(0, 0) if axis is None else widths[axis] for axis in axes], widths.dtype)
    whole = tensors[pad.inputs[0]]
    sizes = tuple(1 if axis is None else whole.shape[axis] for axis in axes)
    between, sides, shape = len(tensors), len(tensors) + 1, len(tensors) + 2
    tensors.append(replace(whole, name=f"{whole.name}, seen", shape=sizes))
    tensors.append(replace(tensors[pad.inputs[1]], name="padding", shape=moved.shape, data=moved))
    tensors.append(Stored("shape", (len(sizes),), "<i4", np.array(sizes, np.int32), None))
    rest = (shape,) if view.kind == "RESHAPE" else view.inputs[1:]
    operators[place] = replace(view, inputs=(pad.inputs[0], *rest), outputs=(between,))
    operators[later] = replace(pad, inputs=(between, sides, *pad.inputs[2:]), outputs=view.outputs)
    return True


def _axes(
    tensors: list[Stored], view: Operator, given: tuple[int, ...], made: tuple[int, ...]
) -> list[int | None] | None:
    """Which axis of what it reads each axis of a view is; None: one of 1 that the view adds."""
    if view.kind == "TRANSPOSE":
        to_last: list[int | None] = [0, *range(2, len(given)), 1]
        order = tensors[view.inputs[1]].data
        return to_last if order is not None and np.ravel(order).tolist() == to_last else None
    if view.kind not in VIEWS or [n for n in given if n != 1] != [n for n in made if n != 1]:
        return None
    if len(made) <= len(given):
        return None
    own = [axis for axis, size in enumerate(given) if size != 1]
    found: list[int | None] = [own.pop(0) if size != 1 else None for size in made]
    return found
