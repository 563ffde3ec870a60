"""Post-training quantization from start to end: calibration images, ranges, int8 graph, corrected biases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from microtrain.convert import defaults
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.ops import forward_op, has_head
from microtrain.convert.ops.outputs import as_input, stays_float
from microtrain.samples.source import evenly, training_part

from .bias_correction import correct_biases
from .calibrate import check_images, load_calibration
from .evaluation import load_labelled, own_classes
from .fidelity import MOST_IMAGES, Report, compare, top1
from .int8 import quantize
from .ranges import measure_ranges

LARGE, FEW = 8.0, 2.0  # of a real input: more is too much, and what is made of it
MOST_NAMED = 3  # of layers in a sentence


@dataclass(frozen=True)
class Choices:
    """What the user chose.

    calibration  folder or .npz; None: the images in the model's file
    rule         of ranges.RULES
    correct      the biases, for what rounding shifts
    """

    calibration: Path | None = None
    rule: str = defaults.RULE
    correct: bool = False


def knows_ranges(graph: Graph) -> bool:
    """Whether the model's file has quantized every tensor itself, so that there is nothing to calibrate."""
    return graph.tensors[graph.input.tensor].given is not None and not _without_range(graph)


def _without_range(graph: Graph) -> list[str]:
    """Names of nodes whose results' range the model's file does not say."""
    known = (as_input, stays_float)
    ranged = (n for n in graph.nodes if forward_op(n).output not in known)
    return [n.name for n in ranged if graph.tensors[n.outputs[0]].given is None]


def calibration_images(graph: Graph, stored: np.ndarray | None, folder: Path | None) -> np.ndarray:
    """The user's calibration images, or those stored in the model's file, uint8 [N, h, w, c]."""
    shape = graph.sample_shape
    images = load_calibration(folder, shape) if folder else stored
    if images is None:
        raise _no_samples(graph)
    return check_images(images, shape, graph.name)


def _no_samples(graph: Graph) -> ConvertError:
    """What is said where ranges must be measured, and nothing is there to measure them with."""
    what, unknown = "carries no calibration samples", _without_range(graph)
    if unknown and graph.tensors[graph.input.tensor].given is not None:
        names = ", ".join(unknown[:MOST_NAMED]) + (", ..." if len(unknown) > MOST_NAMED else "")
        what = f"is quantized, but says no scale of {names}, and carries no calibration samples"
    return ConvertError(
        f"{graph.name} {what}: pass --calibration DIR with some typical "
        "ones, or an .npz with `images` uint8 [N,h,w,c]"
    )


def eased(graph: Graph) -> Graph:
    """A quantized file's network, its input in units in which it is a few, where it is far more, bytes say.

    The first layers' weights are larger by the factor that the input is smaller by, a power of two, so all
    stored integers are those of the file. But a learning rate is of real weights: where the input was large,
    the first layer would be thrown about by the rate that suits the others.
    """
    entry = graph.input
    x, readers = graph.tensors[entry.tensor], graph.readers(entry.tensor)
    most = max(abs(o + g * p) for g, o in zip(entry.gain, entry.offset, strict=True) for p in (0.0, 255.0))
    layers = {n.layer: graph.layers[n.layer] for n in readers if n.layer}
    own = len(layers) == len(readers) and all(v.weight_scale is not None for v in layers.values())
    if most <= LARGE or x.given is None or not own or not has_head(graph):
        return graph
    factor = 2.0 ** np.ceil(np.log2(most / FEW))
    less = replace(
        entry, gain=tuple(g / factor for g in entry.gain), offset=tuple(o / factor for o in entry.offset)
    )
    more = {
        name: replace(v, weight=v.weight * np.float32(factor), weight_scale=v.weight_scale * factor)
        for name, v in layers.items()
        if v.weight_scale is not None
    }
    given = replace(x, given=(x.given[0] / factor, x.given[1]))
    return graph.replace(
        input=less, layers={**graph.layers, **more}, tensors={**graph.tensors, x.name: given}
    )


def quantize_model(graph: Graph, images: np.ndarray, choices: Choices) -> Graph:
    """The int8 graph of a float one. images: none at all where the file knows all ranges."""
    if knows_ranges(graph):
        return quantize(eased(graph), {})
    quantized = quantize(graph, measure_ranges(graph, images, choices.rule))
    return correct_biases(graph, quantized, images) if choices.correct else quantized


def quantization_report(
    graph: Graph, quantized: Graph, images: np.ndarray, choices: Choices, labelled: Path | None
) -> Report:
    """The int8 graph beside the float one.

    images    calibration images, on which the layers are compared
    labelled  folder of class folders for the accuracy; None: the calibration folder, if it has the model's
              own classes
    """
    calibration = training_part(choices.calibration) if choices.calibration else None
    if labelled is None and calibration and own_classes(calibration, graph):
        labelled = calibration
    layers, accuracy = compare(graph, quantized, np.stack(evenly(list(images), MOST_IMAGES)))
    compared = accuracy.images
    if labelled is not None:
        accuracy = top1(graph, quantized, load_labelled(labelled, graph))
    return Report(graph.name, choices.rule, choices.correct, compared, tuple(layers), accuracy)
