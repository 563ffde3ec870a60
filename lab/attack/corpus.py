"""Files that would run code, or take the machine's memory, where they are read carelessly.

Annotations stay real: torch.jit.script does not take them as text.
"""

import io
import json
import pickle
import wave
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from microtrain.convert.scheme import PUBLISHED

from .keras_networks import NETWORKS as KERAS
from .line import record
from .litert_networks import NETWORKS as LITERT
from .onnx_integers import dynamic, qoperators
from .onnx_loops import NETWORKS as LOOPS
from .recurrent_networks import NETWORKS as RECURRENT
from .tflite_files import small_network
from .tflite_networks import NETWORKS


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (self.trace,))


class Tiny(nn.Module):
    """A network that converts: 1x8x8 in, three classes out."""

    shape = (1, 8, 8)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, 2, 1)
        self.head = nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(torch.relu(self.conv(x)).flatten(1))
        return result


class Parts(nn.Module):
    """Channels that are split, cut, scaled and joined. As Tiny, it converts."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.slope = nn.PReLU()
        self.head = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = torch.chunk(self.slope(self.norm(self.conv(x))), 2, dim=1)
        joined = torch.cat([first[:, 1:], nn.functional.silu(second)[:, :2] * 0.5 + 1.0], dim=1)
        result: torch.Tensor = self.head(joined.mean(dim=[2, 3]))
        return result


class Writer(nn.Module):
    """TorchScript that writes a file when torch.jit.load restores its state."""

    path: str

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.conv = nn.Conv2d(1, 4, 3, 2, 1)
        self.head = nn.Linear(64, 3)

    @torch.jit.export
    def __getstate__(self) -> tuple[str, bool]:
        return self.path, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[str, bool]) -> None:
        self.path = state[0]
        self.training = state[1]
        torch.save(torch.zeros(1), state[0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(torch.relu(self.conv(x)).flatten(1))
        return result


class WriterOutside(nn.Module):
    """The same as a part of a network that is otherwise in order."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.net = Tiny()
        self.extra = Writer(path)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.net(x)
        return result


def scripted(path: Path, net: nn.Module) -> Path:
    torch.jit.save(torch.jit.script(net.eval()), path)
    return path


def exported(path: Path, net: nn.Module | None = None) -> Path:
    torch.export.save(torch.export.export((net or Tiny()).eval(), (torch.zeros(1, 1, 8, 8),)), path)
    return path


def with_pickle(path: Path, part: str, trace: Path) -> Path:
    """An exported program with a bomb in the place of one of its parts."""
    good = exported(path.with_suffix(".good.pt"))
    with zipfile.ZipFile(good) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            bad = part in name and not name.endswith(".json")
            new.writestr(name, pickle.dumps(Bomb(trace)) if bad else old.read(name))
    return path


def zip_bomb(path: Path, size: int = 1200 << 20) -> Path:
    """An export with an entry that unpacks to `size` bytes."""
    exported(path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, allowZip64=True) as file:
        root = file.namelist()[0].partition("/")[0]
        with file.open(f"{root}/extra/microtrain.json", "w", force_zip64=True) as entry:
            for _ in range(size >> 20):
                entry.write(bytes(1 << 20))
    return path


def huge_npz(path: Path, name: str = "images", shape: str = "(1125899906842624, 3)") -> Path:
    """An array whose header promises 3 PiB."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (117 - len(header)) + b"\n"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(
            f"{name}.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)
        )
    return path


def pickled_npz(path: Path, trace: Path, name: str = "images") -> Path:
    np.savez(path, **{name: np.array([Bomb(trace)], dtype=object)}, allow_pickle=True)
    return path


def saved(value: Callable[[], object] | object) -> bytes:
    """What torch.save makes of a value."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def seeds(folder: Path, elf: Path | None) -> dict[str, list[Path]]:
    """Good files and hostile ones of every kind that a reader takes (attack/readers.py).

    elf  a firmware; None: without
    """
    folder.mkdir(parents=True, exist_ok=True)
    models = [
        exported(folder / "exported.pt"),
        scripted(folder / "scripted.pt", Tiny()),
        traced(folder / "traced.pt", Tiny()),
        scripted(folder / "writer.pt", WriterOutside(str(folder / "written"))),
        exported(folder / "parts.pt", Parts()),
    ]
    flat = [as_onnx(folder / "net.onnx", Tiny()), as_onnx(folder / "parts.onnx", Parts()), *as_tflite(folder)]
    flat += [
        as_onnx(folder / "older.onnx", Tiny(), 11),
        *(make().file(folder, make.__name__) for make in LOOPS),
        *(make(folder / f"{make.__name__}.onnx") for make in (qoperators, dynamic)),
    ]
    state = folder / "state.pt"
    torch.save(Tiny().state_dict(), state)
    bomb = folder / "bomb.pt"
    bomb.write_bytes(saved({"conv.weight": Bomb(folder / "executed")}))
    found = {
        "model": [*models, *flat, bomb],
        "state": [*models, state, bomb],
        "checkpoint": [checkpoint(folder / "net.pkl")],
        "calibration": [arrays(folder / "images.npz", images=np.zeros((4, 8, 8, 1), np.uint8))],
        "weights": [arrays(folder / "trained.npz", model_id=np.array("0" * 64), w=np.eye(3, dtype=np.int8))],
        "image": images(folder),
        "numbers": numbers(folder),
        "sound": [sound(folder)],
        "targets": [targets(folder)],
        "board": [kept_board(folder / "board.npz")],
        "scheme": schemes(folder),
        "line": [record(folder / "line.bin")],
        "fleet": [gateway(folder / "boards.json")],
        **converted(folder, models[0]),
    }
    return found if elf is None else {**found, "firmware": [elf]}


def traced(path: Path, net: nn.Module) -> Path:
    torch.jit.save(torch.jit.trace(net.eval(), torch.zeros(1, 1, 8, 8)), path)
    return path


def as_onnx(path: Path, net: nn.Module, opset: int = 17) -> Path:
    torch.onnx.export(net.eval(), (torch.zeros(1, 1, 8, 8),), str(path), opset_version=opset, dynamo=False)
    return path


def as_tflite(folder: Path) -> list[Path]:
    """An int8 file, and a float one for each group of ops that the front end reads."""
    path = folder / "net.tflite"
    path.write_bytes(small_network())
    (apart := folder / "apart.tflite").write_bytes(small_network(apart=True))
    makers = {f"{make.__module__}.{make.__name__}": make for make in (*NETWORKS, *KERAS, *LITERT, *RECURRENT)}
    return [path, apart, *(make().file(folder, name) for name, make in makers.items())]


def numbers(folder: Path) -> list[Path]:
    np.save(folder / "sample.npy", np.arange(192, dtype=np.uint8))
    np.save(folder / "text.npy", np.array(["x"]))
    return [folder / "sample.npy", folder / "text.npy"]


def sound(folder: Path) -> Path:
    path = folder / "sample.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", "not compressed"))
        file.writeframes(np.arange(-300, 300, dtype="<i2").tobytes())
    return path


def targets(folder: Path) -> Path:
    path = folder / "targets.csv"
    path.write_text("file,a,b\nsample.npy,1.5,-2\ntext.npy,0,1e3\n")
    return path


def gateway(path: Path) -> Path:
    board = {"name": "hall", "port": "/dev/ttyACM0", "data": "photos"}
    private = {"clip": 1.0, "noise": 2.0}
    document = {
        "plan": "plan.json",
        "boards": [board],
        "keep": ["biases"],
        "masked": "yes",
        "private": private,
    }
    path.write_text(json.dumps(document))
    return path


def arrays(path: Path, **named: np.ndarray) -> Path:
    np.savez_compressed(path, **named)  # type: ignore[arg-type]
    return path


def kept_board(path: Path) -> Path:
    """An emulated board between two commands, with little flash."""
    about = np.array(json.dumps({"format": 1, "chip": "STM32F746NG", "program": "0" * 64}))
    return arrays(path, about=about, flash=np.full(64, 0xFF, np.uint8))


def images(folder: Path) -> list[Path]:
    """One picture in each format that image files may have."""
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (12, 10, 3), np.uint8))
    paths = [
        folder / f"picture{suffix}" for suffix in (".png", ".jpg", ".bmp", ".gif", ".webp", ".ppm", ".tif")
    ]
    for path in paths:
        picture.save(path)
    return paths


def schemes(folder: Path) -> list[Path]:
    published = PUBLISHED / "mcunet-49kb.yaml"
    own = folder / "own.yaml"
    own.write_text(
        "name: own\nbiases: all\nweights:\n  conv: 0.5\n  -1: {channels: [0, 1]}\nfraction_bits: 4\n"
        "learning_rate: {weight: 0.001, bias: 0.002, head: 0.01}\nhead: {rows: [0, 1, 2]}\n"
    )
    return [published, own]


def converted(folder: Path, model: Path) -> dict[str, list[Path]]:
    """plan.json and model.npz of a conversion."""
    from microtrain.base.plan import Origin, text
    from microtrain.convert.emit.arrays import archive
    from microtrain.convert.emit.code import generate
    from microtrain.convert.emit.document import document
    from microtrain.convert.frontends.module import load_model
    from microtrain.convert.pipeline import compile_graph
    from microtrain.convert.quantize.int8 import quantize
    from microtrain.convert.scheme import Scheme

    graph = load_model(model).graph
    compiled = compile_graph(quantize(graph, dict.fromkeys(graph.tensors, (-4.0, 4.0))), Scheme("s", 1), 3)
    origin = Origin(model.name, "0" * 64, "exported")
    plan, network = folder / "plan.json", folder / "model.npz"
    plan.write_text(text(document(compiled, generate(compiled, "it"), origin, None)))
    network.write_bytes(archive(compiled.graph, "0" * 64))
    return {"plan": [plan], "network": [network]}


def checkpoint(path: Path) -> Path:
    """A quantized checkpoint of one block, in the form of the published ones."""

    def conv(c_in: int, c_out: int, kernel: int, groups: int) -> dict[str, object]:
        rng = np.random.default_rng(c_in)
        params = {
            "weight": rng.integers(-127, 128, (c_out, c_in // groups, kernel, kernel)).astype(np.int8),
            "bias": rng.integers(-99, 99, c_out).astype(np.int32),
            "w_scales": rng.uniform(0.01, 0.02, c_out).astype(np.float32),
            "x_scale": 0.05, "x_zero": 0, "y_scale": 0.05, "y_zero": 0,
        }  # fmt: skip
        fields = {"in_channel": c_in, "out_channel": c_out, "kernel_size": [kernel] * 2, "stride": 1}
        return {**fields, "groups": groups, "params": params}

    block = {
        "pointwise1": conv(4, 8, 1, 1), "depthwise": conv(8, 8, 3, 8), "pointwise2": conv(8, 4, 1, 1),
        "residual": {"params": {"x_scale": 0.05, "x_zero": 0, "y_scale": 0.06, "y_zero": 1}}, "se": None,
    }  # fmt: skip
    first, last = conv(3, 4, 3, 1), conv(4, 3, 1, 1)
    last["params"] = {**last["params"], "x_scale": 0.06, "x_zero": 1}  # type: ignore[dict-item]
    whole = {"first_conv": first, "blocks": [block], "feature_mix": None, "classifier": last}
    path.write_bytes(pickle.dumps(whole, protocol=2))
    return path
