"""What every reader of a model file drives: calls of aten ops in, nodes of a float graph out.

The raw graph may hold five ops that `fold.py` removes again: bn, relu, relu6, linear and softmax.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from microtrain.base.shapes import by
from microtrain.base.weight_norm import plain
from microtrain.convert.ir import (
    WINDOW_MOST,
    ConvertError,
    Graph,
    Input,
    Layer,
    Node,
    Shape,
    Source,
    Tensor,
)

from .aten_call import Act, Call, LayerError, Param
from .raw import Raw, Result, as_map, weights_of

STAND_IN = "unsupported "  # begins the name of what is in the place of an op, to find what else is not
SOFTMAX = "softmax"  # of the raw graph alone: at its end it is left out
NO_LIMIT = float(np.finfo(np.float32).max)  # of a clip that is open at one end
LINEAR = "linear"  # of the raw graph alone: it becomes the head or a convolution
NORM = "bn"  # y = x * factor + shift a channel, both in the layer; of the raw graph alone


@dataclass
class Lowering:
    """The float graph as far as it has been built.

    found    what is not supported; a stand-in is in the graph for each
    batch    size of the batch dimension in the model's shapes
    current  tensor -> tensor that replaced it through an in-place op
    copies   name of a copy in PyTorch, which no op makes here -> the tensor with its numbers
    parts    tensor that is a part of another one's memory in PyTorch -> that one
    cuts     such a part -> the call that cuts it out, which of its results it is, and that result
    written  tensor -> what an op has changed in PyTorch, and not here (frontends/aten/in_place.py)
    owners   where a weight comes from, or the address of its memory -> the layer that uses it first, and
             the weight: memory that nobody holds gets another one's weights
    last     tensors whose own order is HWC: an input that turned out to be a sequence of vectors
    computed  numbers of constants that the model has made of others
    frozen    layers whose weights are such
    written_out  what an ending makes -> the tensor that stands for it inside the network
    reshaped  the input is an image of other sides, and earlier views of it are none any more
    fixed     samples have the input's axes, whatever reads it: its channels are known, and are last
    """

    name: str
    found: list[ConvertError] = field(default_factory=list)
    batch: int = 1
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    layers: dict[str, Layer] = field(default_factory=dict)
    current: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    cuts: dict[str, tuple[Call, int, Act]] = field(default_factory=dict)
    written: dict[str, list[tuple[str, np.ndarray]]] = field(default_factory=dict)
    owners: dict[str | int, tuple[str, Param]] = field(default_factory=dict)
    last: set[str] = field(default_factory=set)
    computed: int = 0
    reshaped: bool = False
    fixed: bool = False
    frozen: list[str] = field(default_factory=list)
    stood: dict[str, ConvertError] = field(default_factory=dict)
    written_out: dict[str, str] = field(default_factory=dict)

    def input(self, dims: tuple[int, ...]) -> Act:
        """Declare the model's input: an image (n, c, h, w), a series (n, c, time) or features (n, f)."""
        if len(dims) not in (2, 3, 4) or min(dims) < 1:
            shape = f"of shape {by(dims)}" if dims else "without axes"
            raise ConvertError(
                f"{self.name} takes an input {shape}; it must be an image NxCxHxW, a series NxCxT "
                "or features NxF"
            )
        self.batch = dims[0]
        _, c, h, w = (*dims, 1, 1)[:4]
        self.tensors["input"] = Tensor("input", (h, w, c))
        return Act("input", dims)

    def give(self, act: Act, scale: float, zero: int) -> None:
        """Note to which scale and zero the file quantizes an activation."""
        name = self.tensor_of(act)
        self.tensors[name] = replace(self.tensors[name], given=(scale, zero))

    def tensor_of(self, act: Act) -> str:
        """The tensor that holds an activation now, after all in-place ops so far."""
        name = self.held(act.tensor)
        return self.copies.get(name, name)

    def held(self, tensor: str) -> str:
        """What became of a tensor, or of a copy, through all in-place ops so far."""
        while tensor in self.current:
            tensor = self.current[tensor]
        return tensor

    def kept(self, act: Act) -> Act:
        """What an activation holds now, whatever in-place ops make of it; nothing writes to it."""
        return replace(act, tensor=self._named(self.tensor_of(act), "kept"))

    def copied(self, act: Act) -> Act:
        """The same in memory of its own, to which in-place ops may write."""
        return replace(act, tensor=self.as_made(self.tensor_of(act)))

    def as_made(self, tensor: str) -> str:
        """A name for what a node has made, whatever in-place ops have made of it since."""
        return self._named(tensor, f"copy {len(self.copies)}")

    def _named(self, tensor: str, name: str) -> str:
        own = f"{tensor} {name}"
        self.copies[own], self.tensors[own] = tensor, replace(self.tensors[tensor], name=own)
        if tensor in self.last:
            self.last.add(own)
        return own

    def is_input(self, act: Act) -> bool:
        """True for the image, normalised or not, before any layer has seen it."""
        name = self.tensor_of(act)
        while name != "input":
            maker = self.maker(name)
            if maker is None or maker.op != NORM:
                return False
            name = maker.inputs[0]
        return True

    def maker(self, tensor: str) -> Node | None:
        """The node that makes a tensor, which has its number; None of the input."""
        tensor = self.copies.get(tensor, tensor)
        return None if tensor == "input" else self.nodes[int(tensor[1:])]

    def is_made_of(self, act: Act, op: str, x: Act) -> bool:
        """True for what an op makes of x."""
        maker = self.maker(self.tensor_of(act))
        return maker is not None and maker.op == op and maker.inputs == (self.tensor_of(x),)

    def reads_stand_in(self, call: Call) -> bool:
        """Whether a call reads what an op makes that is not supported, as anything but an image."""
        return any(self.is_stand_in(act) and act.dims != self._image_of(act) for act in call.acts)

    def _image_of(self, act: Act) -> tuple[int, ...]:
        h, w, c = self.shape(act)
        return (self.batch, c, h, w)

    def is_stand_in(self, act: Act) -> bool:
        """True for what an op makes that is not supported."""
        maker = self.maker(act.tensor)
        return maker is not None and maker.op.startswith(STAND_IN)

    def shape(self, act: Act) -> Shape:
        return self.tensors[act.tensor].shape

    def activation(self, call: Call, value: Any) -> Act:
        """The value, if it is an activation with all its dimensions; else an error."""
        if not isinstance(value, Act):
            raise call.error(
                f"{call.op} works on a constant; only ops on the image's activations are supported"
            )
        if value.pad:
            raise call.error(
                f"{call.op} reads an image with zeros around it; the nearest that is supported: a padding "
                "right before a convolution"
            )
        return value

    def image(self, call: Call, value: Any) -> Act:
        """The value, if it is an activation (n, c, h, w), or (n, c, time) as one; else an error."""
        act = self.activation(call, value)
        self.declare_anew(act)
        h, w, c = self.shape(act)
        if act.dims == (self.batch, c, h) and w == 1:
            return act
        if act.dims != (self.batch, c, h, w) and self.is_stand_in(act) and len(act.dims) == 4:
            shape = (act.dims[2], act.dims[3], act.dims[1])
            self.tensors[act.tensor] = Tensor(act.tensor, shape)  # only its dims are known
            return act
        if act.dims != (self.batch, c, h, w):
            raise call.error(
                f"{call.op} reads a tensor of shape {list(act.dims)}; it must be an image [n, c, h, w]"
            )
        return act

    def channelled(self, call: Call, value: Any) -> Act:
        """The value, if it is an image or a vector (n, c); else an error."""
        act = self.activation(call, value)
        is_vector = self.shape(act)[:2] == (1, 1) and act.dims == (self.batch, self.shape(act)[2])
        return act if is_vector else self.image(call, act)

    def has_channels(self, act: Act) -> bool:
        """Whether the second axis of a view is that of the map's channels."""
        return act.dims[:2] == (self.batch, self.shape(act)[2]) or self.is_stand_in(act)

    def declare_anew(self, act: Act) -> None:
        """An input that is read as an image first of all, after unsqueeze(1) say, is one."""
        as_image = act.order is None and len(act.dims) in (3, 4) and act.dims[0] == self.batch
        if as_image and not self.last and not self.fixed:
            _, c, h, w = (*act.dims, 1)[:4]
            self.redeclare((h, w, c))

    def redeclare(self, shape: Shape) -> bool:
        """Give the input another shape. False: it has more or fewer numbers, or more has been done to it than
        one factor and shift for all."""
        old = self.tensors["input"].shape
        norms = [self.layers[node.layer or ""] for node in self.nodes if node.op == NORM]
        alike = not any(np.ptp(v) for norm in norms for v in (norm.weight, norm.bias))
        if shape == old or math.prod(shape) != math.prod(old):  # what is read may be a part of it
            return shape == old
        if len(norms) < len(self.nodes) or not (alike or shape[2] == old[2]):
            return False
        self.tensors = {name: replace(t, shape=shape) for name, t in self.tensors.items()}
        for node in self.nodes:
            norm, c = self.layers[node.layer or ""], shape[2]
            if alike:
                weight, bias = (np.full(c, np.ravel(v)[0]) for v in (norm.weight, norm.bias))
                self.layers[node.layer or ""] = replace(norm, weight=weight, bias=bias)
        return True

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
        offset = None if bias is None else self.constant(call, bias, "bias")
        biases = np.zeros(len(values)) if offset is None else offset.value
        if biases.shape != (len(values),) or values.shape != shape:
            raise call.error(
                f"weights {list(values.shape)} and bias {list(biases.shape)} do not belong together"
            )
        name, first = self._owned(weight)
        source = Source(weight.name, offset.name if offset else None, columns=weight.stored)
        if weight.computed or (offset is not None and offset.computed):
            source = Source("")
            self.frozen.append(name)
        contiguous = np.ascontiguousarray(values, dtype=np.float32)
        self.layers[name] = Layer(contiguous, biases.astype(np.float32), source, shares=first)
        return name

    def _owned(self, weight: Param) -> tuple[str, str]:
        """The name of the layer that uses a weight, and of the one that did so first; "": no other does."""
        name = plain(weight.name).removesuffix(".weight")
        first = name
        if name not in self.layers:
            first, _ = self.owners.setdefault(weight.place, (name, weight))
        if first == name and name not in self.layers:
            return name, ""
        self.layers[first] = replace(self.layers[first], shares=first)
        uses = sum(layer.shares == first for layer in self.layers.values())
        return f"{name}.use{uses + 1}" if name in self.layers else name, first

    def emit(
        self,
        call: Call,
        op: str,
        inputs: tuple[Act, ...],
        shape: Shape,
        *,
        dims: tuple[int, ...] | None = None,
        **about: Any,
    ) -> Act:
        """Append a node; its output has the given shape (h, w, c), seen as `dims` (default: an image).

        about  what else the Node holds: layer, window, factors, channels
        """
        window, layer = about.get("window"), about.get("layer")
        if min(shape) < 1:
            raise call.error(
                f"{call.op} leaves an image of {shape[0]}x{shape[1]} pixels; the input is too small for it"
            )
        if (
            window
            and layer
            and op != LINEAR
            and max(window.kh, window.kw, window.stride_h, window.stride_w) > WINDOW_MOST
        ):
            raise call.error(
                f"a window of {window.kh}x{window.kw} every {window.stride_h}x{window.stride_w} pixels is "
                f"too large; {WINDOW_MOST} pixels per side are the most: let a pooling come before it"
            )
        tensor = f"%{len(self.nodes)}"
        self.tensors[tensor] = Tensor(tensor, shape)
        read = tuple(self.tensor_of(a) for a in inputs)
        name = layer or call.node_name(op)
        self.nodes.append(Node(op, name, read, (tensor,), **about))
        return Act(tensor, dims or (self.batch, shape[2], shape[0], shape[1]))

    def scaled(self, call: Call, act: Act, factor: Any, shift: Any = 0.0, source: str = "") -> Act:
        """factor * act + shift, one number of each or one a channel.

        source  the constant in the model that has one for each channel; "": there is none
        """
        own = call.node_name(call.op.strip("_"))
        name = f"{NORM}:{own}:{len(self.nodes)}"
        self.layers[name] = Layer(factor, shift, Source(source or own, bias=source or None))
        return self.emit(call, NORM, (act,), self.shape(act), dims=act.dims, layer=name)

    def note(self, error: ConvertError) -> None:
        """Note what is not supported, unless that follows from something else that is not."""
        if error not in self.found and not (isinstance(error, LayerError) and error.follows):
            self.found.append(error)

    def stand_in(self, call: Call, error: ConvertError, dims: tuple[int, ...]) -> Act:
        """Note an error and go on behind it."""
        self.note(error)
        made = self.unknown(call, dims)
        if not call.op.endswith("_"):  # what is written in place may be read by another name
            self.stood[made.tensor] = error
        return made

    def unknown(self, call: Call, dims: tuple[int, ...]) -> Act:
        """A node that has an op's inputs and the dims of its result."""
        acts = call.acts
        read = tuple(dict.fromkeys(self.tensor_of(v) for v in acts))
        h, w = (*dims[2:], 1)[:2] if len(dims) in (3, 4) else (1, 1)
        tensor = f"%{len(self.nodes)}"
        self.tensors[tensor] = Tensor(tensor, (h, w, math.prod(dims[1:]) // (h * w or 1)))
        self.nodes.append(
            Node(f"{STAND_IN}{call.op}", call.node_name(call.op), read or ("input",), (tensor,))
        )
        if call.op.endswith("_") and acts:
            self.current[self.held(acts[0].tensor)] = tensor
        return Act(tensor, dims)

    def finish(self, outputs: list[Any], parameters: Iterable[Sequence[int]] = ()) -> Raw:
        """The raw graph. parameters: shapes of the file's, in their order."""
        acts = [o for o in outputs if isinstance(o, Act)]
        if not acts:
            raise ConvertError(f"{self.name} returns what no layer has made; it must return the logits")
        results = tuple(self._result(act) for act in acts)
        if any(act.half or act.pad for act in acts):
            what = "ends with a mean over the width alone, or with zeros around a map"
            self.found.append(ConvertError(f"{self.name} {what}; it must end with a layer"))
        if self.frozen:
            layers = ", ".join(self.frozen[:3]) + (", ..." if len(self.frozen) > 3 else "")
            what = f"forward() computes the weights of {layers}, or reads them in another order"
            what = f"{what}, and the state dict has no place for them"
            warnings.warn(f"{what}: they stay frozen, and a head's come back as .npz alone", stacklevel=3)
        entries = [n for n in self.nodes if n.op != NORM and any(self.is_input(Act(i, ())) for i in n.inputs)]
        if self.reshaped and len(entries) > 1:
            what = f"reads its input in two shapes, in {entries[0].name} and {entries[1].name}"
            self.found.append(ConvertError(f"{self.name} {what}; let one layer read it"))
        image = self.tensors["input"]
        identity = Input("input", (1.0,) * image.channels, (0.0,) * image.channels)
        output = results[0].tensor
        tensors = {name: tensor for name, tensor in self.tensors.items() if name not in self.copies}
        graph = Graph(self.name, identity, output, tensors, tuple(self.nodes), dict(self.layers))
        shape = (image.channels, *image.shape[:2])
        return Raw(graph, shape, tuple(self.found), weights_of(parameters), results, self.stood)

    def _result(self, act: Act) -> Result:
        tensor = self.tensor_of(act)
        maker = self.maker(tensor)
        shape, name = self.tensors["input"].shape, maker.name if maker else "its input"
        view = None
        if self.tensors[tensor].shape == (1, 1, math.prod(shape)) and max(shape[:2]) > 1 < shape[2]:
            view = as_map(act.order, act.dims, shape, "input" in self.last)
        return Result(tensor, act.dims, name, view)


def of_series(low: Lowering, call: Call, rule: Callable[[Lowering, Call], Act]) -> Act:
    """A call on a series (n, c, time), by the rule of an image of one column."""
    args = dict(call.args)
    for name in ("kernel_size", "stride", "padding", "output_padding", "dilation", "output_size"):
        given, along = args.get(name), 0 if name.endswith("padding") else 1
        if isinstance(given, int) or (isinstance(given, Sequence) and len(given) == 1):
            args[name] = [given if isinstance(given, int) else given[0], along]
    if isinstance(weight := args.get("weight"), Param) and weight.value.ndim == 3:
        args["weight"] = replace(weight, value=weight.value[..., np.newaxis])
    made = rule(low, replace(call, args=args))
    return replace(made, dims=made.dims[:3])
