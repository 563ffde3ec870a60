"""The default example as a user meets it: it learns, within the memory that was promised."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import EXAMPLE, ROOT, Built, build_example, run

from lab.claims import record
from microtrain.demo.measure import all_in_sram
from microtrain.demo.run import RATE
from microtrain.demo.sessions import host_session
from microtrain.device.session import Settings
from microtrain.samples.source import Dataset, load, scan

SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def images(digits: Path) -> tuple[Dataset, Dataset]:
    """The device's world: training and unseen images."""
    return scan(digits / "train", 10), scan(digits / "test", 10)


def accuracies(program: Path, images: tuple[Dataset, Dataset]) -> tuple[list[float], list[float]]:
    """Before and after one pass, by seed."""
    settings = [Settings(seed=seed, rate=RATE, schedule="cosine") for seed in SEEDS]
    results = [host_session(program, *images, s) for s in settings]
    return [r.before for r in results], [r.after for r in results]


def test_the_sparse_scheme_learns_and_beats_head_only(
    example: Built, images: tuple[Dataset, Dataset], tmp_path_factory: pytest.TempPathFactory
) -> None:
    head = build_example(EXAMPLE / "head.yaml", tmp_path_factory.mktemp("head"), board=False)
    before, after = accuracies(example.program, images)
    _, head_after = accuracies(head.program, images)
    print(f"sparse {after}, head only {head_after}")
    assert len(images[1].samples) >= 300
    assert min(a - b for a, b in zip(after, before, strict=True)) >= 0.3
    assert min(after) >= 0.9
    assert np.mean(after) - np.mean(head_after) >= 0.05


def test_the_reported_sram_covers_what_the_emulator_measures(
    example: Built, images: tuple[Dataset, Dataset], tmp_path: Path
) -> None:
    report = tmp_path / "memory.json"
    arguments = [
        "--elf",
        str(example.elf),
        "--plan",
        str(example.folder / "plan.json"),
        "--json",
        str(report),
    ]
    run(["python", "tools/memory_report", *arguments])
    reported = json.loads(report.read_text())["sram"]["total"]
    samples = images[0].samples[:: len(images[0].samples) // 3][:3]
    pixels = np.stack([load(s.path, (32, 32, 1)) for s in samples])
    measured = all_in_sram(example.elf, pixels, np.array([s.label for s in samples]))
    print(f"reported {reported}, measured {measured}")
    assert measured <= reported <= 1.1 * measured


def test_pio_run_prints_no_warning(example: Built) -> None:
    assert "warning" not in example.output.lower()
    assert example.output.count("SUCCESS") >= 2


def test_the_elf_keeps_the_float_rules(example: Built) -> None:
    run(["python", "tools/elfcheck", str(example.elf)])


@pytest.mark.slow
def test_the_demo_writes_its_report() -> None:
    run(["python", "tools/demo"])
    report = json.loads((ROOT / "build/demo/report.json").read_text())
    assert report["accuracy_after"] >= max(0.9, report["accuracy_before"] + 0.3)
    assert report["sha256_host"] == report["sha256_device"]
    assert report["sram_measured"] <= report["sram_reported"] <= 1.1 * report["sram_measured"]
    assert report["test_images"] >= 300
    assert report["train_steps"] > 0
    assert 0 < report["flash_bytes"] < 2**20
    assert report["step_instructions"] > 0
    assert record.differences(record.load(), record.demo()) == [], "`python lab/claims --measure`"
