"""Reads the archive that torch.export.save writes (torch 2.8 and later).

The file is a zip of JSON and raw bytes. torch.export.load would also unpickle parts of it and evaluate
expressions, which a hostile file could use; nothing in here executes anything.
Format: torch/_export/serde/schema.py, torch/csrc/export/pt2_archive_constants.h.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from microtrain.base.archive import Archive
from microtrain.base.pickles import strided
from microtrain.base.reading import reading
from microtrain.convert.aten_call import Call, Param
from microtrain.convert.ir import ConvertError
from microtrain.convert.lowering import Lowering
from microtrain.convert.nearest import ONE_INPUT
from microtrain.convert.raw import Raw

from ..aten.rules import lower
from ..operations import Operation
from ..returned import returned
from ..written_norms import Written
from .scalars import applies, evaluate
from .written import Node, group_norms, normalised

SCHEMA_MAJOR = 8
DTYPES = {
    1: "u1",
    2: "i1",
    3: "<i2",
    4: "<i4",
    5: "<i8",
    6: "<f2",
    7: "<f4",
    8: "<f8",
    12: "?",
    13: "bfloat16",
}


SCALARS = {13: 15}  # bfloat16, behind what the file leaves out


def read_exported(archive: Archive) -> Raw:
    """The raw graph of a torch.export archive."""
    with _damaged(archive.name):
        return _program(archive).read()


def state_of(archive: Archive) -> dict[str, np.ndarray]:
    """Parameters, buffers and constants by their names in the state dict."""
    with _damaged(archive.name):
        return _program(archive).state()


def _damaged(name: str) -> AbstractContextManager[None]:
    wrong = f"{name} is a damaged torch.export file"
    return reading(ConvertError, lambda why: f"{wrong} ({why}); save it again")


def _program(archive: Archive) -> _Program:
    """The one program of the archive."""
    models = [p for p in archive.paths if p.startswith("models/") and p.endswith(".json")]
    if len(models) != 1:
        raise ConvertError(f"{archive.name} holds {len(models)} exported programs; it must hold one")
    program = archive.json(models[0])
    major = program["schema_version"]["major"]
    if major != SCHEMA_MAJOR:
        raise ConvertError(
            f"{archive.name} was written with version {major} of torch.export's format, which cannot be "
            "read; save it again with a torch from 2.8 on"
        )
    return _Program(archive, models[0].split("/")[-1].removesuffix(".json"), program)


class _Program:
    """Walks the nodes of one exported program."""

    def __init__(self, archive: Archive, model: str, program: Mapping[str, Any]) -> None:
        self.archive = archive
        self.graph = program["graph_module"]["graph"]
        self.signature = program["graph_module"]["signature"]
        self.weights = archive.json(f"data/weights/{model}_weights_config.json")["config"]
        self.constants = archive.json(f"data/constants/{model}_constants_config.json")["config"]
        self.low = Lowering(archive.name)
        self.env: dict[str, Any] = {}

    def read(self) -> Raw:
        inputs = [spec for spec in self.signature["input_specs"] if not self._bind_constant(spec)]
        if len(inputs) != 1 or "as_tensor" not in inputs[0].get("user_input", {}).get("arg", {}):
            raise ConvertError(f"{self.archive.name} takes {len(inputs)} inputs; {ONE_INPUT}")
        name = inputs[0]["user_input"]["arg"]["as_tensor"]["name"]
        sizes = self.graph["tensor_values"][name]["sizes"]
        dims = tuple(self._size(d, position) for position, d in enumerate(sizes))
        self.env[name] = self.low.input(dims)
        norms, steps = self._norms()
        parts = {place for norm in norms.values() for place in norm.inside}
        for place, node in enumerate(self.graph["nodes"]):
            if place in norms:
                self._norm(node, norms[place], steps)
            elif place not in parts:
                self._node(node)
        outputs = [self._argument(o) for o in self.graph["outputs"]]
        specs = [spec["parameter"] for spec in self.signature["input_specs"] if "parameter" in spec]
        sizes = (self.weights[spec["parameter_name"]]["tensor_meta"]["sizes"] for spec in specs)
        return self.low.finish(returned(self.low, outputs), [[s["as_int"] for s in size] for size in sizes])

    def state(self) -> dict[str, np.ndarray]:
        return {name: self._array(name, entry, False) for name, entry in self.weights.items()}

    def _size(self, size: Mapping[str, Any], position: int) -> int:
        """One dimension of the input; a batch of any size counts as 1."""
        if "as_int" in size:
            return int(size["as_int"])
        if position == 0:
            return 1
        raise ConvertError(
            f"{self.archive.name} was exported with an image size that may vary; export it with a fixed one"
        )

    def _bind_constant(self, spec: Mapping[str, Any]) -> bool:
        """Bind a parameter, buffer or lifted constant to its placeholder; False for a real input."""
        kind = next(iter(spec))
        if kind not in ("parameter", "buffer", "tensor_constant"):
            return False
        name = spec[kind][f"{kind}_name"]
        constant = name not in self.weights
        entry = (self.constants if constant else self.weights)[name]
        self.env[spec[kind]["arg"]["name"]] = Param(name, self._array(name, entry, constant))
        return True

    def _array(self, name: str, entry: Mapping[str, Any], constant: bool) -> np.ndarray:
        """The tensor's values. bfloat16 is widened to float32."""
        meta = entry["tensor_meta"]
        if entry["use_pickle"]:
            raise ConvertError(
                f"{name} of {self.archive.name} is stored as a pickle, which may execute code; "
                "make it a plain tensor before export"
            )
        dtype = DTYPES.get(meta["dtype"])
        if dtype is None:
            raise ConvertError(
                f"{name} of {self.archive.name} has an unknown number type; convert it to float32"
            )
        data = self.archive.bytes(f"data/{'constants' if constant else 'weights'}/{entry['path_name']}")
        shape, strides = (tuple(s["as_int"] for s in meta[key]) for key in ("sizes", "strides"))
        try:
            return strided(data, dtype, shape, strides, meta["storage_offset"]["as_int"])
        except ValueError as error:
            raise ConvertError(
                f"{name} of {self.archive.name} is cut short ({error}); save the file again"
            ) from error

    def _norms(self) -> tuple[dict[int, Written], list[Operation]]:
        """Normalisations that forward() writes out, by the place of their last node; what all nodes are."""
        nodes = []
        for node in self.graph["nodes"]:
            made = tuple(name for output in node["outputs"] for name in _names_of(output))
            said = {i["name"]: i["arg"] for i in node["inputs"]}
            nodes.append(Node(_op_name(node["target"]), said, made, self._shape(made[0]) if made else None))
        results = {name for output in self.graph["outputs"] for name in _names_of(output)}
        return group_norms(nodes, self.env, self._shape, results)

    def _shape(self, name: Any) -> tuple[int, ...] | None:
        """What the file says of a tensor's shape, for a batch of one; None where it says nothing."""
        sizes = self.graph["tensor_values"].get(name, {}).get("sizes")
        return None if sizes is None else tuple(int(d.get("as_int", self.low.batch)) for d in sizes)

    def _norm(self, node: Mapping[str, Any], norm: Written, steps: Sequence[Operation]) -> None:
        """Append a normalisation in the place of its last node."""
        homes = {"weight": norm.weight, "bias": norm.bias}
        params = {kind: self.env[str(steps[at[0]].inputs[at[1]])] for kind, at in homes.items() if at}
        call = Call(_op_name(node["target"]), *_module(_stack(node)), params)
        try:
            self._bind(node, normalised(self.low, call, self.env[str(norm.given)], norm, params))
        except ConvertError as error:
            self._stand_in(node, call, error)

    def _node(self, node: Mapping[str, Any]) -> None:
        args = {i["name"]: self._argument(i["arg"]) for i in node["inputs"]}
        op = _op_name(node["target"])
        if applies(op, list(args.values())):
            self._bind(node, evaluate(op, list(args.values())))
            return
        call = Call(op, *_module(_stack(node)), args)
        try:
            self._bind(node, lower(self.low, call))
        except ConvertError as error:
            self._stand_in(node, call, error)

    def _stand_in(self, node: Mapping[str, Any], call: Call, error: ConvertError) -> None:
        """Go on behind an op that is not supported: the file says which shapes it has made."""
        for name in [name for output in node["outputs"] for name in _names_of(output)]:
            dims = self._shape(name)
            self.env[name] = self.low.stand_in(call, error, dims) if dims else None
        self.low.note(error)

    def _bind(self, node: Mapping[str, Any], value: Any) -> None:
        """Of several outputs all where the op makes a list or a tuple, else the first."""
        outputs = node["outputs"] if isinstance(value, tuple) else node["outputs"][:1]
        names = [name for output in outputs for name in _names_of(output)]
        values = value if isinstance(value, list | tuple) and len(names) > 1 else [value]
        self.env.update(zip(names, values, strict=False))

    def _argument(self, arg: Mapping[str, Any]) -> Any:
        kind, value = next(iter(arg.items()))
        if kind == "as_none":
            return None
        if kind in ("as_tensor", "as_sym_int", "as_sym_bool", "as_sym_float"):
            return self._reference(value)
        if kind in ("as_tensors", "as_sym_ints"):
            return [self._reference(v) for v in value]
        if kind == "as_optional_tensors":
            return [self._argument(v) for v in value]
        if kind == "as_scalar_type":
            return SCALARS.get(value, value - 1)  # the file counts from 1, c10::ScalarType from 0
        if kind == "as_float":
            return float(value)  # infinite ones are words
        return value

    def _reference(self, value: Mapping[str, Any]) -> Any:
        if "as_int" in value:
            return value["as_int"]
        if "as_bool" in value:
            return value["as_bool"]
        name = value.get("as_name") or value["name"]
        if name not in self.env:
            raise ConvertError(
                f"{self.archive.name} uses {name}, a second result of an op; only first ones are supported"
            )
        return self.env[name]


def _op_name(target: str) -> str:
    """torch.ops.aten.conv2d.default -> conv2d, _operator.mul -> mul."""
    parts = target.split(".")
    return parts[3] if target.startswith("torch.ops.") and len(parts) > 3 else parts[-1]


def _names_of(output: Mapping[str, Any]) -> list[str]:
    kind, value = next(iter(output.items()))
    if kind == "as_tensors":
        return [str(each["name"]) for each in value]
    return [str(value.get("as_name") or value.get("name"))] if isinstance(value, Mapping) else []


def _stack(node: Mapping[str, Any]) -> str:
    return str(node.get("metadata", {}).get("nn_module_stack", ""))


def _module(stack: str) -> tuple[str, bool]:
    """Path of the innermost module and whether its class is one of torch's own."""
    if not stack:
        return "", False
    _, path, kind = [*stack.split(";")[-1].split(","), "", ""][:3]
    return path.partition("@")[0], kind.startswith("torch.nn.modules.")
