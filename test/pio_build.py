"""Builds the firmware with PlatformIO in a folder of its own, for tests."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from microtrain.base.hostcc import cache_folder
from microtrain.base.pio import pio as run_pio
from microtrain.base.pio import product, with_ccache

ROOT = Path(__file__).resolve().parent.parent
NULL_MODEL = ROOT / "test" / "fixtures" / "null_model"


def pio(
    workspace: Path, *arguments: str, model: Path = NULL_MODEL, project: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run PlatformIO; its build folder is workspace/build, and nothing else of this machine is touched."""
    own = {"PLATFORMIO_CORE_DIR": str(workspace / "core"), "CC": None}
    return run_pio(*arguments, workspace=workspace, model=named_by_content(model), project=project, extra=own)


def named_by_content(model: Path) -> Path:
    """A link to a generated model: ccache knows a source where its headers have the names that they had."""
    if model.is_relative_to(ROOT) or not (model / "model.c").is_file():
        return model
    content = hashlib.sha256()
    for path in sorted(model.glob("*.[ch]")):
        content.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    links = cache_folder() / "models"
    links.mkdir(exist_ok=True)
    link = links / content.hexdigest()[:16]
    new = links / f"{link.name}.{os.getpid()}"
    new.unlink(missing_ok=True)
    new.symlink_to(model.resolve())
    return new.replace(link)


def build(workspace: Path, environment: str, model: Path = NULL_MODEL) -> Path:
    """Build one environment; returns the ELF or the program. AssertionError with the log where it fails."""
    result = pio(workspace, "run", "-s", "-e", environment, model=model)
    assert result.returncode == 0, result.stdout + result.stderr
    return product(workspace, environment)


def host_program(model: Path, folder: Path) -> Path:
    """What `pio run -e native` makes of a generated model, without PlatformIO."""
    firmware, path, model = ROOT / "firmware/src", folder / "program", named_by_content(model)
    chips = [p for p in (firmware / "board").iterdir() if p.name != "host"]
    sources = [p for p in sorted(firmware.rglob("*.c")) if not {*chips} & {*p.parents}]
    include = [f"-I{p}" for p in (ROOT / "firmware/include", model)]
    flags = ["-std=c11", "-O1", "-ffp-contract=off", *include]
    objects = folder / "objects"
    objects.mkdir()
    found = {
        str(source): str(objects / f"{source.stem}.o") for source in [*sources, *sorted(model.glob("*.c"))]
    }
    environment = {**os.environ, **with_ccache()}
    for source, target in found.items():
        subprocess.run(["gcc", *flags, "-c", source, "-o", target], env=environment, check=True)
    subprocess.run(["gcc", *found.values(), "-lm", "-o", str(path)], check=True)
    return path


def build_once(factory: pytest.TempPathFactory, name: str, *environments: str) -> tuple[Path, str]:
    """Build environments with the null model, once for all parallel workers of a test run.

    Returns the workspace and what PlatformIO printed.
    """

    def run(workspace: Path) -> None:
        result = pio(workspace, "run", *(word for name in environments for word in ("-e", name)))
        assert result.returncode == 0, result.stdout + result.stderr
        (workspace / "log.txt").write_text(result.stdout + result.stderr)

    workspace = once(factory, name, run)
    return workspace, (workspace / "log.txt").read_text()


def once(factory: pytest.TempPathFactory, name: str, fill: Callable[[Path], None]) -> Path:
    """A folder that is filled once for all parallel workers of a test run."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "filled").exists():
            fill(folder)
            (folder / "filled").touch()
    return folder


def copy_project(folder: Path) -> Path:
    """A copy of the project, in folder/project: all that a build of the firmware needs."""
    project = folder / "project"
    for name in ("platform", "scripts", "firmware"):
        ignored = shutil.ignore_patterns("generated", "__pycache__")
        shutil.copytree(ROOT / name, project / name, ignore=ignored)
    shutil.copy(ROOT / "platformio.ini", project / "platformio.ini")
    return project


def with_bug(folder: Path, file: str, before: str, after: str) -> Path:
    """A copy of the project, in folder/project, with a bug in a file of firmware/src."""
    project = copy_project(folder)
    (source,) = (project / "firmware/src").rglob(file)
    text = source.read_text()
    assert before in text
    source.write_text(text.replace(before, after))
    return project


def board_with_bug(folder: Path, file: str, before: str, after: str) -> Path:
    """The board's ELF of such a copy."""
    project = with_bug(folder, file, before, after)
    result = pio(folder / "pio", "run", "-s", "-e", "disco_f746ng", project=project)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder / "pio/build/disco_f746ng/firmware.elf"
