"""A map times one constant a channel, and plus another one, as int8 files of TensorFlow Lite have them.

A batch norm that follows no convolution is MUL and ADD there, each with int8 constants, and what stands in
between is an int8 too. As one product with a sum (a depthwise layer of one pixel) it would be rounded once,
and a network behind it would answer some units apart.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from microtrain.convert.ir import FACTOR, LESS, TERM, Codes, Graph, Node
from microtrain.convert.names import Names, identifier
from microtrain.convert.reference import tflite
from microtrain.convert.reference.hostlib import NUMBER, S8, S32, U8, Clamp, ErrorS8, Record
from microtrain.convert.reference.numeric import f32

from . import scale
from .bounds import ERROR, INT32_MAX, SMALLER, Accumulator, reach
from .ctext import Table, numbers, struct
from .environment import Env
from .outputs import by_range
from .stage import ElementStage
from .table import (
    NO_ATEN,
    NOT_ALIGNED,
    BackwardOp,
    Folds,
    ForwardOp,
    Learns,
    Leaves,
    Op,
    Updates,
    Values,
    gathers_channels,
    in_place_of,
    no_arrays,
    no_scratch,
    no_statistics,
    no_structs,
    shape_of_input,
)
from .unit import whole
from .work import by_size, one_way

if TYPE_CHECKING:
    from .tape import Tape

MUL_ADD = "mul_add"
BACKWARD = f"{MUL_ADD}_bwd_x"
WIDE = 2.0**20  # what ADD multiplies its inputs with, before it scales them
RIGHT_MOST = 23  # bits by which a multiplier shifts: a zero point is added before, in 31 bits
HALF = (2**30, 0, 0)  # a multiplier of 1/2
MULTIPLIERS = ("product", "term", "sum")


class MulAdd(Record):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("w", "b")),
        *((name, ctypes.c_int32) for name in MULTIPLIERS),
        *((f"{name}_by", ctypes.c_uint8) for name in MULTIPLIERS),
        *((f"{name}_zero", ctypes.c_int16) for name in "xwty"),
        ("m", ctypes.c_float),
    )
    _arrays_: ClassVar = {"w": S8, "b": S32}


@dataclass(frozen=True, eq=False)
class Constants:
    """What a map is multiplied with, and what is added. between: scale and zero point of the product

    term  None: nothing is added, and the product is the result
    """

    factor: Codes
    term: Codes | None = None
    between: tflite.Side = (1.0, 0)

    @property
    def factors(self) -> tuple[float, ...]:
        """As a node has them."""
        said = [self.factor.scale, self.factor.zero]
        if self.term is not None:
            less = self.term.means == LESS
            said += [*self.between, self.term.scale, self.term.zero, less, *self.term.values.tolist()]
        return tuple(map(float, [self.factor.values.size, *self.factor.values.tolist(), *said]))


def constants(node: Node) -> Constants:
    """Those of a node."""
    c = int(node.factors[0])
    codes, said = np.array(node.factors[1 : 1 + c], np.int8), node.factors[1 + c :]
    factor = Codes(codes, said[0], int(said[1]), FACTOR)
    if len(said) == 2:
        return Constants(factor)
    term = Codes(np.array(said[7:], np.int8), said[4], int(said[5]), LESS if said[6] else TERM)
    return Constants(factor, term, (said[2], int(said[3])))


def node_of(name: str, x: str, y: str, own: Constants) -> Node:
    return Node(MUL_ADD, name, (x,), (y,), factors=own.factors)


def forward_of(graph: Graph, node: Node) -> Node:
    return graph.forward_named(node.name, (MUL_ADD,))


@dataclass(frozen=True, eq=False)
class Arithmetic:
    """The integers of both operators, by scales in float32, as Prepare() of MUL and of ADD has them.

    x, t, y       zero points of the input, of what is in between and of the output
    product, term, sum  multipliers; term and sum are 0 where nothing is added
    b             int32 [c], in units of what `sum` rescales
    m             real value of a unit of a product, in units of y
    """

    own: Constants
    x: int
    t: int
    y: int
    product: float
    term: float
    sum: float
    b: np.ndarray
    m: float

    @property
    def multipliers(self) -> dict[str, tuple[int, int, int]]:
        """Those in use, as tflite.rescale has them."""
        names = MULTIPLIERS if self.own.term is not None else MULTIPLIERS[:1]
        return {name: tflite.rescale(getattr(self, name)) for name in names}

    @property
    def is_possible(self) -> bool:
        """Whether the kernel has such multipliers."""
        return all(
            (left == 0 and 1 <= right <= RIGHT_MOST) or (name == "term" and (fine, left, right) == HALF)
            for name, (fine, left, right) in self.multipliers.items()
        )


def arithmetic(own: Constants, x: tflite.Side, y: tflite.Side) -> Arithmetic:
    """x, y: scales and zero points of the map and of the result"""
    factor, term = own.factor, own.term
    between = y if term is None else own.between
    product = float(f32(x[0]) * f32(factor.scale) / f32(between[0]))
    m = float(f32(x[0]) * f32(factor.scale) / f32(y[0]))
    if term is None:
        none = np.zeros(factor.values.size, np.int32)
        return Arithmetic(own, x[1], y[1], y[1], product, 0.0, 0.0, none, m)
    t_scale, b_scale, y_scale = (float(f32(s)) for s in (between[0], term.scale, y[0]))
    twice = 2 * max(t_scale, b_scale)
    whole = (term.values.astype(np.int64) - term.zero) * int(WIDE)
    b = tflite.requantized(whole, b_scale / twice).astype(np.int32)
    b = -b if term.means == LESS else b
    by_sum = twice / (WIDE * y_scale)
    return Arithmetic(own, x[1], between[1], y[1], product, t_scale / twice, by_sum, b, m)


def arithmetic_of(graph: Graph, node: Node) -> Arithmetic:
    x, y = (graph.tensors[t] for t in (node.inputs[0], node.outputs[0]))
    return arithmetic(constants(node), (x.scale, x.zero), (y.scale, y.zero))


def mul_add_fwd(p: Arithmetic, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The twin of mul_add_fwd_s8: y and its mask. x int8 [.., c]"""
    products = (x.astype(np.int64) - p.x) * (p.own.factor.values.astype(np.int64) - p.own.factor.zero)
    made = tflite.requantized(products, p.product) + p.t
    held = np.clip(made, -128, 127)
    passes = made == held
    if p.own.term is not None:
        made = _summed(p, held)
        held = np.clip(made, -128, 127)
        passes &= made == held
    return held.astype(np.int8), passes


def _summed(p: Arithmetic, t: np.ndarray) -> np.ndarray:
    sums = tflite.requantized((t.astype(np.int64) - p.t) * int(WIDE), p.term) + p.b
    return tflite.requantized(sums, p.sum) + p.y


def rounded(codes: Codes, values: np.ndarray, x: tflite.Side, y: tflite.Side) -> np.ndarray:
    """What one operator makes of int8 values [.., c]. x, y: scales and zero points before and behind it"""
    if codes.means == FACTOR:
        return mul_add_fwd(arithmetic(Constants(codes), x, y), values)[0]
    made: np.ndarray = np.clip(_summed(arithmetic(Constants(codes, codes, x), x, y), values), -128, 127)
    return made.astype(np.int8)


def c_struct(p: Arithmetic) -> MulAdd:
    """The kernels' parameters."""
    own = p.multipliers
    fine, by = ({name: m[place] for name, m in own.items()} for place in (0, 2))
    zeros = {"x_zero": p.x, "w_zero": p.own.factor.zero, "t_zero": p.t, "y_zero": p.y}
    tables = {"w": p.own.factor.values, "b": p.b if p.own.term is not None else None}
    return MulAdd(m=p.m, **tables, **fine, **{f"{name}_by": value for name, value in by.items()}, **zeros)


def product_of(p: Arithmetic) -> scale.Scale:
    """The product that an error goes back through."""
    return scale.Scale(s_zero=p.own.factor.zero, m=p.m)


def _run(env: Env, node: Node) -> None:
    made = mul_add_fwd(arithmetic_of(env.graph, node), env.values[node.inputs[0]])
    env.values.update(zip(node.outputs, made, strict=False))


def _run_backward(env: Env, node: Node) -> None:
    p = arithmetic_of(env.graph, forward_of(env.graph, node))
    scale.run_to_map(env, node, product_of(p), p.own.factor.values, p.own.factor.zero)


def _macs(graph: Graph, node: Node) -> int:
    return graph.tensors[node.inputs[0]].elements


def _gradient(tape: Tape, node: Node, error: str | None) -> None:
    if error is not None:
        tape.send(node.inputs[0], Node(BACKWARD, node.name, (error,), ()))


def _call(names: Names, node: Node) -> str:
    x, y, about = names.at(node.inputs[0]), names.at(node.outputs[0]), names.graph.tensors[node.outputs[0]]
    sizes = f"{names.struct(MUL_ADD, node)}, {about.pixels}, {about.channels}"
    return f"{MUL_ADD}_fwd_s8({sizes}, {x}, {y}, {names.mask_out(node)});"


def _call_backward(names: Names, node: Node) -> str:
    error = names.graph.tensors[node.inputs[0]]
    sizes = f"{names.struct(MUL_ADD, node)}, {error.pixels}, {error.channels}"
    ends = f"{names.clamp()}, {names.error(node.outputs[0])}"
    return f"{BACKWARD}_s8({sizes}, {names.error(error.name)}, {ends});"


def _rows(names: Names, node: Node, x: str) -> str:
    sizes = f"{names.struct(MUL_ADD, node)}, (uint32_t)p->h_out * p->w_out, p->c_out"
    return f"{MUL_ADD}_fwd_s8({sizes}, {x}, y, NULL);"


def _structs(names: Names, node: Node) -> Iterator[str]:
    record, own = c_struct(arithmetic_of(names.graph, node)), identifier(node.name)
    has_term = constants(node).term is not None
    tables = {"w": f"mul_add_w_{own}", "b": f"mul_add_b_{own}" if has_term else "NULL"}
    yield struct(MUL_ADD, MUL_ADD, node.name, tables | numbers(record))


def _tables(graph: Graph, node: Node) -> Iterator[Table]:
    p, own = arithmetic_of(graph, node), identifier(node.name)
    yield Table(f"const int8_t mul_add_w_{own}[{p.b.size}]", p.own.factor.values, "tables")
    if p.own.term is not None:
        yield Table(f"const int32_t mul_add_b_{own}[{p.b.size}]", p.b, "tables")


def _bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    p = arithmetic_of(graph, node)
    product = 2 * reach(graph.tensors[node.inputs[0]]) * _reach(p.own.factor)
    yield Accumulator("twice a product of two inputs", product, INT32_MAX, SMALLER)
    if p.own.term is not None:
        total = 2 * (255 * int(WIDE / 2) + int(np.abs(p.b.astype(np.int64)).max()))
        yield Accumulator("twice a sum of two inputs", total, INT32_MAX, SMALLER)


def _error_bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    factor = constants(forward_of(graph, node)).factor
    yield Accumulator("an error times a factor", ERROR * _reach(factor), INT32_MAX, SMALLER)


def _reach(codes: Codes) -> int:
    return int(np.abs(codes.values.astype(np.int64) - codes.zero).max())


def _float_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    own = constants(node)
    made: np.ndarray = env[node.inputs[0]] * own.factor.real
    return made if own.term is None else made + own.term.added


def _int8_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    return mul_add_fwd(arithmetic_of(graph, node), env[node.inputs[0]])[0]


def _facts(graph: Graph, node: Node) -> Mapping[str, Any]:
    p = arithmetic_of(graph, node)
    factor = (p.own.factor.values.astype(np.float64) - p.own.factor.zero) * p.product
    term = (p.b * p.sum).tolist() if p.own.term is not None else None
    return {"factor": factor.tolist(), "between": p.t, "times": p.term * WIDE * p.sum, "term": term}


def _parallel(run: Any, step: Any, x: Any) -> Any:
    """x: [runs][c][images][h][w]"""

    def each(values: Any) -> Any:
        return x.new_tensor(values)[None, :, None, None, None]

    made = x * each(step.facts["factor"])
    if step.facts["term"] is not None:
        t = step.facts["between"]
        made = made.round().clamp(-128 - t, 127 - t) * step.facts["times"] + each(step.facts["term"])
    return run.stored(step, made)


_SIZED = (MulAdd, NUMBER, NUMBER)

OPS: tuple[Op, ...] = (
    ForwardOp(
        MUL_ADD,
        shapes=shape_of_input,
        run=_run,
        call=_call,
        accumulators=_bounds,
        scratch=no_scratch,
        macs=_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=in_place_of(0),
        kernels={f"{MUL_ADD}_fwd_s8": (None, (*_SIZED, S8, S8, U8))},
        header=MUL_ADD,
        aten=NO_ATEN,  # made of batch norms (frontends/clean/fold.py)
        folds=Folds.RELU,
        learns=Learns.NOTHING,
        output=by_range,
        float_run=_float_run,
        int8_run=_int8_run,
        gathers=gathers_channels,
        gradient=_gradient,
        leaves=Leaves.CLAMP_MASK,
        tables=_tables,
        layer_structs=_structs,
        step_structs=no_structs,
        kernel=f"{MUL_ADD}_fwd_s8",
        struct=MUL_ADD,
        stage=ElementStage((), _rows),
        arrays=no_arrays,
        facts=_facts,
        parallel=_parallel,
        statistics=no_statistics,
    ),
    BackwardOp(
        BACKWARD,
        shapes=shape_of_input,
        run=_run_backward,
        call=_call_backward,
        accumulators=_error_bounds,
        scratch=no_scratch,
        macs=_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=in_place_of(0),
        kernels={f"{BACKWARD}_s8": (None, (*_SIZED, ErrorS8, Clamp, ErrorS8))},
        header=MUL_ADD,
        updates=Updates.NOTHING,
        reads_weights=False,
        guard=NOT_ALIGNED,
    ),
)
