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

    Of a quarter of all features at most where old images want the rest of the memory.
    """
    features = features_of(room.quantized)
    most = request.some(features) if passes.replay else features
    for group in request.groups(features)[:-1]:
        chosen = replace(passes, imprint=group)
        if group <= most and room.holds(scheme, chosen):
            compiled = compile_graph(room.quantized, scheme, room.classes, chosen)
            if compiled.sram <= room.sram:
                return compiled
    return None
