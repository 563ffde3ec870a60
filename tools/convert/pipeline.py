"""The compiler: frontend > quantize > autodiff > prune > fuse > schedule > plan > emit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .autodiff import differentiate
from .check_plan import check_plan
from .emit import Output, emit
from .fuse import fuse
from .ir import ConvertError, Graph
from .plan import Plan, plan
from .prune import prune
from .schedule import schedule
from .scheme import Scheme, apply, convolutions
from .trainables import HeadStart, block_bytes, layout, new_head
from .verify import verify

# SRAM of the firmware beside the model: stack, serial ring, frame buffer, session (memory_report tells).
FIRMWARE_SRAM = 3072
FIRMWARE_FLASH = 40960


@dataclass(frozen=True, eq=False)
class Compiled:
    """A training graph with its memory plan."""

    graph: Graph
    plan: Plan
    scheme: Scheme

    @property
    def sram(self) -> int:
        """Estimated all-in SRAM in bytes: arena, trainables and the firmware's own."""
        return self.plan.arena + block_bytes(layout(self.graph)) + FIRMWARE_SRAM


def training_graph(quantized: Graph, scheme: Scheme, classes: int, streamed: bool = True) -> Graph:
    """Turn a quantized forward graph and a scheme into a scheduled training graph.

    streamed  run chains of frozen layers row by row; the bytes are the same without
    """
    graph = verify(with_head(quantized, classes, scheme.head))
    graph = verify(apply(graph, scheme))
    graph = verify(differentiate(graph, scheme.loss))
    graph = verify(prune(graph))
    graph = verify(fuse(graph)) if streamed else graph
    return verify(schedule(graph))


def compile_graph(quantized: Graph, scheme: Scheme, classes: int, streamed: bool = True) -> Compiled:
    """The training graph of a model and a scheme, with its memory plan."""
    graph = training_graph(quantized, scheme, classes, streamed)
    arena = plan(graph)
    check_plan(graph, arena)
    staging = block_bytes(layout(graph))  # a push of new trainables is collected in the arena
    return Compiled(graph, replace(arena, arena=max(arena.arena, staging)), scheme)


def generate(compiled: Compiled, origin: str) -> Output:
    return emit(compiled.graph, compiled.plan, compiled.scheme, origin)


def with_head(graph: Graph, classes: int, start: HeadStart) -> Graph:
    """The graph with the head of the new task."""
    node = graph.forward_nodes[-1]
    if node.op != "head" or node.layer is None:
        raise ConvertError(f"{graph.name} does not end in a linear layer: nothing can be its head")
    features = graph.tensors[node.inputs[0]].elements
    head = new_head(graph.layers[node.layer], features, classes, start)
    logits = replace(graph.tensors[graph.output], shape=(1, 1, classes))
    return graph.replace(
        layers={**graph.layers, node.layer: head}, tensors={**graph.tensors, graph.output: logits}
    )


def default_scheme(
    quantized: Graph, classes: int, budget_sram: int, streamed: bool = True, head: HeadStart = "zeros"
) -> Compiled:
    """The largest of a family of schemes that fits the SRAM budget.

    The family trains all weights of the last n convolutions with 8 fraction bits and the biases of the last
    2n, for n from all of them down to 0 (head only).
    """
    names = convolutions(quantized)
    for count in range(len(names), -1, -1):
        weights: dict[str | int, float | tuple[int, ...]] = dict.fromkeys(names[len(names) - count :], 1.0)
        biases = min(2 * count, len(names))
        scheme = Scheme(f"last-{count}", biases=biases, weights=weights, fraction_bits=8, head=head)
        compiled = compile_graph(quantized, scheme, classes, streamed)
        if compiled.sram <= budget_sram or count == 0:
            return compiled
    raise AssertionError("unreachable: count 0 returns")
