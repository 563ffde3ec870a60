"""How images are normalised: what forward() does, what options and file say, what is assumed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from torch import nn
from torch_networks import images_for, randomise, write

from microtrain.convert.cli import main
from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.frontends.module import LoadedModel, load_model
from microtrain.convert.normalisation import IMAGENET, Origin
from microtrain.convert.ops.functions import POWER
from microtrain.convert.quantize import input_fit
from microtrain.convert.quantize.ptq import Choices, quantize_model

MEAN, STD = torch.tensor(IMAGENET[0]), torch.tensor(IMAGENET[1])


class Body(nn.Module):
    """A convolution with batch norm, and a head. Input 3x12x12."""

    shape = (3, 12, 12)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, 2, 1)
        self.bn = nn.BatchNorm2d(6)
        self.head = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(torch.relu(self.bn(self.conv(x))).mean((2, 3)))
        return result


class Buffers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Buffer(MEAN)
        self.std = nn.Buffer(STD.view(-1, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self.mean[None, :, None, None]) / self.std


class Reciprocal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.std = nn.Parameter(STD.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - 0.5).mul((1.0 / self.std).reshape(1, 3, 1, 1))


class Literals(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1)) / 0.25


class Normalize(nn.Module):
    """As torchvision's module of that name: lists of numbers, in-place arithmetic on a clone."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = [0.485, 0.456, 0.406]
        self.std = [0.229, 0.224, 0.225]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point():
            raise TypeError("a float tensor is wanted")
        x = x.clone()
        mean = torch.as_tensor(self.mean, dtype=x.dtype, device=x.device)
        std = torch.as_tensor(self.std, dtype=x.dtype, device=x.device)
        if mean.ndim == 1:
            mean = mean.view(-1, 1, 1)
        if std.ndim == 1:
            std = std.view(-1, 1, 1)
        return x.sub_(mean).div_(std)


class Affine(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x - 1


class Swapped(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -0.5 + x.float() / 127.5


class By255(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x / 255 - 0.5) / 0.25


FORWARDS: dict[str, tuple[Callable[[], nn.Module], int]] = {  # what it is, and its largest pixel
    "buffers": (Buffers, 1),
    "reciprocal": (Reciprocal, 1),
    "literals": (Literals, 1),
    "torchvision": (Normalize, 1),
    "affine": (Affine, 1),
    "batch norm": (lambda: randomise(nn.BatchNorm2d(3), 5), 1),
    "swapped": (Swapped, 255),
    "by 255": (By255, 255),
}


def network(front: nn.Module) -> nn.Module:
    net = nn.Sequential(front, randomise(Body(), seed=3)).eval()
    net.shape = Body.shape  # type: ignore[assignment]
    return net


def load(net: nn.Module, path: Path, way: str = "exported") -> LoadedModel:
    return load_model(write(net, path / "model.pt", way), trust=True, input_shape=Body.shape)


def answers(net: nn.Module, images: np.ndarray, most: float) -> np.ndarray:
    with torch.no_grad():
        result: np.ndarray = net(
            torch.from_numpy(images).permute(0, 3, 1, 2).float() * (most / 255.0)
        ).numpy()
    return result


@pytest.mark.parametrize("way", ["exported", "decomposed", "scripted", "traced", "module"])
@pytest.mark.parametrize("name", FORWARDS)
def test_what_forward_does_to_the_image_is_understood(name: str, way: str, tmp_path: Path) -> None:
    front, most = FORWARDS[name]
    net = network(front())
    images = images_for(net, 5, seed=4)
    loaded = load(net, tmp_path, way)
    assert [node.op for node in loaded.graph.nodes] == ["conv2d", "avgpool", "head"]
    assert loaded.normal.origin is Origin.FORWARD
    assert ("0..255" if most == 255 else "0..1,") in loaded.normal.sentence(loaded.graph.sample_shape)
    wanted = answers(net, images, most)
    assert np.abs(run_float(loaded.graph, images) - wanted).max() < 1e-5 * np.abs(wanted).max()
    other = loaded.graph.replace(input=load(network(nn.Identity()), tmp_path).graph.input)
    assert np.abs(run_float(other, images) - wanted).max() > 1e-3 * np.abs(wanted).max()


class Negative(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1.0 - x


class Divided(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1.0 / (x + 0.5)


class Skipped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.conv(x * 2.0) + x
        return result


class Signed(nn.Module):
    """Channels of both signs, and one of which nothing is left."""

    factors: torch.Tensor

    def __init__(self, factors: tuple[float, float, float]) -> None:
        super().__init__()
        self.register_buffer("factors", torch.tensor(factors).reshape(1, 3, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.factors * x + 0.25)


@pytest.mark.parametrize(
    ("front", "before"),
    [
        (Negative(), []),
        (Signed((1.0, -0.5, 2.0)), []),
        (Signed((1.0, 0.0, -1.0)), ["dwconv2d"]),
        (Skipped(), ["dwconv2d", "conv2d", "add"]),
    ],
)
def test_what_falls_or_is_read_twice_has_its_values(
    front: nn.Module, before: list[str], tmp_path: Path
) -> None:
    """A factor below 0 is the input's as well; other things are ops."""
    torch.manual_seed(0)
    net = network(front)
    images, loaded = images_for(net, 5, seed=4), load(net, tmp_path)
    assert [node.op for node in loaded.graph.nodes] == [*before, "conv2d", "avgpool", "head"]
    wanted = answers(net, images, 1)
    assert np.abs(run_float(loaded.graph, images) - wanted).max() < 1e-5 * np.abs(wanted).max()
    graph = quantize_model(loaded.graph, images, Choices())
    off = np.concatenate([run_int8(graph, each[None]).reshape(1, -1) for each in images])
    assert np.abs(off - wanted.reshape(off.shape)).max() < 0.05 * np.ptp(wanted)


def test_what_is_divided_by_the_image_is_no_normalisation(tmp_path: Path) -> None:
    """It is the network's first op, behind a sum that the input takes in."""
    net = network(Divided())
    images = images_for(net, 5, seed=4)
    loaded = load(net, tmp_path)
    assert [node.op for node in loaded.graph.nodes] == [POWER, "conv2d", "avgpool", "head"]
    wanted = answers(net, images, 1)
    assert np.abs(run_float(loaded.graph, images) - wanted).max() < 1e-5 * np.abs(wanted).max()


def photos(folder: Path) -> Path:
    """Some smooth pictures, half of them dark, in a folder for each of four classes."""
    net = Body()
    for k, image in enumerate(images_for(net, 24, seed=7)):
        place = folder / "photos" / f"class{k % 4}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image // (1 + k % 2)).save(place / f"{k}.png")
    return folder / "photos"


def trained(folder: Path, mean: torch.Tensor, std: torch.Tensor) -> Body:
    """A network whose batch norm has seen those pictures behind a normalisation."""
    files = sorted(folder.rglob("*.png"))
    pixels = torch.from_numpy(np.stack([np.asarray(Image.open(f)) for f in files])).permute(0, 3, 1, 2) / 255
    torch.manual_seed(2)
    net = Body()
    net.bn.momentum = 1.0
    with torch.no_grad():
        net.train()((pixels - mean.view(-1, 1, 1)) / std.view(-1, 1, 1))
    return net.eval()


def converted(model: Path, images: Path, *options: str) -> str:
    words = [str(model), "--calibration", str(images), "-o", str(model.parent / "out"), *options]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_normalisation_that_fits_better_is_named(tmp_path: Path) -> None:
    folder = photos(tmp_path)
    model = write(trained(folder, MEAN, STD), tmp_path / "net.pt", "exported")
    said = converted(model, folder / "class0")
    assert "mean 0 and std 1: assumed" in said
    assert "try --mean imagenet --std imagenet" in said
    said = converted(model, folder / "class0", "--mean", "imagenet", "--std", "imagenet")
    assert "try --mean" not in said and "assumed" not in said
    assert "mean 0.485 0.456 0.406, std 0.229 0.224 0.225" in said
    assert all(len(line) <= 80 for line in said.splitlines() if line.startswith(("input", "mean")))


@pytest.mark.parametrize("options", list(input_fit.CANDIDATES))
def test_each_candidate_is_told_from_the_others(options: str, tmp_path: Path) -> None:
    folder = photos(tmp_path)
    mean, std = (torch.tensor(v) for v in input_fit.CANDIDATES[options])
    net = trained(folder, mean, std)
    for given, (m, s) in input_fit.CANDIDATES.items():
        loaded = load_model(write(net, tmp_path / "net.pt", "exported"), given=(m, s))
        images = np.stack([np.asarray(Image.open(f)) for f in sorted(folder.rglob("*.png"))])
        said = input_fit.advice(loaded, images, None)
        assert (said is None) == (given == options), (given, said)
        assert said is None or options in said


def test_labelled_images_are_classified_too(tmp_path: Path) -> None:
    """Without a batch norm; only the right normalisation gives the right classes."""

    class Bright(nn.Module):
        """Class 0 below its mean, class 1 above it."""

        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 1, 1, bias=False)
            self.head = nn.Linear(1, 2, bias=False)
            nn.init.constant_(self.conv.weight, 1.0)
            self.head.weight.data = torch.tensor([[-1.0], [1.0]])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.head(self.conv(x).mean((2, 3)))
            return result

    for name, grey in (("dark", 60), ("light", 200)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for k in range(5):
            Image.new("RGB", (8, 8), (grey + k,) * 3).save(tmp_path / "photos" / name / f"{k}.png")
    program = torch.export.export(Bright().eval(), (torch.zeros(1, 3, 8, 8),))
    torch.export.save(program, tmp_path / "m.pt")
    said = converted(tmp_path / "m.pt", tmp_path / "photos")
    assert "100% of the labelled samples are named rightly, not 50%" in said


def test_how_images_are_cut_is_told_once_of_each_folder(tmp_path: Path) -> None:
    """Those that another normalisation is tried with are among the ones that calibrate."""
    folder = photos(tmp_path)
    for path in folder.rglob("*.png"):
        Image.open(path).resize((40, 30)).save(path)
    said = converted(write(Body().eval(), tmp_path / "net.pt", "exported"), folder)
    assert said.count("cropped and resized") == 1, said


def test_options_win_over_the_file(tmp_path: Path) -> None:
    extra = {"microtrain.json": json.dumps({"input": {"mean": [0.25], "std": [0.5]}})}
    path = write(network(nn.Identity()), tmp_path / "model.pt", "exported", extra_files=extra)
    assert load_model(path).normal.origin is Origin.FILE
    loaded = load_model(path, given=((0.5,), (0.25, 0.5, 1.0)))
    assert loaded.normal.mean == (0.5,) * 3 and loaded.normal.std == (0.25, 0.5, 1.0)
    assert loaded.graph.input.offset == (-2.0, -1.0, -0.5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--mean", "0.5"), "--mean and --std belong together"),
        (("--mean", "grey", "--std", "1"), "neither imagenet nor numbers"),
        (("--mean", "0", "--std", "1/0"), "neither imagenet nor numbers"),
        (("--mean", "0", "--std", "0"), "--std is (0.0,); it must be 1 or 3 numbers above 0"),
        (("--mean", "0.5,0.5", "--std", "1"), "--mean is (0.5, 0.5); it must be 1 or 3 numbers"),
    ],
)
def test_wrong_numbers_are_a_sentence(options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    path = write(network(nn.Identity()), tmp_path / "model.pt", "exported")
    result = CliRunner().invoke(main, [str(path), *options, "-o", str(tmp_path / "out")])
    assert result.exit_code != 0 and words in " ".join(result.output.split())
