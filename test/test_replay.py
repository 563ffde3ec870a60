"""The replay buffer: one reservoir in C and in Python, the same learning on device and in the simulator."""

from __future__ import annotations

import ctypes
import json
import math
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from conftest import EXAMPLE, ROOT, Built, build_example, few, run
from networks import random_network, residual_network

from microtrain.base.errors import Error
from microtrain.convert.boards import STACK_RESERVE
from microtrain.convert.emit.code import generate
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.memory.check_plan import check_plan
from microtrain.convert.memory.plan import lifetimes, plan
from microtrain.convert.memory.replay import (
    PARTS,
    PER_CLASS,
    RECORDS_MAX,
    SPARED,
    WHOLE,
    Request,
    buffer_bytes,
    classes,
    most_records,
    record_bytes,
)
from microtrain.convert.native_model import NativeModel, Sgd
from microtrain.convert.pipeline import FIRMWARE_SRAM, Passes, planned, training_graph
from microtrain.convert.recording import coded, with_buffer
from microtrain.convert.recording import recorded as recordings
from microtrain.convert.reference.product_code import decoded, encoded
from microtrain.convert.scheme import Scheme, convolutions
from microtrain.convert.trainables import front_steps
from microtrain.demo.sessions import Silent, host_session
from microtrain.device.client import Device
from microtrain.device.learning import train
from microtrain.device.link import ProgramPort
from microtrain.device.session import Settings, new_log, ordered, setback
from microtrain.emulator import EmulatedPort
from microtrain.samples.source import Dataset, load, split
from microtrain.simulate.blueprint import Blueprint, load_blueprint
from microtrain.simulate.machine import Machine, library
from microtrain.simulate.replay import Buffer, Rehearsing, buffer_size

RECORDS, CLASSES = 12, 3
SETTINGS = Settings(epochs=2, seed=7, rate=2.0, order="classes", replay=3, rehearse=25)


@pytest.fixture(scope="module", params=[pytest.param("off", marks=pytest.mark.slow), "3"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The example with a replay buffer: records as they are, or as codes beside statistics of features."""
    folder = tmp_path_factory.mktemp("replay")
    imprint = "off" if request.param == "off" else "auto"
    options = ("--replay", "16", "--replay-code", request.param, "--imprint", imprint)
    return build_example(EXAMPLE / "scheme.yaml", folder, True, *options)


@pytest.fixture(scope="module")
def images(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Dataset]:
    """Four images per class to learn from and four to be tested with."""
    return split(few(digits, tmp_path_factory.mktemp("images"), 4, 4), 10)


@pytest.fixture(scope="module")
def c_buffer(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """replay.c around the null model."""
    path = tmp_path_factory.mktemp("c") / "replay.so"
    null = ROOT / "test/fixtures/null_model"
    sources = [ROOT / "firmware/src/runtime/replay.c", null / "model.c", null / "model_weights.c"]
    flags = ["-std=c11", "-Wall", "-Werror", "-shared", "-fPIC", f"-DMODEL_RECORDS={RECORDS}"]
    include = [f"-I{ROOT / 'firmware/include'}", f"-I{null}"]
    subprocess.run(["gcc", *flags, *include, *map(str, sources), "-lm", "-o", str(path)], check=True)
    return ctypes.CDLL(str(path))


@pytest.mark.slow
def test_the_suites_of_the_firmware_pass_beside_records(built: Built, tmp_path: Path) -> None:
    suites = (f"renode/{name}.robot" for name in ("checkpoint", "microtrain"))
    said = run(["python", "renode/run.py", "--elf", str(built.elf), "--results", str(tmp_path), *suites])
    assert "board model: passed" in said


def stream(kind: str, count: int = 400) -> list[int]:
    """Labels of images in the order in which they come."""
    rng = np.random.default_rng(3)
    if kind == "classes":
        return [i * CLASSES // count for i in range(count)]
    shares = (0.9, 0.08, 0.02) if kind == "rare" else None
    return [int(k) for k in rng.choice(CLASSES, count, p=shares)]


@pytest.mark.parametrize("kind", ["classes", "shuffled", "rare"])
def test_c_and_python_keep_and_recall_the_same(c_buffer: ctypes.CDLL, kind: str) -> None:
    """Each image is its number, so that what lies in a record tells which image it is."""
    arena = (ctypes.c_uint32 * 1).in_dll(c_buffer, "model_arena")
    c_buffer.replay_clear(None)
    buffer, kept = Buffer(RECORDS, CLASSES), [-1] * RECORDS
    for step, label in enumerate(stream(kind)):
        arena[0] = step
        c_buffer.replay_keep(None, label, 5, step)
        place = buffer.keep(label, 5, step)
        if place is not None:
            kept[place] = step
        assert c_buffer.replay_held(None) == len(buffer.labels)
        for other in range(3):
            place = buffer.recall(5, 1000 * step + other)
            assert c_buffer.replay_recall(None, 5, 1000 * step + other) == buffer.labels[place]
            assert arena[0] == kept[place]


def test_another_seed_draws_others(c_buffer: ctypes.CDLL) -> None:
    buffers = [Buffer(RECORDS, CLASSES) for _ in range(2)]
    for step, label in enumerate(stream("shuffled")):
        for seed, buffer in enumerate(buffers):
            buffer.keep(label, seed, step)
    recalled = [[buffer.recall(seed, s) for s in range(20)] for seed, buffer in enumerate(buffers)]
    assert recalled[0] != recalled[1]


@pytest.mark.parametrize("kind", ["classes", "shuffled"])
def test_classes_share_the_records(kind: str) -> None:
    buffer = Buffer(RECORDS, CLASSES)
    for step, label in enumerate(stream(kind)):
        buffer.keep(label, 1, step)
    assert max(Counter(buffer.labels).values()) - min(Counter(buffer.labels).values()) <= 1
    assert len(buffer.labels) == RECORDS


def test_all_images_of_a_class_are_as_likely_to_be_kept() -> None:
    """Of 60 images of a class in a buffer that has 4 records for it, each is there in 1 of 15 trials."""
    trials, shown = 3000, 60
    times = np.zeros(shown)
    for seed in range(trials):
        buffer, kept = Buffer(RECORDS, CLASSES), [-1] * RECORDS
        for step in range(shown * CLASSES):
            place = buffer.keep(step % CLASSES, seed, step)
            if place is not None:
                kept[place] = step
        for step in kept:
            times[step // CLASSES] += 1
    share = times / (trials * CLASSES)
    assert abs(share - RECORDS / CLASSES / shown).max() < 0.015


@pytest.mark.parametrize("records", [1, 2, 3, 5, 8, 13, 100])
def test_as_many_steps_as_records_take_each_once(records: int) -> None:
    """Every time in another order, in which each place is as likely to hold any of them."""
    rounds = 600
    buffer = Buffer(records, 1)
    for step in range(records):
        buffer.keep(0, 1, step)
    drawn = np.array([buffer.recall(7, step) for step in range(rounds * records)]).reshape(rounds, records)
    assert (np.sort(drawn) == np.arange(records)).all()
    assert len({tuple(order) for order in drawn}) > min(rounds, math.factorial(min(records, 9))) / 2
    often = np.array([np.bincount(drawn[:, place], minlength=records) for place in range(records)])
    wanted = rounds / records
    assert abs(often - wanted).max() < 5 * wanted**0.5


def simulated(plan: Blueprint, folder: Path, images: tuple[Dataset, Dataset], settings: Settings) -> str:
    """SHA-256 of the trainables after a session of the simulator."""
    machine = Machine(plan, library(plan, folder))
    learner = Rehearsing(machine, plan.records)
    log = new_log(learner, images[0], settings)
    train(learner, *images, log, Silent(), lambda s, _: machine.look(load(s.path, plan.shape)))
    return log.sha256


def test_the_simulator_replays_what_the_firmware_replays(
    built: Built, images: tuple[Dataset, Dataset], tmp_path: Path
) -> None:
    plan = load_blueprint(built.folder)
    firmware = host_session(built.program, *images, SETTINGS)
    assert simulated(plan, tmp_path, images, SETTINGS) == firmware.log.sha256
    for other in (replace(SETTINGS, replay=2), replace(SETTINGS, rehearse=0)):
        assert simulated(plan, tmp_path, images, other) != firmware.log.sha256
    default = host_session(built.program, *images, replace(SETTINGS, replay=None))
    assert simulated(plan, tmp_path, images, replace(SETTINGS, replay=4)) == default.log.sha256


def test_the_board_replays_what_the_simulator_replays(
    built: Built, images: tuple[Dataset, Dataset], tmp_path: Path
) -> None:
    """The ELF that would be flashed, on the emulated board; more images than records."""
    settings = replace(SETTINGS, epochs=1, limit=22)
    with Device(EmulatedPort(built.elf)) as device:
        assert device.info.records == 16
        log = new_log(device, images[0], settings)
        train(device, images[0], None, log, Silent())
        stats = device.stats()
        assert (stats["steps"], stats["replays"], stats["records_held"]) == ("113", "3", "16")
    learned = simulated(load_blueprint(built.folder), tmp_path, (images[0], images[1]), settings)
    assert learned == log.sha256


CODED = pytest.mark.parametrize("built", ["3"], indirect=True)


@CODED
def test_what_is_looked_at_becomes_a_record(
    built: Built, images: tuple[Dataset, Dataset], tmp_path: Path
) -> None:
    """Each image once, in a look; then steps on records alone, and those of a silent line."""
    settings = Settings(epochs=0, seed=3, order="classes", imprint=True, rehearse=30)
    plan = load_blueprint(built.folder)
    firmware = host_session(built.program, *images, settings)
    assert simulated(plan, tmp_path, images, settings) == firmware.log.sha256
    assert firmware.log.steps == [] and len(firmware.log.evaluations) == 3
    look, last = firmware.log.evaluations[1:]
    assert look.accuracy > 0.5 and last.step == 30
    for other in (replace(settings, epochs=1), replace(settings, rehearse=31)):
        found = host_session(built.program, *images, other).log.sha256
        assert simulated(plan, tmp_path, images, other) == found != firmware.log.sha256


@CODED
@pytest.mark.parametrize("epochs", [0, 1])
def test_what_diverges_begins_again_with_the_head_of_the_look(
    built: Built, images: tuple[Dataset, Dataset], tmp_path: Path, epochs: int
) -> None:
    """At half the rate, until it does not: on the board, where nothing was saved, as in the simulator."""
    settings = Settings(epochs=epochs, limit=20, seed=3, imprint=True, rehearse=30, rate=1000, backs_off=True)
    plan = load_blueprint(built.folder)
    machine = Machine(plan, library(plan, tmp_path))
    learner = Rehearsing(machine, plan.records)
    log = new_log(learner, images[0], settings)
    train(learner, *images, log, Silent(), lambda s, _: machine.look(load(s.path, plan.shape)))
    assert log.halvings > 2 and log.diverged is None
    assert len(log.steps) == 20 * epochs and len(log.evaluations) == 3 + epochs
    with Device(EmulatedPort(built.elf)) as device:
        board = new_log(device, images[0], settings)
        train(device, images[0], None, board, Silent())
        assert 2 < int(device.stats()["rollbacks"]) <= log.halvings
    assert (board.sha256, board.halvings) == (log.sha256, log.halvings)


@CODED
def test_a_rate_that_somebody_asked_for_stays(
    built: Built, images: tuple[Dataset, Dataset], tmp_path: Path
) -> None:
    """Where it diverges the session ends with the head of the look, and says so."""
    settings = Settings(epochs=0, limit=20, seed=3, imprint=True, rehearse=30, rate=1000)
    log = host_session(built.program, *images, settings).log
    assert simulated(load_blueprint(built.folder), tmp_path, images, settings) == log.sha256
    looked, last = log.evaluations[-2:]
    assert last.accuracy == looked.accuracy > 0.3
    assert (
        setback(log, "") == f"diverged at step {log.diverged}: the head of the look is back; use a lower --lr"
    )


@CODED
def test_a_pass_keeps_only_what_it_shows_first(
    built: Built, images: tuple[Dataset, Dataset], tmp_path: Path
) -> None:
    """Else an image that is shown twice would take the place of another one."""
    machine = Machine(load_blueprint(built.folder), library(load_blueprint(built.folder), tmp_path))
    learner = Rehearsing(machine, 16)
    told: list[bool] = []
    learner.keep = told.append  # type: ignore[method-assign, assignment]
    show = lambda s, _: machine.look(load(s.path, machine.plan.shape))  # noqa: E731
    for settings in (Settings(epochs=2, limit=3), Settings(epochs=1, limit=3, imprint=True)):
        train(learner, images[0], None, new_log(learner, images[0], settings), Silent(), show)
    assert told == [False, True] * 2


@CODED
def test_a_silent_line_is_used(built: Built, images: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    """The board takes the steps that it may, with the simulator's bits, and no more of them."""
    plan = load_blueprint(built.folder)
    some = images[0].samples[::4]
    machine = Machine(plan, library(plan, tmp_path))
    learner = Rehearsing(machine, plan.records)
    with Device(EmulatedPort(built.elf)) as device:
        for each in (device, learner):
            each.seed(5)
            for sample in some:
                picture = load(sample.path, plan.shape)
                each.imprint(picture if each is device else machine.look(picture), sample.label)
            each.imprint_head()
        before = device.sha()
        assert before == learner.sha()
        device.idle(6)
        learner.idle(6)
        for _ in range(100):
            if device.stats()["idle"] == "0":
                break
            device._talk.listen(1.0)
        assert device.stats()["idle"] == "0" and device.stats()["steps"] == "7"
        assert device.sha() == learner.sha() != before
        device._talk.listen(2.0)
        assert device.stats()["steps"] == "7"
        device.idle(4)
        device.reset()
        assert device.stats()["idle"] == "0"


def test_the_report_counts_the_buffer(built: Built, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    files = ["--elf", str(built.elf), "--plan", str(built.folder / "plan.json")]
    run(["python", "tools/memory_report", *files, "--json", str(file)])
    kinds = json.loads(file.read_text())["sram"]["kinds"]
    document = json.loads((built.folder / "plan.json").read_text())
    assert kinds["replay buffer"] == document["replay"]["bytes"] > 16 * document["replay"]["record_bytes"]


def recorded(seed: int) -> Graph:
    """A random network's training graph with a record."""
    graph = residual_network() if seed == 0 else random_network(seed)
    names = convolutions(graph)
    scheme = Scheme("test", 2, dict.fromkeys(names[-(1 + seed % 3) :], 0.5), fraction_bits=8, head="random")
    return training_graph(graph, scheme, 4, Passes(arena=1 if seed % 2 else 1 << 32, replay=Request(4)))


@pytest.mark.parametrize("seed", range(8))
def test_a_record_is_the_smallest_cut(seed: int) -> None:
    """No other boundary between the frozen steps has fewer bytes alive, and nor has the image."""
    graph = recorded(seed)
    life, size = lifetimes(graph), record_bytes(graph)
    for step in range(1, front_steps(graph) + 1):
        alive = [t for t, (birth, death) in life.items() if birth < step <= death]
        assert sum(graph.tensors[t].elements for t in alive) >= size
    assert graph.tensors[graph.input.tensor].elements >= size
    assert 0 <= graph.cut <= front_steps(graph)


@pytest.mark.parametrize("seed", range(8))
def test_a_record_is_all_that_a_step_needs(seed: int, tmp_path: Path) -> None:
    """Train from records in an arena that was scrambled before, and from whole images: the same bytes."""
    graph = recorded(seed)
    compiled = planned(graph, Scheme("test"), Passes())
    output = generate(replace(compiled, records=4), "a test")
    model = NativeModel(output, tmp_path)
    rng = np.random.default_rng(seed)
    stored = rng.integers(-128, 128, (4, *model.shape)).astype(np.int8)
    sgd = [Sgd(0.05, 0.05, 0.05, 1, step) for step in range(4)]
    for step, image in enumerate(stored):
        model.forward(image, train=True)
        model.backward(step, sgd[step])
    whole = model.trainables()
    model.reset()
    assert model.trainables() != whole
    records = [np.zeros(record_bytes(graph), np.uint8) for _ in stored]
    for image, record in zip(stored, records, strict=True):
        model.enter(image)
        model.lib.model_front()
        model.lib.model_keep(record.ctypes.data_as(ctypes.c_void_p))
    for step, record in enumerate(records):
        model.restore(((0, model.arena_bytes),), np.full(model.arena_bytes, 0xA5, np.uint8))
        model.lib.model_recall(record.ctypes.data_as(ctypes.c_void_p))
        model.lib.model_rest(1)
        model.backward(step, sgd[step])
    assert model.trainables() == whole


def test_a_record_that_lacks_a_tensor_is_caught() -> None:
    graph = training_graph(residual_network(), Scheme("head"), 4, Passes(fused=False))
    placed, life = plan(graph), lifetimes(graph)
    cuts = [tuple(t for t, (b, d) in life.items() if b < s <= d) for s in range(1, front_steps(graph) + 1)]
    for record in cuts:
        check_plan(graph.replace(record=record), placed)
    inside_a_block = next(record for record in cuts if len(record) > 1)
    with pytest.raises(ConvertError, match=f"memory plan: .* needs {inside_a_block[0]}"):
        check_plan(graph.replace(record=inside_a_block[1:]), placed)


BAD = {
    "0": "no number of records",
    "-3": "no number of records",
    "64MB": "no number of records",
    "9": "9 records are too few for the replay buffer of digits: it holds one of each of 10 classes",
    "1KB": "4 records are too few",
    "1KB --replay-code off": "0 records are too few",
    "16 --replay-code 65": "neither auto nor off nor a number of values, 1..64",
    "300KB": "over the budget of 324,864 B, all that disco_f746ng has beside what is kept for the stack",
    "spare --board native": "no budget of SRAM",
}


@pytest.mark.parametrize("option", BAD)
def test_a_buffer_that_cannot_be_is_one_sentence(option: str, tmp_path: Path) -> None:
    command = [str(EXAMPLE / "model.pt"), "--classes", "10", "--scheme", str(EXAMPLE / "scheme.yaml")]
    done = subprocess.run(
        [sys.executable, "tools/convert", *command, "-o", str(tmp_path), "--replay", *option.split()],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0 and not list(tmp_path.iterdir())
    assert BAD[option] in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_spare_is_what_the_budget_leaves(tmp_path: Path) -> None:
    command = [str(EXAMPLE / "model.pt"), "--classes", "10", "--scheme", str(EXAMPLE / "scheme.yaml")]
    run(
        ["python", "tools/convert", *command, "--replay", "spare", "--budget-sram", "64", "-o", str(tmp_path)]
    )
    document = json.loads((tmp_path / "plan.json").read_text())
    assert (
        document["replay"]["all_in_sram"]
        == FIRMWARE_SRAM + sum(document["sram"].values()) + document["replay"]["bytes"]
    )
    room = 64 * 1024 - document["replay"]["all_in_sram"] - STACK_RESERVE
    assert 0 <= room < document["replay"]["record_bytes"] + 4


UNASKED = {
    "": True,
    "--replay off": False,
    "--imprint off": False,  # no session would begin with a look, and rehearse
    "--budget-sram 32": False,
    "--board native": False,
    "--fleet 0.1": False,
}


@pytest.mark.parametrize("words", UNASKED)
def test_a_buffer_that_nobody_asked_for_takes_what_is_left(words: str, tmp_path: Path) -> None:
    """It leaves something to the application."""
    command = [str(EXAMPLE / "model.pt"), "--classes", "10", "--scheme", str(EXAMPLE / "scheme.yaml")]
    said = run(["python", "tools/convert", *command, *words.split(), "-o", str(tmp_path)])
    document = json.loads((tmp_path / "plan.json").read_text())
    assert ("\nreplay  " in said) == ("replay" in document) == UNASKED[words]
    if UNASKED[words]:
        left = 320 * 1024 - document["replay"]["all_in_sram"] - STACK_RESERVE - SPARED
        assert 0 <= left < document["replay"]["record_bytes"] + 4
        assert document["replay"]["records"] >= 100


def test_replay_where_there_is_no_buffer_is_refused(example: Built, images: tuple[Dataset, Dataset]) -> None:
    with Device(ProgramPort(example.program)) as device, pytest.raises(Error, match="no replay buffer"):
        device.replay(1)
    plan = load_blueprint(example.folder)
    with pytest.raises(Error, match="no replay buffer"):
        buffer_size(plan, None, True)
    with pytest.raises(Error, match="fewer than the 10 classes"):
        buffer_size(plan, 9, False)
    assert buffer_size(plan, None, False) == 0 and buffer_size(plan, 20, True) == 20


def test_classes_come_one_after_the_other(images: tuple[Dataset, Dataset]) -> None:
    labels = [sample.label for _, sample in ordered(images[0], SETTINGS)]
    assert len(labels) == 80 and len(list(groupby(labels))) == 10
    others = [sample.label for _, sample in ordered(images[0], replace(SETTINGS, seed=8))]
    assert others != labels and sorted(others) == sorted(labels)
    shuffled = ordered(images[0], replace(SETTINGS, order="shuffled"))
    assert len(list(groupby(sample.label for _, sample in shuffled))) > 40


def test_codes_are_as_fine_as_the_budget_allows() -> None:
    """Values stay as they are where they fit; else as few as need be share a byte."""
    graph = recorded(0)
    wanted = Request(records=20, parts=PARTS)
    for part in PARTS:
        room = buffer_bytes(graph, 20, part)
        assert wanted.part(graph, room) == min(p for p in PARTS if buffer_bytes(graph, 20, p) <= room)
        assert most_records(graph, room, part) == 20 == wanted.size(graph, room, part)
    assert wanted.part(graph, 10) == PARTS[-1]
    assert most_records(graph, 1 << 30) == RECORDS_MAX == 2**16 - 1  # the firmware counts in 16 bits
    assert wanted.part(graph, None) == WHOLE
    ten_each = Request(parts=PARTS)
    room = buffer_bytes(graph, PER_CLASS * classes(graph), 3) + STACK_RESERVE
    assert ten_each.part(graph, room) == 3
    assert ten_each.part(graph, room - 4) == 4
    assert replace(ten_each, bytes=room - STACK_RESERVE).part(graph, None) == 3


def test_books_are_learned_from_the_images() -> None:
    """What a record gives back is nearer with finer codes, and with books of images of the same kind."""
    graph, quantized = recorded(0), residual_network()
    rng = np.random.default_rng(0)
    shape = quantized.tensors[quantized.input.tensor].shape
    bright, dark = (rng.integers(low, low + 90, (40, *shape)).astype(np.uint8) for low in (160, 0))
    held = recordings(graph, bright[:20])

    def error(images: np.ndarray, part: int) -> float:
        codes = coded(graph, images, part).codes
        total = 0.0
        for tensor, values in held.items():
            code = codes[tensor]
            rows = values.reshape(-1, code.row)
            back = decoded(encoded(rows, code.books, part), code.books)
            total += float(((rows.astype(int) - back) ** 2).sum())
        return total

    assert 0 < error(bright[20:], 2) < error(bright[20:], 6)
    assert error(bright[20:], 4) < 0.5 * error(dark, 4)
    again, before = (coded(graph, dark, 3).codes for _ in range(2))
    for tensor, code in again.items():
        assert all(map(np.array_equal, code.books, before[tensor].books))


def test_codes_without_images_are_refused() -> None:
    compiled = planned(recorded(0), Scheme("test"), Passes())
    with pytest.raises(ConvertError, match="pass --calibration with some typical ones"):
        with_buffer(compiled, Request(records=8, parts=(4,)), None)
