"""ONNX networks of random operators, with random attributes: small, and of sizes that are often the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

SIDES = (1, 2, 3, 4, 4, 4, 5, 6, 7)  # 4 is drawn often, so that rows are as many as columns, or as channels
PADS = ("NOTSET", "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


class Net:
    """A network that grows node by node; `held` has what each tensor holds of one sample."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.opset = int(self.rng.choice((15, 18, 20)))
        self.nodes: list[Any] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.held: dict[str, np.ndarray] = {}

    def one(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, share: float = 0.5) -> bool:
        return bool(self.rng.random() < share)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.held[name].shape

    def rank(self, name: str) -> int:
        return self.held[name].ndim

    def input(self, *dims: int) -> str:
        self.held["x"] = self.rng.uniform(0, 1, dims).astype(np.float32)
        return "x"

    def constant(self, value: Any) -> str:
        name = f"k{len(self.arrays)}"
        self.arrays[name] = np.asarray(value)
        return name

    def whole(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def drawn(self, *shape: int, around: float = 0.0) -> str:
        spread = 1.0 / math.sqrt(max(1, math.prod(shape[1:])))
        return self.constant((self.rng.normal(0, spread, shape) + around).astype(np.float32))

    def weights(self, *shape: int) -> str:
        """Random numbers, now and then as integers and a scale, of all or one for each output."""
        if self.chance(0.8):
            return self.drawn(*shape)
        kind = self.one((np.int8, np.uint8))
        each = (shape[0],) if self.chance() else ()
        numbers = self.rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)
        zero = self.rng.integers(100, 150, each) if kind is np.uint8 else np.zeros(each)
        scale = self.rng.uniform(0.003, 0.02, each).astype(np.float32)
        about = {"axis": 0} if each else {}
        given = (self.constant(v) for v in (numbers, scale, np.asarray(zero).astype(kind)))
        return self.add("DequantizeLinear", *given, **about)

    def positive(self, *shape: int) -> str:
        return self.constant(self.rng.uniform(0.5, 1.5, shape).astype(np.float32))

    def add(self, op: str, *inputs: str, outputs: int = 1, **about: Any) -> str:
        """Append a node; the name of its first result, of which the others' begin.

        Errors  whatever ONNX's evaluator raises where the node is none
        """
        names = [f"t{len(self.nodes)}{f'.{i}' if i else ''}" for i in range(outputs)]
        node = helper.make_node(op, inputs, names, f"n{len(self.nodes)}", **about)
        given = {name: self.held.get(name, self.arrays.get(name)) for name in inputs if name}
        made: Any = ReferenceEvaluator(_model([node], [], given, names, self.opset)).run(None, given)
        for name, value in zip(names, made, strict=True):
            if not value.size or not np.isfinite(value.astype(np.float64)).all():
                raise ValueError("nothing, or nothing finite")
            self.held[name] = value
        self.nodes.append(node)
        return names[0]

    def saved(self, path: Path, result: str) -> Path:
        held = {"x": self.held["x"]}
        path.write_bytes(_model(self.nodes, self.arrays, held, [result], self.opset).SerializeToString())
        return path


def _model(
    nodes: Sequence[Any], arrays: Any, given: dict[str, Any], outputs: Sequence[str], opset: int
) -> Any:
    entries = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in given.items()
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    constants = [numpy_helper.from_array(arrays[name], name) for name in arrays]
    graph = helper.make_graph(nodes, "g", entries, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def window(net: Net, x: str) -> dict[str, Any]:
    """Kernel, stride, padding of a map or a series."""
    sides = net.shape(x)[2:]
    if not sides:
        raise ValueError("a vector")
    kernel = [min(net.one((1, 2, 3, 3, 5)), side) for side in sides]
    strides = [net.one((1, 1, 2, 3)) for _ in sides]
    about: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
    kind = net.one(PADS)
    if kind == "VALID" or (kind != "NOTSET" and all(s <= k for s, k in zip(strides, kernel, strict=True))):
        return {**about, "auto_pad": kind}  # evaluators do not agree on SAME with gaps between the windows
    pads = [[net.one((0, 0, 1, k // 2)) for k in kernel] for _ in range(2)]
    return {**about, "pads": [min(p, k - 1) for side in pads for p, k in zip(side, kernel, strict=True)]}


def conv(net: Net, x: str) -> str:
    about, c = window(net, x), net.shape(x)[1]
    group = net.one([g for g in (1, 1, 1, 2, c) if c % g == 0])
    outputs = group * net.one((1, 2, 3)) if group > 1 else net.one(SIDES)
    if net.chance(0.2):
        about["dilations"] = [net.one((1, 2)) for _ in about["strides"]]
    weights = [net.weights(outputs, c // group, *about["kernel_shape"])]
    weights += [net.drawn(outputs)] if net.chance(0.7) else []
    return net.add("Conv", x, *weights, group=group, **about)


def gemm(net: Net, x: str) -> str:
    features, outputs = net.shape(x)[-1], net.one(SIDES)
    if net.rank(x) != 2:
        weight = net.drawn(features, outputs)
        made = net.add("MatMul", x, weight)
        return net.add("Add", made, net.drawn(outputs)) if net.chance() else made
    straight = int(net.chance())
    weight = net.weights(outputs, features) if straight else net.drawn(features, outputs)
    bias = [net.drawn(*net.one(((outputs,), (1, outputs), (1,))))] if net.chance(0.7) else []
    about = {"alpha": net.one((1.0, 0.5)), "beta": net.one((1.0, 2.0))} if net.chance(0.3) else {}
    return net.add("Gemm", x, weight, *bias, transB=straight, **about)
