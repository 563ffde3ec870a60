"""Attention and position embeddings: PyTorch's values and gradients, the same bytes everywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import Builder
from test_executor import partly_trained, run_both
from test_gradients import LEAST, cosines, everything
from test_parallel import assert_simulated, compiled, image_of
from test_stream import assert_same_logits

from microtrain.convert.emit.code import generate
from microtrain.convert.ir import ConvertError, Graph, Node, Window
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import TABLE, attention, normalise
from microtrain.convert.passes.accumulators import prove
from microtrain.convert.pipeline import Passes, compile_graph
from microtrain.convert.scheme import Scheme, convolutions

KINDS = {"class token": (1, 1, 2), "all tokens": (1, 1, 0), "phases": (2, 3, 0)}
LAYERS = 2


class Tokens(Builder):
    """Layers of an encoder, as they are after quantization."""

    def norm(self, x: str) -> str:
        y = self.layer(normalise.GROUP_NORM, x, factors=(1e-5, 1.0, 1.0))
        return self.depthwise(y, 1, 1, relu=False)

    def encoder(self, x: str, heads: int, down: int, across: int) -> str:
        c = self.tensors[x].channels
        seen = self.attention(self.conv(self.norm(x), 3 * c, relu=False), heads, down, across)
        x = self.add(self.conv(seen, c, relu=False), x)
        return self.add(self.conv(self.layer("silu", self.conv(self.norm(x), 2 * c, relu=False)), c), x)

    def pooled(self, x: str, first: bool) -> str:
        h, w, c = self.tensors[x].shape
        window = Window(1, 1, more_h=1 - h, more_w=1 - w) if first else Window(h, w, h, w)
        y = self._tensor((1, 1, c), self.tensors[x].scale, self.tensors[x].zero)
        self.nodes.append(Node("avgpool", f"pooled{len(self.nodes)}", (x,), (y,), None, window))
        return y


def network(seed: int = 0, kind: str = "class token", classes: int = 5) -> Graph:
    """Patches, positions, two layers of an encoder, and the first token or the mean of all."""
    down, across, lead = KINDS[kind]
    b = Tokens(np.random.default_rng(seed), (8, 12, 3))
    x = b.position(b.conv("x", 12, 2, 2, pad=0, relu=False), lead)
    for _ in range(LAYERS):
        x = b.encoder(x, 3, down, across)
    return b.finish(b.pooled(b.norm(x), lead > 0), classes)


@pytest.mark.parametrize("errors", ["fp32", "int8"])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_autograd(kind: str, errors: str) -> None:
    found = cosines(everything(network(kind=kind)).graph, errors)
    assert min(found.values()) > LEAST[errors], found


def test_a_gradient_to_the_values_alone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, op = everything(network()).graph, TABLE[attention.BACKWARD]

    def of_values(env: Any, node: Node) -> None:
        op.run(env, node)
        error = env.values[node.outputs[0]].copy()
        error[..., : 2 * error.shape[-1] // 3] = 0
        env.values[node.outputs[0]] = error

    monkeypatch.setitem(TABLE, op.name, replace(op, run=of_values))
    assert min(cosines(graph, "fp32").values()) < 0.999


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("kind", KINDS)
def test_generated_code_trains_like_the_executor(kind: str, compiler: str, tmp_path: Path) -> None:
    trained = partly_trained(network(1, kind), 8)
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path, compiler), 6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_before_and_behind_it_stream(kind: str, tmp_path: Path) -> None:
    frozen = compile_graph(network(kind=kind), Scheme("head", head="random"), 5, Passes())
    assert_same_logits(frozen, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_the_simulation_has_the_executors_gradients(kind: str, tmp_path: Path) -> None:
    graph = network(kind=kind)
    assert_simulated(compiled(graph, len(convolutions(graph)), 1.0), image_of(graph, 1), tmp_path)


def test_its_integers_are_proven() -> None:
    graph = everything(network()).graph
    assert prove(graph) is graph
    maps = [graph.tensors[n.inputs[0]] for n in graph.forward_nodes if n.op == attention.ATTENTION]
    grown = {x.name: replace(x, shape=(700, 1, x.channels)) for x in maps}
    with pytest.raises(ConvertError, match=r"a sum of .* can reach .* fewer tokens"):
        prove(graph.replace(tensors={**graph.tensors, **grown}))
