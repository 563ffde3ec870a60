"""`convert --gate`: a step whose loss is small ends there, in NumPy, in C, in the library and on a device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import EXAMPLE
from library import OK, Learner, shared, written
from networks import residual_network
from pio_build import host_program

from microtrain.base.plan import Origin, read_plan, text
from microtrain.convert.cli import main
from microtrain.convert.emit.code import generate
from microtrain.convert.emit.document import document
from microtrain.convert.execute.executor import Executor
from microtrain.convert.memory.replay import Request
from microtrain.convert.pipeline import Compiled, Passes, compile_graph
from microtrain.convert.reference.kernels import Sgd
from microtrain.convert.scheme import ALL, Scheme
from microtrain.device.client import Device
from microtrain.device.link import ProgramPort
from microtrain.device.session import Log, Settings, ended
from microtrain.native.model import Model, compile_model
from microtrain.native.model import Sgd as NativeSgd
from microtrain.simulate.blueprint import blueprint
from microtrain.simulate.machine import Machine, library
from microtrain.simulate.replay import Rehearsing

CLASSES, STEPS, RATE, GATE = 3, 90, 0.1, 0.7
SCHEME = Scheme("test", biases=4, weights={ALL: 0.5}, fraction_bits=4, rates=(RATE, RATE, RATE))
HELD = 6
RECORDS = Request(records=HELD)


def compiled(gate: float = GATE, passes: Passes | None = None) -> Compiled:
    return compile_graph(residual_network().replace(gate=gate), SCHEME, CLASSES, passes or Passes())


def samples() -> np.ndarray:
    """A black image, a grey one and a white one: bytes."""
    return np.stack([np.full((12, 12, 3), level, np.uint8) for level in (0, 128, 255)])


def files(made: Compiled, folder: Path) -> Path:
    """The generated model, with its plan."""
    folder.mkdir(parents=True, exist_ok=True)
    output = generate(made, "a test")
    for name, content in output.files.items():
        (folder / name).write_text(content)
    (folder / "plan.json").write_text(text(document(made, output, Origin("", "", ""), None)))
    return folder


def test_steps_below_the_gate_change_nothing(tmp_path: Path) -> None:
    """NumPy and C agree; a step changes something where, and only where, its loss is not below the gate."""
    made = compiled()
    oracle = Executor(made.graph)
    folder = files(made, tmp_path / "model")
    flags = ("-O1", "-fsanitize=undefined", "-fno-sanitize-recover")
    model = Model(folder, compile_model(folder, tmp_path, flags))
    stored = (samples().astype(int) - 128).astype(np.int8)
    below = 0
    for step in range(STEPS):
        label = step % CLASSES
        before = oracle.trainables()
        oracle.forward(stored[label])
        model.forward(stored[label], True)
        loss = oracle.backward(label, Sgd(RATE, RATE, RATE, 1, step))
        assert model.backward(label, NativeSgd(RATE, RATE, RATE, 1, step)) == loss
        assert model.trainables() == oracle.trainables()
        assert (oracle.trainables() == before) == (loss < np.float32(GATE))
        below += bool(loss < np.float32(GATE))
    assert 9 < below < STEPS - 9


def test_without_a_gate_the_code_is_as_it_was() -> None:
    plain, gated = (generate(compiled(gate), "a test") for gate in (0.0, GATE))
    assert "GATE" not in "".join(plain.files.values())
    assert "MODEL_GATE 7.0e-01f" in gated.files["model.h"]
    assert plain.model_id != gated.model_id


def test_the_library_ends_steps_too(tmp_path: Path) -> None:
    """At once as in pieces, on new images as on records; what is below the gate changes nothing."""
    made = compiled(passes=Passes(replay=RECORDS))
    written(made, "net", tmp_path / "library", tmp_path / "generated")
    assert f"#define NET_GATE {GATE:.1e}f" in (tmp_path / "library/src/net.h").read_text()
    lib = shared(tmp_path / "library")
    whole, pieces = Learner(lib, "net"), Learner(lib, "net")
    written(compiled(0.0, Passes(replay=RECORDS)), "open", tmp_path / "other", tmp_path / "plain")
    free = Learner(shared(tmp_path / "other"), "open")
    for learner in (whole, pieces, free):
        assert learner.remember(HELD) == OK
    shown, below, differs = samples(), 0, False
    for step in range(STEPS):
        label, before = step % CLASSES, whole.trainables()
        if step % 4 == 3:
            loss = whole.recall()
            assert pieces.recall_in_pieces(1, 1, 2000) == loss
            free.recall()
        else:
            loss = whole.train(shown[label], label)
            assert pieces.train_in_pieces(shown[label], label, 2000)[0] == loss
            free.train(shown[label], label)
        assert pieces.trainables() == whole.trainables()
        assert (whole.trainables() == before) == (loss < np.float32(GATE))
        differs = differs or free.trainables() != whole.trainables()
        below += bool(loss < np.float32(GATE))
    assert 9 < below < STEPS - 9 and differs


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with records, and the firmware's program of it for this machine."""
    folder = tmp_path_factory.mktemp("gate")
    made = compiled(passes=Passes(replay=RECORDS))
    model = files(replace(made, records=HELD), folder / "model")
    host_program(model, folder)
    return folder


def test_a_device_counts_what_it_left_out(remembering: Path) -> None:
    """Board and simulator: the same bits, and the same number of steps that ended."""
    plan = blueprint(read_plan(remembering / "model/plan.json"))
    assert plan.gate == GATE
    machine = Rehearsing(Machine(plan, library(plan, remembering)), plan.records)
    shown = samples()
    with Device(ProgramPort(remembering / "program")) as device:
        assert device.info.gate == GATE and device.skipped() == 0
        for learner in (device, machine):
            learner.seed(1)
            learner.replay(2)
        for step in range(STEPS):
            label = step % CLASSES
            assert device.train(shown[label], label).loss == pytest.approx(
                machine.train(look(machine, shown[label]), label).loss, abs=1e-4
            )
        device.rehearse(10)
        machine.rehearse(10)
        assert device.sha() == machine.sha()
        assert device.skipped() == machine.skipped() > 0
        device._talk.command("stats clear")
        assert device.skipped() == 0


def look(machine: Rehearsing, pixels: np.ndarray) -> np.ndarray:
    return machine._machine.look(pixels)


def test_a_session_says_what_it_left_out() -> None:
    log = Log({"gate": 0.25}, ("a", "b"), Settings())
    log.skipped = 1234
    assert ended(log) == ", 1,234 of which ended at a loss below 0.25"
    assert ended(Log({}, ("a", "b"), Settings())) == ""


def test_convert_says_the_gate_and_refuses_a_wrong_one(tmp_path: Path) -> None:
    words = [str(EXAMPLE / "model.pt"), "--classes", "10", "-o", str(tmp_path / "out"), "--gate"]
    refused = CliRunner().invoke(main, [*words, "0"])
    assert refused.exit_code == 2 and "0" in refused.output and "Traceback" not in refused.output
    said = CliRunner().invoke(main, [*words, "0.25"])
    assert said.exit_code == 0, said.output
    assert "a step ends where the loss is below 0.25" in said.output
    assert read_plan(tmp_path / "out/plan.json").gate == 0.25
