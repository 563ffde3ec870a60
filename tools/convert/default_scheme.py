"""What is trained where the user names no scheme: many biases, and a share of the weights that widen.

Biases take little and gain most of what there is to gain; of weights, those of pointwise convolutions that
widen gain most per byte (lab/pages/results.md, lab/pages/search.md). Beside records, which a session shows
again and again, an inverted residual network learns in its last layers alone (lab/pages/search.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product

from .defaults import KNOWN_WORDS_RATE, RATE
from .ir import Graph, Layer
from .pipeline import Passes, Room
from .scheme import ALL, Scheme, convolutions
from .trainables import HeadStart

BIASES = 0.5  # of the bytes above the head alone may go to biases, before weights
FRACTIONS = (0.125, 0.25, 0.5, 1.0)  # of a layer's input channels
FRACTION_BITS = 4
SHARES = (0.5, 0.25)  # of what the head alone leaves, where there are records too
ENOUGH = 20  # of each class
REACH = 0.35  # of the convolutions, from the head on, learn beside records: further, and some sets lose by it
EVERYTHING = Scheme("everything", -1, {ALL: 1.0}, fraction_bits=FRACTION_BITS)
Need = Callable[[Scheme], float]
EXPANDS = 2  # times as many outputs as inputs, and more, has the first layer of an inverted residual


def largest(
    room: Room, passes: Passes, head: HeadStart = "zeros", tell: Callable[[], None] = lambda: None
) -> Scheme:
    """The largest default scheme that fits; the head alone where nothing else does.

    tell  is called for each scheme that is tried

    It trains the biases of the last k convolutions, as many as fit their share of the budget, and as much of
    their widening layers as fits: fraction after fraction, the smallest layers first. Where they all fit
    whole, the other layers follow.
    """

    need, quantized = needs(room, passes, tell), room.quantized
    names = convolutions(quantized)
    scheme = with_biases(room, head, need, len(names))
    reached = names[len(names) - scheme.biases :]
    first = widening(quantized, reached)
    for layers in (first, [name for name in reached if name not in first]):
        for fraction, name in product(FRACTIONS, layers):
            part = max(fraction, 1 / quantized.layers[name].columns)
            more = replace(scheme, weights={**scheme.weights, name: part})
            if need(more) <= room.sram:
                scheme = more
        if any(scheme.weights.get(name) != 1.0 for name in layers):
            break
    return named(scheme)


def named(scheme: Scheme) -> Scheme:
    """Called after how much it trains."""
    name = f"bias-{scheme.biases}" if scheme.biases else scheme.name
    return replace(scheme, name=f"{name}+{len(scheme.weights)}" if scheme.weights else name)


def last(
    room: Room, passes: Passes, head: HeadStart = "zeros", tell: Callable[[], None] = lambda: None
) -> Scheme:
    """The last layers of a network of inverted residuals, as many as are worth their bytes beside records.

    tell  is called for each scheme that is tried

    Biases of REACH of the convolutions, or of as many as fit their share of the budget; then the first layers
    of the inverted residuals among them, each as whole as fits. What such layers gain differs far less than
    their bytes do (lab/prior), so those with the fewest weights come first.
    """

    need = needs(room, passes, tell)
    scheme = with_biases(room, head, need, round(REACH * len(convolutions(room.quantized))))
    for name in expanding(room.quantized, scheme.biases):
        parts = (replace(scheme, weights={**scheme.weights, name: part}) for part in reversed(FRACTIONS))
        scheme = next((more for more in parts if need(more) <= room.sram), scheme)
    return named(scheme)


def needs(room: Room, passes: Passes, tell: Callable[[], None]) -> Need:
    """Bytes that a scheme takes; each one that is tried is told."""

    def need(scheme: Scheme) -> float:
        tell()
        return room.needed(scheme, passes)

    return need


def with_biases(room: Room, head: HeadStart, need: Need, most_biases: int) -> Scheme:
    """The head and the biases of the last convolutions: as many as fit their share of the budget."""
    scheme = Scheme("head-only", fraction_bits=FRACTION_BITS, head=head, rates=rates(room.quantized, head))
    least = need(scheme)
    share = least + BIASES * (room.sram - least)
    count = most(most_biases, lambda biases: need(replace(scheme, biases=biases)) <= share)
    return replace(scheme, biases=count)


def rates(quantized: Graph, head: HeadStart) -> tuple[float, float, float]:
    """Learning rates of weights, biases and head: larger for a head that knows the words of a new speaker."""
    knows = head == "keep" or isinstance(head, tuple)
    return RATE, RATE, KNOWN_WORDS_RATE if quantized.sound is not None and knows else RATE


def beside_records(room: Room, passes: Passes, head: HeadStart, tell: Callable[[], None]) -> Scheme:
    """A default scheme that leaves memory to a replay buffer: of what the head alone leaves it has a half, or
    less where that is too little for ENOUGH records of each class.

    Of a network of inverted residuals it is last(), and adds as much as the head alone takes at most; unless
    all of it may learn in what there is.

    passes  with a request for records; tell as in largest()
    """
    plain = replace(passes, replay=None)
    alone, residuals = Scheme("head-only", head=head), bool(expanding(room.quantized))
    least, bound = room.needed(alone, plain), room.needed(alone, replace(plain, imprint=0))
    found: list[tuple[int, Scheme]] = []
    for share in SHARES:
        more = share * max(0.0, room.sram - least)
        part = replace(room, sram=int(least + more))
        if residuals and not part.holds(EVERYTHING, plain):
            scheme = last(replace(room, sram=int(least + min(more, bound))), plain, head, tell)
        else:
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


def expanding(graph: Graph, last: int | None = None) -> list[str]:
    """The first layers of inverted residuals among the last so many convolutions, or all; the smallest first.

    They are pointwise and make EXPANDS times as many channels, and more, for a depthwise layer.
    """
    names = convolutions(graph)
    layers = {name: graph.layers[name] for name in names[0 if last is None else len(names) - last :]}
    behind = dict(pairwise(names))
    found = [
        name
        for name, layer in layers.items()
        if not layer.depthwise and widens(layer, EXPANDS) and graph.layers[behind.get(name, name)].depthwise
    ]
    return sorted(found, key=lambda name: layers[name].weight.size)


def widens(layer: Layer, times: float = 1) -> bool:
    """Whether a dense layer is pointwise and has more than so many times as many outputs as inputs."""
    outputs, height, width, inputs = layer.weight.shape
    result: bool = height == width == 1 and outputs > times * inputs
    return result
