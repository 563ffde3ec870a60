"""The programs of one mutant, in place of those that the tests would build with PlatformIO."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from microtrain.base import pio
from microtrain.base.errors import Error

from . import builds
from .builds import MODELS, Recipe, object_name
from .operators import Mutant


class RefusedError(Exception):
    """The compiler refuses a mutant."""


@dataclass
class Programs:
    """What a tree's programs are linked of.

    recipes   by name
    baseline  folder of the objects without a bug
    folder    of what a mutant changes
    mutant    that is planted, in `tree`; None: none is
    """

    recipes: dict[str, Recipe]
    baseline: Path
    folder: Path
    tree: Path
    mutant: Mutant | None = None
    _changed: dict[str, dict[str, Path]] = field(default_factory=dict)

    def plant(self, mutant: Mutant | None) -> None:
        """From now on the programs have this bug, which is in the tree already."""
        self.mutant, self._changed = mutant, {}
        for product in self.folder.glob("*/product"):
            product.unlink()

    def differs(self, name: str) -> bool:
        """Whether the mutant changes an object of a program; compiled the first time that it is asked for.

        Errors   RefusedError where it does not compile
        """
        return bool(self._objects(name))

    def _objects(self, name: str) -> dict[str, Path]:
        """The objects that are not the baseline's, by source."""
        if self.mutant is None:
            return {}
        if name not in self._changed:
            recipe, objects = self.recipes[name], self.folder / name
            sources = [s for s in recipe.sources_of(self.mutant.file) if self._reads_otherwise(recipe, s)]
            if not builds.compile_sources(recipe, sources, self.tree, objects):
                raise RefusedError(name)
            compiled = {source: objects / object_name(source) for source in sources}
            old = self.baseline / name
            self._changed[name] = {
                source: path
                for source, path in compiled.items()
                if path.read_bytes() != (old / object_name(source)).read_bytes()
            }
        return self._changed[name]

    def _reads_otherwise(self, recipe: Recipe, source: str) -> bool:
        """Whether the preprocessor makes something else of a source: a macro of a header changes few."""
        old = self.baseline / recipe.name / f"{object_name(source)}.i"
        return builds.preprocessed(recipe, source, self.tree) != old.read_bytes()

    def product(self, name: str) -> Path:
        """The program; linked the first time that it is asked for.

        Errors   Error where it does not link: what it is made of is too large for the board
        """
        objects = self._objects(name)
        if not objects:
            return self.baseline / name / "product"
        target = self.folder / name / "product"
        if not target.is_file():
            builds.link(self.recipes[name], self.baseline / name, objects, target)
        return target

    def custom(self, environment: str, model: Path, folder: Path) -> Path:
        """The program of the null model with another model.c.

        Errors   Error where the model's header is another one: then every object would be
        """
        null = builds.ROOT / MODELS["null"]
        if (model / "model.h").read_bytes() != (null / "model.h").read_bytes():
            raise Error(f"{model} has a header of its own: leave its tests out of the suites.")
        name = f"null-{environment}"
        recipe = builds.with_model(self.recipes[name], model)
        own = [source for source in recipe.compile if source.startswith(str(model))]
        if not builds.compile_sources(recipe, own, builds.ROOT, folder):
            raise Error(f"{model} does not compile.")
        objects = self._objects(name) | {source: folder / object_name(source) for source in own}
        return builds.link(recipe, self.baseline / name, objects, folder / "product")


class Fixtures:
    """A plugin of pytest: the fixtures of conftest.py take these programs. pytest imports that file anew.

    failed   the first test that did
    """

    def __init__(self, programs: Programs) -> None:
        self.programs, self.failed = programs, ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid.rsplit("/", 1)[-1]

    def pytest_collection_modifyitems(self) -> None:
        conftest: Any = sys.modules["conftest"]
        with_platformio = conftest.build_example

        def build_example(
            scheme: Path, folder: Path, board: bool = True, *options: str, silent: bool = True
        ) -> Any:
            if options:
                return with_platformio(scheme, folder, board, *options, silent=silent)
            generated = folder / "generated"
            generated.symlink_to(builds.ROOT / MODELS["example"])
            elf, program = (build(folder / "pio", name, generated) for name in (pio.BOARD, pio.NATIVE))
            return conftest.Built(generated, elf, program, "")

        def build(workspace: Path, environment: str, model: Path) -> Path:
            return linked(self.programs, workspace, environment, "example")

        conftest.build_example = build_example
        conftest.build = build


def linked(programs: Programs, workspace: Path, environment: str, model: str) -> Path:
    """The program of a model where PlatformIO would have built it."""
    place = pio.product(workspace, environment)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(programs.product(f"{model}-{environment}"))
    return place


def instead_of_platformio(programs: Programs, tests: Path) -> None:
    """Let the tests' helpers take these programs. Call it before a test module is imported."""
    sys.path.insert(0, str(tests))
    import pio_build
    import puppet

    def build_once(factory: Any, name: str, *environments: str) -> tuple[Path, str]:
        workspace: Path = factory.mktemp("null")
        for environment in builds.ENVIRONMENTS:
            linked(programs, workspace, environment, "null")
        return workspace, ""

    def build(workspace: Path, environment: str, model: Path = pio_build.NULL_MODEL) -> Path:
        return programs.custom(environment, model, workspace / "objects")

    helpers: Any = pio_build
    helpers.build = build
    helpers.build_once = build_once
    library: Any = puppet
    library.build = lambda folder: ctypes.CDLL(str(programs.product("puppet")))
