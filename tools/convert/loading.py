"""A model file as a quantized graph: what `convert` and `search` both begin with."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from microtrain.base.shapes import by
from microtrain.base.terminal import console, say
from microtrain.samples.source import training_part

from .frontends.checkpoint import IMAGE, read_checkpoint
from .frontends.module import LoadedModel, load_model
from .ir import ConvertError, Graph
from .names import safe_name
from .normalisation import MeanAndStd, Normalisation, Origin, of_range, of_ranges
from .passes.constant_channels import left_out, without_constants
from .quantize.calibrate import number_range
from .quantize.fidelity_report import draw, print_report
from .quantize.input_fit import advice
from .quantize.int8 import warn_dead
from .quantize.ptq import Choices, calibration_images, knows_ranges, quantization_report, quantize_model

FEW_STEPS, VERY_FEW_STEPS = 64, 16  # of 255 that a channel's numbers span in a range of all channels
MOST_RANGES = 64  # a board tells each: a line of that many numbers


def load(
    model: Path,
    trust: bool,
    input_shape: tuple[int, ...] | None,
    given: MeanAndStd | None = None,
    samples: Path | None = None,
    result: str | None = None,
) -> LoadedModel:
    """Read the model with the front end for its kind of file.

    given    how its images are normalised
    samples  of calibration, which may hold numbers in the units of the model
    result   number or name of that of several which is the logits
    """
    if model.suffix != ".pkl":
        loaded = load_model(model, trust=trust, input_shape=input_shape, given=given, result=result)
        named = replace(loaded, graph=loaded.graph.replace(name=model_name(model)))
        return in_units(named, samples) if samples and named.graph.units is None else named
    if given is not None:
        raise ConvertError(f"{model.name} says itself how its images are stored: leave --mean and --std out")
    shape = input_shape or (3, IMAGE, IMAGE)
    if len(shape) != 3 or shape[0] != 3 or shape[1] != shape[2]:
        given_as = by(shape)
        raise ConvertError(f"{model.name} takes square RGB images: pass --input 3xNxN, not {given_as}")
    graph = read_checkpoint(model, shape[1])
    warn_dead(graph.name, graph.layers)
    return LoadedModel(graph, None, Normalisation((), (), Origin.FILE), (), "checkpoint")


def in_units(loaded: LoadedModel, samples: Path) -> LoadedModel:
    """The model for samples that hold numbers in its units, where they do.

    Where nobody says how numbers become bytes, the range of the samples does.
    """
    found = number_range(samples, loaded.graph.sample_shape)
    if found is None:
        return loaded
    normal, whole = loaded.normal, loaded.graph.input
    if normal.origin in (Origin.ASSUMED, Origin.FORWARD):
        own = normal.before(whole)
        normal = _of_numbers(*found, alike=len(set(own.gain)) == 1)
        whole = normal.behind(own)
    return replace(loaded, normal=normal, graph=loaded.graph.replace(input=whole, units=normal.units()))


def _of_numbers(low: np.ndarray, high: np.ndarray, alike: bool) -> Normalisation:
    """One range for all channels; where the model normalises each by itself, its own for each that needs it.

    low, high  of each channel; alike: the model does the same to all channels
    """
    least, most = float(low.min()), float(high.max())
    widths = np.where(high > low, high - low, most - least)
    steps = 255.0 * widths / (most - least or 1.0)
    if steps.min() < FEW_STEPS and not alike and len(steps) <= MOST_RANGES:
        return of_ranges(list(zip(low.tolist(), high.tolist(), strict=True)))
    if steps.min() < VERY_FEW_STEPS:
        place = int(steps.argmin())
        warnings.warn(
            f"the numbers of channel {place} lie between {low[place]:.4g} and {high[place]:.4g}, those of "
            f"all between {least:.4g} and {most:.4g}, of which a byte has 256 steps: that channel has "
            f"{steps[place]:.0f} of them. Let the model normalise each channel itself, by a batch norm or a "
            "StandardScaler at its beginning, or store samples that are scaled already",
            stacklevel=2,
        )
    return of_range(least, most, len(low))


def model_name(model: Path) -> str:
    """The file's name; a file called model.pt takes that of its folder."""
    folder = model.resolve().parent.name
    return safe_name(folder if model.stem == "model" and folder else model.stem)


def quantized_with_report(
    loaded: LoadedModel,
    choices: Choices,
    compared: bool,
    labelled: Path | None,
    images: np.ndarray | None = None,
    whole: bool = False,
) -> tuple[Graph, dict[str, str]]:
    """The int8 graph; with `compared` its quantization report is printed, and returned as files.

    Channels that never change are left out of it, but of a published checkpoint, whose schemes and learned
    bits are of all.
    images  of calibration, where they have been read already
    whole   all channels stay, as where modules that learn beside blocks are of their sizes
    """
    graph, files = _quantized(loaded, choices, compared, labelled, images)
    if whole or loaded.kind == "checkpoint":
        return graph, files
    made = without_constants(graph)
    if gone := left_out(graph, made):
        say(f"left out    {sum(gone.values()):,} channels of {len(gone)} layers, which no input changes")
    return made, files


def known(loaded: LoadedModel) -> Graph:
    """What is known of a network before calibration: the int8 graph of a quantized file, or the float one."""
    if loaded.kind == "checkpoint" or not knows_ranges(loaded.graph):
        return loaded.graph
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they come when it is converted
        return without_constants(quantize_model(loaded.graph, np.empty(0), Choices()))


def _quantized(
    loaded: LoadedModel,
    choices: Choices,
    compared: bool,
    labelled: Path | None,
    images: np.ndarray | None,
) -> tuple[Graph, dict[str, str]]:
    if loaded.kind == "checkpoint":
        if choices != Choices() or compared:
            raise ConvertError(
                f"{loaded.graph.name} is quantized already: leave --calibration, --ranges, "
                "--bias-correction, --quantization and --evaluate out"
            )
        return loaded.graph, {}
    if knows_ranges(loaded.graph) and (choices.correct or choices.rule != Choices().rule):
        raise ConvertError(
            f"{loaded.graph.name} is quantized already: leave --ranges and --bias-correction out"
        )
    if knows_ranges(loaded.graph) and not compared:
        announce(loaded, np.empty(0), None)
        return quantize_model(loaded.graph, np.empty(0), choices), {}
    if images is None:
        images = calibration_images(loaded.graph, loaded.calibration, choices.calibration)
    announce(loaded, images, choices.calibration)
    quantized = quantize_model(loaded.graph, images, choices)
    if not compared:
        return quantized, {}
    made = quantization_report(loaded.graph, quantized, images, choices, labelled)
    print_report(made, console())
    return quantized, {
        "quantization.json": json.dumps(made.json(), indent=1) + "\n",
        "quantization.svg": draw(made),
    }


def announce(loaded: LoadedModel, images: np.ndarray, folder: Path | None) -> None:
    """Say what is taken to be true of the model's input, and what fits the images better."""
    say(f"input       {loaded.normal.sentence(loaded.graph.sample_shape)}".replace("\n", "\n" + 12 * " "))
    if loaded.graph.sound is not None:
        say(f"sound       {loaded.graph.sound.limits()}")
    if loaded.normal.origin in (Origin.STORED, Origin.SAMPLES):
        return
    better = advice(loaded, images, training_part(folder) if folder else None)
    if better:
        say(f"convert: {better}", err=True)


def show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """A warning as one line, without the place in our code that raised it."""
    say(f"convert: {message}", err=True)
