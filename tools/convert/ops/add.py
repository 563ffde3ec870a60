"""The sum of two maps, as of a residual; the second times a number, -1 where it is subtracted.

The sum may be a share of itself, as in a mean of branches: both maps count less, which takes no step more.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from microtrain.base.plan import TFLITE
from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import Graph, Layer, Node, Source, Window
from microtrain.convert.lowering import Lowering
from microtrain.convert.names import Names
from microtrain.convert.nearest import unsupported
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.hostlib import S8, U8, Record
from microtrain.convert.reference.numeric import sat8
from microtrain.convert.reference.proofs import add_shifts, add_words
from microtrain.convert.reference.tflite import sum_factors
from microtrain.convert.reference.windows import centred, requantized

from .aten.upsample import UPSAMPLE
from .bounds import INT16_MAX, SMALLER, Accumulator, reach
from .ctext import struct
from .environment import Env
from .functions import POWER
from .outputs import by_range, float32
from .stage import ClosingStage
from .table import (
    Aten,
    Folds,
    ForwardOp,
    Learns,
    Leaves,
    Op,
    Values,
    gathers_channels,
    in_place_of,
    no_arrays,
    no_macs,
    no_scratch,
    no_statistics,
    no_structs,
    no_tables,
    shape_of_input,
)
from .unit import whole
from .work import by_size, one_way

if TYPE_CHECKING:
    from .tape import Tape


ADD, CONVOLUTION = "add", "conv2d"


class Add(Record):
    _fields_ = (
        ("pixels", ctypes.c_uint32),
        ("c", ctypes.c_uint16),
        *((n, ctypes.c_int16) for n in ("a_zero", "b_zero", "y_zero")),
        *((n, ctypes.c_int32) for n in ("a", "b", "y")),
        ("shifts", ctypes.c_uint32),
    )
    _tflite_ = ("shifts",)


def node_of(name: str, inputs: tuple[str, str], y: str) -> Node:
    return Node(ADD, name, inputs, (y,))


def is_sum(node: Node) -> bool:
    return node.op == ADD


def times(node: Node) -> float:
    """What the second map is multiplied with."""
    return node.factors[0] if node.factors else 1.0


def share(node: Node) -> float:
    """What the sum is multiplied with."""
    return node.factors[1] if len(node.factors) > 1 else 1.0


def difference(node: Node | None) -> tuple[str, str] | None:
    """The two tensors of which a node makes the difference; None where it makes none."""
    if node is None or node.op != ADD or node.factors != (-1.0,):
        return None
    first, second = node.inputs
    return first, second


def as_share(node: Node, factor: float) -> Node | None:
    """The sum of which something takes a share; None: the node is no sum."""
    if node.op != ADD or not factor > 0:
        return None
    return replace(node, factors=(times(node), factor * share(node)))


def scales(graph: Graph, node: Node) -> reference.Add:
    """Zero points, and real values per unit of what is added."""
    a, b, y = (graph.tensors[t] for t in (*node.inputs, node.outputs[0]))
    a_scale = float32(share(node) * a.scale) if len(node.factors) > 1 else a.scale
    b_scale = float32(times(node) * share(node) * b.scale) if node.factors else b.scale
    plain = graph.requantize == TFLITE and node.factors in ((), (-1.0,))
    as_tflite = plain and sum_factors(a_scale, b_scale, y.scale) is not None
    return reference.Add(a.zero, b.zero, y.zero, a_scale, b_scale, y.scale, as_tflite=as_tflite)


def c_struct(graph: Graph, node: Node) -> Add:
    """The kernel's parameter struct."""
    y = graph.tensors[node.outputs[0]]
    return params(scales(graph, node), y.pixels, y.channels)


def params(p: reference.Add, pixels: int, c: int) -> Add:
    """The same of the reference's parameters."""
    zeros = {"a_zero": p.a_zero, "b_zero": p.b_zero, "y_zero": p.y_zero}
    words = dict(zip("aby", add_words(p), strict=True))
    return Add(pixels=pixels, c=c, **zeros, **words, shifts=add_shifts(p))


def _gradient(tape: Tape, node: Node, error: str | None) -> None:
    """Both inputs receive the error, scaled by their share: nothing is overwritten, readers are summed."""
    if error is None:
        return
    p = scales(tape.graph, node)
    for x, scale in zip(node.inputs, (p.a_scale, p.b_scale), strict=True):
        tape.send_copy(x, error, scale / p.y_scale, node.name)


def _call(names: Names, node: Node) -> str:
    a, b, y = (names.at(t) for t in (*node.inputs, node.outputs[0]))
    return f"add_fwd_s8({names.struct('add', node)}, {a}, {b}, {y}, {names.mask_out(node)});"


def _run(env: Env, node: Node) -> None:
    results = reference.add_fwd(scales(env.graph, node), *(env.values[t] for t in node.inputs))
    env.values.update(zip(node.outputs, results, strict=False))


def _float_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    a, b = (env[t] for t in node.inputs)
    total = a + b * np.float32(times(node)) if node.factors else a + b
    return total * np.float32(share(node)) if len(node.factors) > 1 else total


def _int8_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    p, (a, b) = scales(graph, node), (env[t] for t in node.inputs)
    if p.as_tflite:
        return sat8(reference.add_wide(p, a, b))
    left = centred(a, p.a_zero) * np.float32(p.a_scale)
    right = centred(b, p.b_zero) * np.float32(p.b_scale)
    return requantized((left + right) / np.float32(p.y_scale), p.y_zero)


def _accumulators(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """Halves of a word on Armv7E-M; the sum itself is float32."""
    most = max(reach(graph.tensors[name]) for name in node.inputs)
    yield Accumulator("an input less its zero point", most, INT16_MAX, SMALLER)


def _structs(names: Names, node: Node) -> Iterator[str]:
    yield struct("add", "add", node.name, c_struct(names.graph, node))


def _row(graph: Graph, node: Node) -> Record:
    record = c_struct(graph, node)
    record.pixels = graph.tensors[node.outputs[0]].shape[1]
    return record


def _facts(graph: Graph, node: Node) -> Mapping[str, Any]:
    own = {"share": share(node)} if len(node.factors) > 1 else {}
    return {"times": times(node), **own} if node.factors else {}


def _parallel(run: Any, step: Any, a: Any, b: Any) -> Any:
    ta, tb, ty = (run.network.tensors[t] for t in (*step.inputs, step.output))
    total = a * ta.scale + b * (tb.scale * step.facts.get("times", 1.0))
    return run.stored(step, total * step.facts.get("share", 1.0) / ty.scale)


def lower(low: Lowering, call: Call) -> Any:
    a, b = call.x, call.args.get("other")
    if isinstance(a, Param) and call.op.endswith("_"):
        raise call.error(f"{a.name} is changed by forward(); call model.eval() before the model is saved")
    if not isinstance(a, Act) or not isinstance(b, Act):
        raise call.error("only the sum of two activations is supported, not that with a constant")
    return _summed(low, call, a, b, float(call.get("alpha", 1)))


def subtract(low: Lowering, call: Call) -> Act:
    """sub, and rsub, which subtracts the first from the second."""
    a, b = call.x, call.args.get("other")
    if not isinstance(a, Act) or not isinstance(b, Act):
        raise unsupported(call)
    first, second = (b, a) if call.op.startswith("r") else (a, b)
    return _summed(low, call, first, second, -float(call.get("alpha", 1)))


def repeated(low: Lowering, call: Call, x: Act, other: Act) -> Act:
    """A map of one row, one column or one channel as often as the other one has them; any other as it is."""
    if _has_one_channel(low, x, other):
        x = _to_channels(low, call, x, other.dims[1])
    h, w, c = low.shape(x)
    image = x.dims in ((low.batch, c, h, w), (low.batch, c, h)[: 3 if w == 1 else 0])
    sizes, whole = (*other.dims[2:], 1)[:2], low.shape(other)
    if other.order is None and other.dims == (low.batch, whole[2], whole[0] * whole[1]):
        sizes = whole[:2]  # a map whose pixels forward() has in one axis
    alike = len(x.dims) == len(other.dims) and x.dims[:2] == other.dims[:2] and x.dims != other.dims
    if not image or not alike or any(n not in (1, size) for n, size in zip((h, w), sizes, strict=True)):
        return x
    factors = tuple(float(size // n) for n, size in zip((h, w), sizes, strict=True))
    apart = replace(call, op=UPSAMPLE, builtin=False)
    return low.emit(apart, UPSAMPLE, (x,), (sizes[0], sizes[1], c), dims=other.dims, factors=factors)


def _has_one_channel(low: Lowering, x: Act, other: Act) -> bool:
    """Whether a map [n, 1, h, w] stands beside one of more channels."""
    plain = x.order is None and x.tensor not in low.last and low.shape(x)[2] == 1
    return plain and len(x.dims) == len(other.dims) > 2 and x.dims[:2] == (low.batch, 1) and other.dims[1] > 1


def _to_channels(low: Lowering, call: Call, x: Act, channels: int) -> Act:
    """The one channel of a map many times: a convolution of one pixel whose weights are 1, frozen."""
    h, w, _ = low.shape(x)
    layer = f"{call.node_name('channels').strip('/').replace('/', '.')}{len(low.nodes)}"
    ones, none = np.ones((channels, 1, 1, 1), np.float32), np.zeros(channels, np.float32)
    low.layers[layer] = Layer(ones, none, Source(""))
    dims = (x.dims[0], channels, *x.dims[2:])
    apart = replace(call, op="expand", builtin=False)
    return low.emit(apart, CONVOLUTION, (x,), (h, w, channels), dims=dims, layer=layer, window=Window(1, 1))


def _summed(low: Lowering, call: Call, a: Act, b: Act, factor: float) -> Act:
    """a + factor * b"""
    a, b = low.activation(call, a), low.activation(call, b)
    a, b = repeated(low, call, a, b), repeated(low, call, b, a)
    if a.dims != b.dims or low.shape(a) != low.shape(b):
        verb = "adds" if factor > 0 else "subtracts"
        raise call.error(
            f"{verb} tensors of shapes {list(a.dims)} and {list(b.dims)}; they must have one shape"
        )
    if factor == 0.0 or not math.isfinite(factor):
        raise call.error(f"alpha={factor:g} is no factor of a sum; leave it out")
    if low.tensor_of(a) == low.tensor_of(b):
        if factor == -1.0:
            raise call.error("subtracts a tensor from itself, which leaves nothing; leave it out")
        if factor == 1.0 and low.tensors[low.tensor_of(a)].given is not None:  # a file says how it is rounded
            return low.emit(call, POWER, (a,), low.shape(a), dims=a.dims, factors=(1.0, 2.0))
        return low.scaled(call, a, 1.0 + factor)
    factors = () if factor == 1.0 else (factor,)
    return low.emit(call, ADD, (a, b), low.shape(a), dims=a.dims, factors=factors)


_TWO = "self other alpha"
ATEN: Mapping[str, Aten] = {
    ADD: Aten(_TWO, lower),
    **dict.fromkeys(("sub", "rsub"), Aten(_TWO, subtract)),
}

OPS: tuple[Op, ...] = (
    ForwardOp(
        ADD,
        shapes=shape_of_input,
        run=_run,
        call=_call,
        accumulators=_accumulators,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=in_place_of(0, 1),
        kernels={"add_fwd_s8": (None, (Add, S8, S8, S8, U8))},
        header="elementwise",
        aten=ATEN,
        folds=Folds.RELU,
        learns=Learns.NOTHING,
        output=by_range,
        float_run=_float_run,
        int8_run=_int8_run,
        gathers=gathers_channels,
        gradient=_gradient,
        leaves=Leaves.CLAMP_MASK,
        tables=no_tables,
        layer_structs=no_structs,
        step_structs=_structs,
        kernel="add_fwd_s8",
        struct="add",
        stage=ClosingStage(_row),
        arrays=no_arrays,
        facts=_facts,
        parallel=_parallel,
        statistics=no_statistics,
    ),
)
