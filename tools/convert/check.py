"""`convert --check`: whether a model fits a board, and all that stands in its way, without any calibration.

Sizes do not depend on the images: ranges are invented, and the plan is that of the least training there is,
the head alone, unless a scheme is named. What a conversion trains beyond that is chosen to fit.
"""

from __future__ import annotations

import textwrap
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from microtrain.base.terminal import say

from . import obstacles
from .boards import Limits
from .compression import Weights
from .emit.document import flash_of, flash_total
from .emit.tables import outside_bytes
from .frontends.found import UnsupportedError
from .frontends.module import LoadedModel
from .imprinting import compile_imprinting
from .ir import SIDE_MOST, Graph, Layer, Tensor
from .loading import known, model_name
from .memory.imprint import Request
from .outside import place_outside
from .pipeline import ALL_PASSES, Compiled, Passes, Room
from .quantize.compress import trained_by, without_values
from .quantize.int8 import quantize
from .scheme import Scheme
from .weights import weights_of

COLUMNS = 80
TASK = 10  # classes to go on with where the model's own make too large a head
UNBOUNDED = 1 << 40
NO_STATISTICS = Request(0)


@dataclass(frozen=True)
class Checked:
    """What is known of a model and a board. Bytes; None where the obstacles leave it unknown.

    weights  int8, with their biases; with `compress` in four bits, as many as can be
    flash    of the whole firmware; sram: with the head alone trained, or with the scheme that was named
    classes  of the head that sram is for
    outside  of the flash beside the chip, where that was given
    """

    name: str
    board: str
    obstacles: tuple[str, ...]
    weights: int
    seconds: float
    shape: tuple[int, int, int] | None = None
    flash: int | None = None
    sram: int | None = None
    classes: int | None = None
    scheme: str | None = None
    outside: int = 0
    limits: Limits = field(default_factory=Limits, repr=False)
    compress: bool = False

    @property
    def fits(self) -> bool:
        return not self.obstacles


@dataclass(frozen=True)
class Asked:
    """What a model is to be looked at for.

    load     reads it; ConvertError for what is no model
    classes  of the new task; None: the model's own
    scheme   None: the head alone is trained
    imprint  which statistics of features there should be
    labels   it learns from labels; False: from targets, for which one output will do
    compress frozen weights are to be in four bits, as many as can be
    """

    load: Callable[[], LoadedModel]
    limits: Limits
    classes: int | None = None
    scheme: Scheme | None = None
    passes: Passes = ALL_PASSES
    imprint: Request = NO_STATISTICS
    labels: bool = True
    compress: bool = False


def check(model: Path, asked: Asked) -> Checked:
    """Look at a model. Errors: ConvertError for what is no model."""
    start = time.monotonic()
    limits = asked.limits
    board = limits.board_name or "this machine"
    try:
        loaded = asked.load()
    except UnsupportedError as error:
        found = [*error.sentences, *obstacles.from_weights(error.weights, limits, asked.classes)]
        seconds = time.monotonic() - start
        return Checked(model_name(model), board, tuple(found), error.weights.bytes, seconds, limits=limits)
    graph, scheme = known(loaded), asked.scheme or Scheme("head-only")
    weights = weights_of(graph)
    found, classes = _by_weights(graph, weights, asked)
    h, w, c = graph.tensors[graph.input.tensor].shape
    if h > SIDE_MOST:  # no kernel counts so far, so nothing can be planned
        seconds = time.monotonic() - start
        return Checked(graph.name, board, tuple(found), weights.bytes, seconds, (c, h, w), limits=limits)
    heavy = bool(obstacles.too_heavy(weights, limits, asked.compress))  # then what flash holds is said
    compiled = planned(
        loaded, scheme, classes, limits, asked.passes, asked.imprint, hollow=heavy, compress=asked.compress
    )
    found += obstacles.sram(compiled, limits) if heavy else obstacles.of(compiled, limits)
    kinds = flash_of(compiled.graph)
    return Checked(
        graph.name,
        board,
        tuple(found),
        kinds.weights + kinds.biases + kinds.trainables_init,
        time.monotonic() - start,
        (c, h, w),
        flash_total(compiled.graph, limits.board_name),
        compiled.sram,
        classes,
        scheme.name,
        outside_bytes(compiled.graph),
        limits,
        asked.compress,
    )


def _by_weights(graph: Graph, weights: Weights, asked: Asked) -> tuple[list[str], int]:
    """What stands in the way by weights and classes alone, and the classes to go on with."""
    classes = asked.classes or graph.tensors[graph.output].channels
    found = obstacles.one_output(graph, asked.classes) if asked.labels else []
    found += obstacles.image(graph)
    found += obstacles.from_weights(weights, asked.limits, classes, asked.compress)
    too_many = obstacles.head_too_large(weights, asked.limits, classes)
    return found, min(classes, TASK) if too_many else max(classes, obstacles.LEAST_CLASSES)


def planned(
    loaded: LoadedModel,
    scheme: Scheme,
    classes: int,
    limits: Limits,
    passes: Passes,
    imprint: Request = NO_STATISTICS,
    hollow: bool = False,
    compress: bool = False,
) -> Compiled:
    """The model with a memory plan, its ranges invented where it is float.

    hollow    without the values of its weights, which the plan does not need
    compress  its frozen weights in four bits, wherever they can be
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ranges, which say nothing here
        graph = known(loaded)
        if graph is loaded.graph and loaded.kind != "checkpoint":
            ranges = dict.fromkeys(graph.tensors, (-6.0, 6.0))
            graph = quantize(graph, ranges, no_values if hollow else None)
        if compress:
            graph = without_values(graph, trained_by(graph, scheme))
        room = Room(graph, classes, limits.sram_room or UNBOUNDED)
        compiled = compile_imprinting(room, scheme, passes, imprint, limits.with_external)
        return place_outside(compiled, limits)


def no_values(name: str, layer: Layer, x: Tensor, y: Tensor) -> Layer:
    """A quantized layer of that shape with zeros, which take no memory here."""
    channels = len(layer.bias)
    return replace(
        layer,
        weight=np.broadcast_to(np.int8(0), layer.weight.shape),
        bias=np.zeros(channels, np.int32),
        weight_scale=np.ones(channels),
        dead=np.zeros(channels, bool),
    )


def show(checked: Checked) -> None:
    """Print it, for 80 columns."""
    limits = checked.limits
    say(f"{checked.name} on {checked.board}: {'fits' if checked.fits else 'does not fit'}")
    if checked.shape:
        say(f"  input    {'x'.join(map(str, checked.shape))}")
    room = limits.board.weights if limits.board else None
    stored = ", in 4 bits as many as can be" if checked.compress else ""
    say(f"  weights  {checked.weights:,} B{_of(room)}{stored}")
    if checked.flash is not None and checked.sram is not None:
        say(f"  flash    {checked.flash:,} B{_of(limits.flash)}")
        if limits.external is not None:
            say(f"  outside  {checked.outside:,} B{_of(limits.external.size)} in {limits.external.name}")
        what = f"scheme {checked.scheme}, {checked.classes:,} classes"
        say(f"  SRAM     {checked.sram:,} B{_of(limits.sram)}; {what}")
    else:
        say("  flash, SRAM: known once it can be converted")
    for number, sentence in enumerate(checked.obstacles, 1):
        lines = textwrap.wrap(sentence, COLUMNS - 4, break_long_words=False, break_on_hyphens=False)
        say("\n".join([f"{number:2}. {lines[0]}", *("    " + line for line in lines[1:])]))
    say(f"checked in {checked.seconds:.1f} s; nothing was written")


def _of(size: int | None) -> str:
    return "" if size is None else f" of {size:,} B"
