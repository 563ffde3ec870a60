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
from microtrain.memory_report.library import CORES, proven

from . import page
from .machines import Session

RECORD = ROOT / "lab/pages/stack.json"
CORE = "cortex-m4f"
SHOWN = (CORE, "rv32imc", "rv32imafc")  # on the page
NETWORK, NAME = 6, "small"  # what the test proves again; it takes the deepest ways there are
TOGETHER = ("microtrain_train", "microtrain_predict", "microtrain_step", "microtrain_feed")
LISTED: tuple[str, ...] = (*TOGETHER, "microtrain_imprint", "microtrain_imprint_head", "microtrain_selftest")
LISTED += ("microtrain_save", "microtrain_load", "microtrain_forget")


def compiler(core: str) -> str:
    command = [CORES[core][0], "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
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
    """The record: of each core that is among the rows, what was painted and what is proven."""
    painted = {r["core"]: r["stack"] for r in rows if r["model"] == example.model and r["core"] in CORES}
    small = library(folder)
    return {
        core: {
            "compiler": compiler(core),
            "painted": painted[core],
            "digits": bytes_of(example.library, core),
            "small": bytes_of(small, core),
        }
        for core in painted
    }


def bytes_of(library: Path, core: str) -> dict[str, int]:
    return {entry.name: entry.path.bytes for entry in proven(library, core)}


def table(record: Mapping[str, Any]) -> str:
    """The functions that take most, a line each, and the rest in one; and what training was seen to take."""
    found: list[Mapping[str, int]] = [record[core]["digits"] for core in SHOWN]
    lines = [f"| | {' | '.join(SHOWN)} |", f"|---|{'---:|' * len(SHOWN)}"]
    lines += [_row(f"`{name}`", [sizes[name] for sizes in found]) for name in LISTED]
    lines.append(_row("any other", [max(s for n, s in sizes.items() if n not in LISTED) for sizes in found]))
    lines.append(_row("`microtrain_train`, painted", [record[core]["painted"] for core in SHOWN]))
    return "\n".join(lines)


def _row(name: str, sizes: Sequence[int]) -> str:
    return f"| {name} | {' | '.join(f'{size:,}' for size in sizes)} |"


def write(record: Mapping[str, Any]) -> None:
    notes.write(RECORD, record)
    insert(page.PAGE, page.COMMAND, {"stack": table(record)})
