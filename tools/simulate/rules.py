"""The arithmetic of training, as a choice: what PyTorch sessions (parallel.py) compute with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

Tensor = torch.Tensor
HEAD_UNIT = 1.0 / 128  # of an int8 head: weights of +-1


@dataclass(frozen=True)
class Rules:
    """What is stored how, and what is learned from which step. The default is the float reference.

    weights        "float": masters; "int8": with fraction_bits below each unit
    rounding       of stored weights: "stochastic", "nearest", "truncate"
    errors         what shares a scale of back-propagated int8 errors: "channel", "pixel", "tensor" (the
                   largest value / 127), "tensor2" (the power of two above); "float": they are not rounded
    error_rounding "nearest" or "stochastic"
    head           "float" or "int8"
    rates          factors on the learning rates of weights, biases and head
    momentum       of SGD
    accumulate     steps whose gradients are averaged before an update
    state_bits     of what is kept of gradients for these two, rounded stochastically; the largest of a
                   channel is 127 units of 8 bits, or 7 of 4; 0: floats
    signs          a step goes by the signs of the velocity, times the mean size of a channel's
    curvature      the head's steps are divided by the mean squares of its gradients so far, at this decay, in
                   units of their mean; 0: they are not
    smoothing      share of each target that is spread over all classes
    gate           a step whose loss is below is skipped
    kept           share of an error tensor that is kept, those of largest magnitude
    qas            quantization-aware scaling of the gradients of weights and biases
    """

    weights: str = "float"
    rounding: str = "stochastic"
    fraction_bits: int = 0
    errors: str = "float"
    error_rounding: str = "nearest"
    head: str = "float"
    rates: tuple[float, float, float] = (1.0, 1.0, 1.0)
    momentum: float = 0.0
    accumulate: int = 1
    state_bits: int = 0
    signs: bool = False
    curvature: float = 0.0
    smoothing: float = 0.0
    gate: float = 0.0
    kept: float = 1.0
    qas: bool = True

    def store_error(self, e: Tensor) -> Tensor:
        """An error tensor [runs][c][images][h][w] after it was stored."""
        if self.kept < 1.0:
            e = e * largest(e, self.kept)
        if self.errors == "float":
            return e
        axes = {"channel": (2, 3, 4), "pixel": (1,), "tensor": (1, 2, 3, 4), "tensor2": (1, 2, 3, 4)}
        unit = e.abs().amax(axes[self.errors], keepdim=True) / 127.0
        if self.errors == "tensor2":
            unit = torch.exp2(torch.ceil(torch.log2(unit)))
        unit = torch.where((unit > 0) & torch.isfinite(unit), unit, 1.0)
        q = e / unit
        return unit * (
            torch.floor(q + torch.rand_like(q)) if self.error_rounding == "stochastic" else torch.round(q)
        )

    def store_weight(self, w: Tensor) -> Tensor:
        """Weights [runs][...] in stored units, after they were stored."""
        if self.weights == "float":
            return w
        grid = w * 2.0**self.fraction_bits
        if self.rounding == "stochastic":
            grid = torch.floor(grid + torch.rand_like(grid))
        else:
            grid = torch.round(grid) if self.rounding == "nearest" else torch.trunc(grid)
        return (grid / 2.0**self.fraction_bits).clamp(-127, 127)

    def store_state(self, state: Tensor) -> Tensor:
        """What is kept of gradients, [runs][outputs][...], after it was stored."""
        if not self.state_bits:
            return state
        unit = largest_of_channel(state) / (2 ** (self.state_bits - 1) - 1)
        unit = torch.where(unit > 0, unit, 1.0)
        return unit * torch.floor(state / unit + torch.rand_like(state))

    def store_head(self, w: Tensor) -> Tensor:
        if self.head == "float":
            return w
        return HEAD_UNIT * torch.floor(w / HEAD_UNIT + torch.rand_like(w)).clamp(-127, 127)

    def taught(self, loss: Tensor) -> Tensor:
        """1 for each run that learns from this step, 0 for one that skips it."""
        return (loss >= self.gate).to(loss.dtype)


FLOAT = Rules()
DAMPED = 0.1  # of the mean curvature, at least: where a feature was hardly ever there


def largest_of_channel(x: Tensor) -> Tensor:
    """Of a tensor [runs][outputs][...], its sides kept; a bias is one channel."""
    return x.abs().amax(tuple(range(2 if x.ndim > 2 else 1, x.ndim)), keepdim=True)


def largest(e: Tensor, share: float) -> Tensor:
    """1 where |e| is among the largest of its run, else 0."""
    flat = e.abs().flatten(1)
    count = max(1, round(share * flat.shape[1]))
    threshold = flat.kthvalue(flat.shape[1] - count + 1, dim=1).values
    return (e.abs() >= threshold.view(-1, *[1] * (e.ndim - 1))).to(e.dtype)


class Sgd:
    """Plain SGD of sessions side by side, by the rules.

    parameters  (layer, kind) -> [runs][...], changed in place
    qas         (layer, kind) -> factor on its gradient, [c_out] or 1
    """

    def __init__(self, rules: Rules, parameters: dict[Any, Tensor], qas: dict[Any, Tensor]) -> None:
        self.rules, self.parameters, self.qas = rules, parameters, qas
        self.velocity: dict[Any, Tensor] = {}
        self.sums: dict[Any, Tensor] = {}
        self.squares: dict[Any, Tensor] = {}
        self.steps = 0

    def step(self, gradients: dict[Any, Tensor], rates: Tensor) -> None:
        """One step. gradients: with respect to the stored numbers; rates: [runs][weight, bias, head]."""
        self.steps += 1
        for key, gradient in gradients.items():
            if self.rules.accumulate > 1:
                gradient = self._accumulated(key, gradient)
            if self.steps % self.rules.accumulate == 0:
                self._update(key, gradient, rates)

    def _accumulated(self, key: Any, gradient: Tensor) -> Tensor:
        if self.steps % self.rules.accumulate == 1:
            self.sums[key] = torch.zeros_like(gradient)
        self.sums[key] = self.rules.store_state(self.sums[key] + gradient / self.rules.accumulate)
        return self.sums[key]

    def _update(self, key: Any, gradient: Tensor, rates: Tensor) -> None:
        kind, parameter = key[1], self.parameters[key]
        column = 0 if kind == "weight" else 1 if kind == "bias" else 2
        rate = rates[:, column].view(-1, *[1] * (parameter.ndim - 1)) * self.rules.rates[column]
        if self.rules.momentum:
            before = self.velocity.get(key)
            gradient = gradient if before is None else gradient + self.rules.momentum * before
            self.velocity[key] = gradient = self.rules.store_state(gradient)
            gradient = signed(gradient) if self.rules.signs else gradient
        if self.rules.curvature and column == 2:
            gradient = gradient / self._curved(key, gradient)
        changed = parameter - rate * self.qas[key] * gradient
        if kind == "weight":
            changed = self.rules.store_weight(changed.clamp(-127, 127))
        elif kind == "head_weight":
            changed = self.rules.store_head(changed)
        parameter.copy_(changed)

    def _curved(self, key: Any, gradient: Tensor) -> Tensor:
        """The diagonal of the Fisher information so far, in units of its mean in each run."""
        decay, square = self.rules.curvature, gradient**2
        before = self.squares.get(key, square)
        self.squares[key] = found = decay * before + (1 - decay) * square
        mean = found.mean(tuple(range(1, found.ndim)), keepdim=True)
        return found / torch.where(mean > 0, mean, 1.0) + DAMPED


def signed(x: Tensor) -> Tensor:
    """Signs, [runs][outputs][...], of the mean size of each channel."""
    size = x.abs()
    return torch.sign(x) * (size.mean(tuple(range(2, x.ndim)), keepdim=True) if x.ndim > 2 else size)
