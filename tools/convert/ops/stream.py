"""Chains of layers that run row by row."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from microtrain.convert import ops
from microtrain.convert.ir import SIDE_MOST, Graph, Node, Shape, Window
from microtrain.convert.names import Names, identifier
from microtrain.convert.reference import hostlib
from microtrain.convert.reference.hostlib import Record

from .bounds import SMALLER, Accumulator
from .conv_structs import Conv2d, conv2d_struct
from .ctext import numbers, struct
from .environment import Env
from .stage import ClosingStage, ElementStage, LastStage, Stage, WindowStage
from .table import Op, StreamOp
from .unit import whole
from .work import of_parts, one_way

STAGES_MAX = 12  # STREAM_STAGES_MAX of kernels/stream.h
STREAM_OWN = 2  # of kernels/stream.h: the first kind of rows that model.c makes
STREAM_STRUCT = "stream"  # its parameter struct
POINT = Window(1, 1)


@dataclass(frozen=True)
class Rows:
    """One stage: the node that makes rows from a window of rows, and those that work on them in place.

    An element op that begins a stream is a stage as well: its window is one row.
    """

    first: Node
    tail: tuple[Node, ...] = ()

    @property
    def window(self) -> Window:
        return self.first.window or POINT


def node_of(parts: Sequence[Node]) -> Node:
    """The stream of a chain of nodes; beside the first one's input it reads what they read whole."""
    chain = tuple(parts)
    made = {t for part in chain for t in part.outputs}
    whole = [t for part in chain for t in _whole(part) if t not in made]
    inputs = tuple(dict.fromkeys((chain[0].inputs[0], *whole)))
    return Node("stream", f"{chain[0].name} .. {chain[-1].name}", inputs, chain[-1].outputs, parts=chain)


def stage_of(part: Node) -> Stage:
    return ops.forward_op(part).stage


def _whole(part: Node) -> tuple[str, ...]:
    """Inputs of a part that are tensors in memory, whole, beside the rows that reach it."""
    stage = stage_of(part)
    return tuple(part.inputs[i] for i in stage.whole) if isinstance(stage, ElementStage) else ()


def stages(parts: Sequence[Node]) -> tuple[Rows, ...]:
    """The stages of a chain, without what closes it."""
    found: list[Rows] = []
    for part in parts:
        stage = stage_of(part)
        if isinstance(stage, WindowStage) or (isinstance(stage, ElementStage) and not found):
            found.append(Rows(part))
        elif isinstance(stage, ElementStage):
            found[-1] = Rows(found[-1].first, (*found[-1].tail, part))
    return tuple(found)


def closing_row(graph: Graph, node: Node) -> Record | None:
    """The kernel's parameters of what closes a stream, for one row; None where nothing does."""
    stage = stage_of(node.parts[-1])
    return stage.row(graph, node.parts[-1]) if isinstance(stage, ClosingStage) else None


def resident(graph: Graph, node: Node) -> bool:
    """True where the stream's input is a tensor in memory."""
    return node.inputs[0] != graph.input.tensor or not graph.arriving


def geometry(graph: Graph, rows: Rows) -> Record:
    """The struct conv2d of a stage's rows."""
    stage = stage_of(rows.first)
    if isinstance(stage, WindowStage):
        return stage.geometry(graph, rows.first)
    x, y = (graph.tensors[t] for t in (rows.first.inputs[0], rows.first.outputs[0]))
    return conv2d_struct(x.shape, y.shape, POINT, x.zero, y.zero, 0)


def _own(rows: Rows) -> bool:
    """True where model.c makes a stage's rows, since stream.c cannot."""
    stage = stage_of(rows.first)
    return bool(rows.tail) or not isinstance(stage, WindowStage) or stage.kind is None


def _own_stages(graph: Graph) -> list[Rows]:
    """All stages whose rows model.c makes, in the order of their kinds."""
    return [rows for node in graph.nodes for rows in stages(node.parts) if _own(rows)]


def _kind(graph: Graph, rows: Rows) -> int:
    stage = stage_of(rows.first)
    if _own(rows):
        return STREAM_OWN + _own_stages(graph).index(rows)
    assert isinstance(stage, WindowStage) and stage.kind is not None
    return stage.kind


def _shapes(graph: Graph, node: Node) -> tuple[Shape, ...]:
    last = node.parts[-1]
    return ops.TABLE[last.op].shapes(graph, last)


def _macs(graph: Graph, node: Node) -> int:
    return sum(ops.TABLE[part.op].macs(graph, part) for part in node.parts)


def _accumulators(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """Rows are counted with their padding in uint16; those that enter at once in a byte."""
    for part in node.parts:
        if part.window is not None:
            (h, *_), (height, *_) = (graph.tensors[t].shape for t in (part.inputs[0], part.outputs[0]))
            needed = (height - 1) * part.window.stride_h + part.window.kh
            rows = max(needed, h + part.window.pad_h)  # the last ones may be read by no output
            yield Accumulator(f"a number of rows of {part.name}", rows, SIDE_MOST, SMALLER)
    yield Accumulator("a number of rows at once", node.rows, 255, SMALLER)


class StreamStage(ctypes.Structure):
    _fields_ = (
        ("conv", ctypes.POINTER(Conv2d)),
        ("w", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("kind", ctypes.c_uint8),
    )


class Stream(ctypes.Structure):
    _fields_ = (
        ("stage", ctypes.POINTER(StreamStage)),
        ("add", ctypes.c_void_p),
        *((n, ctypes.c_uint8) for n in ("stages", "rows", "resident")),
    )


def kernels_scratch(graph: Graph, node: Node) -> int:
    """Scratch of the chain's windows and kernels: asks stream.c, and the stages that it does not know."""
    known, found = hostlib.ask("stream_fwd_scratch", stream_record(graph, node)), stages(node.parts)
    places = [(rows, stage_of(rows.first)) for rows in found]
    own = max(s.scratch(graph, rows.first) if isinstance(s, WindowStage) else 0 for rows, s in places)
    if not own:
        return known
    windows = stream_record(graph, node)
    for i in range(len(found)):
        windows.stage[i].kind = STREAM_OWN
    without = hostlib.ask("stream_fwd_scratch", windows)
    return without + max(known - without, own)


def stream_record(graph: Graph, node: Node) -> Stream:
    """The struct stream of a chain, as far as sizes depend on it: what closes it is there or not."""
    chain = stages(node.parts)
    array = (StreamStage * len(chain))()
    for entry, rows in zip(array, chain, strict=True):
        stage = stage_of(rows.first)
        record = geometry(graph, rows)
        assert isinstance(record, Conv2d)
        entry.conv = ctypes.pointer(record)
        builtin = isinstance(stage, WindowStage) and stage.kind is not None
        entry.kind = stage.kind if isinstance(stage, WindowStage) and builtin else STREAM_OWN
    row = closing_row(graph, node)
    add = None if row is None else ctypes.addressof(row)
    return Stream(array, add, len(chain), node.rows, int(resident(graph, node)))


def _scratch(graph: Graph, node: Node) -> int:
    """Expanded biases, then the kernels' scratch."""
    return _biases_bytes(graph, node) + kernels_scratch(graph, node)


def _biases_of(graph: Graph, rows: Rows) -> int:
    stage = stage_of(rows.first)
    return stage.biases(graph, rows.first) if isinstance(stage, WindowStage) else 0


def _biases_bytes(graph: Graph, node: Node) -> int:
    return sum(_biases_of(graph, rows) for rows in stages(node.parts))


def _biases_at(graph: Graph, node: Node) -> list[int]:
    """Where in the step's scratch each stage's expanded biases are: before what the kernels use."""
    sizes = [_biases_of(graph, rows) for rows in stages(node.parts)]
    return [sum(sizes[:i]) for i in range(len(sizes))]


def kernel_scratch_at(names: Names, node: Node) -> str:
    return names.scratch(_biases_bytes(names.graph, node))


def before_rows(names: Names, node: Node) -> list[str]:
    """What runs before the first row enters."""
    lines = []
    for rows, offset in zip(stages(node.parts), _biases_at(names.graph, node), strict=True):
        stage = stage_of(rows.first)
        lines += stage.before(names, rows.first, offset) if isinstance(stage, WindowStage) else []
    return lines


def _in_place(graph: Graph, node: Node) -> Mapping[int, int]:
    """The output grows into the rows of the input that have entered the chain.

    It must begin so far before the input that row r of it, once written, ends before the first input row
    that had not entered when r was complete. A residual add reads row r of the input last of all: it is of
    the same size as row r of the output, which does not begin behind it. A single stage may read its rows
    where they lie: these have not entered before they are made, and stay apart.
    """
    if not resident(graph, node) or _reads_itself(graph, node):
        return {}
    x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    x_row, y_row = x.elements // x.shape[0], y.elements // y.shape[0]
    entered = [rows_entered(graph, node, row) for row in range(y.shape[0])]
    ends = [(row + 1) * y_row - n * x_row for row, n in enumerate(entered) if n < x.shape[0]]
    return {0: max([0, *ends])}


def _reads_itself(graph: Graph, node: Node) -> bool:
    """Whether rows go from the input to the output at once, by a kernel that is no op on single values."""
    rows, *more = stages(node.parts)
    k, windowed = rows.window, isinstance(stage_of(rows.first), WindowStage)
    read = windowed and (k.kh, k.stride_h, k.pad_h) == (1, 1, 0)
    return read and not more and closing_row(graph, node) is None


def rows_entered(graph: Graph, node: Node, row: int) -> int:
    """Input rows of a stream that must have entered before output row `row` can be made."""
    last = row
    for rows in reversed(stages(node.parts)):
        height, k = graph.tensors[rows.first.inputs[0]].shape[0], rows.window
        all_of_them = isinstance(stage_of(rows.first), LastStage)
        last = height - 1 if all_of_them else min(last * k.stride_h + k.kh - 1 - k.pad_h, height - 1)
    return max(last, 0) + 1


def _run(env: Env, node: Node) -> None:
    """Layer by layer over whole tensors: the oracle of the rows."""
    for part in node.parts:
        ops.TABLE[part.op].run(env, part)


def _call(names: Names, node: Node) -> str:
    """A resident stream runs here; one whose rows arrived before has only to be finished."""
    stream, y, scratch = names.stream(node), names.at(node.outputs[0]), kernel_scratch_at(names, node)
    if not resident(names.graph, node):
        return f"stream_end({stream}, {y}, {scratch});"
    call = f"stream_fwd_s8({stream}, {names.at(node.inputs[0])}, {y}, {scratch});"
    return "\n".join([*before_rows(names, node), call])


def _structs(names: Names, node: Node) -> Iterator[str]:
    """The stages and the stream; what closes it has parameters of one row."""
    graph, text, entries = names.graph, "", []
    for rows, offset in zip(stages(node.parts), _biases_at(graph, node), strict=True):
        stage = stage_of(rows.first)
        if isinstance(stage, WindowStage):
            text += stage.structs(names, rows.first)
            operands = stage.operands(names, rows.first, offset)
        else:
            text += struct("conv2d", "rows", rows.first.name, numbers(geometry(graph, rows)))
            operands = names.struct("rows", rows.first), "NULL", "NULL"
        entries.append(f"    {{{', '.join(operands)}, {_kind(graph, rows)}}},")
    add, record, cid = "NULL", closing_row(graph, node), identifier(node.outputs[0])
    if record is not None:
        text += struct("add", "row_add", node.parts[-1].name, record)
        add = f"&row_add_{identifier(node.parts[-1].name)}"
    text += f"static const struct stream_stage stages_{cid}[] = {{\n" + "\n".join(entries) + "\n};\n"
    fields = f"{len(entries)}, {node.rows}, {int(resident(graph, node))}"
    yield text + f"static const struct stream stream_{cid} = {{stages_{cid}, {add}, {fields}}};\n"


def own_rows(names: Names) -> list[str]:
    """stream_rows() of a model with stages that stream.c cannot make; nothing for one without."""
    cases = []
    for rows in _own_stages(names.graph):
        parts = (rows.first, *rows.tail)
        calls = [_rows_call(names, part, "y" if i else "x") for i, part in enumerate(parts)]
        cases.append(f"    case {_kind(names.graph, rows)}:")
        cases += [f"        {line}" for call in calls for line in call.splitlines()] + ["        break;"]
    if not cases:
        return []
    return [
        "void stream_rows(const struct stream_stage *stage, const struct conv2d *p, const int8_t *x,",
        "                 int8_t *y, void *scratch)",
        "{",
        "    (void)x, (void)scratch;",
        "    switch (stage->kind) {",
        *cases,
        "    }",
        "}",
        "",
    ]


def _rows_call(names: Names, part: Node, source: str) -> str:
    stage = stage_of(part)
    if isinstance(stage, WindowStage):
        return stage.rows(names, part)
    assert isinstance(stage, ElementStage), part.name
    return stage.rows(names, part, source)


OPS: tuple[Op, ...] = (
    StreamOp(
        "stream",
        shapes=_shapes,
        run=_run,
        call=_call,
        accumulators=_accumulators,
        scratch=_scratch,
        macs=_macs,
        way=one_way,
        work=of_parts,
        unit=whole,
        in_place=_in_place,
        kernels={},
        header="stream",
        step_structs=_structs,
    ),
)
