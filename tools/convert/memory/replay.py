"""The replay buffer: what old images are remembered by, and how many of them spare SRAM holds.

A record holds what the frozen layers made of an image, at the step between them where the fewest bytes are
alive; where the image itself is smaller than that, the image. It never goes stale, as nothing before it
learns. A replayed step goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass

from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.storage import parts
from microtrain.convert.trainables import front_steps

from .plan import lifetimes

LABEL_BYTES = 2  # beside each record
CLASS_BYTES = 6  # counters of a class
FIXED_BYTES = 4  # counter of records
RECORDS_MAX = 65535  # the buffer counts in 16 bits
STACK_RESERVE = 2816  # what the linker script keeps for the stack beyond what it reaches


@dataclass(frozen=True)
class Request:
    """How large a buffer should be: a number of records, or bytes, or (both None) as large as SRAM allows."""

    records: int | None = None
    bytes: int | None = None

    def needed(self, graph: Graph) -> int:
        """Bytes of SRAM to plan for: what is asked for, at least one record per class."""
        if self.bytes is None and self.records is None:
            return buffer_bytes(graph, classes(graph)) + STACK_RESERVE
        return max(self.bytes or 0, buffer_bytes(graph, max(self.records or 0, classes(graph))))

    def size(self, graph: Graph, spare: int | None) -> int:
        """Records of the buffer.

        spare   bytes of SRAM that all else leaves; None: no budget
        Errors  ConvertError where there is not one record per class, or nothing says how many
        """
        if self.records is not None:
            count = self.records
        elif self.bytes is not None:
            count = most_records(graph, self.bytes)
        elif spare is not None:
            count = most_records(graph, spare - STACK_RESERVE)
        else:
            raise ConvertError(
                f"{graph.name} has no budget of SRAM that something could be spare of: "
                "pass --replay a number of records or, as in 64KB, of bytes"
            )
        least = classes(graph)
        if count < least:
            raise ConvertError(
                f"{max(count, 0)} records are too few for the replay buffer of {graph.name}: it holds one of "
                f"each of {least} classes at least, {buffer_bytes(graph, least):,} B; ask for more, train "
                "less, or take a larger budget or board"
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


def record_bytes(graph: Graph) -> int:
    return tensors_bytes(graph, graph.record)


def classes(graph: Graph) -> int:
    return graph.tensors[graph.output].channels


def buffer_bytes(graph: Graph, records: int) -> int:
    """SRAM of a buffer: records, labels and counters (firmware/src/runtime/replay.c)."""
    size = records * (record_bytes(graph) + LABEL_BYTES) + CLASS_BYTES * classes(graph) + FIXED_BYTES
    return -(-size // 4) * 4


def most_records(graph: Graph, size: int) -> int:
    """Records of the largest buffer of at most `size` bytes; below 0 where not even its counters fit."""
    room = size // 4 * 4 - CLASS_BYTES * classes(graph) - FIXED_BYTES
    return min(room // (record_bytes(graph) + LABEL_BYTES), RECORDS_MAX)
