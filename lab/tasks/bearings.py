"""Bearings: a network that knows a healthy motor by one accelerometer learns it by another, on the device.

The data are those of the Bearing Data Center of Case Western Reserve University, which are not ours to hand
on: recordings at 48 kHz without load, of a healthy bearing and of faults that were made by electro-discharge
machining, each by an accelerometer at the fan's end and one at the drive's.
"""

from __future__ import annotations

import re
import sys
import wave
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.io import loadmat
from scipy.signal import decimate
from torch import nn

from lab.bench import measure
from lab.bench.build import build
from microtrain.base.commands import run
from microtrain.base.errors import Error
from microtrain.base.pio import BOARD
from microtrain.base.plan import Plan, read_plan
from microtrain.base.sound import parse
from microtrain.convert.ops.reconstruct import ANOMALY as SCORE
from microtrain.convert.ops.reconstruct import NORMAL as THRESHOLD
from microtrain.device.session import Settings
from microtrain.native.model import Model, Sgd, compile_model
from microtrain.samples.log_mel import log_mel
from microtrain.samples.source import evenly
from microtrain.simulate.blueprint import Blueprint, load_blueprint

from .learn import auc
from .twin import Twin

RATE, SLOWER, FULL = 12_000, 4, 4096  # Hz; by how much less than was recorded; of a sample, 1 g
FRONT_END = f"spectrum:rate={RATE},frame=256,hop=256,bands=32"
FRAMES, WIDTH, STEP = 4, 33, 512  # rows of a window, their numbers, and samples from one window to the next
NORMAL, FAULT = re.compile(r"normal_0_\d+\.mat"), re.compile(r"48k_Drive_End_.+_0_\d+\.mat")
LOUDNESS = 2000  # RMS of windows that are equally loud
LEARNED, OF_EACH, STEPS = 0.6, 40, 2000  # share of the healthy windows that is learned; windows of a fault
RATES = 0.01  # that `convert --task anomaly` chooses
FAN, DRIVE = "FE", "DE"


def windows(file: Path, sensor: str, alike: bool) -> list[np.ndarray]:
    """Of a recording, int16 each. alike: all are equally loud"""
    found = next((v for name, v in loadmat(file).items() if name.endswith(f"{sensor}_time")), None)
    if found is None:
        raise Error(f"{file} has no recording of {sensor}: it is none of CWRU's .mat files.")
    slow = decimate(found.reshape(-1), SLOWER, ftype="fir")
    size = parse(FRONT_END).samples(FRAMES)
    cut = [slow[start : start + size] for start in range(0, len(slow) - size + 1, STEP)]
    loud = [LOUDNESS * part / part.std() if alike else FULL * part for part in cut]
    return [np.clip(np.rint(part), -32768, 32767).astype(np.int16) for part in loud]


@dataclass(frozen=True)
class Recordings:
    """Windows. known: at the fan's end; new, test: healthy, at the drive's; odd: with each fault, there."""

    known: list[np.ndarray]
    new: list[np.ndarray]
    test: list[np.ndarray]
    odd: dict[str, list[np.ndarray]]


def recordings(folder: Path, alike: bool) -> Recordings:
    healthy = next((p for p in sorted(folder.iterdir()) if NORMAL.fullmatch(p.name)), None)
    faults = [p for p in sorted(folder.iterdir()) if FAULT.fullmatch(p.name)]
    if healthy is None or not faults:
        raise Error(f"{folder} holds no normal_0_97.mat and 48k_Drive_End_..._0_NUMBER.mat of CWRU's set.")
    own = windows(healthy, DRIVE, alike)
    cut = int(LEARNED * len(own))
    odd = {p.stem.split("End_")[1]: evenly(windows(p, DRIVE, alike), OF_EACH) for p in faults}
    return Recordings(
        windows(healthy, FAN, alike), own[:cut], own[cut + 1 :], odd
    )  # neighbours share samples


def rows(found: Sequence[np.ndarray]) -> np.ndarray:
    """What the front end makes of windows, uint8 [windows][1][FRAMES][WIDTH]."""
    front = parse(FRONT_END)
    return np.stack([log_mel(front, samples)[None] for samples in found])


def network(known: np.ndarray, folder: Path) -> Path:
    """An autoencoder that was trained on windows of the known sensor."""
    torch.manual_seed(0)
    sides = (FRAMES * WIDTH, 48, 12, 48, FRAMES * WIDTH)
    layers = [layer for a, b in pairwise(sides) for layer in (nn.Linear(a, b), nn.ReLU())]
    model, x = nn.Sequential(nn.Flatten(), *layers[:-1]), torch.tensor(known / np.float32(255))
    adam = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(400):
        for some in x[torch.randperm(len(x))].split(32):
            adam.zero_grad()
            nn.functional.mse_loss(model(some), some.flatten(1)).backward()
            adam.step()
    path = folder / "bearing.pt2"
    torch.export.save(torch.export.export(model.eval(), (x[:1],)), path)
    return path


def converted(model: Path, known: Sequence[np.ndarray], folder: Path) -> Blueprint:
    typical = folder / "typical"
    typical.mkdir(parents=True, exist_ok=True)
    for number, samples in enumerate(known):
        with wave.open(str(typical / f"{number:03d}.wav"), "wb") as file:
            file.setparams((1, 2, RATE, len(samples), "NONE", ""))
            file.writeframes(samples.astype("<i2").tobytes())
    words = [sys.executable, "tools/convert", str(model), "--task", "anomaly", "--frontend", FRONT_END]
    done = run([*words, "--calibration", str(typical), "-o", str(folder / "generated")])
    if done.returncode:
        raise Error(done.stderr[-400:])
    return load_blueprint(folder / "generated")


def scores(model: Model, stored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of windows, and how many of them lie above the threshold."""
    logits = np.stack([model.forward(x, False) for x in stored])
    return logits[:, SCORE], logits[:, SCORE] > logits[:, THRESHOLD]


def measured(folder: Path, work: Path) -> list[dict[str, Any]]:
    """The rows of the page: windows as loud as they are, and all alike. folder: of the .mat files"""
    return [row(recordings(folder, alike), work / f"alike-{alike}", alike) for alike in (False, True)]


def row(found: Recordings, work: Path, alike: bool) -> dict[str, Any]:
    """Before and after 2,000 steps: areas under the curve, and shares of test windows and of faults that lie
    above the device's threshold."""
    work.mkdir(parents=True, exist_ok=True)
    path = network(rows(found.known), work)
    blueprint = converted(path, found.known, work)
    plan = read_plan(blueprint.folder / "plan.json")
    model = Model(blueprint.folder, compile_model(blueprint.folder, work))
    odd = [each for own in found.odd.values() for each in own]

    def stored(some: Sequence[np.ndarray]) -> np.ndarray:
        return np.stack([blueprint.stored(each[0][..., None]) for each in rows(some)])

    new, test, faults = stored(found.new), stored(found.test), stored(odd)
    before = scores(model, test), scores(model, faults)
    for step, (i, rate) in enumerate(shown(len(new))):
        model.forward(new[i], True)
        model.backward(0, Sgd(rate, rate, rate, seed=1, step=step))
    after = scores(model, test), scores(model, faults)
    kinds = np.repeat(list(found.odd), [len(own) for own in found.odd.values()])
    caught = {kind: round(float(after[1][1][kinds == kind].mean()), 4) for kind in found.odd}
    loud, louder = (np.array([np.std(w.astype(float)) for w in some]) for some in (found.test, odd))
    return {
        "alike": alike,
        "windows": {"known": len(found.known), "new": len(new), "test": len(test), "faults": len(odd)},
        "auc_before": auc(before[0][0], before[1][0]),
        "auc_after": auc(after[0][0], after[1][0]),
        "auc_float": in_float(path, plan, found),
        "auc_rms": auc(loud, louder),
        "above_before": [round(float(above.mean()), 4) for _, above in before],
        "above_after": [round(float(above.mean()), 4) for _, above in after],
        "caught": caught,
        **costs(blueprint.folder, plan, rows(found.new)[0][0][..., None], work),
    }


def shown(windows: int) -> Iterator[tuple[int, float]]:
    """Which window a step is on, and its rate."""
    draws, settings = np.random.default_rng(0), Settings(rate=2.0)
    passes = np.concatenate([draws.permutation(windows) for _ in range(-(-STEPS // windows))])
    return ((int(i), RATES * settings.rate_at(step, STEPS)) for step, i in enumerate(passes[:STEPS]))


def in_float(path: Path, plan: Plan, found: Recordings) -> float:
    """The same session in PyTorch: its area under the curve."""

    def real(some: Sequence[np.ndarray]) -> np.ndarray:
        return np.asarray(rows(some).reshape(len(some), -1) / np.float32(255))

    twin, new = Twin(path, plan, real(found.known)), real(found.new)
    for i, rate in shown(len(new)):
        twin.learn(new[i], rate)
    odd = [each for own in found.odd.values() for each in own]
    return auc(twin.scores(real(found.test)), twin.scores(real(odd)))


def costs(generated: Path, plan: Plan, pixels: np.ndarray, work: Path) -> dict[str, int]:
    """Of the firmware for the default board."""
    elf = build(generated, work, BOARD)
    report, counts = measure.memory(elf, plan), measure.instruction_counts(elf, plan, pixels, 0)
    kinds = ("inference_instructions", "step_instructions")
    return {"sram": report.sram_total, "flash": report.flash_total, **{kind: counts[kind] for kind in kinds}}
