"""Trained integers back into the state dict of the PyTorch model they came from."""

from __future__ import annotations

import numpy as np
import torch

from microtrain.base.plan import Plan

from . import merging
from .model_file import State
from .weights import Arrays


def merge(plan: Plan, arrays: Arrays, state: State) -> tuple[State, list[str]]:
    """A copy of the model's state dict with the trained tensors in it, and remarks on what changed its shape.

    Errors   DeviceError where the state dict lacks a name of the plan or has another shape
    """
    plain = {name: value.detach().double().numpy() for name, value in state.items()}
    new = merging.of_modules(plan, plain)
    trained, notes = merging.merge(plan, arrays, plain | new)
    kept = {name: value.clone() for name, value in state.items()}
    found = kept | {name: _like(value, name, state) for name, value in trained.items()}
    return found, notes + [f"{name} is new: docs/schemes.md says what reads it." for name in new]


def _like(value: np.ndarray, name: str, state: State) -> torch.Tensor:
    """A trained tensor in the type of the old one; a new bias in that of the weights beside it."""
    old = state.get(name, state.get(name.removesuffix("bias") + "weight"))
    tensor = torch.from_numpy(np.ascontiguousarray(value))
    return tensor.float() if old is None else tensor.to(old.dtype)
