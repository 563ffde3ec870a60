"""Branches that are stacked and averaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper
from test_executor import partly_trained, run_both
from test_gradients import LEAST, cosines, everything
from test_onnx import constants, load, reference, saved
from test_resample import assert_as_pytorch
from torch import nn

from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float
from microtrain.convert.ir import Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import add
from microtrain.convert.quantize.ptq import Choices, quantize_model

TOGETHER = {
    "mean of a stack": lambda ys: torch.stack(ys).mean(0),
    "mean over another axis": lambda ys: torch.stack(ys, dim=2).mean(dim=2),
    "mean over the last axis": lambda ys: torch.stack(ys, -1).mean(-1),
    "sum of a stack": lambda ys: torch.stack(ys, 1).sum(1),
    "sum()": lambda ys: sum(ys) / len(ys),
    "by hand": lambda ys: (ys[0] + ys[1] + ys[2]) / 3,
}


class Branches(nn.Module):
    """Three convolutions side by side. way: how they come together; late: their features do"""

    def __init__(self, way: str, late: bool = False, dims: int = 2) -> None:
        super().__init__()
        self.way, self.late, self.over = way, late, tuple(range(2, 2 + dims))
        of = nn.Conv1d if dims == 1 else nn.Conv2d
        self.branches = nn.ModuleList([nn.Sequential(of(3, 6, k, 2, k // 2), nn.ReLU()) for k in (1, 3, 5)])
        self.head = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ys = [branch(x) for branch in self.branches]
        if self.late:
            ys = [y.mean(self.over) for y in ys]
        y = TOGETHER[self.way](ys)  # type: ignore[no-untyped-call]
        return torch.as_tensor(self.head(y if self.late else y.mean(self.over)))


@pytest.mark.parametrize("suffix", ["pt2", "onnx", "torchscript"])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("way", TOGETHER)
def test_branches_come_together_as_in_pytorch(way: str, late: bool, suffix: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    graph = assert_as_pytorch(Branches(way, late), tmp_path / f"model.{suffix}", (3, 9, 7))
    ops = [n.op for n in graph.nodes]
    assert ops.count("add") == 2 and "dwconv2d" not in ops, "nothing for 0 +, nor for / 3"


def averaged(folder: Path) -> Graph:
    torch.manual_seed(1)
    graph = assert_as_pytorch(Branches("by hand"), folder / "model.pt2", (3, 9, 7))
    images = np.random.default_rng(0).integers(0, 256, (32, 9, 7, 3)).astype(np.uint8)
    return quantize_model(graph, images, Choices())


@pytest.mark.parametrize("errors", ["fp32", "int8"])
def test_errors_reach_branches_in_shares(errors: str, tmp_path: Path) -> None:
    found = cosines(everything(averaged(tmp_path)).graph, errors)
    assert min(found.values()) > LEAST[errors], found


def test_the_sum_that_is_shared_is_the_same_in_c(tmp_path: Path) -> None:
    trained = partly_trained(averaged(tmp_path), 4)
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path, "gcc"), 6)
    sums = [n for n in trained.graph.forward_nodes if n.op == "add"]
    assert [add.share(n) for n in sums] == [1.0, pytest.approx(1 / 3)]


def test_a_share_that_is_forgotten_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(add, "share", lambda node: 1.0)
    with pytest.raises(AssertionError):
        averaged(tmp_path)


@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
def test_branches_of_a_series(suffix: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    assert_as_pytorch(Branches("mean of a stack", dims=1), tmp_path / f"model.{suffix}", (3, 17))


def test_a_stack_of_turned_maps_is_no_other_stack(tmp_path: Path) -> None:
    """In files of Keras a stack of maps in NHWC has its channels last."""
    rng = np.random.default_rng(0)
    arrays = constants(
        a=rng.normal(0, 0.3, (5, 3, 3, 3)).astype(np.float32),
        b=rng.normal(0, 0.3, (5, 3, 3, 3)).astype(np.float32),
        at=np.array([1]),
    )
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2])]
    for name in "ab":
        nodes += [
            helper.make_node("Conv", ["t", name], [f"c{name}"]),
            helper.make_node("Transpose", [f"c{name}"], [f"u{name}"], perm=[0, 2, 3, 1]),
            helper.make_node("Unsqueeze", [f"u{name}", "at"], [f"s{name}"]),
        ]
    nodes += [
        helper.make_node("Concat", ["sa", "sb"], ["s"], axis=1),
        helper.make_node("ReduceMean", ["s"], ["y"], axes=[1, 2, 3], keepdims=0),
    ]
    path = saved(tmp_path / "keras.onnx", nodes, arrays, ["batch", 7, 7, 3])
    images = rng.integers(0, 256, (3, 7, 7, 3)).astype(np.uint8)
    want = reference(path, images / np.float32(255))
    np.testing.assert_allclose(run_float(load(path), images).reshape(want.shape), want, atol=1e-5)
