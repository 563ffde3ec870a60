"""C expressions for the things a node uses, as the generated model.c declares them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .ir import Graph, Node

if TYPE_CHECKING:
    from .plan import Plan
    from .trainables import Trainable


def identifier(name: str) -> str:
    """A C identifier for a tensor or layer name."""
    return re.sub(r"\W", "_", name.replace(":", "_"))


def number(value: float) -> str:
    """A float32 constant, shortest text that reads back as the same bits."""
    text = np.format_float_scientific(np.float32(value), trim="0") if value else "0.0"
    return f"{text}f"


@dataclass(frozen=True, eq=False)
class Names:
    """What generated code calls things. `step` is the index of the node being emitted."""

    graph: Graph
    plan: Plan
    trainables: dict[str, Trainable]
    step: int = 0

    def at(self, tensor: str) -> str:
        """Address of a tensor in the arena."""
        return f"AT(T_{identifier(tensor)})"

    def error(self, tensor: str) -> str:
        return f"&{identifier(tensor)}"

    def clamp(self) -> str:
        """The clamp struct of this step."""
        return f"&clamp_{self.step}"

    def mask_out(self, node: Node) -> str:
        """Where a forward op writes its mask, or NULL; inference writes none."""
        if len(node.outputs) < 2:
            return "NULL"
        if node.again:
            return self.at(node.outputs[1])
        return f"train ? {self.at(node.outputs[1])} : NULL"

    def scratch(self, offset: int = 0) -> str:
        """Address in the scratch of this step."""
        if f"scratch:{self.step}" not in self.plan.placements:
            return "NULL"
        return f"AT(T_scratch_{self.step} + {offset})" if offset else f"AT(T_scratch_{self.step})"

    def struct(self, kind: str, node: Node) -> str:
        """Address of a layer's parameter struct: conv, weights, trained, bias_update, head."""
        return f"&{kind}_{identifier(node.layer or node.name)}"

    def stream(self, node: Node) -> str:
        """A stream goes by the tensor it makes."""
        return f"&stream_{identifier(node.outputs[0])}"

    def channels(self, node: Node) -> str:
        """Table of the trained channels of a partly trained layer."""
        return f"channels_{identifier(node.layer or node.name)}"

    def frozen_bias(self, layer: str) -> str:
        """Table of a layer's biases as converted."""
        return f"b_{identifier(layer)}"

    def trained(self, layer: str, kind: str) -> str | None:
        """Address inside the block of trainables, or None where that is not trained."""
        item = self.trainables.get(f"{layer}.{kind}")
        return f"TRAINED({item.offset})" if item else None
