"""Which compilers are there, and what they call themselves."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from microtrain.base.commands import run
from microtrain.base.errors import Error

ARM = "arm-none-eabi-gcc"
HOSTS = ("gcc", "clang", *(f"{name}-{version}" for name in ("gcc", "clang") for version in range(9, 23)))


@dataclass(frozen=True)
class Compiler:
    """A compiler.

    name     of the program and its version, as it says it: "clang 16.0.6"
    command  what runs it; for the boards the folder that it lies in
    board    whether it compiles for the boards, or for this machine
    """

    name: str
    command: str
    board: bool


def at_hand(folders: tuple[Path, ...], hosts: tuple[str, ...]) -> list[Compiler]:
    """The compilers that are named; where none is, all on PATH. Each version once."""
    if not folders and not hosts:
        on_path = shutil.which(ARM)
        folders = (Path(on_path).parent,) if on_path else ()
        hosts = tuple(name for name in HOSTS if shutil.which(name))
    found = [Compiler(named(str(folder / ARM)), str(folder), board=True) for folder in folders]
    found += [Compiler(named(command), command, board=False) for command in hosts]
    return list({compiler.name: compiler for compiler in reversed(found)}.values())[::-1]


def named(command: str) -> str:
    """Program and version. Error where it does not run."""
    words = shlex.split(command)
    if not words or shutil.which(words[0]) is None:
        raise Error(f"there is no compiler {command}: name a command, or for --arm the folder of {ARM}.")
    said = run([*words, "--version"]).stdout
    return f"{program(words)} {version(command, said)}"


def program(words: list[str]) -> str:
    """What a command is called: Zig's compiler is clang."""
    names = {"zig cc, clang": "zig", ARM: ARM, "gcc": "gcc"}
    return next((name for name, part in names.items() if part in " ".join(words)), "clang")


def version(command: str, said: str) -> str:
    """The version in what --version says, the packager's in parentheses left out. Error without one."""
    line = (said.splitlines() or [""])[0]
    while (shorter := re.sub(r"\([^()]*\)", "", line)) != line:
        line = shorter
    found = re.search(r"\d+\.\d+(?:\.\d+)?", line)
    if found is None:
        raise Error(f"{command} --version says {line[:60]!r}, which holds no version.")
    return found[0]
