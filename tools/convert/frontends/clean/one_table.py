"""Functions of one number that a model writes out, as one table.

x * relu6(x + 3) / 6, x / (1 + |x|), quick GELU and Mish by their formulas: each is a few maps in a file, and
depends on one stored number. As a table it rounds once, takes no map beside its input, and streams.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from microtrain.convert.ir import Graph, Node, Window
from microtrain.convert.ops import add, conv, functions, programs
from microtrain.convert.ops.multiply import MULTIPLY
from microtrain.convert.ops.programs import Program

from ..endings import Found

NEAR = 0.05  # of a divisor
NUMBERS = np.concatenate([[0.0], *(sign * np.geomspace(1e-3, 1e3, 1201) for sign in (1, -1))])
PLACES = {name: place for place, name in enumerate(functions.ACTIVATIONS)}


@dataclass(frozen=True)
class Made:
    """What a tensor is of another, number by number. made: the tensors in whose place a table would be"""

    root: str
    program: Program
    made: frozenset[str] = frozenset()


def one_table(graph: Graph, found: Found) -> Graph:
    """The graph with a table in the place of what several nodes make of each number of a tensor."""
    made = _made(graph)
    live, nodes = {graph.output}, list[Node]()
    for node in reversed(graph.nodes):
        if not live.intersection(node.outputs):
            continue
        own = made.get(node.outputs[0])
        if own is not None and len(own.made) > 1 and not functions.has_pole(node):
            node = replace(
                node,
                op=functions.CURVE,
                inputs=(own.root,),
                layer=None,
                window=None,
                act="none",
                factors=(functions.PROGRAM, *own.program),
            )
        live.update(node.inputs)
        nodes.insert(0, node)
    used = {n.layer for n in nodes}
    layers = {name: layer for name, layer in graph.layers.items() if name in used}
    return graph.replace(nodes=tuple(nodes), layers=layers)


def _made(graph: Graph) -> dict[str, Made]:
    """Of the tensors that nodes make number by number of another one."""
    found: dict[str, Made] = {}
    for node in graph.nodes:
        inputs = [found.get(x, Made(x, (programs.NUMBER,))) for x in node.inputs]
        alike = len({each.root for each in inputs}) == 1 and _is_free(graph, node, inputs[0].root)
        program = _program(graph, node, [each.program for each in inputs]) if alike else None
        if program is not None and len(program) <= programs.LONGEST:
            own = frozenset({node.outputs[0]}).union(*(each.made for each in inputs))
            found[node.outputs[0]] = Made(inputs[0].root, program, own)
    return found


def _is_free(graph: Graph, node: Node, root: str) -> bool:
    """Whether the file leaves the scales open, and the map keeps its shape."""
    tensors = [graph.tensors[t] for t in (*node.inputs, *node.outputs, root)]
    return len({t.shape for t in tensors}) == 1 and not any(t.given for t in tensors)


def _program(graph: Graph, node: Node, inputs: list[Program]) -> Program | None:
    """What a node makes of one number, given what its inputs are of it; None: it is not of one number."""
    made: Program | None = None
    if node.op in PLACES:
        apart = functions.is_steep(node) or (functions.has_pole(node) and not _stays_off(inputs[0]))
        made = None if apart else programs.function(inputs[0], PLACES[node.op], node.factors)
    elif node.op == MULTIPLY:
        made = programs.product(inputs[0], inputs[1])
    elif add.is_sum(node):
        made = programs.sum_of(inputs[0], inputs[1], add.times(node), add.share(node))
    elif node.op == conv.DEPTHWISE:
        made = _line(graph, node, inputs[0])
    if made is None or node.act == "none":
        return made
    return programs.function(made, PLACES[functions.CLIP], (0.0, functions.HIGHEST[node.act]))


def _line(graph: Graph, node: Node, of: Program) -> Program | None:
    """One factor and one shift for all channels, which nothing trains."""
    layer = graph.layers[node.layer or ""]
    alike = not np.ptp(layer.weight) and not np.ptp(layer.bias) and layer.weight_scale is None
    if not alike or layer.source.weight or node.window != Window(1, 1):
        return None
    return programs.line(of, float(layer.weight.flat[0]), float(layer.bias.flat[0]))


def _stays_off(program: Program) -> bool:
    """Whether a divisor comes near to 0 for no number: what does is said of the division alone."""
    found = functions.of_program(NUMBERS, program)
    return bool(np.isfinite(found).all() and np.abs(found).min() > NEAR and np.ptp(np.sign(found)) == 0)
