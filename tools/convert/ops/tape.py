"""What a gradient rule appends to: the backward pass as far as it has been built.

Names: `err:T` is the gradient with respect to the sum that tensor T was requantized from (behind T's
clamp mask); `grad:T.i` is one reader's contribution to a tensor that has several readers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from microtrain.convert.ir import Clamp, Graph, Node, Tensor

from . import forward_op, joints
from .table import Leaves


@dataclass
class Tape:
    """What the gradient rules append to.

    tensors, nodes   of the backward pass so far
    contributions    tensor -> errors of its readers and the factor each enters with
    masks            tensors whose clamp mask the backward pass reads
    left             tensor -> what the op that makes it must write down beside it
    """

    graph: Graph
    loss: str
    tensors: dict[str, Tensor] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    contributions: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    masks: set[str] = field(default_factory=set)
    left: dict[str, str] = field(default_factory=dict)

    def tensor(self, name: str, like: str, dtype: str) -> str:
        """Declare a backward tensor of the same shape as `like`."""
        self.tensors[name] = Tensor(name, self.graph.tensors[like].shape, dtype)
        return name

    def left_by(self, node: Node) -> str:
        """What the forward pass of a node writes down beside its result."""
        y = node.outputs[0]
        self.left[y] = self.tensor(f"arg:{y}", y, forward_op(node).leaves.value)
        return self.left[y]

    def append(self, node: Node) -> None:
        self.nodes.append(node)

    def clamp_of(self, tensor: str) -> Clamp:
        """The clamp between a stored tensor and the sum of the op that made it."""
        producer = self.graph.producer(tensor)
        if producer is None or forward_op(producer).leaves is not Leaves.CLAMP_MASK:
            return Clamp()
        self.masks.add(tensor)
        return Clamp(f"mask:{tensor}", producer.layer)

    def send(self, tensor: str, node: Node) -> None:
        """Append a node whose result is a contribution to the gradient of `tensor`.

        With a single reader the contribution is the whole gradient, so it passes the clamp at once.
        """
        if tensor == self.graph.input.tensor:
            return
        if len(self.graph.readers(tensor)) == 1:
            error = self.tensor(f"err:{tensor}", tensor, "error")
            self.append(replace(node, outputs=(error,), clamp=self.clamp_of(tensor)))
            return
        sent = self.contributions.setdefault(tensor, [])
        raw = self.tensor(f"grad:{tensor}.{len(sent)}", tensor, "error")
        self.append(replace(node, outputs=(raw,), clamp=Clamp()))
        sent.append((raw, 1.0))

    def send_copy(self, tensor: str, error: str, factor: float, name: str) -> None:
        """Contribute `factor` times an error that already exists (what a residual add does)."""
        if tensor == self.graph.input.tensor:
            return
        if len(self.graph.readers(tensor)) == 1:
            make = joints.passed if factor >= 0 else joints.turned
            self.send(tensor, make(name, error, factor))
        else:
            self.contributions.setdefault(tensor, []).append((error, factor))

    def error_of(self, tensor: str) -> str | None:
        """The complete error of a tensor: the contributions of its readers summed, behind its clamp."""
        sent = self.contributions.get(tensor)
        if sent is None:
            return f"err:{tensor}" if f"err:{tensor}" in self.tensors else None
        producer = self.graph.producer(tensor)
        name = producer.name if producer else tensor
        total, factor = sent[0]
        for i, (other, other_factor) in enumerate(sent[1:], start=1):
            last = i == len(sent) - 1
            out = self.tensor(f"err:{tensor}" if last else f"grad:{tensor}.sum{i}", tensor, "error")
            clamp = self.clamp_of(tensor) if last else Clamp()
            self.append(joints.summed(name, (total, other), (factor, other_factor), out, clamp))
            total, factor = out, 1.0
        return total
