"""Pieces of layer norms, as drawn_tflite.py draws them, of which one may be none: what is nearly a norm."""

from __future__ import annotations

from typing import Any

import numpy as np
from drawn_layers import BINARY, FUSES
from drawn_tflite import Drawn, Piece, Shape

ODD = ("axis", "second axis", "sum", "root", "square", "both", "read", "act", "scale", "end", "none")


def _over(net: Drawn, tensor: int, shape: Shape, axis: int) -> int:
    """A mean over one axis, which stays."""
    net.at(tensor, shape)
    made = [1 if i == axis else n for i, n in enumerate(shape)]
    return net.op("MEAN", (tensor, net.whole(axis)), made, "ReducerOptions", KeepDims=True).x


def _of_two(net: Drawn, kind: str, a: int, b: int, shapes: tuple[Shape, Shape], act: int = 0) -> int:
    """A sum or product, in either order where that is all one."""
    about: dict[str, Any] = {"FusedActivationFunction": act} if kind in FUSES else {}
    given = net.pick((a, b), (b, a)) if kind in ("MUL", "ADD") else (a, b)
    return net.op(kind, given, np.broadcast_shapes(*shapes), BINARY[kind], **about).x


def _factor(net: Drawn, odd: str, x: int, shape: Shape) -> tuple[int, Shape, int]:
    """The mean and its shape, and one over the deviation, which may be scaled; that is what was made last."""
    rank, c = len(shape), shape[-1]
    over = [net.axis() if odd == f"{which}axis" else rank - 1 for which in ("", "second ")]
    centre, lone = _over(net, x, shape, over[0]), net.shape
    both = (centre, x) if odd == "square" else (x, centre)
    square = _of_two(net, "SQUARED_DIFFERENCE", both[0], both[1], (shape, lone))
    spread = _over(net, square, shape, over[1])
    kind = "MUL" if odd == "root" else "ADD"
    spread = _of_two(net, kind, spread, net.number(0.05), (net.shape, ()))
    factor = net.op("RSQRT", (spread,), net.shape).x
    if net.chance(0.6):
        own = (
            net.pick((), shape[1:], (*shape[1:-1], 1))
            if odd == "scale"
            else net.pick((c,), (1,) * (rank - 1) + (c,))
        )
        factor = _of_two(net, "MUL", factor, net.between(own), (net.shape, own))
    return centre, lone, factor


def nearly_norm(net: Drawn) -> None:
    net.fit(len(net.shape) > 1 and net.shape[-1] > 1)
    x, shape, c, odd = net.x, net.shape, net.shape[-1], net.pick(*ODD)
    centre, lone, factor = _factor(net, odd, x, shape)
    own = net.shape
    first = _of_two(net, "MUL", x, factor, (shape, own), net.pick(0, 1) if odd == "act" else 0)
    beside = (x, shape) if odd == "both" else (centre, lone)
    second = _of_two(net, "MUL", beside[0], factor, (own, beside[1]))
    how = net.pick("SUB", "NEG", "shift")
    if how == "NEG":
        second = net.op("NEG", (second,), net.shape, "NegOptions").x
    if how == "shift":
        shift = net.between((c,))
        both = (second, shift) if odd == "sum" else (shift, second)
        second = _of_two(net, "SUB", both[0], both[1], (net.shape, (c,)))
    kind = "SUB" if (how == "SUB") != (odd == "sum" and how != "shift") else "ADD"
    kind = net.pick("SUB", "MUL", "MAXIMUM") if odd == "end" else kind
    a, b = net.pick((first, second), (first, second), (second, first))
    last = _of_two(net, kind, a, b, (shape, net.shape))
    if net.chance(0.3):
        last = _of_two(net, "MUL", last, net.between((c,)), (net.shape, (c,)))
        last = _of_two(net, "ADD", last, net.between((c,)), (net.shape, (c,)))
    if odd == "read":
        _of_two(net, "ADD", last, first, (net.shape, shape))


PIECES: dict[str, Piece] = {"nearly_norm": nearly_norm}
