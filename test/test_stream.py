"""Chains that run row by row give the bytes of whole tensors, in less memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from convert.executor import Executor
from convert.ir import Graph
from convert.native_model import NativeModel
from convert.pipeline import compile_graph, generate
from convert.scheme import Scheme, convolutions
from networks import Builder, random_network, residual_network
from test_executor import images

HEAD = Scheme("head", head="random")


def awkward_network() -> Graph:
    """Awkward windows: strides over 1x1 kernels, an even kernel, no padding, 7x7 on a small image."""
    b = Builder(np.random.default_rng(5), (19, 17, 3))
    x = b.conv("x", 5, 3, 2, pad=0)
    x = b.conv(x, 7, 1, 2)
    x = b.depthwise(x, 7)
    x = b.conv(x, 6, 2, 1, pad=1)
    x = b.depthwise(x, 5, 2)
    return b.finish(b.conv(x, 9), 4)


NETWORKS: dict[str, Callable[[], Graph]] = {
    "residual": residual_network,
    "awkward": awkward_network,
    **{f"random {seed}": partial(random_network, seed) for seed in range(12)},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_rows_give_the_same_logits(name: str, tmp_path: Path) -> None:
    graph = NETWORKS[name]()
    compiled = compile_graph(graph, HEAD, 5)
    assert any(node.op == "stream" for node in compiled.graph.nodes)
    native, executor = NativeModel(generate(compiled, "a test"), tmp_path), Executor(compiled.graph)
    for image in images(graph, 4):
        assert native.forward(image, train=False).tobytes() == executor.forward(image).tobytes()


def test_streaming_saves_memory_and_no_work() -> None:
    graph = residual_network(size=32)
    whole, rows = (compile_graph(graph, HEAD, 5, streamed=streamed) for streamed in (False, True))
    assert rows.plan.arena < 0.8 * whole.plan.arena
    assert len(rows.graph.nodes) < len(whole.graph.nodes)


def test_what_the_backward_pass_needs_is_not_streamed() -> None:
    graph = residual_network()
    names = convolutions(graph)
    scheme = Scheme("tail", biases=len(names) - 4, weights={names[4]: 0.5})
    compiled = compile_graph(graph, scheme, 5)
    streamed = {p.layer for n in compiled.graph.nodes for p in n.parts if p.layer}
    assert streamed == set(names[:4])


def test_a_residual_add_may_name_its_inputs_in_any_order() -> None:
    for graph in (residual_network(), swapped(residual_network())):
        compiled = compile_graph(graph, HEAD, 5)
        assert sum(n.parts[-1].op == "add" for n in compiled.graph.nodes if n.parts) == 2


def swapped(graph: Graph) -> Graph:
    nodes = (replace(n, inputs=n.inputs[::-1]) if n.op == "add" else n for n in graph.nodes)
    return graph.replace(nodes=tuple(nodes))


def test_a_wrong_row_is_noticed(tmp_path: Path) -> None:
    """The comparison can fail: one stage begins without its padding."""
    compiled = compile_graph(awkward_network(), HEAD, 4)
    output = generate(compiled, "a test")
    text = output.files["model.c"]
    start = text.index("stages_")
    line = next(line for line in text[start:].splitlines() if line.endswith("1, 3, 1},"))
    files = {**output.files, "model.c": text.replace(line, line.replace("1, 3, 1},", "1, 2, 1},"))}
    native = NativeModel(replace(output, files=files), tmp_path)
    executor = Executor(compiled.graph)
    found = [
        native.forward(x, train=False).tobytes() == executor.forward(x).tobytes()
        for x in images(compiled.graph, 4)
    ]
    assert not all(found)
