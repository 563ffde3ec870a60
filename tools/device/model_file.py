"""Model files in and out: state dicts, and the one constant of batch norm that a state dict does not hold."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from device.errors import DeviceError
from device.files import replacing

DEFAULT_EPS = 1e-5  # torch's

State = dict[str, Any]  # names to torch tensors


@dataclass(frozen=True)
class ModelFile:
    """A model's state dict, and the eps of its batch norms by module path where the file tells them."""

    state: State
    epsilons: Mapping[str, float] = field(default_factory=dict)

    def eps(self, bn: str) -> float:
        return self.epsilons.get(bn, DEFAULT_EPS)


def load_model_file(path: Path) -> ModelFile:
    """Read a .pt: an exported program, TorchScript, or a state dict. Runs no code of the file.

    Errors   DeviceError
    """
    if not path.is_file():
        raise DeviceError(f"no such file: {path}.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state, epsilons = read(path)
        return ModelFile({k: v.detach().clone() for k, v in state.items() if torch.is_tensor(v)}, epsilons)
    except Exception as error:  # whatever torch makes of a file that is no model
        raise DeviceError(
            f"{path} holds no state dict that loads without running code: "
            "name the file that was converted (torch.export or TorchScript), or save model.state_dict()."
        ) from error


def read(path: Path) -> tuple[Mapping[str, Any], dict[str, float]]:
    """State dict and epsilons; the names in the file's archive tell what kind it is."""
    names = zipfile.ZipFile(path).namelist() if zipfile.is_zipfile(path) else []
    if any("/code/" in name for name in names):
        script = torch.jit.load(str(path), map_location="cpu")
        return script.state_dict(), script_epsilons(script)
    if any(name.endswith("archive_format") for name in names):
        with path.open("rb") as file:  # by name it would insist on .pt2
            program = torch.export.load(file)
        return program.state_dict, exported_epsilons(program)
    return torch.load(path, map_location="cpu", weights_only=True), {}


def exported_epsilons(program: Any) -> dict[str, float]:
    """eps by batch norm of an exported program: the float after the momentum in aten.batch_norm."""
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    found: dict[str, float] = {}
    for node in program.graph.nodes:
        if "batch_norm" not in str(node.target):
            continue
        buffers = [names.get(str(argument), "") for argument in node.args]
        path = next((name for name in buffers if name.endswith("running_mean")), None)
        floats = [argument for argument in node.args if isinstance(argument, float)]
        if path is not None and len(floats) > 1:
            found[path.removesuffix(".running_mean")] = floats[1]
    return found


def script_epsilons(script: Any) -> dict[str, float]:
    """eps by batch norm of a TorchScript module: inputs 3 (running mean) and 7 (eps) of aten::batch_norm."""
    found: dict[str, float] = {}
    graph = script.inlined_graph  # the nodes below die with it
    for node in graph.findAllNodes("aten::batch_norm"):
        inputs = list(node.inputs())
        path, eps = attribute_path(inputs[3].node()), inputs[7].toIValue()
        if path.endswith("running_mean") and isinstance(eps, float):
            found[path.removesuffix(".running_mean")] = eps
    return found


def attribute_path(node: Any) -> str:
    """Dotted name of what a chain of prim::GetAttr nodes fetches."""
    names: list[str] = []
    while node.kind() == "prim::GetAttr":
        names.append(node.s("name"))
        node = next(iter(node.inputs())).node()
    return ".".join(reversed(names))


def save_state(path: Path, state: State) -> None:
    """Write a state dict for load_state_dict; nothing half-written stays behind."""
    with replacing(path) as part:
        torch.save(state, part)
