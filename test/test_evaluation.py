"""Labelled images of a model's own classes, and the command that reports on them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image
from test_ptq import logits_of_twins, pair
from test_quantize import float_graph
from torch_networks import NETWORKS, images_for, randomise, torch_logits, write

from microtrain.convert.cli import main
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError
from microtrain.convert.loading import quantized_with_report
from microtrain.convert.quantize.evaluation import load_labelled, own_classes
from microtrain.convert.quantize.fidelity import Accuracy, top1
from microtrain.convert.quantize.fidelity_report import answers
from microtrain.convert.quantize.ptq import Choices

SHAPE = (3, 20, 24)  # of the network "mobilenet", (c, h, w)


def class_folder(folder: Path, names: list[str], shape: tuple[int, ...], count: int = 3) -> Path:
    """PNG files of random pixels; shape: (c, h, w)."""
    rng = np.random.default_rng(8)
    for name in names:
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(0, 256, (*shape[1:], shape[0]), np.uint8)
            Image.fromarray(pixels if shape[0] == 3 else pixels[..., 0]).save(folder / name / f"{i}.png")
    return folder


def test_top1_is_that_of_the_model_in_pytorch(tmp_path: Path) -> None:
    """Labels are PyTorch's own answers, one of them wrong."""
    net = randomise(NETWORKS["mobilenet"](), 7)
    graph, quantized, _ = pair("mobilenet", tmp_path)
    images = images_for(net, 20, seed=9)
    answer = torch_logits(net, images).argmax(axis=1)
    rng = np.random.default_rng(1)
    labels = answer.copy()
    labels[4] = (labels[4] + 1) % 5
    for k in range(5):
        (tmp_path / "own" / "abcde"[k]).mkdir(parents=True)
    order = []
    for i, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / "own" / "abcde"[labels[i]] / f"{i:02}.png")
    for k in set(range(5)) - set(labels):
        pixels = rng.integers(0, 256, images[0].shape, np.uint8)
        Image.fromarray(pixels).save(tmp_path / "own" / "abcde"[k] / "x.png")
        order.append(int(torch_logits(net, pixels[None]).argmax() == k))
    labelled = load_labelled(tmp_path / "own", graph)
    accuracy = top1(graph, quantized, labelled)
    assert accuracy.images == 20 + len(order)
    assert accuracy.float_right == pytest.approx((19 + sum(order)) / accuracy.images)
    int8 = np.stack([logits_of_twins(quantized, image) for image in labelled.images]).argmax(axis=1)
    assert accuracy.int8_right == pytest.approx((int8 == labelled.labels).mean())


def test_folders_are_matched_with_the_models_names(tmp_path: Path) -> None:
    graph = float_graph("mobilenet", tmp_path).replace(classes=("zebra", "ant", "bee", "cow", "dog"))
    folder = class_folder(tmp_path / "own", ["ant", "zebra"], SHAPE)
    assert load_labelled(folder, graph).labels.tolist() == [1, 1, 1, 0, 0, 0]
    assert not own_classes(folder, graph)
    class_folder(folder, ["bee", "cow", "dog"], SHAPE)
    assert own_classes(folder, graph)
    assert not own_classes(folder / "ant", graph) and not own_classes(tmp_path / "nowhere", graph)


def broken(folder: Path) -> None:
    (folder / "c" / "torn.png").write_bytes((folder / "c" / "0.png").read_bytes()[:60])


def emptied(folder: Path) -> None:
    for path in (folder / "b").iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("names", "classes", "spoil", "sentence"),
    [
        ("a", "", None, "own has 1 class folders: accuracy needs one folder of samples for each class, two"),
        (
            "abcdefg",
            "",
            None,
            r"own has 7 class folders, but the head of model has 5 outputs: labels",
        ),
        ("abc", "", None, "own has 3 class folders for the 5 outputs of model, whose file names no classes"),
        (
            "abx",
            "abcde",
            None,
            r"class folders that model does not know \(x\); its classes are a, b, c,",
        ),
        ("abcde", "", emptied, r"no samples in .*own/b: every class needs at least one"),
        ("abcde", "", broken, r"torn\.png cannot be read as an image: remove or replace it$"),
    ],
)
def test_wrong_folders_are_sentences(
    names: str, classes: str, spoil: Callable[[Path], None] | None, sentence: str, tmp_path: Path
) -> None:
    graph = float_graph("mobilenet", tmp_path).replace(classes=tuple(classes))
    folder = class_folder(tmp_path / "own", list(names), SHAPE)
    if spoil:
        spoil(folder)
    with pytest.raises(ConvertError, match=sentence):
        load_labelled(folder, graph)


def test_a_large_folder_is_thinned_out_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = float_graph("mobilenet", tmp_path)
    folder = class_folder(tmp_path / "own", list("abcde"), SHAPE, 2)
    monkeypatch.setattr("microtrain.convert.quantize.evaluation.MOST_IMAGES", 5)
    with pytest.warns(UserWarning, match=r"evaluating on 5 of 10 samples of .*own"):
        assert load_labelled(folder, graph).labels.tolist() == [0, 1, 2, 3, 4]


# ---- the command


def convert(tmp_path: Path, *arguments: object) -> Result:
    model = write(randomise(NETWORKS["mobilenet"](), 7), tmp_path / "net.pt", "exported")
    with warnings.catch_warnings():
        return CliRunner().invoke(
            main, [str(model), "-o", str(tmp_path / "out"), *(str(a) for a in arguments)]
        )


def test_the_command_writes_the_report(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "own", list("abcde"), SHAPE)
    options = ("--calibration", folder, "--quantization", "--ranges", "mse", "--bias-correction")
    result = convert(tmp_path, *options)
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "out/quantization.json").read_text())
    assert (document["rule"], document["corrected"], document["compared"]) == ("mse", True, 15)
    accuracy = Accuracy(**document["accuracy"])
    assert accuracy.images == 15 and accuracy.float_right is not None
    assert answers(accuracy) in result.output
    assert (tmp_path / "out/quantization.svg").read_text().startswith("<?xml")


def test_rules_and_correction_reach_the_generated_code(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "own", list("abcde"), SHAPE)
    made = set()
    for arguments in ([], ["--ranges", "mse"], ["--ranges", "percentile"], ["--bias-correction"]):
        assert convert(tmp_path, "--calibration", folder, *arguments).exit_code == 0
        made.add(json.loads((tmp_path / "out/plan.json").read_text())["model_id"])
        assert not (tmp_path / "out/quantization.json").exists()
    assert len(made) >= 3, "percentile may find nothing to leave out of so few values"


def test_evaluation_asks_for_the_report_and_says_what_is_wrong(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "own", list("abcdef"), SHAPE)
    result = convert(tmp_path, "--calibration", folder, "--evaluate", folder)
    assert result.exit_code == 1
    assert "convert: " in result.output and "labels would go beyond it" in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("choices", [Choices(rule="mse"), Choices(correct=True), Choices(Path("photos"))])
def test_a_quantized_checkpoint_takes_no_choices(choices: Choices, tmp_path: Path) -> None:
    model = write(randomise(NETWORKS["mobilenet"](), 7), tmp_path / "net.pt", "exported")
    loaded = replace(load_model(model), kind="checkpoint")
    assert quantized_with_report(loaded, Choices(), False, None) == (loaded.graph, {})
    with pytest.raises(ConvertError, match="is quantized already: leave --calibration, --ranges, --bias"):
        quantized_with_report(loaded, choices, False, None)
    with pytest.raises(ConvertError, match="is quantized already"):
        quantized_with_report(loaded, Choices(), True, None)
