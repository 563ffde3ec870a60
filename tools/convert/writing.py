"""The files of a conversion: all of them or none, checked against the budget."""

from __future__ import annotations

import getpass
import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from microtrain.base.plan import Origin, text
from microtrain.base.terminal import console, say
from microtrain.pictures.report import Line, Story
from microtrain.pictures.report import report as page

from . import obstacles
from .boards import Limits
from .emit import report, summary
from .emit.arrays import archive
from .emit.code import generate
from .emit.document import document
from .ir import ConvertError
from .pipeline import Compiled


@dataclass(frozen=True)
class Model:
    """The file that was converted.

    kind   which front end read it
    said   what was decided on the way to the int8 graph: a word and a sentence
    """

    path: Path
    kind: str
    said: tuple[Line, ...] = ()


@dataclass(frozen=True)
class Target:
    """Where the files go, and what the model must keep to. asked_for: the user named the scheme."""

    folder: Path
    limits: Limits
    asked_for: bool = True


def write(compiled: Compiled, model: Model, target: Target, more: dict[str, str]) -> None:
    """Check the limits, write the files and `more` (all or none), print the table and what was chosen."""
    obstacles.refuse(f"{compiled.graph.name} does not fit", obstacles.of(compiled, target.limits))
    digest = hashlib.sha256(model.path.read_bytes()).hexdigest()
    generated = generate(compiled, f"{model.path.name} (sha256 {digest[:16]})")
    plan = document(
        compiled,
        generated,
        Origin(model.path.name, digest, model.kind),
        target.limits.budget,
        target.limits.external_name,
    )
    chosen = (
        *summary.choices(plan, target.asked_for),
        *summary.unsaved(plan, target.limits),
        *summary.gated(plan),
        *summary.coded(plan),
        *summary.outside(plan, target.limits),
    )
    story = Story(
        choices=(("model", f"{model.path.name}, {model.kind}"), *model.said, *chosen),
        commands=summary.commands(target.limits),
        firmware=report.firmware(compiled, target.limits),
        quantization=more.get("quantization.svg", ""),
    )
    texts = generated.files | {"plan.json": text(plan), summary.PAGE: page(plan, story)} | more
    files = {name: content.encode() for name, content in texts.items()}
    files["model.npz"] = archive(compiled.graph, generated.model_id)
    write_all(files, target.folder)
    screen = console()
    report.print_table(compiled, target.limits, screen)
    say(f"wrote {', '.join(sorted(files))} to {typed(target.folder)}")
    say(summary.text(chosen, summary.commands(target.limits, typed(target.folder)), screen.width))


def typed(folder: Path) -> Path:
    """A folder as one would type it here."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def write_all(files: dict[str, bytes], folder: Path) -> None:
    """Write every file elsewhere first, then move them in, one process at a time.

    So nothing is left half-written, and of two conversions into one folder the files of one are left.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as new, alone(folder):
            for name, content in files.items():
                (Path(new) / name).write_bytes(content)
            for name in files:
                (Path(new) / name).replace(folder / name)
    except OSError as error:
        raise ConvertError(f"cannot write to {folder}: {error.strerror}") from error


def alone(folder: Path) -> FileLock:
    """Waits until no other process of this user writes to the folder.

    A lock's file cannot be taken away without a race, so a user has 16 of them; folders that share one
    wait for each other.
    """
    user, place = (hashlib.sha256(x.encode()).hexdigest() for x in (getpass.getuser(), str(folder.resolve())))
    return FileLock(Path(tempfile.gettempdir()) / f"microtrain-{user[:8]}-{place[0]}.lock")
