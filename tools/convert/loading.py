"""A model file as a quantized graph: what `convert` and `search` both begin with."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from microtrain.base.terminal import console, say
from microtrain.samples.source import training_part

from .frontends.checkpoint import IMAGE, read_checkpoint
from .frontends.module import LoadedModel, load_model
from .ir import ConvertError, Graph
from .names import safe_name
from .normalisation import MeanAndStd, Normalisation, Origin, of_range
from .quantize.calibrate import number_range
from .quantize.fidelity_report import draw, print_report
from .quantize.input_fit import advice
from .quantize.int8 import warn_dead
from .quantize.ptq import Choices, calibration_images, knows_ranges, quantization_report, quantize_model


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
        given_as = "x".join(map(str, shape))
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
        normal = of_range(*found, len(own.gain))
        whole = normal.behind(own)
    return replace(loaded, normal=normal, graph=loaded.graph.replace(input=whole, units=normal.units()))


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
) -> tuple[Graph, dict[str, str]]:
    """The int8 graph; with `compared` its quantization report is printed, and returned as files.

    images  of calibration, where they have been read already
    """
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
    print_report(made, screen())
    return quantized, {
        "quantization.json": json.dumps(made.json(), indent=1) + "\n",
        "quantization.svg": draw(made),
    }


def announce(loaded: LoadedModel, images: np.ndarray, folder: Path | None) -> None:
    """Say what is taken to be true of the model's input, and what fits the images better."""
    say(f"input       {loaded.normal.sentence()}".replace("\n", "\n" + 12 * " "))
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


def screen() -> Console:
    """The terminal, or wide where the output goes into a file."""
    return console(width=None if sys.stdout.isatty() else 160)
