"""The tables of accuracy: which rate, which rows, what they say; and small sessions with exact hashes."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import run
from networks import residual_network
from PIL import Image

from lab.results import further
from lab.results.cases import BAR, COLUMNS, EPOCHS, GRID, SEEDS, Cell, Job, Session, core, family, front
from lab.results.cli import entry
from lab.results.execute import one
from lab.results.picture import KINDS, SEARCHED, draw, draw_searches, kind
from lab.results.plan import selection
from lab.results.run import command
from lab.results.search_tables import comparison
from lab.results.searches import BITS, TABLE, Search, gains, rows_of, searches, summary
from lab.results.store import RESULTS, Row, add, best_rate, load, missing
from lab.results.study import VARIANTS
from lab.results.tables import T95, interval, markdown
from microtrain.base.errors import Error
from microtrain.base.plan import Origin, text
from microtrain.convert.emit.arrays import archive
from microtrain.convert.emit.code import generate
from microtrain.convert.emit.document import document
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.scheme import Scheme, convolutions
from microtrain.device.session import Settings
from microtrain.samples.augment import Augmentation
from microtrain.samples.source import hold_out, scan
from microtrain.simulate.blueprint import load_blueprint
from microtrain.simulate.machine import library
from microtrain.simulate.records import Task, fill

CELL = Cell("clothing10", "mcunet-5fps", "mcunet-99kb")


def row(
    cell: Cell = CELL, lr: float = 0.002, seed: int = 0, accuracy: float = 0.8, **more: Any
) -> dict[str, Any]:
    keys = ("dataset", "network", "scheme", "fraction_bits", "arithmetic")
    about = {key: getattr(cell, key) for key in keys}
    hashes = {"plan_sha256": "p", "trained_sha256": "t", "sram_all_in": 100 << 10, "command": "c"}
    about |= hashes
    return about | {"lr": lr, "seed": seed, "accuracy": accuracy, "loss": 1.0, "steps": 9} | more


def test_the_core_is_what_it_says() -> None:
    cells = core()
    assert len(cells) == len(EPOCHS) * len(BAR) * len(COLUMNS) == len({c.key for c in cells})
    assert len(GRID) >= 6
    ratios = [b / a for a, b in pairwise(GRID)]
    assert max(ratios) == pytest.approx(min(ratios))
    assert not {c.key for c in front()} & {c.key for c in cells}


def test_a_rate_is_chosen_by_the_mean_over_networks() -> None:
    other = replace(CELL, network="mbv2-w0.35", scheme="mbv2-99kb")
    rows = [
        *(row(CELL, lr, accuracy=a) for lr, a in ((0.001, 0.9), (0.002, 0.8))),
        *(row(other, lr, accuracy=a) for lr, a in ((0.001, 0.5), (0.002, 0.7))),
    ]
    assert best_rate(rows, CELL) == best_rate(rows, other) == 0.002
    assert best_rate(rows, replace(CELL, scheme="mcunet-49kb")) == 0.002
    assert best_rate(rows, replace(CELL, scheme="last-3")) is None
    assert best_rate(rows, replace(CELL, arithmetic="float")) is None
    assert best_rate(rows, replace(CELL, fraction_bits=4)) is None
    bits = [row(replace(CELL, fraction_bits=4), 0.008)]
    assert best_rate(rows + bits, replace(CELL, fraction_bits=8)) == 0.008
    assert best_rate(rows, replace(CELL, dataset="cifar10")) is None


def test_of_equal_rates_the_lower_loss_counts() -> None:
    rows = [row(lr=0.001, loss=0.5), row(lr=0.002, loss=0.4)]
    assert best_rate(rows, CELL) == 0.002


def test_only_what_is_missing_is_run() -> None:
    wanted = [Session(0.002, seed) for seed in (0, 1, 2)]
    assert missing([row(seed=1)], CELL, wanted) == (Session(0.002, 0), Session(0.002, 2))
    assert missing([row(seed=1, lr=0.001)], CELL, wanted) == tuple(wanted)


def test_a_cell_is_judged_at_one_rate_and_tried_at_several(tmp_path: Path) -> None:
    table = tmp_path / "t.json"
    add(table, [row(lr=0.001), row(seed=1)])
    add(table, [row(lr=0.004)])
    assert [(r["lr"], r["seed"]) for r in load(table)] == [(0.004, 0), (0.002, 1)]
    tried = tmp_path / "v.json"
    add(tried, [row(lr=0.001, validation=True), row(lr=0.002, validation=True)])
    assert len(load(tried)) == 2
    assert len(table.read_text().splitlines()) == 4  # one line per row


def test_an_entry_has_the_promised_keys() -> None:
    found = entry(row(validation=False, diverged=None), 1234)
    keys = "dataset network scheme fraction_bits arithmetic seed lr accuracy sram_all_in steps command"
    assert set(found) == {*keys.split(), "plan_sha256", "trained_sha256"}
    assert found["command"] == command(found)
    assert "--fraction-bits 0 --arithmetic device --lr 0.002 --seed 0" in found["command"]


def test_families_share_rates_and_only_rivals_are_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Search, "found", lambda s, dataset: Cell(dataset, s.network, s.name, BITS))
    assert [family(s) for s in ("mcunet-49kb", "last-3", "bias-20", "head-only", "mbv2-49kb-cifar10")] == [
        "sparse", "last", "bias", "head", "found on cifar10",
    ]  # fmt: skip
    tuned = {family(job.cell.scheme) for job in selection(front(), (1.0,))}
    assert "sparse" not in tuned
    found = [search.found("cifar10") for search in searches()]
    tuned = {job.cell.scheme for job in selection(found, (1.0,))}
    assert tuned == {s.name for s in searches() if s.published in BAR.values()}


def test_intervals_are_students() -> None:
    assert interval([1.0]) == "+1.0"
    assert interval([1.0, 2.0, 3.0]) == "+2.00 ± 2.48"
    assert T95[2] == pytest.approx(4.303)


def test_the_document_compares_in_pairs(tmp_path: Path) -> None:
    rows = []
    for cell in core():
        gain = {"device": 0.02, "float": 0.0, "device-no-qas": -0.05, "truncating": -0.6}[cell.arithmetic]
        rows += [row(cell, seed=seed, accuracy=0.7 + 0.01 * seed + gain) for seed in (0, 1, 2)]
    rows += [row(cell, sram_all_in=n << 10) for n, cell in enumerate(front(), 50)]
    studied = [
        row(variant=variant, skipped=0.25, accuracy=0.8 + 0.001 * n, dataset=dataset)
        for n, variant in enumerate(VARIANTS)
        for dataset in EPOCHS
    ]
    rows += [row(Cell("cifar10", CELL.network, search.name)) for search in searches()]
    scales = {"mcunet-5fps": [{"tensor": "a", "real": 1.0}, {"tensor": "b", "real": 2.0}]}
    text = markdown(rows, studied, scales, "what was found")
    assert "what was found" in text
    assert "| mcunet-5fps | 1.50 ± 0.50 |" in text
    assert "| float | 80.1 (+0.1, 0.002) | 80.1 (+0.1, 0.002) | 25% |" in text
    line = next(part for part in text.splitlines() if part.startswith("| device, 4 fraction bits - float |"))
    assert line.count("+2.00 ± 0.00") == 7
    assert "mean with 4 fraction bits minus" in text
    draw(rows, tmp_path / "front.svg")
    picture = (tmp_path / "front.svg").read_text()
    assert all(label in picture for label in KINDS)
    assert {kind(r) for r in rows} == set(KINDS)


def searched_rows() -> list[Row]:
    """Of all searches, as if they had found what wins a point or two."""
    rows = []
    for number, (search, seed, dataset) in enumerate(product(searches(), (0, 1, 2), EPOCHS)):
        bytes_all_in = {"sram_all_in": (100 << 10) + ("49kb" in search.published), "seed": seed}
        if dataset == search.found_on:  # the same published scheme is the rival of two searches
            rows += [row(search.rival(dataset), accuracy=0.8, **bytes_all_in)]
        won = 0.01 + 0.01 * (number // 2 % 2) + 0.02 * (dataset == search.found_on)
        rows += [row(search.found(dataset), accuracy=0.8 + won, **bytes_all_in)]
    return rows


def test_what_searches_find_is_compared_in_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Search, "found", lambda s, dataset: Cell(dataset, s.network, s.name, BITS))
    rows = searched_rows()
    made = [row for search in searches() for row in rows_of(search, rows)]
    assert len(made) == 144 and len(rows) == 108
    promised = {
        "network",
        "budget_bytes",
        "found_on",
        "judged_on",
        "scheme",
        "seed",
        "accuracy",
        "sram_all_in",
    }
    assert all(promised | {"command", "trained_sha256"} <= set(r) for r in made)
    assert {r["scheme"] for r in made} == {"found", "published"}
    won = gains(made)
    assert len(won) == 24 and sum(place.crossed for place in won) == 12
    for place, values in won.items():
        more = 0 if place.crossed else 2
        assert [v - more for v in values] in (pytest.approx([1, 2, 1]), pytest.approx([2, 1, 2]))
    assert summary(made)[-2:] == [
        "judged on the other images: mean +1.50, worst +1.33",
        "judged on images of the same kind: mean +3.50, worst +3.33",
    ]
    assert "| +1.50 ± 0.11 |" in comparison(made, True) and "| +3.50 ± 0.11 |" in comparison(made, False)
    draw_searches(made, tmp_path / "search.svg")
    assert all(label in (tmp_path / "search.svg").read_text() for label in SEARCHED)


NAMES = {"mcunet-5fps": "MCUNet", "proxyless-w0.3": "ProxylessNAS", "mbv2-w0.35": "MobileNetV2"}


@pytest.mark.skipif(not TABLE.is_file(), reason="no search has been run")
def test_the_checked_in_comparison_is_that_of_the_rows() -> None:
    """pages/search.json against pages/results.json and the schemes that ship, pages/search.md against it."""
    table = load(TABLE)
    assert table == [r for search in searches() for r in rows_of(search, load(RESULTS))]
    won = gains(table)
    assert len(won) == 24 and sum(place.crossed for place in won) == 12
    assert all(len(values) == len(SEEDS) for values in won.values())
    assert all(r["sram_all_in"] <= r["budget_bytes"] for r in table)
    means = {place: statistics.fmean(values) for place, values in won.items()}
    told = TABLE.with_name("search.md").read_text(encoding="utf-8").splitlines()
    for found_on, network in dict.fromkeys((place.found_on, place.network) for place in won):
        own = [p for p in won if (p.found_on, p.network) == (found_on, network)]
        other, same = (
            " / ".join(f"{means[p]:+.2f}" for p in own if p.crossed == crossed) for crossed in (True, False)
        )
        assert f"| {found_on} | {NAMES[network]} | {other} | {same} |" in told
    crossed_mean, own_mean = (
        statistics.fmean(m for p, m in means.items() if p.crossed == crossed) for crossed in (True, False)
    )
    assert f"| mean | | {crossed_mean:+.2f} | {own_mean:+.2f} |" in told


@pytest.mark.skipif(not TABLE.is_file(), reason="no search has been run")
@pytest.mark.parametrize(
    "found_on",
    [
        "clothing10",
        pytest.param("cifar10", marks=pytest.mark.xfail(strict=True, reason="pages/search.md says why")),
    ],
)
def test_found_schemes_are_ahead_on_the_other_images(found_on: str) -> None:
    """The bars of the search, which are over both directions: neither may hide behind the other."""
    won = gains(load(TABLE))
    means = [statistics.fmean(v) for place, v in won.items() if place.crossed and place.found_on == found_on]
    assert statistics.fmean(means) >= 0.5
    assert min(means) >= -1.5


# A network after 240 steps: any change of the arithmetic shows here. (The example will not do: its activation
# ranges are float sums, whose last bits depend on the machine that calibrates.)
HASHES = {
    "device": "47cd1aa000233816da995922d1d538b98145b8a0b701aaadc59356f9b0938207",
    "device-no-qas": "16cae97e841aae5bdd4bee3a0be3800620d8483fa9ee84a2c0848ea5857a817c",
    "truncating": "480d812e18867ee7c83e72267365c49845869ac2e206b00b433203b1fb588f2c",
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan, and images of four classes, each a stripe somewhere else in noise."""
    folder = tmp_path_factory.mktemp("small")
    graph = residual_network()
    scheme = Scheme(
        "test", 4, dict.fromkeys(convolutions(graph)[-4:], 0.5), rates=(0.002,) * 3, head="random"
    )
    compiled = compile_graph(graph, scheme, 4)
    output = generate(compiled, "a test")
    plan = document(compiled, output, Origin("", "", ""), None)
    (folder / "plan").mkdir()
    for name, content in (output.files | {"plan.json": text(plan)}).items():
        (folder / "plan" / name).write_text(content)
    (folder / "plan/model.npz").write_bytes(archive(compiled.graph, output.model_id))
    h, w, c = graph.tensors[graph.input.tensor].shape
    random = np.random.default_rng(0)
    for number in range(60):
        pixels = random.integers(0, 120, (h, w, c)).astype(np.uint8)
        label = number % 4
        pixels[:, label * w // 4 : (label + 1) * w // 4] += 100
        path = folder / f"images/{label}/{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.squeeze()).save(path)
    return folder


@pytest.mark.parametrize("arithmetic", HASHES)
def test_small_sessions_have_exact_hashes(arithmetic: str, small: Path, tmp_path: Path) -> None:
    options = ["--epochs", "5", "--arithmetic", arithmetic, "--augment", "flip", "-o", str(tmp_path)]
    run(["python", "tools/simulate", str(small / "plan"), "--data", str(small / "images"), *options])
    result = json.loads((tmp_path / "results.json").read_text())["runs"][0]
    assert result["steps"] == 240
    assert result["trained_sha256"] == HASHES[arithmetic], result["accuracy"]


def task_of_small(small: Path, folder: Path) -> Task:
    plan = load_blueprint(small / "plan")
    training, testing = hold_out(scan(small / "images", 4))
    made = library(plan, folder / "lib")
    return Task(plan, made, training, testing, Augmentation(), 1, folder / "records")


def test_a_session_is_judged_on_further_images(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It learns what it learns without them; images it has learned from are judged as such."""
    task = task_of_small(small, tmp_path)
    monkeypatch.setattr(further, "task_of", lambda cell, validation, data: task)
    session = Session(0.002, 0)
    list(fill(task, 1))
    plain = one(task, Settings(1, schedule="cosine", rate=0.002))
    for images in (task.testing, task.training):
        monkeypatch.setattr(further, "images", lambda classes, images=images: images)
        (found,) = further.judge(Job(CELL, (session,)), tmp_path)
        assert found["trained_sha256"] == plain.sha256
        assert (found["test_images"], found["further_images"]) == (12, len(images.samples))
        assert found["accuracy"] == round(plain.evaluations[-1].accuracy, 6)
        if images is task.testing:
            assert found["further_accuracy"] == found["accuracy"] == further.pooled(found)


def further_row(seed: int, sha256: str, accuracy: float, more: float) -> dict[str, Any]:
    about = {"network": CELL.network, "scheme": CELL.scheme, "seed": seed, "lr": 0.001}
    return about | {
        "test_images": 100,
        "accuracy": accuracy,
        "further_images": 300,
        "further_accuracy": more,
        "trained_sha256": sha256,
    }


def test_further_images_count_as_the_test_images_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(further, "TABLE", tmp_path / "further.json")
    place = {"network": CELL.network, "budget_bytes": 9, "found_on": "cifar10", "judged_on": "clothing10"}
    session = {"seed": 0, "lr": 0.001, "fraction_bits": 4}
    searched = [
        place | session | {"scheme": kind, "name": kind, "accuracy": 0.0, "trained_sha256": kind}
        for kind in ("found", "published")
    ]
    assert [job.cell.scheme for job in further.wanted(searched, [])] == ["found", "published"]
    old = further_row(0, "of a scheme that is gone", 0.1, 0.1)
    table = further.keep([further_row(0, "published", 0.80, 0.80)], [old], searched)
    assert [row["trained_sha256"] for row in table] == ["published"]
    assert [job.cell.scheme for job in further.wanted(searched, table)] == ["found"]
    table = further.keep([further_row(0, "found", 0.84, 0.88)], table, searched)
    assert load(further.TABLE) == table and not further.wanted(searched, table)
    assert list(further.won(searched, table).values()) == [pytest.approx((8.0, 7.0))]
    assert further.summary(searched, table)[-1] == "found on cifar10: mean +8.00, all images +7.00"
    with pytest.raises(Error, match="learned other bytes"):
        further.keep([old], table, searched)


@pytest.mark.skipif(not further.TABLE.is_file(), reason="nobody has judged on further images")
def test_the_checked_in_further_rows_are_of_the_same_sessions() -> None:
    """pages/search-further.json against pages/search.json, pages/search.md against it."""
    searched, table = load(TABLE), load(further.TABLE)
    assert not further.wanted(searched, table)
    accuracies = {row["trained_sha256"]: row["accuracy"] for row in searched}
    assert all(row["accuracy"] == accuracies[row["trained_sha256"]] for row in table)
    told = TABLE.with_name("search.md").read_text(encoding="utf-8").splitlines()
    won, test = further.won(searched, table), gains(searched)
    for found_on, network in dict.fromkeys((place.found_on, place.network) for place in won):
        own = [place for place in won if (place.found_on, place.network) == (found_on, network)]
        numbers = [(statistics.fmean(test[place]), *won[place]) for place in own]
        columns = [" / ".join(f"{n:+.2f}" for n in column) for column in zip(*numbers, strict=True)]
        assert "| {} | {} | {} | {} | {} |".format(found_on, NAMES[network], *columns) in told
    for found_on in EPOCHS:
        means = [
            statistics.fmean(column)
            for column in zip(
                *((statistics.fmean(test[p]), *won[p]) for p in won if p.found_on == found_on), strict=True
            )
        ]
        assert "| {} | mean | {:+.2f} | {:+.2f} | {:+.2f} |".format(found_on, *means) in told


def test_numbers_of_no_row_are_refused() -> None:
    if not os.environ.get("MICROTRAIN_DATA"):
        pytest.skip("MICROTRAIN_DATA is not set")
    done = subprocess.run(
        [sys.executable, "lab/results", "verify", "999999"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "999999 is none of them" in done.stderr
