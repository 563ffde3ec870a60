"""Several training sessions of one network side by side in PyTorch: the arithmetic that a paper would use.

Forward is the device's quantized network. Errors are real numbers; weights and biases are float masters in
stored units, rounded for the forward pass; rounding and its gradient pass straight through (arXiv 2206.15472
section 3). Each session has its own weights and its own image per step, all of them take one step together.
"""

from __future__ import annotations

import os

# Float sums in one order on every x86 machine that has AVX2, whatever else it has.
os.environ.setdefault("MKL_CBWR", "AVX2,STRICT")
os.environ.setdefault("ATEN_CPU_CAPABILITY", "avx2")

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from microtrain.convert.ops import forward_entry
from microtrain.convert.reference.windows import torch_padded

from .network import Network, Step
from .rules import FLOAT, Rules, Sgd

Tensor = torch.Tensor


class Requantize(torch.autograd.Function):
    """y = clamp(rint(sums * m)), sums without and y without zero points; m None: 1.

    Behind it the error is masked where y saturated, and stored as the rules say.
    """

    @staticmethod
    def forward(ctx: Any, sums: Tensor, m: Tensor | None, zero: int, rules: Rules) -> Tensor:
        rounded = torch.round(sums if m is None else sums * m)
        y = rounded.clamp(-128 - zero, 127 - zero)
        ctx.save_for_backward(y == rounded)
        ctx.m, ctx.rules = m, rules
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (mask,) = ctx.saved_tensors
        e = ctx.rules.store_error(gradients[0] * mask)
        return e if ctx.m is None else e * ctx.m, None, None, None


def requantize(sums: Tensor, m: Tensor | None, zero: int, rules: Rules) -> Tensor:
    y: Tensor = Requantize.apply(sums, m, zero, rules)  # type: ignore[no-untyped-call]
    return y


class Round(torch.autograd.Function):
    """Rounded to integers; the gradient passes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.round(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


def rounded(x: Tensor) -> Tensor:
    result: Tensor = Round.apply(x)  # type: ignore[no-untyped-call]
    return result


class Parallel:
    """Sessions side by side, from the first step that learns on.

    Activations are float32 [runs][c][images][h][w]: stored integers less their zero point. Parameters are
    [runs][...].

    network  whose steps from `front` on are computed; what these read must be given
    rules    of the arithmetic
    """

    def __init__(
        self, network: Network, front: int, runs: int, rules: Rules = FLOAT, device: str = "cpu"
    ) -> None:
        self.network, self.runs, self.rules, self.device = network, runs, rules, device
        self.steps = [s for s in network.steps if s.step >= front]
        self.constants = {s.layer: TorchLayer(network, s, device) for s in self.steps if s.layer}
        self.parameters: dict[tuple[str, str], Tensor] = {}
        for name, layer in self.constants.items():
            for kind, value in layer.trainables().items():
                start = value[None].repeat(runs, *[1] * value.ndim)
                self.parameters[name, kind] = start.requires_grad_()
        plain = None if rules.qas else network.plain_factor()
        qas = {(name, kind): self.constants[name].qas(kind, plain) for name, kind in self.parameters}
        self.optimizer = Sgd(rules, self.parameters, qas)

    @property
    def sources(self) -> tuple[str, ...]:
        """Tensors that must be given: read by the steps and made by none."""
        made = {s.output for s in self.steps}
        return tuple(dict.fromkeys(t for s in self.steps for t in s.inputs if t not in made))

    def forward(self, given: Mapping[str, Tensor]) -> Tensor:
        """Logits [runs][images][classes] of the given tensors, stored integers [runs][c][images][h][w]."""
        values = {name: tensor - self.network.tensors[name].zero for name, tensor in given.items()}
        for step in self.steps:
            op = forward_entry(step.op)
            values[step.output] = op.parallel(self, step, *(values[t] for t in step.inputs))
        return values[self.network.output]

    def train(self, given: Mapping[str, Tensor], labels: Tensor, rates: Tensor) -> tuple[Tensor, Tensor]:
        """One step of every run on one image each. labels: [runs]; rates: [runs][weight, bias, head].

        Returns  logits [runs][classes], loss [runs]
        """
        logits, loss, gradients = self.gradients(given, labels)
        with torch.no_grad():
            self.optimizer.step(gradients, rates)
        return logits, loss

    def gradients(
        self, given: Mapping[str, Tensor], labels: Tensor
    ) -> tuple[Tensor, Tensor, dict[tuple[str, str], Tensor]]:
        """Logits, loss, and the gradient of each parameter with respect to its stored numbers."""
        logits = self.forward(given)[:, 0]
        loss = functional.cross_entropy(
            logits, labels, reduction="none", label_smoothing=self.rules.smoothing
        )
        taught = self.rules.taught(loss.detach())
        found = torch.autograd.grad((loss * taught).sum(), list(self.parameters.values()))
        return logits.detach(), loss.detach(), dict(zip(self.parameters, found, strict=True))

    def state(self) -> list[Tensor]:
        """A copy of all parameters."""
        return [p.detach().clone() for p in self.parameters.values()]

    def restore(self, run: int, state: list[Tensor]) -> None:
        """Put back one run's part of what state() returned."""
        with torch.no_grad():
            for parameter, kept in zip(self.parameters.values(), state, strict=True):
                parameter[run] = kept[run]

    def trained(self, run: int) -> bytes:
        """Parameters of a run in the order of the layers, float32."""
        return b"".join(p[run].detach().cpu().numpy().tobytes() for p in self.parameters.values())

    def dense(self, step: Step, x: Tensor) -> Tensor:
        """The sums of a convolution without biases, in groups where its weights have fewer input channels."""
        window, weight = step.window, self._weight(step.layer or "")
        assert window is not None
        groups = x.shape[1] // weight.shape[-3]
        point = window["kh"] == window["kw"] == window["stride_h"] == window["stride_w"] == 1
        if point and groups == 1:
            runs, c, *pixels = x.shape
            return torch.matmul(weight[..., 0, 0], x.reshape(runs, c, -1)).reshape(runs, -1, *pixels)
        weight = weight if weight.ndim == 5 else weight.expand(self.runs, *weight.shape)
        return self._grouped(x, weight, window, self.runs * groups)

    def depthwise(self, step: Step, x: Tensor) -> Tensor:
        """The sums of a depthwise convolution without biases."""
        assert step.window is not None
        weight = self._weight(step.layer or "").expand(self.runs, -1, -1, -1).unsqueeze(2)
        return self._grouped(x, weight, step.window, x.shape[0] * x.shape[1])

    def _grouped(self, x: Tensor, weight: Tensor, window: dict[str, int], groups: int) -> Tensor:
        """A convolution of each run with its weights [runs][c_out][c_in][kh][kw]; fewer taps lie apart."""
        runs, c, images, h, w = x.shape
        flat = x.permute(2, 0, 1, 3, 4).reshape(images, runs * c, h, w)
        stride = (window["stride_h"], window["stride_w"])
        flat, pad = torch_padded(flat, window, 0.0)
        sides = zip((window["kh"], window["kw"]), weight.shape[-2:], strict=True)
        apart = [max((size - 1) // max(taps - 1, 1), 1) for size, taps in sides]
        sums = functional.conv2d(flat, weight.flatten(0, 1), None, stride, pad, apart, groups)
        return sums.reshape(images, runs, -1, *sums.shape[2:]).permute(1, 2, 0, 3, 4)

    def requantized(self, step: Step, sums: Tensor) -> Tensor:
        """The stored output of a convolution's sums."""
        layer, bias = self.constants[step.layer or ""], self.parameters.get((step.layer or "", "bias"))
        bias = layer.bias if bias is None else rounded(bias)
        zero = self.network.tensors[step.output].zero
        return requantize(sums + bias[..., None, None, None], layer.multiplier, zero, self.rules)

    def stored(self, step: Step, values: Tensor) -> Tensor:
        """The stored output of values in its units."""
        return requantize(values, None, self.network.tensors[step.output].zero, self.rules)

    def rounded(self, values: Tensor) -> Tensor:
        """To integers; the gradient passes."""
        return rounded(values)

    def _weight(self, name: str) -> Tensor:
        """Stored weights for the forward pass: as TorchLayer has them, or [runs][...]."""
        layer, trained = self.constants[name], self.parameters.get((name, "weight"))
        if trained is None:
            return layer.weight
        columns = rounded(trained)
        if columns.shape[1:] == layer.weight.shape:
            return columns
        axis = 1 if layer.depthwise else 2
        return layer.weight.expand(self.runs, *layer.weight.shape).index_copy(axis, layer.trained, columns)


class TorchLayer:
    """Constants of a layer as tensors.

    weight   [c_out][c_in][kh][kw], depthwise [c][kh][kw], of the head [classes][features]
    """

    def __init__(self, network: Network, step: Step, device: str) -> None:
        layer = network.layers[step.layer or ""]
        self.depthwise, self.head = layer.weight.ndim == 3, layer.head
        dense = not self.depthwise and not self.head
        weight = layer.weight.transpose(0, 3, 1, 2) if dense else layer.weight
        self.weight = torch.tensor(np.ascontiguousarray(weight), dtype=torch.float32, device=device)
        self.bias = torch.tensor(layer.bias, dtype=torch.float32, device=device)
        self.trained = torch.tensor(layer.trained, dtype=torch.long, device=device)
        self.bias_trained, self.rate = layer.bias_trained, layer.rate
        self.scales: dict[str, Tensor] = {}
        if not layer.head:
            m = torch.tensor(layer.multiplier, device=device)
            self.multiplier = m[:, None, None, None]
            real = {"weight": layer.scale, "bias": network.real_bias(step)}
            scales = {kind: np.where(layer.dead, np.inf, scale) for kind, scale in real.items()}
            self.scales = {
                kind: torch.tensor(s, dtype=torch.float32, device=device) for kind, s in scales.items()
            }

    def trainables(self) -> dict[str, Tensor]:
        """Trained tensors of the layer at the start, by kind."""
        if self.head:
            return {"head_weight": self.weight, "head_bias": self.bias}
        found = {}
        if len(self.trained):
            found["weight"] = self.weight.index_select(0 if self.depthwise else 1, self.trained)
        if self.bias_trained:
            found["bias"] = self.bias
        return found

    def qas(self, kind: str, plain: float | None) -> Tensor:
        """Factor on the gradient of stored numbers: 1 / s^2, the step of real ones; 0 for dead channels. Of
        weights, times the layer's rate.

        plain   the same factor for all instead (without quantization-aware scaling)
        """
        if kind not in self.scales:
            return torch.ones((), device=self.weight.device)
        factor = self.scales[kind] ** -2
        if plain is not None:
            factor = torch.where(factor > 0, plain, factor)
        if kind == "bias":
            return factor
        channels = (factor[self.trained] if self.depthwise else factor) * self.rate
        return channels.view(-1, *[1] * (self.weight.ndim - 1))
