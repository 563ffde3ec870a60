"""A model with as good statistics of features as there is room for (memory/imprint.py)."""

from __future__ import annotations

from dataclasses import replace

from .boards import Limits
from .emit.document import flash_total
from .memory.imprint import Request, features_of
from .pipeline import Compiled, Passes, Room, compile_graph, compile_within
from .scheme import Scheme


def compile_imprinting(
    room: Room, scheme: Scheme, passes: Passes, request: Request, limits: Limits
) -> Compiled:
    """Compile with the largest groups of features that fit SRAM without making anything again for them.

    Without any where none fits, or their code does not fit flash, unless they are asked for.
    """
    best = fitting(room, scheme, passes, request)
    if best and (limits.flash is None or flash_total(best.graph, limits.board_name) <= limits.flash):
        return best
    least = replace(passes, imprint=request.groups(features_of(room.quantized))[-1])
    return compile_within(room.quantized, scheme, room.classes, room.sram, least)


def fitting(room: Room, scheme: Scheme, passes: Passes, request: Request) -> Compiled | None:
    """The model with the largest groups that fit.

    Of a quarter of all features at most, or of more for the same memory, where old images want the rest.
    """
    features = features_of(room.quantized)
    groups = request.groups(features)[:-1]
    most: float = room.sram
    if passes.replay and groups:
        most = min(most, room.needed(scheme, replace(passes, imprint=request.some(features))))
    for group in groups:
        chosen = replace(passes, imprint=group)
        if room.needed(scheme, chosen) <= most:
            compiled = compile_graph(room.quantized, scheme, room.classes, chosen)
            if compiled.sram <= room.sram:
                return compiled
    return None
