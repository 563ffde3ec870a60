"""The suites, from the cheapest to the dearest, each run in a process of its own that cannot hang."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from microtrain.base.errors import Error

from .programs import Fixtures, Programs

KERNEL_CASES = 40  # a check; `make test` runs 200
PYTEST = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "-m", "not slow")
HOST_TESTS = ("test_board_troubles.py", "test_protocol.py", "test_guard.py", "test_flash_checkpoint.py")
BOARD_TESTS = (
    "test_drivers.py",
    "test_nucleo.py",
    "test_firmware_build.py",
    "test_selftest.py",
    "test_flash_checkpoint.py",
)
# Tests of the build, of other headers, and those that plant bugs themselves.
HOST_OUT = (
    "not (replay or silence or are_kept or staged or incomplete or cut_save or power_cut or planted "
    "or its_seed or alike_on_the_board or half_way)"
)
BOARD_IN = (
    "drivers or limits or loses_its_result or contract or sections or bottom_of_sram or vectors "
    "or barriers or crash or hang or direct or sound_board or flipped or wrong_result "
    "or half_way or its_seed"
)
ROBOT = ("hardware", "board", "frames", "microtrain", "checkpoint")
OUTSIDE = ("external",)  # of weights beside the chip
LEARNS = ("training",)  # 90 steps, which both boards do alike: on one of them
PASSED, NOTICED, BROKEN = 0, 1, 2
POLL_S, ASLEEP = 0.1, "SZ"
SAID = "noticed by "  # and which test, in a suite's log


@dataclass(frozen=True)
class Suite:
    """A suite of tests.

    name     as in the record
    needs    the programs that it runs: where none of them differs, it is left out
    run      PASSED, NOTICED, or BROKEN where it could not run
    """

    name: str
    needs: tuple[str, ...]
    run: Callable[[Programs, Path], int]


def _kernels(programs: Programs, tree: Path) -> int:
    import kernel_cases
    from kernel_twins import Twin

    from microtrain.convert.ops import host

    twin = Twin(host.bound(programs.product("kernels")))
    for name in kernel_cases.CHECKS:
        try:
            kernel_cases.run(name, twin, KERNEL_CASES)
        except AssertionError as error:
            print(f"{error}\n{SAID}{name}")
            return NOTICED
    return PASSED


def _unit_tests(programs: Programs, tree: Path) -> int:
    done = subprocess.run([programs.product("unit-tests")], capture_output=True, text=True, check=False)
    print(done.stdout)
    if done.returncode == 0 and "PASS" in done.stdout and "FAIL" not in done.stdout:
        return PASSED
    failed = next((line for line in done.stdout.splitlines() if "FAIL" in line), f"exit {done.returncode}")
    print(f"{SAID}{failed}")
    return NOTICED


def _pytest(files: tuple[str, ...], chosen: str) -> Callable[[Programs, Path], int]:
    def run(programs: Programs, tree: Path) -> int:
        import pytest

        paths = [str(tree / "test" / file) for file in files]
        scratch = f"--basetemp={programs.folder / 'pytest'}"
        arguments = [*PYTEST, "--durations=8", scratch, "-k", chosen, *paths]
        fixtures = Fixtures(programs)
        code = int(pytest.main(arguments, plugins=[fixtures]))
        print(f"{SAID}{fixtures.failed}" if fixtures.failed else "")
        return {0: PASSED, 1: NOTICED}.get(code, BROKEN)

    return run


def _robot(board: str, names: tuple[str, ...], model: str = "example") -> Callable[[Programs, Path], int]:
    def run(programs: Programs, tree: Path) -> int:
        from microtrain.emulator.chips import CHIPS
        from microtrain.emulator.robotrun import run_on_board_model
        from renode import boards
        from renode.run import prepare

        chip = next(chip for chip in CHIPS.values() if chip.board == board)
        folder = programs.folder / "robot"
        paths = [tree / "renode" / f"{name}.robot" for name in names]
        paths, needed = prepare(paths, programs.product("example-native"), folder, board)
        elf = programs.product(f"{model}-{board}").resolve()
        variables = {"ELF": str(elf), **boards.variables(chip), **needed}
        for path in paths:
            if run_on_board_model([path], variables, folder, first=True):
                print(f"{SAID}{path.stem}: {_first_failed(folder / 'output.xml')}")
                return NOTICED
        return PASSED

    return run


def _first_failed(output: Path) -> str:
    from robot.api import ExecutionResult

    return next((str(test.name) for test in ExecutionResult(output).suite.all_tests if test.failed), "set-up")


def _both(model: str) -> tuple[str, ...]:
    return f"{model}-disco_f746ng", f"{model}-nucleo_f446re"


SESSION, ARM = ("test_short_session.py",), ("test_kernels_arm.py",)
SANITIZED = ("test_kernels_sanitized.py",)
LIBRARY = ("test_library.py", "test_targets.py")
# Of models with records, statistics of features, targets, a front end, windows that overlap.
FEATURES = ("test_replay.py", "test_imprint.py", "test_measured.py", "test_sound.py", "test_hop.py")
FEATURES_IN = (
    "(replays_what or looked_at or silent_line) and not off or c_and_python or begin_anew or saved_before "
    "or looks_first or without_training or what_the_simulator_does or ends_with_its "
    "or makes_the_rows or cannot_be_is_answered or hears_only or where_rows_came or all_was_sound "
    "or goes_on_behind"
)
HOPS, HOPS_IN = ("test_hop.py",), "goes_on_as_the_firmware or in_pieces_go_on"
LIBRARY_OUT = "not (clang or cpp or planted or writes_and_says or generated or autograd)"
SUITES = (
    Suite("kernel twins", ("kernels",), _kernels),
    Suite("C unit tests", ("unit-tests",), _unit_tests),
    Suite("host tests", ("puppet", "null-native_asan"), _pytest(HOST_TESTS, HOST_OUT)),
    Suite("session, F746", ("example-disco_f746ng",), _pytest(SESSION, "disco")),
    Suite("session, F446", ("example-nucleo_f446re",), _pytest(SESSION, "nucleo")),
    Suite("session, NumPy", ("example-native",), _pytest(SESSION, "numpy")),
    Suite("session, sanitized", ("example-native_asan",), _pytest(SESSION, "sanitizers")),
    Suite("board tests", (*_both("null"), *_both("example")), _pytest(BOARD_TESTS, BOARD_IN)),
    Suite("Robot, F746", ("example-disco_f746ng",), _robot("disco_f746ng", ROBOT + LEARNS)),
    Suite("Robot, beside the chip", ("outside-disco_f746ng",), _robot("disco_f746ng", OUTSIDE, "outside")),
    Suite("Robot, F446", ("example-nucleo_f446re",), _robot("nucleo_f446re", ROBOT)),
    Suite("features", ("features",), _pytest(FEATURES, FEATURES_IN)),
    Suite("library", ("library",), _pytest(LIBRARY, LIBRARY_OUT)),
    Suite("library, hops", ("library",), _pytest(HOPS, HOPS_IN)),
    Suite("kernels on Arm", _both("example"), _pytest(ARM, "not m55")),
    Suite("kernels on Helium", ("helium",), _pytest(ARM, "m55")),
    Suite("kernels, sanitized", ("kernels",), _pytest(SANITIZED, "nothing and portable")),
    Suite("streams", ("kernels",), _pytest(("test_stream.py",), "rows_give")),
    Suite("power cuts", _both("null"), _pytest(("test_flash_checkpoint.py",), "power_cut and True-True")),
)


@dataclass(frozen=True)
class Outcome:
    """What came of a suite: whether it noticed something, by which test, in how many seconds of the core."""

    noticed: bool
    how: str
    seconds: float


def run(suite: Suite, programs: Programs, tree: Path, limit_s: int, log: Path) -> Outcome:
    """Run a suite in a child process.

    limit_s   of the core, or asleep, before the child is ended: a bug may loop or wait for ever
    log       what the suite says
    Errors    Error where the suite could not run
    """
    started = os.times()
    child = os.fork()
    if child == 0:
        _in_the_child(suite, programs, tree, limit_s, log)
    status = _wait(child, limit_s)
    spent = os.times()
    seconds = spent.children_user + spent.children_system - started.children_user - started.children_system
    if os.WIFSIGNALED(status):
        return Outcome(True, f"signal {os.WTERMSIG(status)}", seconds)
    code = os.WEXITSTATUS(status)
    if code == BROKEN:
        raise Error(f"the suite {suite.name} could not run: see {log}.")
    return Outcome(code != PASSED, _said(log) if code != PASSED else "", seconds)


def _said(log: Path) -> str:
    """Which test noticed, where the suite came so far as to say it."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.removeprefix(SAID) for line in reversed(lines) if line.startswith(SAID)), "")


def _wait(child: int, limit_s: float) -> int:
    """The child's exit status; it is killed where it sleeps for too long. To wait for a core is no sleep."""
    import signal

    slept = 0.0
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        if slept > limit_s:
            os.killpg(child, signal.SIGKILL)
        slept += POLL_S if _state(child)[0] in ASLEEP and _group_sleeps(child) else 0
        time.sleep(POLL_S)


def _state(process: int | str) -> tuple[str, int]:
    """State and group of a process (proc(5)); Z and 0 where there is none any more."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return "Z", 0
    return fields[0], int(fields[2])


def _group_sleeps(group: int) -> bool:
    found = (_state(path.name) for path in Path("/proc").glob("[0-9]*"))
    return all(state in ASLEEP for state, of in found if of == group)


def _in_the_child(suite: Suite, programs: Programs, tree: Path, limit_s: int, log: Path) -> None:
    code = BROKEN
    try:
        os.setpgrp()
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 1))
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        code = suite.run(programs, tree)
    except Exception:
        traceback.print_exc()
        # A program that dies, or that no longer fits the board, says so in an exception of the suite's own.
        code = NOTICED
    finally:
        sys.stdout.flush()
        os._exit(code)
