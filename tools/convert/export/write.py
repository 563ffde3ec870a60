"""The folder of the library: what `microtrain export-library` writes, and into which folders it does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from microtrain import __version__
from microtrain.base.errors import Error
from microtrain.base.files import replacing
from microtrain.base.reading import reading

from . import model, packages, sources

RECORD = ".microtrain-library.json"  # the models' names, so that a second one joins the first


def export(folder: Path, generated: Path, name: str | None) -> str:
    """Write the engine and a model into a folder; returns the model's name in C.

    generated  what `convert` wrote
    name       None: made of the name of the model
    Errors     Error where the model cannot be read, or the folder holds something else or cannot be written
    """
    from microtrain.convert.emit.header import API_VERSION

    found = model.read(generated, API_VERSION)
    engine = sources.files()
    taken = model.words([*(engine[file] for file in model.headers()), *found.texts.values()])
    chosen = model.checked_name(name or model.name_of(model.title(found), taken), taken)
    models = [*(m for m in models_of(folder) if m != chosen), chosen]
    files = library(engine, sorted(models))
    files[f"src/{chosen}.h"] = model.header(chosen, found)
    files[f"src/{chosen}.c"] = model.source(chosen, found)
    write(folder, files)
    return chosen


def said(generated: Path, chosen: str) -> str:
    """What the terminal says of a model's pieces: how long they are at most."""
    from microtrain.convert.emit.header import API_VERSION

    lines = model.pieces(model.read(generated, API_VERSION))
    if not lines:
        return ""
    given = f"instructions of a piece of microtrain_step(..., {model.WORK}, ...), gcc -O2 or -Os, at most:"
    macro = f"{chosen.upper()}_PIECE_WORK(n) in {chosen}.h is the number for pieces of n instructions"
    return "\n".join([given, *(f"  {line}" for line in lines), macro])


def library(engine: Mapping[str, str], models: list[str]) -> dict[str, str]:
    """Everything but the models' own files."""
    files = {
        f"src/{name}" if name in sources.PUBLIC else f"src/{sources.FOLDER}/{name}": text
        for name, text in engine.items()
    }
    own = [f"src/{name}.{kind}" for name in models for kind in ("c", "h")]
    files |= packages.files([*files, *own], models)
    files[RECORD] = json.dumps({"version": __version__, "models": models}, indent=1) + "\n"
    return files


def models_of(folder: Path) -> list[str]:
    """The models that a library has. Error where the folder holds anything but a library."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return []
    record = folder / RECORD
    if not record.is_file():
        raise Error(f"{folder} is there and is no library that export-library wrote: name a new folder.")
    with reading(Error, lambda why: f"{record} cannot be read ({why}): name a new folder."):
        return [
            model.checked_name(str(name)) for name in json.loads(record.read_text(encoding="utf-8"))["models"]
        ]


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Error where the folder cannot be written."""
    try:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as part:
                part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Error(f"cannot write to {folder}: {error.strerror}.") from error
