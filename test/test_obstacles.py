"""What stands in a model's way: all at once, with sizes and what would lift it; and `convert --check`."""

from __future__ import annotations

import re
import shutil
import subprocess
import venv
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from conftest import ROOT
from networks import Builder
from PIL import Image
from torch import nn
from torch_networks import write

from microtrain.convert import boards, check, obstacles
from microtrain.convert.cli import main
from microtrain.convert.loading import load
from microtrain.convert.pipeline import ALL_PASSES
from microtrain.convert.scheme import Scheme

MODEL = str(ROOT / "examples/digits/model.pt")


class Net(nn.Module):
    """Whatever layers, a mean over the map, and a head."""

    shape = (3, 16, 16)

    def __init__(self, *layers: nn.Module, features: int, classes: int = 4) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(features, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.layers(x).mean((2, 3)))
        return result


class Summed(nn.Module):
    """The sums of all channels so far, twice as many as the map has."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(torch.cat([x, x], 1), 1)


def small(**sizes: int) -> Net:
    return Net(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), features=8, **sizes).eval()


def several() -> Net:
    """Four things that are not supported, one of them three times."""
    layers = (
        nn.Conv2d(3, 8, 3, groups=1),
        nn.RReLU(),
        nn.Conv2d(8, 8, 3, padding=128, dilation=128),
        nn.BatchNorm2d(8),
        nn.RReLU(),
        Summed(),
        nn.BatchNorm2d(16),
        nn.RReLU(),
        nn.MaxPool2d(2, dilation=2),
    )
    return Net(*layers, features=16).eval()


def convert(*words: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(map(str, words)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize("check", [(), ("--check",)])
def test_all_that_is_not_supported_is_said_at_once(check: tuple[str, ...], tmp_path: Path) -> None:
    path = write(several(), tmp_path / "model.pt2", "exported")
    code, said = convert(path, *check, "-o", tmp_path / "out")
    assert code == 1
    for words in (
        "3 layers (layers.1, layers.4, layers.7): the op rrelu",
        "layer layers.2: ",
        "a window of 257x257",
        "layer layers.5: the op cumsum",
        "layer layers.8: ",
        "dilation is not supported",
    ):
        assert words in said, said
    assert said.count("nearest that is") >= 3
    assert "layers.3" not in said  # the convolution takes its batch norm, were it supported
    assert not (tmp_path / "out").exists()


def test_torchscript_tells_all_up_to_where_shapes_are_lost(tmp_path: Path) -> None:
    code, said = convert(write(several(), tmp_path / "model.pt", "scripted"), "--input", "3x16x16")
    assert code == 1
    assert "layers.1: the op rrelu" in said and "257x257" in said and "cumsum" not in said


def test_one_obstacle_is_one_sentence(tmp_path: Path) -> None:
    net = Net(nn.Conv2d(3, 8, 3), nn.RReLU(), features=8).eval()
    code, said = convert(write(net, tmp_path / "model.pt2", "exported"))
    assert code == 1 and said.startswith("convert: layer layers.1: the op rrelu") and "obstacles" not in said


def test_weights_and_classes_come_before_calibration(tmp_path: Path) -> None:
    """Neither is a matter of images: there are none here, and both are told with what lifts them."""
    wide = Net(nn.Conv2d(3, 600, 3), nn.Conv2d(600, 1024, 1), features=1024, classes=1000).eval()
    code, said = convert(write(wide, tmp_path / "model.pt2", "exported"), "-o", tmp_path / "out")
    assert code == 1
    stored = 600 * 27 + 600 * 1024 + 4 * (600 + 1024)
    assert f"take {stored:,} B of flash as int8, {stored - 524288:,} B more than the 524,288 B" in said
    assert "head of 1,000 classes and 1,024 features takes 4,100,000 B of SRAM" in said
    assert f"--classes N gives it a head of the new task's N, {(327680 - 3328) // 4100} at most" in said
    assert "calibration" not in said and "raise" not in said


def in_four_bits(tmp_path: Path) -> tuple[Path, str]:
    """A model whose weights fit in four bits alone, and how many bytes `--check` says that they take."""
    wide = Net(nn.Conv2d(3, 16, 3, 4), nn.Conv2d(16, 600, 1), nn.Conv2d(600, 1000, 1), features=1000).eval()
    path = write(wide, tmp_path / "model.pt2", "exported")
    code, said = convert("--check", path)
    number = re.search(r"or pass --weights-bits 4, which takes ([\d,]+) B", said)
    assert code == 1 and number, said
    return path, number[1]


def test_weights_that_fit_in_four_bits_are_no_obstacle(tmp_path: Path) -> None:
    path, number = in_four_bits(tmp_path)
    code, said = convert("--check", path, "--weights-bits", "4")
    stored = re.search(r"weights ([\d,]+) B of 524,288 B, in 4 bits as many as can be", said)
    assert code == 0 and stored, said
    values = [int(found.replace(",", "")) for found in (number, stored[1])]
    assert 0 <= values[1] - values[0] <= 4  # the stored ones end at a whole word


@pytest.mark.slow
def test_such_weights_convert_in_four_bits_alone(tmp_path: Path) -> None:
    path, number = in_four_bits(tmp_path)
    np.savez(tmp_path / "c.npz", images=np.random.default_rng(3).integers(0, 256, (8, 16, 16, 3), np.uint8))
    words = ("--calibration", tmp_path / "c.npz", "--weights-bits", "4", "--scheme", "head-only")
    code, said = convert(path, *words, "-o", tmp_path / "out")
    assert code == 0, said
    code, said = convert(path, *words[:2], "-o", tmp_path / "out")
    assert code == 1 and f"--weights-bits 4, which takes {number} B" in said


def test_sram_of_the_whole_chip_is_not_to_be_raised(tmp_path: Path) -> None:
    net = Net(nn.Conv2d(3, 64, 3), nn.MaxPool2d(2), nn.Conv2d(64, 64, 3), features=64).eval()
    net.shape = (3, 224, 224)
    path = write(net, tmp_path / "model.pt2", "exported")
    code, said = convert("--check", "--whole", path)
    assert code == 1
    assert "all that disco_f746ng has" in said and "raise" not in said
    assert "use a smaller input, about " in said and "train less" not in said
    code, said = convert("--check", "--whole", path, "--budget-sram", "200")
    assert "budget of 204,800 B;" in said and "or raise --budget-sram" in said


def test_a_check_gives_the_sizes_of_the_conversion(tmp_path: Path) -> None:
    code, checked = convert(
        "--check", MODEL, "--scheme", ROOT / "examples/digits/head.yaml", "-o", tmp_path / "a"
    )
    assert code == 0 and "fits" in checked and not (tmp_path / "a").exists()
    plain = ("--scheme", ROOT / "examples/digits/head.yaml", "--replay", "off")
    code, done = convert(MODEL, *plain, "-o", tmp_path / "b")
    assert code == 0
    for what in ("SRAM", "flash"):
        assert checked.rsplit(f"{what} ")[-1].split(" B")[0] == done.rsplit(f"{what} ")[-1].split(" B")[0]


def test_one_output_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = write(small(classes=1), tmp_path / "model.pt2", "exported")
    np.savez(tmp_path / "c.npz", images=np.zeros((2, 16, 16, 3), np.uint8))
    code, said = convert(path, "--calibration", tmp_path / "c.npz", "-o", tmp_path / "out")
    assert code == 1 and "one output" in said and "--classes N" in said and not (tmp_path / "out").exists()
    assert (
        convert(path, "--calibration", tmp_path / "c.npz", "--classes", "2", "-o", tmp_path / "out")[0] == 0
    )


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((3, 16, 342), "a row of its image is 1,026 B, 342 pixels of 3 channels, and 1,024 B"),
        ((3, 16, 342), "use a width of 341 pixels at most"),
        ((1, 65536, 4), "its image has 65,536 rows, and 65,535 are the most"),
    ],
)
@pytest.mark.parametrize("check", [(), ("--check",)])
def test_an_image_that_no_frame_carries_does_not_fit(
    check: tuple[str, ...], shape: tuple[int, int, int], said: str, tmp_path: Path
) -> None:
    """The firmware of it would not compile."""
    net = Net(nn.Conv2d(shape[0], 8, 3, 4, 1), features=8).eval()
    net.shape = shape
    code, printed = convert(*check, write(net, tmp_path / "model.pt2", "exported"), "-o", tmp_path / "out")
    assert code == 1 and said in printed


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((65536, 1, 2), "its series has 65,536 steps, and 65,535 are the most: take a shorter window"),
        ((9, 1, 1100), "a step of its series is 1,100 B, one for each channel, and 1,024 B"),
        ((1, 1, 1100), "its 1,100 features are as many bytes, and 1,024 B .* use 1,024 features at most"),
    ],
)
def test_a_series_and_features_are_refused_in_their_words(shape: tuple[int, int, int], said: str) -> None:
    graph = Builder(np.random.default_rng(0), shape).finish("x", 3)
    (found,) = obstacles.image(graph)
    assert re.match(said, found) and "pixel" not in found and "image" not in found


def test_the_frame_of_a_wide_row_is_counted(tmp_path: Path) -> None:
    """It was 164 B too little for an image 320 wide: 448 B more than a row of 512 B has."""

    def sram(side: int) -> int:
        net = Net(nn.Conv2d(3, 8, 3, 4, 1), features=8).eval()
        net.shape = (3, 32, side)
        loaded = load(write(net, tmp_path / "model.pt2", "exported"), False, None)
        compiled = check.planned(
            loaded, Scheme("head-only"), 4, boards.limits(boards.find(), None, None), ALL_PASSES
        )
        return compiled.sram - compiled.plan.arena

    assert sram(320) - sram(160) == 320 * 3 - 512


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--budget-sram", "--budget-sram 9999 is more than"),
        ("--budget-flash", "--budget-flash 9999 is more than"),
    ],
)
def test_no_budget_is_larger_than_the_board(option: str, said: str) -> None:
    code, printed = convert(MODEL, option, "9999")
    assert code == 1 and said in printed and "disco_f746ng has" in printed


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("net.h5", "Keras"),
        ("w.safetensors", "weights without a network"),
    ],
)
def test_other_kinds_of_models_are_told_the_way(name: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x08\x07\x12\x07pytorch")
    code, said = convert(tmp_path / name)
    assert code == 1 and words in said and "torch.export" in said


@pytest.mark.parametrize(
    ("name", "words"), [("saved_model.pb", "SavedModel"), ("config.json", "Hugging Face")]
)
def test_models_that_are_folders_are_told_the_way(name: str, words: str, tmp_path: Path) -> None:
    (folder := tmp_path / "net").mkdir()
    code, said = convert(folder)
    assert code == 1 and "is not a file; give the .pt file" in said
    (folder / name).write_bytes(b"{}")
    code, said = convert(folder)
    assert code == 1 and words in said and "torch.export" in said


def test_the_name_that_is_advised_gives_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from microtrain.convert.frontends.module import EXPORT_HINT

    example, model = (torch.zeros(1, 3, 16, 16),), small()
    hint = EXPORT_HINT.replace('"model', f'"{tmp_path}/model').replace("(example,)", "example")
    exec(hint, {"torch": torch, "example": example, "model": model})
    assert not [r for r in caplog.records if "pt2" in r.getMessage()]
    torch.export.save(torch.export.export(model, example), tmp_path / "model.pt")
    assert [r for r in caplog.records if "pt2" in r.getMessage()]


@pytest.mark.parametrize(("parts", "used"), [(("train", "test"), 3), (("a", "test"), 6), (("a", "b"), 6)])
def test_what_calibration_reads_is_announced(parts: tuple[str, str], used: int, tmp_path: Path) -> None:
    from microtrain.convert.quantize.calibrate import load_calibration

    for part in parts:
        (tmp_path / part).mkdir()
        for k in range(3):
            Image.new("RGB", (16, 16), (40 * k, 0, 0)).save(tmp_path / part / f"{k}.png")
    path = write(small(), tmp_path / "model.pt2", "exported")
    code, said = convert(path, "--calibration", tmp_path, "-o", tmp_path / "out")
    assert code == 0
    assert ("what else" in said) == ("train" in parts)
    assert ("also on test" in said) == (parts == ("a", "test"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(load_calibration(tmp_path, (16, 16, 3))) == used


@pytest.mark.parametrize("command", ["tools/convert", "tools/device", "lab/bench"])
def test_a_python_without_the_packages_is_one_sentence(command: str, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False, symlinks=True)
    words = [str(bare / "bin/python"), command, "model.pt"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr
    assert "has no package" in done.stderr and "make setup" in done.stderr
    shutil.rmtree(bare)


def test_limits_say_what_can_rise() -> None:
    board = boards.find("nucleo_f446re")
    whole, part, host = (boards.limits(b, kb, None) for b, kb in ((board, None), (board, 64), (None, 64)))
    assert (whole.sram_can_rise, part.sram_can_rise, host.sram_can_rise) == (False, True, True)
    assert whole.budget is not None and host.budget is None and host.sram == 65536
