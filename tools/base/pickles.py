"""Pickles that are not trusted, read without executing anything.

A pickle is a program that names classes and functions and calls them. Here every name stands for an object
that does nothing but keep what it was called with, apart from the few by which NumPy and torch write arrays:
these become arrays made from the bytes at hand. So a hostile pickle can only build data.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .archive import reason
from .errors import FileError

MAX_OPCODES = 4_000_000
STORAGES = {
    "FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "BFloat16Storage": "bfloat16",
    "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "i1",
    "ByteStorage": "u1", "BoolStorage": "?",
}  # fmt: skip

Storages = Callable[[str], bytes]


@dataclass(eq=False)
class Instance:
    """An object of some class: what it was made from, and its attributes. No code of the class is there.

    kind  module and name of the class, as the pickle has them
    """

    kind: str
    args: tuple[Any, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)

    def __setstate__(self, state: Any) -> None:
        """What the pickle says the object holds; a state that is no dict goes under "state"."""
        self.attributes = state if isinstance(state, dict) else {"state": state}


def read_pickle(data: bytes, name: str, storages: Storages | None = None, *, instances: bool = True) -> Any:
    """What a pickle holds: dicts, lists, tuples, numbers, text, arrays, and an Instance for all else.

    name       of the file, for messages
    storages   bytes of a torch storage by its key; None: the pickle holds no torch tensors
    instances  whether it may hold any; else it is refused with the name of the first
    Raises FileError where it is damaged.
    """
    try:
        check_opcodes(data)
        return _plain(_Passive(io.BytesIO(data), storages, instances).load(), {})
    except FileError:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        raise FileError(f"{name} holds a damaged pickle ({reason(error)})") from error


def check_opcodes(data: bytes) -> None:
    """Walk the opcodes without running them: the unpickler's memo is as long as its largest index."""
    puts = 0
    for number, (opcode, arg, _) in enumerate(pickletools.genops(data)):
        puts += "PUT" in opcode.name or opcode.name == "MEMOIZE"
        if ("PUT" in opcode.name and int(arg or 0) > puts + 1000) or number > MAX_OPCODES:
            raise ValueError(f"opcode {number}, {opcode.name}, is out of bounds")


class _Passive(pickle.Unpickler):
    """Builds data. find_class() returns nothing that comes from outside this module."""

    def __init__(self, file: io.BytesIO, storages: Storages | None, instances: bool) -> None:
        super().__init__(file, encoding="latin-1")
        self.storages = storages
        self.instances = instances

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in STORAGES:
            return _StorageType(STORAGES[name])
        known = _KNOWN.get((module, name))
        if known is None and not self.instances:
            raise ValueError(f"it holds {module}.{name}")
        return known if known is not None else _unknown(f"{module}.{name}")

    def persistent_load(self, key: Any) -> Any:
        """A torch storage: ("storage", type, key, device, elements)."""
        if self.storages is None or not isinstance(key, tuple) or len(key) < 3:
            raise ValueError("it refers to a storage outside")
        kind = key[1].dtype if isinstance(key[1], _StorageType) else "u1"
        return _Storage(kind, self.storages(str(key[2])))


def _unknown(kind: str) -> Callable[..., Instance]:
    """A class or function that is not known. As a type, so that every opcode which makes objects takes it."""

    class Unknown(Instance):
        def __new__(cls, *args: Any, **_: Any) -> Any:
            return Instance(kind, args)

    return Unknown


@dataclass(frozen=True)
class _StorageType:
    dtype: str


@dataclass(frozen=True, eq=False)
class _Storage:
    dtype: str
    data: bytes


class _Ordered(dict[Any, Any]):
    """An OrderedDict; torch hangs metadata on it, which is left out."""

    def __setstate__(self, state: Any) -> None:
        pass


class _Dtype:
    """numpy.dtype of a plain number."""

    def __init__(self, code: str, *_: Any) -> None:
        self.code, self.order = str(code), "="

    def __setstate__(self, state: Any) -> None:
        self.order = str(state[1])

    def dtype(self) -> np.dtype[Any]:
        found = np.dtype(self.code)
        if found.kind not in "biufUS" or found.names or found.subdtype:
            raise ValueError(f"it holds an array of {self.code}")
        return found.newbyteorder(">") if self.order == ">" else found


class _Array:
    """A numpy.ndarray on its way; its state holds version, shape, dtype, order and bytes."""

    value: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, raw = state
        flat = np.frombuffer(_bytes(raw), kind.dtype())
        self.value = flat.reshape(shape, order="F" if fortran else "C")


def _bytes(raw: Any) -> bytes:
    """Bytes, or text of latin-1 as Python 2 wrote them."""
    return raw.encode("latin-1") if isinstance(raw, str) else bytes(raw)


def _scalar(kind: _Dtype, raw: Any = b"") -> Any:
    return np.frombuffer(_bytes(raw), kind.dtype(), 1)[0]


def _encode(text: Any, *_: Any) -> bytes:
    """_codecs.encode(text, "latin1"): how protocol 2 writes bytes."""
    return _bytes(text)


def _tensor(storage: _Storage, offset: int, shape: Any, strides: Any, *_: Any) -> np.ndarray:
    return strided(storage.data, storage.dtype, tuple(shape), tuple(strides), offset)


def _first(value: Any, *_: Any) -> Any:
    return value


_KNOWN: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _Ordered,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _first,
    ("torch.nn.parameter", "Parameter"): _first,
    **{("torch.jit._pickle", name): _first for name in (
        "restore_type_tag", "build_intlist", "build_doublelist", "build_boollist", "build_tensorlist",
    )},
    **{(f"numpy.{core}.multiarray", name): made for core in ("core", "_core") for name, made in (
        ("_reconstruct", lambda *_: _Array()), ("scalar", _scalar),
    )},
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}  # fmt: skip


def strided(
    data: bytes, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> np.ndarray:
    """A tensor inside the bytes of its storage, a view of them; bfloat16 is widened to float32.

    strides, offset  in elements
    Raises ValueError where it reaches beyond them, or says the same bytes more than once.
    """
    wide = dtype == "bfloat16"
    stored = np.dtype("<u2" if wide else dtype)
    flat = np.frombuffer(data, stored, count=len(data) // stored.itemsize)
    if any(type(n) is not int for n in (*shape, *strides, offset)) or len(shape) != len(strides):
        raise ValueError("a tensor's shape is no row of numbers")
    if min((offset, *strides, *shape), default=0) < 0:
        raise ValueError(f"a tensor of shape {list(shape)} has negative sizes")
    reach, count = offset, 1
    for n, step in zip(shape, strides, strict=True):
        reach += (n - 1) * step
        count *= n
    if count and (reach >= flat.size or count > flat.size):
        raise ValueError(f"a tensor of shape {list(shape)} reaches beyond its {flat.size} stored numbers")
    steps = tuple(step * flat.itemsize for step in strides)
    view = np.lib.stride_tricks.as_strided(flat[offset:], shape, steps, writeable=False)
    return (view.astype(np.uint32) << 16).view(np.float32) if wide else view


def _plain(value: Any, seen: dict[int, Any]) -> Any:
    """The value with arrays in the place of what stood for them. seen: results by id, for what is shared."""
    if isinstance(value, _Array):
        return value.value
    if id(value) in seen:
        return seen[id(value)]
    if isinstance(value, dict):
        seen[id(value)] = made = {}
        made.update({_hashable(k): _plain(v, seen) for k, v in value.items()})
        return made
    if isinstance(value, list):
        items: list[Any] = []
        seen[id(value)] = items
        items.extend(_plain(v, seen) for v in value)
        return items
    if isinstance(value, tuple):
        seen[id(value)] = made_of = tuple(_plain(v, seen) for v in value)
        return made_of
    if isinstance(value, Instance):
        seen[id(value)] = value
        value.args = _plain(value.args, seen)
        value.attributes = _plain(value.attributes, seen)
    return value


def _hashable(key: Any) -> Any:
    """Keys as they are; an instance as its class's name."""
    return key.kind if isinstance(key, Instance) else key
