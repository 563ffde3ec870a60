"""Which mutants are planted, in which order, and the workers that they are given to."""

from __future__ import annotations

import hashlib
import json
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.notes import read, write
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from renode.examples import EXAMPLES, convert

from . import builds
from .bugs import by_hand
from .builds import FOLDER, GENERATED, OUTSIDE
from .operators import Mutant, mutants
from .suites import ARM, BOARD_TESTS, FEATURES, HOST_TESTS, LIBRARY, SANITIZED, SESSION
from .worker import NOTICED, SURVIVED, log_name

RUNTIME, SERIAL = "firmware/src/runtime", "firmware/src/serial"
HAND = "registers, by hand"
LIBRARY_ALONE = ("fpu", "library", "words", "microtrain", "microtrain_library")
GROUPS = {
    "drivers": 28,
    "protocol": 26,
    "checkpoint and session": 24,
    "kernels": 30,
    "generated code": 8,
    "library": 12,
}
SOURCES = (".c", ".h", ".S", ".ld")
WITH_TESTS = (".py", ".c", ".h", ".robot", ".resource")
COUNTED = (NOTICED, SURVIVED)
TESTS = (*HOST_TESTS, *BOARD_TESTS, *SESSION, *ARM, *SANITIZED, *FEATURES, *LIBRARY)
KEPT = FOLDER / "baseline.json"  # seconds of each suite without a bug, by the hash of all tests
Result = dict[str, Any]


def group_of(file: str) -> str | None:
    """The group that a file's mutants count in; None: none is planted in it."""
    path = Path(file)
    if "/board/host/" in file or path.suffix not in (".c", ".h") or path.stem.endswith("_avx2"):
        return None
    if "/board/" in file:
        return "drivers"
    if "/kernels/" in file:
        return "kernels"
    if file.startswith(RUNTIME) and path.stem in LIBRARY_ALONE:
        return "library"
    if file == f"{GENERATED}/model.c":
        return "generated code"
    if file.startswith(RUNTIME) or path.stem == "sha256":
        return "checkpoint and session"
    return "protocol" if file.startswith((SERIAL, "firmware/src/base")) else None


def sources() -> list[str]:
    """The firmware's files of C."""
    return sorted(str(p.relative_to(ROOT)) for p in (ROOT / "firmware/src").rglob("*.[ch]"))


def drawn(seed: int) -> dict[str, list[Mutant]]:
    """The mutants of each group in the order in which they are planted; those by hand are all there."""
    groups: dict[str, list[Mutant]] = {HAND: list(by_hand(ROOT)), **{name: [] for name in GROUPS}}
    for name in [*sources(), f"{GENERATED}/model.c"]:
        group = group_of(name)
        if group:
            groups[group] += mutants(name, (ROOT / name).read_bytes())
    for group in GROUPS:
        groups[group].sort(key=lambda mutant: hashlib.sha256(f"{seed} {mutant.name}".encode()).digest())
    return groups


@dataclass
class Plan:
    """Gives out mutants until each group has as many as it shall have that compile and mean something else.

    wanted    by group
    results   by the mutant's name, those of an earlier run too
    """

    groups: dict[str, list[Mutant]]
    wanted: dict[str, int]
    results: dict[str, Result]

    def __post_init__(self) -> None:
        self._next = dict.fromkeys(self.groups, 0)
        self._open = dict.fromkeys(self.groups, 0)
        self._lock = threading.Condition()

    def counted(self, group: str) -> list[Mutant]:
        """The mutants of a group that count, so far."""
        done = self.groups[group][: self._next[group]]
        return [m for m in done if self.results.get(m.name, {}).get("state") in COUNTED]

    def only_what_is_known(self) -> None:
        """Try nothing more: what counts is what was tried before."""
        for group, all_of_it in self.groups.items():
            tried = [i for i, mutant in enumerate(all_of_it) if mutant.name in self.results]
            self._next[group] = tried[-1] + 1 if tried else 0

    def take(self) -> tuple[str, Mutant] | None:
        """The next one, and its group; None: there is nothing more to do."""
        with self._lock:
            while True:
                for group in self.groups:
                    found = self._take_of(group)
                    if found:
                        return group, found
                if not any(self._open.values()):
                    return None
                self._lock.wait()

    def _take_of(self, group: str) -> Mutant | None:
        while self._next[group] < len(self.groups[group]):
            if len(self.counted(group)) + self._open[group] >= self.wanted[group]:
                return None
            mutant = self.groups[group][self._next[group]]
            self._next[group] += 1
            if mutant.name not in self.results:
                self._open[group] += 1
                return mutant
        return None

    def put(self, group: str, mutant: Mutant, result: Result) -> None:
        with self._lock:
            self.results[mutant.name] = result
            self._open[group] -= 1
            self._lock.notify_all()


# ---------------------------------------------------------------- workers
def copy_tree(tree: Path) -> None:
    """The project as it is on disk, without what git ignores, and the generated example."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    shutil.rmtree(tree, ignore_errors=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, target = ROOT / name, tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(source.readlink())
        elif source.is_file():
            shutil.copy2(source, target)
    for model in (GENERATED, OUTSIDE):
        shutil.copytree(ROOT / model, tree / model)


def prepare() -> str:
    """Convert the example, and build every program without a bug unless they are there.

    Returns   what they are made of, as a hash: results of mutants hold for it
    Errors    Error where the example does not convert, or something does not build
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    convert(ROOT / GENERATED, "--imprint", "off")  # as test/conftest.py has it
    convert(ROOT / OUTSIDE, *EXAMPLES["qspi"].options)
    current, stamp = made_of(), FOLDER / "stamp"
    built_of = f"{current} {hashlib.sha256(Path(builds.__file__).read_bytes()).hexdigest()[:16]}"
    if not stamp.is_file() or stamp.read_text() != built_of:
        found = builds.recipes()
        builds.save(found)
        builds.build_baseline(found)
        stamp.write_text(built_of)
    return current


def made_of() -> str:
    folders = ("firmware", *builds.MODELS.values())
    files = sorted(p for folder in folders for p in (ROOT / folder).rglob("*") if p.suffix in SOURCES)
    files += [ROOT / "platformio.ini", ROOT / "test/fixtures/puppet.c"]
    content = b"".join(str(p.relative_to(ROOT)).encode() + p.read_bytes() for p in files)
    return hashlib.sha256(content).hexdigest()[:16]


class Process:
    """A worker, and the line to it."""

    def __init__(self, number: int) -> None:
        tree, folder = FOLDER / f"tree-{number}", FOLDER / f"worker-{number}"
        copy_tree(tree)
        command = [sys.executable, "-m", "lab.mutation.worker", str(FOLDER), str(folder)]
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "worker.log").open("w") as errors:
            self._process = subprocess.Popen(
                command, cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.folder = folder

    def answer(self) -> Any:
        """Errors   Error where the worker has ended"""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Error(f"a worker has ended: see {self.folder}/worker.log.")
        return json.loads(line)

    def say(self, what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def ask(self, mutant: Mutant, every: bool) -> Result:
        self.say({"mutant": asdict(mutant), "every": every})
        result: Result = self.answer()
        return result

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def baselines(processes: list[Process]) -> dict[str, float]:
    """Seconds of each suite without a bug, which are kept as long as the tests are the same.

    Errors   Error where one fails: it would notice every mutant
    """
    key = _tests()
    seconds: dict[str, float] = read(KEPT, {}).get(key, {})
    for process in processes:  # the first measures where nothing is known
        process.say(seconds)
        seconds = process.answer()
        failed = [name for name, spent in seconds.items() if spent < 0]
        if failed:
            raise Error(f"{failed[0]} fails without a bug: see {process.folder}/{log_name(failed[0])}.")
    write(KEPT, {key: seconds})
    return seconds


def known_seconds() -> dict[str, float]:
    """What the last run measured, {} where there was none."""
    found: dict[str, float] = next(iter(read(KEPT, {}).values()), {})
    return found


def _tests() -> str:
    """What the suites are made of, as a hash."""
    files = [ROOT / "lab/mutation/suites.py", FOLDER / "stamp"]
    files += sorted(
        p for name in ("tools", "renode") for p in (ROOT / name).rglob("*") if p.suffix in WITH_TESTS
    )
    files += [ROOT / "test" / name for name in TESTS]
    files.append(ROOT / builds.UNIT_TESTS)
    return hashlib.sha256(b"".join(p.read_bytes() for p in files)).hexdigest()[:16]


def work(
    plan: Plan, jobs: int, every: Callable[[Mutant], bool], done: Callable[[str, Mutant, Result], None]
) -> dict[str, float]:
    """Let workers try what the plan gives out; `done` is called for each, one at a time.

    Returns   seconds of each suite without a bug
    """
    answers: queue.Queue[tuple[str, Mutant, Result] | Exception | None] = queue.Queue()
    processes = [Process(number) for number in range(jobs)]
    seconds = baselines(processes)
    for process in processes:
        threading.Thread(target=_serve, args=(process, plan, every, answers), daemon=True).start()
    for answer in _until_all_have_ended(answers, jobs):
        done(*answer)
    for process in processes:
        process.close()
    return seconds


def _serve(process: Process, plan: Plan, every: Callable[[Mutant], bool], answers: queue.Queue[Any]) -> None:
    try:
        while (taken := plan.take()) is not None:
            group, mutant = taken
            result = process.ask(mutant, every(mutant))
            plan.put(group, mutant, result)
            answers.put((group, mutant, result))
        answers.put(None)
    except Exception as error:
        answers.put(error)


def _until_all_have_ended(answers: queue.Queue[Any], jobs: int) -> Iterator[tuple[str, Mutant, Result]]:
    while jobs:
        answer = answers.get()
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            jobs -= 1
        else:
            yield answer
