"""The model's steps as C functions of model.c."""

from __future__ import annotations

from dataclasses import replace

from microtrain.base.shapes import by
from microtrain.convert.ir import Graph, Node
from microtrain.convert.memory import imprint
from microtrain.convert.names import Names, comment
from microtrain.convert.ops import TABLE, Updates, hop, log_mel, saves, updates
from microtrain.convert.ops.imprint import statistics
from microtrain.convert.ops.losses import task_of
from microtrain.convert.ops.stream import before_rows, kernel_scratch_at
from microtrain.convert.trainables import front_steps

from . import records


def step_text(graph: Graph, step: int, node: Node) -> str:
    """One line on a step: number, op, layer, MACs, shapes."""
    macs = TABLE[node.op].macs(graph, node)
    shapes = [_shape_text(graph, t) for t in (node.inputs[0], *node.outputs[:1])]
    work = f"  {macs} MAC" if macs else ""
    again = " again" if node.again else ""
    return f"{step}: {node.op} {node.name}{again}{work}  {' -> '.join(shapes)}"


def _shape_text(graph: Graph, tensor: str) -> str:
    return by(graph.tensors[tensor].shape)


def _step(names: Names, step: int, indent: str) -> str:
    node = names.graph.nodes[step]
    call = TABLE[node.op].call(replace(names, step=step), node)
    lines = [f"/* {comment(step_text(names.graph, step, node))} */", *call.splitlines()]
    return "\n".join(indent + line for line in lines)


def forward(names: Names) -> str:
    """The forward pass in two halves: a program for the host may keep what the first makes of an image."""
    graph = names.graph
    front, end = front_steps(graph), len(graph.forward_nodes)
    frozen = "Uses nothing that learns: what it makes of an input is always the same."
    lines = [
        *_rows(names),
        f"const float *model_logits(void) {{ return {names.at(graph.output)}; }}",
        "",
        *(_record(names, front) if graph.record else ()),
        *_function("static void forward_front(void)", _front(names, front), frozen),
        *_function("static void forward_rest(int train)", _rest(names, range(front, end))),
        *_function("void model_forward(int train)", ["    forward_front();", "    forward_rest(train);"]),
    ]
    if graph.record:
        lines += _function(
            "void model_rest(int train)", ["    forward_between();", "    forward_rest(train);"]
        )
    return "\n".join(lines)


def _function(head: str, body: list[str], comment: str = "") -> list[str]:
    return [*([f"/* {comment} */"] if comment else []), head, "{", *body, "}", ""]


def _front(names: Names, front: int) -> list[str]:
    if names.graph.record:
        return ["    model_front();", "    forward_between();"]
    return _frozen(names, range(front))


def _frozen(names: Names, steps: range) -> list[str]:
    return [_step(names, step, "    ") for step in steps]


def _record(names: Names, front: int) -> list[str]:
    """What a replay buffer needs: the frozen steps before and behind a record, and the record's bytes."""
    cut = names.graph.cut
    keep, recall = records.copies(names)
    between = "Frozen as well, but shorter to do again than what it makes is to keep."
    return [
        *_function("void model_front(void)", _frozen(names, range(cut))),
        *_function("void model_keep(uint8_t *record)", keep),
        *_function("void model_recall(const uint8_t *record)", recall),
        *_function("static void forward_between(void)", _frozen(names, range(cut, front)), between),
    ]


def _rest(names: Names, steps: range) -> list[str]:
    """The steps that use what learns, and those that only training runs."""
    lines = []
    nodes = names.graph.nodes
    if not any(saves(n) or len(n.outputs) > 1 for n in nodes[steps.start : steps.stop]):
        lines.append("    (void)train; /* nothing is saved for the backward pass */")
    for step in steps:
        if saves(nodes[step]):
            lines += ["    if (train) {", _step(names, step, "        "), "    }"]
        else:
            lines.append(_step(names, step, "    "))
    return lines


def _rows(names: Names) -> list[str]:
    """How the rows of an image get in: into the stream that eats them, or one after the other into memory."""
    graph = names.graph
    if graph.arriving:
        first = graph.nodes[0]
        stream, y, scratch = names.stream(first), names.at(first.outputs[0]), kernel_scratch_at(names, first)
        begin = " ".join([*before_rows(names, first), f"stream_begin({stream}, {scratch});"])
        take = hop.take(names) if graph.hop else f"stream_take({stream}, {y}, {scratch});"
        return [
            f"void model_start(void) {{ {begin} }}",
            f"int8_t *model_row(void) {{ return stream_row({stream}, {scratch}); }}",
            f"void model_take_row(void) {{ {take} }}",
            *([f"void model_slide(void) {{ {hop.slide(names)} }}"] if graph.hop else ()),
            "",
        ]
    image = names.at(graph.input.tensor)
    stays = graph.tensors[graph.input.tensor].shape[0] - graph.hop
    slide = f"void model_slide(void) {{ {hop.whole_slide(names)} rows = {stays}; }}"
    keep = f"{hop.whole_row(names, 'rows')} " if graph.hop else ""
    return [
        "static uint32_t rows;",
        "",
        "void model_start(void) { rows = 0; }",
        f"int8_t *model_row(void) {{ return (int8_t *){image} + rows * MODEL_WIDTH * MODEL_CHANNELS; }}",
        f"void model_take_row(void) {{ {keep}rows++; }}",
        *([slide] if graph.hop else ()),
        "",
    ]


def backward(names: Names) -> str:
    graph = names.graph
    lines = ["float model_backward(uint32_t label, const struct sgd *sgd)", "{"]
    lines += ["    (void)label; /* it learns by a target */"] if task_of(graph) else []
    moved = {updates(node) for node in graph.backward_nodes} - {Updates.NOTHING, Updates.STATISTICS}
    lines += [] if moved else ["    (void)sgd; /* no gradient moves anything */"]
    first = len(graph.forward_nodes)
    lines += [_step(names, first, "    ")]
    lines += ["    if (loss < MODEL_GATE) {", "        return loss;", "    }"] if graph.gate else []
    lines += [_step(names, step, "    ") for step in range(first + 1, len(graph.nodes))]
    return "\n".join([*lines, "    return loss;", "}", ""])


def look(names: Names) -> list[str]:
    """The statistics of features, and the head that is made of them."""
    graph = names.graph
    if not graph.imprint:
        return []
    node = imprint.head_of(graph)
    clear, add, solve = statistics(names, node, names.at(imprint.NAME), names.at(imprint.SCRATCH))
    return [
        *_function("void model_imprint_clear(void)", [f"    {clear}"]),
        *_function("void model_imprint_add(uint32_t label)", [f"    {add}"]),
        *_function("uint32_t model_imprint_solve(void)", [f"    return {solve}"]),
    ]


def sound(names: Names) -> list[str]:
    """The front end that makes rows of sound."""
    if names.graph.sound is None:
        return []
    begin, hear, row = log_mel.functions(names.graph.sound, f"T_{log_mel.NAME}")
    return [
        *_function("void model_listen(void)", [f"    {begin}"]),
        *_function("uint32_t model_hear(const uint8_t *samples, uint32_t count)", [f"    {hear}"]),
        *_function("const uint8_t *model_heard(void)", [f"    {row}"]),
    ]
