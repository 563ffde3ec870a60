"""Calibration: the ranges that a float graph's tensors take on typical images. NumPy only."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from PIL import Image, UnidentifiedImageError
from rich.console import Console
from rich.progress import Progress

from .ir import ConvertError, Graph, Layer, Node, Shape, Window

MAX_IMAGES = 1024
BATCH_BYTES = 32 << 20
PROGRESS_AFTER_S = 2.0
MODES = {1: "L", 3: "RGB", 4: "RGBA"}

Ranges = Mapping[str, tuple[float, float]]


def load_calibration(path: Path, shape: Shape) -> np.ndarray:
    """Images uint8 [N, h, w, c] from a folder (any depth, any format Pillow reads) or an .npz with `images`.

    shape  (h, w, c) of the model's input; images are never resized
    Of more than MAX_IMAGES files that many are taken, evenly spaced in the order of their names.
    Raises ConvertError for no images, images of another size and files that cannot be read.
    """
    if path.is_dir():
        return _folder(path, shape)
    if not path.is_file():
        raise ConvertError(f"no such file or folder of calibration images: {path}")
    try:
        with np.load(path, allow_pickle=False) as file:
            images = file["images"]
    except (KeyError, IndexError, TypeError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ConvertError(
            f"{path} is not an .npz with `images` uint8 [N, h, w, c]; give such a file or a folder of images"
        ) from error
    return check_images(images, shape, str(path))


def check_images(images: np.ndarray, shape: Shape, where: str) -> np.ndarray:
    """The images unchanged if there are any, of the model's size; else a ConvertError."""
    h, w, c = shape
    if images.dtype != np.uint8 or images.ndim != 4:
        raise ConvertError(
            f"{where}: calibration images are {images.dtype} {list(images.shape)}; "
            f"they must be uint8 [N, {h}, {w}, {c}]"
        )
    if len(images) == 0:
        raise ConvertError(f"{where}: 0 calibration images; some typical ones, 16 or more, are needed")
    if images.shape[1:] != shape:
        raise ConvertError(
            f"{where}: calibration images are {_by(images.shape[1:])} (height x width x channels) but the "
            f"model's input is {_by(shape)}; resize them"
        )
    return images


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _folder(folder: Path, shape: Shape) -> np.ndarray:
    h, w, c = shape
    if c not in MODES:
        raise ConvertError(
            f"image files cannot have {c} channels; pass an .npz with `images` uint8 [N, {h}, {w}, {c}]"
        )
    known = Image.registered_extensions()
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in known and p.is_file())
    if not files:
        raise ConvertError(f"{folder} holds 0 calibration images; put some typical ones there, 16 or more")
    if len(files) > MAX_IMAGES:
        chosen = [files[i * len(files) // MAX_IMAGES] for i in range(MAX_IMAGES)]
        warnings.warn(f"calibrating on {MAX_IMAGES} of {len(files)} images of {folder}", stacklevel=3)
        files = chosen
    return np.stack([_image(p, shape) for p in files])


def _image(path: Path, shape: Shape) -> np.ndarray:
    h, w, c = shape
    try:
        with Image.open(path) as image:
            if image.size != (w, h):
                raise ConvertError(
                    f"calibration image {path} is {image.height}x{image.width} (height x width) but the "
                    f"model's input is {h}x{w}; resize the images"
                )
            return np.asarray(image.convert(MODES[c]), dtype=np.uint8).reshape(shape)
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise ConvertError(
            f"calibration image {path} cannot be read ({error}); remove or replace it"
        ) from error


def measure_ranges(graph: Graph, images: np.ndarray) -> dict[str, tuple[float, float]]:
    """Least and greatest value of every tensor of a float graph over all images.

    images  uint8 [N, h, w, c]; run in batches of at most BATCH_BYTES for the largest layer
    """
    check_images(images, graph.tensors[graph.input.tensor].shape, graph.name)
    ranges: dict[str, tuple[float, float]] = {}

    def observe(name: str, values: np.ndarray) -> None:
        low, high = float(values.min()), float(values.max())
        if not np.isfinite([low, high]).all():
            raise ConvertError(
                f"tensor {name} becomes NaN or infinite on the calibration images; check the weights"
            )
        old = ranges.get(name, (low, high))
        ranges[name] = (min(old[0], low), max(old[1], high))

    size = batch_size(graph)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("calibrating", total=len(images), visible=False)
        for start in range(0, len(images), size):
            run_float(graph, images[start : start + size], observe)
            slow = (progress.tasks[0].elapsed or 0.0) > PROGRESS_AFTER_S
            progress.update(task, advance=size, visible=slow)
    return ranges


def batch_size(graph: Graph) -> int:
    """Images a batch so that the largest gathered window matrix stays within BATCH_BYTES."""
    largest = 1
    for node in graph.forward_nodes:
        y = graph.tensors[node.outputs[0]]
        taps = graph.layers[node.layer].weight[0].size if node.op == "conv2d" and node.layer else y.channels
        largest = max(largest, 4 * y.pixels * int(taps))
    return int(np.clip(BATCH_BYTES // largest, 1, 64))


def run_float(
    graph: Graph, images: np.ndarray, observe: Callable[[str, np.ndarray], None] | None = None
) -> np.ndarray:
    """Logits float32 [N, classes] of a float graph for uint8 images [N, h, w, c].

    observe  called with the name and values [N, h, w, c] of every tensor
    """
    gain, offset = (np.array(v, np.float32) for v in (graph.input.gain, graph.input.offset))
    env = {graph.input.tensor: images.astype(np.float32) * gain + offset}
    if observe:
        observe(graph.input.tensor, env[graph.input.tensor])
    for step, node in enumerate(graph.nodes):
        with np.errstate(over="ignore", invalid="ignore"):
            result = _activate(_run_node(graph, node, env), node.act)
        env[node.outputs[0]] = result
        if observe:
            observe(node.outputs[0], result)
        alive = {t for n in graph.nodes[step + 1 :] for t in n.reads} | {graph.output}
        env = {name: value for name, value in env.items() if name in alive}
    return env[graph.output].reshape(len(images), -1)


def _run_node(graph: Graph, node: Node, env: Mapping[str, np.ndarray]) -> np.ndarray:
    x = env[node.inputs[0]]
    if node.op == "add":
        return x + env[node.inputs[1]]
    if node.op == "head":
        layer = graph.layers[node.layer or ""]
        return (x.reshape(len(x), -1) @ layer.weight.T + layer.bias).reshape(len(x), 1, 1, -1)
    assert node.window is not None, node.name
    if node.op == "conv2d":
        return _conv2d(x, graph.layers[node.layer or ""], node.window)
    if node.op == "dwconv2d":
        layer = graph.layers[node.layer or ""]
        taps = _taps(x, node.window, 0.0)
        return sum((t * w for t, w in zip(taps, _by_tap(layer), strict=True)), start=layer.bias)
    if node.op == "avgpool":
        total = np.add.reduce(list(_taps(x, node.window, 0.0)))
        return np.asarray(total / np.float32(node.window.kh * node.window.kw))
    if node.op == "maxpool":
        return np.maximum.reduce(list(_taps(x, node.window, -np.inf)))
    raise ConvertError(f"{node.op} of {node.name} is not an op of a float graph")


def _activate(x: np.ndarray, act: str) -> np.ndarray:
    if act == "none":
        return x
    return np.clip(x, np.float32(0.0), np.float32(6.0 if act == "relu6" else np.inf))


def _padded(x: np.ndarray, k: Window, fill: float) -> np.ndarray:
    if not (k.pad_h or k.pad_w):
        return x
    pads = ((0, 0), (k.pad_h, k.pad_h), (k.pad_w, k.pad_w), (0, 0))
    return np.pad(x, pads, constant_values=np.float32(fill))


def _conv2d(x: np.ndarray, layer: Layer, k: Window) -> np.ndarray:
    """Dense convolution as one matrix product over gathered windows."""
    windows = sliding_window_view(_padded(x, k, 0.0), (k.kh, k.kw), axis=(1, 2))
    windows = windows[:, :: k.stride_h, :: k.stride_w]  # [n, oh, ow, c, kh, kw]
    n, oh, ow = windows.shape[:3]
    columns = windows.transpose(0, 1, 2, 4, 5, 3).reshape(n * oh * ow, -1)
    product = columns @ layer.weight.reshape(len(layer.weight), -1).T
    return (product + layer.bias).reshape(n, oh, ow, -1)


def _by_tap(layer: Layer) -> np.ndarray:
    """Depthwise weights [kh * kw, c]."""
    return layer.weight.reshape(len(layer.weight), -1).T


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
