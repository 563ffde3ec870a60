"""What is trained where the user names no scheme: many biases, and a share of the weights that widen.

Biases take little and gain most of what there is to gain; of weights, those of pointwise convolutions that
widen, at a few of their input channels each, gain most per byte (lab/pages/results.md, lab/pages/search.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

from .defaults import KNOWN_WORDS_RATE, RATE
from .ir import Graph, Layer
from .pipeline import ALL_PASSES, Compiled, Passes, Room, compile_graph
from .scheme import Scheme, convolutions
from .trainables import HeadStart

BIASES = 0.5  # of the bytes above the head alone may go to biases, before weights
FRACTIONS = (0.125, 0.25, 0.5, 1.0)  # of a layer's input channels
FRACTION_BITS = 4
SHARES = (0.5, 0.25)  # of what the head alone leaves, where there are records too
ENOUGH = 20  # of each class


def default_scheme(quantized: Graph, classes: int, budget_sram: int, passes: Passes = ALL_PASSES) -> Compiled:
    """A model with the largest default scheme that fits the SRAM budget."""
    scheme = largest(Room(quantized, classes, budget_sram), passes)
    return compile_graph(quantized, scheme, classes, passes)


def largest(
    room: Room, passes: Passes, head: HeadStart = "zeros", tell: Callable[[], None] = lambda: None
) -> Scheme:
    """The largest default scheme that fits; the head alone where nothing else does.

    tell  is called for each scheme that is tried

    It trains the biases of the last k convolutions, as many as fit their share of the budget, and as much of
    their widening layers as fits: fraction after fraction, the smallest layers first. Where they all fit
    whole, the other layers follow.
    """

    def need(scheme: Scheme) -> float:
        tell()
        return room.needed(scheme, passes)

    quantized = room.quantized
    names = convolutions(quantized)
    scheme = Scheme("head-only", fraction_bits=FRACTION_BITS, head=head, rates=rates(quantized, head))
    least = need(scheme)
    share = least + BIASES * (room.sram - least)
    count = most(len(names), lambda biases: need(replace(scheme, biases=biases)) <= share)
    scheme = replace(scheme, name=f"bias-{count}" if count else scheme.name, biases=count)
    reached = names[len(names) - count :]
    first = widening(quantized, reached)
    for layers in (first, [name for name in reached if name not in first]):
        for fraction, name in product(FRACTIONS, layers):
            part = max(fraction, 1 / quantized.layers[name].columns)
            more = replace(scheme, weights={**scheme.weights, name: part})
            if need(more) <= room.sram:
                scheme = more
        if any(scheme.weights.get(name) != 1.0 for name in layers):
            break
    if scheme.weights:
        scheme = replace(scheme, name=f"{scheme.name}+{len(scheme.weights)}")
    return scheme


def rates(quantized: Graph, head: HeadStart) -> tuple[float, float, float]:
    """Learning rates of weights, biases and head: larger for a head that knows the words of a new speaker."""
    knows = head == "keep" or isinstance(head, tuple)
    return RATE, RATE, KNOWN_WORDS_RATE if quantized.sound is not None and knows else RATE


def beside_records(room: Room, passes: Passes, head: HeadStart, tell: Callable[[], None]) -> Scheme:
    """The largest default scheme that leaves memory to a replay buffer: of what the head alone leaves it has
    a half, or less where that is too little for ENOUGH records of each class.

    passes  with a request for records; tell as in largest()
    """
    plain = replace(passes, replay=None)
    least = room.needed(Scheme("head-only", head=head), plain)
    found: list[tuple[int, Scheme]] = []
    for share in SHARES:
        part = replace(room, sram=int(least + share * max(0.0, room.sram - least)))
        scheme = largest(part, plain, head, tell)
        found.append((min(room.records(scheme, passes), ENOUGH * room.classes), scheme))
        if found[-1][0] == ENOUGH * room.classes:
            break
    return max(found, key=lambda each: each[0])[1]


def most(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to a limit that fits; 0 does, and so does all below one that does."""
    count, too_many = 0, limit + 1
    while too_many - count > 1:
        middle = (count + too_many) // 2
        if fits(middle):
            count = middle
        else:
            too_many = middle
    return count


def widening(graph: Graph, names: list[str]) -> list[str]:
    """The pointwise convolutions with more outputs than inputs, or all dense ones where there are none; the
    smallest first."""
    layers = {name: graph.layers[name] for name in names if not graph.layers[name].depthwise}
    found = [name for name, layer in layers.items() if widens(layer)] or list(layers)
    return sorted(found, key=lambda name: layers[name].weight.size)


def widens(layer: Layer) -> bool:
    outputs, height, width, inputs = layer.weight.shape
    result: bool = height == width == 1 and outputs > inputs
    return result
