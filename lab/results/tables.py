"""pages/results.md: the rows as tables for people."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from .cases import BAR, COLUMNS, EPOCHS, RIVALS, Cell
from .store import Row, of_cell
from .study import NETWORK, VARIANTS

# Student's t, two-sided 95 %, by degrees of freedom.
T95 = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 8: 2.306, 11: 2.201, 17: 2.110}
INTRO = """# Results

Written by `make results` from [results.json](results.json), in which every row has the command that made it;
`make verify-results ROW=n` runs row n again (counted from 0) and compares accuracy and SHA-256.

Published int8 networks, pretrained on ImageNet, learn ten new classes: batch size 1, {epochs}, images
varied as a camera in the hand would (flip, crop, light), learning rate down to 0 on a cosine, one rate for
weights, biases and head. Each arithmetic has its own best rate of one grid for each data set, by the mean
over the three networks on a fifth of the training images, held out
([results-rates.json](results-rates.json)), never on test images; last layers, biases and the head alone
have theirs.

- **device**: what the firmware computes, bit for bit: int8 weights, stochastic rounding, int8 errors.
- **float**: the paper's simulator, in PyTorch: the same quantized forward pass, real-valued errors, float
  master weights and biases that are rounded for the forward pass.
- **device-no-qas**: the device's arithmetic with one constant in the place of quantization-aware scaling, the
  geometric mean of its constants, so that the grid of rates serves both.
- **truncating**: the device's arithmetic, but weights change as in the published engine: `int8 -= float`.
"""


def markdown(
    rows: Sequence[Row], studied: Sequence[Row], scales: Mapping[str, Sequence[Row]], searched: str
) -> str:
    """The whole document.

    rows      pages/results.json; studied: pages/results-arithmetic.json; scales: pages/results-qas.json
    searched  the text on the schemes that were found
    """
    epochs = ", ".join(f"{count} passes over {name}" for name, count in EPOCHS.items())
    parts = [INTRO.format(epochs=epochs), "## The 99 KB schemes\n", core_table(rows), paired(rows)]
    parts += ["## Accuracy against memory\n", FRONT, front_table(rows), rivals_table(rows)]
    if searched:
        parts += ["## Schemes found by the search\n", searched]
    parts += ["## Quantization-aware scaling\n", SCALING, scaling_table(scales)]
    if {row["dataset"] for row in studied} == set(EPOCHS):
        parts += ["## The arithmetic of training\n", STUDIED.format(network=NETWORK), study_table(studied)]
    return "\n".join(parts)


SCALING = """![Norms of weights against those of gradients](results-qas.svg)

log10 of norm(W) / norm(G) of every weight and bias tensor of all convolutions
(`python lab/results scaling`): mean and standard deviation over the tensors. One learning rate has to
serve them all, so the deviation is what matters: for stored integers it is orders of magnitude, and with QAS
that of the real ones.
"""
STUDIED = """One thing is changed at a time from the device's arithmetic (int8 weights rounded stochastically,
int8 errors with one scale per channel, float head, plain SGD), in PyTorch (`python lab/results study`):
{network}, each variant at the best of three rates for each data set, mean of two seeds on a fifth of the
training images, held out. Differences under a point are noise.
"""
RIVALRY = """
Sparse schemes against what one would train without a search: the last layers (the fewest that take at
least the bytes of the scheme) and biases alone (the most that take no more). One seed.

"""
FRONT = """One seed per point. ![Accuracy against all-in SRAM](results.svg)
"""


def accuracies(rows: Iterable[Row]) -> dict[int, float]:
    """Accuracy in per cent by seed."""
    return {row["seed"]: 100.0 * row["accuracy"] for row in rows}


def core_table(rows: Sequence[Row]) -> str:
    """Mean and deviation over the seeds, and the rate."""
    body = []
    for dataset in EPOCHS:
        for network, scheme in BAR.items():
            cells = [of_cell(rows, Cell(dataset, network, scheme, bits, a)) for a, bits in COLUMNS]
            body.append([dataset, network, scheme, *map(spread, cells)])
    return table(("data", "network", "scheme", *(title(*column) for column in COLUMNS)), body)


def title(arithmetic: str, bits: int) -> str:
    return f"{arithmetic}, {bits} fraction bits" if bits else arithmetic


def spread(rows: Sequence[Row]) -> str:
    if not rows:
        return "-"
    values = list(accuracies(rows).values())
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{deviation} ({rows[0]['lr']:g})"


def differences(rows: Sequence[Row], bits: int, other: str) -> dict[tuple[str, str], list[float]]:
    """Device with some fraction bits minus another arithmetic, by cell, paired by seed, in points."""
    found = {}
    for dataset in EPOCHS:
        for network, scheme in BAR.items():
            ours = accuracies(of_cell(rows, Cell(dataset, network, scheme, bits)))
            theirs = accuracies(of_cell(rows, Cell(dataset, network, scheme, arithmetic=other)))
            pairs = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
            if pairs:
                found[dataset, network] = pairs
    return found


def paired(rows: Sequence[Row]) -> str:
    """What the device wins over each other arithmetic, with 95 % intervals."""
    body: list[list[str]] = []
    titles: list[str] = []
    ours = [bits for arithmetic, bits in COLUMNS if arithmetic == "device"]
    others = [arithmetic for arithmetic, _ in COLUMNS if arithmetic != "device"]
    for bits, other in product(ours, others):
        cells = differences(rows, bits, other)
        if len(cells) == len(EPOCHS) * len(BAR):
            means = [statistics.fmean(pairs) for pairs in cells.values()]
            name = f"{title('device', bits)} - {other}"
            body.append([name, *(interval(pairs) for pairs in cells.values()), interval(means)])
            titles = [f"{network} {dataset}" for dataset, network in cells]
    if not body:
        return ""
    text = "Differences in points, paired by seed and order, with 95 % intervals (Student's t):\n\n"
    return text + table(("", *titles, "mean over cells"), body)


def interval(values: Sequence[float]) -> str:
    """Mean and the half width of its 95 % interval."""
    mean, count = statistics.fmean(values), len(values)
    if count < 2:
        return f"{mean:+.1f}"
    degree = max(d for d in T95 if d <= count - 1)
    return f"{mean:+.2f} ± {T95[degree] * statistics.stdev(values) / math.sqrt(count):.2f}"


def front_table(rows: Sequence[Row]) -> str:
    """One row per plan: all-in SRAM and accuracy on each data set, by seed 0."""
    plans = dict.fromkeys(
        (r["network"], r["sram_all_in"], r["scheme"], r["fraction_bits"])
        for r in rows
        if r["arithmetic"] == "device"
    )
    body = []
    for network, sram, scheme, bits in sorted(plans):
        found = [of_cell(rows, Cell(dataset, network, scheme, bits)) for dataset in EPOCHS]
        own = [f"{accuracies(r)[0]:.1f} ({r[0]['lr']:g})" if r else "-" for r in found]
        body.append([network, scheme, str(bits), f"{sram / 1024:.1f}", *own])
    return table(("network", "scheme", "bits", "SRAM, KB", *EPOCHS), body)


def scaling_table(scales: Mapping[str, Sequence[Row]]) -> str:
    """Mean and deviation of the logarithms, by network and way of storing."""
    kinds = [key for key in next(iter(scales.values()))[0] if key != "tensor"]
    body = []
    for network, own in scales.items():
        values = [[row[kind] for row in own] for kind in kinds]
        body.append([network, *(f"{statistics.fmean(v):.2f} ± {statistics.pstdev(v):.2f}" for v in values)])
    return table(("network", *kinds), body)


def study_table(rows: Sequence[Row]) -> str:
    """Variants with their accuracy on each data set, the change against the base, and steps skipped."""
    body = []
    for variant in VARIANTS:
        pairs = [
            (of_variant(rows, dataset, variant), of_variant(rows, dataset, "base")) for dataset in EPOCHS
        ]
        found = [(own, base) for own, base in pairs if own and base]
        if len(found) == len(EPOCHS):
            cells = [f"{own[0]:.1f} ({own[0] - base[0]:+.1f}, {own[1]:g})" for own, base in found]
            skipped = statistics.fmean(own[2] for own, _ in found)
            body.append([variant, *cells, f"{skipped:.0%}" if skipped else ""])
    return table(("variant", *(f"{d} (change, rate)" for d in EPOCHS), "skipped"), body)


def of_variant(rows: Sequence[Row], dataset: str, variant: str) -> tuple[float, float, float] | None:
    """Mean accuracy in per cent at the best rate, that rate, and the share of steps skipped at it."""
    rows = [row for row in rows if (row["dataset"], row["variant"]) == (dataset, variant)]
    by_rate = {row["lr"]: [r for r in rows if r["lr"] == row["lr"]] for row in rows}
    means = {lr: 100 * statistics.fmean(r["accuracy"] for r in own) for lr, own in by_rate.items()}
    if not means:
        return None
    lr = max(means, key=lambda rate: means[rate])
    return means[lr], lr, statistics.fmean(r["skipped"] for r in by_rate[lr])


def rivals_table(rows: Sequence[Row]) -> str:
    """The sparse schemes against the last layers and biases alone, in about the same SRAM."""
    body: list[list[str]] = []
    wins: dict[tuple[int, int], list[float]] = {}
    for network, pairs in RIVALS.items():
        for (scheme, rivals), dataset in product(pairs.items(), EPOCHS):
            wanted = [(scheme, 0), (scheme, 4), *((rival, 0) for rival in rivals)]
            cells = [of_cell(rows, Cell(dataset, network, *about)) for about in wanted]
            found = [row for cell in cells for row in cell if row["seed"] == 0]
            if len(found) < len(wanted):
                continue
            body.append([dataset, network, *map(at_its_bytes, found)])
            for sparse, rival in product((0, 1), (2, 3)):
                gain = 100.0 * (found[sparse]["accuracy"] - found[rival]["accuracy"])
                wins.setdefault((sparse, rival), []).append(gain)
    if not body:
        return ""
    titles = ("data", "network", "sparse", "with 4 fraction bits", "last layers", "biases")
    names = ("of sparse", "with 4 fraction bits")
    means = [
        [f"mean {names[sparse]} minus", "", "", "", *(interval(wins[sparse, rival]) for rival in (2, 3))]
        for sparse in (0, 1)
    ]
    return RIVALRY + table(titles, [*body, *means])


def at_its_bytes(row: Row) -> str:
    return f"{row['scheme']}: {100 * row['accuracy']:.1f} at {row['sram_all_in'] / 1024:.0f} KB"


def table(titles: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    rows = [titles, ["---"] * len(titles), *body]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
