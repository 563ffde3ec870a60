"""Front end for the published quantized checkpoints (MCUNet-5FPS, ProxylessNAS-w0.3, MobileNetV2-w0.35).

The file is a dict of `first_conv`, `blocks`, `feature_mix` and `classifier` whose convolutions hold int8
weights, int32 biases and all scales: the graph comes out quantized already. Read without torch, by an
unpickler that knows NumPy arrays and nothing else.

Source: the release that goes with arXiv 2206.15472.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..ir import ConvertError, Graph, Input, Layer, Node, Source, Tensor, Window, out_size
from ..quantize import DEAD_MULTIPLIER, DEAD_SCALE

IMAGE = 128
ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}
CONV_KEYS = {"in_channel", "out_channel", "kernel_size", "stride", "groups", "params"}
PARAM_KEYS = {"weight", "bias", "w_scales", "x_scale", "x_zero", "y_scale", "y_zero"}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it holds {module}.{name}")
        return super().find_class(module, name)


def read_dict(path: Path) -> dict[str, Any]:
    """The checkpoint's dict; ConvertError where the file is something else."""
    try:
        data = path.read_bytes()
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                data = archive.read(next(n for n in archive.namelist() if n.endswith("data.pkl")))
        found = _ArraysOnly(io.BytesIO(data)).load()
    except OSError as error:
        raise ConvertError(f"cannot read {path}: {error.strerror}") from error
    except (pickle.UnpicklingError, StopIteration, zipfile.BadZipFile, EOFError, ValueError) as error:
        raise ConvertError(f"{path.name} is no quantized checkpoint of plain arrays: {error}") from error
    if not isinstance(found, dict) or not {"first_conv", "blocks", "classifier"} <= set(found):
        raise ConvertError(
            f"{path.name} is no quantized checkpoint: it lacks first_conv, blocks or classifier"
        )
    return found


@dataclass
class _Builder:
    """Collects the graph of one checkpoint."""

    file: str
    tensors: dict[str, Tensor] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    layers: dict[str, Layer] = field(default_factory=dict)

    def tensor(self, name: str, shape: tuple[int, int, int], params: Mapping[str, Any], side: str) -> str:
        scale, zero = float(params[f"{side}_scale"]), int(params[f"{side}_zero"])
        self.tensors[name] = Tensor(name, shape, "s8", scale, zero)
        return name

    def conv(self, x: str, name: str, conv: Mapping[str, Any]) -> str:
        """Append one convolution; returns its output."""
        params = check_conv(self.file, name, conv)
        h, w, c_in = self.tensors[x].shape
        kh, kw = conv["kernel_size"]
        stride, pad = int(conv["stride"]), ((kh - 1) // 2, (kw - 1) // 2)
        if conv["in_channel"] != c_in:
            raise ConvertError(f"{self.file}: {name} reads {conv['in_channel']} channels, but gets {c_in}")
        if h % stride or w % stride:
            raise ConvertError(f"{self.file}: stride {stride} of {name} does not divide its {h}x{w} input")
        window = Window(kh, kw, stride, stride, *pad)
        shape = (out_size(h, kh, stride, pad[0]), out_size(w, kw, stride, pad[1]), int(conv["out_channel"]))
        y = self.tensor(f"{name}.y", shape, params, "y")
        depthwise = conv["groups"] > 1
        self.layers[name] = _layer(name, params, depthwise)
        self.nodes.append(Node("dwconv2d" if depthwise else "conv2d", name, (x,), (y,), name, window))
        return y

    def block(self, x: str, number: int, block: Mapping[str, Any]) -> str:
        """Append one inverted bottleneck: pointwise > depthwise > pointwise, and its residual add."""
        name = f"blocks.{number}"
        if block.get("se") is not None:
            raise ConvertError(f"{self.file}: {name} has a squeeze-and-excite branch, which is not supported")
        y = x
        for part in ("pointwise1", "depthwise", "pointwise2"):
            if block.get(part) is not None:
                y = self.conv(y, f"{name}.{part}", block[part])
        residual = block.get("residual")
        if residual is None:
            return y
        if "weight" in residual["params"]:
            raise ConvertError(f"{self.file}: {name} has a convolution in its skip path: not supported")
        out = self.tensor(f"{name}.add", self.tensors[y].shape, residual["params"], "y")
        self.nodes.append(Node("add", f"{name}.add", (y, x), (out,)))
        return out


def check_conv(file: str, name: str, conv: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters of a convolution, after a check of its keys and shapes."""
    missing = sorted(CONV_KEYS - set(conv)) or sorted(PARAM_KEYS - set(conv["params"]))
    if missing:
        raise ConvertError(f"{file}: {name} has no {missing[0]}")
    params: Mapping[str, Any] = conv["params"]
    c_in = conv["in_channel"] // conv["groups"]
    expected = (conv["out_channel"], c_in, *conv["kernel_size"])
    if params["weight"].shape != expected or params["weight"].dtype != np.int8:
        found = f"{params['weight'].dtype} {params['weight'].shape}"
        raise ConvertError(f"{file}: the weight of {name} is {found}, not int8 {expected}")
    for key in ("bias", "w_scales"):
        if params[key].shape != expected[:1]:
            raise ConvertError(f"{file}: {key} of {name} has shape {params[key].shape}, not {expected[:1]}")
    if conv["groups"] not in (1, conv["in_channel"]):
        raise ConvertError(f"{file}: {name} has {conv['groups']} groups; 1 and depthwise are supported")
    return params


def _layer(name: str, params: Mapping[str, Any], depthwise: bool) -> Layer:
    """Constants of a convolution; channels with a scale below DEAD_SCALE become constants."""
    weight = params["weight"][:, 0] if depthwise else params["weight"].transpose(0, 2, 3, 1)
    weight, bias = np.ascontiguousarray(weight), params["bias"].astype(np.int64)
    scale = params["w_scales"].astype(np.float64)
    dead = scale < DEAD_SCALE
    if dead.any():
        ratio = float(params["x_scale"]) / float(params["y_scale"])
        value = np.rint(np.clip(bias * scale * ratio, -512, 512))
        weight, bias, scale = weight.copy(), bias.copy(), scale.copy()
        weight[dead] = 0
        bias[dead] = (value[dead] / DEAD_MULTIPLIER).astype(np.int64)
        scale[dead] = DEAD_MULTIPLIER / ratio
    return Layer(weight, bias.astype(np.int32), Source(f"{name}.weight", f"{name}.bias"), scale, dead)


def read_checkpoint(path: Path, image: int = IMAGE, integer_head: bool = False) -> Graph:
    """The quantized forward graph of a checkpoint for an image of `image` x `image` x 3.

    integer_head  keep the int8 classifier of the file (an oracle for tests) in place of a float head
    """
    found = read_dict(path)
    if found.get("feature_mix") is not None:
        raise ConvertError(f"{path.name} has a feature_mix layer, which is not supported")
    b = _Builder(path.name)
    first = check_conv(path.name, "first_conv", found["first_conv"])
    entry = Tensor("image", (image, image, 3), "s8", float(first["x_scale"]), int(first["x_zero"]))
    b.tensors["image"] = entry
    x = b.conv("image", "first_conv", found["first_conv"])
    for number, block in enumerate(found["blocks"]):
        x = b.block(x, number, block)
    features = b.tensors[x]
    h, w, c = features.shape
    b.tensors["features"] = Tensor("features", (1, 1, c), "s8", features.scale, features.zero)
    b.nodes.append(Node("avgpool", "pool", (x,), ("features",), None, Window(h, w, h, w)))
    pixel = Input("image", (1.0,) * 3, (-128.0,) * 3)
    if integer_head:
        output = b.conv("features", "classifier", found["classifier"])
    else:
        output = _float_head(b, check_conv(path.name, "classifier", found["classifier"]))
    return Graph(path.stem, pixel, output, b.tensors, tuple(b.nodes), b.layers)


def _float_head(b: _Builder, params: Mapping[str, Any]) -> str:
    """The classifier in float: its rows start a head that keeps them."""
    scale = params["w_scales"].astype(np.float64)
    weight = (params["weight"][:, :, 0, 0] * scale[:, None]).astype(np.float32)
    bias = (params["bias"] * (scale * float(params["x_scale"]))).astype(np.float32)
    b.layers["classifier"] = Layer(weight, bias, Source("classifier.weight", "classifier.bias"))
    b.tensors["logits"] = Tensor("logits", (1, 1, len(bias)), "f32")
    b.nodes.append(Node("head", "classifier", ("features",), ("logits",), "classifier"))
    return "logits"
