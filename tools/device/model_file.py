"""State dicts in and out of model files."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from microtrain.base.archive import open_archive
from microtrain.base.errors import Error
from microtrain.base.files import replacing
from microtrain.convert.frontends.module import kind_of
from microtrain.convert.frontends.torch import exported, torchscript

from .errors import DeviceError

State = dict[str, Any]  # names to torch tensors


def load_state(path: Path) -> State:
    """The state dict of a .pt: an exported program, TorchScript, or a state dict. Runs no code of the file.

    Errors   DeviceError
    """
    if not path.is_file():
        raise DeviceError(f"no such file: {path}.")
    try:
        return {name: torch.from_numpy(np.array(array)) for name, array in _arrays(path).items()}
    except Exception as error:  # whatever a damaged file leads to
        raise DeviceError(
            f"{path} holds no state dict that loads without running code: "
            "name the file that was converted (torch.export or TorchScript), or save model.state_dict()."
        ) from error


def _arrays(path: Path) -> dict[str, np.ndarray]:
    kind = kind_of(path)
    if not zipfile.is_zipfile(path):
        return _legacy(path)
    with open_archive(path, path.name) as archive:
        if kind == "exported":
            return exported.state_of(archive)
        if kind == "torchscript":
            return torchscript.state_of(archive)
        found = torchscript.read_objects(archive, "data")
    if not isinstance(found, dict):
        raise Error("a module saved whole")
    return {str(name): value for name, value in found.items() if isinstance(value, np.ndarray)}


def _legacy(path: Path) -> dict[str, np.ndarray]:
    """A state dict as torch wrote it before 1.6, by torch's own restricted reader."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    return {k: v.detach().numpy() for k, v in state.items() if torch.is_tensor(v)}


def save_state(path: Path, state: State) -> None:
    """Write a state dict for load_state_dict; nothing half-written stays behind."""
    with replacing(path) as part:
        torch.save(state, part)
