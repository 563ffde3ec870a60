"""A forward graph over batches of images, in NumPy: in float, or in int8 exactly as the device does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from rich.progress import Progress

from microtrain.base.terminal import console
from microtrain.convert.ir import ConvertError, Graph, Layer, Node, Window
from microtrain.convert.ops.conv import multipliers

from .numeric import sat8

BATCH_BYTES = 32 << 20
PROGRESS_AFTER_S = 2.0
EXACT_F32 = 2**24  # integers up to here, and sums that stay below it in any order, are exact in float32

Values = Mapping[str, np.ndarray]
Observe = Callable[[str, np.ndarray], None]


def run_float(graph: Graph, images: np.ndarray, observe: Observe | None = None) -> np.ndarray:
    """Logits float32 [N, classes] of a float graph for uint8 images [N, h, w, c].

    observe  called with the name and values [N, h, w, c] of every tensor
    """
    pixels = float_pixels(graph, images)
    return _walk(graph, pixels, lambda node, env: activate(float_node(graph, node, env), node.act), observe)


def run_int8(graph: Graph, images: np.ndarray, observe: Observe | None = None) -> np.ndarray:
    """Logits float32 [N, classes] of a quantized graph for uint8 images [N, h, w, c], those of the device.

    observe  called with the name and values of every tensor: int8 [N, h, w, c], logits float32
    """
    return _walk(graph, stored_pixels(graph, images), lambda node, env: int8_node(graph, node, env), observe)


def batches(graph: Graph, images: np.ndarray, what: str) -> Iterator[np.ndarray]:
    """The images in batches that fit BATCH_BYTES; a progress bar on stderr where it takes long."""
    size = batch_size(graph)
    terminal = console(stderr=True)
    with Progress(console=terminal, transient=True, disable=not terminal.is_terminal) as progress:
        task = progress.add_task(what, total=len(images), visible=False)
        for start in range(0, len(images), size):
            yield images[start : start + size]
            slow = (progress.tasks[0].elapsed or 0.0) > PROGRESS_AFTER_S
            progress.update(task, advance=size, visible=slow)


def batch_size(graph: Graph) -> int:
    """Images a batch so that the largest gathered window matrix stays within BATCH_BYTES."""
    largest = 1
    for node in graph.forward_nodes:
        y = graph.tensors[node.outputs[0]]
        taps = graph.layers[node.layer].weight[0].size if node.op == "conv2d" and node.layer else y.channels
        largest = max(largest, 4 * y.pixels * int(taps))
    return int(np.clip(BATCH_BYTES // largest, 1, 64))


def _walk(
    graph: Graph, pixels: np.ndarray, run: Callable[[Node, Values], np.ndarray], observe: Observe | None
) -> np.ndarray:
    """Run every node, forgetting tensors once nothing reads them; returns the logits."""
    env = {graph.input.tensor: pixels}
    if observe:
        observe(graph.input.tensor, pixels)
    for step, node in enumerate(graph.nodes):
        with np.errstate(over="ignore", invalid="ignore"):
            result = run(node, env)
        env[node.outputs[0]] = result
        if observe:
            observe(node.outputs[0], result)
        alive = {t for n in graph.nodes[step + 1 :] for t in n.reads} | {graph.output}
        env = {name: value for name, value in env.items() if name in alive}
    return env[graph.output].reshape(len(pixels), -1)


# ---- float


def float_pixels(graph: Graph, images: np.ndarray) -> np.ndarray:
    """Pixels as the graph's input has them, float32."""
    gain, offset = (np.array(v, np.float32) for v in (graph.input.gain, graph.input.offset))
    return images.astype(np.float32) * gain + offset


def float_node(graph: Graph, node: Node, env: Values) -> np.ndarray:
    """The result of a node of a float graph before its activation."""
    x = env[node.inputs[0]]
    if node.op == "add":
        return x + env[node.inputs[1]]
    if node.op == "head":
        layer = graph.layers[node.layer or ""]
        return (x.reshape(len(x), -1) @ layer.weight.T + layer.bias).reshape(len(x), 1, 1, -1)
    assert node.window is not None, node.name
    if node.op in ("conv2d", "dwconv2d"):
        layer = graph.layers[node.layer or ""]
        return window_sums(x, layer.weight, node.window) + layer.bias
    if node.op == "avgpool":
        total = np.add.reduce(list(_taps(x, node.window, 0.0)))
        return np.asarray(total / np.float32(node.window.kh * node.window.kw))
    if node.op == "maxpool":
        return np.maximum.reduce(list(_taps(x, node.window, -np.inf)))
    raise ConvertError(f"{node.op} of {node.name} is not an op of a float graph")


def activate(x: np.ndarray, act: str) -> np.ndarray:
    if act == "none":
        return x
    return np.clip(x, np.float32(0.0), np.float32(6.0 if act == "relu6" else np.inf))


# ---- int8


def stored_pixels(graph: Graph, images: np.ndarray) -> np.ndarray:
    """Pixels as the device stores them, int8."""
    return sat8(np.rint(float_pixels(graph, images)))


def int8_node(graph: Graph, node: Node, env: Values) -> np.ndarray:
    """The result of a node of a quantized graph: int8, logits float32."""
    x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    stored = env[node.inputs[0]]
    if node.op == "head":
        return _logits(graph.layers[node.layer or ""], centred(stored, x.zero) * np.float32(x.scale))
    if node.op == "add":
        b = graph.tensors[node.inputs[1]]
        left = centred(stored, x.zero) * np.float32(x.scale)
        right = centred(env[b.name], b.zero) * np.float32(b.scale)
        return _requantized((left + right) / np.float32(y.scale), y.zero)
    if node.op in ("conv2d", "dwconv2d"):
        total = sums(graph, node, stored).astype(np.float32)
        return _requantized(total * multipliers(graph, node), y.zero)
    assert node.window is not None, node.name
    if node.op == "avgpool":
        total = np.add.reduce(list(_taps(stored.astype(np.float32), node.window, x.zero)))
        return sat8(np.rint(total / np.float32(node.window.kh * node.window.kw)))
    if node.op == "maxpool":
        return np.maximum.reduce(list(_taps(stored, node.window, -128)))
    raise ConvertError(f"{node.op} of {node.name} is not an op of a quantized forward graph")


def centred(stored: np.ndarray, zero: int) -> np.ndarray:
    """int8 less its zero point, float32."""
    return stored.astype(np.float32) - np.float32(zero)


def sums(graph: Graph, node: Node, stored: np.ndarray) -> np.ndarray:
    """The int32 sums of a convolution, bias included, as floats wide enough to hold every one exactly.

    stored  int8 [N, h, w, c_in]
    """
    assert node.window is not None, node.name
    layer = graph.layers[node.layer or ""]
    reach = np.abs(layer.weight.astype(np.int64)).reshape(len(layer.bias), -1).sum(axis=1) * 255
    most = int((reach + np.abs(layer.bias.astype(np.int64))).max())
    wide = np.float32 if most < EXACT_F32 else np.float64
    x = centred(stored, graph.tensors[node.inputs[0]].zero).astype(wide, copy=False)
    return window_sums(x, layer.weight.astype(wide), node.window) + layer.bias.astype(wide)


def _requantized(values: np.ndarray, zero: int) -> np.ndarray:
    """sat8((int)rint(value) + zero) of float32 values, which are overwritten."""
    np.rint(np.clip(values, -1024.0, 1024.0, out=values), out=values)
    values += np.float32(zero)
    return np.clip(values, -128.0, 127.0, out=values).astype(np.int8)


def _logits(layer: Layer, features: np.ndarray) -> np.ndarray:
    """The head's sums in the device's order: from the bias on, feature by feature."""
    flat = features.reshape(len(features), -1)
    result = np.tile(layer.bias.astype(np.float32), (len(flat), 1))
    for column, feature in zip(layer.weight.astype(np.float32).T, flat.T, strict=True):
        result += feature[:, None] * column
    return result.reshape(len(flat), 1, 1, -1)


# ---- windows


def window_sums(x: np.ndarray, weight: np.ndarray, k: Window) -> np.ndarray:
    """A convolution without bias, [N, h_out, w_out, c_out]; weight (c_out, kh, kw, c_in) or (c, kh, kw)."""
    if weight.ndim == 3:
        by_tap = weight.reshape(len(weight), -1).T
        return np.add.reduce([t * w for t, w in zip(_taps(x, k, 0.0), by_tap, strict=True)])
    windows = sliding_window_view(_padded(x, k, 0.0), (k.kh, k.kw), axis=(1, 2))
    windows = windows[:, :: k.stride_h, :: k.stride_w]  # [n, oh, ow, c, kh, kw]
    n, oh, ow = windows.shape[:3]
    columns = windows.transpose(0, 1, 2, 4, 5, 3).reshape(n * oh * ow, -1)
    return (columns @ weight.reshape(len(weight), -1).T).reshape(n, oh, ow, -1)


def _padded(x: np.ndarray, k: Window, fill: float) -> np.ndarray:
    if not (k.pad_h or k.pad_w):
        return x
    pads = ((0, 0), (k.pad_h, k.pad_h), (k.pad_w, k.pad_w), (0, 0))
    return np.pad(x, pads, constant_values=x.dtype.type(fill))


def _taps(x: np.ndarray, k: Window, fill: float) -> Iterator[np.ndarray]:
    """The image as every position of the window sees it, each [n, h_out, w_out, c]."""
    padded = _padded(x, k, fill)
    rows = (padded.shape[1] - k.kh) // k.stride_h + 1
    columns = (padded.shape[2] - k.kw) // k.stride_w + 1
    for ky in range(k.kh):
        for kx in range(k.kw):
            down = slice(ky, ky + (rows - 1) * k.stride_h + 1, k.stride_h)
            across = slice(kx, kx + (columns - 1) * k.stride_w + 1, k.stride_w)
            yield padded[:, down, across]
