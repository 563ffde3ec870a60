"""The simulator learns what the device learns, whatever it keeps of the frozen front, and says so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import EXAMPLE, ROOT, Built, few, run
from networks import random_network, residual_network
from PIL import Image

from lab.bench.build import BOARD, build
from microtrain.base.errors import Error
from microtrain.base.files import unpacked
from microtrain.base.plan import Origin, Plan, Tensor
from microtrain.convert.emit.code import generate
from microtrain.convert.emit.document import document
from microtrain.convert.native_model import NativeModel, Sgd
from microtrain.convert.pipeline import Passes, compile_graph
from microtrain.convert.scheme import Scheme, convolutions
from microtrain.demo.sessions import host_session
from microtrain.device.client import Device
from microtrain.device.learning import train
from microtrain.device.link import EmulatorPort
from microtrain.device.session import Settings, Silent, new_log
from microtrain.native.model import Model, compile_model
from microtrain.samples.augment import Augmentation
from microtrain.samples.images import WAYS, load_image, photograph
from microtrain.samples.source import scan, split
from microtrain.simulate.blueprint import Blueprint, alive, load_blueprint
from microtrain.simulate.machine import FAST, Machine, library
from microtrain.simulate.records import Task, fill, show

SETTINGS = Settings(epochs=3, seed=5, limit=70, rate=2.0, schedule="cosine")
STILL = Augmentation((), 1)


@pytest.fixture(scope="module")
def images(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some of the example's images: train/CLASS and test/CLASS."""
    return few(digits, tmp_path_factory.mktemp("simulate"), 10, 10)


@pytest.fixture(scope="module")
def plan(example: Built) -> Blueprint:
    return load_blueprint(example.folder)


@pytest.fixture(scope="module")
def task(plan: Blueprint, images: Path, tmp_path_factory: pytest.TempPathFactory) -> Task:
    folder = tmp_path_factory.mktemp("work")
    return Task(plan, library(plan, folder), *split(images, 10), STILL, SETTINGS.epochs, folder)


def learn(task: Task, settings: Settings = SETTINGS) -> str:
    """SHA-256 of the trainables after a session."""
    machine = Machine(task.plan, task.library)
    list(fill(task, 1))
    log = new_log(machine, task.training, settings)
    train(machine, task.training, task.testing, log, Silent(), show(task, machine))
    return log.sha256


def test_the_simulator_learns_what_the_firmware_learns(task: Task, example: Built) -> None:
    firmware = host_session(example.program, task.training, task.testing, SETTINGS)
    assert learn(task) == firmware.log.sha256
    assert learn(task, settings=replace(SETTINGS, seed=6)) != firmware.log.sha256


@pytest.mark.parametrize("augmentation", [STILL, Augmentation(WAYS, 2)])
def test_records_change_nothing(task: Task, augmentation: Augmentation) -> None:
    kept = replace(task, augmentation=augmentation)
    assert learn(kept) == learn(replace(kept, cache=None))
    file = kept.records()
    assert file is not None and file.is_file()


def test_a_record_of_other_bytes_is_noticed(task: Task, tmp_path: Path) -> None:
    (offset, size), *_ = task.plan.regions
    wrong = replace(task.plan, regions=((offset + 8, size),))
    assert learn(replace(task, plan=wrong, cache=tmp_path)) != learn(task)


@pytest.mark.parametrize("seed", range(6))
def test_half_passes_are_the_whole_pass(tmp_path: Path, seed: int) -> None:
    """Random networks and schemes, with recomputation: keep, scramble the arena, restore, and go on.

    The halves run as the simulator compiles them, with vector instructions.
    """
    graph = residual_network() if seed == 0 else random_network(seed)
    names = convolutions(graph)
    count = (1, 3, len(names))[seed % 3]
    scheme = Scheme("test", count, dict.fromkeys(names[-count:], 0.5), fraction_bits=8, head="random")
    compiled = compile_graph(graph, scheme, 4, Passes(arena=1 if seed % 2 else 1 << 32))
    output = generate(compiled, "a test")
    plan = document(compiled, output, Origin("", "", ""), None)
    model, fast = NativeModel(output, tmp_path), compile_model(tmp_path, tmp_path, FAST)
    rng = np.random.default_rng(seed)
    stored = rng.integers(-128, 128, (5, *model.shape)).astype(np.int8)
    whole, halves = learn_whole(model, stored), learn_halves(Model(tmp_path, fast), stored, plan)
    assert whole == halves
    assert seed % 3 == 2 or plan.front > 0


def learn_whole(model: Model, stored: np.ndarray) -> bytes:
    model.reset()
    for step, image in enumerate(stored):
        model.forward(image, train=True)
        model.backward(step % 4, Sgd(0.05, 0.05, 0.05, 1, step))
    return model.trainables()


def learn_halves(model: Model, stored: np.ndarray, plan: Plan) -> bytes:
    """The same from what the front left of each image, all of which is computed before."""
    regions = alive(plan.tensors, plan.front)
    model.reset()
    kept = []
    for image in stored:
        model.front(image)
        kept.append(model.keep(regions))
    for step, record in enumerate(kept):
        model.restore(((0, model.arena_bytes),), np.full(model.arena_bytes, 0xA5, np.uint8))
        model.restore(regions, record)
        if plan.front == 0:
            model.enter(stored[step])
        model.rest(train=True)
        model.backward(step % 4, Sgd(0.05, 0.05, 0.05, 1, step))
    return model.trainables()


def test_a_model_without_frozen_front_is_simulated_too(images: Path, tmp_path: Path) -> None:
    command = ["python", "tools/convert", str(EXAMPLE / "model.pt"), "--scheme", "full", "--classes", "10"]
    run([*command, "--board", "native", "-o", str(tmp_path / "full")])
    plan = load_blueprint(tmp_path / "full")
    task = Task(plan, library(plan, tmp_path), *split(images, 10), STILL, 1, tmp_path)
    settings = Settings(limit=20)
    assert plan.front == 0
    assert learn(task, settings=settings) == learn(replace(task, cache=None), settings=settings)


def test_alive_joins_neighbours_and_leaves_out_what_is_over() -> None:
    def tensor(offset: int, size: int, birth: int, death: int) -> Tensor:
        return Tensor("t", "activation", size, offset, birth, death, (size,), "u8")

    tensors = [
        tensor(64, 32, 1, 2), tensor(96, 8, 0, 9), tensor(0, 16, 1, 3),
        tensor(16, 48, 0, 1), tensor(0, 99, 2, 2),
    ]  # fmt: skip
    assert alive(tensors, 2) == ((0, 16), (64, 40))


def test_variants_differ_and_come_again(images: Path) -> None:
    path = next((images / "train/3").iterdir())
    first, again, other = (photograph(path, (32, 32, 1), WAYS, n) for n in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.array_equal(photograph(path, (32, 32, 1), WAYS, 0), load_image(path, (32, 32, 1)))
    flipped = {photograph(path, (32, 32, 1), ("flip",), n).tobytes() for n in range(8)}
    assert len(flipped) == 2


def test_folders_are_split_as_they_say(images: Path, tmp_path: Path) -> None:
    training, testing = split(images, 10)
    assert (len(training.samples), len(testing.samples)) == (100, 100)
    training, testing = split(images / "train", 10)
    assert (len(training.samples), len(testing.samples)) == (80, 20)
    assert not {s.path for s in training.samples} & {s.path for s in testing.samples}
    listed = tmp_path / "listed"
    shutil.copytree(images / "train", listed)
    names = [f"{s.path.parent.name}/{s.path.name}" for s in scan(listed, 10).samples]
    (listed / "train.txt").write_text("\n".join(names[1::2]) + "\n")
    (listed / "val.txt").write_text("\n".join(names[::2]) + "\n")
    training, testing = split(listed, 10)
    assert [s.path for s in training.samples] == [listed / name for name in names[1::2]]
    assert [s.label for s in testing.samples] == [int(name[0]) for name in names[::2]]
    (listed / "val.txt").write_text("3/nowhere.png\n")
    with pytest.raises(Error, match=r"nowhere\.png"):
        split(listed, 10)


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "tools/simulate", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_command_compares_seeds_and_rates(example: Built, images: Path, tmp_path: Path) -> None:
    options = ["--epochs", "2", "--seed", "0", "--seed", "1", "--lr-factor", "2", "--augment", "crop,light"]
    done = simulate(str(example.folder), "--data", str(images), *options, "-o", str(tmp_path))
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "results.json").read_text())
    runs = [(r["seed"], r["lr"], r["lr_factor"], r["steps"]) for r in document["runs"]]
    assert runs == [(0, 0.06, 2.0, 200), (1, 0.06, 2.0, 200)]
    assert (
        "rate 0.04/0.01/0.06 (weights/biases/head), cosine to 0; augmentation crop, light (8 variants)"
        in done.stdout
    )
    first, second = document["runs"]
    assert [point["step"] for point in first["accuracy"]["curve"]] == [0, 100, 200]
    assert first["trained_sha256"] != second["trained_sha256"]
    assert first["accuracy"]["after"] > first["accuracy"]["before"]
    assert first["loss"]["mean"][-1] < first["loss"]["mean"][0]
    assert "after 100 steps" in done.stderr
    for name in ("lr0.06-seed0.svg", "lr0.06-seed1.svg"):
        Image.open((tmp_path / name).with_suffix(".png")).verify()
        assert "<svg" in (tmp_path / name).read_text()


def test_bad_input_is_one_sentence(example: Built, images: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"format": 1}')
    (tmp_path / "empty").mkdir()
    folder, data = str(example.folder), str(images)
    cases = {
        "no such plan": (str(tmp_path / "nothing"), "--data", data),
        "convert again": (str(tmp_path), "--data", data),
        "no such folder": (folder, "--data", str(tmp_path / "nothing")),
        "no class folders": (folder, "--data", str(tmp_path / "empty")),
        "choose from": (folder, "--data", data, "--augment", "rotate"),
        "for a factor on the scheme's rates there is --lr-factor 5": (folder, "--data", data, "--lr", "5"),
        "name one of them": (folder, "--data", data, "--lr", "0.5", "--lr-factor", "2"),
    }
    for words, arguments in cases.items():
        done = simulate(*arguments)
        assert done.returncode != 0
        assert words in done.stderr and "Traceback" not in done.stderr, done.stderr


@pytest.mark.slow
def test_the_board_learns_500_real_images_as_the_simulator_does(tmp_path: Path) -> None:
    """MCUNet with the 99 KB scheme: the ELF that is flashed against the simulator's records."""
    folder = os.environ.get("MICROTRAIN_DATA")
    if not folder:
        pytest.skip("MICROTRAIN_DATA is not set: it names the folder with models/ and sets/")
    images = unpacked(Path(folder) / "sets/clothing10_144.tar", tmp_path / "images")
    model, generated = Path(folder) / "models/mcunet-5fps.pkl", tmp_path / "generated"
    options = ["--scheme", "mcunet-99kb", "--classes", "10", "--replay", "off", "--imprint", "off"]
    run(["python", "tools/convert", str(model), *options, "-o", str(generated)])
    plan = load_blueprint(generated)
    training, testing = split(images, plan.classes)
    settings = Settings(epochs=1, seed=3, limit=500, schedule="cosine")
    task = Task(plan, library(plan, tmp_path), training, testing, STILL, 1, tmp_path)
    simulated = learn(task, settings)
    elf = build(generated, tmp_path / "firmware", BOARD)
    with Device(EmulatorPort(elf)) as board:
        log = new_log(board, training, settings)
        train(board, training, None, log, Silent())
    assert len(log.steps) == 500
    assert log.sha256 == simulated


def test_a_plan_of_another_model_is_refused(example: Built, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    shutil.copytree(example.folder, folder)
    document = json.loads((folder / "plan.json").read_text())
    document["model_id"] = "0" * 64
    (folder / "plan.json").write_text(json.dumps(document))
    with pytest.raises(Error, match="different models: convert again"):
        library(load_blueprint(folder), tmp_path)


def test_a_rate_rises_over_the_warm_up() -> None:
    settings = Settings(rate=2.0, warmup=4)
    assert [settings.rate_at(step, 10) for step in range(6)] == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]
    assert replace(settings, schedule="cosine").rate_at(9, 10) < 0.1
