"""What a board needs to make its updates in a fleet itself (firmware/src/serial/commands_fleet.c)."""

from __future__ import annotations

from microtrain.base import parts
from microtrain.convert.ir import Graph
from microtrain.convert.trainables import block_bytes, layout

STATE = 36  # of struct fleet
LEAST = 64  # room of an update, in bytes
KINDS = {"weight": "SHARED_WEIGHT", "bias": "SHARED_BIAS"} | dict.fromkeys(parts.FLOATS, "SHARED_HEAD")


def held_bytes(graph: Graph) -> int:
    """Of what is held back, and of its velocity again: each tensor at a multiple of 4."""
    return sum(parts.held_bytes(part) for part in parts.parts(layout(graph)))


def fleet_bytes(graph: Graph) -> int:
    """Beside the trainables, and kept with them; 0 where the gateway makes the updates."""
    return STATE + 2 * held_bytes(graph) + -(-graph.fleet // 4) * 4 if graph.fleet else 0


def room_of(graph: Graph, share: float) -> int:
    """Bytes of the largest update, by its share of those of all that is trained; 0 where share is 0."""
    return max(LEAST, int(block_bytes(layout(graph)) * share)) if share else 0


def table(graph: Graph, name: str) -> str:
    """What a fleet shares of the trainables, as C."""
    every, rows, held = parts.parts(layout(graph)), [], 0
    for part, shift in zip(every, parts.shifts(every), strict=True):
        fraction = part.fraction.offset if part.fraction is not None else 0
        bits = part.bits if part.tensor.kind == "weight" else 0
        places = f"{part.tensor.offset}, {fraction}, {held}, {part.size}"
        rows.append(f"    {{{places}, {KINDS[part.tensor.kind]}, {bits}, {shift}}},\n")
        held += parts.held_bytes(part)
    text = f"static const struct microtrain_shared_part shared_parts[] = {{\n{''.join(rows)}}};\n\n"
    values = f"{'shared_parts' if rows else 'NULL'}, {len(rows)}, {sum(part.size for part in every)}, {held}"
    return f"{text if rows else ''}const struct microtrain_shared {name} = {{{values}}};\n"
