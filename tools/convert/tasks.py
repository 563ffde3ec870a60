"""What a conversion does otherwise where something else is learned than to tell classes apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from microtrain.base.plan import FLOAT
from microtrain.base.sound import LogMel
from microtrain.base.terminal import say
from microtrain.convert.ops.aten.lengths import UNIT
from microtrain.samples import log_mel

from .defaults import RATE, SCORE_RATE
from .execute.batched import batches, run_int8
from .frontends.endings import headless
from .frontends.found import together
from .frontends.module import LoadedModel
from .ir import ConvertError, Graph
from .ops import has_head, hop, prototypes
from .ops.reconstruct import ANOMALY as SCORE
from .ops.reconstruct import ENDINGS, calibrated, closed
from .ops.regression import measured
from .options import (
    ANOMALY,
    FEATURES,
    LOSSES,
    MULTILABEL,
    OPEN_SET,
    OUTPUT,
    REGRESSION,
    TASKS,
    Wanted,
)
from .quantize.ptq import calibration_images
from .scheme import Scheme
from .trainables import HeadStart
from .weights import weights_of

LABELS = "labels"  # the loss of a scheme


def by_targets(wanted: Wanted) -> bool:
    """Whether samples come with numbers in the place of a label."""
    return wanted.task in (REGRESSION, MULTILABEL)


def refuse(wanted: Wanted) -> None:
    """ConvertError for options that do not go with the task, or with one another."""
    if wanted.loss and wanted.task != REGRESSION:
        raise ConvertError("--loss is of a regression: add --task regression, or leave it out")
    if wanted.embedding and wanted.task != OPEN_SET:
        raise ConvertError("--embedding is of an open set: add --task open-set, or leave it out")
    if wanted.task == OPEN_SET:
        refuse_open(wanted)
    if wanted.classes == 1 and wanted.task not in (MULTILABEL, OPEN_SET):
        raise ConvertError("one class leaves nothing to tell apart: give --classes 2 or more")
    if wanted.task == REGRESSION and wanted.classes:
        raise ConvertError("a regression keeps the model's outputs, as their units are: leave --classes out")
    asked = wanted.replay is not None and not wanted.replay.optional
    if wanted.library and wanted.requantize not in (None, FLOAT):
        raise ConvertError(
            f"the library requantizes in float32: leave --requantize {wanted.requantize} out with --library"
        )
    if by_targets(wanted) and asked:
        raise ConvertError(f"records of --replay hold no targets yet: leave it out with --task {wanted.task}")
    if wanted.until and (
        not wanted.classes or wanted.head_rows or wanted.task not in (TASKS[0], MULTILABEL, OPEN_SET)
    ):
        raise ConvertError(
            "--until makes a new head: give --classes with it, and no --head-rows or other --task"
        )
    if by_targets(wanted) and wanted.imprint.group:
        raise ConvertError(f"--imprint makes a head of classes: leave it out with --task {wanted.task}")


def refuse_open(wanted: Wanted) -> None:
    """ConvertError for options that do not go with an open set."""
    if wanted.classes is None:
        raise ConvertError(
            "--task open-set needs --classes N, for how many classes there is to be room: each takes 4 bytes "
            "of SRAM for each number of an embedding"
        )
    if wanted.until and wanted.embedding:
        raise ConvertError(
            "--until says what the embedding is, the mean of LAYER's map: leave --embedding out"
        )
    if wanted.head_rows:
        raise ConvertError(
            "--head-rows are of a head, in whose place an open set has prototypes: leave it out"
        )
    if wanted.imprint.group:
        raise ConvertError(
            "--imprint makes a head of classes: leave it out with --task open-set, which knows a class "
            "from its first sample on"
        )


def opened(loaded: LoadedModel, wanted: Wanted) -> LoadedModel:
    """The model that was read, with the end that the task gives it, and the front end for sound."""
    ending = loaded.graph.ending
    if ending and (wanted.task == REGRESSION or (wanted.task == ANOMALY and ending not in ENDINGS)):
        raise ConvertError(
            f"{loaded.graph.name} ends with a {ending}, which no loss of --task {wanted.task} applies: its "
            "last layer must make the numbers themselves; train the network without"
        )
    if wanted.task == OPEN_SET:
        graph = embedding(loaded.graph, FEATURES if wanted.until else wanted.embedding)
    else:
        graph = closed(loaded.graph) if wanted.task == ANOMALY else headed(loaded.graph)
    graph = hearing(graph, wanted.sound)
    return replace(loaded, graph=graph if wanted.hop is None else hop.checked(graph, wanted.hop))


def headed(graph: Graph) -> Graph:
    """The graph, if it ends in a head; only an autoencoder may do without."""
    if not has_head(graph):
        raise together(graph.name, [headless(graph)], weights_of(graph))
    return graph


def embedding(graph: Graph, asked: str | None) -> Graph:
    """The graph with a head that reads the embedding. asked: features or output, None: not said"""
    own = has_head(graph)
    if asked == FEATURES and not own:
        raise ConvertError(
            f"{graph.name} does not end in a linear layer, so its output is the embedding: leave --embedding "
            "out"
        )
    output = not own or asked == OUTPUT or (asked is None and graph.ending == UNIT)
    graph = prototypes.passed_on(graph) if output else graph
    values = graph.tensors[graph.nodes[-1].inputs[0]].elements
    maker = graph.producer(graph.nodes[-1].inputs[0])
    name = maker.name if maker is not None else "the input"
    left = graph.tensors[graph.output].channels
    other = "" if output or asked else f"; --embedding output takes the {left} of its last layer"
    say(f"embedding   {values} numbers that {name} makes{other}", err=True)
    return graph


def hearing(graph: Graph, sound: LogMel | None) -> Graph:
    """With the front end. ConvertError where its rows are not the model's."""
    if sound is None:
        return graph
    rows, width, channels = graph.tensors[graph.input.tensor].shape
    if width * channels != sound.width:
        raise ConvertError(
            f"{graph.name} takes {rows} rows of {width * channels} numbers, and the front end makes rows of "
            f"{sound.width}, one for each frame: a network takes [n, 1, frames, bands], or [n, bands, frames]"
        )
    log_mel.tables(sound)
    return graph.replace(sound=sound)


def measured_by(quantized: Graph, loaded: LoadedModel, wanted: Wanted) -> Graph:
    """With what the task takes from typical samples: a threshold, or the units of outputs."""
    if wanted.task not in (ANOMALY, REGRESSION, OPEN_SET):
        return quantized
    samples = calibration_images(quantized, loaded.calibration, wanted.calibration)
    if wanted.task == OPEN_SET:
        return prototypes.centred(quantized, embeddings_of(quantized, samples))
    parts = [run_int8(quantized, batch) for batch in batches(quantized, samples, "scoring typical samples")]
    outputs = np.concatenate(parts).reshape(len(samples), -1)
    if wanted.task == ANOMALY:
        return calibrated(quantized, outputs[:, SCORE])
    return measured(quantized, outputs[:, list(wanted.head_rows)] if wanted.head_rows else outputs)


def embeddings_of(quantized: Graph, samples: np.ndarray) -> np.ndarray:
    """What the last layer of a quantized graph reads of samples, int8 [samples, h, w, c]."""
    name, found = quantized.nodes[-1].inputs[0], list[np.ndarray]()

    def see(tensor: str, stored: np.ndarray) -> None:
        if tensor == name:
            found.append(stored.copy())

    for batch in batches(quantized, samples, "embedding typical samples"):
        run_int8(quantized, batch, see)
    return np.concatenate(found)


def head_of(wanted: Wanted, scheme: Scheme | None) -> HeadStart:
    """What the head starts from: what a regression or labels know already, unless others are asked for."""
    if by_targets(wanted) and not (wanted.head_rows or wanted.classes):
        return "keep"
    return wanted.head_rows or (scheme.head if scheme else "zeros")


def scheme_for(scheme: Scheme, wanted: Wanted, outputs: int) -> Scheme:
    """A scheme with the loss of the task. Of a default one the rates are those of a single output: a loss is
    the mean over them; and those of scores where what is normal is learned."""
    if wanted.task == ANOMALY and not wanted.scheme:
        return replace(scheme, rates=(SCORE_RATE,) * 3)
    if not by_targets(wanted):
        return scheme
    rates = scheme.rates if wanted.scheme else (RATE * outputs,) * 3
    loss = LABELS if wanted.task == MULTILABEL else LOSSES[wanted.loss or "huber"]
    return replace(scheme, loss=loss, rates=rates)
