"""What the defaults are compared with, and that the comparison runs on anybody's folder."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from conftest import EXAMPLE
from PIL import Image
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import RidgeCV

from lab.golden.data import VARIABLE, find
from lab.recipe import cli, closed, known, page, parts, pc, sets, table
from lab.recipe import run as running
from lab.recipe.cases import ARMS, CHOSEN, CLOSED, GATES, PC, PROTOCOLS, SCHEMED, SCHEMES, Case, cases
from microtrain.base.errors import Error
from microtrain.samples.source import Dataset, Sample

KEYS = {"dataset", "network", "scheme", "protocol", "arm", "seed", "accuracy", "sram", "command"}
LEARNED = "trained_sha256"  # of sessions on a device


@pytest.fixture(scope="module")
def features() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    return rng.normal(0, 1, (3, 8))[labels] * 2 + rng.normal(0, 1, (90, 8)), labels


def test_heads_in_closed_form_are_scikit_learns(features: tuple[np.ndarray, np.ndarray]) -> None:
    x, labels = features
    w, b = closed.ridge(x, labels, 3)
    penalties = np.linalg.svd(x - x.mean(0), compute_uv=False)[0] ** 2 * np.logspace(-5, 1, 19)
    known = RidgeCV(penalties).fit(x, np.eye(3)[labels])
    np.testing.assert_allclose(x @ w.T + b, known.predict(x), atol=1e-8)
    w, b = closed.lda(x, labels, 3)
    plain = LinearDiscriminantAnalysis(solver="lsqr", priors=[1 / 3] * 3).fit(x, labels)
    assert ((x @ w.T + b).argmax(1) == plain.predict(x)).mean() > 0.97
    w, b = closed.ncm(x, labels, 3)
    near = ((x[:, None] - closed.means(x, labels, 3)) ** 2).sum(2).argmin(1)
    np.testing.assert_array_equal((x @ w.T + b).argmax(1), near)


def test_adamw_is_pytorchs() -> None:
    key = ("layer", "weight")
    mine, theirs = torch.zeros(5), torch.zeros(5, requires_grad=True)
    own = pc.AdamW({key: mine}, {key: torch.ones(5)})
    other = torch.optim.AdamW([theirs], lr=0.01, weight_decay=pc.DECAY)
    for gradient in torch.randn(20, 5, generator=torch.Generator().manual_seed(0)):
        own.step({key: gradient}, 0.01)
        theirs.grad = gradient.clone()
        other.step()
    torch.testing.assert_close(mine, theirs.detach())
    half = torch.zeros(5)
    pc.AdamW({key: half}, {key: torch.full((5,), 2.0)}).step({key: torch.ones(5)}, 0.01)
    torch.testing.assert_close(half, torch.full((5,), -0.005))  # in units that are worth two


def test_shots_are_drawn_class_by_class() -> None:
    samples = tuple(Sample(Path(f"{k}/{n}"), k) for k in range(2) for n in range(9))
    some = running.few(Dataset(("a", "b"), samples), 4, 0)
    assert [s.label for s in some.samples] == [0] * 4 + [1] * 4
    assert some != running.few(Dataset(("a", "b"), samples), 4, 1)
    assert len(running.few(Dataset(("a", "b"), samples), 40, 0).samples) == 18


def test_every_protocol_has_the_default_and_what_it_was() -> None:
    for protocol in PROTOCOLS:
        assert "default" in ARMS[protocol] and {"before", "cosine"} & set(ARMS[protocol])
    assert Case("d", "n", "six-passes", "default", 3).settings(400, 0).epochs == 6
    assert Case("d", "n", "shots-5", "six-passes-before", 3).settings(50, 0).epochs == 6
    assert Case("d", "n", "in-order", "default", 3).settings(400, 100).order == "classes"
    default = Case("d", "n", "one-look", "default", 3).settings(400, 0)
    assert (default.imprint, default.schedule, default.rate, default.seed) == (True, "cosine", 1.0, 3)
    large = Case("d", "n", "one-look", "default", 3).settings(400, 100)
    assert (large.epochs, large.schedule, large.rate, large.replay) == (1, "constant", 2.0, 1)
    assert large.rehearse == 600
    few = Case("d", "n", "shots-5", "default", 3).settings(50, 100)
    assert (few.epochs, few.views, few.rehearse, few.rate) == (0, 2, 800, 1.5)
    arms = [arm for arms in ARMS.values() for arm in arms]
    for networks, missing in (("cd", sum(arm in SCHEMED for arm in arms)), (tuple(SCHEMES)[:2], 0)):
        found = {case.key for case in cases("ab", networks, tuple(PROTOCOLS), (0, 1))}
        assert len(found) == 2 * 2 * 2 * (len(arms) - missing)


def test_arms_that_differ_in_their_scheme_share_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "WORK", tmp_path)
    default, found, unsearched = options_of("one-look", "default", *SCHEMED, folder=tmp_path)
    assert [words[:2] for words in (default, found)] == [
        ["--scheme", "mcunet-49kb"],
        ["--scheme", "mcunet-49kb-clothing10"],
    ]
    assert default[2:] == found[2:] and default[4:] == unsearched and "--budget-sram" in unsearched
    assert Case("d", "net", "one-look", "default", 0).scheme == CHOSEN


def options_of(protocol: str, *arms: str, folder: Path) -> list[list[str]]:
    """What conversion is asked for each of the arms."""
    training = sets.parted(photos(folder / "photos"))[0]
    cases = (Case("photos", "mcunet-5fps", protocol, arm, 0) for arm in arms)
    return [running.options(case, Path("x.pkl"), training) for case in cases]


def test_exact_records_are_the_default_without_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "WORK", tmp_path)
    coded, exact = options_of("shots-10", "default", "exact", folder=tmp_path)
    assert exact[: len(coded) - 2] + exact[-2:] == coded and "--replay-code" in exact
    assert Case("d", "n", "shots-10", "exact", 0).settings(100, 92).rehearse == 6 * 92


def test_a_gate_is_the_default_with_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "WORK", tmp_path)
    plain, gated = options_of("one-look", "default", "gate-0.3", folder=tmp_path)
    assert sorted(gated) == sorted([*plain, "--gate", "0.3"])


def test_the_table_of_gates_compares_the_same_sessions() -> None:
    """A default of another seed, or of a network without a gate, is not in it."""
    about = {"dataset": "a", "scheme": "s", "protocol": "one-look", "sram": 1, "command": ""}
    rows = [
        {**about, "network": network, "arm": arm, "seed": seed, "accuracy": accuracy, "skipped": 40.0}
        for network, arm, seed, accuracy in (
            *(("n", "default", 0, 70.0), ("n", "default", 1, 10.0), ("m", "default", 0, 20.0)),
            *(("n", "gate-0.1", 0, 71.0), ("n", "gate-0.3", 0, 69.0)),
        )
    ]
    assert table.gates(rows)[2:] == [
        "| one-look | default | 70.0 | 70.0 |",
        "| one-look | gate-0.1 | 71.0, 40 % | 71.0, 40 % |",
        "| one-look | gate-0.3 | 69.0, 40 % | 69.0, 40 % |",
    ]
    assert table.gates([row for row in rows if row["arm"] == "default"]) == []


@pytest.mark.slow
def test_it_runs_on_anybodys_folder(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere(tmp_path, monkeypatch)
    monkeypatch.setattr(running, "WORK", tmp_path / "work")
    monkeypatch.setattr(running, "TESTED", 60)
    monkeypatch.setattr(cli, "ProcessPoolExecutor", Here)
    monkeypatch.delenv("MICROTRAIN_DATA", raising=False)
    words = ["--data", str(digits), "--model", str(EXAMPLE / "model.pt"), "--seeds", "1"]
    said = CliRunner().invoke(cli.main, [*words, "--only", f"{digits.name}/model/shots-5/[dlnb]*"])
    assert said.exit_code == 0, said.output
    rows = {row["arm"]: row for row in json.loads((tmp_path / "recipe.json").read_text())}
    assert set(rows) == {"default", "look", "before", "lda", "ncm"}
    assert all(set(row) - {LEARNED} == KEYS for row in rows.values())
    assert {arm for arm, row in rows.items() if len(row.get(LEARNED, "")) == 64} == {
        "default",
        "look",
        "before",
    }
    assert min(rows[arm]["accuracy"] for arm in ("default", "look")) > 40  # of ten classes
    assert abs(rows["look"]["accuracy"] - rows["lda"]["accuracy"]) < 10
    assert "--data" in rows["look"]["command"] and rows["look"]["sram"] < 90 * 1024
    again = CliRunner().invoke(cli.main, [*words, "--only", f"{digits.name}/model/shots-5/lda/0"])
    assert "| lda |" in again.output
    again = CliRunner().invoke(cli.main, [*words, "--only", f"{digits.name}/model/shots-5/[dl]*", "--verify"])
    assert again.exit_code == 0, again.output
    tail = running.Arm(Case("digits", "model", "shots-5", "pc-tail", 0), digits, EXAMPLE / "model.pt")
    assert tail.on_a_pc(0.003) > 0.3


def elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows go into a folder of the test's own."""
    monkeypatch.setattr(known, "RESULT", folder / "recipe.json")
    monkeypatch.setattr(known, "WORK", folder / "work")


class Here:
    """A pool that works in this process."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, job: Any) -> Any:
        from concurrent.futures import Future

        future: Any = Future()
        try:
            future.set_result(job())
        except Error as error:
            future.set_exception(error)
        return future


def test_a_command_asks_for_its_seed() -> None:
    """Where it is none of those that are there by themselves."""
    jobs = list(cli.jobs_of((EXAMPLE,), EXAMPLE / "model.pt", 5))
    named = ("--data", str(EXAMPLE), "--model", str(EXAMPLE / "model.pt"))
    assert {job.words for job in jobs if job.case.seed == 2} == {named}
    assert {job.words for job in jobs if job.case.seed == 4} == {(*named, "--seeds", "5")}


def test_what_is_wrong_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MICROTRAIN_DATA", raising=False)
    said = CliRunner().invoke(cli.main, [])
    assert said.exit_code == 1 and "MICROTRAIN_DATA is not set" in said.output
    said = CliRunner().invoke(cli.main, ["--data", str(tmp_path), "--model", "x.pt", "--only", "nothing"])
    assert said.exit_code == 1 and "no case is called nothing" in said.output


def test_each_row_of_a_device_says_what_was_learned() -> None:
    """So that whoever runs it again can tell whether it is the same."""
    for row in json.loads(page.ROWS.read_text()):
        assert row["command"].startswith("python lab/recipe --only "), row
        elsewhere = row["arm"] in (*CLOSED, PC)
        assert len(row.get(LEARNED, "")) == (0 if elsewhere else 64), row["command"]


@pytest.mark.skipif(not page.ROWS.is_file(), reason="no rows were written yet: python lab/recipe --page")
def test_the_page_is_made_of_its_rows() -> None:
    rows = json.loads(page.ROWS.read_text())
    assert page.PAGE.read_text() == page.text(rows, json.loads(parts.RESULT.read_text()))
    assert all(set(row) - {"skipped", LEARNED} == KEYS for row in rows)
    assert all(("skipped" in row) == (row["arm"] in GATES) for row in rows)
    assert "nan" not in page.PAGE.read_text()  # an arm of some sets alone


def some_row(case: Case, *_: object) -> dict[str, Any]:
    """What a session could give; no session of seed 1 ends well."""
    if case.seed == 1:
        raise Error("the head does not fit.")
    return {key: getattr(case, key) for key in known.NAMES} | {"accuracy": 50.0, "sram": 1, "command": "x"}


def photos(folder: Path, count: int = 10) -> Path:
    for name in "ab":
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            Image.new("RGB", (4, 4), (number, 0, 0)).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture
def wanting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options for a folder of few images and a network, whose sessions are made up."""
    elsewhere(tmp_path, monkeypatch)
    monkeypatch.setattr(cli, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(cli, "row", some_row)
    model = tmp_path / "net.pt2"
    model.write_bytes(b"a network")
    return ["--data", str(photos(tmp_path / "photos")), "--model", str(model)]


def test_a_session_that_fails_takes_no_other_with_it(wanting: list[str]) -> None:
    said = CliRunner().invoke(cli.main, [*wanting, "--only", "*/shots-10/l*"])
    assert said.exit_code == 1
    assert "2 of 6 sessions failed, and the others are kept:" in said.output
    assert "photos/net/shots-10/lda/1 and 1 more: the head does not fit." in said.output
    assert {row["seed"] for row in known.rows().values()} == {0, 2} and "| lda | 50.0 |" in said.output


def test_where_nothing_ends_well_no_table_is_printed(wanting: list[str]) -> None:
    said = CliRunner().invoke(cli.main, [*wanting, "--only", "*/shots-10/lda/1"])
    assert said.exit_code == 1 and "no session ended well:" in said.output and "|" not in said.output


def test_what_ends_otherwise_when_it_is_run_again_is_an_error(wanting: list[str]) -> None:
    words = [*wanting, "--seeds", "1", "--only", "*/shots-10/ncm/0"]
    assert CliRunner().invoke(cli.main, words).exit_code == 0
    assert CliRunner().invoke(cli.main, [*words, "--verify"]).exit_code == 0
    (row,) = known.rows().values()
    known.keep(row | {"accuracy": 50.25})
    assert CliRunner().invoke(cli.main, words).exit_code == 0
    said = CliRunner().invoke(cli.main, [*words, "--verify"])
    assert said.exit_code == 1 and "accuracy was 50.25, and is 50.0 now" in said.output
    assert [row["accuracy"] for row in known.rows().values()] == [50.25], "what it was is kept"


def test_one_class_is_too_few(wanting: list[str], tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "photos/b")
    said = CliRunner().invoke(cli.main, wanting)
    assert said.exit_code == 1 and "has one class, a: there is nothing to tell apart" in said.output


def test_what_a_set_has_is_said_first(wanting: list[str]) -> None:
    said = CliRunner().invoke(cli.main, [*wanting, "--seeds", "1", "--only", "*/shots-5/lda/*"])
    assert "photos: 2 classes, 16 images to learn from, 4 of 4 others to judge by" in said.output
    assert "fewer" not in said.output
    said = CliRunner().invoke(cli.main, [*wanting, "--seeds", "1", "--only", "*/shots-10/lda/*"])
    assert "photos: fewer than 10 to learn from in a (8), b (8); all of them are taken" in said.output


def test_rows_of_other_images_or_another_network_are_not_taken(wanting: list[str], tmp_path: Path) -> None:
    words = [*wanting, "--seeds", "1", "--only", "*/shots-5/lda/*"]
    assert CliRunner().invoke(cli.main, words).exit_code == 0
    photos(tmp_path / "photos", 11)
    said = CliRunner().invoke(cli.main, words)
    assert said.exit_code == 1 and "has other files than the dataset photos of which" in said.output
    words[1] = str(photos(tmp_path / "new"))
    Path(words[3]).write_bytes(b"another")
    said = CliRunner().invoke(cli.main, words)
    assert said.exit_code == 1 and "has other content than the network net of which" in said.output
    two = ["--data", str(photos(tmp_path / "b" / "photos")), *wanting]
    assert "have the same name" in CliRunner().invoke(cli.main, two).output


def test_a_row_is_put_beside_those_of_other_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere(tmp_path, monkeypatch)
    for seed in (0, 2, 0):
        known.keep(some_row(Case("d", "n", "shots-5", "lda", seed)))
    assert list(known.rows()) == ["d/n/shots-5/lda/0", "d/n/shots-5/lda/2"]


def test_as_many_classes_as_a_list_names(tmp_path: Path) -> None:
    photos(tmp_path / "set")
    (tmp_path / "set/other").mkdir()
    for name, numbers in (("train", range(8)), ("val", range(8, 10))):
        lines = [f"{label}/{number}.png" for label in "ab" for number in numbers]
        (tmp_path / f"set/{name}.txt").write_text("\n".join(lines))
    training, testing = sets.parted(tmp_path / "set")
    assert training.classes == ("a", "b") and len(testing.samples) == 4


def test_public_sets_have_tables_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what somebody has at home has none."""
    monkeypatch.setattr(page, "ROWS", tmp_path / "rows.json")
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    named = ("cifar10", *sets.FURTHER, "home")
    page.write([some_row(Case(name, "mcunet-5fps", "shots-5", "lda", 0)) for name in named])
    before, _, behind = page.PAGE.read_text().partition("## Sets that nothing was chosen on")
    assert "| cifar10 | mean |" in before and "signs" not in before
    assert "| groceries19 | signs | mean |" in behind and "home" not in behind
    assert all(source.address in behind for source in sets.FURTHER.values())
    page.write([some_row(Case("cifar10", "mcunet-5fps", "shots-5", "lda", 2))])
    assert [(row["dataset"], row["seed"]) for row in json.loads(page.ROWS.read_text())][:2] == [
        ("cifar10", 0),
        ("cifar10", 2),
    ]


def test_a_part_has_a_column_of_what_it_has() -> None:
    rows = [{"name": "training", "sram": 75000}, {"name": "codes", "sram": 300000, "records": 400}]
    found = parts.table({"parts": rows})
    assert found[0] == "|  | training alone | and records as codes |"
    assert "| SRAM all in, bytes | 75,000 | 300,000 |" in found and "| records |  | 400 |" in found


@pytest.mark.slow
@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no folder")
def test_the_page_has_what_a_part_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "WORK", tmp_path)
    known_then = next(row for row in json.loads(parts.RESULT.read_text())["parts"] if row["name"] == "look")
    now = parts.numbers(parts.PARTS[1], find())
    assert now == {
        name: pytest.approx(value, rel=0.01) if name != "name" else value
        for name, value in known_then.items()
    }
    assert now["sram"] <= 90 * 1024 and now["add"] < now["inference"] / 100


def test_a_set_that_was_not_measured_makes_no_mean() -> None:
    rows = [some_row(Case(name, "n", "shots-5", arm, 0)) for name, arm in (("a", "lda"), ("b", "ncm"))]
    assert table.lines(rows, "shots-5")[2:] == ["| lda | 50.0 |  |  | 1 |", "| ncm |  | 50.0 |  | 1 |"]


def test_a_seed_that_not_every_network_has_is_in_no_mean() -> None:
    rows = [
        {"dataset": name, "network": n, "protocol": "shots-5", "arm": "lda", "seed": seed, "accuracy": value}
        for name, n, seed, value in (
            ("a", "x", 0, 70.0),
            ("a", "y", 0, 80.0),
            ("a", "x", 1, 10.0),
            ("b", "x", 0, 60.0),
            ("b", "x", 1, 50.0),
        )
    ]
    assert table.lines(rows, "shots-5")[2:] == ["| lda | 75.0 | 55.0 | 65.0 | 1 to 2 |"]


def test_sets_together_are_of_arms_that_all_of_them_have() -> None:
    groups = {"first": ("a", "b"), "all": ("a", "b", "c")}
    rows = [
        {"dataset": name, "network": "x", "protocol": "shots-5", "arm": arm, "seed": 0, "accuracy": value}
        for arm, name, value in (
            *(("lda", name, value) for name, value in (("a", 50.0), ("b", 60.0), ("c", 85.0))),
            *(("ncm", name, 90.0) for name in "ab"),
        )
    ]
    assert table.together(rows, groups)[2:] == ["| shots-5 | lda | 55.0 | 65.0 | 1 |"]
    assert table.together(rows[:2], groups) == []


def test_a_table_has_a_line_for_each_arm() -> None:
    rows = [
        {"dataset": "a", "network": n, "protocol": "one-look", "arm": arm, "seed": 0, "accuracy": value}
        for n, arm, value in (("x", "default", 70.0), ("y", "default", 80.0), ("x", "before", 50.0))
    ]
    assert table.lines(rows, "one-look")[2:] == [
        "| default | 75.0 | 75.0 | 1 |",
        "| before | 50.0 | 50.0 | 1 |",
    ]
    assert table.lines(rows, "in-order") == []
