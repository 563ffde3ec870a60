"""A map times one factor per pixel: the product in spatial attention.

All but kernels and the factors' error is that of a map times one factor per channel (scale.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.ir import Graph, Node, Shape
from microtrain.convert.reference.numeric import f32, quantize_error

from . import scale
from .bounds import ERROR, SMALLER, Accumulator, reach
from .environment import Env
from .scale import PIXELS
from .stage import NOT_A_STAGE
from .table import NO_ATEN, Op

TO_MAP, TO_FACTOR = f"{PIXELS}_bwd_x", f"{PIXELS}_bwd_s"


def scale_pixels_bwd_s(p: scale.Scale, ey: Any, x: np.ndarray, clamp: Any) -> Any:
    """The twin of scale_pixels_bwd_s_s8: an error of one channel; sums run over the channels in order."""
    products = (ey.q.astype(np.int64) * (x.astype(np.int64) - p.x_zero)).astype(f32) * ey.scale
    sums = np.zeros(x.shape[:2], f32)
    for channel in np.moveaxis(products, -1, 0):
        sums = sums + channel
    return quantize_error(sums[..., None], p.m, clamp)


def _factor_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return ((*graph.tensors[node.inputs[0]].shape[:2], 1),)


def _run_to_factor(env: Env, node: Node) -> None:
    p, clamp = scale.c_struct(env.graph, node), env.clamp(node.clamp)
    error, x = (env.values[t] for t in node.inputs)
    if env.real:
        sums = (error * ((x.astype(np.float64) - p.x_zero) * p.m)).sum(axis=-1, keepdims=True)
        result = env.backend.clamped(sums, clamp)
    else:
        result = scale_pixels_bwd_s(p, error, x, clamp)
    env.values[node.outputs[0]] = result


def _factor_bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """A product is exact in float32; their sum is one of floats."""
    x = graph.tensors[node.inputs[1]]
    yield Accumulator("an error times a value", ERROR * reach(x), 2**24, SMALLER)


_TAKES = scale.FORWARD.kernels[scale.FORWARD.kernel]
((_, _TAKES_ERRORS),) = scale.BACK_TO_MAP.kernels.items()

OPS: tuple[Op, ...] = (
    replace(
        scale.FORWARD,
        name=PIXELS,
        kernels={f"{PIXELS}_fwd_s8": _TAKES},
        aten=NO_ATEN,  # the rule of mul makes it (scale.py)
        gradient=scale.gradient_by(TO_MAP, TO_FACTOR),
        kernel=f"{PIXELS}_fwd_s8",
        stage=NOT_A_STAGE,
    ),
    replace(scale.BACK_TO_MAP, name=TO_MAP, kernels={f"{TO_MAP}_s8": _TAKES_ERRORS}),
    replace(
        scale.BACK_TO_FACTOR,
        name=TO_FACTOR,
        shapes=_factor_shape,
        run=_run_to_factor,
        accumulators=_factor_bounds,
        kernels={f"{TO_FACTOR}_s8": _TAKES_ERRORS},
    ),
)
