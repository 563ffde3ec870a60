"""The float twin of a device's autoencoder: PyTorch, the published float file, the same steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from microtrain.base.plan import Plan
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ops.reconstruct import THRESHOLD


class Twin:
    """An autoencoder of linear layers that learns what a plan lets a device learn, in float.

    samples  of a normal machine, real values float32 [samples][n]: they give the unit of the score
    """

    def __init__(self, model: Path, plan: Plan, samples: np.ndarray) -> None:
        graph = load_model(model).graph
        self.names = [node.layer or "" for node in graph.nodes]
        self.layers = [nn.Linear(1, 1) for _ in self.names]
        for name, layer in zip(self.names, self.layers, strict=True):
            given = graph.layers[name]
            layer.weight = nn.Parameter(torch.tensor(given.weight.reshape(len(given.weight), -1)))
            layer.bias = nn.Parameter(torch.tensor(given.bias))
        self.masks = self._masks(plan)
        score = self.scores(samples)
        self.unit = float(score.mean() + 3.0 * score.std()) / THRESHOLD

    def _masks(self, plan: Plan) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """What learns, and 1 where it does."""
        found: list[tuple[torch.Tensor, torch.Tensor]] = []
        for name, layer in zip(self.names, self.layers, strict=True):
            if plan.find(name, "bias"):
                found.append((layer.bias, torch.ones_like(layer.bias)))
            if weight := plan.find(name, "weight"):
                mask = torch.zeros_like(layer.weight)
                mask[:, slice(None) if weight.channels is None else list(weight.channels)] = 1.0
                found.append((layer.weight, mask))
        return found

    def _off(self, x: torch.Tensor) -> torch.Tensor:
        """Mean squared difference of what is made and what was given, by sample."""
        y = x
        for number, layer in enumerate(self.layers):
            y = layer(y) if number == len(self.layers) - 1 else torch.relu(layer(y))
        return ((y - x) ** 2).mean(dim=1)

    def scores(self, samples: np.ndarray) -> np.ndarray:
        """Of samples, real values [samples][n]."""
        with torch.no_grad():
            return np.asarray(self._off(torch.tensor(samples)))

    def learn(self, sample: np.ndarray, rate: float) -> None:
        """One step of SGD on a normal sample, real values [n]."""
        (self._off(torch.tensor(sample)[None]).sum() / self.unit).backward()
        with torch.no_grad():
            for parameter, mask in self.masks:
                assert parameter.grad is not None
                parameter.sub_(rate * mask * parameter.grad)
        for layer in self.layers:
            layer.zero_grad()
