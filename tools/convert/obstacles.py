"""Why a model does not fit, all of it at once: a sentence an obstacle, with sizes and what would lift it.

The order is that in which a user should hear of them: what no option lifts comes first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .boards import DEFAULT, Limits
from .compression import Weights
from .emit import tables
from .emit.document import flash_of, flash_total
from .emit.firmware_flash import sizes
from .emit.steps import step_text
from .ir import SIDE_MOST, ConvertError, Graph
from .memory.fleet import fleet_bytes
from .memory.plan import Plan
from .pipeline import FIRMWARE_SRAM, Compiled
from .trainables import block_bytes, layout
from .weights import weights_of

PEAK_TENSORS = 5
LEAST_CLASSES = 2
MOST_ROW_BYTES = 1024  # of an image: firmware/src/runtime/session.h asserts it
OF_SERIES = "take a shorter window or a lower sampling rate"
FEW_CLASSES = 10  # of a new task; a model of more is told of --classes


def refuse(where: str, found: Sequence[str]) -> None:
    """ConvertError with all of the sentences; nothing where there are none."""
    if len(found) == 1:
        raise ConvertError(f"{where}: {found[0]}")
    if found:
        lines = "".join(f"\n  - {sentence}" for sentence in found)
        raise ConvertError(f"{where}, {len(found)} obstacles:{lines}")


def before_calibration(graph: Graph, limits: Limits, classes: int, compress: bool) -> list[str]:
    """What is known to be too large from the model alone.

    graph     float or int8; classes: of the new task
    compress  weights are to be in four bits
    """
    return [*image(graph), *from_weights(weights_of(graph), limits, classes, compress)]


def image(graph: Graph) -> list[str]:
    """An image that the firmware does not take, since its rows come in frames."""
    h, w, c = graph.tensors[graph.input.tensor].shape
    found = []
    if h > SIDE_MOST:
        what = f"image has {h:,} rows" if w > 1 else f"series has {h:,} steps"
        way = "use a smaller input" if w > 1 else OF_SERIES
        found.append(f"its {what}, and {SIDE_MOST:,} are the most: {way}")
    if w * c > MOST_ROW_BYTES:
        what, way = _long_row(h, w, c)
        found.append(
            f"{what}, and {MOST_ROW_BYTES:,} B are the most in a frame on the serial line: use {way} at most"
        )
    return found


def _long_row(h: int, w: int, c: int) -> tuple[str, str]:
    """What is too long, and how much would do, in the words of its kind."""
    if w > 1:
        pixels = f"{w} pixels of {c} channels"
        return f"a row of its image is {w * c:,} B, {pixels}", f"a width of {MOST_ROW_BYTES // c} pixels"
    if h > 1:
        return f"a step of its series is {c:,} B, one for each channel", f"{MOST_ROW_BYTES:,} channels"
    return f"its {c:,} features are as many bytes", f"{MOST_ROW_BYTES:,} features"


def from_weights(weights: Weights, limits: Limits, classes: int | None, compress: bool = False) -> list[str]:
    """What is too large by its weights alone. classes: of the new task; None: the model's own."""
    return [*too_heavy(weights, limits, compress), *head_too_large(weights, limits, classes)]


def too_heavy(weights: Weights, limits: Limits, compress: bool) -> list[str]:
    """Weights that flash cannot hold, even in four bits where they are to be `compress`ed."""
    size = weights.bytes - weights.saved * compress
    room, whose = room_for_weights(limits)
    if room is None or size <= room:
        return []
    way = ", or raise --budget-flash" if whose.startswith("the budget") and limits.flash_can_rise else ""
    way += _smaller(size, None if compress else weights.bytes - weights.saved, limits, room)
    way += _beside_the_chip(limits, size)
    stored = "in 4 bits where they can be" if compress else "as int8"
    return [
        f"its {weights.count:,} weights take {size:,} B of flash {stored}, {size - room:,} B more than the "
        f"{room:,} B that {whose}: use a network of {_share(room, size)} as many weights{way}"
    ]


def _smaller(size: int, coded: int | None, limits: Limits, room: int) -> str:
    """What would make weights fit, where something would: fewer bits, the flash of checkpoints, or both.

    size   their bytes; coded: in four bits, None: they are already
    room   bytes of flash for them
    """
    most = limits.board.most if limits.board and limits.board.slot else 0
    four = "" if coded is None else f"--weights-bits 4, which takes {coded:,} B"
    without = f"--no-checkpoints, which makes room for {most:,} B, but nothing that is learned is saved"
    if coded is not None and coded <= room:
        return f", or pass {four}"
    if size <= most:
        return f", or pass {without}"
    return f", or pass {four}, and {without}" if coded is not None and coded <= most else ""


def room_for_weights(limits: Limits) -> tuple[int | None, str]:
    """Bytes of flash for weights, and whose limit that is; None where nothing limits them."""
    places = []
    if limits.board is not None:
        places.append((limits.board.weights, f"{limits.board.name} has for them"))
    if limits.flash is not None:
        places.append(
            (
                limits.flash - sizes(limits.board_name or DEFAULT).base,
                "the budget leaves beside the firmware",
            )
        )
    room, whose = min(places, default=(None, ""), key=lambda place: place[0])
    if room is None or limits.external is None:
        return room, whose
    return room + limits.external.size, f"{whose}, with {limits.external.name}"


def _beside_the_chip(limits: Limits, size: int) -> str:
    """That the board has flash beside its chip for so many bytes, where that was not thought of."""
    if limits.external is not None or limits.board is None:
        return ""
    found = next((each.name for each in limits.board.external if each.size >= size), None)
    return f", or pass --external-flash {found}" if found else ""


def _share(room: int, size: int) -> str:
    return f"{max(room, 0) / size:.0%}" if room * 100 >= size else f"1/{round(size / max(room, 1)):,}"


def head_too_large(weights: Weights, limits: Limits, classes: int | None) -> list[str]:
    """The head is float32 and trained, so it lies in SRAM: (features + 1) * classes * 4 bytes."""
    if weights.head is None:
        return []
    own, features = weights.head
    classes = classes or own
    size = 4 * classes * (features + 1)
    if limits.sram is None or size + FIRMWARE_SRAM <= limits.sram:
        return []
    most = (limits.sram - FIRMWARE_SRAM) // (4 * (features + 1))
    way = (
        f"--classes N gives it a head of the new task's N, {most} at most"
        if most >= LEAST_CLASSES
        else "make the features before the last layer fewer, with a pooling or a smaller layer"
    )
    return [
        f"its head of {classes:,} classes and {features:,} features takes {size:,} B of SRAM, of "
        f"{limits.sram:,} B: {way}"
    ]


def of(compiled: Compiled, limits: Limits) -> list[str]:
    """What of a planned model is over a limit."""
    over = (_weights, _flash, _outside, sram, _updates)
    return [sentence for found in over for sentence in found(compiled, limits)]


def _weights(compiled: Compiled, limits: Limits) -> list[str]:
    region = tables.inside_bytes(compiled.graph)
    if limits.board is None or region <= limits.board.weights:
        return []
    coded = None if compiled.graph.compression else region - weights_of(compiled.graph).saved
    way = _smaller(region, coded, limits, limits.board.weights)
    if compiled.graph.compression and any(layer.trained for layer in compiled.graph.layers.values()):
        way += ", or train fewer weights, which are not in 4 bits"
    return [
        f"{region:,} B of weights and biases, {region - limits.board.weights:,} B more than the "
        f"{limits.board.weights:,} B of flash that {limits.board.name} has for them: use a smaller network"
        f"{way}{_beside_the_chip(limits, region)}"
    ]


def _outside(compiled: Compiled, limits: Limits) -> list[str]:
    """Weights that flash beside the chip cannot hold."""
    used = tables.outside_bytes(compiled.graph)
    if limits.external is None or used <= limits.external.size:
        return []
    return [
        f"{used:,} B of weights beside the chip, {used - limits.external.size:,} B more than "
        f"{limits.external.name} has: use a smaller network"
    ]


def _flash(compiled: Compiled, limits: Limits) -> list[str]:
    kinds, flash = (
        flash_of(compiled.graph),
        flash_total(compiled.graph, limits.board_name),
    )
    if limits.flash is None or flash <= limits.flash:
        return []
    way = "use a smaller network" + (", or raise --budget-flash" if limits.flash_can_rise else "")
    way += _beside_the_chip(limits, kinds.weights)
    return [
        f"{flash:,} B of flash, {flash - limits.flash:,} B over the budget of {limits.flash:,} B; weights "
        f"{kinds.weights:,} B, biases {kinds.biases:,} B, tables {kinds.tables:,} B, initial trainables "
        f"{kinds.trainables_init:,} B: {way}"
    ]


def sram(compiled: Compiled, limits: Limits) -> list[str]:
    """What the plan needs of SRAM beyond the limit, and its largest tensors."""
    graph, plan = compiled.graph, compiled.plan
    room = limits.sram_room
    if room is None or compiled.sram <= room:
        return []
    step = step_text(graph, plan.peak_step, graph.nodes[plan.peak_step])
    return [
        f"{compiled.sram:,} B of SRAM with scheme {compiled.scheme.name}, {compiled.sram - room:,} B "
        f"over the {_whose(limits)}; the peak, step {step}, is made by {peak_text(plan)}, beside "
        f"{block_bytes(layout(graph)):,} B of trainables{_beside(graph)}: {sram_ways(compiled, limits)}"
    ]


def _beside(graph: Graph) -> str:
    return f" and {fleet_bytes(graph):,} B of --fleet" if graph.fleet else ""


def _updates(compiled: Compiled, limits: Limits) -> list[str]:
    """A round of a fleet begins and ends with a checkpoint."""
    graph = compiled.graph
    kept = block_bytes(layout(graph)) + fleet_bytes(graph)
    if not graph.fleet or limits.board is None or limits.board.can_save(kept):
        return []
    return [
        f"{kept:,} B to save at both ends of a fleet's round, and a checkpoint slot of {limits.board.name} "
        f"has {limits.board.slot:,} B: train less, or leave --fleet out, and the gateway makes the updates"
    ]


def _whose(limits: Limits) -> str:
    whole = "" if limits.sram_can_rise or limits.board is None else f", all that {limits.board.name} has"
    stack = " beside what is kept for the stack" if limits.sram_room != limits.sram else ""
    return f"budget of {limits.sram_room:,} B{whole}{stack}"


def sram_ways(compiled: Compiled, limits: Limits) -> str:
    """What makes a model's SRAM smaller, what helps most first."""
    classes = compiled.graph.tensors[compiled.graph.output].channels
    trained = block_bytes(layout(compiled.graph))
    ways = ["train less"] if compiled.scheme.biases or compiled.scheme.weights else []
    ways.append(_smaller_input(compiled, limits))
    if classes > FEW_CLASSES and trained > compiled.sram // 4:
        ways.insert(0, "give the new task's classes with --classes")
    if limits.sram_can_rise:
        ways.append("raise --budget-sram")
    return " or ".join([", ".join(ways[:-1]), ways[-1]] if ways[1:] else ways)


def _smaller_input(compiled: Compiled, limits: Limits) -> str:
    """The arena goes with the area of the input, or a little slower."""
    room = (limits.sram_room or 0) - (compiled.sram - compiled.plan.arena)
    h, w, _ = compiled.graph.tensors[compiled.graph.input.tensor].shape
    shrink = math.sqrt(max(room, 0) / compiled.plan.arena)
    height, width = (int(side * shrink) // 8 * 8 for side in (h, w))
    return "use a smaller input" + (f", about {height}x{width}" if height and width else "")


def peak_text(plan: Plan) -> str:
    """The largest tensors alive at the peak step, with their bytes."""
    alive = [p for p in plan.placements.values() if p.birth <= plan.peak_step <= p.death]
    largest = sorted(alive, key=lambda p: (-p.bytes, p.name))[:PEAK_TENSORS]
    return ", ".join(f"{p.name} {p.bytes:,} B" for p in largest)


def one_output(graph: Graph, classes: int | None) -> list[str]:
    """A network of one output that is given no classes could not learn anything."""
    if graph.tensors[graph.output].channels >= LEAST_CLASSES or classes is not None:
        return []
    return [
        "it has one output, a number instead of classes, and the board learns to tell classes apart: with "
        "one there is nothing to learn. Pass --task regression to learn that number, --task multilabel for a "
        "yes or no, or --classes N for a new head of N classes"
    ]
