"""Reads damaged files in a process that can write nowhere else, and says what came of it, a JSON line each.

    python lab/attack/worker.py KIND FOLDER FIRST COUNT SEED

FOLDER holds the good files in `seeds/KIND`; damaged ones are written to `work-FIRST` in it, one at a time.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import sys
import traceback
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from lab.attack import mutate, readers, sandbox

SECONDS = 20  # for one file
MEGABYTES = 3000  # of address space, libraries included
NAMES = {"network": "model.npz"}  # where a reader looks for a name of its own


class TooSlowError(BaseException):
    """A file took longer than it may. No Exception: no reader may take it for a damaged file."""


def main(kind: str, folder: Path, first: int, count: int, seed: int) -> None:
    """Read `count` damaged files of a kind, from number `first` on."""
    seeds = sorted((folder / "seeds" / kind).iterdir())
    work = folder / f"work-{kind}-{first}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    readers.prepare()
    for path in seeds:  # what readers import is in memory before the door closes
        warm_up(kind, work / NAMES.get(kind, path.name), path.read_bytes())
    closed = sandbox.confine(work)
    sandbox.limit_memory(MEGABYTES)
    watch = sandbox.Watch(work)
    signal.signal(signal.SIGALRM, too_slow)
    print(json.dumps({"sandbox": closed}), flush=True)
    for number in range(first, first + count):
        rng = random.Random(f"{seed}:{kind}:{number}")
        source = rng.choice(seeds)
        path = work / NAMES.get(kind, f"damaged{source.suffix}")
        path.write_bytes(mutate.mutated(rng, source.read_bytes()))
        print(json.dumps({"at": number}), flush=True)
        watch.seen.clear()
        problem = attempt(kind, path, work)
        path.unlink()
        problem = problem or (f"it {watch.seen[0]}" if watch.seen else None)
        if problem:
            print(json.dumps({"number": number, "problem": problem, "source": source.name}), flush=True)
    print(json.dumps({"megabytes": sandbox.peak_megabytes()}), flush=True)


def warm_up(kind: str, path: Path, data: bytes) -> None:
    path.write_bytes(data)
    readers.read(kind, path)
    path.unlink()


def attempt(kind: str, path: Path, work: Path) -> str | None:
    """What was wrong with the reading of a file; None where it was read, or refused in a sentence."""
    signal.alarm(SECONDS)
    try:
        sentence = readers.read(kind, path)
    except TooSlowError:
        return f"takes more than {SECONDS} s"
    except Exception as error:  # what a fuzzer looks for
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}: {str(error)[:100]}"
    finally:
        signal.alarm(0)
    first, *others = (sentence or "one line").splitlines()
    listed = all(line.startswith("  - ") for line in others)  # each obstacle of a model is a line
    if sentence is not None and (not first or not listed or len(sentence) > 1000):
        return f"is refused in {len(sentence)} characters: {sentence[:100]!r}"
    left = sorted(p.name for p in work.rglob("*") if p != path)
    return f"leaves {left[0]} behind" if left else None


def too_slow(*_: object) -> None:
    raise TooSlowError


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:]))
