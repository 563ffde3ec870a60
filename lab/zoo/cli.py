"""Command line: public architectures through `convert --check`, into build/zoo.json: `make check-zoo`."""

from __future__ import annotations

import logging
import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import torch
from torch import nn

from lab import notes
from lab.alone import hold
from lab.bench.build import build
from lab.sizes.firmware import flash_bytes, sram_bytes, written
from microtrain.base.paths import ROOT
from microtrain.base.terminal import say
from microtrain.convert import boards, check
from microtrain.convert.frontends.module import LoadedModel
from microtrain.convert.loading import load
from microtrain.convert.pipeline import ALL_PASSES
from microtrain.convert.scheme import Scheme
from microtrain.convert.tasks import headed

from . import timm_models
from .cases import CASES, Case

WORK, RESULT = ROOT / "build/zoo", ROOT / "build/zoo.json"
CLOSE, FEW_BYTES, MOST_SECONDS = 0.02, 160, 10.0
OPSET = 17  # which writes GELU in pieces


def exported(case: Case, folder: Path) -> tuple[nn.Module, Path]:
    """The network with random weights, and its file."""
    torch.manual_seed(0)
    network, path = case.make().eval(), folder / f"{case.name}.{'onnx' if case.onnx else 'pt2'}"
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        example = (torch.zeros(1, *case.shape),)
        if case.onnx:
            torch.onnx.export(network, example, str(path), opset_version=OPSET, dynamo=False)
        else:
            torch.export.save(torch.export.export(network, example), path)
        logging.disable(logging.NOTSET)
    return network, path


def lone_norms(network: nn.Module, shape: tuple[int, ...]) -> int:
    """Channels of batch norms that follow no convolution, each a layer of a weight and a bias a channel."""
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    layers = [m for m in network.modules() if isinstance(m, nn.Conv1d | nn.Conv2d | nn.Linear)]
    found: list[int] = []

    def made(module: nn.Module, given: Any, result: torch.Tensor) -> None:
        result.of_layer = True  # type: ignore[attr-defined]

    def seen(module: Any, given: Any) -> None:
        if not hasattr(given[0], "of_layer"):
            found.append(module.num_features)

    hooks = [m.register_forward_hook(made) for m in layers]
    hooks += [m.register_forward_pre_hook(seen) for m in norms]
    with torch.no_grad():
        network(torch.zeros(1, *shape))
    for hook in hooks:
        hook.remove()
    return sum(found)


def true_weights(network: nn.Module, shape: tuple[int, ...]) -> int:
    """Bytes as int8 with int32 biases, counted in PyTorch: all layers but a linear one at the end."""
    layers = [m for m in network.modules() if isinstance(m, nn.Conv1d | nn.Conv2d | nn.Linear)]
    stored = layers[:-1] if isinstance(layers[-1], nn.Linear) else layers
    weights = [m.weight for m in stored]
    weights += [m.in_proj_weight for m in network.modules() if isinstance(m, nn.MultiheadAttention)]
    weights += [m.weight.transpose(0, 1) for m in network.modules() if isinstance(m, nn.ConvTranspose2d)]
    cells = [m for m in network.modules() if isinstance(m, nn.RNNBase)]
    inner = [w for cell in cells for w in cell.parameters() if w.ndim > 1]
    biases = sum(16 * cell.hidden_size * cell.num_layers for cell in cells)  # four a unit
    layers_bytes = sum(weight.numel() + 4 * weight.shape[0] for weight in weights)
    return layers_bytes + sum(w.numel() for w in inner) + biases + 5 * lone_norms(network, shape)


def true_sizes(path: Path, checked: check.Checked) -> dict[str, int]:
    """Flash and all-in SRAM of the firmware that is built of a model that fits."""
    loaded = load(path, False, None)
    scheme, classes = Scheme(checked.scheme or ""), checked.classes or 0
    compiled = check.planned(loaded, scheme, classes, checked.limits, ALL_PASSES)
    elf = build(written(compiled, WORK / path.stem / "generated"), WORK / path.stem, checked.board)
    return {"flash": flash_bytes(elf), "sram": sram_bytes(elf)}


def opened(path: Path) -> LoadedModel:
    """As a conversion has it that learns classes."""
    loaded = load(path, False, None)
    headed(loaded.graph)
    return loaded


def looked_at(case: Case, built: bool) -> dict[str, Any]:
    """One row: the answer, how long it took, and what is true."""
    network, path = exported(case, WORK)
    limits = boards.limits(boards.find(), None, None)
    start, worked = time.monotonic(), time.process_time()
    checked = check.check(path, check.Asked(lambda: opened(path), limits))
    seconds = {"seconds": round(time.monotonic() - start, 1)}
    seconds["processor_seconds"] = round(time.process_time() - worked, 1)
    estimated = {"weights": checked.weights, "flash": checked.flash, "sram": checked.sram}
    true = {"weights": true_weights(network, case.shape) + case.ours}
    if checked.fits and built:
        true |= true_sizes(path, checked)
    path.unlink()
    row: dict[str, Any] = {"model": case.name, "verdict": "fits" if checked.fits else "does not fit"}
    row |= {"obstacles": list(checked.obstacles), "estimated": estimated, "true": true, **seconds}
    return row | {"wrong": wrong(case, row)}


def wrong(case: Case, row: dict[str, Any]) -> list[str]:
    """What is not as it must be in a row, in words."""
    said = " ".join(row["obstacles"])
    found = [f"is not told of: {words}" for words in case.told if words not in said]
    if not case.told and row["obstacles"]:
        found.append("should fit")
    for what, size in row["true"].items():
        over = row["estimated"][what] - size
        if abs(over) > max(CLOSE * size, FEW_BYTES):
            found.append(f"{what} is {size:,} B, not {row['estimated'][what]:,} B")
    if row["processor_seconds"] > MOST_SECONDS:  # what else runs on this machine is no fault of the check
        found.append(f"took {row['processor_seconds']} s")
    return found


def asked(only: str | None) -> list[Case]:
    """The architectures of that name, or all; without timm, those that are not its own."""
    chosen = [case for case in (*CASES, *timm_models.CASES) if only in (None, case.name)]
    if find_spec("timm") is None and any(case in timm_models.CASES for case in chosen):
        say("timm is not installed, and its architectures are left out: pip install --no-deps timm")
        chosen = [case for case in chosen if case not in timm_models.CASES]
    return chosen


@click.command()
@click.option("--only", help="One architecture, by its name; the file is left alone.")
@click.option("--build/--no-build", "built", default=True, help="Build those that fit, for their true sizes.")
def main(only: str | None, built: bool) -> None:
    """Ask `convert --check` about public architectures, and hold its answers against what is true."""
    hold(WORK)
    rows = []
    for case in asked(only):
        row = looked_at(case, built)
        rows.append(row)
        verdict = f"{row['verdict']}, {len(row['obstacles'])} obstacles"
        judged = "; ".join(row["wrong"]) or "right"
        say(f"{case.name:31} {verdict:28} {row['processor_seconds']:5.1f} s  {judged}")
    if only is None:
        notes.write(RESULT, rows)
    sys.exit(1 if any(row["wrong"] for row in rows) else 0)
