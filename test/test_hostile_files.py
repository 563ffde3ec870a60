"""No file runs code, writes outside the output folder, or takes memory that it has no bytes for."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pio_build import ROOT

from lab.attack import corpus as hostile
from microtrain.base.errors import Error, FileError
from microtrain.base.npz import read_npz
from microtrain.base.pickles import Instance, read_pickle
from microtrain.convert import scheme
from microtrain.convert.aten_call import Call, Param
from microtrain.convert.frontends.aten.rules import lower
from microtrain.convert.frontends.checkpoint import read_checkpoint
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError
from microtrain.convert.lowering import Lowering
from microtrain.device.model_file import load_state
from microtrain.search import kept_costs
from microtrain.search.cost import Budget

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
SHAPE = (1, 8, 8)


def test_the_torchscript_attack_works_on_torch_itself(tmp_path: Path) -> None:
    """What the tests below defend against: torch.jit.load writes the file that it is told to."""
    trace = tmp_path / "written"
    path = hostile.scripted(tmp_path / "model.pt", hostile.WriterOutside(str(trace)))
    trace.unlink(missing_ok=True)
    with contextlib.suppress(RuntimeError):  # it complains afterwards
        torch.jit.load(path)
    assert trace.exists()


@pytest.mark.parametrize("net", [hostile.Writer, hostile.WriterOutside])
def test_torchscript_runs_no_code_of_the_file(net: type[Any], tmp_path: Path) -> None:
    trace = tmp_path / "written"
    path = hostile.scripted(tmp_path / "model.pt", net(str(trace)))
    trace.unlink(missing_ok=True)
    for read in (lambda: load_model(path, input_shape=SHAPE), lambda: load_state(path)):
        try:
            read()
        except Error as error:
            assert len(str(error).splitlines()) == 1
    assert not trace.exists()


def test_a_network_beside_the_attack_is_read_all_the_same(tmp_path: Path) -> None:
    net = hostile.WriterOutside(str(tmp_path / "written"))
    graph = load_model(hostile.scripted(tmp_path / "model.pt", net), input_shape=SHAPE).graph
    wanted = net.net.conv.weight.detach().numpy().transpose(0, 2, 3, 1)
    assert np.array_equal(graph.layers["net.conv"].weight, wanted)


@pytest.mark.parametrize("part", ["data/weights/", "data/constants/", "data/sample_inputs/"])
def test_a_state_dict_of_an_export_runs_no_pickle(part: str, tmp_path: Path) -> None:
    trace = tmp_path / "executed"
    path = hostile.with_pickle(tmp_path / "hostile.pt", part, trace)
    with contextlib.suppress(Error):
        load_state(path)
    assert not trace.exists()


def test_a_pickle_builds_data_and_calls_nothing(tmp_path: Path) -> None:
    trace = tmp_path / "executed"
    found = read_pickle(pickle.dumps({"a": hostile.Bomb(trace), "b": [1, (2.5, "x")]}), "it")
    assert isinstance(found["a"], Instance) and "touch" in str(found["a"].args) + found["a"].kind
    assert found["b"] == [1, (2.5, "x")] and not trace.exists()
    pickle.loads(pickle.dumps(hostile.Bomb(trace)))
    assert trace.exists()  # the bomb is one


def test_a_pickle_cannot_ask_for_memory_that_it_has_no_bytes_for() -> None:
    with pytest.raises(FileError, match="damaged pickle"):
        read_pickle(b"\x80\x02Nr\xff\xff\xff\x7f.", "it")  # LONG_BINPUT: a memo of 2 ** 31 places


def test_tuples_that_share_tuples_take_time_by_their_bytes() -> None:
    """A billion laughs: sixty pairs of pairs, each twice the one before it."""
    data = b"\x80\x02)q\x00" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(60)) + b"."
    found = read_pickle(data, "it")
    assert len(found) == 2 and found[0] is found[1]


def test_published_checkpoints_run_no_code(tmp_path: Path) -> None:
    trace, path = tmp_path / "executed", tmp_path / "net.pkl"
    path.write_bytes(pickle.dumps({"first_conv": hostile.Bomb(trace), "blocks": [1], "classifier": 1}))
    with pytest.raises(ConvertError, match=r"net\.pkl is no quantized checkpoint .*it holds "):
        read_checkpoint(path)
    assert not trace.exists()


def test_arrays_are_bounded_and_plain(tmp_path: Path) -> None:
    trace = tmp_path / "executed"
    for path in (hostile.huge_npz(tmp_path / "a.npz"), hostile.pickled_npz(tmp_path / "b.npz", trace)):
        with pytest.raises(FileError, match="damaged file"):
            read_npz(path)
    assert not trace.exists()
    arrays: dict[str, np.ndarray] = {
        "x": np.arange(6, dtype=np.int16).reshape(2, 3),
        "y": np.asfortranarray(np.eye(3)),
        "z": np.array("t"),
    }
    np.savez_compressed(tmp_path / "good.npz", **arrays)  # type: ignore[arg-type]
    found = read_npz(tmp_path / "good.npz")
    assert set(found) == set(arrays) and all(np.array_equal(found[k], arrays[k]) for k in arrays)


@pytest.mark.parametrize("order", "<>")
def test_text_of_characters_that_there_are_not_is_damaged(order: str) -> None:
    """NumPy reads it, and Python fails where it prints it."""
    points = np.array([0x41, sys.maxunicode], f"{order}u4")
    for last, fits in ((sys.maxunicode, True), (sys.maxunicode + 1, False)):
        points[1] = last
        file = io.BytesIO()
        np.savez(file, graph=points.view(f"{order}U2"))
        if fits:
            assert read_npz(file, "a.npz")["graph"][0] == "A" + chr(last)
            continue
        with pytest.raises(FileError, match="characters that there are not"):
            read_npz(file, "a.npz")


def test_costs_of_another_program_are_not_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace, kept = tmp_path / "executed", tmp_path / "costs.json"
    monkeypatch.setattr(kept_costs, "path", lambda lab, space: kept)
    for text in (pickle.dumps(hostile.Bomb(trace)).decode("latin-1"), "[]", '{"budget": {}, "bases": 3}'):
        kept.write_text(text, encoding="latin-1")
        assert kept_costs.known(None, None, Budget(1)) is None  # type: ignore[arg-type]
    assert not trace.exists()


COMMANDS: dict[str, list[str]] = {
    "convert": ["tools/convert", "{file}", "--input", "1x8x8", "-o", "{out}"],
    "search": ["tools/search", "{file}", "--data", "{data}", "--budget-sram", "64", "-o", "{out}/s.yaml"],
    "calibration": ["tools/convert", "{model}", "--calibration", "{file}", "-o", "{out}"],
    "scheme": ["tools/convert", "{model}", "--calibration", "{npz}", "--scheme", "{file}", "-o", "{out}"],
    "push": ["tools/device", "--port", "null", "--plan", "{plan}", "push", "{file}"],
    "simulate": ["tools/simulate", "{folder}", "--data", "{data}"],
    "memory_report": ["tools/memory_report", "{file}"],
}

NO_UNPICKLER = """
import pickle, runpy, sys
class Refused(pickle._Unpickler):
    def __init__(self, *a, **k): raise SystemExit("UNPICKLER REACHED")
def refused(*a, **k): raise SystemExit("UNPICKLER REACHED")
real = pickle.Unpickler
class Guarded(real):
    def __new__(cls, *a, **k):
        if cls.find_class in (real.find_class, Guarded.find_class): raise SystemExit("UNPICKLER REACHED")
        return super().__new__(cls, *a, **k)
pickle.Unpickler = Guarded
pickle.load = pickle.loads = pickle._load = pickle._loads = refused
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def hostile_files(folder: Path, trace: Path) -> list[Path]:
    """One of each kind."""
    bomb = folder / "bomb.pt"
    bomb.write_bytes(hostile.saved({"a": hostile.Bomb(trace)}))
    old = folder / "old.pt"
    torch.save({"a": hostile.Bomb(trace)}, old, _use_new_zipfile_serialization=False)
    raw = folder / "raw.pkl"
    raw.write_bytes(pickle.dumps(hostile.Bomb(trace)))
    npz = hostile.pickled_npz(folder / "bomb.npz", trace)
    script = hostile.scripted(folder / "script.pt", hostile.Writer(str(trace)))
    export = hostile.with_pickle(folder / "export.pt", "data/sample_inputs/", trace)
    trace.unlink(missing_ok=True)
    return [bomb, old, raw, npz, script, export]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_reaches_an_unrestricted_unpickler(command: str, tmp_path: Path) -> None:
    trace, runner = tmp_path / "executed", tmp_path / "runner.py"
    runner.write_text(NO_UNPICKLER)
    folder = tmp_path / "generated"
    folder.mkdir()
    (tmp_path / "data/a").mkdir(parents=True)
    places = {
        "model": hostile.exported(tmp_path / "model.pt"),
        "out": tmp_path / "out",
        "data": tmp_path / "data",
        "plan": folder / "plan.json",
        "folder": folder,
        "npz": tmp_path / "images.npz",
    }
    np.savez(tmp_path / "images.npz", images=np.zeros((16, 8, 8, 1), np.uint8))
    files = hostile_files(tmp_path, trace)
    for file in files[::3] if command == "search" else files:  # it takes its time to start
        (folder / "plan.json").write_bytes(file.read_bytes())
        (folder / "model.npz").write_bytes(file.read_bytes())
        words = [word.format(file=file, **places) for word in COMMANDS[command]]
        done = subprocess.run(
            [sys.executable, runner, ROOT / words[0] / "__main__.py", *words[1:]],
            capture_output=True, text=True, timeout=120, cwd=ROOT, check=False,
        )  # fmt: skip
        assert "UNPICKLER REACHED" not in done.stderr + done.stdout, file.name
        assert "Traceback" not in done.stderr, f"{file.name}: {done.stderr}"
        assert not trace.exists(), file.name


def limited(code: str, *args: object, megabytes: int = 1500) -> subprocess.CompletedProcess[str]:
    """Runs a snippet in a process of its own that may not take more memory than this."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    text = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"
    return subprocess.run(
        [sys.executable, "-c", text, *map(str, args)],
        capture_output=True, text=True, timeout=120, preexec_fn=limit, check=False,
    )  # fmt: skip


def test_a_zip_bomb_is_not_expanded(tmp_path: Path) -> None:
    path = hostile.zip_bomb(tmp_path / "bomb.pt")
    code = "from pathlib import Path\nfrom microtrain.convert.frontends.module import load_model\n"
    code += "load_model(Path(sys.argv[1]))"
    done = limited(code, path)
    assert "ConvertError: bomb.pt would unpack to" in done.stderr.splitlines()[-1], done.stderr


@pytest.mark.parametrize(
    "change", [("sizes", 1 << 20), ("strides", 0), ("sizes", -1), ("storage_offset", 1 << 40)]
)
def test_a_declared_shape_without_bytes_is_a_sentence(change: tuple[str, int], tmp_path: Path) -> None:
    """Weights of 2^20 x 2^20, strides of 0, negative sizes: in the archive's own JSON."""
    key, value = change
    good, path = hostile.exported(tmp_path / "good.pt"), tmp_path / "bad.pt"
    with zipfile.ZipFile(good) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("weights_config.json"):
                config = json.loads(data)
                meta = config["config"]["conv.weight"]["tensor_meta"]
                if key == "storage_offset":
                    meta[key]["as_int"] = value
                else:
                    meta[key][0]["as_int"] = meta[key][1]["as_int"] = value
                    if key == "strides":
                        meta["sizes"][0]["as_int"] = meta["sizes"][1]["as_int"] = 1 << 20
                data = json.dumps(config).encode()
            new.writestr(name, data)
    with pytest.raises(ConvertError, match=r"conv\.weight of bad is cut short"):
        load_model(path)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("for i in range(10000000000):\n      pass\n    return x", "steps"),
        ("while True:\n      pass\n    return x", "steps"),
        ("y = [0]\n    z = torch.mul(y, 1000000000000)\n    return x", "product of lists"),
        (
            "y = torch.format('{0.__class__.__mro__}', x)\n    return __import__('os').system(y)",
            "beyond what is read",
        ),
        ("y = (self).forward(x, )\n    return y", "beyond what is read"),
        ("y = 9\n    for i in range(99):\n      y = torch.mul(y, y)\n    return x", "int64"),
        ("torch.save(x, 'written')\n    return x", "not supported"),
        ("y = " + "(" * 3000 + "x" + ")" * 3000 + "\n    return y", "damaged"),
        (
            "lambda_ = [q for q in (1).__class__.__base__.__subclasses__()]\n    return x",
            "beyond what is read",
        ),
    ],
)
def test_hostile_source_text_ends_with_a_sentence(body: str, words: str, tmp_path: Path) -> None:
    good, path = hostile.scripted(tmp_path / "good.pt", hostile.Tiny()), tmp_path / "bad.pt"
    with zipfile.ZipFile(good) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("corpus.py"):
                head = data.decode().split("x: Tensor) -> Tensor:\n")[0]
                data = f"{head}x: Tensor) -> Tensor:\n    {body}\n".encode()
            new.writestr(name, data)
    with pytest.raises(ConvertError, match=words) as caught:
        load_model(path, input_shape=SHAPE)
    assert len(str(caught.value).splitlines()) == 1
    assert not Path("written").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("biases: 1\nbiases: 2\n", "the key 'biases' stands there twice"),
        ("weights:\n  a: 1\n  b: 1\n  a: 0.5\n", "the key 'a' stands there twice"),
        ("weights:\n  true: 0.5\n", "names the layer True; put the name in quotes"),
        ("weights:\n  1.5: 0.5\n", r"names the layer 1\.5; put the name in quotes"),
        ("a: &a [x]\nbiases: *a\n", "aliases such as"),
        ("biases: 1" + "0" * 5000, "is not a YAML file|biases is"),
        ("biases: '" + "x" * 100000 + "'", "biases is 'xx"),
        ("[" * 20000, "is not a YAML file"),
        ("weights:\n  ? [a, b]\n  : 1\n", "is not a YAML file"),
    ],
)
def test_a_scheme_that_is_none_is_a_short_sentence(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(ConvertError, match=words) as caught:
        scheme.load(tmp_path / "s.yaml")
    assert len(str(caught.value).splitlines()) == 1 and len(str(caught.value)) < 400


def test_many_head_rows_take_no_time() -> None:
    """It was quadratic: 100,000 rows took minutes."""
    begin = time.process_time()
    assert len(scheme.head_rows(tuple(range(100_000)), "it")) == 100_000
    with pytest.raises(ConvertError, match="row 7 of the head stands there twice"):
        scheme.head_rows((*range(100_000), 7), "it")
    assert time.process_time() - begin < 5


@pytest.mark.parametrize("op", ["conv", "pool"])
def test_a_stride_of_zero_is_a_sentence(op: str) -> None:
    low = Lowering("net")
    x = low.input((1, 1, 8, 8))
    args = {"input": x, "self": x, "stride": [0, 0], "kernel_size": [2, 2]}
    args["weight"] = Param("w", np.ones((4, 1, 3, 3), np.float32))
    with pytest.raises(ConvertError, match=r"layer a\.b: a stride of 0x0"):
        lower(low, Call("conv2d" if op == "conv" else "max_pool2d", "a.b", False, args))


SLOW_IMPORT = """
import importlib, sys, time
from microtrain.base import launch

real = importlib.import_module

def slow(name):
    print("importing", flush=True)
    result = real(name)
    time.sleep(60)
    return result

importlib.import_module = slow
launch.launch("microtrain.search", "search")
"""


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.05, 0.2])
def test_ctrl_c_during_imports_leaves_no_traceback(delay: float) -> None:
    """Once the command has begun: while Python itself starts, it ends as it likes."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    started = subprocess.Popen(
        [sys.executable, "-c", SLOW_IMPORT],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=environment,  # a counter that starts with Python would be interrupted as well
    )
    assert started.stdout is not None
    assert started.stdout.readline() == b"importing\n"
    time.sleep(delay)
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate(timeout=60)
    assert started.returncode == 130 and errors == b"search: stopped\n"
