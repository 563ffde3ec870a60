"""What one compiler makes of the example: its bytes, and the weights that a session leaves."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
from elftools.elf.elffile import ELFFile

from microtrain.base import pio
from microtrain.base.commands import checked, logged, ours, run
from microtrain.base.paths import ROOT
from microtrain.demo.measure import step_instructions
from microtrain.demo.run import CLASSES, EXAMPLE, export_images
from microtrain.device.client import Device
from microtrain.device.link import EmulatorPort, Port, ProgramPort
from microtrain.elfcheck.rules import check
from microtrain.memory_report.firmware import load_firmware
from microtrain.memory_report.interrupts import analyse
from microtrain.memory_report.library import CORES
from microtrain.memory_report.usage import make_report
from microtrain.samples.source import Sample, evenly, load, scan

from .found import ARM, Compiler

WORK = ROOT / "build/compilers"
STEPS, SEED = 100, 12345
BOARDS = {"disco_f746ng": "cortex-m7", "nucleo_f446re": "cortex-m4f"}  # and their cores
WARNED = ("-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror")
STRICT = ("-std=c11", "-O2", *WARNED)
CPP = ("-std=c++11", "-fsyntax-only", *WARNED, "-x", "c++", os.devnull)  # that includes a header
SHAPE = (32, 32, 1)


def converted() -> Path:
    """The example with its scheme, the same for all compilers."""
    scheme, folder = EXAMPLE / "scheme.yaml", WORK / "generated"
    words = ("--scheme", scheme, "--classes", CLASSES, "--replay", "off", "-o", folder)  # it fits both boards
    logged(ours("tools/convert", EXAMPLE / "model.pt", *words), WORK / "convert.log")
    return folder


def exported(generated: Path) -> Path:
    """The same model as a library."""
    folder = WORK / "library"
    words = (folder, "--model", generated, "--name", "digits")
    logged(ours("tools/convert.export", *words), WORK / "export.log")
    return folder


def refused(compiler: Compiler, library: Path, target: str) -> list[str]:
    """What a compiler says of sources of the library, every warning being an error: a line for each. Its
    headers are held to C++ too, which a gcc without g++ does not know: that is one of the lines.

    target  a board, whose core is compiled for; "": this machine
    """
    command = (
        [f"{compiler.command}/{ARM}", *CORES[BOARDS[target]][1:]] if target else shlex.split(compiler.command)
    )
    src = library / "src"
    sources = sorted([*src.glob("*.c"), *(src / "microtrain").glob("*.c")])
    words = {path: [*STRICT, f"-I{src}", "-c", "-o", os.devnull, str(path)] for path in sources}
    words |= {path: [*CPP, "-include", str(path)] for path in sorted(src.glob("*.h"))}
    lines = []
    for path, own in words.items():
        done = run([*command, *own])
        said = [line for line in done.stderr.splitlines() if "error:" in line] or [done.stderr[:200]]
        lines += [f"{path.name} of the library: {said[0]}"] if done.returncode else []
    return lines


def samples() -> list[Sample]:
    """Images of the device's world, spread over its classes."""
    return evenly(scan(export_images() / "train", CLASSES).samples, STEPS)


def learned(port: Port, shown: list[Sample]) -> str:
    """SHA-256 of the trainables after a look at each of the images, and then a step on each."""
    with Device(port) as device:
        device.seed(SEED)
        for sample in shown:
            device.imprint(load(sample.path, SHAPE), sample.label)
        device.imprint_head()
        for sample in shown:
            device.train(load(sample.path, SHAPE), sample.label)
        return device.sha()


def built(compiler: Compiler, generated: Path, environment: str) -> Path:
    """The firmware that a compiler makes. Error with the end of the log where it does not."""
    folder = WORK / compiler.name.replace(" ", "-").replace(",", "")
    path = f"{compiler.command}{os.pathsep}{os.environ['PATH']}"
    extra = {"PATH": path} if compiler.board else {"CC": compiler.command}
    done = pio.pio("run", "-s", "-e", environment, workspace=folder, model=generated, extra=extra)
    checked(done, folder / f"{environment}.log")
    return pio.product(folder, environment)


def of_board(compiler: Compiler, generated: Path, board: str, shown: list[Sample]) -> dict[str, Any]:
    """The row of a compiler and a board; wrong: what the checks of the ELF found."""
    elf = built(compiler, generated, board)
    firmware = load_firmware(elf)
    report = make_report(firmware, None, analyse(firmware), None, None)
    image: np.ndarray = load(shown[0].path, SHAPE)
    return {
        "compiler": compiler.name,
        "for": board,
        "flash": report.flash_total,
        "sram": report.sram_total,
        "stack": report.stack.worst,
        "step_instructions": step_instructions(elf, image, shown[0].label)["step"],
        "sha256": learned(EmulatorPort(elf), shown),
        "wrong": [*map(str, check(elf)), *report.failures()],
    }


def of_host(compiler: Compiler, generated: Path, shown: list[Sample]) -> dict[str, Any]:
    """The row of a compiler of this machine."""
    program = built(compiler, generated, pio.NATIVE)
    sha256 = learned(ProgramPort(program), shown)
    return {
        "compiler": compiler.name,
        "for": "this machine",
        "flash": code_bytes(program),
        "sha256": sha256,
        "wrong": [],
    }


def code_bytes(program: Path) -> int:
    """Code and constants of a program."""
    with program.open("rb") as file:
        sections = ELFFile(file).iter_sections()
        return sum(s["sh_size"] for s in sections if s.name.startswith((".text", ".rodata", ".data")))
