"""The rooms of the house, from the lowest to the highest, and which imports run up.

A room imports rooms on the floors below its own, and nothing of its own floor or above. What users run never
imports the lab, and the base stands on nothing. The compiler is a house of its own inside the big one: its
rooms and the modules between them have their floors in CONVERT.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from microtrain.base.paths import ROOT

HOMES = {"microtrain": "tools", "lab": "lab"}
Floors = tuple[tuple[str, ...], ...]
FLOORS: Floors = (
    (
        "microtrain.base",
    ),  # errors, files that are not trusted, plan.json, ELF, the host's compiler, PlatformIO
    (
        "microtrain.samples",
        "microtrain.native",
        "microtrain.pictures",
    ),  # what is learned from; a generated model on this machine; drawings
    ("microtrain.convert", "microtrain.emulator"),  # the compiler; the board model
    ("microtrain.device", "microtrain.elfcheck", "microtrain.memory_report"),  # what talks and looks
    ("microtrain.simulate", "microtrain.check_board"),
    ("microtrain.search",),
    ("microtrain.demo", "microtrain.new"),
    ("microtrain.fleet",),
    ("microtrain.cli", "lab.alone", "lab.notes", "lab.marks", "lab.networks"),
    ("lab.soak", "lab.golden", "lab.forgetting"),
    ("lab.bench",),
    ("lab.floor", "lab.order", "lab.sizes"),
    (
        "lab.zoo",
        "lab.worlds",
        "lab.tasks",
        "lab.recipe",
        "lab.compilers",
        "lab.workflow",
        "lab.results",
        "lab.attack",
        "lab.claims",
        "lab.cores",
        "lab.coverage",
        "lab.house",
        "lab.mutation",
    ),
    ("lab.fleet", "lab.pieces", "lab.prior", "lab.trellis"),
    ("lab.instructions",),  # counts the networks that pieces are fitted with
)
CONVERT: Floors = tuple(
    tuple(f"microtrain.convert.{room}" for room in rooms.split())
    for rooms in (
        "axis compression",  # what the IR is also made of
        "ir defaults boards",
        # names in C; bytes of a tensor; what a reader makes of a file; what a model takes for a pixel;
        # columns that are trained
        "names storage raw normalisation splits",
        "aten_call",  # a call of an aten op, on activations and constants
        "lowering",  # a float graph from such calls
        # what to use instead; the arithmetic in NumPy and the kernels on this machine; two options
        "nearest reference mean_std",
        "ops",
        # what learns; what a layer may hold; what holds of a graph; modules that a scheme asks for
        "trainables limits verify lite",
        "frontends execute scheme passes memory weights",  # none of them knows another; the last: their bytes
        "quantize pipeline pieces",  # the last: how long a step of the library takes
        "emit loading default_scheme",
        # statistics of features; records; why a model does not fit; an earlier end; weights beside the chip
        "imprinting recording obstacles until outside",
        "options writing native_model check export",
        "tasks",  # what is done otherwise where no classes are learned
        "command",
        "cli",
    )
)
HOUSES: dict[int, Floors] = {2: FLOORS, 3: CONVERT}  # how many words name a room -> the floors
EXPORTED = "tools/convert/export/packages"  # what runs in MicroPython, where `microtrain` is another module
FLOOR = {room: number for floors in HOUSES.values() for number, rooms in enumerate(floors) for room in rooms}


def rooms_on_disk(root: Path = ROOT) -> set[str]:
    """Every package and module in tools/, lab/ and tools/convert, by the name that it is imported by."""
    homes = {name: root / home for name, home in HOMES.items()}
    homes["microtrain.convert"] = root / "tools/convert"
    packages = {f"{name}.{p.parent.name}" for name, home in homes.items() for p in home.glob("*/__init__.py")}
    modules = {f"{name}.{p.stem}" for name, home in homes.items() for p in home.glob("[!_]*.py")}
    return packages | modules


def imports(file: Path, module: str) -> Iterator[str]:
    """Modules that a file imports anywhere in it, also in functions and for types alone.

    module  the file's own name, which ends with __init__ where it is a package's
    """
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*module.split(".")[: -node.level], *filter(None, [base])])
            yield from (f"{base}.{name.name}" for name in node.names)


def modules(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Every file of tools/ and lab/ that runs here, and its module's name."""
    for name, home in HOMES.items():
        for file in sorted((root / home).glob("**/*.py")):
            if root / EXPORTED not in file.parents:
                yield file, ".".join([name, *file.relative_to(root / home).with_suffix("").parts])


def room_of(module: str, words: int = 2) -> str | None:
    """The room that a module lies in, by that many words; None for a module that lies in none.

    Three words name the compiler's own rooms, and no others.
    """
    parts = module.split(".")[:words]
    inside = parts[0] in HOMES and len(parts) == words and not parts[-1].startswith("__")
    return ".".join(parts) if inside and (words == 2 or parts[1] == "convert") else None


def arrows(root: Path = ROOT) -> Iterator[tuple[str, str, Path]]:
    """(room, room that it imports, file), of all files of all rooms, in both houses."""
    for file, module in modules(root):
        for other in imports(file, module):
            for words in HOUSES:
                a, b = room_of(module, words), room_of(other, words)
                if a and b and a != b:
                    yield a, b, file.relative_to(root)


def borrowed_heads(root: Path = ROOT) -> list[str]:
    """Files that import the command line of another room: what they want belongs in a module of its own."""
    found = []
    for file, module in modules(root):
        heads = [x for x in imports(file, module) if x.split(".")[2:3] == ["cli"]]
        if any(room_of(head) not in (None, room_of(module)) for head in heads):
            found.append(str(file.relative_to(root)))
    return found


def upward(root: Path = ROOT) -> list[str]:
    """The arrows that do not run down, each in words; the same list is what `make house` counts."""
    found = {(a, b, str(file)) for a, b, file in arrows(root) if b in FLOOR and FLOOR[a] <= FLOOR[b]}
    return [f"{file}: {a} imports {b}" for a, b, file in sorted(found)]
