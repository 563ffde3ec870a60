"""Convolutions whose frozen weights lie in flash as codes, four bits a weight.

Two neighbouring weights of an output channel are a byte. What pair it stands for depends on the byte before
it too: the two upper bits of that are the state in which it is read, 0 at the beginning of a row, so that a
row of codes is a path through a trellis (QTIP, arXiv 2406.11235, here with one table for all layers). No pair
is in the table twice, so the weights in the graph, which are what the codes stand for, are all that is kept,
and all but storage and kernels is that of other convolutions (conv.py). Dense ones have kernels of their own;
depthwise ones, of few weights, have them expanded into scratch first. quantize/compress.py makes such layers.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from microtrain.convert.ir import ConvertError, Graph, Layer, Node
from microtrain.convert.names import Names, identifier
from microtrain.convert.reference import hostlib
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.hostlib import (
    NUMBER,
    S8,
    S32,
    SCRATCH,
    U8,
    U16,
    Clamp,
    ErrorS8,
    Record,
    Signature,
)

from . import bias, bounds, conv, conv_constants, conv_runs, conv_structs
from .bounds import layer_guard
from .conv_structs import Conv2d, c_struct
from .ctext import Table, struct
from .environment import Env
from .outputs import by_range
from .stage import NOT_A_STAGE, WindowStage, no_stage_structs
from .table import (
    NO_ATEN,
    BackwardOp,
    Folds,
    ForwardOp,
    Learns,
    Leaves,
    Op,
    Updates,
    no_facts,
    no_statistics,
    no_structs,
    not_in_place,
)
from .unit import Unit, Units, input_errors, of_forward, parts_of
from .unit import coded as unit_of_codes
from .work import by_size, one_way, with_biases

if TYPE_CHECKING:
    from .tape import Tape

CODED, CODED_DEPTHWISE = "cconv2d", "cdwconv2d"
CODED_OF = {conv.DENSE: CODED, conv.DEPTHWISE: CODED_DEPTHWISE}
SMALL_MAP = 8  # a depthwise layer's maps are at most such a part of the largest
HEADER = "coded"
CODES, STATES = 256, 4
EACH = CODES // STATES  # codes that lead to the same state
PAIRS_FILE = Path(__file__).with_name("coded_pairs.json")  # python lab/trellis
PAIRS = np.array(json.loads(PAIRS_FILE.read_text(encoding="utf-8")), np.int8)  # [CODES, STATES, 2]
TABLE_NAME, TABLE_BYTES = "coded_pairs", PAIRS.size
LEAST_SAVED = 512  # bytes: layers that save no more stay int8


class CodedWeights(Record):
    _fields_ = (("codes", ctypes.c_void_p), ("pairs", ctypes.c_void_p))
    _arrays_: ClassVar = {"codes": U8, "pairs": U16}


def after(codes: np.ndarray) -> np.ndarray:
    """The state in which the code behind these is read."""
    found: np.ndarray = codes // EACH
    return found


def codes_of(weight: np.ndarray) -> np.ndarray:
    """The codes of int8 weights [c_out, ...]: uint8 [c_out, (k + 1) / 2]. ValueError where there are none."""
    rows = np.ascontiguousarray(weight.reshape(len(weight), -1))
    even = rows.shape[1] // 2 * 2
    places = np.full(1 << 16, -1)
    places[_words(PAIRS).reshape(-1)] = np.arange(CODES * STATES)
    found = places[_words(rows[:, :even])]
    codes, states = found // STATES, found % STATES
    before = np.column_stack([np.zeros(len(rows), int), after(codes)])
    if (found < 0).any() or (states != before[:, : states.shape[1]]).any():
        raise ValueError("weights that are no path through the trellis")
    if even < rows.shape[1]:
        codes = np.column_stack([codes, _first(rows[:, -1], before[:, -1])])
    made: np.ndarray = codes.astype(np.uint8)
    return made


def _words(pairs: np.ndarray) -> np.ndarray:
    """int8 [..., k] as [..., k / 2], the first of each two in the low byte."""
    found: np.ndarray = np.ascontiguousarray(pairs).view("<u2").reshape(*pairs.shape[:-1], -1)
    return found


def _first(weight: np.ndarray, state: np.ndarray) -> np.ndarray:
    """Codes whose pair in such a state begins with a weight. ValueError where there is none."""
    fit = PAIRS[:, state, 0] == weight  # [CODES, n]
    if not fit.any(axis=0).all():
        raise ValueError("weights that are no path through the trellis")
    found: np.ndarray = fit.argmax(axis=0)
    return found


def coded(node: Node) -> Node:
    """A convolution as one with codes."""
    return replace(node, op=CODED_OF[node.op])


def can_be_coded(graph: Graph, node: Node) -> bool:
    """Whether its weights may become codes: depthwise layers of large maps run row by row, and stay."""
    if node.op == conv.DEPTHWISE:
        largest = max(t.elements for t in graph.tensors.values())
        ends = (*node.inputs, *node.outputs)
        return all(SMALL_MAP * graph.tensors[t].elements <= largest for t in ends)
    return node.op == conv.DENSE


def flash_saved(layers: Sequence[Layer]) -> int:
    """Bytes of flash that these layers' weights take less as codes, with the table; 0 without a layer."""
    return sum(map(saved_by, layers)) - TABLE_BYTES if layers else 0


def saved_by(layer: Layer) -> int:
    """What one layer saves beside others."""
    rows, row = len(layer.weight), layer.weight[0].size
    return int(rows * row - rows * ((row + 1) // 2))


def candidates(graph: Graph, trained: frozenset[str]) -> list[str]:
    """Frozen layers that take less flash as codes, in forward order: none that flash has once for several.
    None at all where the table takes what they save."""
    names = [n.layer for n in graph.forward_layers if n.layer and can_be_coded(graph, n)]
    layers = {n: graph.layers[n] for n in names if n not in trained}
    found = [n for n, layer in layers.items() if not layer.shares and saved_by(layer) > LEAST_SAVED]
    return found if flash_saved([layers[n] for n in found]) > 0 else []


# ---------------------------------------------------------------- in graphs


def _gradient(tape: Tape, node: Node, error: str | None) -> None:
    """Bias update and error to the input."""
    if tape.graph.layers[node.layer or ""].trained:
        raise ConvertError(
            f"{node.name} has weights in 4 bits, which cannot be trained: convert with --weights-bits 8, or "
            "leave this layer's weights out of the scheme"
        )
    if error is not None:
        tape.append(Node(bias.UPDATE, node.name, (error,), (), layer=node.layer))
        tape.send(node.inputs[0], Node(f"{node.op}_bwd_x", node.name, (error,), (), layer=node.layer))


def _run_forward(env: Env, node: Node) -> None:
    state, x = env.state[node.layer or ""], env.values[node.inputs[0]]
    results = reference.conv2d_fwd(conv_runs.params(env, node), x, state.weight, state.bias)
    env.values.update(zip(node.outputs, results, strict=False))


def _run_bwd_x(env: Env, node: Node) -> None:
    ends = env.values[node.inputs[0]], env.state[node.layer or ""].weight, env.clamp(node.clamp)
    depthwise = env.graph.layers[node.layer or ""].depthwise
    kernel = env.backend.dwconv2d_bwd_x if depthwise else env.backend.conv2d_bwd_x
    env.values[node.outputs[0]] = kernel(conv_runs.params(env, node), *ends)


# ---------------------------------------------------------------- in C


def _tables(graph: Graph, node: Node) -> Iterator[Table]:
    """Codes in the place of the weights, their pairs, then the other tables of a convolution."""
    layer, cid = graph.layers[node.layer or ""], identifier(node.layer or "")
    found = codes_of(layer.weight)
    yield Table(f"MODEL_WEIGHTS uint8_t codes_{cid}[{found.size}]", found, "weights")
    yield Table(f"const uint16_t {TABLE_NAME}[{CODES * STATES}]", _words(PAIRS), "weights")
    yield from (table for table in conv_constants.tables(graph, node) if table.name != f"w_{cid}")


def _structs(names: Names, node: Node) -> Iterator[str]:
    cid = identifier(node.layer or "")
    fields: dict[str, object] = {"codes": f"codes_{cid}", "pairs": TABLE_NAME}
    yield struct("coded_weights", "coded", node.layer or "", fields) + conv_structs.constants(names, node)


def _call_forward(names: Names, node: Node) -> str:
    biases, before = conv.expand_biases(names, node, 0)
    x, y, mask = names.at(node.inputs[0]), names.at(node.outputs[0]), names.mask_out(node)
    scratch = names.scratch(conv.biases_bytes(names.graph, node))
    begin = f"{CODED}_fwd_s8({names.struct('conv', node)}, {names.struct('coded', node)}"
    return "\n".join([*before, f"{begin}, {x}, {biases}, {y}, {mask}, {scratch});"])


def _call_bwd_x(names: Names, node: Node) -> str:
    begin = f"{CODED}_bwd_x_s8({names.struct('conv', node)}, {names.struct('coded', node)}"
    error, out = names.error(node.inputs[0]), names.error(node.outputs[0])
    return f"{begin}, {error}, {names.clamp()}, {out}, {names.scratch()});"


def _operands(names: Names, node: Node, offset: int) -> tuple[str, str, str]:
    return names.struct("conv", node), "NULL", conv.expand_biases(names, node, offset)[0]


def _rows(names: Names, node: Node) -> str:
    return f"{CODED}_fwd_s8(p, {names.struct('coded', node)}, x, stage->b, y, NULL, scratch);"


def _rows_scratch(graph: Graph, node: Node) -> int:
    return hostlib.scratch_bytes(f"{CODED}_fwd", c_struct(graph, node))


def _scratch_forward(graph: Graph, node: Node) -> int:
    return conv.biases_bytes(graph, node) + _rows_scratch(graph, node)


def _scratch_bwd_x(graph: Graph, node: Node) -> int:
    return hostlib.scratch_bytes(f"{CODED}_bwd_x", c_struct(graph, node))


# ---------------------------------------------------------------- depthwise: expanded into scratch


def _expanded_bytes(graph: Graph, node: Node) -> int:
    """Scratch for the weights, and the byte behind them."""
    return -(-(graph.layers[node.layer or ""].weight.size + 1) // 8) * 8


def _expanded(names: Names, node: Node, offset: int) -> tuple[str, str]:
    """What expands the weights into scratch, and the struct of weights that lie there."""
    weight, at = names.graph.layers[node.layer or ""].weight, names.scratch(offset)
    rows, row = len(weight), weight[0].size
    call = f"codes_expand_s8({rows}, {row}, {names.struct('coded', node)}, {at});"
    return call, f"&(const struct split_weights){{.frozen = {at}}}"


def _call_depthwise(names: Names, node: Node) -> str:
    offset = conv.biases_bytes(names.graph, node)
    biases, before = conv.expand_biases(names, node, 0)
    expand, weights = _expanded(names, node, offset)
    x, y, mask = names.at(node.inputs[0]), names.at(node.outputs[0]), names.mask_out(node)
    scratch = names.scratch(offset + _expanded_bytes(names.graph, node))
    begin = f"{conv.DEPTHWISE}_fwd_s8({names.struct('conv', node)}, {x}, {weights}"
    return "\n".join([*before, expand, f"{begin}, {biases}, {y}, {mask}, {scratch});"])


def _call_depthwise_bwd_x(names: Names, node: Node) -> str:
    expand, weights = _expanded(names, node, 0)
    error, out = names.error(node.inputs[0]), names.error(node.outputs[0])
    scratch = names.scratch(_expanded_bytes(names.graph, node))
    begin = f"{conv.DEPTHWISE}_bwd_x_s8({names.struct('conv', node)}, {error}, {weights}"
    return f"{expand}\n{begin}, {names.clamp()}, {out}, {scratch});"


def _with_room(entry: Op) -> Callable[[Graph, Node], int]:
    return lambda graph, node: _expanded_bytes(graph, node) + entry.scratch(graph, node)


STAGE = WindowStage(
    kind=None,
    mixes=True,
    geometry=c_struct,
    operands=_operands,
    structs=no_stage_structs,
    biases=conv.biases_bytes,
    before=conv.before_rows,
    rows=_rows,
    scratch=_rows_scratch,
)
EXPAND: dict[str, Signature] = {"codes_expand_s8": (None, (NUMBER, NUMBER, CodedWeights, S8))}
_SIZE: Signature = (ctypes.c_uint32, (Conv2d,))
_PLAIN = next(op for op in conv.OPS if isinstance(op, ForwardOp) and op.name == conv.DEPTHWISE)
_PLAIN_BWD_X = next(op for op in conv.OPS if op.name == f"{conv.DEPTHWISE}_bwd_x")


def _unit_input(graph: Graph, node: Node, strip: Conv2d | None) -> Unit:
    return input_errors(c_struct(graph, node), parts_of(graph, node))


def _unit_expanded(entry: Op) -> Units:
    """That of a plain layer, whose weights are expanded again in every piece."""

    def unit(graph: Graph, node: Node, strip: Conv2d | None) -> Unit | None:
        plain = entry.unit(graph, node, strip)
        assert plain is not None
        return replace(plain, once={**plain.once, "decoded": graph.layers[node.layer or ""].weight.size})

    return unit


OPS: tuple[Op, ...] = (
    ForwardOp(
        CODED,
        shapes=conv.forward_shapes,
        run=_run_forward,
        call=_call_forward,
        accumulators=bounds.conv_forward,
        scratch=_scratch_forward,
        macs=conv.macs,
        way=one_way,
        work=with_biases,
        unit=of_forward(unit_of_codes, c_struct),
        in_place=not_in_place,
        kernels={
            f"{CODED}_fwd_s8": (None, (Conv2d, CodedWeights, S8, S32, S8, U8, SCRATCH)),
            f"{CODED}_fwd_scratch": _SIZE,
            **conv.EXPAND,
        },
        header=HEADER,
        aten=NO_ATEN,  # the rules make dense ones
        folds=Folds.NORM_AND_RELU,
        learns=Learns.COLUMNS,
        output=by_range,
        float_run=conv_runs.float_run,
        int8_run=conv_runs.int8_run,
        gathers=conv.gathers_taps,
        gradient=_gradient,
        leaves=Leaves.CLAMP_MASK,
        tables=_tables,
        layer_structs=_structs,
        step_structs=no_structs,
        kernel=f"{CODED}_fwd_s8",
        struct="conv",
        stage=STAGE,
        arrays=conv_constants.arrays,
        facts=no_facts,
        parallel=conv_runs.parallel_dense,
        statistics=no_statistics,
    ),
    BackwardOp(
        f"{CODED}_bwd_x",
        shapes=conv.input_shape,
        run=_run_bwd_x,
        call=_call_bwd_x,
        accumulators=bounds.conv_input_gradient,
        scratch=_scratch_bwd_x,
        macs=conv.macs,
        way=one_way,
        work=by_size,
        unit=_unit_input,
        in_place=not_in_place,
        kernels={
            f"{CODED}_bwd_x_s8": (None, (Conv2d, CodedWeights, ErrorS8, Clamp, ErrorS8, SCRATCH)),
            f"{CODED}_bwd_x_scratch": _SIZE,
        },
        header=HEADER,
        updates=Updates.NOTHING,
        reads_weights=True,
        guard=layer_guard,
    ),
    replace(
        _PLAIN,
        name=CODED_DEPTHWISE,
        call=_call_depthwise,
        scratch=_with_room(_PLAIN),
        unit=_unit_expanded(_PLAIN),
        kernels={**_PLAIN.kernels, **EXPAND},
        header=HEADER,
        gradient=_gradient,
        tables=_tables,
        layer_structs=_structs,
        stage=NOT_A_STAGE,
    ),
    replace(
        _PLAIN_BWD_X,
        name=f"{CODED_DEPTHWISE}_bwd_x",
        run=_run_bwd_x,
        call=_call_depthwise_bwd_x,
        scratch=_with_room(_PLAIN_BWD_X),
        unit=_unit_expanded(_PLAIN_BWD_X),
        header=HEADER,
    ),
)
