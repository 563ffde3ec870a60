"""Weight normalisation in a state dict: directions v, and lengths g beside them (Salimans and Kingma 2016).

PyTorch calls them weight_v and weight_g, or as a parametrization original1 and original0.
"""

from __future__ import annotations

import re

import numpy as np

PAIRS = ((".original1", ".original0"), ("_v", "_g"))  # how the names of directions and lengths end
PARTS = (  # how a state dict calls what a weight is made of, and the weight
    (re.compile(r"\.parametrizations\.(\w+)\.original\d?$"), r".\1"),
    (re.compile(r"(\.|^)(weight|bias)_(orig|v|g)$"), r"\1\2"),
)


def plain(name: str) -> str:
    """The weight that a part of it stands for: "a.weight" of "a.parametrizations.weight.original1"."""
    for part, whole in PARTS:
        name = part.sub(whole, name)
    return name


def beside(name: str) -> str | None:
    """The lengths that belong to these directions; None where the name is that of no directions."""
    if plain(name) == name:
        return None
    return next((name.removesuffix(v) + g for v, g in PAIRS if name.endswith(v)), None)


def weight(v: np.ndarray, g: np.ndarray) -> np.ndarray:
    """The weight that directions and lengths make."""
    return np.asarray(v * (g / lengths(v, g)))


def lengths(v: np.ndarray, g: np.ndarray) -> np.ndarray:
    """How long directions are, in the shape of g, which has one number for all or one each along one axis."""
    axes = tuple(i for i, size in enumerate(g.shape) if size == 1) if g.ndim == v.ndim else None
    made = np.asarray(np.sqrt(np.square(v).sum(axis=axes, keepdims=True)))
    return made if g.ndim == v.ndim else made.reshape(g.shape)
