"""Lists of places (`x[:, [2, 0]]`) as PyTorch's exporter writes them since 2.9: the axis goes to the front,
GatherND takes the places, and the axis goes back."""

from __future__ import annotations

from dataclasses import replace

from .file import OnnxGraph, Step
from .parts import Pieces


def listed(file: OnnxGraph) -> dict[str, tuple[Step, frozenset[str]]]:
    """Each as one GatherND that names its axis, by the name of its result; and what is inside it."""
    pieces = Pieces(file)
    found = (_around(pieces, step) for step in file.steps if step.op == "GatherND" and step.inputs)
    return {step.outputs[0]: (step, inside) for step, inside in (each for each in found if each)}


def _around(pieces: Pieces, step: Step) -> tuple[Step, frozenset[str]] | None:
    front, readers = pieces.makers.get(step.inputs[0]), pieces.readers.get(step.outputs[0], [])
    back = readers[0] if len(readers) == 1 else None
    if front is None or back is None or front.op != "Transpose" or back.op != "Transpose":
        return None
    perm = list(front.attributes.get("perm") or [])
    inside = frozenset((front.outputs[0], step.outputs[0]))
    others = [axis for axis in range(len(perm)) if not perm or axis != perm[0]]
    straight = perm == [*perm[:1], *others] and _inverse(perm) == list(back.attributes.get("perm") or [])
    alone = pieces.readers.get(front.outputs[0]) == [step] and not inside & pieces.outputs
    if not straight or not alone:
        return None
    about = {**step.attributes, "axis": perm[0]}
    whole = replace(step, inputs=(front.inputs[0], *step.inputs[1:]), outputs=back.outputs, attributes=about)
    return whole, inside


def _inverse(perm: list[int]) -> list[int]:
    return [perm.index(axis) for axis in range(len(perm))] if sorted(perm) == list(range(len(perm))) else []
