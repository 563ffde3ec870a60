"""Batches of networks as libraries, written once for all cores and flags."""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

from microtrain.base.paths import ROOT
from microtrain.convert.emit.code import generate
from microtrain.convert.export.write import export
from microtrain.convert.ir import Graph
from microtrain.convert.memory.replay import buffer_bytes, classes
from microtrain.convert.pipeline import Compiled

from . import held_out, networks

SOURCES = {**networks.SOURCES, **held_out.SOURCES}
AT_ONCE, LARGE_AT_ONCE = 12, 2  # models in a program
LARGE = ("large", "published")
SIZES = ("ARENA_BYTES", "TRAINABLE_BYTES", "CLASSES", "WIDTH", "CHANNELS")
ROOM = 70  # records that pieces.c makes; as many as there are classes where these are more
GRAPHS, LIBRARY, DIGEST, LIST = "graphs.pickle", "library", "digest", ".batches"
PROGRAM = Path(__file__).with_name("pieces.c")
OWN = ("library.py", "networks.py", "chains.py", "held_out.py", "pieces.c")
OTHERS = ("tools/**/*.py", "firmware/**/*.[chS]", "lab/networks.py", "lab/sizes/networks.py")
INPUTS = (*OTHERS, *(f"lab/pieces/{name}" for name in OWN))


def written(models: Mapping[str, Compiled], folder: Path, works: Sequence[int]) -> Path:
    """One library with all models, and what pieces.c asks for."""
    made, sizes = folder / LIBRARY, {"RECORDS_BYTES": 8, **dict.fromkeys(SIZES, 1)}
    for name, compiled in models.items():
        generated = folder / f"generated-{name}"
        generated.mkdir(parents=True, exist_ok=True)
        for file, text in generate(compiled, "lab/pieces").files.items():
            (generated / file).write_text(text, encoding="utf-8")
        export(made, generated, name)
        shutil.rmtree(generated)
        header = (made / f"src/{name}.h").read_text(encoding="utf-8")
        found = dict(re.findall(rf"^#define {name.upper()}_(\w+) (\d+)$", header, re.MULTILINE))
        own = {size: int(found[size]) for size in SIZES} | {"RECORDS_BYTES": records_bytes(compiled.graph)}
        sizes = {size: max(most, own[size]) for size, most in sizes.items()}
    lines = [f'#include "{name}.h"' for name in models]
    lines += [f"enum {{ MOST_{size} = {most} }};" for size, most in sizes.items()]
    lines.append(f"enum {{ ROOM = {ROOM} }};")
    listed = ", ".join(f"&{name}" for name in models)
    lines.append(f"static const struct microtrain_model *const models[] = {{{listed}}};")
    lines.append(f"static const uint32_t works[] = {{{', '.join(map(str, works))}}};")
    (made / "src/models.h").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return made


def records_bytes(graph: Graph) -> int:
    """Of the memory that pieces.c gives a model for records."""
    return buffer_bytes(graph, max(ROOM, classes(graph))) if graph.record else 0


@dataclass(frozen=True)
class Batch:
    """Models of one program. digest: of all files that it is made of, and of pieces.c; engine: of those that
    all models share."""

    folder: Path
    digest: str
    engine: str

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def source(self) -> str:
        return self.name.rstrip("0123456789")

    @property
    def library(self) -> Path:
        return self.folder / LIBRARY

    def graphs(self) -> dict[str, Graph]:
        """By the models' names, in the order of the program."""
        found: dict[str, Graph] = pickle.loads((self.folder / GRAPHS).read_bytes())
        return found


def libraries(folder: Path, works: Sequence[int], sources: Iterable[str] = SOURCES) -> list[Batch]:
    """Networks of some sources, converted again where what makes or measures them has changed."""
    stamp = f"{digest(path for each in INPUTS for path in ROOT.glob(each))} {works}"
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        jobs = [pool.submit(made_of, source, folder, works, stamp) for source in sources]
        return [batch for job in jobs for batch in job.result()]


def known(folder: Path, sources: Iterable[str] = SOURCES) -> list[Batch]:
    """Those of some sources that were converted before, whatever has changed since."""
    found = [folder / line for source in sources for line in _listed(folder / source)[1:]]
    return [Batch(each, *(each / DIGEST).read_text(encoding="utf-8").split()) for each in found]


def made_of(source: str, folder: Path, works: Sequence[int], stamp: str) -> list[Batch]:
    """The batches of a source of networks."""
    if _listed(folder / source)[:1] != [stamp]:
        made, found = SOURCES[source](folder / "networks"), []
        for number, models in enumerate(_batches(made, LARGE_AT_ONCE if source in LARGE else AT_ONCE)):
            found.append(f"{source}{number}")
            _make(models, folder / found[-1], works)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / source).with_suffix(LIST).write_text("\n".join([stamp, *found]), encoding="utf-8")
    return known(folder, (source,))  # others may be under way


def _listed(source: Path) -> list[str]:
    path = source.with_suffix(LIST)
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def _batches(found: Iterable[tuple[str, Compiled]], at_once: int) -> Iterator[dict[str, Compiled]]:
    left = iter(found)
    while models := dict(islice(left, at_once)):
        yield models


def _make(models: Mapping[str, Compiled], folder: Path, works: Sequence[int]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    made = written(models, folder, works)
    graphs = {name: compiled.graph for name, compiled in models.items()}
    (folder / GRAPHS).write_bytes(pickle.dumps(graphs))
    own, engine = [*(made / "src").glob("*.c"), made / "src/models.h"], [*(made / "src/microtrain").iterdir()]
    text = f"{digest([*own, *engine, PROGRAM])} {digest(engine)}"  # the models' headers hold bounds
    (folder / DIGEST).write_text(text, encoding="utf-8")


def digest(files: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for path in sorted(files):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:16]
