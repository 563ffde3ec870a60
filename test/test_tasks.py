"""The float twin that `make tasks` compares a device's autoencoder with."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from lab.tasks.cases import spectra
from lab.tasks.learn import auc
from lab.tasks.twin import Twin

N = 24


def twin_of(folder: Path, learns: dict[tuple[str, str], Any], samples: np.ndarray) -> tuple[Twin, Any]:
    torch.manual_seed(0)
    layers = (nn.Linear(N, 8), nn.ReLU(), nn.Linear(8, N))
    net = nn.Sequential(nn.Flatten(), *layers).eval()
    path = folder / "net.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(net, (torch.zeros(1, 1, 1, N),)), path)
        plan = SimpleNamespace(find=lambda layer, kind: learns.get((layer, kind)))
        return Twin(path, plan, samples), net  # type: ignore[arg-type]


def test_a_twin_scores_and_learns_as_pytorch_does(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).normal(0, 1, (20, N)).astype(np.float32)
    some = SimpleNamespace(channels=(0, 3))
    learns = {("1", "bias"): some, ("3", "weight"): some}
    twin, net = twin_of(tmp_path, learns, samples)
    x = torch.tensor(samples)
    wanted = ((net(x[:, None, None]) - x) ** 2).mean(dim=1)
    np.testing.assert_allclose(twin.scores(samples), wanted.detach().numpy(), rtol=1e-5)
    assert np.isclose(twin.unit, float(wanted.mean() + 3 * wanted.std(correction=0)) * 4)
    (((net(x[:1, None, None]) - x[:1]) ** 2).mean() / twin.unit).backward()
    twin.learn(samples[0], 0.5)
    first, last = net[1], net[3]
    np.testing.assert_allclose(
        twin.layers[0].bias.detach(), (first.bias - 0.5 * first.bias.grad).detach(), rtol=1e-4, atol=1e-6
    )
    stepped = last.weight - 0.5 * last.weight.grad
    columns = torch.arange(8)
    kept = (columns != 0) & (columns != 3)
    np.testing.assert_array_equal(twin.layers[1].weight[:, kept].detach(), last.weight[:, kept].detach())
    np.testing.assert_allclose(
        twin.layers[1].weight[:, [0, 3]].detach(), stepped[:, [0, 3]].detach(), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_array_equal(twin.layers[0].weight.detach(), first.weight.detach())


def test_two_machines_are_as_far_from_the_first() -> None:
    rng = np.random.default_rng(0)
    known, new, odd = (spectra(rng, 200, shift).astype(float).mean(axis=0) for shift in (0.0, 1.0, -1.0))
    near, far = (float(np.linalg.norm(one - known)) for one in (new, odd))
    assert abs(near / far - 1) < 0.1 and np.linalg.norm(new - odd) > 1.8 * near
    assert auc(np.array([0.0, 1.0]), np.array([0.5, 2.0])) == 0.75
