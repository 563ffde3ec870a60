"""Small ONNX files with a recurrent layer as a loop over time, as tf2onnx writes Keras'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
REAL = TensorProto.FLOAT
Node = tuple[str, Sequence[str], Sequence[str], Mapping[str, Any]]  # op, inputs, outputs, attributes


def op(kind: str, inputs: str, outputs: str, **about: Any) -> Node:
    return kind, inputs.split(), outputs.split(), about


PLAIN = [op("Add", "xw b_in", "xs"), op("Add", "xs hr", "sum"), op("Tanh", "sum", "h_after")]
GRU = [
    op("Split", "b_in", "b0 b1", axis=0),
    *(op("Squeeze", f"b{i} first", f"bias{i}") for i in (0, 1)),
    *(op("Add", f"{sums} bias{i}", f"s{i}") for i, sums in enumerate(("xw", "hr"))),
    *(op("Split", f"s{i}", f"z{i} r{i} n{i}", axis=-1) for i in (0, 1)),
    *(op("Add", f"{g}0 {g}1", f"{g}s") for g in "zr"),
    *(op("Sigmoid", f"{g}s", g) for g in "zr"),
    *(op("Mul", "r n1", "rn"), op("Add", "n0 rn", "ns"), op("Tanh", "ns", "n")),
    *(op("Mul", "z h_in", "kept"), op("Sub", "one z", "rest"), op("Mul", "rest n", "new")),
    op("Add", "kept new", "h_after"),
]
LSTM = [
    *(op("Add", "xw hr", "both"), op("Add", "both b_in", "sums"), op("Split", "sums", "is fs gs os", axis=1)),
    *(op("Sigmoid", f"{g}s", g) for g in "ifo"),
    *(op("Tanh", "gs", "g"), op("Mul", "f c_in", "kept"), op("Mul", "i g", "new")),
    *(op("Add", "kept new", "c_after"), op("Tanh", "c_after", "shown"), op("Mul", "o shown", "h_after")),
]
CELLS = {1: PLAIN, 3: GRU, 4: LSTM}
FRAME = [
    *(op("Gather", "rows at", "row"), op("MatMul", "row w_in", "xw"), op("MatMul", "h_in u_in", "hr")),
    *(op("Add", "at step", "next"), op("Less", "next time", "more"), op("Identity", "h_after", "scan")),
]


@dataclass
class Looped:
    """A network over [1, time, features]: a loop, and three classes.

    gates     1 of a plain cell, 3 of a GRU, 4 of an LSTM
    backward  the rows come from the last one on
    read      what the classes are made of: the "last" row, all "rows", "h" or "c" that the loop leaves
    arrays    constants of the graph in the place of those that it has
    given     inputs of the loop in the place of those that it has: "most", "goes", "moment", "h", "c", ...
    changed   nodes of the body, in the place of those that make the same
    outputs   results of the body, in the place of others
    more      nodes of the graph in front of the loop
    """

    gates: int
    time: int = 6
    features: int = 5
    units: int = 7
    backward: bool = False
    read: str = "last"
    arrays: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    changed: Sequence[Node] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)
    more: Sequence[Node] = ()

    def file(self, folder: Path, name: str = "looped") -> Path:
        path = folder / f"{name}.onnx"
        path.write_bytes(self.model().SerializeToString())
        return path

    def model(self) -> Any:
        nodes = [op("Transpose", "x", "before" if self.backward else "rows", perm=[1, 0, 2])]
        if self.backward:
            nodes.append(op("ReverseSequence", "before lengths", "rows", batch_axis=1, time_axis=0))
        nodes += self.more
        made = [*(_made(node) for node in nodes), self._loop(), *(_made(node) for node in self._end())]
        entry = helper.make_tensor_value_info("x", REAL, [1, self.time, self.features])
        logits = helper.make_tensor_value_info("y", REAL, [1, 3])
        graph = helper.make_graph(made, "looped", [entry], [logits], _kept(self._arrays()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 8
        return model

    def _arrays(self) -> dict[str, Any]:
        """Constants of the graph."""
        rng, size = np.random.default_rng(self.gates), self.gates * self.units
        read = self.units * (self.time if self.read == "rows" else 1)
        shapes: dict[str, tuple[int, ...]] = {
            "classes": (read, 3),
            "w": (self.features, size),
            "u": (self.units, size),
        }
        shapes["b"] = (2, size) if self.gates == 3 else (size,)
        drawn = {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
        numbers = {"moment": np.int32(0), "most": self.time, "goes": np.array(True)}
        lists = {"axis": [0], "end": [1 << 31], "minus": [-1], "flat": [1, -1], "lengths": [self.time]}
        zeros = {name: np.zeros((1, self.units), np.float32) for name in self._states()}
        return {**drawn, **numbers, **lists, **zeros, **self.arrays}

    def _states(self) -> list[str]:
        return ["h", "c"] if self.gates == 4 else ["h"]

    def _loop(self) -> Any:
        carried = ["moment", *self._states(), "w", "u", "b"]
        inputs = [self.given.get(name, name) for name in ("most", "goes", *carried)]
        outputs = [*(f"{name}_left" for name in carried), "all"]
        return helper.make_node("Loop", inputs, outputs, "cell/while_loop", body=self._body())

    def _end(self) -> list[Node]:
        if self.read in ("h", "c"):
            return [op("MatMul", f"{self.read}_left classes", "y")]
        if self.read == "rows":
            nodes = [
                op("Transpose", "all", "ordered", perm=[1, 0, 2]),
                op("Reshape", "ordered flat", "vector"),
            ]
        else:
            nodes = [op("Slice", "all minus end axis", "row"), op("Squeeze", "row axis", "vector")]
        return [*nodes, op("MatMul", "vector classes", "y")]

    def _body(self) -> Any:
        """The body, which reads the rows of the graph around it."""
        info, size = helper.make_tensor_value_info, self.gates * self.units
        shapes = {"w": [self.features, size], "u": [self.units, size]}
        shapes["b"] = [2, size] if self.gates == 3 else [size]
        inputs = [info("number", TensorProto.INT64, []), info("going", TensorProto.BOOL, [])]
        inputs.append(info("at", TensorProto.INT32, []))
        inputs += [info(f"{name}_in", REAL, [1, self.units]) for name in self._states()]
        inputs += [info(f"{name}_in", REAL, shape) for name, shape in shapes.items()]
        after = [f"{name}_after" for name in self._states()]
        given = ["more", "next", *after, "w_in", "u_in", "b_in", "scan"]
        kinds = {"more": TensorProto.BOOL, "next": TensorProto.INT32}
        outputs = [info(self.outputs.get(name, name), kinds.get(name, REAL), None) for name in given]
        arrays = {"one": np.float32(1), "step": np.int32(1), "time": np.int32(self.time), "first": [0]}
        return helper.make_graph(
            [_made(node) for node in self._nodes()], "body", inputs, outputs, _kept(arrays)
        )

    def _nodes(self) -> list[Node]:
        """Nodes of the body; those that make something new in front of what reads it."""
        other = {node[2][0]: node for node in self.changed}
        plain = (*FRAME[:3], *CELLS[self.gates], *FRAME[3:])
        nodes = [other.pop(node[2][0], node) for node in plain]
        for node in reversed(other.values()):
            nodes.insert(next(i for i, each in enumerate(nodes) if set(node[2]) & set(each[1])), node)
        return nodes


def _kept(arrays: Mapping[str, Any]) -> list[Any]:
    return [numpy_helper.from_array(np.asarray(value), name) for name, value in arrays.items()]


def _made(node: Node) -> Any:
    kind, inputs, outputs, about = node
    return helper.make_node(kind, list(inputs), list(outputs), f"{outputs[0]}_", **about)


def loop_of_an_lstm() -> Looped:
    return Looped(4, read="rows")


def loop_of_a_gru() -> Looped:
    return Looped(3, backward=True)


def loop_of_a_plain_cell() -> Looped:
    return Looped(1, read="h")


NETWORKS = (loop_of_an_lstm, loop_of_a_gru, loop_of_a_plain_cell)
