"""Projects that `new` writes: what an update replaces, what it leaves, and where it does nothing at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from microtrain.convert import boards
from microtrain.new import project
from microtrain.new.cli import main

SHIPPED = {
    "platformio.ini": b"[platformio]\ndefault_envs = disco_f746ng\n",
    "firmware/a.c": b"a\n",
    "b.h": b"b\n",
}


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A version of microtrain with three files, in a folder that a test may change."""
    folder = tmp_path / "shipped"
    for name, data in SHIPPED.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    monkeypatch.setattr(
        project,
        "sources",
        lambda: {p.relative_to(folder).as_posix(): p for p in sorted(folder.rglob("*")) if p.is_file()},
    )
    return folder


def new(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_a_project_is_for_its_board_and_knows_what_was_written(shipped: Path, tmp_path: Path) -> None:
    done = new(tmp_path / "p", "--board", "nucleo_f446re")
    assert done.exit_code == 0 and "is a PlatformIO project for nucleo_f446re" in done.output
    assert "default_envs = nucleo_f446re" in (tmp_path / "p/platformio.ini").read_text()
    record = json.loads((tmp_path / "p/.microtrain.json").read_text())
    assert set(record["files"]) == {*SHIPPED, ".gitignore"}
    assert "firmware/generated/" in (tmp_path / "p/.gitignore").read_text()


def test_every_board_of_the_list_makes_a_project() -> None:
    assert len(boards.names()) >= 2
    for board in boards.names():
        files = project.contents(board)
        assert f"default_envs = {board}\n" in files["platformio.ini"].decode()
        assert "firmware/include/model_api.h" in files and f"platform/boards/{board}.json" in files


def test_an_update_takes_what_changed_here_and_leaves_what_changed_there(
    shipped: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "p"
    new(folder)
    (folder / "b.h").write_text("mine\n")
    (shipped / "firmware/a.c").write_text("newer\n")
    (shipped / "c.h").write_text("c\n")
    done = new(folder, "--update")
    assert done.exit_code == 0 and "files that changed: 2" in done.output
    assert [(folder / name).read_text() for name in ("firmware/a.c", "b.h", "c.h")] == [
        "newer\n",
        "mine\n",
        "c\n",
    ]
    assert "files that changed: 0" in new(folder, "--update").output


def test_a_file_that_is_gone_goes(shipped: Path, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    new(folder)
    (shipped / "b.h").unlink()
    assert "files that changed: 1" in new(folder, "--update").output
    assert not (folder / "b.h").exists()


def test_what_both_changed_is_named_and_nothing_is_written(shipped: Path, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    new(folder)
    (folder / "b.h").write_text("mine\n")
    (shipped / "b.h").write_text("newer\n")
    (shipped / "firmware/a.c").write_text("newer\n")
    done = new(folder, "--update")
    assert done.exit_code == 1 and "Error: b.h in " in done.output and "move your changes away" in done.output
    assert (folder / "b.h").read_text() == "mine\n" and (folder / "firmware/a.c").read_text() == "a\n"


@pytest.mark.parametrize("record", ["{}", "[]", "{", '{"version": "1", "board": "x", "files": 3}', "\0"])
def test_a_damaged_record_is_a_sentence(record: str, shipped: Path, tmp_path: Path) -> None:
    (tmp_path / ".microtrain.json").write_text(record)
    done = new(tmp_path, "--update")
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit)
    assert ".microtrain.json cannot be read" in done.output


@pytest.mark.parametrize("name", ["../victim", "/tmp/victim", "a/../../victim", ""])
def test_a_record_names_no_file_elsewhere(name: str, shipped: Path, tmp_path: Path) -> None:
    """An update deletes what is gone, and a project may come from anywhere."""
    folder, victim = tmp_path / "p", tmp_path / "victim"
    new(folder)
    victim.write_bytes(b"mine")
    record = json.loads((folder / ".microtrain.json").read_text())
    record["files"][name] = project.sha256(b"mine")
    (folder / ".microtrain.json").write_text(json.dumps(record))
    done = new(folder, "--update")
    assert done.exit_code == 1 and "is no file of a project" in done.output
    assert victim.read_bytes() == b"mine"


@pytest.mark.parametrize("board", ["other", "x\nextra = 1", "\\q", 7, None])
def test_a_record_of_a_board_that_is_not_there(board: object, shipped: Path, tmp_path: Path) -> None:
    new(tmp_path / "p")
    path = tmp_path / "p/.microtrain.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"board": board}))
    done = new(tmp_path / "p", "--update")
    assert done.exit_code == 1 and "there is no board" in done.output


def test_where_a_project_cannot_be(shipped: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "is there and not empty" in new(tmp_path).output
    assert "it is no project that `microtrain new` wrote" in new(tmp_path, "--update").output
    done = new(tmp_path / "file/p")
    assert done.exit_code == 1 and "cannot write" in done.output and "Not a directory" in done.output
