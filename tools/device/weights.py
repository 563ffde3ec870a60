"""The trainables as they lie in the device's memory, and as named arrays in an .npz file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from microtrain.base.errors import FileError
from microtrain.base.files import replacing
from microtrain.base.npz import read_npz
from microtrain.base.plan import Plan, short_id
from microtrain.base.trained import Trained

from .errors import DeviceError

DTYPES: dict[str, np.dtype[Any]] = {"s8": np.dtype("<i1"), "s16": np.dtype("<i2"), "f32": np.dtype("<f4")}
ID_KEY = "model_id"
Arrays = dict[str, np.ndarray]


def unpack(plan: Plan, block: bytes) -> Arrays:
    """The block as arrays by tensor name. DeviceError where the sizes differ."""
    size, tensors = plan.trainables.bytes, plan.trainables.tensors
    if len(block) != size:
        raise DeviceError(f"the device holds {len(block)} bytes of trainables, {plan.path} says {size}.")
    return {t.name: unpack_tensor(t, block[t.offset : t.offset + t.bytes]) for t in tensors}


def unpack_tensor(t: Trained, data: bytes) -> np.ndarray:
    count = int(np.prod(t.shape))
    if t.dtype == "u4":
        packed = np.frombuffer(data, np.uint8)
        nibbles = np.stack([packed & 15, packed >> 4], axis=1).reshape(-1)[:count].astype(np.int8)
        return np.where(nibbles > 7, nibbles - 16, nibbles).astype(np.int8).reshape(t.shape)
    return np.frombuffer(data, DTYPES[t.dtype], count).reshape(t.shape).copy()


def pack(plan: Plan, arrays: Arrays) -> bytes:
    """The inverse of unpack; bytes between tensors are 0. DeviceError names a tensor that does not fit."""
    block = bytearray(plan.trainables.bytes)
    for t in plan.trainables.tensors:
        if t.name not in arrays:
            raise DeviceError(
                f"the file lacks {t.name}, which {plan.name} trains: is it from another scheme?"
            )
        data = pack_tensor(t, arrays[t.name])
        block[t.offset : t.offset + len(data)] = data
    return bytes(block)


def pack_tensor(t: Trained, array: np.ndarray) -> bytes:
    dtype = DTYPES["s8" if t.dtype == "u4" else t.dtype]
    if array.shape != t.shape or array.dtype != dtype:
        raise DeviceError(
            f"{t.name} in the file is {array.dtype} {array.shape}, the model needs {dtype} {t.shape}: "
            "push a file that was pulled from this model."
        )
    if t.dtype != "u4":
        return array.astype(dtype).tobytes()
    if array.size and not -8 <= array.min() <= array.max() <= 7:
        raise DeviceError(f"{t.name} in the file leaves -8..7: its fraction bits are 4.")
    flat = (array.reshape(-1) & 15).astype(np.uint8)
    flat = np.append(flat, np.zeros(flat.size % 2, np.uint8))
    return (flat[0::2] | flat[1::2] << 4).astype(np.uint8).tobytes()


def save_npz(path: Path, plan: Plan, arrays: Arrays) -> None:
    """Write an .npz with one array a tensor and the model id; nothing half-written stays behind."""
    with replacing(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **{ID_KEY: np.array(plan.model_id)}, **arrays)  # type: ignore[arg-type]


def load_npz(path: Path, plan: Plan) -> Arrays:
    """Read an .npz that save_npz wrote for the model of `plan`. DeviceError otherwise."""
    if not path.exists():
        raise DeviceError(f"no such file: {path}.")
    try:
        arrays = read_npz(path)
    except FileError as error:
        raise DeviceError(f"{path} is not an .npz file that `pull` wrote.") from error
    if ID_KEY not in arrays:
        raise DeviceError(f"{path} names no model ({ID_KEY} is missing): push a file that `pull` wrote.")
    model_id = str(arrays.pop(ID_KEY))
    if model_id != plan.model_id:
        raise DeviceError(
            f"{path} holds the weights of model {short_id(model_id)}, but {plan.path} describes {plan.name} "
            f"{short_id(plan.model_id)}: push a file that was pulled from this model."
        )
    return arrays
