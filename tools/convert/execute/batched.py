"""A forward graph over batches of images, in NumPy: in float, or in int8 exactly as the device does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from microtrain.base.progress import Bars
from microtrain.convert.ir import Graph, Node
from microtrain.convert.ops import forward_op
from microtrain.convert.ops.table import Values
from microtrain.samples.stored import stored

BATCH_BYTES = 32 << 20

Observe = Callable[[str, np.ndarray], None]


def run_float(graph: Graph, images: np.ndarray, observe: Observe | None = None) -> np.ndarray:
    """Logits float64 [N, classes] of a float graph for uint8 images [N, h, w, c].

    observe  called with the name and values float64 [N, h, w, c] of every tensor
    """
    pixels = real_pixels(graph, images)
    return _walk(graph, pixels, lambda node, env: activate(float_node(graph, node, env), node.act), observe)


def run_int8(graph: Graph, images: np.ndarray, observe: Observe | None = None) -> np.ndarray:
    """Logits float32 [N, classes] of a quantized graph for uint8 images [N, h, w, c], those of the device.

    observe  called with the name and values of every tensor: int8 [N, h, w, c], logits float32
    """
    return _walk(graph, stored_pixels(graph, images), lambda node, env: int8_node(graph, node, env), observe)


def batches(graph: Graph, images: np.ndarray, what: str) -> Iterator[np.ndarray]:
    """The images in batches that fit BATCH_BYTES; how far it is shows a bar, or a line a minute."""
    size = batch_size(graph)
    with Bars(transient=True) as bars:
        bar = bars.add(what, len(images))
        for start in range(0, len(images), size):
            yield images[start : start + size]
            bar.advance(min(size, len(images) - start))


def batch_size(graph: Graph) -> int:
    """Images a batch so that the largest gathered window matrix stays within BATCH_BYTES."""
    largest = 1
    for node in graph.forward_nodes:
        pixels = graph.tensors[node.outputs[0]].pixels
        largest = max(largest, 8 * pixels * forward_op(node).gathers(graph, node))
    return int(np.clip(BATCH_BYTES // largest, 1, 64))


def _walk(
    graph: Graph, pixels: np.ndarray, run: Callable[[Node, Values], np.ndarray], observe: Observe | None
) -> np.ndarray:
    """Run every node, forgetting tensors once nothing reads them; returns the logits."""
    env = {graph.input.tensor: pixels}
    if observe:
        observe(graph.input.tensor, pixels)
    last = {t: step for step, node in enumerate(graph.nodes) for t in node.reads}
    for step, node in enumerate(graph.nodes):
        with np.errstate(over="ignore", invalid="ignore"):
            result = run(node, env)
        env[node.outputs[0]] = result
        if observe:
            observe(node.outputs[0], result)
        for name in {*node.reads, *node.outputs} - {graph.output}:
            if last.get(name, -1) <= step:
                env.pop(name, None)
    return env[graph.output].reshape(len(pixels), -1)


# ---- float


def real_pixels(graph: Graph, images: np.ndarray) -> np.ndarray:
    """Pixels as a float graph's input has them, float64: in float32 the sums behind them would end in bits
    that the processor chooses, and so would the scales that come of them."""
    return float_pixels(graph, images).astype(np.float64)


def float_pixels(graph: Graph, images: np.ndarray) -> np.ndarray:
    """Pixels as the graph's input has them, float32, as the device computes them."""
    gain, offset = (np.array(v, np.float32) for v in (graph.input.gain, graph.input.offset))
    return images.astype(np.float32) * gain + offset


def float_node(graph: Graph, node: Node, env: Values) -> np.ndarray:
    """The result of a node of a float graph before its activation."""
    return forward_op(node).float_run(graph, node, env)


def activate(x: np.ndarray, act: str) -> np.ndarray:
    if act == "none":
        return x
    result: np.ndarray = np.clip(x, np.float32(0.0), np.float32(6.0 if act == "relu6" else np.inf))
    return result


# ---- int8


def stored_pixels(graph: Graph, images: np.ndarray) -> np.ndarray:
    """Pixels as the device stores them, int8."""
    return stored(images, graph.input)


def int8_node(graph: Graph, node: Node, env: Values) -> np.ndarray:
    """The result of a node of a quantized graph: int8, logits float32."""
    return forward_op(node).int8_run(graph, node, env)
