"""What losses share: their entry, and of those that learn from targets, numbers in the place of a label, the
task and the target of a step."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from microtrain.base.plan import TARGET_LOSSES
from microtrain.convert.ir import Graph, Node
from microtrain.convert.names import Names
from microtrain.convert.reference.hostlib import F32, NUMBER
from microtrain.convert.reference.numeric import f32

from .bounds import no_integers
from .environment import Env
from .table import NOT_ALIGNED, BackwardOp, Updates, in_place_of, no_macs, no_scratch, shape_of_input
from .unit import whole
from .work import by_size, one_way

AGAINST_A_LABEL: tuple[Any, ...] = (NUMBER, F32, NUMBER, F32)  # logits, and their gradient


def loss(
    name: str,
    run: Callable[[Env, Node], None],
    call: Callable[[Names, Node], str],
    header: str,
    takes: tuple[Any, ...],
    updates: Updates = Updates.NOTHING,
) -> BackwardOp:
    """A loss of the logits; its result is the gradient to them.

    takes    what its kernel does
    updates  what it changes beside
    """
    return BackwardOp(
        name,
        shapes=shape_of_input,
        run=run,
        call=call,
        accumulators=no_integers,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=in_place_of(0),
        kernels={f"{name}_f32": (ctypes.c_float, takes)},
        header=header,
        updates=updates,
        reads_weights=False,
        guard=NOT_ALIGNED,
    )


def task_of(graph: Graph) -> str:
    """What a training graph learns from targets; "" where it learns from labels."""
    found = (TARGET_LOSSES.get(node.op.removeprefix("loss_"), "") for node in graph.nodes)
    return next(filter(None, found), "")


def target(env: Env) -> np.ndarray:
    """Of the step, float32."""
    return np.asarray(env.label, f32).reshape(-1)


def against(floats: int) -> tuple[Any, ...]:
    """What the kernel of a loss takes: a count, and so many arrays."""
    return (NUMBER, *(F32,) * floats)
