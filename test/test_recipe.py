"""What the defaults are compared with, and that the comparison runs on anybody's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from conftest import EXAMPLE, run
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import RidgeCV

from lab.recipe import cli, closed, page, pc, table
from lab.recipe import run as running
from lab.recipe.cases import ARMS, PROTOCOLS, Case, cases
from microtrain.samples.source import Dataset, Sample

KEYS = {"dataset", "network", "scheme", "protocol", "arm", "seed", "accuracy", "sram", "command"}


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
    assert len({case.key for case in cases("ab", "cd", tuple(PROTOCOLS), (0, 1))}) == 2 * 2 * 2 * sum(
        len(arms) for arms in ARMS.values()
    )


@pytest.mark.slow
def test_it_runs_on_anybodys_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = tmp_path / "digits"
    run(["python", str(EXAMPLE / "export_images.py"), str(digits)])
    monkeypatch.setattr(running, "WORK", tmp_path / "work")
    monkeypatch.setattr(cli, "RESULT", tmp_path / "recipe.json")
    monkeypatch.setattr(running, "TESTED", 60)
    monkeypatch.setattr(cli, "ProcessPoolExecutor", Here)
    monkeypatch.delenv("MICROTRAIN_DATA", raising=False)
    words = ["--data", str(digits), "--model", str(EXAMPLE / "model.pt"), "--seeds", "1"]
    said = CliRunner().invoke(cli.main, [*words, "--only", "digits/model/shots-5/[dlnb]*"])
    assert said.exit_code == 0, said.output
    rows = {row["arm"]: row for row in json.loads((tmp_path / "recipe.json").read_text())}
    assert set(rows) == {"default", "look", "before", "lda", "ncm"}
    assert all(set(row) == KEYS for row in rows.values())
    assert min(rows[arm]["accuracy"] for arm in ("default", "look")) > 40  # of ten classes
    assert abs(rows["look"]["accuracy"] - rows["lda"]["accuracy"]) < 10
    assert "--data" in rows["look"]["command"] and rows["look"]["sram"] < 90 * 1024
    again = CliRunner().invoke(cli.main, [*words, "--only", "digits/model/shots-5/lda/0"])
    assert "| lda |" in again.output
    tail = running.Arm(Case("digits", "model", "shots-5", "pc-tail", 0), digits, EXAMPLE / "model.pt")
    assert tail.on_a_pc(0.003) > 0.3


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
        future.set_result(job())
        return future


def test_what_is_wrong_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MICROTRAIN_DATA", raising=False)
    said = CliRunner().invoke(cli.main, [])
    assert said.exit_code == 1 and "MICROTRAIN_DATA is not set" in said.output
    said = CliRunner().invoke(cli.main, ["--data", str(tmp_path), "--model", "x.pt", "--only", "nothing"])
    assert said.exit_code == 1 and "no case is called nothing" in said.output


@pytest.mark.skipif(not page.ROWS.is_file(), reason="no rows were written yet: python lab/recipe --page")
def test_the_page_is_made_of_its_rows() -> None:
    rows = json.loads(page.ROWS.read_text())
    assert page.PAGE.read_text() == page.text(rows)
    assert all(set(row) == KEYS for row in rows)
    assert "nan" not in page.PAGE.read_text()  # an arm of some sets alone


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
