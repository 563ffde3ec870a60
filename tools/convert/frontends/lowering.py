"""What every reader of a model file drives: calls of aten ops in, nodes of a float graph out.

The raw graph may hold four ops that `fold.py` removes again: bn, relu, relu6 and linear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from microtrain.convert.ir import ConvertError, Graph, Input, Layer, Node, Shape, Source, Tensor, Window

MAX_WINDOW = 255  # the kernels keep sizes and strides of windows in a byte


@dataclass(frozen=True)
class Act:
    """An activation as the model sees it.

    tensor  name of the IR tensor (h, w, c) that holds the values
    dims    shape in the model's own order: (n, c, h, w), or any view of it; the order in memory stays CHW
    half    the mean over the width was asked for, the one over the height must follow
    """

    tensor: str
    dims: tuple[int, ...]
    half: bool = False


@dataclass(frozen=True, eq=False)
class Param:
    """A constant tensor of the model and its name in the state dict."""

    name: str
    value: np.ndarray


@dataclass(frozen=True)
class Call:
    """One call of an aten op.

    op       name without namespace and overload: "conv2d"
    module   path of the module that calls it, "" for the model itself
    builtin  that module is one of torch's own, so that its path names just this op
    args     by the names of the op's schema; missing ones have their default
    """

    op: str
    module: str
    builtin: bool
    args: Mapping[str, Any]

    @property
    def x(self) -> Any:
        """The first argument, called `self` or `input` in schemas."""
        return self.args["self"] if "self" in self.args else self.args.get("input")

    def get(self, name: str, default: Any) -> Any:
        """An argument; the default where it is missing or None."""
        value = self.args.get(name)
        return default if value is None else value

    @property
    def where(self) -> str:
        return f"layer {self.module}" if self.module else "the model's forward()"

    def node_name(self, op: str) -> str:
        """Name of the node that is made: the module's path where that says it all, else path and op."""
        if self.builtin and self.module:
            return self.module
        return f"{self.module}.{op}" if self.module else op

    def error(self, text: str) -> ConvertError:
        return ConvertError(f"{self.where}: {text}")


@dataclass
class Lowering:
    """The float graph as far as it has been built.

    batch    size of the batch dimension in the model's shapes
    current  tensor -> tensor that replaced it through an in-place op
    owners   address of a weight's memory -> layer that uses it
    """

    name: str
    batch: int = 1
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    layers: dict[str, Layer] = field(default_factory=dict)
    current: dict[str, str] = field(default_factory=dict)
    owners: dict[int, str] = field(default_factory=dict)

    def input(self, dims: tuple[int, ...]) -> Act:
        """Declare the model's input, dims (n, c, h, w)."""
        if len(dims) != 4 or min(dims) < 1:
            shape = "x".join(map(str, dims))
            raise ConvertError(f"{self.name} takes an input of shape {shape}; it must be one image, NxCxHxW")
        self.batch = dims[0]
        self.tensors["input"] = Tensor("input", (dims[2], dims[3], dims[1]))
        return Act("input", dims)

    def tensor_of(self, act: Act) -> str:
        """The tensor that holds an activation now, after all in-place ops so far."""
        name = act.tensor
        while name in self.current:
            name = self.current[name]
        return name

    def shape(self, act: Act) -> Shape:
        return self.tensors[act.tensor].shape

    def activation(self, call: Call, value: Any) -> Act:
        """The value, if it is an activation with all its dimensions; else an error."""
        if not isinstance(value, Act):
            raise call.error(
                f"{call.op} works on a constant; only ops on the image's activations are supported"
            )
        if value.half:
            raise call.error("a mean over the width alone is not supported; take the mean over (2, 3)")
        return value

    def image(self, call: Call, value: Any) -> Act:
        """The value, if it is an activation in the form (n, c, h, w); else an error."""
        act = self.activation(call, value)
        h, w, c = self.shape(act)
        if act.dims != (self.batch, c, h, w):
            raise call.error(
                f"{call.op} reads a tensor of shape {list(act.dims)}; it must be an image [n, c, h, w]"
            )
        return act

    def constant(self, call: Call, value: Any, what: str) -> Param:
        """The value, if it is a constant of finite numbers; else an error that names the layer."""
        if not isinstance(value, Param):
            raise call.error(f"the {what} of {call.op} is computed; it must be a constant of the model")
        if value.value.dtype.kind != "f":
            raise call.error(
                f"{value.name} holds {value.value.dtype} numbers; only float weights are supported"
            )
        if not np.isfinite(value.value).all():
            bad = int(np.count_nonzero(~np.isfinite(value.value)))
            raise call.error(
                f"{bad} of {value.value.size} values of {value.name} are NaN or infinite; "
                "save the model from before its training diverged"
            )
        return value

    def layer(self, call: Call, weight: Param, values: np.ndarray, bias: Any, shape: tuple[int, ...]) -> str:
        """Register the constants of a convolution or linear layer under the path of its module.

        values  the weight in the IR's layout, any float dtype
        """
        name = weight.name.removesuffix(".weight")
        address = int(weight.value.__array_interface__["data"][0])
        if name in self.layers or address in self.owners:
            first = self.owners.get(address, name)
            raise call.error(
                f"the weights of {first} are used a second time; weights shared by two layers are not "
                "supported: give each its own"
            )
        offset = None if bias is None else self.constant(call, bias, "bias")
        biases = np.zeros(len(values)) if offset is None else offset.value
        if biases.shape != (len(values),) or values.shape != shape:
            raise call.error(
                f"weights {list(values.shape)} and bias {list(biases.shape)} do not belong together"
            )
        self.owners[address] = name
        source = Source(weight.name, offset.name if offset else None)
        contiguous = np.ascontiguousarray(values, dtype=np.float32)
        self.layers[name] = Layer(contiguous, biases.astype(np.float32), source)
        return name

    def emit(
        self,
        call: Call,
        op: str,
        inputs: tuple[Act, ...],
        shape: Shape,
        *,
        dims: tuple[int, ...] | None = None,
        layer: str | None = None,
        window: Window | None = None,
        factors: tuple[float, ...] = (),
    ) -> Act:
        """Append a node; its output has the given shape (h, w, c), seen as `dims` (default: an image)."""
        if min(shape) < 1:
            raise call.error(
                f"{call.op} leaves an image of {shape[0]}x{shape[1]} pixels; the input is too small for it"
            )
        if window and max(window.kh, window.kw, window.stride_h, window.stride_w) > MAX_WINDOW:
            raise call.error(
                f"a window of {window.kh}x{window.kw} is too large; {MAX_WINDOW} pixels a side are the most"
            )
        tensor = f"%{len(self.nodes)}"
        self.tensors[tensor] = Tensor(tensor, shape)
        read = tuple(self.tensor_of(a) for a in inputs)
        name = layer or call.node_name(op)
        self.nodes.append(Node(op, name, read, (tensor,), layer=layer, window=window, factors=factors))
        result = Act(tensor, dims or (self.batch, shape[2], shape[0], shape[1]))
        if call.op.endswith("_"):
            self.current[read[0]] = tensor
        return result

    def finish(self, outputs: list[Any]) -> Graph:
        """The raw graph, for input pixels 0..255 as they are."""
        if len(outputs) != 1 or not isinstance(outputs[0], Act):
            raise ConvertError(
                f"{self.name} returns {len(outputs)} values; it must return one tensor, the logits: "
                "wrap it in a module that does"
            )
        output = self.tensor_of(outputs[0])
        channels = self.tensors["input"].channels
        identity = Input("input", (1.0,) * channels, (0.0,) * channels)
        return Graph(self.name, identity, output, dict(self.tensors), tuple(self.nodes), dict(self.layers))


def pair(value: Any) -> tuple[int, int]:
    """One number or two, as torch takes them for height and width."""
    if isinstance(value, Sequence):
        return (int(value[0]), int(value[-1]))
    return int(value), int(value)


def stride_of(call: Call, default: tuple[int, int]) -> tuple[int, int]:
    stride = pair(call.get("stride", None) or default)
    if min(stride) < 1:
        raise call.error(f"a stride of {stride[0]}x{stride[1]}; 1 is the least")
    return stride
