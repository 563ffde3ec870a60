"""The rooms of the house, from the lowest to the highest, and which imports run up.

A room imports rooms on the floors below its own, and nothing of its own floor or above. What users run never
imports the lab, and the base stands on nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from microtrain.base.paths import ROOT

FLOORS = (
    (
        "microtrain.base",
    ),  # errors, files that are not trusted, plan.json, ELF, the host's compiler, PlatformIO
    ("microtrain.samples", "microtrain.native"),  # what is learned from; a generated model on this machine
    ("microtrain.convert", "microtrain.emulator"),  # the compiler; the board model
    ("microtrain.device", "microtrain.elfcheck", "microtrain.memory_report"),  # what talks and looks
    ("microtrain.simulate",),
    ("microtrain.search",),
    ("microtrain.demo", "microtrain.new"),
    ("microtrain.cli", "lab.notes", "lab.marks"),
    ("lab.soak", "lab.golden", "lab.forgetting"),
    ("lab.bench",),
    (
        "lab.instructions",
        "lab.results",
        "lab.attack",
        "lab.claims",
        "lab.coverage",
        "lab.house",
    ),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


def rooms_on_disk(root: Path = ROOT) -> set[str]:
    """Every package and module in tools/ and lab/, by the name that it is imported by."""
    homes = {"microtrain": root / "tools", "lab": root / "lab"}
    packages = {f"{name}.{p.parent.name}" for name, home in homes.items() for p in home.glob("*/__init__.py")}
    modules = {f"{name}.{p.stem}" for name, home in homes.items() for p in home.glob("[!_]*.py")}
    return packages | modules


def imports(file: Path, module: str) -> Iterator[str]:
    """Modules that a file imports anywhere in it. module: the file's own name."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*module.split(".")[: -node.level], *filter(None, [base])])
            yield from (f"{base}.{name.name}" for name in node.names)


def room_of(module: str) -> str | None:
    """The room that a module lies in; None for a module of neither tools/ nor lab/."""
    parts = module.split(".")
    inside = parts[0] in ("microtrain", "lab") and len(parts) > 1 and not parts[1].startswith("__")
    return ".".join(parts[:2]) if inside else None


def arrows(root: Path = ROOT) -> Iterator[tuple[str, str, Path]]:
    """(room, room that it imports, file), of all files of all rooms."""
    for name, home in (("microtrain", root / "tools"), ("lab", root / "lab")):
        for file in sorted(home.glob("**/[!_]*.py")):
            module = ".".join([name, *file.relative_to(home).with_suffix("").parts])
            own = room_of(module)
            for other in map(room_of, imports(file, module)):
                if own and other and other != own:
                    yield own, other, file.relative_to(root)


def borrowed_heads(root: Path = ROOT) -> list[str]:
    """Files that import the command line of another room: what they want belongs in a module of its own."""
    found = []
    for name, home in (("microtrain", root / "tools"), ("lab", root / "lab")):
        for file in sorted(home.glob("**/[!_]*.py")):
            module = ".".join([name, *file.relative_to(home).with_suffix("").parts])
            heads = [x for x in imports(file, module) if x.split(".")[2:3] == ["cli"]]
            if any(room_of(head) not in (None, room_of(module)) for head in heads):
                found.append(str(file.relative_to(root)))
    return found


def upward(root: Path = ROOT) -> list[str]:
    """The arrows that do not run down, each in words; the same list is what `make house` counts."""
    found = {(a, b, str(file)) for a, b, file in arrows(root) if b in FLOOR and FLOOR[a] <= FLOOR[b]}
    return [f"{file}: {a} imports {b}" for a, b, file in sorted(found)]
