"""The kernels that make a head from statistics of features (kernels/imprint.h): no step of a graph."""

from __future__ import annotations

import ctypes

from microtrain.convert.ir import Node
from microtrain.convert.names import Names
from microtrain.convert.reference.hostlib import F32, NUMBER, S8, SCRATCH, Signature

from .head import HEAD, Head

KERNELS: dict[str, Signature] = {
    "imprint_bytes": (ctypes.c_uint32, (Head, NUMBER)),
    "imprint_scratch": (ctypes.c_uint32, (Head, NUMBER)),
    "imprint_clear": (None, (Head, NUMBER, SCRATCH)),
    "imprint_add_s8": (None, (Head, NUMBER, SCRATCH, S8, NUMBER)),
    "imprint_solve_f32": (ctypes.c_uint32, (Head, NUMBER, SCRATCH, F32, F32, SCRATCH)),
}


def statistics(names: Names, head: Node, kept: str, scratch: str) -> tuple[str, str, str]:
    """The calls that begin them anew, add the features of an image, and make the head of them.

    kept     where they lie; scratch: where the head is solved
    """
    own = f"{names.struct(HEAD, head)}, {names.graph.imprint}, {kept}"
    w, b = (names.trained(head.layer or "", kind) for kind in ("weight", "bias"))
    return (
        f"imprint_clear({own});",
        f"imprint_add_s8({own}, {names.at(head.inputs[0])}, label);",
        f"imprint_solve_f32({own}, {w}, {b}, {scratch});",
    )
