"""The kernels on this machine under AddressSanitizer, UndefinedBehaviorSanitizer and valgrind."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from planting import KERNELS, planted

from microtrain.base.paths import ROOT
from microtrain.convert.reference import hostlib

RUNNER = Path(__file__).with_name("kernel_sanitized.py")
SANITIZED = "-O1 -g -fno-sanitize-recover=all -fsanitize=address,undefined -shared-libasan"
AVX2 = ("", " -mavx2")
CASES = [8, pytest.param(40, marks=pytest.mark.slow)]  # of each check; the planted faults take 12


def sanitized(
    kernels: Path | None, cache: Path | None, flags: str, cases: int
) -> subprocess.CompletedProcess[str]:
    """Run the cases under clang's sanitizers."""
    library = hostlib.build("clang", kernels, cache, SANITIZED + flags)
    found = ["clang", "-print-file-name=libclang_rt.asan-x86_64.so"]
    runtime = subprocess.run(found, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip("clang has no runtime of AddressSanitizer here")
    environment = {**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0"}
    return run([sys.executable, str(RUNNER), str(library), str(cases)], environment)


def run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "test")])
    environment = {**environment, "PYTHONPATH": paths}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(autouse=True)
def clang() -> None:
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("flags", AVX2, ids=["portable", "AVX2"])
def test_sanitizers_find_nothing(flags: str, cases: int) -> None:
    if flags and "avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this machine has no AVX2")
    done = sanitized(None, None, flags, cases)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "all kernels ran"


FAULTS = {
    "stale lanes": ("dense.h", "span->live < span->lanes", "0", "signed integer overflow"),
    "a byte too many": (
        "conv2d_update.c",
        "*y++ = x[index[i]];",
        "*y++ = x[index[i]]; *y = 0;",
        "heap-buffer",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, tmp_path: Path) -> None:
    file, old, new, said = FAULTS[fault]
    planted(tmp_path, (file, old, new))
    done = sanitized(tmp_path, tmp_path, "", 12)
    assert done.returncode != 0
    assert said in done.stderr


def never_written(kernels: Path | None, cache: Path | None) -> list[str]:
    """Lines of kernels that valgrind names, the interpreter's own errors left out."""
    library = hostlib.build("gcc", kernels, cache, "-O1 -g")
    command = ["valgrind", "--error-limit=no", sys.executable, str(RUNNER), str(library), "2", "--raw"]
    done = run(command, {**os.environ, "PYTHONMALLOC": "malloc"})
    files = "|".join(re.escape(path.name) for path in KERNELS.glob("*.[ch]"))
    found = re.findall(rf"\w+ \((?:{files}):\d+\)", done.stderr)
    assert found or "all kernels ran" in done.stdout, done.stderr[-3000:]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("planted", [False, True], ids=["as it is", "planted"])
def test_valgrind_finds_what_was_never_written(planted: bool, tmp_path: Path) -> None:
    """Nothing; and with sums that begin at what scratch held before, where they are used."""
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    shutil.copytree(KERNELS, tmp_path, dirs_exist_ok=True)
    if planted:
        text, zeros = (tmp_path / "conv2d_bwd_x.c").read_text(), "fill_bytes(col->sums, 0, n"
        assert zeros in text
        (tmp_path / "conv2d_bwd_x.c").write_text(text.replace(zeros, "fill_bytes(col->sums, 0, 0 * n"))
    assert bool(never_written(tmp_path, tmp_path)) == planted
