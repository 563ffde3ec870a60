"""The studies of lab/fleet in small: that what they measure is there, and that they notice when it is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from conftest import Built
from PIL import Image

from lab.fleet import cases, cli, records, troubles
from lab.fleet.leakage import NOISE, Noise, Victim, Way, attack, largest, noised, picture, psnr, real, ssim
from microtrain.base.errors import Error
from microtrain.base.plan import read_plan
from microtrain.fleet.board import Host, HostBoard
from microtrain.samples.source import Dataset, scan


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Bright squares somewhere: each class has its row."""
    folder, draws = tmp_path_factory.mktemp("images"), np.random.default_rng(2)
    for label in range(10):
        (folder / str(label)).mkdir()
        for n in range(2):
            pixels = draws.integers(0, 60, (32, 32)).astype(np.uint8)
            pixels[3 * label : 3 * label + 5, 8 * n : 8 * n + 9] = 240
            Image.fromarray(pixels).save(folder / str(label) / f"{n}.png")
    return scan(folder, 10)


@pytest.fixture(scope="module")
def victim(example: Built, images: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Victim:
    torch.set_num_threads(1)
    return Victim(example.folder, tmp_path_factory.mktemp("library"), images)


def one_of(images: Dataset) -> Dataset:
    return Dataset(images.classes, images.samples[6:7])


def test_the_attackers_gradient_is_the_boards(victim: Victim, images: Dataset) -> None:
    """The mean of many rounded steps points where the attacker's own gradient does, tensor by tensor."""
    sample = one_of(images)
    image = torch.tensor(victim.stored(sample))
    gradient = victim.gradients(image, sample.samples[0].label).detach().numpy()
    sent = real(victim, victim.sent(sample))
    for part in victim.layout.parts:
        if part.tensor.kind in ("head_weight", "head_bias", "bias") and gradient[part.start : part.end].any():
            a, b = gradient[part.start : part.end], sent[part.start : part.end]
            cosine = float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b) + 1e-12))
            assert cosine > (0.99 if part.tensor.kind != "bias" else 0.0), part.name


def test_an_attack_comes_closer_than_grey(victim: Victim, images: Dataset) -> None:
    sample = one_of(images)
    truth = victim.stored(sample) / 127.5
    gradient = victim.gradients(torch.tensor(victim.stored(sample)), sample.samples[0].label).detach().numpy()
    found = attack(victim, gradient, sample.samples[0].label, Way("inverting", 25))
    again = attack(victim, gradient, sample.samples[0].label, Way("inverting", 25))
    assert found.shape == truth.shape and np.abs(found).max() <= 1 and (found == again).all()
    label = sample.samples[0].label
    own, grey = (
        float(torch.tensor(gradient).sub(victim.gradients(torch.tensor(x * 127.5), label).detach()).norm())
        for x in (found, np.zeros_like(truth))
    )
    assert own < grey


def test_similarity_is_that_of_the_paper() -> None:
    draws = np.random.default_rng(0)
    image = draws.uniform(-1, 1, (32, 32, 1))
    assert ssim(image, image) == pytest.approx(1.0) and psnr(image, image) > 100
    assert abs(ssim(image, draws.uniform(-1, 1, (32, 32, 1)))) < 0.1
    assert ssim(image, -image) < -0.7
    assert ssim(image, image + 0.05 * draws.normal(size=image.shape)) > 0.9
    assert psnr(np.zeros((8, 8)), np.full((8, 8), 0.2)) == pytest.approx(20.0)


def test_noise_is_as_wide_as_its_epsilon_asks() -> None:
    update = np.full(10_000, 0.03)  # of length 3
    quiet = noised(update, Noise(1.0, 1e9), 1)
    assert np.linalg.norm(quiet) == pytest.approx(1.0, abs=1e-3)
    loud = noised(update, NOISE, 1) - update / 3
    assert loud.std() == pytest.approx(NOISE.deviation, rel=0.03)
    assert Noise(1.0, 10.0).deviation == pytest.approx(0.4845, abs=1e-3)
    assert np.count_nonzero(largest(np.arange(-50.0, 50.0), 0.1)) == 10


def test_a_picture_shows_all_of_them(tmp_path: Path) -> None:
    image = np.zeros((8, 8, 1), np.float32)
    picture([{"image": image}, {"image": image + 1}], image - 1, tmp_path / "a/leak.png")
    shown = np.asarray(Image.open(tmp_path / "a/leak.png"))
    assert shown.shape == (40, 120) and shown[20, 20] == 0 and shown[20, 100] == 255


def test_boards_with_a_hard_life_learn_what_calm_ones_do(
    example: Built, images: Dataset, tmp_path: Path
) -> None:
    plan = read_plan(example.folder / "plan.json")
    parts = [Dataset(images.classes, images.samples[n::2]) for n in range(2)]
    report = troubles.survive(plan, example.elf, tmp_path, parts, 3, 4, lambda number: None)
    assert report.equal and report.stuck == 0 and report.rounds == 3


def test_another_fate_is_another_fleet_and_a_stuck_round_is_noticed(
    example: Built, images: Dataset, tmp_path: Path
) -> None:
    plan = read_plan(example.folder / "plan.json")
    host, parts = Host(plan, tmp_path), [images, images]
    board = HostBoard(host, "b")

    def shared(fate: troubles.Fate, boards: list[HostBoard]) -> tuple[str, int]:
        work = troubles.Work(troubles.NAME, limit=1)
        fleet, stuck, _ = troubles.rounds_of(plan, boards, parts, fate, work, lambda number: None)
        return fleet.sha256(), stuck

    def broken(*given: object) -> None:
        raise troubles.FleetError("the board is gone.")

    calm = troubles.Fate(np.zeros((2, 2), bool), np.zeros((2, 2), bool))
    lost = troubles.Fate(np.zeros((2, 2), bool), np.array([[True, False], [False, False]]))
    assert shared(calm, [board, board]) != shared(lost, [board, board])
    gone = HostBoard(host, "gone")
    gone.learn = broken  # type: ignore[assignment, method-assign]
    assert shared(calm, [board, gone])[1] == 2


def test_parts_join_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "OUTPUT", tmp_path / "fleet.json")
    records.add({"boards": 4, "rounds": 1})
    records.add({"rounds": 5})
    case = {"boards": 10, "alpha": 0.1}
    records.keeper("cifar10", case)({"full": 1})
    records.keeper("cifar10", {"boards": 100})({"full": 2})
    records.keeper("cifar10", case)({"dgc": 3})
    rows = [{"case": {"boards": 100}, "full": 2}, {"case": case, "full": 1, "dgc": 3}]
    assert records.read() == {"boards": 4, "rounds": 5, "cifar10": rows}
    monkeypatch.delenv("MICROTRAIN_DATA", raising=False)
    done = CliRunner().invoke(cli.main, ["cifar"])
    assert done.exit_code == 1 and "MICROTRAIN_DATA names no folder" in done.output


WHOLE = {
    "boards": 4,
    "rounds": 5,
    "accuracy_global": 0.9,
    "accuracy_local": [0.5, 0.6, 0.4, 0.5],
    "accuracy_float": 0.9,
    "bytes_per_round": {"full": 33768, "dgc": 337, "dgc 10 %": 3370},
    "sha256_boards": "a" * 64,
    "sha256_host": "a" * 64,
    "ssim": {"float, all layers": 0.5},
    "dropouts_survived": 53,
    "stuck_rounds": 0,
}


def test_what_make_fleet_writes_has_every_key() -> None:
    assert records.checked(WHOLE | {"cifar10": []}).stuck_rounds == 0
    for key in WHOLE:
        with pytest.raises(Error, match=f"does not say all of fleets: .*{key}"):
            records.checked({name: value for name, value in WHOLE.items() if name != key})
    with pytest.raises(Error, match="does not say the bytes of dgc updates"):
        records.checked(WHOLE | {"bytes_per_round": {"full": 1}})


def test_cases_become_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "OUTPUT", tmp_path / "fleet.json")
    monkeypatch.setattr(cli, "OUTPUT", tmp_path / "fleet.json")
    monkeypatch.setattr(cli, "WORK", tmp_path)
    none = CliRunner().invoke(cli.main, ["draw"])
    assert none.exit_code == 1 and "has no rows of CIFAR-10" in none.output
    curve = {"accuracy": [0.5, 0.7], "bytes": [1000, 1000]}
    for boards in (10, 100):
        case = cases.Case(boards=boards).as_json()
        records.keeper("cifar10", case)({"full": curve, "dgc": curve, "float": [0.5, 0.7]})
    records.keeper("cifar10", cases.Case(seed=3).as_json())({"full": curve})
    done = CliRunner().invoke(cli.main, ["draw"])
    assert done.exit_code == 0, done.output
    picture = (tmp_path / "cifar.svg").read_text()
    assert picture.count("10 boards, Dirichlet 1<") == 1 and picture.count("100 boards, Dirichlet 1<") == 1


def test_other_weights_are_an_error(
    example: Built, images: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = read_plan(example.folder / "plan.json")
    made = iter(["a" * 64, "b" * 64])
    monkeypatch.setattr(troubles.Federation, "sha256", lambda self: next(made))
    monkeypatch.setattr(troubles.Federation, "close", lambda self: None)
    with pytest.raises(Error, match="learned other weights than calm ones"):
        troubles.survive(plan, example.elf, tmp_path, [images], 1, 1, lambda number: None)
