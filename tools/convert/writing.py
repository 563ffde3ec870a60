"""The files of a conversion: all of them or none, checked against the budget."""

from __future__ import annotations

import getpass
import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from microtrain.base.plan import Budget, Origin, text
from microtrain.base.terminal import say

from .boards import Board
from .emit import report
from .emit.arrays import archive
from .emit.document import document
from .ir import ConvertError
from .loading import screen
from .pipeline import Compiled, generate


@dataclass(frozen=True)
class Model:
    """The file that was converted. kind: which front end read it."""

    path: Path
    kind: str


@dataclass(frozen=True)
class Target:
    """Where the files go, and for which board. None, None: for this machine, which has no budgets."""

    folder: Path
    board: Board | None
    budget: Budget | None


def write(compiled: Compiled, model: Model, target: Target, more: dict[str, str]) -> None:
    """Check the budget, if any, write the files and `more` (all or none) and print the table."""
    if target.board is not None and target.budget is not None:
        report.check_budget(compiled, target.budget, target.board)
    digest = hashlib.sha256(model.path.read_bytes()).hexdigest()
    generated = generate(compiled, f"{model.path.name} (sha256 {digest[:16]})")
    plan = document(compiled, generated, Origin(model.path.name, digest, model.kind), target.budget)
    texts = generated.files | {"plan.json": text(plan)} | more
    files = {name: content.encode() for name, content in texts.items()}
    files["model.npz"] = archive(compiled.graph, generated.model_id)
    write_all(files, target.folder)
    report.print_table(compiled, target.budget, screen(), target.board)
    say(f"wrote {', '.join(sorted(files))} to {target.folder}")


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
    """Waits until no other process of this user writes to the folder."""
    owner = f"{getpass.getuser()}:{folder.resolve()}"
    name = f"microtrain-{hashlib.sha256(owner.encode()).hexdigest()[:16]}.lock"
    return FileLock(Path(tempfile.gettempdir()) / name)
