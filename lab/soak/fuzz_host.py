"""The firmware's serial line on this machine under libFuzzer: coverage-guided, with sanitizers."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from microtrain.base.hostcc import Parts, compiled
from microtrain.base.paths import ROOT
from microtrain.device.protocol import ROW, WEIGHTS, Frame, crc32, encode

from .firmware import NULL_MODEL

HERE = Path(__file__).parent
SANITIZED = ("-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wdouble-promotion", "-Werror")
RUNS = 50_000  # inputs of one process: a step of the progress bar
TIMEOUT_S = 10  # of one input: more is a hang
INPUT_MAX = 2048
MALLOC_MB = 512  # of one allocation
ANY_PEAK = "-rss_limit_mb=0"  # the peak that libFuzzer reads begins with that of the process that starts it
WORDS = (
    *("help", "ping", "info", "image", "row", "pattern", "infer", "train", "eval", "stats", "clear", "rate"),
    *("seed", "replay", "rehearse", "sha", "pull", "push", "reset", "save", "autosave", "forget", "reboot"),
    *("baud", "led", "guard", "selftest"),
)
SYNC, MODEL_ID = "\\xa5\\x5a", "6c6c756e"


@dataclass
class Report:
    """Frames and lines that were sent, and what failed, in words."""

    frames: int = 0
    lines: int = 0
    failures: list[str] = field(default_factory=list)


def build(folder: Path, firmware: Path = ROOT / "firmware") -> Path:
    """The fuzzer, folder/fuzz_line. Error where clang or its libFuzzer is missing, or it does not compile."""
    own = [firmware / "src" / room for room in ("base", "runtime", "serial", "kernels")]
    sources = [source for part in (HERE, *own, NULL_MODEL) for source in sorted(part.glob("*.c"))]
    sources += [firmware / "src" / name for name in ("application.c", "board/host/absent.c")]
    parts = Parts(
        what="the fuzzer",
        name="fuzz_line",
        sources=tuple(sources),
        flags=(*STRICT, *SANITIZED, "-g", "-O2", "-ffp-contract=off", "-DMODEL_RECORDS=4"),
        include=(firmware / "include", firmware / "src/runtime", NULL_MODEL, HERE),
        others=tuple(header for part in own for header in sorted(part.glob("*.h"))),
        hint=f"it has a mistake, or clang has no libFuzzer for {platform.machine()}: run `make setup`",
    )
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(compiled(parts, cc="clang", suffix=""), folder / "fuzz_line"))


def seeds(folder: Path) -> None:
    """Inputs to start from: an image and a step, a push, checkpoints, and lines of every command."""
    image = b"".join(encode(Frame(ROW, y, y, bytes(range(8 * y, 8 * y + 8)))) for y in range(8))
    block = bytes(range(100, 164))
    push = f"push 64 {crc32(block):08x} {MODEL_ID}\n".encode()
    inputs = {
        "image": image + b"infer\n" + image + b"train 1\neval 1\n",
        "push": push + encode(Frame(WEIGHTS, 1, 0, block[:40])) + encode(Frame(WEIGHTS, 2, 40, block[40:])),
        "save": b"pattern 3\ntrain 1\nsave\nautosave 1\npattern 4\ntrain 2\nreboot\nforget\nsave\n",
        "lines": "".join(f"{word} 1\n{word}\n" for word in WORDS if word != "reboot").encode(),
        "long": encode(Frame(ROW, 0, 0, bytes(600))) + b"x" * 200 + b"\n\x80\nping\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in inputs.items():
        (folder / name).write_bytes(b"\x40\xff\xff" + data)
    dictionary = [f'"{word}"' for word in (*WORDS, SYNC, MODEL_ID, "\\x0a", " ")]
    folder.with_suffix(".dict").write_text("\n".join(dictionary) + "\n", encoding="ascii")


def fuzz(
    folder: Path, program: Path, frames: int, seed: int, advance: Callable[[int], None], inputs: int = RUNS
) -> Report:
    """Send this many frames or more; what was found interesting stays in folder/corpus for the next time.

    advance   called with the frames of each process; the first failure ends it all
    inputs    of one process
    """
    corpus, counts, report = folder / "corpus", folder / "counts", Report()
    seeds(corpus)
    while report.frames < frames and not report.failures:
        seed += 1
        counts.unlink(missing_ok=True)
        options = [f"-runs={inputs}", f"-seed={seed}", f"-max_len={INPUT_MAX}", f"-timeout={TIMEOUT_S}"]
        options += [
            f"-dict={corpus.with_suffix('.dict')}",
            f"-artifact_prefix={folder}/failed-",
            "-verbosity=0",
            ANY_PEAK,
            f"-malloc_limit_mb={MALLOC_MB}",
        ]
        command, environment = (
            [str(program), *options, str(corpus)],
            {**os.environ, "FUZZ_COUNTS": str(counts)},
        )
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode or not counts.exists():
            report.failures.append(f"seed {seed}: {done.stderr[-3000:]}")
            continue
        sent, lines = map(int, counts.read_text(encoding="ascii").split())
        report.frames, report.lines = report.frames + sent, report.lines + lines
        advance(sent)
    return report
