"""Trained layers into a copy of the ONNX file that they came from.

A quantized file (QDQ) keeps its scales and takes the integers that the device has. Its head was float on the
device and is float in the file from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Homes
from microtrain.convert.ir import ConvertError

from .file import BODY, LOOP, MOST_BYTES, OnnxGraph, graph_of, parsed

CLOSE = 1e-6  # of the largest of some numbers
PRODUCTS = ("MatMul", "Einsum", "Mul")  # which take no biases: these are added behind
SAME_SHAPE = ("Add", "Identity", "Softmax", "LogSoftmax", "Sigmoid", "Cast", "Dropout", "Flatten")


def trained_onnx(
    path: Path, homes: Homes, trained: Mapping[str, np.ndarray], head: tuple[str, str] | None
) -> bytes:
    """The file's bytes with trained parameters in it; weights that lay beside it are in it too.

    trained  real numbers as in a state dict of PyTorch, by the names in `homes`; a bias may be new
    head     names of the head's weights and biases, which stay float; None: there is no head
    Errors   ConvertError where the file cannot take them
    """
    copy = _Copy(path, homes)
    for name, value in trained.items():
        copy.put(name, value, as_float=name in (head or ()))
    if head is not None:
        old, new = (len(values) for values in (homes[head[0]].value, trained[head[0]]))
        copy.end(homes[head[0]].step, old, new if new != old else 0)
    return copy.finish()


class _Copy:
    """A model that is being changed.

    steps  nodes of the file, as homes count them
    nodes  those that there will be, in their order
    around what the bodies of loops read of the graph around them
    """

    def __init__(self, path: Path, homes: Homes) -> None:
        import onnx

        self.onnx: Any = onnx
        self.model = parsed(path)
        self.file: OnnxGraph = graph_of(path, self.model)
        self.graph = self.model.graph
        self.homes = homes
        self.steps = list(self.graph.node)
        self.nodes = list(self.steps)
        self.around = {name for step in self.file.steps for name in step.around}
        self._bring_in(self.graph, self.file)

    def _bring_in(self, graph: Any, read: OnnxGraph) -> None:
        """Let a graph, and the bodies of its loops, hold the weights that lie beside the file."""
        for tensor in graph.initializer:
            if tensor.data_location == tensor.EXTERNAL:
                tensor.CopyFrom(self.onnx.numpy_helper.from_array(read.constants[tensor.name], tensor.name))
        for node, step in zip(graph.node, read.steps, strict=True):
            body = step.attributes.get(BODY)
            if isinstance(body, OnnxGraph):
                self._bring_in(next(a.g for a in node.attribute if a.name == BODY), body)

    def readers(self, name: str) -> list[Any]:
        return [node for node in self.nodes if name in node.input]

    def maker(self, name: str) -> Any:
        return next((node for node in self.nodes if name in node.output), None)

    def put(self, name: str, value: np.ndarray, as_float: bool) -> None:
        """Parameters of a layer. as_float: even where the file has integers"""
        home = self.homes.get(name)
        if home is None:
            self._new_bias(name, value)
            return
        node = self.steps[home.step]
        maker = self.maker(node.input[home.input])
        values = home.back(value)
        coded = maker is not None and maker.op_type == "DequantizeLinear" and not as_float
        if coded and (stored := self._integers(maker, values, exact=home.scale is None)) is not None:
            self._set(maker, 0, stored, name)
        else:
            old = self.file.constants.get(node.input[home.input])
            dtype = np.float32 if old is None or old.dtype.kind != "f" else old.dtype
            self._set(node, home.input, values.astype(dtype), name)

    def _integers(self, node: Any, values: np.ndarray, exact: bool) -> np.ndarray | None:
        """What a DequantizeLinear is to read, so that it makes these numbers.

        exact  None where it cannot make just these: with zero points the device has other integers
        """
        scale = self._constant(node, 1).astype(np.float64)
        zero = self._constant(node, 2) if len(node.input) > 2 else np.zeros(1, np.uint8)
        stored = self.file.constants.get(node.input[0])
        dtype = zero.dtype if stored is None or stored.dtype.kind == "f" else stored.dtype
        shape = [1] * values.ndim
        if scale.size > 1:
            axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
            shape[axis] = scale.size
        zeros = zero.astype(np.float64).reshape(shape if zero.size > 1 else [1] * values.ndim)
        most, units = np.iinfo(dtype), scale.reshape(shape)
        whole = np.clip(np.rint(values / units) + zeros, most.min, most.max)
        if exact and np.abs((whole - zeros) * units - values).max() > CLOSE * np.abs(values).max():
            return None
        return np.asarray(whole, dtype)

    def _constant(self, node: Any, place: int) -> np.ndarray:
        found = self.file.constants.get(node.input[place])
        if found is None:
            raise ConvertError(f"{self.file.name}: the scales of {node.name} are no constants of the file")
        return found

    def _set(self, node: Any, place: int, values: np.ndarray, name: str) -> None:
        """Let a node read these values: its own constant is exchanged, one that others read is left."""
        old = node.input[place]
        alone = len(self.readers(old)) == 1 and old not in self.around
        own = [t for t in self.graph.initializer if t.name == old] if alone else []
        if own:
            own[0].CopyFrom(self.onnx.numpy_helper.from_array(values, old))
            for declared in (i for i in self.graph.input if i.name == old):
                declared.CopyFrom(self._declared(old, values))
            return
        node.input[place] = self._initializer(name, values)

    def _declared(self, name: str, values: np.ndarray) -> Any:
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(values.dtype)
        return self.onnx.helper.make_tensor_value_info(name, kind, values.shape)

    def _initializer(self, name: str, values: np.ndarray) -> str:
        """The name of a new constant."""
        name = self._free(name)
        self.graph.initializer.append(self.onnx.numpy_helper.from_array(values, name))
        return name

    def _free(self, name: str) -> str:
        taken = {n for node in self.nodes for n in (*node.input, *node.output)} | set(self.file.constants)
        taken |= self.around
        while name in taken:
            name += "_trained"
        return name

    def _new_bias(self, name: str, value: np.ndarray) -> None:
        """Biases of a layer that has none in the file."""
        own = name.removesuffix("bias")
        home = self.homes.get(f"{own}weight") or self.homes[own]  # the constant's own name, of a scale
        node = self.steps[home.step]
        if node.op_type in PRODUCTS:
            value = value.reshape(self._shape_behind(node, home.input))
        constant = self._initializer(name, value.astype(np.float32))
        if node.op_type not in PRODUCTS:
            node.input.extend([*[""] * (2 - len(node.input)), constant][: 3 - len(node.input)])
            return
        made, product = node.output[0], self._free(f"{node.output[0]}_product")
        node.output[0] = product
        added = self.onnx.helper.make_node("Add", [product, constant], [made], name=self._free(f"{name}_add"))
        self.nodes.insert(self.nodes.index(node) + 1, added)

    def _shape_behind(self, node: Any, place: int) -> tuple[int, ...]:
        """That of biases behind a product whose weights are the input at this place."""
        if node.op_type == "Mul":
            return self._constant(node, place).shape
        if node.op_type == "MatMul":
            return (-1,) if place else (-1, 1)
        equation = next(a.s.decode() for a in node.attribute if a.name == "equation")
        left, _, out = equation.replace(" ", "").partition("->")
        letters, sizes = left.split(",")[place], self._constant(node, place).shape
        made = [c for c in letters if c in out]
        behind = out.partition("".join(made))[2]
        if "".join(made) not in out or "." in behind:
            raise ConvertError(
                f"{self.file.name}: there is no place for the biases of {node.name}, {equation}; take the "
                "weights with -o"
            )
        return (*(sizes[letters.index(c)] for c in made), *[1] * len(behind))

    def end(self, step: int, old: int, classes: int) -> None:
        """What comes behind the head: nothing rounds its logits, and shapes follow its classes.

        classes  0: as many as before
        """
        pending, behind = list(self.steps[step].output), set()
        while pending:
            name = pending.pop()
            behind.add(name)
            for node in self.readers(name):
                pending += [o for o in node.output if o not in behind]
                if node.op_type == "QuantizeLinear" and name == node.input[0]:
                    pending += self._unrounded(node, name)
                elif classes and node.op_type not in (*SAME_SHAPE, "QuantizeLinear", "DequantizeLinear"):
                    raise ConvertError(
                        f"{self.file.name}: {node.op_type} behind the last layer counts its {old} classes, "
                        f"so the file cannot have {classes}; convert with --classes {old}, or take the "
                        "weights with -o"
                    )
        if classes:
            self._resize(behind, old, classes)

    def _unrounded(self, node: Any, name: str) -> list[str]:
        """Let those that dequantize what a node quantizes read what comes to it; returns what they make."""
        made: list[str] = []
        for reader in self.readers(node.output[0]):
            if reader.op_type == "DequantizeLinear":
                reader.op_type = "Identity"
                del reader.input[:], reader.attribute[:]
                reader.input.append(name)
                made += reader.output
        return made

    def _resize(self, names: set[str], old: int, classes: int) -> None:
        known = [i for i in self.graph.value_info if i.name not in names]
        del self.graph.value_info[:]
        self.graph.value_info.extend(known)
        for output in (o for o in self.graph.output if o.name in names):
            dims = output.type.tensor_type.shape.dim
            if dims and dims[-1].dim_value == old:
                dims[-1].dim_value = classes

    def finish(self) -> bytes:
        """The bytes of the file, without what nothing reads any more."""
        wanted = {o.name for o in self.graph.output}
        kept = []
        for node in reversed(self.nodes):
            if wanted & set(node.output):
                kept.append(node)
                wanted |= {*node.input, *(self.around if node.op_type == LOOP else ())}
        copies = [self.onnx.NodeProto.FromString(n.SerializeToString()) for n in reversed(kept)]
        del self.graph.node[:]
        self.graph.node.extend(copies)
        constants = [t for t in self.graph.initializer if t.name in wanted]
        left = {t.name for t in self.graph.initializer} - {t.name for t in constants}
        entries = [i for i in self.graph.input if i.name not in left]
        copied = [type(t).FromString(t.SerializeToString()) for t in constants]
        declared = [type(i).FromString(i.SerializeToString()) for i in entries]
        del self.graph.initializer[:], self.graph.input[:]
        self.graph.initializer.extend(copied)
        self.graph.input.extend(declared)
        data: bytes = self.model.SerializeToString()
        if len(data) > MOST_BYTES:
            raise ConvertError(
                f"{self.file.name} with its weights in it is larger than {MOST_BYTES >> 20} MB"
            )
        return data
