"""Functions for depthwise windows: a model says which it uses, and kernels do the same without them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import kernel_cases
import numpy as np
import pytest
from conftest import Built
from kernel_twins import Twin
from planting import KERNELS, planted

from microtrain.base.elf import read_elf
from microtrain.convert.emit.windows import WAYS, names
from microtrain.convert.ir import Window
from microtrain.convert.reference import hostlib
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.kernels import Conv

pytest.importorskip("unicorn", reason="Unicorn is not installed")
if shutil.which("arm-none-eabi-gcc") is None:
    pytest.skip("arm-none-eabi-gcc is not installed", allow_module_level=True)

import kernel_arm
from test_kernels_arm import TILES

SIDES, STRIDES = (3, 4, 5, 7), (1, 2, 3)


class Watched(kernel_arm.ArmLib):
    """Kernels that keep in `entered` which functions for windows ran."""

    def __init__(self, elf: Path) -> None:
        super().__init__(elf)
        self.entered: set[str] = set()
        for name in WAYS:
            self._watch(name, self._symbols[name] & ~1)

    def _watch(self, name: str, address: int) -> None:
        def entered(*_: Any) -> None:
            self.entered.add(name)

        self._uc.hook_add(kernel_arm.unicorn.UC_HOOK_CODE, entered, begin=address, end=address)


def twin_of(folder: Path, windows: int, kernels: Path = KERNELS) -> Twin:
    """Kernels that are built with some windows."""
    elf = kernel_arm.build(folder, f"-O2 -DMICROTRAIN_WINDOWS={windows:#05x}", kernels=kernels)
    return Twin(Watched(elf))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def all_of_them(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    yield twin_of(tmp_path_factory.mktemp("all"), 0xFFF)


@pytest.fixture(scope="module")
def none_of_them(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    yield twin_of(tmp_path_factory.mktemp("none"), 0)


def layer(shape: tuple[int, int, int], side: int, stride: int) -> Conv:
    h, w, c = shape
    m = np.random.default_rng(side).uniform(1e-4, 1e-3, c).astype(np.float32)
    window = Window(side, side, stride, stride, side // 2, side // 2)
    return Conv(shape, (*window.outputs(h, w), c), window, -7, 5, m, 4)


def strips(p: Conv) -> Iterator[Conv]:
    """Rows of it, as streams run them."""
    for rows in range(1, min(p.y[0], 6)):
        window = replace(p.window, pad_h=0)
        height = (rows - 1) * window.stride_h + window.kh
        yield replace(p, x=(height, *p.x[1:]), y=(rows, *p.y[1:]), window=window)


def forward(twin: Twin, p: Conv) -> None:
    rng = np.random.default_rng(p.y[0])
    c, split = p.x[2], kernel_cases.Split((), p.x[2], True)
    x = kernel_cases.draw_s8(rng, p.x)
    taps = rng.integers(-127, 128, (c, p.window.kh, p.window.kw), dtype=np.int8)
    b = rng.integers(-9999, 9999, c, dtype=np.int32)
    y, _ = twin.forward("dwconv2d", p, x, taps, b, split, False)
    np.testing.assert_array_equal(y, reference.dwconv2d_fwd(p, x, taps, b)[0])


def backward(twin: Twin, p: Conv) -> None:
    rng = np.random.default_rng(p.y[1])
    split = kernel_cases.Split((), p.x[2], True)
    ey, clamp = kernel_cases.draw_error(rng, p.y), kernel_cases.draw_clamp(rng, p.x)
    taps = rng.integers(-127, 128, (p.x[2], p.window.kh, p.window.kw), dtype=np.int8)
    got = twin.backward_x("dwconv2d", p, ey, taps, clamp, split)
    kernel_cases.same_error(got, reference.dwconv2d_bwd_x(p, ey, taps, clamp))


def ran(twin: Twin) -> set[str]:
    """What was entered since it was last asked."""
    lib: Any = twin.lib
    entered, lib.entered = lib.entered, set()
    return set(entered)


def test_what_runs_is_among_what_a_layer_says(all_of_them: Twin) -> None:
    twin, seen = all_of_them, set[str]()
    for shape in TILES.values():
        for side in SIDES:
            for stride in STRIDES:
                p = layer(shape, side, stride)
                struct = twin.conv(p)
                said = set(names(hostlib.ask("dwconv2d_fwd_ways", struct)))
                for rows in (p, *strips(p)):
                    forward(twin, rows)
                    found = ran(twin)
                    assert found <= said, (rows, found)
                    seen |= found
                backward(twin, p)
                assert ran(twin) <= set(names(hostlib.ask("dwconv2d_bwd_x_ways", struct))), p
    assert seen == set(WAYS)


def test_without_them_the_results_are_the_same(none_of_them: Twin) -> None:
    for shape in list(TILES.values())[:4]:
        for side in SIDES:
            p = layer(shape, side, 1 + side % 2)
            forward(none_of_them, p)
            backward(none_of_them, p)
    assert not ran(none_of_them)


def test_a_function_that_is_not_there_and_is_called_is_noticed(tmp_path: Path) -> None:
    fault = ("planes.c", "(MICROTRAIN_WINDOWS << 1)", "(MICROTRAIN_WINDOWS << 2)")
    twin = twin_of(tmp_path, 1, planted(tmp_path / "src/kernels", fault))
    forward(twin, layer((8, 8, 5), 5, 1))
    with pytest.raises((AssertionError, kernel_arm.unicorn.UcError)):
        forward(twin, layer((8, 40, 5), 3, 1))
        forward(twin, layer((2, 40, 5), 3, 1))


def test_a_firmware_holds_no_other_windows(example: Built) -> None:
    """`pio run` passes on what model.h says; the self-test's layer has none where the model has none."""
    (line,) = (
        line for line in (example.folder / "model.h").read_text().splitlines() if "MODEL_WINDOWS" in line
    )
    held = set(read_elf(example.elf).names) & set(WAYS)
    assert held == set(names(int(line.split()[2], 16)))
