"""What exporters write out in an ONNX graph, as the steps that it is."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .onnx_file import OnnxGraph, Step
from .onnx_gelu import gelus
from .onnx_norm_pieces import norms
from .onnx_places import listed
from .onnx_unrolled import unrolled
from .onnx_windows import windows


@dataclass(frozen=True)
class Wholes:
    """Steps that stand for several.

    steps      by their results
    inside     results of those that are parts of them
    constants  what they read that the file has not
    """

    steps: dict[str, Step]
    inside: set[str]
    constants: dict[str, np.ndarray]


def in_pieces(file: OnnxGraph) -> Wholes:
    """What a file writes out, as the steps that it is."""
    steps = {name: step for step in file.steps for name in step.outputs[:1]}
    found, inside, constants = dict[str, Step](), set[str](), dict[str, np.ndarray]()
    for name, gelu in gelus(file).items():
        about = {"approximate": gelu.approximate}
        found[name] = replace(steps[name], op="Gelu", inputs=(gelu.given,), attributes=about)
        inside |= gelu.inside
    for name, norm in norms(file).items():
        found[name] = norm.step(steps[name])
        inside |= norm.inside
    for name, (step, parts) in (listed(file) | windows(file)).items():
        found[name] = step
        inside |= parts
    for cells in unrolled(file):
        found |= cells.steps
        inside |= cells.inside
        constants |= cells.constants
    return Wholes(found, inside, constants)
