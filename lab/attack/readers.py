"""Every reader of files that the tools have, by the kind of file: what a fuzzer drives."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

CONVERTED = 16  # one of so many models is converted as well, which takes longer
SHAPE = (8, 8, 1)
INPUT = (1, 8, 8)


def model(path: Path) -> None:
    """A model as `convert` reads it, up to the generated C where it is small enough."""
    from microtrain.convert.emit.code import generate
    from microtrain.convert.loading import load
    from microtrain.convert.pipeline import compile_graph
    from microtrain.convert.quantize.int8 import quantize
    from microtrain.convert.scheme import Scheme

    loaded = load(path, False, None if path.suffix in (".tflite", ".onnx") else INPUT)
    graph = loaded.graph
    if loaded.kind in ("onnx", "tflite"):
        copied(path, loaded.kind)
    small = sum(layer.weight.size for layer in graph.layers.values()) < 10_000
    if small and zlib.crc32(path.read_bytes()) % CONVERTED == 0:
        if loaded.kind != "checkpoint":
            graph = quantize(graph, dict.fromkeys(graph.tensors, (-4.0, 4.0)))
        generate(compile_graph(graph, Scheme("s", 1), 3), path.name)


def copied(path: Path, kind: str) -> None:
    """A copy of a model's file with its own layers as if they had been trained."""
    from microtrain.base.errors import Error
    from microtrain.base.reading import reading
    from microtrain.device.model_copy import KINDS

    read, write = KINDS[kind]
    with reading(Error, lambda why: f"{path.name} cannot be copied ({why})"):
        homes = read(path, SHAPE)
        last = max((n for n in homes if n.endswith(".weight")), key=lambda n: homes[n].step, default=None)
        head = None if last is None else (last, last.removesuffix("weight") + "bias")
        write(path, homes, {name: home.value for name, home in homes.items()}, head)


def checkpoint(path: Path) -> None:
    from microtrain.convert.frontends.checkpoint import read_checkpoint

    read_checkpoint(path, 8)


def state(path: Path) -> None:
    from microtrain.device.model_file import load_state

    load_state(path)


def calibration(path: Path) -> None:
    from microtrain.convert.quantize.calibrate import load_calibration

    load_calibration(path, SHAPE)


def image(path: Path) -> None:
    from microtrain.samples.images import load_image

    load_image(path, (8, 8, 3))


def numbers(path: Path) -> None:
    from microtrain.samples.numbers import load_numbers

    load_numbers(path, (8, 8, 3))


def sound(path: Path) -> None:
    from microtrain.base.sound import EXAMPLE, parse
    from microtrain.samples.kind import told
    from microtrain.samples.sounds import load_sound

    load_sound(path, told((4, 40, 1), parse(EXAMPLE)))


def targets(path: Path) -> None:
    from microtrain.samples.measured import read_table

    read_table(path, 2, holds=False)


def scheme(path: Path) -> None:
    from microtrain.convert.scheme import load

    load(path)


def plan(path: Path) -> None:
    """plan.json as the client, the simulator and the memory report read it."""
    from microtrain.base.plan import read_plan
    from microtrain.pictures.arena import arena_kinds
    from microtrain.simulate.blueprint import load_blueprint

    arena_kinds(read_plan(path), 0)
    load_blueprint(path)


def network(path: Path) -> None:
    from microtrain.simulate.network import load_network

    load_network(path.parent, "0" * 64)


def weights(path: Path) -> None:
    from microtrain.base.npz import read_npz

    for array in read_npz(path).values():
        np.asarray(array).sum() if array.dtype.kind in "biuf" else str(array)


def firmware(path: Path) -> None:
    """An ELF as the memory report, the rule checker and the emulator read it."""
    from microtrain.base.errors import Error
    from microtrain.elfcheck.rules import check
    from microtrain.emulator.elf import Image
    from microtrain.memory_report.firmware import load_firmware
    from microtrain.memory_report.interrupts import analyse

    for read in (lambda: analyse(load_firmware(path)), lambda: check(path), lambda: Image(path)):
        try:
            read()
        except Error:
            continue


def board(path: Path) -> None:
    """The emulated board that is kept between commands."""
    from microtrain.emulator.kept import read

    read(path)


def line(path: Path) -> None:
    """What a device says, as the client takes it."""
    from .line import Replay, session

    session(Replay(path.read_bytes()))


def fleet(path: Path) -> None:
    """The file that names the boards of a node."""
    from microtrain.fleet.gateway import read_gateway

    read_gateway(path)


READERS: dict[str, Callable[[Path], None]] = {
    "model": model,
    "checkpoint": checkpoint,
    "state": state,
    "calibration": calibration,
    "image": image,
    "numbers": numbers,
    "sound": sound,
    "targets": targets,
    "scheme": scheme,
    "plan": plan,
    "network": network,
    "weights": weights,
    "firmware": firmware,
    "board": board,
    "line": line,
    "fleet": fleet,
}


def prepare() -> None:
    """What readers build or import on first use."""
    from microtrain.convert.reference import hostlib

    hostlib.library()


def read(kind: str, path: Path) -> str | None:
    """Read a file. The sentence that refused it, or None where it was taken; anything else is raised."""
    from microtrain.base.errors import Error

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            READERS[kind](path)
        except Error as error:
            return str(error)
    return None
