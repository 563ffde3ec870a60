"""Sessions that learn from targets, from the table beside the samples to the device and back."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from pio_build import host_program
from sklearn.metrics import f1_score, mean_absolute_error, root_mean_squared_error
from test_obstacles import small
from torch_networks import write

from microtrain.base.errors import Error
from microtrain.base.progress import Bars
from microtrain.check_board.probe import probe
from microtrain.convert.cli import main as convert_main
from microtrain.device.cli import main as device_main
from microtrain.device.client import Device
from microtrain.device.errors import AnswerError
from microtrain.device.link import ProgramPort
from microtrain.device.measured import rated
from microtrain.samples.measured import NAME, read_table, split_table
from microtrain.simulate.cli import main as simulate_main

SIDE = 16


def run(command: object, *words: object) -> tuple[int, str]:
    result = CliRunner().invoke(command, list(map(str, words)))  # type: ignore[arg-type]
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


def table(folder: Path, count: int, seed: int, holds: bool) -> Path:
    """How red and how blue images are; or whether they are at all."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    with (folder / NAME).open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["file", "red", "blue"])
        for number in range(count):
            light = rng.uniform(0, 1, 2)
            image = rng.integers(0, 60, (SIDE, SIDE, 3))
            image[..., 0] += int(190 * light[0])
            image[..., 2] += int(190 * light[1])
            np.save(folder / f"{number}.npy", image.astype(np.uint8))
            lines.writerow([f"{number}.npy", *(int(v > 0.5) if holds else round(v, 3) for v in light)])
    return folder


def converted(folder: Path, task: str, *words: object) -> Path:
    torch.manual_seed(0)
    net = small(classes=2)
    last = next(layer for layer in reversed(list(net.modules())) if isinstance(layer, torch.nn.Linear))
    last.weight.data *= 20  # outputs that differ as those of a trained network do
    model = write(net, folder / "model.pt2", "exported")
    asked = (
        model,
        "--calibration",
        table(folder / "typical", 20, 0, False),
        "--task",
        task,
        *words,
        "-o",
        folder / "generated",
    )
    code, said = run(convert_main, *asked)
    assert code == 0 and "rows of the model's own" in said, said
    return folder / "generated"


@pytest.mark.parametrize(("task", "words"), [("regression", ("--loss", "huber")), ("multilabel", ())])
def test_a_device_learns_from_targets_what_the_simulator_does(
    task: str, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds = task == "multilabel"
    generated, data = converted(tmp_path, task, *words), tmp_path / "data"
    table(data / "train", 80, 1, holds), table(data / "val", 20, 2, holds)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MICROTRAIN_FLASH", str(tmp_path / "flash"))
    same = ("--epochs", 2, "--seed", 3, "--lr", 0.004)
    code, said = run(simulate_main, generated, "--data", data, *same, "-o", tmp_path / "sim")
    assert code == 0 and "before: " in said, said
    found = json.loads((tmp_path / "sim/results.json").read_text())["runs"][0]
    device = ("--native", host_program(generated, tmp_path), "--plan", generated / "plan.json")
    asked = ("train", data / "train", "--eval", data / "val", *same, "--log", tmp_path / "log.json")
    code, said = run(device_main, *device, *asked)
    assert code == 0 and found["trained_sha256"] in said, said
    log = json.loads((tmp_path / "log.json").read_text())
    assert (
        len(log["steps"]) == 160 and log["evaluations"][-1]["outputs"] == found["evaluations"][-1]["outputs"]
    )
    key = "accuracy" if holds else "mae"
    first, last = (log["evaluations"][k]["outputs"] for k in (0, -1))
    better = sum(last[n][key] - first[n][key] for n in first) * (1 if holds else -1)
    assert better > (0.1 if holds else 0.2), (first, last)
    code, said = run(device_main, *device, "infer", data / "val/0.npy")
    assert code == 0 and said.count("%") == (2 if holds else 0)
    code, said = run(device_main, *device, "eval", data / "val")
    assert code == 0 and "red" in said and "of 20 held-out samples" in said
    assert f"task {task}" in run(device_main, *device, "info")[1]
    code, said = run(device_main, *device, "train", data / "train", "--order", "classes")
    assert code != 0 and "--order" in said


@pytest.mark.parametrize("times", [1, 1000])
def test_targets_in_other_units_than_the_outputs_are_noticed(
    times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the simulator and where a device learns, before anything is learned from them."""
    generated, data = converted(tmp_path, "regression"), tmp_path / "data"
    for count, part in ((20, "train"), (5, "val")):
        file = table(data / part, count, 1, False) / NAME
        first, *lines = file.read_text().splitlines()
        scaled = [f"{name},{times * float(red)},{blue}" for name, red, blue in (x.split(",") for x in lines)]
        file.write_text("\n".join([first, *scaled]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MICROTRAIN_FLASH", str(tmp_path / "flash"))
    device = ("--native", host_program(generated, tmp_path), "train", data / "train")
    for command, words in ((simulate_main, (generated, "--data", data)), (device_main, device)):
        code, said = run(command, *words)
        assert code == 0 and "blue: targets vary" not in said
        assert ("red: targets vary by" in said) == (times > 1), said


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_a_board_that_learns_from_targets_is_checked_by_learning(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal of both boards would count as the same answer."""
    program = host_program(converted(tmp_path, task), tmp_path)
    monkeypatch.setenv("MICROTRAIN_FLASH", str(tmp_path / "flash"))
    with Device(ProgramPort(program)) as device, Bars() as bars:
        found = probe(device, time.monotonic, bars, "a program")
    assert not found.ended and found.answers > 70
    steps = found.groups["training"].values()
    assert all(answer.startswith("ok train") for answer in steps) and len(set(steps)) > 10, steps
    assert found.groups["weights after training"] != found.groups["weights as converted"]


def test_a_target_ends_with_its_last_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = host_program(converted(tmp_path, "regression"), tmp_path)
    monkeypatch.setenv("MICROTRAIN_FLASH", str(tmp_path / "flash"))
    with Device(ProgramPort(program)) as device:
        one, nan = "3f800000", "7fc00000"
        for said in (f"1 {one}", f"0 {nan}", "0 one", f"2 {one}"):
            with pytest.raises(AnswerError, match="target"):
                device._talk.command(f"target {said}", "ok target")
        for place in range(2):
            device._talk.command(f"target {place} {one}", f"ok target {place}")
        with pytest.raises(AnswerError, match="come in order, from 0 on"):
            device._talk.command(f"target 2 {one}", "ok target")


def test_ratings_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    scores, numbers, holds = rng.normal(0, 2, (60, 3)), rng.normal(0, 2, (60, 3)), rng.integers(0, 2, (60, 3))
    off = rated("regression", ("a", "b", "c"), scores, numbers)
    right = rated("multilabel", ("a", "b", "c"), scores, holds)
    for k, name in enumerate("abc"):
        assert off[name]["mae"] == pytest.approx(mean_absolute_error(numbers[:, k], scores[:, k]))
        assert off[name]["rmse"] == pytest.approx(root_mean_squared_error(numbers[:, k], scores[:, k]))
        assert right[name]["f1"] == pytest.approx(f1_score(holds[:, k], scores[:, k] > 0))
        assert right[name]["accuracy"] == pytest.approx(((scores[:, k] > 0) == holds[:, k]).mean())


BAD = {
    "": "must begin with a line of names",
    "image,left,right\n": "must begin with a line of names",
    "file,red,red\n": "must begin with a line of names",
    "file,red\n0.npy,1\n": "has 1 columns of targets, and the model 2 outputs",
    "file,red,blue\n": "names no samples",
    "file,red,blue\n0.npy,1\n": "line 2 of",
    "file,red,blue\n\n9.npy,1,0\n": "line 3 of",
    "file,red,blue\n../data/0.npy,1,0\n": "which is no file in",
    f"file,red,blue\n{'0' * 400}.npy,1,0\n": "which is no file in",
    "file,red,blue\n0.npy,1,much\n": "a number is needed",
    "file,red,blue\n0.npy,1,1e99\n": "a number is needed",
    "file,red,blue\n0.npy,1,nan\n": "a number is needed",
    "\0": "must begin with a line of names",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_table_is_one_sentence(text: str, tmp_path: Path) -> None:
    folder = table(tmp_path / "data", 6, 0, holds=False)
    (folder / NAME).write_text(text)
    with pytest.raises(Error, match=BAD[text]):
        read_table(folder, 2, holds=False)


def test_tables_and_what_is_held_out(tmp_path: Path) -> None:
    with pytest.raises(Error, match="there is no"):
        read_table(tmp_path, 2, holds=True)
    folder = table(tmp_path / "data", 10, 0, holds=True)
    with pytest.raises(Error, match="1 or 0 is needed"):
        read_table(table(tmp_path / "numbers", 6, 0, holds=False), 2, holds=True)
    training, testing = split_table(folder, 2, holds=False)
    assert (len(training.samples), len(testing.samples)) == (8, 2) and training.classes == ("red", "blue")


REFUSED = {
    ("--loss", "huber"): "--loss is of a regression",
    ("--classes", 1): "give --classes 2 or more",
    ("--task", "regression", "--classes", 3): "leave --classes out",
    ("--task", "multilabel", "--replay", 5): "leave it out with --task multilabel",
    ("--task", "regression", "--imprint", 8): "leave it out with --task regression",
    (): "--task regression",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_does_not_go_with_a_task_is_refused(words: tuple[object, ...], tmp_path: Path) -> None:
    model = write(small(classes=1), tmp_path / "model.pt2", "exported")
    code, said = run(convert_main, model, *words, "-o", tmp_path / "out")
    assert code != 0 and REFUSED[words] in said, said


def test_one_output_is_a_regression_or_a_yes_or_no(tmp_path: Path) -> None:
    model = write(small(classes=1), tmp_path / "model.pt2", "exported")
    for task in ("regression", "multilabel"):
        code, said = run(convert_main, model, "--task", task, "--check")
        assert code == 0 and "fits" in said, said
