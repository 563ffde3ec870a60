"""The engine's sources as a library has them: one flat folder, every global name with the prefix microtrain_.

They are the firmware's own files. What asks for MICROTRAIN_LIBRARY is decided, includes name files of the
same folder, and each file begins with library.h, which renames what the linker sees.
"""

from __future__ import annotations

import re
from pathlib import Path

from microtrain.base.errors import Error
from microtrain.base.paths import FIRMWARE

PREFIX = "microtrain_"
PUBLIC = ("microtrain.h", "microtrain_fleet.h", "microtrain_votes.h")
FOLDER = "microtrain"  # of all that is not public
SWITCH = "MICROTRAIN_LIBRARY"

# The one list of what the library is made of; all else is found from the includes.
RUNTIME = ("checkpoint", "guard", "microtrain", "microtrain_library", "replay", "selftest", "session")
ROOTS = (
    "include/microtrain_votes.h",
    "src/runtime/library.h",
    "src/base/crc.c",
    "src/fleet/compress.c",
    "src/fleet/mask.c",
    *(f"src/runtime/{name}.c" for name in RUNTIME),
)
KERNELS = "src/kernels"

PRELUDE = "library.h"
NAMES = re.compile(r"/\* NAMES: .*?\*/", re.DOTALL)
INCLUDE = re.compile(r'^#include "(?:kernels/)?([\w.]+)"', re.MULTILINE)
PROTOTYPE = re.compile(r"^(?!static|extern|typedef|return|#)[a-z][\w ]*?[ *](\w+)\([^;{}]*\);", re.MULTILINE)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
OPENING = re.compile(r"#if(?:def|ndef)?\b")


def files() -> dict[str, str]:
    """Every file of the engine by its name: in FOLDER, but for PUBLIC beside it."""
    found = [FIRMWARE / root for root in ROOTS]
    found += sorted(p for p in (FIRMWARE / KERNELS).iterdir() if p.suffix in (".c", ".S", ".inc"))
    texts: dict[str, str] = {}
    while found:
        path = found.pop()
        if path.name in texts:
            continue
        texts[path.name] = decided(path.read_text(encoding="utf-8"), path.name)
        found += [_header(name) for name in INCLUDE.findall(texts[path.name])]
    flat = {name: text if name in PUBLIC else _flat(text) for name, text in texts.items()}
    flat = {name: _begin(name, text) for name, text in flat.items()}
    flat["assembly.inc"] = flat["assembly.inc"].replace("\\name", f"{PREFIX}\\name")
    flat[PRELUDE] = NAMES.sub(_renamed(global_names(texts)), flat[PRELUDE])
    return dict(sorted(flat.items()))


def _header(name: str) -> Path:
    """A header by the name that an include gives it. Error where there is none or more than one."""
    found = [p for p in sorted(FIRMWARE.rglob(name)) if "generated" not in p.parts and "board" not in p.parts]
    if len(found) != 1:
        raise Error(f"the engine has {len(found)} files {name}: the checkout is not complete.")
    return found[0]


def decided(text: str, name: str) -> str:
    """The text with each `#if` that asks for nothing but MICROTRAIN_LIBRARY decided: it is defined."""
    lines: list[str] = []
    stack: list[bool | None] = []  # None: a condition of another kind; else whether the lines are kept
    for line in text.splitlines(keepends=True):
        word = line.split()[0] if line.split() else ""
        answer = _answer(line)
        if OPENING.match(line):
            stack.append(answer)
            if answer is not None:
                continue
        elif stack and stack[-1] is not None and word in ("#else", "#elif", "#endif"):
            if word == "#endif":
                stack.pop()
            elif word == "#else":
                stack[-1] = not stack[-1]
            else:
                raise Error(f"{name} has an #elif behind {SWITCH}, which export cannot decide.")
            continue
        elif word == "#endif":
            if all(kept is not False for kept in stack):
                lines.append(line)
            stack.pop()
            continue
        if all(kept is not False for kept in stack):
            lines.append(line)
    return "".join(lines)


def _answer(line: str) -> bool | None:
    words = line.split()
    if words[:2] == ["#ifdef", SWITCH]:
        return True
    if words[:2] == ["#ifndef", SWITCH]:
        return False
    return None


def _flat(text: str) -> str:
    return INCLUDE.sub(lambda m: f'#include "{"../" if m[1] in PUBLIC else ""}{m[1]}"', text)


def _begin(name: str, text: str) -> str:
    """A source begins with library.h, behind its licence."""
    if not name.endswith((".c", ".S")):
        return text
    licence, _, rest = text.partition("\n")
    return f'{licence}\n#include "{PRELUDE}"\n{rest}'


def global_names(texts: dict[str, str]) -> list[str]:
    """What the linker sees of the engine but for the public functions."""
    found = {
        name
        for text in texts.values()
        for name in PROTOTYPE.findall(re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))
    }
    return sorted(name for name in found if not name.startswith(PREFIX))


def _renamed(names: list[str]) -> str:
    return "\n".join(f"#define {name} {PREFIX}{name}" for name in names)
