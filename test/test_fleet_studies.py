"""The studies of fleets in small: every arm of one, speakers and their words, many boards in one process."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Built
from PIL import Image

from lab.fleet import cli, speakers
from lab.fleet import study as study_module
from lab.fleet.cases import ARMS, Case, Pace, Speakers
from lab.fleet.digits import Even
from lab.fleet.leakage import DEFENCES
from lab.fleet.study import LONELY, Scene, federated, float_units, in_float, largest, lonely, study, together
from lab.tasks.spoken import Recording
from microtrain.device.session import Settings
from microtrain.fleet.private import Private
from microtrain.samples.augment import Augmentation
from microtrain.samples.source import Dataset, Sample, scan
from microtrain.simulate.blueprint import load_blueprint
from microtrain.simulate.machine import library
from microtrain.simulate.records import Task
from microtrain.simulate.rules import FLOAT
from microtrain.simulate.side_by_side import Group

STEPS, ROUNDS = 5, 2


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bright squares: each class has its row."""
    folder, draws = tmp_path_factory.mktemp("squares"), np.random.default_rng(2)
    for label in range(10):
        (folder / str(label)).mkdir()
        for n in range(2):
            pixels = draws.integers(0, 60, (32, 32)).astype(np.uint8)
            pixels[3 * label : 3 * label + 5, 8 * n : 8 * n + 9] = 240
            Image.fromarray(pixels).save(folder / str(label) / f"{n}.png")
    return folder


@pytest.fixture(scope="module")
def scene(example: Built, images: Path, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Two boards with half of the squares each, one image of each kind."""
    torch.set_num_threads(1)
    all_, work = scan(images, 10), tmp_path_factory.mktemp("study")
    parts = {f"b{n}": Dataset(all_.classes, all_.samples[n::2]) for n in range(2)}
    plan = load_blueprint(example.folder)
    task = Task(plan, library(plan, work), together(parts), all_, Augmentation(), 1, None)
    return Scene(Even(rounds=ROUNDS, steps=STEPS, share=100_000), task, parts, work, parts)


def test_a_study_has_every_arm(scene: Scene) -> None:
    found: dict[str, object] = {}
    study(scene, ARMS, found.update, lambda text: None)
    assert set(found) == {"samples", *ARMS} and found["samples"] == [10, 10]
    full, dgc = found["full"], found["dgc"]
    assert isinstance(full, dict) and isinstance(dgc, dict)
    assert len(full["accuracy"]) == len(full["bytes"]) == ROUNDS and set(full["own"]) == {"b0", "b1"}
    assert full["sha256"] != dgc["sha256"] and max(dgc["bytes"]) <= found["sizes"]["full weights"] / 10  # type: ignore[index]
    assert 0 < max(dgc["bytes"]) < min(full["bytes"])
    alone, floats = found["alone"], found["float"]
    assert [row["board"] for row in alone] == ["b0", "b1"] and all(0 <= row["own"] <= 1 for row in alone)  # type: ignore[attr-defined]
    assert isinstance(floats, list) and len(floats) == ROUNDS and isinstance(found["pooled"], float)


def test_float_boards_take_the_steps_of_devices(scene: Scene) -> None:
    """The same images in the same order: what a member learns from in a round."""
    first, again = scene.order(1, "b0"), scene.order(1, "b0")
    assert len(first) == STEPS and first == again
    assert set(first) <= set(scene.parts["b0"].samples) and first != scene.order(2, "b0")


def test_the_largest_changes_of_each_board_are_sent() -> None:
    changes = [torch.tensor([[1.0, -4.0], [0.0, 2.0]]), torch.tensor([[[3.0]], [[-1.0]]])]
    ones = [torch.ones(1), torch.ones(1)]
    assert [one.flatten().tolist() for one in largest(changes, ones, 0.4)] == [[0, -4, 0, 2], [0, 0]]
    worth = [torch.tensor([[1.0, 0.1]]), torch.ones(1, 1, 1)]
    assert [one.flatten().tolist() for one in largest(changes, worth, 0.4)] == [[0, 0, 0, 0], [3, -1]]
    assert all((a == b).all() for a, b in zip(largest(changes, ones, 1.0), changes, strict=True))


def test_a_float_parameter_is_worth_its_scale(scene: Scene) -> None:
    net = Group(replace(scene.task, arithmetic="float"), [Settings()], FLOAT, lambda logs: None).net
    units = dict(zip(net.parameters, float_units(net), strict=True))
    for (layer, kind), unit in units.items():
        parameter, scale = net.parameters[layer, kind], net.constants[layer].scales.get(kind)
        assert torch.broadcast_shapes(unit.shape, parameter.shape) == parameter.shape
        assert (
            (unit == 1).all()
            if scale is None
            else torch.equal(unit.flatten()[scale < 1e9], scale[scale < 1e9])
        )
    assert {kind for _, kind in units} >= {"weight", "bias"}


def test_what_is_not_sent_is_held_back(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Boards that learn nothing in their second round send what they held back in the first."""
    calls: list[tuple[list[torch.Tensor], list[torch.Tensor]]] = []
    learn = study_module.learn_round

    def kept(changes: list[torch.Tensor], units: list[torch.Tensor], part: float) -> list[torch.Tensor]:
        calls.append((changes, largest(changes, units, part)))
        return calls[-1][1]

    monkeypatch.setattr(study_module, "largest", kept)
    monkeypatch.setattr(study_module, "learn_round", lambda *given: learn(*given) if given[2] == 1 else None)
    assert len(in_float(scene, lambda line: None, 0.05)) == ROUNDS
    (first, sent), (second, _) = calls
    assert any(one.any() for one in first) and all(map(torch.equal, second, map(torch.sub, first, sent)))


def test_every_defence_has_its_fleet(scene: Scene) -> None:
    """A fleet in float, compressed and blurred; the blurred one does not learn what the others do."""
    found = {one.name: one.learn(scene) for one in DEFENCES}
    assert all(0 <= accuracy <= 1 for accuracy in found.values())
    loud, again = (federated(scene, 0, 0, lambda line: None, Private(1e-3, 1e-3)) for _ in range(2))
    plain = federated(scene, 0, 0, lambda line: None)
    assert loud["sha256"] == again["sha256"]  # a measurement repeats
    assert loud["sha256"] != plain["sha256"] == federated(scene, 0, 0, lambda line: None)["sha256"]


def test_a_rate_falls_over_the_rounds() -> None:
    assert [round(Pace(rounds=4).factor(n), 3) for n in (1, 3, 4)] == [1.0, 0.5, 0.146]
    assert Even(rounds=4).factor(4) == 1.0


def test_of_many_boards_some_are_asked_what_they_learn_alone(scene: Scene) -> None:
    few = lonely(scene)
    assert few == ["b0", "b1"]
    crowd = Scene.__new__(Scene)
    crowd.parts = {f"b{n}": Dataset(("a",), (Sample(Path("x"), 0),) * (n + 1)) for n in range(100)}
    asked = lonely(crowd)
    assert len(set(asked)) == LONELY and asked[0] == "b5" and asked[-1] == "b95"


def test_speakers_are_divided_into_what_is_learned_and_what_is_tested() -> None:
    known = [
        Recording(Path(f"w{word}_{who}_{n}.wav"), word, who, n)
        for who in ("ann", "bob")
        for word in range(3)
        for n in range(8)
    ]
    learned, tested = speakers.divided(known, Speakers(samples=5, tests=2))
    assert list(learned) == ["ann", "bob"] and learned["ann"].classes == ("w0", "w1", "w2")
    for name in learned:
        own, others = set(learned[name].samples), set(tested[name].samples)
        assert len(own) == 15 and len(others) == 6 and not own & others
        assert all(
            f"_{name}_" in one.path.name and one.path.name[1] == str(one.label) for one in own | others
        )
    other = speakers.divided(known, Speakers(samples=5, tests=2, seed=1))[0]
    assert set(other["ann"].samples) != set(learned["ann"].samples)


def test_made_up_words_differ_and_are_nobodys() -> None:
    given, rows = speakers.made_up(1, 2)
    assert len({one.path.name for one in given}) == speakers.TEXTS == rows.shape[0]
    assert {one.speaker for one in given} == {"nobody"} and rows.shape[1:] == (2, 49, 40)
    assert rows.std(axis=(1, 2, 3)).min() > 5


def test_cases_say_how_they_differ() -> None:
    assert Case(boards=100).as_json() == Case().as_json() | {"boards": 100}
    assert all(part in cli.main.commands for part in ("speakers", "cifar", "simulation", "draw"))


def test_many_boards_in_one_process_are_counted(example: Built, images: Path, tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="flwr is 300 MB: `pip install 'microtrain[fleet]'`")
    from lab.fleet import simulation

    crowd = simulation.Crowd(example.folder, images, tmp_path, 3)
    with simulation.Memory() as memory:
        events = simulation.here(crowd, 2)
    assert len(events) == 2 and all(len(event.boards) == 3 for event in events)
    assert memory.most > 10 << 20 and memory.processes >= 1
    assert events[-1].sha256 == simulation.here(crowd, 2)[-1].sha256 != events[0].sha256
    assert os.getpid() in simulation.family(os.getpid()) and simulation.held_by(2**30) == 0


def test_without_ray_the_simulation_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    monkeypatch.setattr("microtrain.base.extras.find_spec", lambda name: None)
    done = CliRunner().invoke(cli.main, ["simulation"])
    assert done.exit_code == 1
    assert "needs ray, not installed here: `pip install 'microtrain[simulation]'`" in done.output
