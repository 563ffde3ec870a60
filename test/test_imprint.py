"""A head after one look at each sample: statistics in the arena, the same head on every machine."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import imprint_cases
import numpy as np
import pytest
from click.testing import CliRunner
from conftest import EXAMPLE, Built, build_example, few, run
from kernel_twins import Twin
from networks import residual_network
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from microtrain.base.plan import read_plan
from microtrain.convert.emit.code import generate
from microtrain.convert.ir import ConvertError
from microtrain.convert.memory import imprint as memory
from microtrain.convert.memory.check_plan import check_plan
from microtrain.convert.memory.imprint import Request
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import host
from microtrain.convert.ops.head import Head
from microtrain.convert.pipeline import Compiled, Passes, compile_graph
from microtrain.convert.reference import imprint
from microtrain.convert.reference.numeric import Array
from microtrain.convert.scheme import Scheme
from microtrain.demo.sessions import host_session
from microtrain.device import cli
from microtrain.device.client import Device
from microtrain.device.errors import AnswerError, DeviceError
from microtrain.device.learning import train
from microtrain.device.session import Settings, Silent, new_log
from microtrain.emulator import EmulatedPort
from microtrain.samples.source import Dataset, load, split
from microtrain.simulate.blueprint import load_blueprint
from microtrain.simulate.machine import Machine, library

CLASSES, FEATURES = 6, 20
SETTINGS = Settings(seed=3, rate=0.5, schedule="cosine", imprint=True)


@pytest.fixture(scope="module")
def twin() -> Twin:
    return Twin(host.load())


@pytest.fixture(scope="module")
def samples() -> tuple[Array, Array]:
    """Stored features of classes that differ along directions of little variance."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(0, 4, (FEATURES, FEATURES)) / np.sqrt(FEATURES)
    labels = np.arange(300) % CLASSES
    x = rng.normal(0, 4, (CLASSES, FEATURES))[labels] + rng.normal(0, 3, (300, FEATURES)) @ mixing
    return np.clip(np.rint(x), -128, 127).astype(np.int8), labels


HEAD = Head(pixels=1, c=FEATURES, classes=CLASSES, x_zero=0, x_scale=0.125)


def logits(head: tuple[int, Array, Array], x: Array) -> Array:
    result: Array = (x.astype(np.float32) * HEAD.x_scale) @ head[1].T + head[2]
    return result


def test_the_order_of_the_samples_does_not_matter(twin: Twin, samples: tuple[Array, Array]) -> None:
    x, labels = samples
    order = np.random.default_rng(1).permutation(len(x))
    straight = imprint_cases.gathered(twin, HEAD, 7, x, labels)
    np.testing.assert_array_equal(straight, imprint_cases.gathered(twin, HEAD, 7, x[order], labels[order]))
    other = imprint_cases.gathered(twin, HEAD, 7, x, labels[order])
    assert (straight != other).any()


def test_it_is_discriminant_analysis(twin: Twin, samples: tuple[Array, Array]) -> None:
    """Scikit-learn's with the same shrinkage and equal priors, but for a factor."""
    x, labels = samples
    head = imprint_cases.solved(twin, HEAD, FEATURES, imprint_cases.gathered(twin, HEAD, FEATURES, x, labels))
    within = np.concatenate([x[labels == k] - x[labels == k].mean(0) for k in range(CLASSES)])
    shrinkage = FEATURES / (FEATURES + len(x))
    c = within.T @ within / (len(x) - CLASSES)
    c = (1 - shrinkage) * c + shrinkage * np.trace(c) / FEATURES * np.eye(FEATURES)
    known = LinearDiscriminantAnalysis(solver="lsqr", priors=np.full(CLASSES, 1 / CLASSES))
    known.covariance_estimator = type("Fixed", (), {"fit": lambda self, _: self, "covariance_": c})()
    mine, theirs = logits(head, x), known.fit(x.astype(float), labels).decision_function(x.astype(float))
    mine, theirs = mine - mine.mean(1, keepdims=True), theirs - theirs.mean(1, keepdims=True)
    factor = (mine * theirs).sum() / (theirs * theirs).sum()
    np.testing.assert_allclose(mine, factor * theirs, atol=2e-4 * np.abs(mine).max())
    assert (mine.argmax(1) == labels).mean() > 0.9


def test_classes_are_as_far_ahead_as_the_header_says(twin: Twin, samples: tuple[Array, Array]) -> None:
    x, labels = samples
    head = imprint_cases.solved(twin, HEAD, 5, imprint_cases.gathered(twin, HEAD, 5, x, labels))
    means = np.stack([x[labels == k].mean(0) for k in range(CLASSES)])
    at_means = logits(head, means)
    own = np.diag(at_means).copy()
    np.fill_diagonal(at_means, -np.inf)
    assert np.mean(own - at_means.max(1)) == pytest.approx(imprint.MARGIN, rel=1e-3)


def test_covariance_is_worth_its_memory(twin: Twin, samples: tuple[Array, Array]) -> None:
    """Larger groups know more of new samples; the smallest is the variances alone."""
    x, labels = samples
    right = []
    for group in (1, FEATURES):
        seen = imprint_cases.gathered(twin, HEAD, group, x[:150], labels[:150])
        found = logits(imprint_cases.solved(twin, HEAD, group, seen), x[150:]).argmax(1)
        right.append((found == labels[150:]).mean())
    assert right[1] > right[0] + 0.05


def test_a_class_that_was_not_seen_is_never_predicted(twin: Twin, samples: tuple[Array, Array]) -> None:
    x, labels = samples
    some = labels != 2
    known, w, b = imprint_cases.solved(
        twin, HEAD, 5, imprint_cases.gathered(twin, HEAD, 5, x[some], labels[some])
    )
    assert known == CLASSES - 1 and not w[2].any()
    assert not (logits((known, w, b), x).argmax(1) == 2).any()


def test_one_sample_of_each_class_is_enough(twin: Twin, samples: tuple[Array, Array]) -> None:
    """There is no covariance yet: the nearest mean."""
    x, labels = (part[:CLASSES] for part in samples)
    head = imprint_cases.solved(twin, HEAD, 5, imprint_cases.gathered(twin, HEAD, 5, x, labels))
    far = ((samples[0][:, None].astype(float) - x[None]) ** 2).sum(2)
    found = logits(head, samples[0])
    clear = np.sort(far)[:, 1] > 1.01 * np.sort(far)[:, 0]
    np.testing.assert_array_equal(found.argmax(1)[clear], far.argmin(1)[clear])


# ---- in the arena
def compiled(group: int) -> Compiled:
    return compile_graph(residual_network(), Scheme("biases", biases=3), 5, Passes(imprint=group))


@pytest.mark.parametrize("group", [1, 3, 1000])
def test_sizes_are_those_of_the_kernels(twin: Twin, group: int) -> None:
    graph = compiled(group).graph
    head = Head(pixels=1, c=memory.features_of(graph), classes=5, x_zero=0, x_scale=1.0)
    assert memory.imprint_bytes(graph) == twin.lib.imprint_bytes(head, graph.imprint)
    assert memory.scratch_bytes(graph) == twin.lib.imprint_scratch(head, graph.imprint)


def test_statistics_outlive_inferences(tmp_path: Path) -> None:
    model = compiled(4)
    native = NativeModel(generate(model, "test"), tmp_path)
    place = model.plan.placements[memory.NAME]
    rng = np.random.default_rng(0)
    images = rng.integers(-128, 128, (4, *native.shape), np.int8)
    native.imprint_clear()
    for label, image in enumerate(images):
        native.forward(image, False)
        native.imprint_add(label)
        before = native.arena(place.offset, place.bytes)
        native.forward(images[0], False)
        assert native.arena(place.offset, place.bytes) == before
    assert native.imprint_solve() == 4
    assert native.arena(place.offset, place.bytes) == before


@pytest.mark.parametrize("victim", [memory.NAME, memory.SCRATCH])
def test_a_plan_in_which_something_lies_over_them_is_refused(victim: str) -> None:
    model = compiled(4)
    check_plan(model.graph, model.plan)
    other = memory.SCRATCH if victim == memory.NAME else memory.NAME
    moved = replace(model.plan.placements[victim], offset=model.plan.placements[other].offset)
    wrong = replace(model.plan, placements={**model.plan.placements, victim: moved})
    with pytest.raises(ConvertError, match="memory plan"):
        check_plan(model.graph, wrong)


def test_only_training_destroys_them() -> None:
    """What the backward pass alone wants lies in the same bytes: the arena is not the sum of both."""
    plain, model = compiled(0), compiled(1000)
    assert model.plan.arena < plain.plan.arena + memory.imprint_bytes(model.graph)
    assert plain.plan.arena == compile_graph(residual_network(), Scheme("biases", biases=3), 5).plan.arena


def test_sizes_of_groups() -> None:
    assert Request().groups(20) == (20, 10, 5, 3, 2, 1, 0)
    assert Request().groups(1280)[:2] == (160, 80)  # more than 256 gain little
    assert Request(7).groups(20) == (7,) and Request(70).groups(20) == (20,) and Request(0).groups(20) == (0,)


# ---- on devices
@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The example with statistics of a third of its features, for this machine and for the board."""
    folder = tmp_path_factory.mktemp("imprint")
    return build_example(EXAMPLE / "scheme.yaml", folder, True, "--imprint", "12", "--replay", "off")


@pytest.fixture(scope="module")
def digits(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three images per class to learn from and two to be tested with."""
    return few(digits, tmp_path_factory.mktemp("images"), 3, 2)


@pytest.fixture(scope="module")
def images(digits: Path) -> tuple[Dataset, Dataset]:
    return split(digits, 10)


def test_board_host_and_simulator_make_the_same_head(
    built: Built, images: tuple[Dataset, Dataset], tmp_path: Path
) -> None:
    """And learn the same from it; the ELF is the one that would be flashed."""
    plan = load_blueprint(built.folder)
    machine = Machine(plan, library(plan, tmp_path))
    log = new_log(machine, images[0], SETTINGS)
    train(machine, *images, log, Silent(), lambda s, _: machine.look(load(s.path, plan.shape)))
    assert host_session(built.program, *images, SETTINGS).log.sha256 == log.sha256
    with Device(EmulatedPort(built.elf)) as device:
        assert device.info.imprint == 12
        assert any(line.startswith("imprint L|head: ") for line in device._talk.command("help").lines)
        board = new_log(device, images[0], SETTINGS)
        train(device, *images, board, Silent())
        assert device.stats()["steps"] == "31"  # the head is one
    assert board.sha256 == log.sha256
    assert [e.correct for e in board.evaluations] == [e.correct for e in log.evaluations]
    before, looked, after = (e.accuracy for e in board.evaluations)
    assert looked > before + 0.3 and after > before + 0.3


def test_a_training_step_makes_them_begin_anew(built: Built) -> None:
    image = np.full(load_blueprint(built.folder).shape, 99, np.uint8)
    with Device(EmulatedPort(built.elf)) as device:
        with pytest.raises(AnswerError, match="nothing was seen since the last training step"):
            device.imprint_head()
        device.imprint(image, 3)
        device.imprint(image, 4)
        assert device.stats()["seen"] == "2" and device.imprint_head() == 2
        device.imprint(image, 5)
        assert device.imprint_head() == 3
        device.train(image, 3)
        assert device.stats()["seen"] == "0"
        device.imprint(image, 1)
        assert device.imprint_head() == 1
        assert device.infer(image).label == 1
        for what in (device.reset, device.selftest, lambda: device.push(device.pull())):
            device.imprint(image, 1)
            what()
            assert device.stats()["seen"] == "0"
        with pytest.raises(AnswerError, match="label is not a class"):
            device.imprint(image, 10)


def test_a_head_is_saved_before_a_restart(built: Built) -> None:
    """Though no training step followed it."""
    image = np.full(load_blueprint(built.folder).shape, 99, np.uint8)
    with Device(EmulatedPort(built.elf)) as device:
        device.imprint(image, 7)
        device.imprint_head()
        learned = device.sha()
        device.reboot()
        assert device.sha() == learned and device.infer(image).label == 7


def commanded(program: Path, *words: object) -> str:
    result = CliRunner().invoke(cli.main, ["--native", str(program), *map(str, words)])
    return str(result.output)


def test_train_looks_first_where_nothing_is_learned_yet(
    built: Built, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MICROTRAIN_FLASH", str(tmp_path / "flash"))
    words = ("train", digits / "train", "--eval", digits / "test", "--autosave", "1")
    said = commanded(built.program, *words)
    assert "one look at each image first" in said and "after one look : " in said
    said = commanded(built.program, *words)
    assert re.search(
        r"the head stays, as the device has taken \d+ steps; --imprint makes a new one first", said
    )
    assert "after one look" not in said
    assert "after one look" in commanded(built.program, *words, "--imprint")
    monkeypatch.setenv("MICROTRAIN_FLASH", str(tmp_path / "other"))
    assert "after one look" not in commanded(built.program, *words, "--no-imprint")


def test_a_look_is_refused_where_classes_have_other_names(built: Built, digits: Path, tmp_path: Path) -> None:
    for k in range(10):
        (tmp_path / f"other{k}").mkdir()
        (tmp_path / f"other{k}/a.png").write_bytes(next((digits / "test").glob("*/*.png")).read_bytes())
    said = commanded(built.program, "imprint", digits / "train", "--eval", tmp_path)
    assert "have different class folders: name them alike" in said


def test_a_look_without_training(built: Built, digits: Path) -> None:
    said = commanded(built.program, "imprint", digits / "train", "--eval", digits / "test")
    assert "the head knows 10 classes from 30 images, sha256 " in said
    before, after = (float(line.split()[1][:-1]) for line in said.splitlines()[-2:])
    assert after > before + 30


def test_a_firmware_without_statistics_says_so(example: Built, digits: Path) -> None:
    said = commanded(example.program, "train", digits / "train", "--imprint")
    assert "there are no statistics of features: convert the model with --imprint" in said
    said = commanded(example.program, "imprint", digits / "train")
    assert "there are no statistics of features: convert the model with --imprint" in said
    assert "no statistics" in commanded(example.program, "info")
    with (
        Device(EmulatedPort(example.elf)) as device,
        pytest.raises(DeviceError, match="convert the model with --imprint"),
    ):
        device.imprint_head()


# ---- what conversion chooses
def converted(folder: Path, *options: str) -> tuple[str, int]:
    """What convert says, and the size of the groups in the plan; 0: no statistics."""
    words = [str(EXAMPLE / "model.pt"), "--classes", "10", "-o", str(folder), *options]
    said = run(["python", "tools/convert", *words])
    found = read_plan(folder / "plan.json").imprint
    return said, found.group if found else 0


def test_groups_are_as_large_as_the_budget_allows(tmp_path: Path) -> None:
    scheme = ("--scheme", str(EXAMPLE / "scheme.yaml"), "--replay", "off")
    said, group = converted(tmp_path, *scheme)
    features = group
    assert f"the features' covariance, all {features}" in said
    assert converted(tmp_path, *scheme, "--imprint", "7")[1] == 7
    said, group = converted(tmp_path, *scheme, "--imprint", "off")
    assert group == 0 and "no statistics of features: the head starts from nothing" in said
    small = next(
        int(line.split()[1].replace(",", "")) for line in said.splitlines() if line.startswith("SRAM")
    )
    said, group = converted(tmp_path, *scheme, "--budget-sram", str(small // 1024 + 2))
    assert 0 < group < features and f"groups of {group} of {features}" in said
    assert converted(tmp_path, *scheme, "--budget-sram", str(small // 1024 + 1))[1] < group


def test_statistics_are_left_out_where_their_code_does_not_fit(tmp_path: Path) -> None:
    scheme = ("--scheme", str(EXAMPLE / "head.yaml"), "--replay", "off")
    said, group = converted(tmp_path, *scheme)
    assert group > 0
    flash = next(int(line.split()[1].replace(",", "")) for line in said.splitlines() if line[:5] == "flash")
    assert converted(tmp_path, *scheme, "--budget-flash", str(flash // 1024 - 1))[1] == 0


def test_a_head_that_knows_something_is_not_replaced(tmp_path: Path) -> None:
    rows = ("--head-rows", "0-6", "--classes", "7", "--scheme", str(EXAMPLE / "scheme.yaml"))
    said, group = converted(tmp_path, *rows)
    assert group == 0 and "the head starts from rows of the model's own" in " ".join(said.split())
    assert converted(tmp_path, *rows, "--imprint", "9")[1] == 9


def test_what_is_no_size_of_a_group(tmp_path: Path) -> None:
    from microtrain.convert.cli import main

    words = [str(EXAMPLE / "model.pt"), "-o", str(tmp_path), "--imprint"]
    for wrong in ("0", "-1", "many", "1e3"):
        said = CliRunner().invoke(main, [*words, wrong])
        assert said.exit_code == 2 and "is neither auto nor off nor a number of features" in said.output
