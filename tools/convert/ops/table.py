"""What an op is. All that the compiler knows of one stands in one `Op`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from microtrain.convert.ir import Graph, Node, Shape

from .bounds import Bounds

if TYPE_CHECKING:
    from microtrain.convert.emit.names import Names
    from microtrain.convert.passes.autodiff import Tape
    from microtrain.convert.reference.executor import Env


def no_gradient(tape: Tape, node: Node, error: str | None) -> None:
    raise ValueError(f"{node.op} of {node.name} is a backward op: it has no gradient")


def no_scratch(graph: Graph, node: Node) -> int:
    return 0


def no_macs(graph: Graph, node: Node) -> int:
    return 0


def not_in_place(graph: Graph, node: Node) -> Mapping[int, int]:
    return {}


def in_place_of(*positions: int) -> Callable[[Graph, Node], Mapping[int, int]]:
    """For ops that go element by element: the output may begin where one of these inputs begins."""
    return lambda graph, node: dict.fromkeys((p for p in positions if p < len(node.inputs)), 0)


@dataclass(frozen=True)
class Op:
    """One op of the IR.

    shapes        shape of each output, from the node's inputs and window
    run           the NumPy reference: reads and writes the executor's environment
    call          the C call, one line
    accumulators  the integers that the kernel keeps and how large they can become; no op goes without
    gradient      appends the backward nodes of a forward node to the tape
    scratch       bytes the kernel needs beside its arguments: asks the kernel's own C function
    macs          multiply-accumulates of one execution
    clamps        the output went through a saturation whose mask the backward pass needs
    updates       changes the layer's trainables: the node is there for its effect
    in_place      inputs whose memory the first output may take: position -> by how many bytes at least it
                  must begin before that input
    """

    shapes: Callable[[Graph, Node], tuple[Shape, ...]]
    run: Callable[[Env, Node], None]
    call: Callable[[Names, Node], str]
    accumulators: Bounds = field(kw_only=True)
    gradient: Callable[[Tape, Node, str | None], None] = no_gradient
    scratch: Callable[[Graph, Node], int] = no_scratch
    macs: Callable[[Graph, Node], int] = no_macs
    clamps: bool = False
    updates: bool = False
    in_place: Callable[[Graph, Node], Mapping[int, int]] = not_in_place
