"""Where the sources name an op: string constants that are an op or one of its kernels."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from microtrain.base.commands import run
from microtrain.base.paths import ROOT
from microtrain.convert.ops import TABLE

ROOMS = ("tools", "lab/golden", "lab/instructions", "lab/attack")
MEASURED = (  # by commands
    *("lab/pages", "tools/convert/emit/firmware_flash.json", "tools/convert/pieces.json"),
    *("tools/search/instructions.json", "tools/search/instructions_others.json"),
)
OPS_ROOM = ROOT / "tools/convert/ops"
# The one file that names kernels: it builds layers of extreme size and calls the C functions one by one.
EXERCISES_KERNELS = ROOT / "lab/attack/gradients.py"
# They turn operators of another framework into calls of aten ops, whose names some of the IR's ops share.
TRANSLATORS = {
    *(ROOT / "tools/convert/frontends/tflite").glob("*.py"),
    *(ROOT / "tools/convert/frontends/onnx").glob("*.py"),
}
# Words that are an op's name by chance: of schemes, plans, pictures for the classifier, Python's +, torch's
# conv2d, a line's stream, an instruction.
OTHER_WORDS = {
    ("tools/convert/scheme.py", "head"),
    ("tools/convert/memory/plan.py", "head"),
    ("tools/convert/frontends/torch/scalars.py", "add"),
    ("tools/convert/frontends/aten/affine.py", "add"),
    ("tools/convert/frontends/aten/constant_rules.py", "add"),
    ("tools/convert/frontends/aten/constant_rules.py", "conv2d"),
    ("tools/convert/nearest.py", "conv2d"),
    ("tools/demo/run.py", "head"),
    ("tools/fleet/words.py", "head"),
    ("tools/pictures/arena_map.py", "head"),
    ("tools/emulator/native.py", "stream"),
    ("tools/emulator/translate/blocks.py", "add"),
    ("tools/emulator/translate/instruction.py", "add"),
    ("tools/emulator/translate/integers.py", "add"),
    ("lab/attack/names.py", "conv2d"),
    ("tools/memory_report/riscv.py", "add"),
    ("tools/memory_report/riscv_code.py", "add"),
}


def sources() -> Iterator[Path]:
    """The Python files that must not name an op."""
    for room in ROOMS:
        files = sorted((ROOT / room).rglob("*.py"))
        spared = {EXERCISES_KERNELS, *TRANSLATORS}
        yield from (p for p in files if OPS_ROOM not in p.parents and p not in spared)


def named_in(text: str) -> list[str]:
    """What a source names: an op of the table, one of its kernels, or a piece of such a name."""
    tree = ast.parse(text)
    kernels = {kernel for op in TABLE.values() for kernel in op.kernels}
    pieces = ("_bwd_", "_fwd_", "loss_cross", "loss_mse", "loss_score")
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or " " in node.value:
            continue
        word = node.value
        if word in TABLE or word in kernels or any(piece in word for piece in pieces):
            found.append(word)
    return found


def files_naming(op: str) -> list[str]:
    """Every tracked text file in which an op's name stands: what somebody who adds one has to touch."""
    words = [
        "git",
        "grep",
        "-lw",
        "-e",
        op,
        "-e",
        f"{op}_[a-z0-9_]*",
        "--",
        ".",
        *(f":!{place}" for place in MEASURED),
    ]
    return run(words).stdout.split()


def named() -> list[tuple[str, str]]:
    """(file, word) of everything that is named outside the room of the ops, by chance or not."""
    return [(str(p.relative_to(ROOT)), word) for p in sources() for word in named_in(p.read_text())]


def violations() -> list[tuple[str, str]]:
    """What is named and should not be."""
    return [each for each in named() if each not in OTHER_WORDS]
