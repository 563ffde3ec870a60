"""The proven stack of each function of the library: the table in docs/embed.md, and the record of a test."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab import notes
from lab.marks import insert
from lab.networks import varied_network
from microtrain.base.paths import ROOT
from microtrain.convert.emit.code import generate
from microtrain.convert.export.write import export
from microtrain.convert.pipeline import Compiled, compile_graph
from microtrain.convert.scheme import Scheme
from microtrain.memory_report.library import proven

from . import page
from .machines import Session

RECORD = ROOT / "lab/pages/stack.json"
CORE, CC = "cortex-m4f", "arm-none-eabi-gcc"
NETWORK, NAME = 3, "small"  # what the test proves again
TOGETHER = ("microtrain_train", "microtrain_predict", "microtrain_step", "microtrain_feed")
LISTED: tuple[str, ...] = (*TOGETHER, "microtrain_imprint", "microtrain_imprint_head", "microtrain_selftest")
LISTED += ("microtrain_save", "microtrain_load", "microtrain_forget")


def compiler() -> str:
    said = subprocess.run([CC, "--version"], capture_output=True, text=True, check=True).stdout
    return said.splitlines()[0]


def small() -> Compiled:
    """A network with many ops, of which all biases and some weights are trained."""
    weights: dict[str | int, float | tuple[int, ...]] = {-1: 0.5, -2: 1.0, -3: 0.6}
    graph = varied_network(NETWORK)
    scheme = Scheme(NAME, -1, weights, head="random")
    return compile_graph(graph, scheme, graph.tensors[graph.output].channels)


def library(folder: Path) -> Path:
    """It as a library, in a folder."""
    generated = folder / f"generated-{NAME}"
    generated.mkdir(parents=True, exist_ok=True)
    for file, text in generate(small(), "lab/cores").files.items():
        (generated / file).write_text(text, encoding="utf-8")
    export(folder / f"library-{NAME}", generated, NAME)
    return folder / f"library-{NAME}"


def measured(example: Session, rows: Sequence[Mapping[str, Any]], folder: Path) -> dict[str, Any]:
    """The record. rows: of all cores, with what was painted."""
    painted = next(r["stack"] for r in rows if (r["core"], r["model"]) == (CORE, example.model))
    return {
        "compiler": compiler(),
        "core": CORE,
        "painted": painted,
        "digits": bytes_of(example.library),
        "small": bytes_of(library(folder)),
    }


def bytes_of(library: Path) -> dict[str, int]:
    return {entry.name: entry.path.bytes for entry in proven(library, CORE, CC)}


def table(record: Mapping[str, Any]) -> str:
    """The functions that take most, a line each, and the rest in one."""
    found: Mapping[str, int] = record["digits"]
    rest = max(size for name, size in found.items() if name not in LISTED)
    rows = [f"| `{name}` | {found[name]:,} |" for name in LISTED]
    return "\n".join(["| | bytes |", "|---|---:|", *rows, f"| any other | {rest:,} |"])


def write(record: Mapping[str, Any]) -> None:
    notes.write(RECORD, record)
    insert(page.PAGE, page.COMMAND, {"stack": table(record)})
