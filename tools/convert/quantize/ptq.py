"""Post-training quantization from start to end: calibration images, ranges, int8 graph, corrected biases."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from microtrain.convert import defaults
from microtrain.convert.frontends.module import LoadedModel
from microtrain.convert.ir import ConvertError, Graph

from .bias_correction import correct_biases
from .calibrate import check_images, evenly, load_calibration
from .evaluation import load_labelled, own_classes
from .fidelity import MOST_IMAGES, Report, compare, top1
from .int8 import quantize
from .ranges import measure_ranges


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


def calibration_images(loaded: LoadedModel, folder: Path | None) -> np.ndarray:
    """The user's calibration images, or those in the file, uint8 [N, h, w, c]."""
    shape = loaded.graph.tensors[loaded.graph.input.tensor].shape
    images = load_calibration(folder, shape) if folder else loaded.calibration
    if images is None:
        raise ConvertError(
            f"{loaded.graph.name} carries no calibration images: pass --calibration DIR with some typical "
            "images, or an .npz with `images` uint8 [N,h,w,c]"
        )
    return check_images(images, shape, loaded.graph.name)


def quantize_model(loaded: LoadedModel, images: np.ndarray, choices: Choices) -> Graph:
    """The int8 graph of a float model."""
    quantized = quantize(loaded.graph, measure_ranges(loaded.graph, images, choices.rule))
    return correct_biases(loaded.graph, quantized, images) if choices.correct else quantized


def quantization_report(
    graph: Graph, quantized: Graph, images: np.ndarray, choices: Choices, labelled: Path | None
) -> Report:
    """The int8 graph beside the float one.

    images    calibration images, on which the layers are compared
    labelled  folder of class folders for the accuracy; None: the calibration folder, if it has the model's
              own classes
    """
    if labelled is None and choices.calibration and own_classes(choices.calibration, graph):
        labelled = choices.calibration
    layers, accuracy = compare(graph, quantized, np.stack(evenly(list(images), MOST_IMAGES)))
    compared = accuracy.images
    if labelled is not None:
        accuracy = top1(graph, quantized, load_labelled(labelled, graph))
    return Report(graph.name, choices.rule, choices.correct, compared, tuple(layers), accuracy)
