"""The front ends for sound and vibration (kernels/log_mel.h, mfcc.h, vibration.h): no steps of a graph, they
make its rows."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from microtrain.base.sound import CEPSTRUM, KIND, SPECTRUM, LogMel
from microtrain.convert.ir import Graph
from microtrain.convert.reference.hostlib import (
    NUMBER,
    S16,
    S32,
    SCRATCH,
    U8,
    U16,
    U32,
    Record,
    Signature,
    ask,
)
from microtrain.samples import log_mel

from .ctext import Table, numbers, struct

HEADER, NAME = "log_mel", "sound"
OWN = {KIND: HEADER, CEPSTRUM: "mfcc", SPECTRUM: "vibration"}  # headers, structs and functions
POINTERS = ("opening", "twiddles", "order", "circle", "counts", "weights")
NUMBERS = ("gain", "lowest", "shift_most", "base", "offset")


class Parameters(Record):
    _fields_ = (
        *((n, ctypes.c_uint16) for n in ("frame", "hop", "fft", "bands", "gain", "lowest")),
        *((n, ctypes.c_int32) for n in ("shift_most", "base")),
        ("offset", ctypes.c_uint32),
        *((n, ctypes.c_void_p) for n in POINTERS),
    )
    _arrays_: ClassVar = {
        **{"opening": U32, "twiddles": U32, "order": U16},
        **{"circle": S32, "counts": U16, "weights": U32},
    }


class Mfcc(Record):
    _fields_ = (
        ("dct", ctypes.c_void_p),
        ("mid", ctypes.c_int32),
        ("coefficients", ctypes.c_uint16),
        ("zero", ctypes.c_uint8),
    )
    _arrays_: ClassVar = {"dct": S16}


class Vibration(Record):
    _fields_ = (("floor", ctypes.c_uint64), ("base", ctypes.c_int32))
    _arrays_: ClassVar = {}


KERNELS: dict[str, Signature] = {
    "log_mel_bytes": (ctypes.c_uint32, (Parameters,)),
    "log_mel_begin": (None, (SCRATCH,)),
    "log_mel_hear_s16": (ctypes.c_uint32, (Parameters, SCRATCH, U8, NUMBER)),
    "log_mel_row_u8": (ctypes.c_uint32, (Parameters, SCRATCH, U8)),
    "mfcc_bytes": (ctypes.c_uint32, (Parameters,)),
    "mfcc_row_u8": (ctypes.c_uint32, (Parameters, Mfcc, SCRATCH, U8)),
    "vibration_row_u8": (ctypes.c_uint32, (Parameters, Vibration, SCRATCH, U8)),
}


def parameters(sound: LogMel) -> Parameters:
    """The struct of a front end, with its tables."""
    t = log_mel.tables(sound)
    sizes = {name: getattr(sound, name) for name in ("frame", "hop", "fft", "bands")}
    numbers = {name: getattr(t, name) for name in NUMBERS}
    return Parameters(**sizes, **numbers, **{name: getattr(t, name) for name in POINTERS})


def cepstrum(sound: LogMel) -> Mfcc:
    """The struct of coefficients, with its table."""
    sizes = {"coefficients": sound.coefficients, "zero": sound.zero}
    return Mfcc(dct=log_mel.cosines(sound), mid=log_mel.middle(sound), **sizes)


def vibration(sound: LogMel) -> Vibration:
    """The struct of the RMS."""
    floor = log_mel.quietest(sound)
    return Vibration(floor=floor, base=int(log_mel.log2(np.array([floor]))[0]))


def memory_bytes(graph: Graph) -> int:
    """Of the arena, while rows come in: what the kernels work with, then a row. 0 without a front end."""
    return kernel_bytes(graph.sound) + graph.sound.width if graph.sound else 0


def kernel_bytes(sound: LogMel) -> int:
    return ask("mfcc_bytes" if sound.kind == CEPSTRUM else "log_mel_bytes", parameters(sound))


def headers(graph: Graph) -> set[str]:
    """That a model calls."""
    return set() if graph.sound is None else {OWN[graph.sound.kind]}


def tables(graph: Graph) -> list[Table]:
    if graph.sound is None:
        return []
    found, types = log_mel.tables(graph.sound), Parameters._arrays_
    arrays = {name: getattr(found, name).reshape(-1) for name in POINTERS}
    made = [Table(f"const {types[n]}_t {_table(n)}[{a.size}]", a, "tables") for n, a in arrays.items()]
    if graph.sound.kind == CEPSTRUM:
        dct = log_mel.cosines(graph.sound).reshape(-1)
        made.append(Table(f"const int16_t {_table('dct')}[{dct.size}]", dct, "tables"))
    return made


def structs(graph: Graph) -> Iterator[str]:
    if graph.sound is not None:
        yield struct(
            HEADER,
            "front",
            NAME,
            {**numbers(parameters(graph.sound)), **{name: _table(name) for name in POINTERS}},
        )
        own = OWN[graph.sound.kind]
        if graph.sound.kind == CEPSTRUM:
            ends = {"dct": _table("dct")}
            yield struct(own, own, NAME, {**numbers(cepstrum(graph.sound)), **ends})
        if graph.sound.kind == SPECTRUM:
            yield struct(own, own, NAME, vibration(graph.sound))


def functions(sound: LogMel, at: str) -> tuple[str, str, str]:
    """The calls that begin a sample, take samples, and make a row or NULL. at: the memory's offset"""
    own, kind = f"&front_{NAME}, AT({at})", OWN[sound.kind]
    row = f"AT({at} + {kernel_bytes(sound)})"
    also = "" if sound.kind == KIND else f"&{kind}_{NAME}, "
    made = f"{kind}_row_u8(&front_{NAME}, {also}AT({at}), {row})"
    return (
        f"log_mel_begin(AT({at}));",
        f"return log_mel_hear_s16({own}, samples, count);",
        f"return {made} ? {row} : NULL;",
    )


def _table(name: str) -> str:
    return f"{NAME}_{name}"
