"""pages/bench.md: the rows as tables for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .cases import BAR
from .records import Row

CORE_HZ = 216e6
INTRO = """# Benchmark

Written by `make bench` (`python lab/bench`), compiler {compiler}; [bench.json](bench.json) has the same
numbers and more. Each row is a network converted with a scheme, built with `pio run` and run on the emulated
board: batch size 1, 10 classes, 128x128 pixels, one image of the test data. `make test` fails where a
number of MCUNet's 49 KB scheme is more than 1 % above this table.

- **SRAM** is all-in: .data, .bss with arena and trainables, and the deepest stack. `reported` is proven
  from the ELF (`tools/memory_report`); `measured` is what boot, serial line, inference, training, pull
  and push touch.
- **Instructions** are those of `model_take_row` and `model_forward` (an inference), and of `model_backward`
  too (a step), with everything that they call, without the serial line and interrupts. They repeat exactly.
- **Cycles** are an ESTIMATE: what llvm-mca's Cortex-M7 takes to issue each basic block, and what
  the misses of modelled caches cost (4 KB + 4 KB; [all assumptions](emulator.md#cycles)). Nothing has run
  on silicon.

![All-in SRAM of every case](bench.svg)
"""
KERNELS = """Calls and instructions of each kernel in a training step, with everything that it calls. A stream
runs the kernels of its layers, so it counts theirs too. MACs are those of the layers that a kernel
computes.
"""


def markdown(compiler: str, rows: list[Row], failures: list[str]) -> str:
    """The whole document."""
    board = [row for row in rows if "refused" not in row]
    parts = [INTRO.format(compiler=compiler)]
    parts += ["## SRAM and flash, bytes\n", memory_table(board)]
    parts += ["## Instructions\n", instruction_table(board)]
    parts += ["## Cycles and misses (ESTIMATE)\n", cycle_table(board)]
    parts += ["## Kernels\n", KERNELS, *(kernel_table(row) for row in board if is_bar(row))]
    parts += ["## Full update\n", *full_update(rows)]
    if failures:
        parts += ["## Failed\n", "\n".join(f"- {sentence}" for sentence in failures) + "\n"]
    return "\n".join(parts)


def is_bar(row: Row) -> bool:
    """Whether a row is one of the four that all comparisons use."""
    plain = row["fraction_bits"] == 0 and row["budget_kb"] is None and not {"top1", "requantize"} & set(row)
    return plain and row["scheme"] in BAR


def title(row: Row) -> list[str]:
    """Network, scheme (with the budget that recomputation keeps) and fraction bits."""
    name = row["scheme"] if row["scheme"] == row["chosen"] else f"{row['scheme']} ({row['chosen']})"
    name += f" in {row['budget_kb']} KB" if row["budget_kb"] else ""
    name += f", weights {row['weights_bits']}: top-1 {row['top1']:.1%}" if "top1" in row else ""
    name += f", requantization {row['requantize']}" if "requantize" in row else ""
    return [row["network"], name, str(row["fraction_bits"])]


TITLES = ("network", "scheme", "bits")


def memory_table(rows: list[Row]) -> str:
    kinds = list(dict.fromkeys(kind for row in rows for kind in row["flash"]))
    columns = ("SRAM reported", "measured", "arena", "trainables", "stack", "flash", *kinds)
    keys = ("sram_all_in", "sram_measured", "arena", "trainables", "stack", "flash_bytes")
    return table(
        (*TITLES, *columns),
        (
            [*title(r), *(f"{r[k]:,}" for k in keys), *(f"{r['flash'].get(k, 0):,}" for k in kinds)]
            for r in rows
        ),
    )


def instruction_table(rows: list[Row]) -> str:
    """Instructions in all, and per MAC: the step's own are those beyond an inference."""
    columns = ("inference", "per MAC", "step", "backward", "per MAC", "MACs forward", "MACs backward")

    def cells(row: Row) -> list[str]:
        inference, step = row["inference_instructions"], row["step_instructions"]
        forward, backward = row["macs_forward"], row["macs_backward"]
        per_mac = f"{inference / forward:.2f}", f"{(step - inference) / backward:.2f}"
        numbers = f"{step:,}", f"{step - inference:,}", per_mac[1], f"{forward:,}", f"{backward:,}"
        return [*title(row), f"{inference:,}", per_mac[0], *numbers]

    return table((*TITLES, *columns), map(cells, rows))


def cycle_table(rows: list[Row]) -> str:
    """Both phases of each row in one line."""
    columns = ("cycles", "ms at 216 MHz", "of it waiting", "I misses", "D misses", "written back")
    names = [f"{phase}: {column}" for phase in ("inference", "step") for column in columns]
    return table(
        (*TITLES, *names),
        (
            [*title(r), *cycle_cells(r["cycles"]["inference"]), *cycle_cells(r["cycles"]["step"])]
            for r in rows
        ),
    )


def cycle_cells(found: dict[str, Any]) -> list[str]:
    """`-` where there was no llvm-mca."""
    keys = ("stalls", "instruction_misses", "data_misses", "write_backs")
    known = found["estimate"] is not None
    cycles = f"{found['estimate']:,}" if known else "-"
    time = f"{found['estimate'] / CORE_HZ * 1000:.0f}" if known else "-"
    return [cycles, time, *(f"{found[key]:,}" for key in keys)]


def kernel_table(row: Row) -> str:
    """The kernels of one row's training step."""
    cells = (
        [
            f"`{name}`",
            f"{k['calls']:,}",
            f"{k['instructions']:,}",
            f"{k['macs']:,}" if k["macs"] else "",
            f"{k['instructions'] / k['macs']:.2f}" if k["macs"] else "",
        ]
        for name, k in row["kernels"]["step"].items()
    )
    heading = f"**{row['network']}, {row['scheme']}**\n\n"
    return heading + table(("kernel", "calls", "instructions", "MACs", "per MAC"), cells, left=1)


def full_update(rows: list[Row]) -> Iterable[str]:
    """What the board's converter says, and what this machine did."""
    refused = [row for row in rows if "refused" in row]
    yield "The board refuses it; `--board native` lifts the budgets, and the host build trains a step.\n"
    yield "\n".join(f"- {row['refused']}" for row in refused) + "\n"
    keys = ("arena", "trainables", "macs_forward", "macs_backward")
    cells = ([row["network"], *(f"{row[key]:,}" for key in keys), f"{row['loss']:.4f}"] for row in refused)
    yield table(
        ("network", "arena", "trainables", "MACs forward", "MACs backward", "loss on the host"), cells, left=1
    )


def table(titles: Iterable[str], rows: Iterable[list[str]], left: int = 2) -> str:
    """A Markdown table; all columns but the first `left` stand to the right."""
    titles = list(titles)
    rule = ["---" if i < left else "---:" for i in range(len(titles))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [titles, rule, *rows]) + "\n"
