"""The same trainables on a PC: float32 throughout, AdamW, batches, a rate that falls on a cosine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch

from microtrain.simulate.blueprint import Blueprint
from microtrain.simulate.network import Network, Step, load_network
from microtrain.simulate.parallel import Parallel, Tensor

BATCH = 8
BETAS, EPSILON, DECAY = (0.9, 0.999), 1e-8, 0.01
Records = np.ndarray


class Real(Parallel):
    """Nothing is rounded; activations end where int8 does."""

    def requantized(self, step: Step, sums: Tensor) -> Tensor:
        layer = self.constants[step.layer or ""]
        bias = self.parameters.get((step.layer or "", "bias"), layer.bias)
        return self.stored(step, (sums + bias[..., None, None, None]) * layer.multiplier)

    def stored(self, step: Step, values: Tensor) -> Tensor:
        zero = self.network.tensors[step.output].zero
        return values.clamp(-128 - zero, 127 - zero)

    def rounded(self, values: Tensor) -> Tensor:
        return values

    def _weight(self, name: str) -> Tensor:
        layer, trained = self.constants[name], self.parameters.get((name, "weight"))
        if trained is None or trained.shape[1:] == layer.weight.shape:
            return layer.weight if trained is None else trained
        axis = 1 if layer.depthwise else 2
        return layer.weight.expand(self.runs, *layer.weight.shape).index_copy(axis, layer.trained, trained)


class AdamW:
    """On real values: parameters are in stored units, of which `scale` says what they are worth.

    Decoupled weight decay (Loshchilov and Hutter 2019) of weights, towards where they began.
    """

    def __init__(
        self, parameters: dict[tuple[str, str], Tensor], scale: dict[tuple[str, str], Tensor]
    ) -> None:
        self.parameters, self.scale = parameters, scale
        self.start = {key: p.detach().clone() for key, p in parameters.items()}
        self.first = {key: torch.zeros_like(p) for key, p in parameters.items()}
        self.second = {key: torch.zeros_like(p) for key, p in parameters.items()}
        self.steps = 0

    @torch.no_grad()
    def step(self, gradients: dict[tuple[str, str], Tensor], rate: float) -> None:
        self.steps += 1
        for key, gradient in gradients.items():
            real = torch.nan_to_num(gradient / self.scale[key], posinf=0.0, neginf=0.0)
            first, second, parameter = self.first[key], self.second[key], self.parameters[key]
            first.mul_(BETAS[0]).add_(real, alpha=1 - BETAS[0])
            second.mul_(BETAS[1]).addcmul_(real, real, value=1 - BETAS[1])
            mean = first / (1 - BETAS[0] ** self.steps)
            root = (second / (1 - BETAS[1] ** self.steps)).sqrt() + EPSILON
            parameter.sub_(rate * DECAY * (parameter - self.start[key]))
            parameter.sub_(rate * (mean / root) / self.scale[key])


def scales(net: Real) -> dict[tuple[str, str], Tensor]:
    """Real value of a unit of each parameter; infinite for channels that are dead."""
    return {key: net.optimizer.qas[key] ** -0.5 for key in net.parameters}


def trained(
    plan: Blueprint, views: Callable[[int], tuple[Records, np.ndarray]], epochs: int, rate: float, seed: int
) -> Real:
    """The network after a session. views: records and labels of an epoch, in its order."""
    torch.manual_seed(seed)
    network = load_network(plan.folder, plan.model_id)
    net = Real(network, plan.front, 1)
    optimizer = AdamW(net.parameters, scales(net))
    total = epochs * -(-len(views(0)[1]) // BATCH)
    for epoch in range(epochs):
        for records, labels in batches(*views(epoch)):
            fall = 0.5 * (1 + math.cos(math.pi * optimizer.steps / total))
            logits = net.forward(given(plan, network, records))[0]
            loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels))
            found = torch.autograd.grad(loss, list(net.parameters.values()))
            optimizer.step(dict(zip(net.parameters, found, strict=True)), rate * fall)
    return net


def batches(records: Records, labels: np.ndarray) -> Iterator[tuple[Records, np.ndarray]]:
    for start in range(0, len(labels), BATCH):
        yield records[start : start + BATCH], labels[start : start + BATCH]


def given(plan: Blueprint, network: Network, records: Records) -> dict[str, Tensor]:
    """What the front left of images, [1][c][images][h][w]."""
    result = {}
    for name in dict.fromkeys(t for s in network.steps if s.step >= plan.front for t in s.inputs):
        if name not in plan.kept and plan.front:
            continue
        offset, shape = plan.kept[name] if plan.front else (0, plan.shape)
        values = records[:, offset : offset + int(np.prod(shape))].view(np.int8).reshape(-1, *shape)
        images = values.transpose(3, 0, 1, 2).astype(np.float32)
        result[name] = torch.from_numpy(np.ascontiguousarray(images))[None]
    return result


@torch.no_grad()
def accuracy(plan: Blueprint, net: Real, records: Records, labels: np.ndarray) -> float:
    right = 0
    for some, wanted in batches(records, labels):
        found = net.forward(given(plan, net.network, some))[0].argmax(1).numpy()
        right += int((found == wanted).sum())
    return right / len(labels)
