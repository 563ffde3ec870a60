"""Two conversions into one folder, and a build of what both have left."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from networks import residual_network
from pio_build import ROOT

from microtrain.convert import writing
from microtrain.convert.emit.code import generate
from microtrain.convert.ir import ConvertError
from microtrain.convert.pipeline import Compiled, compile_graph
from microtrain.convert.scheme import Scheme

INCLUDE = ROOT / "firmware/include"
WRITER = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[1]]
from microtrain.convert.writing import write_all
for turn in range(60):
    write_all({f"{i}.txt": sys.argv[3].encode() for i in range(8)}, Path(sys.argv[2]))
"""


def two() -> tuple[Compiled, Compiled]:
    graph = residual_network()
    return tuple(compile_graph(graph, Scheme("s", biases), 3) for biases in (1, 2))  # type: ignore[return-value]


def check(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    command = ["gcc", "-std=c11", "-fsyntax-only", f"-I{INCLUDE}", f"-I{folder}", str(folder / source)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("source", ["model.c", "model_weights.c"])
def test_files_of_two_conversions_do_not_compile(source: str, tmp_path: Path) -> None:
    one, other = (generate(compiled, "a test").files for compiled in two())
    for name, text in one.items():
        (tmp_path / name).write_text(text)
    assert check(tmp_path, source).returncode == 0
    (tmp_path / source).write_text(other[source])
    said = check(tmp_path, source).stderr
    assert f"{source} and model.h are of different conversions: run tools/convert again" in said


def test_the_model_id_does_not_depend_on_that_check() -> None:
    files = generate(two()[0], "a test")
    ids = {re.search(r"MODEL_ID !?=? ?(0x\w+)u", files.files[n])[1] for n in files.files}  # type: ignore[index]
    word = int.from_bytes(bytes.fromhex(files.model_id[:8]), "little")
    assert ids == {f"0x{word:08x}"}


def test_processes_that_write_into_one_folder_leave_the_files_of_one(tmp_path: Path) -> None:
    folder = tmp_path / "generated"
    commands = [[sys.executable, "-c", WRITER, str(ROOT), str(folder), who] for who in "ab"]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    for process in running:
        assert process.communicate(timeout=120)[1] == "" and process.returncode == 0
    assert len({path.read_text() for path in folder.glob("*.txt")}) == 1
    assert len(list(folder.iterdir())) == 8  # and nothing else


def test_conversions_into_many_folders_leave_few_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing.tempfile, "gettempdir", lambda: str(tmp_path))
    files = {Path(writing.alone(tmp_path / str(i)).lock_file) for i in range(200)}
    assert {path.parent for path in files} == {tmp_path} and len(files) <= 16


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConvertError, match=r"cannot write to .*file/out"):
        writing.write_all({"a": b""}, tmp_path / "file/out")
