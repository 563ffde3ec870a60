"""What can be seen in an update: two attacks on what a board would send after one step on one image.

    dlg        Deep Leakage from Gradients (Zhu et al., 2019, arXiv:1906.08935): L-BFGS on the squared
               distance
    inverting  Inverting Gradients (Geiping et al., 2020, arXiv:2003.14053): signed Adam on one minus the
               cosine of each tensor, with total variation

The attacker has all that a server has: the network as the device computes it, the trained weights before the
step, the label (it can be read off the head's gradient), and the update. The gradients of its own image are
those of `tools/simulate/parallel.py`, differentiated once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from microtrain.base.plan import Plan, read_plan
from microtrain.device.session import Settings
from microtrain.fleet import dgc
from microtrain.fleet.board import Host, HostBoard
from microtrain.fleet.layout import Layout
from microtrain.fleet.private import Private
from microtrain.samples.source import Dataset, load
from microtrain.samples.stored import stored
from microtrain.simulate.network import Step, load_network
from microtrain.simulate.parallel import Parallel, Tensor

from .study import Scene, federated, in_float

STEP, VARIATION = 0.05, 0.2
WARM = 200  # steps before the one that is attacked: a head of zeros gives no gradient to what is below it


@dataclass(frozen=True)
class Way:
    """An attack. iterations: L-BFGS looks up to 20 times in each; sparse: what was not sent is not known."""

    name: str
    iterations: int
    sparse: bool = False


class Smooth(Parallel):
    """The network without rounding of activations, whose gradients can be differentiated once more."""

    def requantized(self, step: Step, sums: Tensor) -> Tensor:
        layer = self.constants[step.layer or ""]
        bias = self.parameters.get((step.layer or "", "bias"), layer.bias)
        values = (sums + bias[..., None, None, None]) * layer.multiplier
        return self.stored(step, values)

    def stored(self, step: Step, values: Tensor) -> Tensor:
        zero = self.network.tensors[step.output].zero
        clipped: Tensor = values.clamp(-128 - zero, 127 - zero)
        return clipped

    def rounded(self, values: Tensor) -> Tensor:
        return values


class Victim:
    """A board in the middle of its training, and the attacker's copy of its network."""

    def __init__(self, folder: Path, work: Path, training: Dataset) -> None:
        self.plan: Plan = read_plan(folder / "plan.json")
        self.layout = Layout(self.plan)
        self.board = HostBoard(Host(self.plan, work), "victim")
        warm = Settings(limit=WARM, seed=11, rate=1.0)
        self.block = self.board.learn(self.board.fresh(), training, warm).block
        self.net = Smooth(load_network(folder, self.plan.model_id), 0, 1)
        self._place(self.layout.read(self.block))

    def _place(self, values: np.ndarray) -> None:
        """The board's trained values as the copy's parameters."""
        constants = self.net.constants
        for part in self.layout.parts:
            own = values[part.start : part.end] / 2.0**part.bits
            parameter = self.net.parameters[part.tensor.layer, part.tensor.kind]
            if part.tensor.kind == "bias":
                own = own * self._bias_units(part.tensor.layer) + constants[part.tensor.layer].bias.numpy()
            with torch.no_grad():
                parameter[0] = self._shaped(torch.tensor(own, dtype=torch.float32), part.tensor.shape)

    def _bias_units(self, layer: str) -> np.ndarray:
        """Units of the stored sums that one of a trained bias is."""
        network = self.net.network
        step = next(s for s in network.steps if s.layer == layer)
        return np.asarray(network.layers[layer].bias_unit / network.real_bias(step))

    @staticmethod
    def _shaped(flat: Tensor, shape: tuple[int, ...]) -> Tensor:
        one = flat.reshape(shape)
        return one.permute(0, 3, 1, 2) if len(shape) == 4 else one

    def gradients(self, image: Tensor, label: int) -> Tensor:
        """Of the trained values in the units of the float model, in the order of the layout, differentiable.

        image  stored numbers [h][w][c], real-valued
        """
        given = {self.net.sources[0]: image.permute(2, 0, 1)[None, :, None]}
        logits = self.net.forward(given)[:, 0]
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor([label]))
        names = [(part.tensor.layer, part.tensor.kind) for part in self.layout.parts]
        found = torch.autograd.grad(loss, [self.net.parameters[n] for n in names], create_graph=True)
        pieces = []
        for part, gradient, name in zip(self.layout.parts, found, names, strict=True):
            one = gradient[0]
            if name[1] in ("weight", "bias"):
                scale = self.net.constants[name[0]].scales[name[1]]
                one = torch.where(torch.isinf(self._wide(scale, one)), 0.0, one / self._wide(scale, one))
            one = one.permute(0, 2, 3, 1) if len(part.tensor.shape) == 4 else one
            pieces.append(one.reshape(-1))
        return torch.cat(pieces)

    @staticmethod
    def _wide(scale: Tensor, like: Tensor) -> Tensor:
        return scale.reshape(-1, *[1] * (like.ndim - 1)) if like.ndim else scale

    def sent(self, sample: Dataset, rate: float = 1.0) -> np.ndarray:
        """The change that one step on one image makes, as integers."""
        done = self.board.learn(self.block, sample, Settings(seed=5, rate=rate))
        change: np.ndarray = self.layout.read(done.block) - self.layout.read(self.block)
        return change

    def stored(self, sample: Dataset) -> np.ndarray:
        """The image as the model takes it, float32 [h][w][c]."""
        shape = self.plan.input.shape
        pixels = load(sample.samples[0].path, shape)
        return stored(pixels, self.plan.input).astype(np.float32)


def variation(image: Tensor) -> Tensor:
    down, across = image[1:] - image[:-1], image[:, 1:] - image[:, :-1]
    return down.abs().mean() + across.abs().mean()


def apart(layout: Layout, found: Tensor, wanted: Tensor) -> Tensor:
    """One minus the cosine, the mean over the tensors: of the whole, the head would drown all others."""
    losses = []
    for part in layout.parts:
        a, b = found[part.start : part.end], wanted[part.start : part.end]
        if b.any():
            losses.append(1 - (a * b).sum() / (a.norm() * b.norm()).clamp_min(1e-12))
    return torch.stack(losses).mean()


def attack(victim: Victim, update: np.ndarray, label: int, way: Way, seed: int = 0) -> np.ndarray:
    """The image that explains an update best, float32 [h][w][c] in -1..1.

    update  descends, in the units of the float model; its length says nothing to `inverting`
    """
    draws = torch.Generator().manual_seed(seed)
    image = (0.1 * torch.randn(victim.plan.input.shape, generator=draws)).requires_grad_()
    wanted = torch.tensor(update, dtype=torch.float32)
    known = wanted != 0 if way.sparse else torch.ones_like(wanted, dtype=torch.bool)
    best = (math.inf, image.detach().clone())

    def closure() -> Tensor:
        nonlocal best
        found = torch.where(known, victim.gradients(image * 127.5, label), 0.0)
        if way.name == "dlg":
            loss = (found - wanted).square().sum() / wanted.square().sum().clamp_min(1e-12)
        else:
            loss = apart(victim.layout, found, wanted) + VARIATION * variation(image)
        if torch.isfinite(loss) and loss.item() < best[0]:
            best = loss.item(), image.detach().clone()
        (gradient,) = torch.autograd.grad(loss, [image])
        gradient = torch.nan_to_num(gradient)
        image.grad = gradient if way.name == "dlg" else gradient.sign()
        return loss.detach()

    dlg = way.name == "dlg"
    optimizer: torch.optim.Optimizer
    optimizer = torch.optim.LBFGS([image], 0.5) if dlg else torch.optim.Adam([image], STEP)
    for turn in range(way.iterations):
        if not dlg and turn in (way.iterations // 2, way.iterations * 3 // 4):
            optimizer.param_groups[0]["lr"] *= 0.3
        optimizer.step(closure)  # type: ignore[no-untyped-call, unused-ignore]
        with torch.no_grad():
            image.clamp_(-1, 1)
    return np.asarray(best[1].numpy())


def ssim(a: np.ndarray, b: np.ndarray, window: int = 7) -> float:
    """Structural similarity (Wang et al., 2004) of images in -1..1, a uniform window."""
    from numpy.lib.stride_tricks import sliding_window_view as views

    a, b = (views(x.squeeze().astype(np.float64) + 1, (window, window)) for x in (a, b))  # none is negative
    mean_a, mean_b = a.mean((-1, -2)), b.mean((-1, -2))
    var_a, var_b = a.var((-1, -2)), b.var((-1, -2))
    both = (a * b).mean((-1, -2)) - mean_a * mean_b
    c1, c2 = (0.01 * 2) ** 2, (0.03 * 2) ** 2
    value = (2 * mean_a * mean_b + c1) * (2 * both + c2)
    return float((value / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))).mean())


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    error = float(np.mean((a - b) ** 2))
    return 10 * math.log10(4 / max(error, 1e-12))


# ---------------------------------------------------------------- what is sent


@dataclass(frozen=True)
class Noise:
    """Of Flower's LocalDpMod: a change is cut to `clip` and noise is added; epsilon of one step."""

    clip: float
    epsilon: float
    delta: float = 1e-5

    @property
    def deviation(self) -> float:
        return self.clip * math.sqrt(2 * math.log(1.25 / self.delta)) / self.epsilon

    @property
    def private(self) -> Private:
        """The same for a gateway."""
        return Private(self.clip, self.deviation / self.clip)


def noised(update: np.ndarray, noise: Noise, seed: int) -> np.ndarray:
    cut = update * min(1.0, noise.clip / max(float(np.linalg.norm(update)), 1e-12))
    return np.asarray(cut + np.random.default_rng(seed).normal(0, noise.deviation, update.shape))


def full_gradient(victim: Victim, sample: Dataset) -> np.ndarray:
    """What a board without quantization would send: the float gradient itself."""
    image = torch.tensor(victim.stored(sample))
    return np.asarray(victim.gradients(image, sample.samples[0].label).detach().numpy(), np.float64)


def largest(gradient: np.ndarray, part: float) -> np.ndarray:
    """A float gradient with only its largest values, as the papers compress it."""
    count = max(1, int(gradient.size * part))
    kept = np.argsort(-np.abs(gradient), kind="stable")[:count]
    result = np.zeros_like(gradient)
    result[kept] = gradient[kept]
    return result


def compressed(victim: Victim, change: np.ndarray, share: int) -> np.ndarray:
    """A board's change as dgc.py sends it, the first time."""
    nothing = np.zeros_like(change)
    room = dgc.budget(victim.layout, share)
    return dgc.compressed(victim.layout, change, nothing, nothing, room, 0).values


# ---------------------------------------------------------------- the table


@dataclass(frozen=True)
class Defence:
    """What a board sends instead of its gradient.

    scheme   that it trains
    send     the update of a victim, descending, in the units of the float model
    learn    accuracy of a fleet whose boards send their rounds so, after the last
    sparse   most of it was not sent
    """

    name: str
    scheme: str
    send: Callable[[Victim, Dataset], np.ndarray]
    learn: Callable[[Scene], float]
    sparse: bool = False


NOISE = Noise(clip=1.0, epsilon=50.0)


def real(victim: Victim, change: np.ndarray) -> np.ndarray:
    return -victim.layout.real(change)


def floats(part: float) -> Callable[[Scene], float]:
    """A fleet in float whose boards send this part of their values."""
    return lambda scene: in_float(scene, quiet, part)[-1]


def devices(share: int = 0, private: Private | None = None) -> Callable[[Scene], float]:
    """A fleet of devices. share: of a compressed update, in millionths."""
    return lambda scene: float(federated(scene, share, dgc.MOMENTUM, quiet, private)["accuracy"][-1])


def quiet(line: str) -> None:
    """Tells nobody."""


DEFENCES = (
    Defence("float gradient of all layers", "full", full_gradient, floats(1.0)),
    Defence(
        "float gradient, 1 % of it", "full",
        lambda v, s: largest(full_gradient(v, s), 0.01), floats(0.01), True,
    ),
    Defence("int8 step of all layers", "full", lambda v, s: real(v, v.sent(s)), devices()),
    Defence("int8 step, sparse update", "sparse", lambda v, s: real(v, v.sent(s)), devices()),
    Defence("int8 step, biases only", "bias", lambda v, s: real(v, v.sent(s)), devices()),
    Defence(
        "int8 step, sparse update, DGC 1 %", "sparse",
        lambda v, s: real(v, compressed(v, v.sent(s), 10_000)), devices(10_000), True,
    ),
    Defence(
        "int8 step, sparse update, clipped and noised", "sparse",
        lambda v, s: noised(real(v, v.sent(s)), NOISE, 3), devices(private=NOISE.private),
    ),
)  # fmt: skip


def rows(
    victims: dict[str, Victim], sample: Dataset, iterations: tuple[int, int], tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Of each defence what the better attack makes of it.

    iterations  of dlg and of inverting
    """
    found = []
    for defence in DEFENCES:
        victim = victims[defence.scheme]
        truth = victim.stored(sample) / 127.5
        update = defence.send(victim, sample)
        images = {}
        for name, count in zip(("dlg", "inverting"), iterations, strict=True):
            way = Way(name, count, defence.sparse)
            images[name] = attack(victim, update, sample.samples[0].label, way)
        scores = {name: ssim(image, truth) for name, image in images.items()}
        best = max(scores, key=lambda name: scores[name])
        found.append(
            {
                "defence": defence.name,
                "attack": best,
                "ssim": round(scores[best], 4),
                "psnr": round(psnr(images[best], truth), 2),
                "image": images[best],
            }
        )
        tell(f"{defence.name}: SSIM {scores[best]:.3f} by {best}")
    return found


def picture(found: list[dict[str, Any]], truth: np.ndarray, file: Path) -> None:
    """The image and what came back of it, side by side."""
    from PIL import Image

    tiles = [truth, *(row["image"] for row in found)]
    shown = [np.clip((tile + 1) * 127.5, 0, 255).astype(np.uint8).squeeze() for tile in tiles]
    wide = np.concatenate([np.pad(tile, 1, constant_values=255) for tile in shown], axis=1)
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(wide).resize((wide.shape[1] * 4, wide.shape[0] * 4), Image.Resampling.NEAREST).save(file)
