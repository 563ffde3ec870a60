"""The replay buffer: what old images are remembered by, and how many of them spare SRAM holds.

A record holds what the frozen layers made of an image, at the step between them where the fewest bytes are
alive; where the image itself is smaller than that, the image. It never goes stale, as nothing before it
learns. A replayed step goes on from there. Where the records that are wanted do not fit as they are, several
values share a byte (kernels/product_code.h).
"""

from __future__ import annotations

from dataclasses import dataclass

from microtrain.convert.boards import STACK_RESERVE
from microtrain.convert.ir import ConvertError, Graph, Tensor
from microtrain.convert.storage import parts
from microtrain.convert.trainables import front_steps

from .plan import lifetimes

LABEL_BYTES = 2  # beside each record
CLASS_BYTES = 6  # counters of a class
FIXED_BYTES = 4  # counter of records
RECORDS_MAX = 65535  # the buffer counts in 16 bits
SPARED = 16384  # bytes that a buffer nobody asked for leaves free of a whole board, for an application
WHOLE = 1  # values of a record that share a byte
PARTS = (WHOLE, 2, 3, 4, 5, 6)  # the finest first; with more, a session learns visibly less
PER_CLASS = 10  # records that a buffer without a number should have room for
FEW = 5  # that one has at least where nobody asked
MANY = 40  # that one should have room for where nobody asked: more are worth more than exact ones
ROW = 8  # values of a row at least


@dataclass(frozen=True)
class Request:
    """How large a buffer should be: a number of records, or bytes, or (both None) as large as SRAM allows.

    parts     how many values may share a byte, one of them: the finest with which it gets as large
    optional  nobody asked for it: where there is no room for FEW records of each class there is none
    spared    bytes that it leaves free where it takes what is left
    """

    records: int | None = None
    bytes: int | None = None
    parts: tuple[int, ...] = (WHOLE,)
    optional: bool = False
    spared: int = 0

    def needed(self, graph: Graph) -> int:
        """Bytes of SRAM to plan for: what is asked for, at least one record per class."""
        part = self.parts[-1]
        if self.bytes is None and self.records is None:
            return buffer_bytes(graph, self.least(graph), part) + self.reserve
        return max(self.bytes or 0, buffer_bytes(graph, max(self.records or 0, classes(graph)), part))

    def least(self, graph: Graph) -> int:
        """Records that there are at least."""
        return classes(graph) * (FEW if self.optional else 1)

    @property
    def reserve(self) -> int:
        """Bytes that stay free where the buffer takes what is left."""
        return STACK_RESERVE + self.spared

    def part(self, graph: Graph, spare: int | None) -> int:
        """How many values share a byte: as few as leave room for the records wanted, or for PER_CLASS, or for
        MANY where nobody asked for them."""
        room = self.bytes if self.bytes is not None else spare
        if room is None:
            return self.parts[0]
        wanted = self.records or classes(graph) * (MANY if self.optional else PER_CLASS)
        room -= self.reserve if self.bytes is None and self.records is None else 0
        enough = (part for part in self.parts if most_records(graph, room, part) >= wanted)
        return next(enough, self.parts[-1])

    def size(self, graph: Graph, spare: int | None, part: int = WHOLE) -> int:
        """Records of the buffer; 0: there is none, where it is optional.

        spare   bytes of SRAM that all else leaves; None: no budget
        part    values that share a byte
        Errors  ConvertError where there is not one record per class, or nothing says how many
        """
        if self.records is not None:
            count = self.records
        elif self.bytes is not None:
            count = most_records(graph, self.bytes, part)
        elif spare is not None:
            count = most_records(graph, spare - self.reserve, part)
        else:
            raise ConvertError(
                f"{graph.name} has no budget of SRAM that something could be spare of: "
                "pass --replay a number of records or, as in 64KB, of bytes"
            )
        least = self.least(graph)
        if count < least and self.optional:
            return 0
        if count < least:
            size = buffer_bytes(graph, least, part)
            raise ConvertError(
                f"{max(count, 0)} records are too few for the replay buffer of {graph.name}: it holds one of "
                f"each of {least} classes at least, {size:,} B; ask for more, train less, or take a larger "
                "budget or board"
            )
        return count


def with_record(graph: Graph) -> Graph:
    """The graph with `record` set: the tensors alive at the frozen step where they take the fewest bytes.

    The latest such step, of several. Streams end there, and an image that is kept stays whole (fuse.py).
    """
    life = lifetimes(graph)
    alive: dict[int, tuple[str, ...]] = {0: (graph.input.tensor,)}
    for step in range(1, front_steps(graph) + 1):
        alive[step] = tuple(t for t, (birth, death) in life.items() if birth < step <= death)
    cut = min(alive, key=lambda step: (tensors_bytes(graph, alive[step]), -step))
    return graph.replace(record=alive[cut])


def tensors_bytes(graph: Graph, tensors: tuple[str, ...]) -> int:
    return sum(sum(parts(graph.tensors[t]).values()) for t in tensors)


def rows_of(tensor: Tensor) -> tuple[int, int]:
    """A tensor's values as a code takes them: how many rows, and how long they are.

    A row is the channels of a pixel; where they are few, of several pixels side by side.
    """
    pixels = tensor.shape[1]
    for together in range(1, pixels + 1):
        if pixels % together == 0 and together * tensor.channels >= ROW:
            return tensor.elements // (together * tensor.channels), together * tensor.channels
    return tensor.elements // (pixels * tensor.channels), pixels * tensor.channels


def coded_bytes(tensor: Tensor, part: int) -> int:
    """Of a tensor of which `part` values share a byte; WHOLE: as it is."""
    if part == WHOLE:
        return sum(parts(tensor).values())
    rows, row = rows_of(tensor)
    return rows * -(-row // part)


def part_of(graph: Graph) -> int:
    """How many values of a record share a byte."""
    return next((code.part for code in graph.codes.values()), WHOLE)


def record_bytes(graph: Graph, part: int | None = None) -> int:
    """Of a record as the graph keeps it, or as it would with another part."""
    part = part_of(graph) if part is None else part
    return sum(coded_bytes(graph.tensors[t], part) for t in graph.record)


def classes(graph: Graph) -> int:
    return graph.tensors[graph.output].channels


def buffer_bytes(graph: Graph, records: int, part: int | None = None) -> int:
    """SRAM of a buffer: records, labels and counters (firmware/src/runtime/replay.c)."""
    size = records * (record_bytes(graph, part) + LABEL_BYTES) + CLASS_BYTES * classes(graph) + FIXED_BYTES
    return -(-size // 4) * 4


def most_records(graph: Graph, size: int, part: int | None = None) -> int:
    """Records of the largest buffer of at most `size` bytes; below 0 where not even its counters fit."""
    room = size // 4 * 4 - CLASS_BYTES * classes(graph) - FIXED_BYTES
    return min(room // (record_bytes(graph, part) + LABEL_BYTES), RECORDS_MAX)
