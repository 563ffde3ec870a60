"""What `make tasks` compares devices with: float twins; and how it draws samples and keeps rows."""

from __future__ import annotations

import json
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from scipy.io import savemat
from test_sound import write_wav
from torch import nn

from lab.tasks import bearings, cli, open_sets, speaker, spoken
from lab.tasks.cases import spectra
from lab.tasks.learn import auc
from lab.tasks.twin import Twin
from microtrain.samples.source import Dataset, Sample

N = 24


def twin_of(folder: Path, learns: dict[tuple[str, str], Any], samples: np.ndarray) -> tuple[Twin, Any]:
    torch.manual_seed(0)
    layers = (nn.Linear(N, 8), nn.ReLU(), nn.Linear(8, N))
    net = nn.Sequential(nn.Flatten(), *layers).eval()
    path = folder / "net.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(net, (torch.zeros(1, 1, 1, N),)), path)
        plan = SimpleNamespace(find=lambda layer, kind: learns.get((layer, kind)))
        return Twin(path, plan, samples), net  # type: ignore[arg-type]


def test_a_twin_scores_and_learns_as_pytorch_does(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).normal(0, 1, (20, N)).astype(np.float32)
    some = SimpleNamespace(channels=(0, 3))
    learns = {("1", "bias"): some, ("3", "weight"): some}
    twin, net = twin_of(tmp_path, learns, samples)
    x = torch.tensor(samples)
    wanted = ((net(x[:, None, None]) - x) ** 2).mean(dim=1)
    np.testing.assert_allclose(twin.scores(samples), wanted.detach().numpy(), rtol=1e-5)
    assert np.isclose(twin.unit, float(wanted.mean() + 3 * wanted.std(correction=0)) * 4)
    (((net(x[:1, None, None]) - x[:1]) ** 2).mean() / twin.unit).backward()
    twin.learn(samples[0], 0.5)
    first, last = net[1], net[3]
    np.testing.assert_allclose(
        twin.layers[0].bias.detach(), (first.bias - 0.5 * first.bias.grad).detach(), rtol=1e-4, atol=1e-6
    )
    stepped = last.weight - 0.5 * last.weight.grad
    columns = torch.arange(8)
    kept = (columns != 0) & (columns != 3)
    np.testing.assert_array_equal(twin.layers[1].weight[:, kept].detach(), last.weight[:, kept].detach())
    np.testing.assert_allclose(
        twin.layers[1].weight[:, [0, 3]].detach(), stepped[:, [0, 3]].detach(), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_array_equal(twin.layers[0].weight.detach(), first.weight.detach())


def test_two_machines_are_as_far_from_the_first() -> None:
    rng = np.random.default_rng(0)
    known, new, odd = (spectra(rng, 200, shift).astype(float).mean(axis=0) for shift in (0.0, 1.0, -1.0))
    near, far = (float(np.linalg.norm(one - known)) for one in (new, odd))
    assert abs(near / far - 1) < 0.1 and np.linalg.norm(new - odd) > 1.8 * near
    assert auc(np.array([0.0, 1.0]), np.array([0.5, 2.0])) == 0.75


def row(name: str, value: float = 0.5) -> dict[str, Any]:
    return {"name": name, "metric": "accuracy", "before": 0.1, "after": value, "sram": 1}


def test_commands_side_by_side_keep_each_others_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "RESULT", tmp_path / "build/tasks.json")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(cli.keep, [row(name) for name in reversed(cli.NAMES)]))
    cli.keep(row(cli.SPEAKER, 0.9))
    kept = json.loads(cli.RESULT.read_text())
    assert [(one["name"], one["after"]) for one in kept] == [
        *((name, 0.5) for name in cli.NAMES[:-1]),
        (cli.SPEAKER, 0.9),
    ]


def said(folder: Path) -> list[spoken.Recording]:
    """Ten recordings of two words by two speakers: tones, in a little noise."""
    rng = np.random.default_rng(0)
    for who, higher in (("ann", 1.0), ("bob", 1.4)):
        for word in range(2):
            for n in range(10):
                wave_ = 3000 * np.sin(2 * np.pi * (400 + 900 * word) * higher * np.arange(2000) / 8000)
                write_wav(folder / f"{word}_{who}_{n}.wav", (wave_ + rng.normal(0, 30, 2000)).astype("<i2"))
    (folder / "notes.txt").write_text("no recording")
    return spoken.recordings(folder)


def test_a_speakers_samples_are_drawn_apart_from_those_of_the_test(tmp_path: Path) -> None:
    known = said(tmp_path)
    first = [(r.speaker, r.word, r.number) for r in known[:11:5]]
    assert first == [("ann", 0, 0), ("ann", 0, 5), ("ann", 1, 0)]
    own, rows = known[20:], spoken.features(known[20:])[:, 0]
    assert {r.speaker for r in own} == {"bob"} and rows.shape == (20, spoken.ROWS, 40)
    given = speaker.lesson(own, rows, 3)
    assert len(given.words) == 10 and given.of(1)[1].tolist() == [0, 1] and len(given.of(3)[1]) == 6
    tests = {x.tobytes() for x in given.tests[0]}
    assert len(given.tests[0]) == 10 and not tests & {x[0].tobytes() for x in given.rows}
    assert {rows[k].tobytes() for k in (*range(5), *range(10, 15))} == tests, "the first are never learned"
    steps = list(given.order(3, 9))
    assert sorted(k for k, _ in steps[:6]) == list(range(6)) and [v for _, v in steps[::6]] == [*range(8), 0]
    assert list(speaker.lesson(own, rows, 3).order(3, 9)) == steps


def test_the_device_learns_as_sessions_do_by_themselves() -> None:
    assert speaker.by_itself(10) == speaker.Way(80, 1.0), "one sample a word"
    assert speaker.by_itself(50) == speaker.Way(40, 2.0)


def test_float_and_means_learn_a_speaker(tmp_path: Path) -> None:
    known = said(tmp_path)
    own, rows = known[20:], spoken.features(known[20:])[:, 0]
    given = speaker.lesson(own, rows, 0)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(spoken.ROWS * 40, 2))
    assert speaker.by_means(net, given, 1) > 0.9
    before = [p.detach().clone() for p in net.parameters()]
    assert speaker.by_float(net, given, 3, speaker.Way(10, 1e-3, 2)) > 0.9
    for kept, now in zip(before, net.parameters(), strict=True):
        assert torch.equal(kept, now), "a session leaves the network as it was"


def test_the_summary_is_of_all_and_of_each() -> None:
    rows = [
        {"speaker": who, "draw": d, "samples": n, "before": b, "float_before": b, "device": b + n / 100}
        | {"float": 0.5, "means": 0.25}
        for who, b in (("ann", 0.5), ("bob", 0.7))
        for d in range(2)
        for n in speaker.COUNTS
    ]
    found = speaker.summary(rows)
    assert found["all"]["before"] == 0.6 and found["ann"]["before"] == 0.5
    assert found["all"]["device_5"] == 0.65 and found["bob"]["device_1"] == 0.71
    assert found["bob"]["means_3"] == 0.25


def test_bearings_are_read_as_cwru_has_them(tmp_path: Path) -> None:
    """Half of the windows of a made-up recording are learned, and none that shares samples is tested."""
    rng = np.random.default_rng(0)
    for name, loud in (("normal_0_97", 0.1), ("48k_Drive_End_IR007_0_109", 0.6)):
        ends = {f"X000_{end}_time": rng.normal(0, loud, (60_000, 1)) for end in ("DE", "FE")}
        savemat(tmp_path / f"{name}.mat", ends)
    found = bearings.recordings(tmp_path, alike=False)
    assert list(found.odd) == ["IR007_0_109"] and len(found.known) == 28
    assert len(found.new) + len(found.test) == 27 and {len(w) for w in found.new} == {1024}
    assert np.std(found.odd["IR007_0_109"][0]) > 4 * np.std(found.new[0])
    equal = bearings.recordings(tmp_path, alike=True)
    assert np.std(equal.odd["IR007_0_109"][0]) == pytest.approx(np.std(equal.new[0]), rel=0.01)
    assert bearings.rows(found.new[:2]).shape == (2, 1, bearings.FRAMES, bearings.WIDTH)


def test_a_folder_without_bearings_is_a_sentence(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.main, ["--bearings", str(tmp_path)])
    assert done.exit_code == 1 and "holds no normal_0_97.mat" in done.output


def test_strangers_are_drawn_from_other_classes(tmp_path: Path) -> None:
    files = [Sample(tmp_path / f"{k}/{n}.npy", k) for k in range(5) for n in range(40)]
    sets = (Dataset(tuple("abcde"), tuple(files)),) * 2
    found, again = open_sets.drawn(sets, 3, 1), open_sets.drawn(sets, 3, 1)
    assert found == again != open_sets.drawn(sets, 3, 2)
    known = {path.parent.name for path, _ in found.seen}
    assert len(known) == 3 and len(found.seen) == 3 * open_sets.SHOTS
    assert {label for _, label in found.seen} == {1, 2, 3}
    assert all((path.parent.name in known) == (label > 0) for path, label in found.tested)


def test_strangers_are_judged() -> None:
    logits = np.array([[-5.0, -1.0, -9.0], [-5.0, -9.0, -6.0], [-5.0, -7.0, -8.0], [-5.0, -4.0, -9.0]])
    found = open_sets.judged(logits, np.array([1, 2, 0, 0]))
    assert found == {"closed": 1.0, "auc": 0.75, "known": 0.5, "unknown": 0.5}
