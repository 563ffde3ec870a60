"""tools/base/files.py: archives."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from microtrain.base.errors import Error
from microtrain.base.files import unpacked


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/file").write_text("new")
    path = tmp_path / "set.tar"
    with tarfile.open(path, "w") as file:
        file.add(tmp_path / "set", "set")
    return path


def test_an_archive_is_unpacked_once(archive: Path, tmp_path: Path) -> None:
    folder = unpacked(archive, tmp_path / "one/here")
    assert (folder / "file").read_text() == "new" and list(folder.parent.iterdir()) == [folder]
    archive.write_text("nobody looks at it again")
    assert unpacked(archive, folder) == folder
    with pytest.raises(Error, match="cannot be unpacked"):
        unpacked(archive, tmp_path / "two")


def test_a_process_that_comes_second_takes_what_the_first_unpacked(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, extract = tmp_path / "here", tarfile.TarFile.extractall

    def slowly(file: tarfile.TarFile, to: Path) -> None:
        extract(file, to)
        folder.mkdir()
        (folder / "file").write_text("first")

    monkeypatch.setattr(tarfile.TarFile, "extractall", slowly)
    assert unpacked(archive, folder) == folder
    assert (folder / "file").read_text() == "first"
    assert not list(tmp_path.glob("*.part"))
