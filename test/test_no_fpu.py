"""On a core without FPU products are rounded in integers: the bits are those of the FPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from microtrain.base.paths import FIRMWARE

CASES = 3_000_000
PROGRAM = """#define KERNELS_NO_FPU 1
#include "chip.h"
#include <stdio.h>

static uint32_t state = 1;
static uint32_t draw(void)
{
    state ^= state << 13, state ^= state >> 17, state ^= state << 5;
    return state;
}

static int wrong(int32_t acc, float m)
{
    float product = (float)acc * m;
    int32_t right = (int32_t)rintf(clampf(product, -2047.0f, 2047.0f));
    if (round_product(acc, m) == right) {
        return 0;
    }
    printf("%ld * %a: %ld, not %ld\\n", (long)acc, (double)m, (long)round_product(acc, m), (long)right);
    return 1;
}

int main(void)
{
    static const float edges[] = {0.0f, 0x1p-149f, 0x1p-126f, 0x1p-24f, 0x1p-25f, 0x1.fffffep-25f,
                                  0.5f, 1.0f, 0x1p127f};
    static const int32_t ends[] = {0, 1, -1, 16777215, 16777216, 16777217, 16777219, 33554431,
                                   INT32_MAX, INT32_MIN};
    long failures = 0;
    for (unsigned i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        for (unsigned j = 0; j < sizeof edges / sizeof edges[0]; j++) {
            failures += wrong(ends[i], edges[j]) + wrong(ends[i], -edges[j]);
        }
    }
    for (long n = 0; n < CASES && failures < 10; n++) {
        int32_t acc = (int32_t)(draw() >> draw() % 32u) * (draw() & 1u ? 1 : -1);
        uint32_t bits = (draw() & 0x7fffffu) | (127u - draw() % 34u) << 23;
        bits &= draw() & 1u ? 0xffffffffu : 0xffff0000u; /* ties */
        float m;
        memcpy(&m, &bits, sizeof m);
        failures += wrong(acc, m);
    }
    return failures != 0;
}
"""


def checked(folder: Path, header: str) -> subprocess.CompletedProcess[str]:
    (folder / "chip.h").write_text(header)
    (folder / "main.c").write_text(PROGRAM)
    flags = [
        "-std=c11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Werror",
        "-ffp-contract=off",
        f"-DCASES={CASES}",
    ]
    command = ["gcc", *flags, f"-I{folder}", f"-I{FIRMWARE / 'include'}", str(folder / "main.c"), "-lm"]
    subprocess.run([*command, "-o", str(folder / "main")], check=True)
    return subprocess.run([str(folder / "main")], capture_output=True, text=True, check=False)


def header() -> str:
    return (FIRMWARE / "src/kernels/chip.h").read_text(encoding="utf-8")


def test_products_are_rounded_as_the_fpu_rounds_them(tmp_path: Path) -> None:
    done = checked(tmp_path, header())
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("right", ["low == half && half && (q & 1u)", "a = shift_even(a, length - 24);"])
def test_a_wrong_rounding_is_noticed(right: str, tmp_path: Path) -> None:
    text = header()
    assert right in text
    wrong = {"low": "low == half && half", "a =": "a >>= length - 24;"}[right[:3]]
    assert checked(tmp_path, text.replace(right, wrong)).returncode == 1
