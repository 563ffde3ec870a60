"""Front end for the published quantized checkpoints (MCUNet-5FPS, ProxylessNAS-w0.3, MobileNetV2-w0.35).

The file is a dict of `first_conv`, `blocks`, `feature_mix` and `classifier` whose convolutions hold int8
weights, int32 biases and all scales: the graph comes out quantized already. Read without torch and without
executing anything (base/pickles.py).

Source: the release that goes with arXiv 2206.15472.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from microtrain.base.archive import open_archive
from microtrain.base.errors import FileError
from microtrain.base.pickles import read_pickle
from microtrain.base.shapes import by
from microtrain.convert.ir import (
    ConvertError,
    Graph,
    Input,
    Layer,
    Node,
    Source,
    Tensor,
    Window,
)
from microtrain.convert.limits import DEAD_SCALE, prove
from microtrain.convert.names import safe_name
from microtrain.convert.ops import add, head, pool
from microtrain.convert.ops import conv as conv_op
from microtrain.convert.reference.biases import DEAD_MULTIPLIER

from .checkpoint_fields import Conv, Quantization, mapping, read_block, read_conv, read_residual

IMAGE = 128


def read_dict(path: Path) -> dict[str, Any]:
    """The checkpoint's dict; ConvertError where the file is something else."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConvertError(f"cannot read {path}: {error.strerror}") from error
    try:
        if zipfile.is_zipfile(path):
            with open_archive(path, path.name) as archive:
                data = archive.bytes("data.pkl")
        found = read_pickle(data, path.name, instances=False)
    except FileError as error:
        raise ConvertError(f"{path.name} is no quantized checkpoint of plain arrays: {error}") from error
    mapping(f"{path.name} is no quantized checkpoint: it", found, ("first_conv", "blocks", "classifier"))
    if not isinstance(found["blocks"], list | tuple) or not found["blocks"]:
        raise ConvertError(f"{path.name} is no quantized checkpoint: its blocks are no list of blocks")
    return dict(found)


@dataclass
class _Builder:
    """Collects the graph of one checkpoint."""

    file: str
    tensors: dict[str, Tensor] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    layers: dict[str, Layer] = field(default_factory=dict)

    def tensor(self, name: str, shape: tuple[int, int, int], like: Quantization) -> str:
        self.tensors[name] = Tensor(name, shape, "s8", like.scale, like.zero)
        return name

    def check_input(self, x: str, name: str, said: Quantization) -> None:
        """What a layer says of its input must be what the tensor is quantized to."""
        tensor = self.tensors[x]
        if (tensor.scale, tensor.zero) != (said.scale, said.zero):
            raise ConvertError(
                f"{self.file}: {name} expects an input of scale {said.scale:g} and zero {said.zero}, "
                f"but {x} has {tensor.scale:g} and {tensor.zero}"
            )

    def conv(self, x: str, name: str, conv: Conv) -> str:
        """Append one convolution; returns its output."""
        h, w, c_in = self.tensors[x].shape
        (kh, kw), stride = conv.kernel, conv.stride
        pad = ((kh - 1) // 2, (kw - 1) // 2)
        if conv.c_in != c_in:
            raise ConvertError(f"{self.file}: {name} reads {conv.c_in} channels, but gets {c_in}")
        self.check_input(x, name, conv.x)
        window = Window(kh, kw, stride, stride, *pad)
        y = self.tensor(f"{name}.y", (*window.outputs(h, w), conv.c_out), conv.y)
        layer = _layer(name, conv)
        assert layer.weight_scale is not None
        stored = layer.weight.reshape(conv.c_out, -1)
        prove(name, stored, layer.bias.astype(np.int64), layer.weight_scale, self.tensors[x], self.tensors[y])
        self.layers[name] = layer
        self.nodes.append(conv_op.node_of(name, x, y, layer, window))
        return y

    def block(self, x: str, number: int, found: Any) -> str:
        """Append one inverted bottleneck: pointwise > depthwise > pointwise, and its residual add."""
        name = f"blocks.{number}"
        block = read_block(f"{self.file}: {name}", found)
        y = x
        for part in ("pointwise1", "depthwise", "pointwise2"):
            if block[part] is not None:
                y = self.conv(y, f"{name}.{part}", self.read(f"{name}.{part}", block[part]))
        if block["residual"] is None:
            return y
        skip, total = read_residual(f"{self.file}: {name}", block["residual"])
        self.check_input(x, f"{name}.residual", skip)
        if self.tensors[x].shape != self.tensors[y].shape:
            raise ConvertError(
                f"{self.file}: {name} adds {self.tensors[x].shape} to {self.tensors[y].shape}; "
                "the shapes must be equal"
            )
        out = self.tensor(f"{name}.add", self.tensors[y].shape, total)
        self.nodes.append(add.node_of(f"{name}.add", (y, x), out))
        return out

    def read(self, name: str, found: Any) -> Conv:
        return read_conv(f"{self.file}: {name}", found)


def _layer(name: str, conv: Conv) -> Layer:
    """Constants of a convolution; channels with a scale below DEAD_SCALE become constants."""
    weight = conv.weight[:, 0] if conv.depthwise else conv.weight.transpose(0, 2, 3, 1)
    weight, bias, scale = np.array(weight, order="C"), conv.bias.copy(), conv.weight_scale.copy()
    dead = scale < DEAD_SCALE
    ratio = conv.x.scale / conv.y.scale
    value = np.rint(np.clip(bias * scale * ratio, -512, 512))
    weight[dead] = 0
    bias[dead] = (value[dead] / DEAD_MULTIPLIER).astype(np.int64)
    scale[dead] = DEAD_MULTIPLIER / ratio
    limited = np.clip(bias, -(2**31), 2**31 - 1).astype(np.int32)
    return Layer(weight, limited, Source(f"{name}.weight", f"{name}.bias"), scale, dead)


def read_checkpoint(path: Path, image: int = IMAGE, integer_head: bool = False) -> Graph:
    """The quantized forward graph of a checkpoint for an image of `image` x `image` x 3.

    integer_head  keep the int8 classifier of the file (an oracle for tests) in place of a float head
    Errors        ConvertError names the layer and the field that is missing, malformed or not supported
    """
    found = read_dict(path)
    if found.get("feature_mix") is not None:
        raise ConvertError(f"{path.name} has a feature_mix layer, which is not supported")
    b = _Builder(path.name)
    first = b.read("first_conv", found["first_conv"])
    b.tensor("image", (image, image, 3), first.x)
    x = b.conv("image", "first_conv", first)
    for number, block in enumerate(found["blocks"]):
        x = b.block(x, number, block)
    features = b.tensors[x]
    h, w, c = features.shape
    b.tensors["features"] = replace(features, name="features", shape=(1, 1, c))
    b.nodes.append(pool.node_of("pool", x, "features", Window(h, w, h, w)))
    pixel = Input("image", (1.0,) * 3, (-128.0,) * 3)
    classifier = b.read("classifier", found["classifier"])
    output = b.conv("features", "classifier", classifier) if integer_head else _float_head(b, classifier)
    return Graph(safe_name(path.stem), pixel, output, b.tensors, tuple(b.nodes), b.layers)


def _float_head(b: _Builder, conv: Conv) -> str:
    """The classifier in float: its rows may start a new head."""
    features = b.tensors["features"]
    b.check_input("features", "classifier", conv.x)
    if (conv.c_in, conv.kernel) != (features.channels, (1, 1)):
        size = by(conv.kernel)
        raise ConvertError(
            f"{b.file}: classifier is a {size} convolution of {conv.c_in} channels, "
            f"not a 1x1 one of the {features.channels} features"
        )
    weight = (conv.weight[:, :, 0, 0] * conv.weight_scale[:, None]).astype(np.float32)
    bias = (conv.bias * (conv.weight_scale * conv.x.scale)).astype(np.float32)
    b.layers["classifier"] = Layer(weight, bias, Source("classifier.weight", "classifier.bias"))
    b.tensors["logits"] = Tensor("logits", (1, 1, len(bias)), "f32")
    b.nodes.append(head.node_of("classifier", "features", "logits"))
    return "logits"
