"""Front end: a PyTorch model file in, the float graph out.

Files are read as data, without torch. A module saved whole is the exception: it is code, and asks for trust.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import io
import json
import logging
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from microtrain.base.archive import open_archive, reason
from microtrain.base.errors import FileError
from microtrain.base.npz import read_npz
from microtrain.base.plan import FLOAT, TFLITE
from microtrain.base.reading import reading
from microtrain.base.shapes import by
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.normalisation import MeanAndStd, Normalisation, as_stored, choose
from microtrain.convert.raw import Raw

from .clean.averages import rescale
from .clean.fold import clean
from .clean.known_scales import with_known_scales
from .onnx.reader import read_onnx
from .results import chosen
from .tflite.file import MAGIC
from .tflite.reader import read_tflite
from .torch.exported import read_exported
from .torch.torchscript import read_objects, read_torchscript

Shape = tuple[int, ...]
FLAT: dict[str, Callable[[Path, Shape | None], Raw]] = {  # one file, one reader
    "tflite": lambda path, shape: read_tflite(path),
    "onnx": read_onnx,
}
EXTRA = "extra/microtrain.json"
EXPORT_HINT = 'torch.export.save(torch.export.export(model.eval(), (example,)), "model.pt2")'
FROM_TORCH = f"convert the PyTorch model that it was made from: {EXPORT_HINT}"
OTHER_FORMATS = {  # by suffix: what else people have of their models
    **dict.fromkeys(
        (".h5", ".hdf5", ".keras"), f"a Keras model; write it as .tflite or .onnx, or {FROM_TORCH}"
    ),
    ".safetensors": f"weights without a network; load them into the model in PyTorch, then {EXPORT_HINT}",
}
WEIGHTS_OF_KERAS = "model.weights.h5"  # in a .keras file, which is a zip file
FOLDERS = {  # by a file in them: the models that are folders
    "saved_model.pb": f"a SavedModel of TensorFlow; write it as .tflite or .onnx, or {FROM_TORCH}",
    "config.json": f"a model of Hugging Face; load it by from_pretrained(), then {EXPORT_HINT}",
}


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model file as read.

    graph        float: all tensors f32, batch norms folded, the head last; its input is the normalised
                 pixel, pixel * gain[c] + offset[c]
    calibration  uint8 [N, h, w, c] images that travelled in the file, or None
    normal       what forward() takes: (pixel / 255 - mean) / std, and who said so
    class_names  of the model's own classes, () where the file has none
    kind         "exported", "torchscript", "module", "tflite" or "onnx"
    """

    graph: Graph
    calibration: np.ndarray | None
    normal: Normalisation
    class_names: tuple[str, ...]
    kind: str


def load_model(
    path: Path,
    *,
    trust: bool = False,
    input_shape: tuple[int, ...] | None = None,
    given: MeanAndStd | None = None,
    result: str | None = None,
) -> LoadedModel:
    """Read a torch.export archive, TorchScript, or (with `trust`) a module saved whole.

    input_shape  (c, h, w); needed where the file does not say it
    given        the normalisation that the user names; None: the file's, or what is assumed without one
    result       number or name of that of several which is the logits
    Raises ConvertError for whatever the user can mend.
    """
    wrong = f"{path.name} is a damaged file"
    with reading(ConvertError, lambda why: f"{wrong} ({why}); save the model again"):
        kind = kind_of(path)
        raw = chosen(_read(path, kind, trust, input_shape), result)
        if kind in FLAT and not _is_of(input_shape, raw):
            raise ConvertError(f"{path.name} takes an input of {by(raw.shape)}: leave --input out")
        graph = clean(raw)
        extra = _extra(path) if zipfile.is_zipfile(path) else {}
    entry = graph.tensors[graph.input.tensor].given
    if entry is not None:
        return _quantized(path, graph, entry, given, kind)
    normal = choose(given, extra.get("input", {}), f"microtrain.json in {path.name}: input", graph.input)
    graph = graph.replace(input=normal.behind(graph.input), classes=_class_names(path, extra))
    return LoadedModel(graph, _calibration(path, extra), normal, graph.classes, kind)


def _quantized(
    path: Path, graph: Graph, entry: tuple[float, int], given: MeanAndStd | None, kind: str
) -> LoadedModel:
    """A model whose file says how its input is stored: a byte that arrives is the stored value + 128."""
    if given is not None:
        raise ConvertError(f"{path.name} says itself how its samples are stored: leave --mean and --std out")
    normal = as_stored(*entry, len(graph.input.gain))
    rounding = TFLITE if kind == "tflite" else FLOAT
    graph = rescale(with_known_scales(graph), [])
    graph = graph.replace(input=normal.behind(graph.input), units=normal.units(), requantize=rounding)
    return LoadedModel(graph, None, normal, (), kind)


def _read(path: Path, kind: str, trust: bool, input_shape: tuple[int, ...] | None) -> Raw:
    """The raw graph of a file of the given kind."""
    if kind == "module":
        return _read_module(path, trust, input_shape)
    if kind in FLAT:
        return FLAT[kind](path, input_shape)
    with open_archive(path, path.stem) as archive:
        if kind == "exported":
            raw = read_exported(archive)
            if not _is_of(input_shape, raw):
                raise ConvertError(
                    f"{path.name} was exported for an input of {by(raw.shape)}, not "
                    f"{by(input_shape or raw.shape)}; export it for another"
                )
            return raw
        if input_shape is None:
            raise ConvertError(
                f"{path.name} is TorchScript, which does not say its input's shape: pass --input CxHxW"
            )
        return read_torchscript(archive, input_shape)


def _is_of(given: tuple[int, ...] | None, raw: Raw) -> bool:
    """Whether nobody gave a shape, or that of the model: of an image, a series or features."""
    return given is None or (*given, 1, 1)[:3] == raw.shape


def kind_of(path: Path) -> str:
    """exported, torchscript or module: what kind of file it is, by looking at it without loading anything."""
    if not path.exists():
        raise ConvertError(f"no such file: {path}")
    if path.is_dir() and (known := [words for name, words in FOLDERS.items() if (path / name).is_file()]):
        raise ConvertError(f"{path.name} is {known[0]}")
    if not path.is_file():
        raise ConvertError(f"{path} is not a file; give the .pt file of a model")
    try:
        with path.open("rb") as file:
            head = file.read(8)
        start = head[:2]
        if head[4:] == MAGIC or path.suffix.lower() == ".tflite":
            return "tflite"
        if path.suffix.lower() == ".onnx":
            return "onnx"
        if not zipfile.is_zipfile(path):
            if start[:1] == b"\x80" and len(start) > 1 and start[1] in range(2, 6):
                return "module"
            other = OTHER_FORMATS.get(path.suffix.lower())
            if other and start != b"PK":
                raise ConvertError(f"{path.name} is {other}")
            what = "is damaged or cut short" if start == b"PK" else "is not a PyTorch model"
            raise ConvertError(f"{path.name} {what}; write one with {EXPORT_HINT}")
        with open_archive(path, path.name) as archive:
            names = set(archive.paths)
    except OSError as error:
        raise ConvertError(f"cannot read {path}: {error.strerror}") from error
    if "archive_format" in names or any(n.startswith("models/") and n.endswith(".json") for n in names):
        return "exported"
    if "serialized_exported_program.json" in names:
        raise ConvertError(f"{path.name} was exported by a torch before 2.8; save it again with a later one")
    if "constants.pkl" in names:
        return "torchscript"
    if "data.pkl" in names:
        return "module"
    if WEIGHTS_OF_KERAS in names:
        raise ConvertError(f"{path.name} is {OTHER_FORMATS['.keras']}")
    raise ConvertError(f"{path.name} is a zip file but holds no PyTorch model; write one with {EXPORT_HINT}")


def _read_module(path: Path, trust: bool, input_shape: tuple[int, ...] | None) -> Raw:
    """The raw graph of a module saved whole: exported here and read like any other export."""
    if not trust:
        raise _untrusted(path)
    module = _unpickle(path)
    import torch

    if not isinstance(module, torch.nn.Module):
        raise ConvertError(
            f"{path.name} holds a {type(module).__name__}, weights at most but no network; "
            f"write the network with {EXPORT_HINT}"
        )
    if input_shape is None:
        raise ConvertError(
            f"{path.name} is a saved module, which does not say its input's shape: pass --input CxHxW"
        )
    buffer = io.BytesIO()
    try:
        with _quiet():
            program = torch.export.export(module.cpu().eval(), (torch.zeros(1, *input_shape),))
            torch.export.save(program, buffer)
    except Exception as error:  # whatever the user's own forward() raises
        raise ConvertError(
            f"torch.export cannot export {path.name} for an input of {by(input_shape)}: {reason(error)}"
        ) from error
    with open_archive(buffer, path.stem) as archive:
        return read_exported(archive)


def _untrusted(path: Path) -> ConvertError:
    """Why a pickle is not loaded: it holds a network, which is code, or weights alone."""
    try:
        with open_archive(path, path.name) as archive:
            found = read_objects(archive, "data")
    except FileError:
        found = None  # an old file without an archive, or a damaged one
    if isinstance(found, dict) and any(isinstance(value, np.ndarray) for value in found.values()):
        return ConvertError(
            f"{path.name} holds weights at most but no network; write the network with {EXPORT_HINT}"
        )
    return ConvertError(
        f"{path.name} is a pickle, and loading it may execute code from the file; if you trust it "
        f"pass --trust, else write the model with {EXPORT_HINT}"
    )


def _unpickle(path: Path) -> Any:
    """What a pickle holds. This runs its code: only for files that the user trusts."""
    import torch

    try:
        with _quiet(), _importable(path.resolve().parent):
            return torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:  # a pickle may raise anything
        raise ConvertError(
            f"{path.name} cannot be loaded: {reason(error)}; put the file that defines its classes beside "
            f"it, or write the model with {EXPORT_HINT}"
        ) from error


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Lets a pickle import modules that lie beside it or in the current folder."""
    added = [str(folder), str(Path.cwd())]
    sys.path.extend(added)
    try:
        yield
    finally:
        for entry in added:
            sys.path.remove(entry)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps torch's warnings and logs of internals off the screen."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _extra(path: Path) -> dict[str, Any]:
    """microtrain.json inside the file; {} where there is none."""
    with open_archive(path, path.name) as archive:
        text = archive.bytes(EXTRA) if EXTRA in archive.paths else b"{}"
    try:
        extra = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConvertError(f"microtrain.json inside {path.name} is not JSON ({error})") from error
    if not isinstance(extra, dict):
        raise ConvertError(
            f"microtrain.json inside {path.name} must be an object with calibration, input, classes"
        )
    return extra


def _class_names(path: Path, extra: dict[str, Any]) -> tuple[str, ...]:
    names = extra.get("classes", [])
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise ConvertError(f"microtrain.json inside {path.name}: classes must be a list of names")
    return tuple(names)


def _calibration(path: Path, extra: dict[str, Any]) -> np.ndarray | None:
    """The images in the file, checked later against the model's input."""
    entry = extra.get("calibration")
    if entry is None:
        return None
    problem = ConvertError(
        f"microtrain.json inside {path.name}: calibration must be {{format: npz-base64, data: ...}} "
        "of an .npz with `images` uint8 [N, h, w, c]"
    )
    if not isinstance(entry, dict) or entry.get("format") != "npz-base64":
        raise problem
    try:
        packed = base64.b64decode(entry["data"], validate=True)
        images = read_npz(io.BytesIO(packed), path.name)["images"]
    except (KeyError, TypeError, ValueError, binascii.Error, FileError) as error:
        raise problem from error
    if images.dtype != np.uint8 or images.ndim != 4:
        raise problem
    return images
