"""What several test modules build once: the example, converted and compiled."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from pio_build import build, once, pio

from microtrain.base.pio import BOARD, NATIVE, product

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples/digits"

# Compiled Python is kept, whatever the environment says: a command would spend a third of its time on it.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The same examples on every machine and in every run; how long one takes says nothing on a busy machine.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")


def pytest_collection_finish() -> None:
    """Python's collector leaves modules and tests alone, and looks at what is new a seventieth as often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


@dataclass(frozen=True)
class Built:
    """The digits example with its sparse scheme.

    folder   plan.json, model.c, ...
    elf      firmware for the board, built by `pio run`
    program  firmware for this machine, built by `pio run -e native`
    output   what `pio run` printed, if it was not silent
    """

    folder: Path
    elf: Path
    program: Path
    output: str

    @property
    def plan(self) -> dict[str, object]:
        result: dict[str, object] = json.loads((self.folder / "plan.json").read_text())
        return result


def run(arguments: list[str], **extra: str) -> str:
    """Run a command ("python" is this one) in the project root; the test fails with its output."""
    program = sys.executable if arguments[0] == "python" else arguments[0]
    done = subprocess.run(
        [program, *arguments[1:]],
        cwd=ROOT,
        env={**os.environ, **extra},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def build_example(
    scheme: Path, folder: Path, board: bool = True, *options: str, silent: bool = True
) -> Built:
    """Convert the example with a scheme and build it for this machine and, if asked, for the board.

    As the demo does, without statistics of features, unless the options say otherwise.
    """
    generated, workspace = folder / "generated", folder / "pio"
    arguments = [str(EXAMPLE / "model.pt"), "--scheme", str(scheme), "--classes", "10", "-o", str(generated)]
    imprint = () if "--imprint" in options else ("--imprint", "off")
    run(["python", "tools/convert", *arguments, *imprint, *options])
    words = [*(["-s"] if silent else []), "-e", NATIVE, *(["-e", BOARD] if board else [])]
    done = pio(workspace, "run", *words, model=generated)
    assert done.returncode == 0, done.stdout + done.stderr
    elf, program = (product(workspace, name) for name in (BOARD, NATIVE))
    return Built(generated, elf, program, done.stdout + done.stderr)


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The example with its sparse scheme. Tests read it and change nothing in it."""

    def fill(folder: Path) -> None:
        built = build_example(EXAMPLE / "scheme.yaml", folder, silent=False)
        (folder / "log.txt").write_text(built.output)

    folder = once(tmp_path_factory, "example", fill)
    elf, program = (product(folder / "pio", name) for name in (BOARD, NATIVE))
    return Built(folder / "generated", elf, program, (folder / "log.txt").read_text())


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's images, as its own tool exports them: train/CLASS and test/CLASS, for tests to read."""

    def export(folder: Path) -> None:
        run(["python", str(EXAMPLE / "export_images.py"), str(folder / "images")])

    return once(tmp_path_factory, "digits", export) / "images"


def few(images: Path, folder: Path, train: int, test: int) -> Path:
    """A folder with the first so many images of each class."""
    for count, part in ((train, "train"), (test, "test")):
        for each in (images / part).iterdir():
            (folder / part / each.name).mkdir(parents=True)
            for file in sorted(each.iterdir())[:count]:
                shutil.copy(file, folder / part / each.name / file.name)
    return folder


@pytest.fixture(scope="session")
def nucleo_elf(example: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The very files that were converted for `example`, built for the smaller board."""
    return of_example(tmp_path_factory, "nucleo_f446re", example)


@pytest.fixture(scope="session")
def sanitized_program(example: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for this machine, under address and undefined behaviour sanitizers."""
    return of_example(tmp_path_factory, "native_asan", example)


def of_example(factory: pytest.TempPathFactory, environment: str, example: Built) -> Path:
    """The example's files, built for another environment."""

    def fill(folder: Path) -> None:
        build(folder, environment, example.folder)

    return product(once(factory, f"example-{environment}", fill), environment)
