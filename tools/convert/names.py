"""Names and numbers as they may stand in C, and what the generated model.c calls the things a node uses."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from microtrain.convert.ir import ConvertError, Graph, Node

LONGEST = 80  # characters of a name


def safe_name(name: str) -> str:
    """The name with _ for all but letters, digits and `.`, `+`, `-` of ASCII: it may stand anywhere."""
    text = re.sub(r"[^A-Za-z0-9_.+-]", "_", name) or "_"
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}_{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:8]}"


def identifier(name: str) -> str:
    """A C identifier, or the end of one, for a tensor or layer name."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def comment(text: str) -> str:
    """The text as it may stand in a C comment: one that cannot end it, and no trigraphs."""
    plain = re.sub(r"[^ -~]", "_", text)
    return re.sub(r"\*(?=/)|/(?=\*)|\?(?=\?)|\\", "_", plain)


def c_string(text: str) -> str:
    """A C string literal of the text's ASCII characters."""
    escaped = re.sub(r'(["\\?])', r"\\\1", re.sub(r"[^ -~]", "_", text))
    return f'"{escaped}"'


def number(value: float) -> str:
    """A float32 constant, shortest text that reads back as the same bits; ConvertError if not finite."""
    with np.errstate(over="ignore"):
        finite = bool(np.isfinite(np.float32(value)))
    if not finite:
        raise ConvertError(
            f"the generated code would hold {value!r}, which is no finite float32: "
            "the scheme's rates and the model's scales and weights must stay below 3.4e38"
        )
    text = np.format_float_scientific(np.float32(value), trim="0") if value else "0.0"
    return f"{text}f"


@dataclass(frozen=True, eq=False)
class Names:
    """What generated code calls things.

    placed   what lies in the arena: tensors and the scratch of steps
    offsets  in the block of trainables, by layer and kind: "layer.weight"
    step     index of the node being emitted
    """

    graph: Graph
    placed: Collection[str]
    offsets: Mapping[str, int]
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
        if f"scratch:{self.step}" not in self.placed:
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

    def frozen_weights(self, layer: str) -> str:
        """Table of a layer's weights that stay frozen; what several layers use is there once."""
        return f"w_{identifier(self.graph.copies.get(layer, layer))}"

    def frozen_bias(self, layer: str) -> str:
        """Table of a layer's biases as converted."""
        return f"b_{identifier(layer)}"

    def trained(self, layer: str, kind: str) -> str | None:
        """Address inside the block of trainables, or None where that is not trained."""
        offset = self.offsets.get(f"{layer}.{kind}")
        return None if offset is None else f"TRAINED({offset})"
