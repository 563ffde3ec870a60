"""One of the processes that plant mutants, in a copy of the project of its own.

`python -m lab.mutation.worker HOME FOLDER`, at the root of the copy. HOME holds the programs without a bug,
FOLDER is the worker's own. The first line in has the suites' seconds without a bug, if they are known, and
the first one out too. Then a line with a mutant comes in, and a line with what came of it goes out.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import builds, suites
from .operators import Mutant
from .programs import Programs, RefusedError, instead_of_platformio
from .suites import SUITES, Suite

FIRST_LIMIT_S = 900
EQUIVALENT, REFUSED, NOTICED, SURVIVED = "equivalent", "refused", "noticed", "survived"


class Worker:
    """Runs the suites on one mutant after the other.

    limits_s   seconds of the core for each suite: thrice what it takes without a bug, and a little
    """

    def __init__(self, home: Path, folder: Path) -> None:
        self.tree, self.folder = Path.cwd(), folder
        self.programs = Programs(builds.load(home), home / "baseline", folder, self.tree)
        self.limits_s = dict.fromkeys((suite.name for suite in SUITES), FIRST_LIMIT_S)
        instead_of_platformio(self.programs, self.tree / "test")
        _import_what_takes_time()

    def baseline(self, known: dict[str, float]) -> dict[str, float]:
        """Run all suites without a bug. Returns their seconds, -1 where one failed.

        known   the seconds of an earlier run of the same tests: then none is run
        """
        seconds = known or {suite.name: self._seconds(suite) for suite in SUITES}
        self.limits_s = {name: 20 + int(3 * spent) for name, spent in seconds.items()}
        return seconds

    def _seconds(self, suite: Suite) -> float:
        outcome = self._run(suite)
        return -1 if outcome.noticed else round(outcome.seconds, 1)

    def try_one(self, mutant: Mutant, every: bool) -> dict[str, Any]:
        """Plant a mutant and run the suites that it can change.

        every   go on behind the first suite that notices it
        """
        file = self.tree / mutant.file
        source = file.read_bytes()
        file.write_bytes(mutant.planted(source))
        self.programs.plant(mutant)
        try:
            return self._suites(every)
        except RefusedError:
            return {"state": REFUSED}
        finally:
            file.write_bytes(source)
            self.programs.plant(None)

    def _suites(self, every: bool) -> dict[str, Any]:
        """Errors   RefusedError where the compiler does not take it for one of the boards or this machine"""
        found: dict[str, Any] = {}
        for suite in SUITES:
            different = [name for name in suite.needs if self.programs.differs(name)]
            if not different:
                continue
            outcome = self._run(suite)
            found[suite.name] = asdict(outcome)
            if outcome.noticed and not every:
                break
        by = next((name for name, outcome in found.items() if outcome["noticed"]), None)
        state = NOTICED if by else SURVIVED if found else EQUIVALENT
        return {"state": state, "by": by, "suites": found}

    def _run(self, suite: Suite) -> suites.Outcome:
        log = self.folder / f"{log_name(suite.name)}"
        return suites.run(suite, self.programs, self.tree, self.limits_s[suite.name], log)


def log_name(suite: str) -> str:
    return f"{suite.replace(',', '').replace(' ', '-')}.log"


def _import_what_takes_time() -> None:
    """Once, before the children are forked."""
    import hypothesis  # noqa: F401
    import kernel_cases  # noqa: F401
    import pytest  # noqa: F401
    import robot.running  # noqa: F401
    import torch  # noqa: F401

    import renode.golden_session
    import renode.run  # noqa: F401


def main() -> None:
    home, folder = map(Path, sys.argv[1:3])
    folder.mkdir(parents=True, exist_ok=True)
    worker = Worker(home, folder)
    print(json.dumps(worker.baseline(json.loads(sys.stdin.readline()))), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(worker.try_one(Mutant(**asked["mutant"]), asked["every"])), flush=True)


if __name__ == "__main__":
    main()
