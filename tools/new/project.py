"""The files of a project, and what became of them since they were written."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from microtrain import __version__
from microtrain.base.errors import Error, short
from microtrain.base.files import replacing
from microtrain.base.paths import CHECKOUT, ROOT
from microtrain.base.reading import reading
from microtrain.convert import boards

RECORD = ".microtrain.json"  # what was written, so that an update knows what the user changed
IGNORE = ".pio/\nfirmware/generated/\n"
DEFAULT_BOARD = re.compile(r"^default_envs = .*$", re.MULTILINE)


@dataclass(frozen=True)
class Record:
    """version: of microtrain; files: path in the project -> SHA-256 of what was written there."""

    version: str
    board: str
    files: dict[str, str]


def sources() -> dict[str, Path]:
    """Every file of the PlatformIO project that ships: its place in a project -> where it is."""
    if not CHECKOUT:
        found = [p for p in ROOT.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    else:
        document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        patterns = document["tool"]["setuptools"]["package-data"]["microtrain.project"]
        found = [p for pattern in patterns for p in ROOT.glob(pattern) if p.is_file()]
    return {p.relative_to(ROOT).as_posix(): p for p in sorted(found)}


def contents(board: str) -> dict[str, bytes]:
    """The files of a project whose first board is `board`, as they are written."""
    files = {name: path.read_bytes() for name, path in sources().items()}
    ini = files["platformio.ini"].decode("utf-8")
    files["platformio.ini"] = DEFAULT_BOARD.sub(f"default_envs = {board}", ini).encode("utf-8")
    return files | {".gitignore": IGNORE.encode("utf-8")}


def create(folder: Path, board: str) -> None:
    """Write a new project.

    Errors   Error where the folder is there and not empty, or cannot be written
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Error(f"{folder} is there and not empty: name a new folder, or --update a project.")
    files = contents(board)
    write(folder, files, Record(__version__, board, digests(files)))


def update(folder: Path) -> list[str]:
    """Bring a project's files to those of this version; returns the paths that changed.

    Errors   Error where it is no project, or the user changed a file that this version changes too
    """
    record = load(folder)
    files = contents(record.board)
    new = digests(files)
    changed = {name for name, digest in new.items() if record.files.get(name) != digest}
    gone = set(record.files) - set(files)
    own = sorted(
        name for name in changed | gone if touched(folder / name, {record.files.get(name), new.get(name)})
    )
    if own:
        names = f"{', '.join(own[:6])}{', ...' if len(own) > 6 else ''}"
        raise Error(
            f"{names} in {folder} changed since microtrain wrote them, and this version changes them too: "
            "move your changes away, update, and make them again."
        )
    write(folder, {name: files[name] for name in changed}, Record(__version__, record.board, new))
    for name in gone:
        (folder / name).unlink(missing_ok=True)
    return sorted(changed | gone)


def touched(path: Path, known: set[str | None]) -> bool:
    """True where a file is there and has none of these digests."""
    return path.is_file() and sha256(path.read_bytes()) not in known


def load(folder: Path) -> Record:
    """The record of a project. Error where there is none that can be read."""
    path = folder / RECORD
    if not path.is_file():
        raise Error(f"{folder} has no {RECORD}: it is no project that `microtrain new` wrote.")
    with reading(Error, lambda why: f"{path} cannot be read ({why}): write a new project."):
        document = json.loads(path.read_text(encoding="utf-8"))
        files = {str(name): str(digest) for name, digest in document["files"].items()}
        outside = next((name for name in files if not inside(name)), None)
        if outside is not None:
            raise ValueError(f"{short(outside)} is no file of a project")
        if document["board"] not in boards.names():
            raise ValueError(f"there is no board {short(document['board'])}")
        return Record(str(document["version"]), document["board"], files)


def inside(name: str) -> bool:
    """Whether a path, as the record has it, stays below the project's folder."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def write(folder: Path, files: dict[str, bytes], record: Record) -> None:
    """Write some files and the record of all. Error where the folder cannot be written."""
    text = json.dumps(asdict(record), indent=1, sort_keys=True) + "\n"
    try:
        for name, data in (files | {RECORD: text.encode("utf-8")}).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as part:
                part.write_bytes(data)
    except OSError as error:
        raise Error(f"cannot write {error.filename or folder}: {error.strerror}.") from error


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: sha256(data) for name, data in files.items()}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
