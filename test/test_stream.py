"""Chains that run row by row give the bytes of whole tensors, in less memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from networks import Builder, random_network, residual_network
from test_executor import images

from microtrain.convert.emit.code import generate
from microtrain.convert.execute.executor import Executor
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.memory.check_plan import check_plan
from microtrain.convert.memory.plan import plan
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops.stream import STAGES_MAX, stages
from microtrain.convert.pipeline import Compiled, Passes, compile_graph
from microtrain.convert.scheme import Scheme, convolutions

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


def pooled_network() -> Graph:
    """Poolings inside a chain, with padding on all sides and without, and one that ends it."""
    b = Builder(np.random.default_rng(6), (21, 21, 3))
    x = b.pool("maxpool", b.conv("x", 6, 3, relu=False), 3, 2, 1)
    x = b.depthwise(b.pool("avgpool", x, 3, 1, 1), 3)
    return b.finish(b.pool("avgpool", b.conv(x, 8), 2, 2), 4)


def long_network() -> Graph:
    """More layers than one step runs row by row."""
    b = Builder(np.random.default_rng(8), (9, 9, 3))
    x = b.conv("x", 4, 3)
    for _ in range(STAGES_MAX):
        x = b.depthwise(x)
    return b.finish(b.conv(x, 5), 4)


def padded_network() -> Graph:
    """Pixels beside the image that no window of an inner one sees."""
    b = Builder(np.random.default_rng(9), (9, 9, 3))
    x = b.conv(b.conv("x", 4, 3), 5, 1, pad=1)
    return b.finish(b.conv(b.depthwise(x), 6), 4)


NETWORKS: dict[str, Callable[[], Graph]] = {
    "long": long_network,
    "padded": padded_network,
    "residual": residual_network,
    "awkward": awkward_network,
    "pooled": pooled_network,
    **{f"random {seed}": partial(random_network, seed) for seed in range(12)},
}


def planned(graph: Graph) -> Compiled:
    """A graph whose passes a test has chosen, with its checked plan."""
    placed = plan(graph)
    check_plan(graph, placed)
    return Compiled(graph, placed, HEAD)


def assert_same_logits(compiled: Compiled, folder: Path) -> None:
    """The generated C against the executor, which runs layer by layer."""
    native, executor = NativeModel(generate(compiled, "a test"), folder), Executor(compiled.graph)
    for image in images(compiled.graph, 4):
        assert native.forward(image, train=False).tobytes() == executor.forward(image).tobytes()


@pytest.mark.parametrize("name", NETWORKS)
def test_rows_give_the_same_logits(name: str, tmp_path: Path) -> None:
    compiled = compile_graph(NETWORKS[name](), HEAD, 5)
    assert any(node.op == "stream" for node in compiled.graph.nodes)
    assert compiled.graph.arriving == (compiled.graph.nodes[0].op == "stream")
    assert_same_logits(compiled, tmp_path)


@pytest.mark.parametrize(("channels", "side"), [(1, 5), (4, 6), (9, 7)])
def test_rows_that_are_read_where_they_lie_are_not_written_over(
    channels: int, side: int, tmp_path: Path
) -> None:
    """A pointwise layer and an activation are one stage, whose result took the place of its own input."""
    b = Builder(np.random.default_rng(1), (side, side, 3 if channels > 1 else 1))
    x = b.layer("silu", b.conv("x", channels, 1, relu=False))
    compiled = compile_graph(b.finish(x, 4), HEAD, 4, Passes(arriving=False))
    assert_same_logits(compiled, tmp_path)


@pytest.mark.parametrize("name", ["residual", "awkward", "pooled"])
@pytest.mark.parametrize("rows", [2, 3, 16])
def test_the_result_does_not_depend_on_how_many_rows_enter_at_once(
    name: str, rows: int, tmp_path: Path
) -> None:
    for arriving in (True, False):
        graph = compile_graph(NETWORKS[name](), HEAD, 5, Passes(arriving=arriving)).graph
        nodes = tuple(replace(n, rows=rows) if n.op == "stream" else n for n in graph.nodes)
        assert_same_logits(planned(graph.replace(nodes=nodes)), tmp_path / str(arriving))


@pytest.mark.parametrize("name", ["residual", "awkward"])
def test_an_image_in_memory_is_eaten_by_what_grows_in_its_place(name: str, tmp_path: Path) -> None:
    compiled = compile_graph(NETWORKS[name](), HEAD, 5, Passes(arriving=False))
    first = compiled.graph.nodes[0]
    image, result = (compiled.plan.placements[t] for t in (first.inputs[0], first.outputs[0]))
    assert image.offset < result.offset + result.bytes
    assert result.offset < image.offset + image.bytes
    assert_same_logits(compiled, tmp_path)


def test_growing_too_early_is_caught() -> None:
    """The checker refuses a result that begins one place later than the rows allow."""
    graph = awkward_network()
    compiled = compile_graph(graph, HEAD, 5, Passes(arriving=False))
    first = compiled.graph.nodes[0]
    image, result = (compiled.plan.placements[t] for t in (first.inputs[0], first.outputs[0]))
    late = image.offset + image.bytes - result.bytes
    placements = {**compiled.plan.placements, result.name: replace(result, offset=late // 8 * 8)}
    with pytest.raises(ConvertError, match="over its own input"):
        check_plan(compiled.graph, replace(compiled.plan, placements=placements))


def test_streaming_saves_memory_and_no_work() -> None:
    graph = residual_network(size=32)
    whole, rows = (compile_graph(graph, HEAD, 5, Passes(fused=fused)) for fused in (False, True))
    assert rows.plan.arena < 0.8 * whole.plan.arena
    assert len(rows.graph.nodes) < len(whole.graph.nodes)


def test_a_step_has_as_many_stages_as_its_kernel_keeps_and_no_more() -> None:
    nodes = compile_graph(long_network(), HEAD, 4).graph.nodes
    assert max(len(stages(list(node.parts))) for node in nodes) == STAGES_MAX


def test_poolings_are_stages_too_but_for_one_of_the_whole_map() -> None:
    nodes = compile_graph(pooled_network(), HEAD, 4).graph.nodes
    ops = [[part.op for part in node.parts] for node in nodes if node.parts]
    assert ops == [["conv2d", "maxpool", "avgpool", "dwconv2d", "conv2d", "avgpool"]]
    assert [node.op for node in nodes[1:3]] == ["avgpool", "head"]


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
    assert ".pad_h = 3" in text
    files = {**output.files, "model.c": text.replace(".pad_h = 3", ".pad_h = 2")}
    native = NativeModel(replace(output, files=files), tmp_path)
    executor = Executor(compiled.graph)
    found = [
        native.forward(x, train=False).tobytes() == executor.forward(x).tobytes()
        for x in images(compiled.graph, 4)
    ]
    assert not all(found)
