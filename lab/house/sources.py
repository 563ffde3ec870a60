"""Lines, functions and parameters of the sources that git knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from microtrain.base.commands import run
from microtrain.base.paths import ROOT

PYTHON = ("*.py",)
C = ("*.c", "*.h", "*.S", "*.inc")
ROOMS = ("tools/*.py", "lab/*.py")
MOST_LINES = 400  # of a file of these
MADE_UP = "test/fixtures/"  # programs that tests run, no part of the house
OPENS = re.compile(r"^(?![ \t#/}*]).*\b(\w+)\(")  # a definition begins at the left margin


@dataclass(frozen=True)
class Function:
    """Where it is, its lines from the first to the last, and how many parameters it has."""

    file: str
    name: str
    lines: int
    parameters: int

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


def files(patterns: tuple[str, ...]) -> list[Path]:
    """Tracked files and those about to be."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z", "--", *patterns]
    names = sorted(name for name in run(command).stdout.split("\0") if name and not name.startswith(MADE_UP))
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def lines(found: list[Path]) -> dict[str, int]:
    """Lines by top folder."""
    total: dict[str, int] = {}
    for path in found:
        top = path.relative_to(ROOT).parts[0]
        total[top] = total.get(top, 0) + len(path.read_text(encoding="utf-8").splitlines())
    return dict(sorted(total.items()))


def too_long(found: list[Path]) -> list[str]:
    """Files with more than MOST_LINES."""
    counted = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n") for path in found}
    return [name for name, count in counted.items() if count > MOST_LINES]


def python_functions(path: Path) -> Iterator[Function]:
    """Every function of a file, also those inside others."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            yield Function(str(path.relative_to(ROOT)), node.name, length, parameters(node))


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many a function has. `self` and `cls`, as the first, are none."""
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def c_functions(path: Path) -> Iterator[Function]:
    """Every function of a file that clang-format has laid out: it ends with a brace at the left margin."""
    text = path.read_text(encoding="utf-8").splitlines()
    start, head = None, ""
    for number, line in enumerate(text):
        if start is None:
            if OPENS.match(line) and not line.endswith(";"):
                start, head = number, line
        elif "{" not in head and "{" not in line:
            head = head + line
            if line.endswith(";"):
                start = None  # a declaration over several lines
        elif line.startswith("}"):
            signature = " ".join(text[start:number]).split("{")[0]
            yield Function(
                str(path.relative_to(ROOT)), _name(signature), number - start + 1, _count(signature)
            )
            start = None
        else:
            head = head + "{"


def _name(signature: str) -> str:
    found = OPENS.match(signature)
    return found[1] if found else signature


def _count(signature: str) -> int:
    inside = signature[signature.index("(") + 1 : signature.rindex(")")].strip()
    return 0 if inside in ("", "void") else inside.count(",") + 1
