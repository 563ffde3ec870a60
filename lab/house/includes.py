"""Which room of the firmware includes which, and the includes that run up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from microtrain.base.paths import FIRMWARE
from microtrain.convert.export.sources import PUBLIC

SOURCES = (".c", ".h", ".S", ".inc", ".ld")

# Which room may include which. What a board, an application and generated code promise is a room by itself.
ROOMS = {
    "main": {"serial", "application.h", "board.h"},
    "application": {"serial", "application.h", "microtrain_board.h", "board.h", "board", "base"},
    "serial": {"application.h", "microtrain_board.h", "fleet", "board.h", "base"},
    "runtime": {"microtrain_board.h", "model", "microtrain.h", "kernels", "board.h", "base"},
    "microtrain_board.h": {"microtrain.h", "model"},
    "board": {"board.h", "base"},
    "model": {"kernels", "microtrain.h", "fleet"},
    "fleet": {"microtrain.h"},
    "kernels": set(),
    "base": set(),
    "application.h": set(),
    "board.h": set(),
    "microtrain.h": set(),
}
PROMISES = {"application.h": "application.h", "board.h": "board.h", "model_api.h": "model"}
PROMISES |= {"microtrain.h": "microtrain.h", "microtrain_board.h": "microtrain_board.h"}
PROMISES |= {"model_table.h": "model", "model_linked.h": "model", "model_weights.h": "model"}
PROMISES |= {"model.h": "model", "microtrain_fleet.h": "fleet", "microtrain_votes.h": "microtrain.h"}
FOR_GENERATED_CODE = {"kernels", "model", "fleet"}  # rooms whose headers model.c includes
LENT = ("application", "hardware.h")  # drivers of an application need the chip's registers


class Arrow(NamedTuple):
    """One #include: file and header by their names, and the rooms that they are in."""

    file: str
    header: str
    start: str
    end: str
    private: bool


def room(path: Path, root: Path) -> str:
    """The room of a source, by its folder; of a public header by what implements it."""
    parts = path.relative_to(root).parts
    if parts[0] == "examples" or path.name == "application.c":
        return "application"
    if parts[1] == "src":
        return "main" if path.name == "main.c" else parts[2]
    if parts[2] == "kernels":
        return "kernels"
    rooms = {p.parent.name for p in (root / "firmware/src").rglob(f"{path.stem}.c")}
    return PROMISES.get(path.name) or next(iter(rooms), "nowhere")


def end_of(header: str, path: Path, files: list[Path], root: Path) -> tuple[str, bool]:
    """The room of a header that a source includes, and whether it is one of the room's private headers."""
    beside = [p for p in files if p == path.parent / header]
    found = beside or [p for p in files if p.as_posix().endswith(f"/{header}")]
    ends = {(room(p, root), "include" not in p.relative_to(root).parts) for p in found}
    ends = ends or {(PROMISES.get(header, "nowhere"), False)}
    assert len(ends) == 1, f"{path.name}: {header} may be any of {found}"
    return ends.pop()


def arrows(root: Path) -> Iterator[Arrow]:
    """Every #include of the firmware and its examples but those of the C library."""
    files = sources(root / "firmware", root / "examples")
    for path in files:
        for header in re.findall(r'^#include "(.+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
            yield Arrow(path.name, header, room(path, root), *end_of(header, path, files, root))


def is_wrong(arrow: Arrow) -> bool:
    """It runs up, or into a room past its promises."""
    if arrow.start == arrow.end:
        return False
    private = arrow.private and (arrow.start, arrow.header) != LENT
    return arrow.end not in ROOMS[arrow.start] or private


def wrong(root: Path) -> list[tuple[str, str]]:
    return [(arrow.file, arrow.header) for arrow in arrows(root) if is_wrong(arrow)]


def of_one_room(root: Path) -> list[str]:
    """Headers in firmware/include that no room, no user of the library and none of their headers needs."""
    found = list(arrows(root))
    public = {path.name: room(path, root) for path in (root / "firmware/include").rglob("*.h")}
    needed = {name for name, where in public.items() if where in FOR_GENERATED_CODE or name in PUBLIC}
    needed |= {arrow.header for arrow in found if arrow.start != arrow.end}
    for _ in public:  # what a header that is needed includes is needed with it
        needed |= {arrow.header for arrow in found if arrow.file in needed}
    return sorted(set(public) - needed)


def sources(*folders: Path) -> list[Path]:
    """Files of C, assembly and the linker, but for what `convert` has written."""
    found = [path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix in SOURCES]
    return [path for path in found if FIRMWARE / "generated" not in path.parents]
