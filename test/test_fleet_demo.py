"""What `microtrain fleet` says and does beside Flower: its demo in small, and the files that name boards."""

from __future__ import annotations

import hashlib
import json
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import ROOT, Built
from PIL import Image

from microtrain.base.errors import Error
from microtrain.base.plan import read_plan
from microtrain.fleet import demo
from microtrain.fleet.board import Host
from microtrain.fleet.cli import main
from microtrain.fleet.errors import FleetError
from microtrain.fleet.gateway import members_of, read_gateway
from microtrain.fleet.split import dirichlet
from microtrain.samples.source import scan


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, draws = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for digit in range(10):
        (folder / str(digit)).mkdir()
        for n in range(2):
            pixels = draws.integers(0, 256, (32, 32)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / str(digit) / f"{n}.png")
    return folder


@pytest.mark.skipif(find_spec("flwr") is None, reason="flwr is 300 MB: `pip install 'microtrain[fleet]'`")
def test_the_demo_in_small(
    example: Built, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it but the conversion and the build, with twenty images."""
    host = Host(read_plan(example.folder / "plan.json"), tmp_path / "library")
    whole = scan(images, 10)
    scene = demo.Scene(host, example.elf, tuple(dirichlet(whole, 2, 1.0)), whole)
    monkeypatch.setattr(demo, "OUTPUT", tmp_path)
    monkeypatch.setattr(demo, "LIMIT", 2)
    monkeypatch.setattr(demo, "shown", lambda path: path)
    monkeypatch.setattr(demo, "prepare", lambda boards, share: scene)
    done = CliRunner().invoke(main, ["demo", "--boards", "2", "--rounds", "2"])
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["sha256_boards"] == report["sha256_host"] and report["rounds"] == 2
    assert len(report["accuracy_local"]) == 2 == len(report["accuracy_by_round"])
    lines = [json.loads(line) for line in (tmp_path / "fleet.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2] and sorted(lines[0]["boards"]) == [
        "board-1",
        "board-2",
    ]
    joined = "".join(line["sha256"] for line in lines)
    assert hashlib.sha256(joined.encode()).hexdigest() == report["sha256_boards"]
    assert "round 2 of 2: 2 boards, accuracy" in done.output


def test_boards_that_compute_otherwise_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "OUTPUT", tmp_path)
    monkeypatch.setattr(demo, "shown", lambda path: path)
    with pytest.raises(Error, match="the boards' weights differ from the host's"):
        demo.tell({"accuracy_global": 0.9, "accuracy_local": [0.5], "sha256_boards": "a", "sha256_host": "b"})


def test_without_its_extra_the_demo_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microtrain.base.extras.find_spec", lambda name: None)
    done = CliRunner().invoke(main, ["demo"])
    assert done.exit_code == 1
    assert "microtrain fleet needs flwr" in done.output and "pip install 'microtrain[fleet]'" in done.output


# ---------------------------------------------------------------- files that name boards


def gateway(folder: Path, **changes: object) -> Path:
    board = {"name": "hall", "port": "/dev/ttyACM9", "data": "photos"}
    document = {"plan": "plan.json", "boards": [board]} | changes
    file = folder / "boards.json"
    file.write_text(json.dumps({key: value for key, value in document.items() if value is not None}))
    return file


BAD_FILES: dict[str, tuple[dict[str, object], str]] = {
    "no boards": ({"boards": []}, "names no board, or one twice"),
    "two of a name": ({"boards": [{"name": "a", "data": "d", "host": "yes"}] * 2}, "or one twice"),
    "two ways": (
        {"boards": [{"name": "a", "data": "d", "host": "yes", "port": "x"}]},
        "board a needs one of",
    ),
    "no way": ({"boards": [{"name": "a", "data": "d"}]}, "board a needs one of port, emulate, native"),
    "a path for a name": (
        {"boards": [{"name": "../a", "data": "d", "host": "yes"}]},
        "name is '../a', not of",
    ),
    "an unknown part": ({"keep": ["weights"]}, "'weights', not one of head, biases"),
    "no plan": ({"plan": None}, "plan is missing"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_of_boards_that_is_wrong_is_one_sentence(tmp_path: Path, name: str) -> None:
    changes, why = BAD_FILES[name]
    with pytest.raises(FleetError, match=why):
        read_gateway(gateway(tmp_path, **changes))


def test_a_file_of_boards_that_is_missing_or_no_json(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="no such file"):
        read_gateway(tmp_path / "none.json")
    (tmp_path / "boards.json").write_bytes(b"\xff{")
    with pytest.raises(FleetError, match="does not name the boards of a node"):
        read_gateway(tmp_path / "boards.json")


def test_the_file_of_the_page_names_two_boards(tmp_path: Path) -> None:
    (text,) = re.findall(
        r"```json file=boards.json\n(.*?)```", (ROOT / "docs/fleet.md").read_text(), re.DOTALL
    )
    (tmp_path / "boards.json").write_text(text)
    assert [board.name for board in read_gateway(tmp_path / "boards.json").boards] == ["kitchen", "hall"]


def test_a_gateway_has_boards_of_several_kinds(example: Built, images: Path, tmp_path: Path) -> None:
    """One that the host is, one behind the firmware for this machine, one that sees a single class."""
    for digit in range(10):
        (tmp_path / "few" / str(digit)).mkdir(parents=True)
    (tmp_path / "few/3/0.png").write_bytes((images / "3/0.png").read_bytes())
    boards = [
        {"name": "here", "host": "yes", "data": "few"},
        {"name": "beside", "native": str(example.program), "data": "few"},
    ]
    file = gateway(tmp_path, plan=str(example.folder / "plan.json"), boards=boards, masked="yes")
    with members_of(file) as members:
        assert [member.name for member in members] == ["here", "beside"]
        assert all(member.masked for member in members)
        assert members[0].samples is not None
        assert [sample.label for sample in members[0].samples.samples] == [3]
        assert members[0].board.fresh() == members[1].board.fresh()
