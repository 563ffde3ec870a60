"""The compiler, from the quantized graph to its memory plan.

frontend > quantize > narrow > autodiff > prune > recompute > fuse > schedule > plan > strips > emit
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from microtrain.base.plan import block_of

from .ir import ConvertError, Graph
from .memory import strips
from .memory.check_plan import check_plan
from .memory.fleet import fleet_bytes, room_of
from .memory.imprint import features_of
from .memory.plan import GAP, Plan, busiest, fits, peak
from .memory.replay import Request, buffer_bytes, with_record
from .ops import forward_op, has_head, prototypes
from .ops.losses import task_of
from .ops.table import Learns
from .passes.accumulators import prove, warn_coarse
from .passes.autodiff import differentiate
from .passes.fuse import fuse
from .passes.lite_residuals import with_lite_residuals
from .passes.prune import prune
from .passes.recompute import recompute
from .passes.schedule import schedule
from .scheme import Scheme, apply, beyond
from .trainables import HeadStart, block_bytes, layout, new_head
from .verify import verify
from .weights import stored_bytes

# SRAM of the firmware beside the model: stack, serial ring, frame buffer, session (memory_report tells). The
# networks of the zoo, the bench and lab/sizes take 3,016 to 3,124 bytes on either board, whatever they train:
# a little more, so that what fits as a plan fits as a firmware.
FIRMWARE_SRAM = 3168
FRAME = 512  # of it, the frame buffer: longer where a row of the image is
MOVING = 64  # more where the rows of windows that overlap arrive: the stack of what takes them
UNLIMITED = 1 << 32  # bytes of an arena that nothing is made again for


@dataclass(frozen=True)
class Passes:
    """Which of the memory passes run. What a model computes is the same, bit for bit, without any of them.

    in_place  outputs take the memory of inputs that die
    fused     chains of frozen layers run row by row
    chained   such chains reach over several blocks
    arriving  the image's rows enter the first chain as they come; else the image is whole in memory
    arena     bytes of arena above which what the backward pass needs is made again rather than kept
    replay    the buffer of old records that a firmware should have beside the model, if any
    imprint   features of which the covariance is kept together; 0: no statistics of features
    fleet     share of all trained bytes that an update has at most which the board makes itself; 0: its
              gateway does
    strip     rows of an image that enter the first chain at once, at least
    """

    in_place: bool = True
    fused: bool = True
    chained: bool = True
    arriving: bool = True
    arena: int = UNLIMITED
    replay: Request | None = None
    imprint: int = 0
    fleet: float = 0.0
    strip: int = 1


ALL_PASSES = Passes()


@dataclass(frozen=True, eq=False)
class Compiled:
    """A training graph with its memory plan.

    records  of the replay buffer; 0: none
    """

    graph: Graph
    plan: Plan
    scheme: Scheme
    records: int = 0

    @property
    def replay_bytes(self) -> int:
        """SRAM of the replay buffer."""
        return buffer_bytes(self.graph, self.records) if self.records else 0

    @property
    def sram(self) -> int:
        """Estimated all-in SRAM in bytes: arena, trainables, replay buffer and the firmware's own."""
        return self.plan.arena + fixed_sram(self.graph) + self.replay_bytes


def fixed_sram(graph: Graph, replay: Request | None = None) -> int:
    """Estimated bytes of SRAM beside the arena: trainables, what a fleet needs, replay buffer and the
    firmware's own."""
    own = block_bytes(layout(graph)) + fleet_bytes(graph) + firmware_sram(graph)
    return own + (replay.needed(graph) if replay else 0)


def firmware_sram(graph: Graph) -> int:
    """Estimated bytes of SRAM that are the firmware's own."""
    _, width, channels = graph.tensors[graph.input.tensor].shape
    target = 4 * graph.tensors[graph.output].channels if task_of(graph) else 0
    more = MOVING if graph.hop and graph.arriving else 0
    return FIRMWARE_SRAM + max(0, width * channels - FRAME) + more + target


def sparse_graph(quantized: Graph, scheme: Scheme, classes: int) -> Graph:
    """The training graph of a quantized forward graph, pruned to what the scheme trains.

    Raises ConvertError where an integer of a kernel could overflow.
    """
    graph = verify(ended(quantized, scheme, classes))
    if not (has_head(graph) or graph.centre or scheme.biases or scheme.weights):
        scheme = replace(scheme, biases=1)  # without a head that much there is to learn
    graph = verify(apply(graph, scheme))
    if scheme.lite:
        graph = reached(with_lite_residuals(graph, scheme.lite, scheme.fraction_bits))
    graph = verify(differentiate(graph, scheme.loss))
    return prove(verify(prune(graph)))


def reached(graph: Graph) -> Graph:
    """The graph. ConvertError where a gradient does not reach a lite residual module."""
    for name, closed in beyond(graph).items():
        if (block := block_of(name)) is not None:
            raise ConvertError(
                f"{graph.name}: a lite residual beside {block} learns nothing, as no gradient "
                f"passes through {closed} behind it: leave that block out"
            )
    return graph


def training_graph(quantized: Graph, scheme: Scheme, classes: int, passes: Passes = ALL_PASSES) -> Graph:
    """The training graph in the order in which it runs."""

    def ordered(graph: Graph) -> Graph:
        graph = with_record(graph) if passes.replay else graph
        if not passes.fused:
            return schedule(graph)
        return schedule(strips.wide(fuse(graph, passes.chained, passes.arriving), passes.strip))

    graph = sparse_graph(quantized, scheme, classes)
    graph = graph.replace(imprint=min(passes.imprint, features_of(graph)), fleet=room_of(graph, passes.fleet))
    if passes.arena < UNLIMITED:
        graph = verify(recompute(graph, lambda g: busiest(ordered(g), passes.in_place), passes.arena))
    return verify(ordered(graph))


def compile_graph(quantized: Graph, scheme: Scheme, classes: int, passes: Passes = ALL_PASSES) -> Compiled:
    """The training graph of a model and a scheme, with its memory plan."""
    graph = training_graph(quantized, scheme, classes, passes)
    return planned(graph, scheme, passes, int(passes.arena / (1 - GAP)))


def planned(graph: Graph, scheme: Scheme, passes: Passes, room: int = UNLIMITED) -> Compiled:
    """A training graph with its memory plan, its streams as tall as that leaves room for.

    room  bytes that the arena should have at most
    """
    graph, arena = strips.planned(graph, passes.in_place, room)
    check_plan(prove(verify(graph)), arena)
    warn_coarse(graph)
    return Compiled(graph, arena, scheme)


def compile_within(
    quantized: Graph, scheme: Scheme, classes: int, budget_sram: int, passes: Passes = ALL_PASSES
) -> Compiled:
    """compile_graph(), with as much made again in the backward pass as it takes to keep to the budget.

    The result may still be over the budget, where no recomputation helps.
    """
    graph = training_graph(quantized, scheme, classes, passes)
    room = budget_sram - fixed_sram(graph, passes.replay)
    if room <= 0 or fits(graph, room, passes.in_place):
        return planned(graph, scheme, passes, room)
    return compile_graph(quantized, scheme, classes, replace(passes, arena=int(room * (1 - GAP))))


@dataclass(frozen=True, eq=False)
class Room:
    """What a model is to be compiled into.

    sram   bytes, all in
    flash  bytes for weights, those that stay frozen still to be put into four bits; None: nothing is
    """

    quantized: Graph
    classes: int
    sram: int
    flash: int | None = None

    def needed(self, scheme: Scheme, passes: Passes) -> float:
        """Bytes of SRAM that a scheme takes, with what the planner may stay above its bound; infinitely many
        where flash does not hold its weights."""
        graph = training_graph(self.quantized, scheme, self.classes, passes)
        if self.flash is not None and stored_bytes(graph) > self.flash:
            return math.inf
        return peak(graph, passes.in_place) * (1 + GAP) + fixed_sram(graph, passes.replay)

    def records(self, scheme: Scheme, passes: Passes) -> int:
        """How many records of passes.replay a scheme leaves room for, about."""
        if passes.replay is None:
            return 0
        graph = training_graph(self.quantized, scheme, self.classes, passes)
        spare = int(self.sram - peak(graph, passes.in_place) * (1 + GAP) - fixed_sram(graph))
        return passes.replay.size(graph, spare, passes.replay.part(graph, spare))

    def holds(self, scheme: Scheme, passes: Passes) -> bool:
        return self.needed(scheme, passes) <= self.sram


def ended(quantized: Graph, scheme: Scheme, classes: int) -> Graph:
    """The graph with the end of the new task: prototypes, or a head; an autoencoder has its own."""
    if quantized.centre:
        return prototypes.closed(quantized, classes)
    return with_head(quantized, classes, scheme.head) if has_head(quantized) else quantized


def with_head(graph: Graph, classes: int, start: HeadStart) -> Graph:
    """The graph with the head of the new task."""
    node = graph.forward_nodes[-1]
    if forward_op(node).learns is not Learns.HEAD or node.layer is None:
        raise ConvertError(f"{graph.name} does not end in a linear layer: nothing can be its head")
    features = graph.tensors[node.inputs[0]].elements
    head = new_head(graph.layers[node.layer], features, classes, start)
    logits = replace(graph.tensors[graph.output], shape=(1, 1, classes))
    return graph.replace(
        layers={**graph.layers, node.layer: head}, tensors={**graph.tensors, graph.output: logits}
    )
