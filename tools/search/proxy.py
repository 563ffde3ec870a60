"""Cheap proxies of contributions: one pass over some images instead of a training session for each of them.

The head learns alone first, so that errors mean something. Gradients are with respect to real-valued weights
and biases (quantization-aware scaling), as one learning rate serves all of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from microtrain.base.files import replacing
from microtrain.base.npz import read_npz
from microtrain.convert.emit.arrays import archive
from microtrain.convert.scheme import apply, convolutions

from .build import convert
from .contribution import Gains, one_layer
from .features import EVERYTHING, WHOLE
from .lab import Lab
from .space import Space

HEAD_STEPS, IMAGES, HEAD_RATE = 200, 100, 0.002
NAMES = ("norm", "fisher")


@dataclass(frozen=True, eq=False)
class Proxies:
    """Squared norms of gradients, float64, by layer.

    weights  of each input channel (depthwise: channel): [channels][2]; biases: [2]
             of the mean gradient ("norm"), and the mean over the images: the trace of the empirical Fisher
             information ("fisher")
    """

    weights: Mapping[str, np.ndarray]
    biases: Mapping[str, np.ndarray]

    def of_weights(self, lab: Lab, space: Space, layer: int, level: int) -> np.ndarray:
        name = space.layers[layer]
        channels = apply(lab.graph, one_layer(space, layer, level, 0)).layers[name].trained
        result: np.ndarray = self.weights[name][list(channels)].sum(axis=0)
        return result

    def save(self, path: Path) -> None:
        named = {"weights": self.weights, "biases": self.biases}
        arrays = {f"{kind}/{name}": a for kind, table in named.items() for name, a in table.items()}
        with replacing(path) as part, part.open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    def of_biases(self, lab: Lab, count: int) -> np.ndarray:
        return sum((self.biases[name] for name in convolutions(lab.graph)[-count:]), np.zeros(len(NAMES)))


def load_proxies(path: Path) -> Proxies:
    """What Proxies.save() wrote."""
    tables: dict[str, dict[str, np.ndarray]] = {"weights": {}, "biases": {}}
    for key, array in read_npz(path).items():
        kind, _, name = key.partition("/")
        tables[kind][name] = array
    return Proxies(**tables)


def measure(lab: Lab) -> Proxies:
    """One pass over IMAGES training images. Needs PyTorch."""
    import torch

    from microtrain.simulate.network import load_network
    from microtrain.simulate.parallel import Parallel

    torch.set_num_threads(1)
    compiled = convert(lab.graph, EVERYTHING, lab.classes, WHOLE)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.npz").write_bytes(archive(compiled.graph, ""))
        net = Parallel(load_network(Path(folder), ""), 0, 1)
    means: dict[tuple[str, str], np.ndarray] = {}
    squares: dict[tuple[str, str], np.ndarray] = {}
    order = np.random.default_rng(0).permutation(len(lab.training.samples))
    for number, index in enumerate(np.resize(order, HEAD_STEPS + IMAGES)):
        sample = lab.training.samples[index]
        image = torch.from_numpy(lab.stored((sample.path, 0)).astype(np.float32)).permute(2, 0, 1)
        given, label = {net.network.input: image[None, :, None].contiguous()}, torch.tensor([sample.label])
        if number < HEAD_STEPS:
            net.train(given, label, torch.tensor([[0.0, 0.0, HEAD_RATE]]))
            continue
        for key, gradient in net.gradients(given, label)[2].items():
            real = (gradient * net.optimizer.qas[key].sqrt())[0].double().numpy()
            means[key] = means.get(key, 0.0) + real / IMAGES
            squares[key] = squares.get(key, 0.0) + real**2 / IMAGES
    norms = {key: np.stack([means[key] ** 2, squares[key]], axis=-1) for key in means}
    return Proxies(
        {name: by_channel(value) for (name, kind), value in norms.items() if kind == "weight"},
        {name: value.reshape(-1, 2).sum(axis=0) for (name, kind), value in norms.items() if kind == "bias"},
    )


def by_channel(squared: np.ndarray) -> np.ndarray:
    """Sums of [c_out][c_in][kh][kw][2] over all but c_in, of a depthwise [c][kh][kw][2] over all but c."""
    result: np.ndarray = squared.sum(axis=(1, 2) if squared.ndim == 4 else (0, 2, 3))
    return result


def correlations(
    lab: Lab, space: Space, proxies: Proxies, gains: Gains
) -> dict[str, dict[str, float | None]]:
    """Spearman's rank correlation of each proxy with the gains: of weights and of biases; None: too few."""
    bits = min((bits for _, _, bits in gains.weights), default=0)
    choices = [(layer, level) for layer, level, b in gains.weights if b == bits and layer < len(space.layers)]
    counts = [k for k in gains.biases if k]
    return {
        "weights": rank(
            [proxies.of_weights(lab, space, *choice) for choice in choices],
            [gains.weights[*choice, bits] for choice in choices],
        ),
        "biases": rank([proxies.of_biases(lab, k) for k in counts], [gains.biases[k] for k in counts]),
    }


def rank(found: list[np.ndarray], gains: list[float]) -> dict[str, float | None]:
    """found: of each gain, the proxies in the order of NAMES."""
    from scipy.stats import spearmanr

    if len(set(gains)) < 2:
        return dict.fromkeys(NAMES)
    columns = zip(NAMES, np.array(found).T, strict=True)
    return {name: float(spearmanr(column, gains).statistic) for name, column in columns}
