"""Hostile names of layers, files and schemes, through every pass to a compiler.

A name that ends a comment or a string of the generated C would put the attacker's code into it. Each round
builds a network with such names, generates its C and compiles it; what the compiler then knows may only be
what the generator wrote.
"""

from __future__ import annotations

import random
import re
import subprocess
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from microtrain.base.hostcc import compiler
from microtrain.base.paths import FIRMWARE
from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.emit.code import generate
from microtrain.convert.frontends.aten.rules import lower
from microtrain.convert.frontends.clean.fold import clean
from microtrain.convert.ir import Graph
from microtrain.convert.lowering import Lowering
from microtrain.convert.names import safe_name
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.quantize.int8 import quantize
from microtrain.convert.scheme import Scheme

INCLUDE = FIRMWARE / "include"
CODE = "extern int planted_name(const char *); int planted_int = 1;"
PIECES = (
    "*/", "/*", "//", "\\", "\\\n", "\n", "\r", '"', "'", "??/", "??/\n", "%s", "$", "#include <x>", "[/red]",
    "\x1b[2J", "\0", "\u202e", "é", "{}", "{0}", "a", "b.c", "conv", "_", " ", "-",
    "int", "9", ")", ";", "}", CODE,
)  # fmt: skip
OWN = re.compile(r"planted_\w+")


@dataclass(frozen=True)
class Report:
    """compiled: networks with hostile names that went through a compiler; broken: what was wrong."""

    compiled: int
    broken: tuple[str, ...]


def attack_names(folder: Path, rounds: int, seed: int, done: Callable[[], None] = lambda: None) -> Report:
    """Compile networks with random hostile names. folder: for the C files."""
    rng = random.Random(seed)
    broken: list[str] = []
    for _ in range(rounds):
        words = [hostile_name(rng) for _ in range(6)]
        problem = compile_names(folder, words)
        broken += [f"{words!r}: {problem}"] if problem else []
        done()
    return Report(rounds, tuple(broken))


def hostile_name(rng: random.Random) -> str:
    """A few pieces that mean something to C, to a terminal or to a template."""
    return "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 5)))


def compile_names(folder: Path, words: list[str]) -> str | None:
    """What is wrong with the C of a network whose names these are; None: nothing."""
    graph = network(words[:3], words[3])
    compiled = compile_graph(graph, Scheme(words[4], 2, {-1: 1.0}), 3)
    output = generate(compiled, words[5])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in output.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    for source in ("model.c", "model_weights.c"):
        made = folder / f"{source}.o"
        words_ = [compiler(), "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-trigraphs", f"-I{INCLUDE}"]
        command = [*words_, f"-I{folder}", "-c", str(folder / source), "-o", str(made)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            return (run.stderr.splitlines() or ["the compiler failed"])[0]
        symbols = subprocess.run(["nm", str(made)], capture_output=True, text=True, check=True).stdout
        planted = [s for s in map(str.split, symbols.splitlines()) if OWN.fullmatch(s[-1])]
        if planted:
            return f"{source} defines {planted[0][-1]}"
    return None


def network(layers: list[str], name: str) -> Graph:
    """conv > conv > head, 1x8x8 in, quantized; the layers have these names in the file."""
    rng = np.random.default_rng(0)
    low = Lowering(name)
    x = low.input((1, 1, 8, 8))
    shapes = ((4, 1, 3, 3), (4, 4, 3, 3), (3, 64))
    for number, (layer, shape) in enumerate(zip(layers, shapes, strict=True)):
        path = f"{layer}{number}"  # different, or they would be shared weights
        weight = Param(f"{path}.weight", rng.normal(0, 0.2, shape).astype(np.float32))
        x = _call(low, path, "conv2d" if number < 2 else "linear", x, weight)
        x = x if number == 2 else _call(low, path, "relu", x)
        x = _call(low, path, "flatten", x, start_dim=1) if number == 1 else x
        if number == 0:
            x = _call(low, path, "avg_pool2d", x, kernel_size=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the names were changed
        graph = clean(low.finish([x]))
        quantized = quantize(graph, dict.fromkeys(graph.tensors, (-1.0, 1.0)))
    return quantized.replace(name=safe_name(name))


def _call(low: Lowering, path: str, op: str, x: Act, weight: Param | None = None, **rest: object) -> Act:
    args = {"input": x, "self": x, **rest} | ({"weight": weight} if weight else {})
    result = lower(low, Call(op, path, False, args))
    assert isinstance(result, Act)
    return result
