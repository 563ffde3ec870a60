"""The numbers of one case: bytes from ELF and plan, instructions and misses from the emulated board."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from microtrain.base.plan import Plan, read_plan
from microtrain.base.schema import encode
from microtrain.demo.measure import ENTRIES, all_in_sram
from microtrain.device.client import Device
from microtrain.device.link import ProgramPort
from microtrain.emulator import Board, CallCost, EmulatedPort, EmulatorError, cycles
from microtrain.memory_report.firmware import load_firmware
from microtrain.memory_report.interrupts import analyse
from microtrain.memory_report.usage import Report, make_report

KERNEL = re.compile(r"[a-z0-9_]+_(s8|s32|f32)")  # <op>_<pass>_<type>
Numbers = dict[str, Any]


def memory(elf: Path, plan: Plan) -> Report:
    """The report of tools/memory_report."""
    firmware = load_firmware(elf)
    return make_report(firmware, plan, analyse(firmware), None, None)


def byte_counts(report: Report, plan: Plan) -> Numbers:
    """All-in SRAM and its parts, flash and its kinds."""
    flash = {("trainables" if "trainables" in kind else kind): size for kind, size in report.flash.items()}
    return {
        "sram_all_in": report.sram_total,
        "arena": plan.sram.arena,
        "trainables": plan.sram.trainables,
        "stack": report.stack.worst,
        "flash_bytes": report.flash_total,
        "flash": flash,
    }


def work(plan: Plan) -> Numbers:
    """Multiply-accumulates of a plan."""
    backward = sum(step.macs for step in plan.steps if step.phase == "backward")
    return {"macs_forward": sum(row.macs for row in plan.layers), "macs_backward": backward}


def instruction_counts(elf: Path, plan: Plan, image: np.ndarray, label: int) -> Numbers:
    """Instructions, estimated cycles and kernels of an inference and a training step.

    image  uint8 [h][w][c]. The state is that after one step: before it the head is zero, and so are all
           errors behind it.
    """
    trained = after_one_step(elf, image, label)
    board = Board(elf, caches=True)
    device = Device(EmulatedPort(board))
    device.push(trained)
    phases = {"inference": lambda: device.infer(image), "step": lambda: device.train(image, label)}
    ops = {step.op for step in plan.steps} | {row.op for row in plan.layers}
    counted = {name: count(board, run, ops) for name, run in phases.items()}
    macs = kernel_macs(plan)
    return {
        **{f"{name}_instructions": found["instructions"] for name, found in counted.items()},
        "cycles": {name: found["cycles"] for name, found in counted.items()},
        "kernels": {name: kernel_rows(found["kernels"], macs, name) for name, found in counted.items()},
    }


def after_one_step(elf: Path, image: np.ndarray, label: int) -> bytes:
    """All trainables after one training step."""
    device = Device(EmulatedPort(elf))
    device.train(image, label)
    return device.pull()


def count(board: Board, run: Callable[[], object], ops: set[str]) -> Numbers:
    """What `run` makes the model do, without the serial line and interrupts; `ops`: those of its plan."""
    functions = {f.name for f in board.image.functions if KERNEL.fullmatch(f.name)}
    kernels = sorted(name for name in functions if op_of(name) in ops)
    board.watch_calls([*ENTRIES, *kernels], only_inside=True)
    run()
    calls = board.calls()
    return {
        "instructions": sum(calls[name].instructions for name in ENTRIES),
        "cycles": estimate(board),
        "kernels": {name: calls[name] for name in kernels if calls[name].calls},
    }


def estimate(board: Board) -> Numbers:
    """Misses, and cycles where llvm-mca is there to tell."""
    use = board.cache_use()
    misses = {"instruction_misses": use.instruction_misses, "data_misses": use.data_misses}
    numbers = {**misses, "write_backs": use.write_backs, "stalls": use.stalls}
    try:
        found = cycles.estimate(board)
    except EmulatorError:
        return {"estimate": None, "issue": None, **numbers}
    return {"estimate": round(found.cycles), "issue": round(found.issue), **numbers}


def kernel_macs(plan: Plan) -> dict[str, dict[str, int]]:
    """Multiply-accumulates by phase and op; the layers of a stream count for their own ops."""
    forward: Counter[str] = Counter()
    backward: Counter[str] = Counter()
    for row in plan.layers:
        forward[row.op] += row.macs
    for step in plan.steps:
        if step.phase == "backward":
            backward[step.op] += step.macs
    return {"inference": dict(forward), "step": {**forward, **backward}}


def kernel_rows(calls: dict[str, CallCost], macs: dict[str, dict[str, int]], phase: str) -> Numbers:
    """{function: calls, instructions, macs}, the dearest first."""
    rows = {
        name: {
            "calls": cost.calls,
            "instructions": cost.instructions,
            "macs": macs[phase].get(op_of(name), 0),
        }
        for name, cost in calls.items()
    }
    return dict(sorted(rows.items(), key=lambda item: (-item[1]["instructions"], item[0])))


def op_of(function: str) -> str:
    """The plan's name of what a kernel does: conv2d_fwd_s8 is conv2d, conv2d_bwd_x_s8 is conv2d_bwd_x."""
    return function.rpartition("_")[0].removesuffix("_fwd")


def on_board(elf: Path, path: Path, image: np.ndarray, label: int) -> Numbers:
    """Everything about a firmware for the board. EmulatorError where it faults, or passes a limit."""
    plan = read_plan(path)
    report = memory(elf, plan)
    if report.failures():
        raise EmulatorError(". ".join(report.failures()))
    return {
        "chosen": plan.scheme.name,
        "fraction_bits": plan.scheme.fraction_bits,
        **byte_counts(report, plan),
        "sram_measured": all_in_sram(elf, image[np.newaxis], np.array([label])),
        **work(plan),
        **instruction_counts(elf, plan, image, label),
    }


def on_host(program: Path, path: Path, image: np.ndarray, label: int) -> Numbers:
    """A training step on this machine, of what no board holds."""
    plan = read_plan(path)
    with Device(ProgramPort(program)) as device:
        loss = device.train(image, label).loss
    return {**encode(plan.sram), **work(plan), "loss": loss}
