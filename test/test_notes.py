"""What the lab's commands write down."""

from __future__ import annotations

from pathlib import Path

from lab import notes


def test_numbers_are_put_beside_others(tmp_path: Path) -> None:
    file = tmp_path / "folder/notes.json"
    assert notes.read(file, {}) == {}
    notes.note(file, one=1)
    notes.note(file, two=2)
    assert notes.read(file, {}) == {"one": 1, "two": 2}


def test_a_run_that_is_cut_off_loses_nothing(tmp_path: Path) -> None:
    """The new file is whole before it takes the name: who has the old one open still reads the old one."""
    file = tmp_path / "notes.json"
    notes.write(file, ["old"])
    with file.open() as before:
        notes.write(file, ["new"])
        assert "old" in before.read()
    assert notes.read(file, []) == ["new"] and list(tmp_path.iterdir()) == [file]
