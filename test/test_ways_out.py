"""What strangers bring: raw sound, ends that are maps, and ops that are refused with the way out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from test_resample import assert_as_pytorch, exported
from test_stack import Branches
from torch import nn

from microtrain.convert.cli import main
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError
from microtrain.convert.tasks import headed

SAID = {
    "the op amax of stacked tensors is not supported; the nearest that is: their mean or sum": (
        lambda ys: torch.stack(ys).amax(0).mean((2, 3))
    ),
    "the op mean over another axis of stacked tensors": lambda ys: torch.stack(ys).mean(3).mean((0, 3)),
    "the op cummax is not supported; the nearest that is: the sum or the product": (
        lambda ys: torch.cummax(ys[0], 2)[0].mean((2, 3))
    ),
    "the op std over the channels and more is not supported; the nearest that is: over a map": (
        lambda ys: (ys[0] - ys[0].std((1, 2), keepdim=True)).mean((2, 3))
    ),
    r"the op diff is not supported; the nearest that is: x\[..., 1:\] - x": (
        lambda ys: torch.diff(ys[0], dim=3, prepend=ys[0][..., :1]).mean((2, 3))
    ),
}


@pytest.mark.parametrize("said", SAID)
def test_what_is_not_supported_names_the_nearest(said: str, tmp_path: Path) -> None:
    class Other(Branches):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = SAID[said]([branch(x) for branch in self.branches])  # type: ignore[no-untyped-call]
            return torch.as_tensor(self.head(made))

    path = exported(Other("by hand"), tmp_path / "model.pt2", (3, 9, 7))
    with pytest.raises(ConvertError, match=said):
        load_model(path)


@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
def test_an_ensemble_of_heads_is_told_of_one(suffix: str, tmp_path: Path) -> None:
    class Heads(Branches):
        def __init__(self) -> None:
            super().__init__("mean of a stack")
            self.heads = nn.ModuleList([nn.Linear(6, 4) for _ in self.branches])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = [h(b(x).mean((2, 3))) for h, b in zip(self.heads, self.branches, strict=True)]
            return torch.stack(made).mean(0)

    path = exported(Heads(), tmp_path / f"model.{suffix}", (3, 9, 7))
    with pytest.raises(ConvertError, match="one for all outputs, in the place of several"):
        headed(load_model(path).graph)


@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
def test_an_embedding_is_refused_by_name(suffix: str, tmp_path: Path) -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(20, 8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.head(self.embedding(x).mean(1)))

    path, example = tmp_path / f"model.{suffix}", (torch.zeros(1, 12, dtype=torch.int64),)
    if suffix == "onnx":
        torch.onnx.export(Words().eval(), example, str(path), opset_version=17, dynamo=False)
    else:
        torch.export.save(torch.export.export(Words().eval(), example), path)
    with pytest.raises(ConvertError, match=r"embedding is not supported; .* make the embeddings outside"):
        load_model(path)


# ---------------------------------------------------------------- inputs and ends


@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
def test_numbers_that_are_seen_as_a_series_are_convolved(suffix: str, tmp_path: Path) -> None:
    """Raw sound [n, t], which forward() gives its channel."""

    class Raw(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv1d(1, 8, 16, 4), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.head(torch.relu(self.conv(x.unsqueeze(1))).mean(2)))

    torch.manual_seed(1)
    graph = assert_as_pytorch(Raw(), tmp_path / f"model.{suffix}", (64,))
    assert graph.tensors[graph.input.tensor].shape == (64, 1, 1) and graph.nodes[0].op == "conv2d"


class Segments(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 6, 3, 2, 1), nn.ConvTranspose2d(6, 5, 2, 2)
        self.last = nn.Conv2d(5, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.last(torch.relu(self.up(torch.relu(self.down(x))))))


def test_a_network_of_segments_lends_its_front(tmp_path: Path) -> None:
    path = str(exported(Segments(), tmp_path / "model.pt2", (3, 8, 8)))

    def said(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, [path, "--check", *words])
        return done.exit_code, " ".join(done.output.split())

    code, text = said()
    assert code == 1 and "no loss is one of every pixel" in text and "--until LAYER" in text, text
    code, text = said("--task", "anomaly")
    assert code == 1 and "makes 128 numbers of 192" in text and "end it with" not in text, text
    code, text = said("--until", "down", "--classes", "3")
    assert code == 0 and "fits" in text, text


@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
def test_a_pair_of_inputs_is_told_of_its_branch(suffix: str, tmp_path: Path) -> None:
    class Pair(Segments):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return torch.as_tensor(self.down(x).mean((2, 3)) - self.down(y).mean((2, 3)))

    path, example = tmp_path / f"model.{suffix}", (torch.zeros(1, 3, 8, 8), torch.zeros(1, 3, 8, 8))
    if suffix == "onnx":
        torch.onnx.export(Pair().eval(), example, str(path), opset_version=17, dynamo=False)
    else:
        torch.export.save(torch.export.export(Pair().eval(), example), path)
    with pytest.raises(ConvertError, match=r"takes 2 inputs.*; .* save the branch that both go through"):
        load_model(path)


class MeansOfWindows(nn.Module):
    """As mini-Xception ends (Arriaga et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.last = nn.Conv2d(3, 6, 3, 2, 1), nn.Conv2d(6, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.last(torch.relu(self.down(x))).mean((2, 3)))


def test_an_end_of_means_is_told_of_a_head(tmp_path: Path) -> None:
    path = str(exported(MeansOfWindows(), tmp_path / "model.pt2", (3, 8, 8)))
    done = CliRunner().invoke(main, [path, "--check"])
    text = " ".join(done.output.split())
    assert done.exit_code == 1 and "its logits are means of a map that a window makes" in text, text
    assert "--until last --classes N makes such a layer, which reads the mean of last's map" in text, text
    done = CliRunner().invoke(main, [path, "--check", "--until", "last", "--classes", "4"])
    assert done.exit_code == 0, done.output
