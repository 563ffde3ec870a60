"""How the firmware's programs are built, and what of them a mutant changes.

PlatformIO says once, in its verbose log, how it compiles and links; a mutant then costs the files that hold
it and a link. All commands run at the root of a tree, which is the checkout or a copy of it with a bug.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from microtrain.base.commands import checked
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.base.pio import pio
from microtrain.convert.export.sources import ROOTS
from microtrain.convert.reference import hostlib

FOLDER = ROOT / "build/mutation"
GENERATED = "build/mutation/generated"  # of the example, in every tree
OUTSIDE = "build/mutation/outside"  # the same with weights beside the chip, which one board has
MODELS = {"example": GENERATED, "null": "test/fixtures/null_model", "outside": OUTSIDE}
ENVIRONMENTS = ("disco_f746ng", "nucleo_f446re", "native", "native_asan")
UNIT_TESTS = "test/test_native_runtime/test_runtime.c"
DROPPED = ("-g", "-fstack-usage")  # would make objects of one meaning differ
HELIUM = "-mcpu=cortex-m55 -mthumb -mfloat-abi=hard -std=c11 -O2 -ffp-contract=off"
# What a model asks for, all at once. No program is linked of that: it says which bugs only such models have.
FEATURES = (
    *("-DMODEL_RECORDS=8", "-DMODEL_IMPRINT=1", "-DMODEL_TARGETS=2", "-DMODEL_GUESSES=2"),
    *('-DMODEL_TASK="a test"', '-DMODEL_SOUND="a test"'),
    *("-DMODEL_HOP=2", "-DMODEL_HEARD=3", "-DMODEL_ALL_HEARD=4", "-DMICROTRAIN_EXTERNAL=1"),
)
COMPILERS, SUFFIXES = ("arm-none-eabi-gcc", "cc"), (".c", ".S")


@dataclass(frozen=True)
class Recipe:
    """How one program is built.

    name      the model and the environment, or what it is
    compile   the command of each source, less the name of the object at its end
    link      the command, less the objects and what is made; empty: it only says what a bug changes
    needs     the files that each source includes, and itself
    """

    name: str
    compile: dict[str, list[str]]
    link: list[str]
    needs: dict[str, list[str]]

    def sources_of(self, file: str) -> list[str]:
        """The sources that a change of a file changes."""
        return [source for source, files in self.needs.items() if file in files]


def object_name(source: str) -> str:
    return source.replace("/", "-") + ".o"


# ---------------------------------------------------------------- the commands
def recipes() -> list[Recipe]:
    """Every program that the suites run; what they need is asked of the compiler."""
    logs = {model: log(model) for model in MODELS}
    found = [parse(text, model, name) for model, text in logs.items() for name in environments(model)]
    native = next(each for each in found if each.name == "null-native")
    found += [puppet(), kernels(), unit_tests(native), features(native), library(), helium()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(_with_needs, found))


def environments(model: str) -> tuple[str, ...]:
    """Those that a model is built for."""
    return ("disco_f746ng",) if model == "outside" else ENVIRONMENTS


def log(model: str) -> str:
    """What PlatformIO says when it builds a model for each of its environments."""
    workspace = FOLDER / f"pio-{model}"
    selection = [word for name in environments(model) for word in ("-e", name)]
    pio("run", *selection, "-t", "clean", workspace=workspace, model=ROOT / MODELS[model])
    done = pio("run", "-v", *selection, workspace=workspace, model=ROOT / MODELS[model])
    checked(done, workspace.with_suffix(".log"))
    return done.stdout


def parse(text: str, model: str, environment: str) -> Recipe:
    """The commands of one environment in a verbose log."""
    own = f"/{environment}/"
    compiled: dict[str, list[str]] = {}
    link: list[str] = []
    for line in text.splitlines():
        words = shlex.split(line) if line.split(" ", 1)[0] in COMPILERS else []
        if "-o" not in words or own not in words[words.index("-o") + 1]:
            continue
        at = words.index("-o")
        rest = [word for word in words[:at] + words[at + 2 :] if word not in DROPPED]
        if "-c" in rest:
            source = next(
                word for word in rest if word.endswith(SUFFIXES)
            )  # a file's own flags stand behind it
            compiled[os.path.relpath(ROOT / source, ROOT)] = [word for word in rest if word != source]
        else:
            link = [word for word in rest if not word.endswith(".o") and "-Map" not in word]
    if not compiled or not link:
        raise Error(f"PlatformIO's log names no commands for {environment}: see {FOLDER}/pio-{model}.log.")
    return Recipe(f"{model}-{environment}", compiled, link, {})


def with_model(recipe: Recipe, model: Path) -> Recipe:
    """A recipe of the null model for another one, whose headers are the same."""
    own = {f"{MODELS['null']}/{path.name}": str(path) for path in model.glob("*.c")}
    compiled = {own.get(source, source): command for source, command in recipe.compile.items()}
    return Recipe(recipe.name, compiled, recipe.link, recipe.needs)


def puppet() -> Recipe:
    """The library of test/puppet.py: the firmware around a board whose troubles a test chooses."""
    flags = "-std=c11 -O1 -Wall -Wextra -Wconversion -Wshadow -Werror -ffp-contract=off -fPIC"
    include = ("firmware/include", "firmware/src/kernels", MODELS["null"])
    sources = [*_portable(), f"{MODELS['null']}/model.c", "test/fixtures/puppet.c"]
    more = [p for p in sorted((ROOT / MODELS["null"]).glob("*.c")) if p.name != "model.c"]
    return _hosted("puppet", flags.split(), include, [*sources, *(str(p.relative_to(ROOT)) for p in more)])


def kernels() -> Recipe:
    """The library of the kernels, as the tests compare it with NumPy."""
    flags = [*(flag for flag in hostlib.FLAGS if flag != "-shared"), "-O2"]
    sources = [file for file in _portable() if "/kernels/" in file]
    return _hosted("kernels", flags, ("firmware/include", "firmware/src/kernels"), sources)


def unit_tests(native: Recipe) -> Recipe:
    """The C unit tests of `pio test -e native`: the null model's program with another main."""
    sources = {file: command for file, command in native.compile.items() if not file.endswith("/main.c")}
    command = [*next(iter(sources.values())), "-Ifirmware/src"]
    return Recipe("unit-tests", {**sources, UNIT_TESTS: command}, native.link, {})


def features(native: Recipe) -> Recipe:
    """The firmware of a model that has all that not every model has."""
    sources = {s: command for s, command in native.compile.items() if "/runtime/" in s or "/serial/" in s}
    return Recipe("features", {s: [*command, *FEATURES] for s, command in sources.items()}, [], {})


def library() -> Recipe:
    """The engine as the library has it."""
    flags = ["-std=c11", "-O1", "-ffp-contract=off", "-include", "firmware/src/runtime/library.h"]
    include = ("firmware/include", "firmware/src/kernels", MODELS["null"])
    roots = [f"firmware/{root}" for root in ROOTS if root.endswith(".c")]
    sources = [*roots, *(file for file in _portable() if "/kernels/" in file)]
    return replace(_hosted("library", flags, include, sources), link=[])


def helium() -> Recipe:
    """The kernels for a Cortex-M55."""
    include = " ".join(f"-I{folder}" for folder in ("firmware/include", "firmware/src/kernels"))
    command = f"arm-none-eabi-gcc {HELIUM} {include} -c".split()
    return Recipe("helium", {file: command for file in _portable() if "/kernels/" in file}, [], {})


def _portable() -> list[str]:
    """The firmware's C that knows no board."""
    others = {ROOT / "firmware/src/board", ROOT / "firmware/src/main.c"}
    files = sorted((ROOT / "firmware/src").rglob("*.c"))
    return [str(p.relative_to(ROOT)) for p in files if not others & {p, *p.parents}]


def _hosted(name: str, flags: list[str], include: Iterable[str], sources: Iterable[str]) -> Recipe:
    command = ["gcc", *flags, *(f"-I{folder}" for folder in include), "-c"]
    return Recipe(name, dict.fromkeys(sources, command), ["gcc", "-shared", "-lm"], {})


def _with_needs(recipe: Recipe) -> Recipe:
    needs = {}
    for source, command in recipe.compile.items():
        done = subprocess.run([*command, "-MM", source], cwd=ROOT, capture_output=True, text=True, check=True)
        files = done.stdout.replace("\\\n", " ").split(":", 1)[1].split()
        needs[source] = [os.path.relpath(ROOT / file, ROOT) for file in files]
    return Recipe(recipe.name, recipe.compile, recipe.link, needs)


# ---------------------------------------------------------------- what is built
def save(found: list[Recipe]) -> None:
    (FOLDER / "recipes.json").write_text(json.dumps([asdict(recipe) for recipe in found]), encoding="utf-8")


def load(folder: Path) -> dict[str, Recipe]:
    entries = json.loads((folder / "recipes.json").read_text(encoding="utf-8"))
    return {entry["name"]: Recipe(**entry) for entry in entries}


def compile_sources(recipe: Recipe, sources: Iterable[str], tree: Path, objects: Path) -> bool:
    """Compile some sources of a tree. False: the compiler refuses one."""
    objects.mkdir(parents=True, exist_ok=True)
    for source in sources:
        command = [*recipe.compile[source], "-o", str(objects / object_name(source)), source]
        if subprocess.run(command, cwd=tree, capture_output=True, check=False).returncode:
            return False
    return True


def preprocessed(recipe: Recipe, source: str, tree: Path) -> bytes:
    """What the compiler makes of a source before it compiles it, less where it stood."""
    words = [word for word in recipe.compile[source] if word != "-c"]
    done = subprocess.run([*words, "-E", "-P", source], cwd=tree, capture_output=True, check=False)
    return done.stdout


def link(recipe: Recipe, baseline: Path, objects: Mapping[str, Path], target: Path) -> Path:
    """Link a program of the objects of the baseline, and of others in their place.

    objects   by source, those that are not the baseline's
    Errors    Error where the linker refuses
    """
    parts = [str(objects.get(source, baseline / object_name(source))) for source in recipe.compile]
    target.parent.mkdir(parents=True, exist_ok=True)
    at = next((i for i, word in enumerate(recipe.link) if word.startswith("-l")), len(recipe.link))
    command = [*recipe.link[:at], *parts, *recipe.link[at:], "-o", str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Error(f"{recipe.name} does not link: {done.stderr.strip().splitlines()[-1]}")
    return target


def build_baseline(found: list[Recipe]) -> None:
    """The programs without a bug, and their objects."""
    for recipe in found:
        objects = FOLDER / "baseline" / recipe.name
        if not compile_sources(recipe, recipe.compile, ROOT, objects):
            raise Error(f"{recipe.name} does not compile: run `make lint`.")
        for source in recipe.compile:
            text = objects / f"{object_name(source)}.i"
            text.write_bytes(preprocessed(recipe, source, ROOT))
        if recipe.link:
            link(recipe, objects, {}, objects / "product")
