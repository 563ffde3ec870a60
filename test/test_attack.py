"""The attacks of lab/attack, in small; and that they notice what they look for."""

from __future__ import annotations

import io
import pickle
import random
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from pio_build import ROOT

from lab.attack import corpus, files, mutate, readers, worker
from microtrain.convert.ir import ConvertError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_damaged_files_of_all_kinds_are_read_or_refused(tmp_path: Path) -> None:
    seeds = corpus.seeds(tmp_path / "corpus", None)
    assert set(seeds) == set(readers.READERS) - {"firmware"} == set(files.SHARES) - {"firmware"}
    done: list[int] = []
    report = files.attack_files(tmp_path, seeds, 900, 7, done.append)
    assert report.files == sum(done) > 800
    assert report.executed == [] and report.failures == []
    assert 0 < report.megabytes < 1500
    assert not (tmp_path / "corpus/executed").exists()


def attempt(reader: object, path: Path, monkeypatch: pytest.MonkeyPatch) -> str | None:
    monkeypatch.setitem(readers.READERS, "model", reader)
    path.write_bytes(b"x")
    return worker.attempt("model", path, path.parent)


def test_readers_that_fail_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"

    def traceback(path: Path) -> None:
        raise IndexError("a bug")

    def writes(path: Path) -> None:
        (path.parent / "left").write_text("")

    def long(path: Path) -> None:
        raise ConvertError("x" * 2000)

    def lines(path: Path) -> None:
        raise ConvertError("x\ny")

    def fine(path: Path) -> None:
        raise ConvertError("it is damaged")

    assert attempt(fine, path, monkeypatch) is None
    assert "IndexError at test_attack.py" in str(attempt(traceback, path, monkeypatch))
    assert "in 2000 characters" in str(attempt(long, path, monkeypatch))
    assert "in 3 characters" in str(attempt(lines, path, monkeypatch))
    assert attempt(writes, path, monkeypatch) == "leaves left behind"


def test_a_reader_that_hangs_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(path: Path) -> None:
        while True:
            try:
                sum(range(1000))
            except Exception:
                continue

    old = signal.signal(signal.SIGALRM, worker.too_slow)
    monkeypatch.setattr(worker, "SECONDS", 1)
    assert attempt(hangs, tmp_path / "file", monkeypatch) == "takes more than 1 s"
    signal.signal(signal.SIGALRM, old)


CONFINED = """
import os, pickle, subprocess, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from lab.attack import sandbox
inside, outside = Path(sys.argv[2]), Path(sys.argv[3])
print("confined", sandbox.confine(inside))
watch = sandbox.Watch(inside)
def tried(what):
    try:
        what()
        return "done"
    except OSError:
        return "refused"
print("inside", tried(lambda: (inside / "a").write_text("")), len(watch.seen))
print("outside", tried(lambda: (outside / "a").write_text("")), len(watch.seen))
child = subprocess.run(["touch", str(outside / "b")], capture_output=True)
print("child", child.returncode != 0)
watch.seen.clear()
try:
    pickle.loads(b"cposix\\nsystem\\n(S'true'\\ntR.")
except Exception:
    pass
print("pickle", "pickle.find_class" in str(watch.seen))
"""


def test_the_sandbox_holds(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    command = [sys.executable, "-c", CONFINED, str(ROOT), str(inside), str(outside)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    if said["confined"] == "False":
        pytest.skip("this kernel has no Landlock")
    assert said["inside"] == "done 0"
    assert said["outside"] == "refused 1"
    assert said["child"].startswith("True")
    assert said["pickle"] == "True"
    assert list(outside.iterdir()) == []


def test_memory_counts_from_the_start_of_a_process() -> None:
    fat = bytearray(b"x" * (300 << 20))  # the mark of getrusage would begin with it
    own = "from lab.attack import sandbox; x = bytearray(b'x' * (50 << 20)); print(sandbox.peak_megabytes())"
    said = subprocess.run([sys.executable, "-c", own], capture_output=True, text=True, check=True, cwd=ROOT)
    assert len(fat) > 200 << 20
    assert 50 < int(said.stdout) < 200


def test_mutations_repeat_and_reach_into_archives(tmp_path: Path) -> None:
    data = corpus.exported(tmp_path / "model.pt").read_bytes()
    for seed in range(20):
        first, again = (mutate.mutated(random.Random(seed), data) for _ in range(2))
        assert first == again
    changed = {mutate.mutated(random.Random(seed), data) for seed in range(300)}
    assert len(changed) > 250
    documents = {document for one in changed if (document := program_of(one))}
    assert len(documents) > 5  # of archives that are in order but for that


def program_of(archive: bytes) -> bytes | None:
    """The program in an archive whose checksums are right; None where it has none."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as file:
            return next((file.read(n) for n in file.namelist() if n.endswith("model.json")), None)
    except Exception:  # damaged outside
        return None


def test_the_bombs_of_the_corpus_are_bombs(tmp_path: Path) -> None:
    corpus.seeds(tmp_path, None)
    torch.load(tmp_path / "bomb.pt", weights_only=False)
    assert (tmp_path / "executed").exists()
    assert pickle.dumps(corpus.Bomb(tmp_path))
