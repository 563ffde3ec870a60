"""Windows that overlap (kernels/hop.h): what of one is that of the next, and what is made anew."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass

from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.names import Names
from microtrain.convert.reference import hostlib
from microtrain.convert.reference.hostlib import Record, Signature
from microtrain.convert.storage import align

from .ctext import struct
from .stage import TimeStage
from .stream import Stream, before_rows, kernel_scratch_at, rows_entered, stage_of, stages, stream_record

STRIPS = (8, 4, 2, 1)
HEADER, NAME, STRUCT = "hop", "hop", "hop_window"


class Parameters(Record):
    _fields_ = tuple((name, ctypes.c_uint16) for name in ("rows", "again", "top", "goes"))


KERNELS: dict[str, Signature] = {"hop_bytes": (ctypes.c_uint32, (Parameters, Stream))}


@dataclass(frozen=True)
class Kept:
    """What of a window stays when it moves on.

    again  rows of the input that enter the first layers anew
    top    rows of what the chain makes that they make: padding above the window reaches these
    goes   the chain goes on where it stood; else all rows that stay enter it anew
    why    it does not: a few words
    """

    again: int
    top: int = 0
    goes: bool = False
    why: str = ""


def checked(graph: Graph, rows: int) -> Graph:
    """With windows that move by so many rows. ConvertError where there are not as many."""
    height = graph.tensors[graph.input.tensor].shape[0]
    if not 0 < rows < height:
        raise ConvertError(
            f"windows of {graph.name} have {height} rows and cannot move by {rows} and overlap: "
            f"--hop takes 1..{height - 1}"
            if height > 1
            else f"{graph.name} takes its input in one row, of which nothing stays: leave --hop out"
        )
    return graph.replace(hop=rows)


def strips(graph: Graph) -> tuple[int, ...]:
    """Rows that should enter the first layers at once, the best first: where windows overlap, many enter anew
    with each."""
    return STRIPS if graph.hop else (1,)


def kept(graph: Graph) -> Kept:
    """What stays, by the layers that rows enter as they come."""
    stays = graph.tensors[graph.input.tensor].shape[0] - graph.hop
    if not graph.arriving:
        return Kept(stays, why="the first of them takes a window whole")
    node = graph.nodes[0]
    shift, good, top = graph.hop, stays + graph.hop, 0
    for rows in stages(node.parts):
        window, name = rows.window, rows.first.name
        height = graph.tensors[rows.first.outputs[0]].shape[0]
        if isinstance(stage_of(rows.first), TimeStage):
            return Kept(stays, why=f"{name} begins each window anew")
        if shift % window.stride_h:
            return Kept(stays, why=f"{shift} rows do not divide by the stride of {name}")
        top = -(-(window.pad_h + top) // window.stride_h)
        good = max(0, (good + window.pad_h - window.kh) // window.stride_h + 1)
        if good > height:
            return Kept(stays, why=f"{name} leaves rows out at the end of a window")
        shift //= window.stride_h
    if top > max(good - shift, 0):
        return Kept(stays, why=f"padding reaches all rows that would stay of {node.parts[-1].name}")
    return Kept(rows_entered(graph, node, top - 1) if top else 0, top, goes=True)


def parameters(graph: Graph) -> Parameters:
    found = kept(graph)
    return Parameters(rows=graph.hop, again=found.again, top=found.top, goes=int(found.goes))


def memory_bytes(graph: Graph) -> int:
    """Of the arena, from window to window; 0 where each comes whole."""
    if not graph.hop:
        return 0
    if not graph.arriving:
        return graph.tensors[graph.input.tensor].elements
    found = hostlib.library().hop_bytes
    found.restype = ctypes.c_uint32
    stream = stream_record(graph, graph.nodes[0])
    return int(found(ctypes.byref(parameters(graph)), ctypes.byref(stream)))


def structs(graph: Graph) -> Iterator[str]:
    if graph.hop and graph.arriving:
        yield struct(HEADER, STRUCT, NAME, parameters(graph))


def take(names: Names) -> str:
    """What takes a row, in the place of stream_take."""
    return f"hop_take({_arguments(names)});"


def slide(names: Names) -> str:
    """What moves the window on."""
    first = names.graph.nodes[0]
    return " ".join([*before_rows(names, first), f"hop_slide({_arguments(names)});"])


def _arguments(names: Names) -> str:
    first = names.graph.nodes[0]
    own = f"&{STRUCT}_{NAME}, {names.stream(first)}"
    return f"{own}, {names.at(first.outputs[0])}, {kernel_scratch_at(names, first)}, {names.at(NAME)}"


def whole_row(names: Names, rows: str) -> str:
    """What keeps a row that has come, of a window that is whole in memory. rows: that are in, before it"""
    _, width, channels = names.graph.tensors[names.graph.input.tensor].shape
    size = width * channels
    place = f"{rows} * {size}u"
    return f"memcpy((uint8_t *){names.at(NAME)} + {place}, (uint8_t *){_image(names)} + {place}, {size}u);"


def whole_slide(names: Names) -> str:
    """What moves such a window on."""
    height, width, channels = names.graph.tensors[names.graph.input.tensor].shape
    row, hop = width * channels, names.graph.hop
    size = (height - hop) * row
    moved = f"memmove({names.at(NAME)}, (uint8_t *){names.at(NAME)} + {hop * row}u, {size}u);"
    return f"{moved} memcpy({_image(names)}, {names.at(NAME)}, {size}u);"


def _image(names: Names) -> str:
    return names.at(names.graph.input.tensor)


def samples(graph: Graph) -> tuple[int, int]:
    """Sound samples of a whole window, and of them those that stay; nothing without a front end."""
    if graph.sound is None:
        return 0, 0
    rows = graph.tensors[graph.input.tensor].shape[0]
    return graph.sound.samples(rows), graph.sound.samples(rows - graph.hop)


def sentence(graph: Graph) -> str:
    """What stays of a window, for the terminal."""
    found, rows = kept(graph), graph.tensors[graph.input.tensor].shape[0]
    size = f"{align(memory_bytes(graph)):,} B of the arena"
    by = f"windows move by {graph.hop} of {rows} rows"
    if found.goes:
        last = graph.nodes[0].parts[-1].name
        again = f"{found.again} rows enter anew, for padding" if found.again else "no row enters anew"
        return f"{size}: {by}; what {last} makes of the others stays, {again}"
    return f"{size}: {by}; the others enter the layers anew, as {found.why}"
