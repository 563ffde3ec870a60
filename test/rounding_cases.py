"""Layers for kernels that are built to round sums in another way than by a float32 multiplier."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import kernel_arm
import kernel_cases
import numpy as np
import pytest
from conftest import ROOT
from kernel_twins import Split, Twin
from networks import residual_network
from planting import KERNELS, planted
from test_executor import partly_trained

from microtrain.convert.emit.code import generate
from microtrain.convert.ir import Window
from microtrain.convert.ops import host
from microtrain.convert.reference import hostlib
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.kernels import Conv

CORES = ("cortex-m7", "cortex-m4")
QUICK = ("gcc", "cortex-m7")
BUILDS = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name in ("gcc", "clang", "gcc -O3 -march=native", *CORES)
]
CHANNELS = 23


def built(name: str, level: str, folder: Path) -> Twin:
    """The kernels as one of BUILDS makes them; skips where what it needs is not there."""
    compiler, _, flags = name.partition(" ")
    if compiler in CORES:
        pytest.importorskip("unicorn", reason="Unicorn is not installed")
        return arm_twin(folder, level, compiler)
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    return Twin(host.bound(hostlib.build(compiler, level=f"{level} {flags}")))


def arm_twin(folder: Path, level: str, cpu: str, kernels: Path = KERNELS) -> Twin:
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("arm-none-eabi-gcc is not installed")
    lib = kernel_arm.ArmLib(kernel_arm.build(folder, level, cpu, kernels), cpu=cpu)
    return Twin(lib)  # type: ignore[arg-type]


Rounded = Callable[[Conv], Conv]


def check_layer(
    twin: Twin, op: str, side: int, window: Window, mask: bool, trained: int, rounded: Rounded
) -> None:
    """A layer of 23 channels with sums as large as int32 lets them be. rounded: gives it its multipliers"""
    rng = np.random.default_rng(side)
    shape = (side, side, CHANNELS)
    y = (*window.outputs(side, side), CHANNELS)
    p = rounded(Conv(shape, y, window, -7, -128 + side, np.zeros(CHANNELS, np.float32), 4))
    taps = (CHANNELS, window.kh, window.kw) + ((CHANNELS,) if op == "conv2d" else ())
    x, w = kernel_cases.draw_s8(rng, shape), rng.integers(-127, 128, taps, dtype=np.int8)
    b = rng.integers(-9999, 9999, CHANNELS, dtype=np.int32)
    b[[3, 11]] = 2**31 - 1 - 2**25, -(2**31) + 2**25
    got, bits = twin.forward(op, p, x, w, b, Split(tuple(range(trained)), CHANNELS), mask)
    want, want_bits = getattr(reference, f"{op}_fwd")(p, x, w, b)
    np.testing.assert_array_equal(got, want)
    kernel_cases.same_mask(bits, want_bits)


def check_dense(twin: Twin, side: int, mask: bool, trained: int, rounded: Rounded) -> None:
    check_layer(twin, "conv2d", side, Window(1, 1), mask, trained, rounded)
    check_layer(twin, "conv2d", side, Window(3, 3, 2, 2, 1, 1), mask, trained, rounded)


def check_depthwise(twin: Twin, side: int, mask: bool, stride: int, rounded: Rounded) -> None:
    for kernel in (3, 5):
        window = Window(kernel, kernel, stride, stride, kernel // 2, kernel // 2)
        check_layer(twin, "dwconv2d", side, window, mask, 0, rounded)


def check_noticed(
    folder: Path, level: str, fault: tuple[str, str, str], on_chip: bool, rounded: Rounded
) -> None:
    """Layers are wrong where a fault is planted.

    fault    a file, what stands there and what shall
    on_chip  Arm's kernels are those that are asked
    """
    name, right, _ = fault
    assert (KERNELS / name).read_text().count(right) == 1
    kernels = planted(folder / "src/kernels", fault)
    if on_chip:
        pytest.importorskip("unicorn", reason="Unicorn is not installed")
        twin = arm_twin(folder, level, CORES[0], kernels)
    else:
        twin = Twin(host.bound(hostlib.build(kernels=kernels, cache=folder, level=level)))
    with pytest.raises(AssertionError):
        for side in (8, 21, 40):
            check_dense(twin, side, False, 0, rounded)
            check_dense(twin, side, True, 0, rounded)
            check_depthwise(twin, side, False, 1, rounded)


def check_others_refused(folder: Path, requantize: str) -> None:
    """A model for one arithmetic, which is left in the folder, compiles with its own kernels alone."""
    compiled = partly_trained(residual_network().replace(requantize=requantize), 0)
    for name, text in generate(compiled, "a test").files.items():
        (folder / name).write_text(text)
    include = [f"-I{ROOT / 'firmware/include'}", f"-I{folder}"]
    command = ["gcc", "-std=c11", "-fsyntax-only", *include, str(folder / "model.c")]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode and f"converted with --requantize {requantize}" in refused.stderr
    subprocess.run([*command, f"-DMICROTRAIN_{requantize.upper()}=1"], check=True)
