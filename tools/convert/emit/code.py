"""Code generation: a planned training graph -> model.h, model.c, model_weights.c.

Generated code is data and straight-line calls; all logic stays in the kernels. The text depends on nothing
but the graph and the plan, so a diff of generated code means something.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from microtrain.base.plan import GUESSES
from microtrain.convert.ir import ConvertError, Graph, Node
from microtrain.convert.memory import fleet, imprint
from microtrain.convert.memory.plan import Placement, Plan
from microtrain.convert.memory.replay import record_bytes
from microtrain.convert.names import Names, c_string, comment, identifier, number
from microtrain.convert.ops import TABLE, hop, log_mel, product_code, saves
from microtrain.convert.ops.imprint import statistics
from microtrain.convert.ops.losses import task_of
from microtrain.convert.ops.stream import before_rows, kernel_scratch_at, own_rows
from microtrain.convert.ops.table import COMMON_HEADERS
from microtrain.convert.pipeline import Compiled
from microtrain.convert.scheme import Scheme
from microtrain.convert.trainables import Trainable, block_bytes, front_steps, layout, stored_block

from . import library, tables
from . import records as recorded
from .windows import windows

API_VERSION = 4
ID_LINE = "#define MODEL_ID"
HEADER = '#include "model.h"'
Body = Callable[[np.ndarray], str]
TARGET = "float model_target[MODEL_TARGETS];\n#define TARGET model_target\n"


@dataclass(frozen=True)
class Output:
    """Generated files and the SHA-256 that ties a firmware to its plan."""

    files: dict[str, str]
    model_id: str


def generate(compiled: Compiled, origin: str) -> Output:
    """The C files of a compiled model. origin: says in a comment what they were made from."""
    graph, plan, scheme = compiled.graph, compiled.plan, compiled.scheme
    made = emit(graph, plan, scheme, origin, compiled.records)
    steps = _library(graph, plan, scheme, origin, made.model_id)
    return Output(made.files | {library.FILE: steps}, made.model_id)


def _library(graph: Graph, plan: Plan, scheme: Scheme, origin: str, model_id: str) -> str:
    """The model's steps for the library, in the place of model.c."""
    items = layout(graph)
    names, block = _names(graph, plan, items), stored_block(items)
    inner = library.Inner(_offsets(plan), _error_structs(names), _info(graph, scheme), _parts(graph, block))
    stop = _same_conversion(library.FILE, _word(model_id))
    banner = _banner(origin, "The model's steps for the library (microtrain export-library).")
    return f"{banner}\n{stop}\n\n{library.steps(names, inner)}"


def _names(graph: Graph, plan: Plan, items: tuple[Trainable, ...]) -> Names:
    return Names(graph, plan.placements.keys(), {t.name: t.offset for t in items})


def _word(model_id: str) -> int:
    """MODEL_ID: its first four bytes, little-endian."""
    return int.from_bytes(bytes.fromhex(model_id)[:4], "little")


def emit(
    graph: Graph, plan: Plan, scheme: Scheme, origin: str, records: int = 0, body: Body = tables.body
) -> Output:
    """The C files of a firmware.

    origin   says in a comment what they were made from
    records  of the replay buffer
    body     how the values of a table are written
    """
    check_identifiers(graph, plan)
    items = layout(graph)
    names = _names(graph, plan, items)
    files = {
        "model.h": _header(graph, plan, items, origin, records),
        "model.c": _model(names, plan, items, scheme, origin),
        "model_weights.c": _weights(names, items, origin, body),
    }
    check_structs(files["model.c"])
    digest = hashlib.sha256("".join(files[name] for name in sorted(files)).encode()).hexdigest()
    word = _word(digest)
    files["model.h"] = files["model.h"].replace(f"{ID_LINE} 0\n", f"{ID_LINE} 0x{word:08x}u\n")
    for name in ("model.c", "model_weights.c"):
        files[name] = files[name].replace(HEADER, f"{HEADER}\n{_same_conversion(name, word)}", 1)
    return Output(files, digest)


def _same_conversion(name: str, word: int) -> str:
    """Stops a build of files that two conversions wrote."""
    return (
        f"#if MODEL_ID != 0x{word:08x}u\n"
        f'#error "{name} and model.h are of different conversions: run tools/convert again."\n'
        "#endif"
    )


def check_identifiers(graph: Graph, plan: Plan) -> None:
    """ConvertError where two layers, or two tensors, would have one name in C."""
    for names in (graph.layers, {*plan.placements, *graph.tensors}):
        found: dict[str, str] = {}
        for name in sorted(names):
            other = found.setdefault(identifier(name), name)
            if other != name:
                raise ConvertError(f"{other} and {name} would have the same name in C: rename one of them")


def check_structs(model: str) -> None:
    """ValueError where model.c uses a struct that it does not define: an op's entry lacks it."""
    code = re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\])*"', "", model, flags=re.DOTALL)
    defined = set(re.findall(r"\bstruct \w+ (\w+)(?:\[\])? =", code))
    missing = sorted(set(re.findall(r"&([A-Za-z_]\w*)", code)) - defined)
    if missing:
        raise ValueError(
            f"model.c would use {', '.join(missing)}, which nothing defines: see layer_structs and "
            "step_structs of the ops' entries"
        )


def _banner(origin: str, what: str) -> str:
    source = f"Generated by microtrain from {comment(origin)}; do not edit it, convert again."
    owner = "It belongs to whoever ran the conversion."
    return f"/* {comment(what)}\n * {source}\n * {owner} */\n"


def _choices(graph: Graph) -> tuple[str, ...]:
    """What the build tells the kernels: MODEL_.. as -DMICROTRAIN_.. (kernels/choices.h)."""
    external = ("#define MODEL_EXTERNAL 1\n",) if graph.outside else ()
    return (f"#define MODEL_WINDOWS 0x{windows(graph):03x}\n", *external, *_arithmetic(graph))


def _arithmetic(graph: Graph) -> tuple[str, ...]:
    """Says where convolutions are requantized in fixed point, and stops a build whose kernels would not."""
    if not graph.fixed:
        return ()
    return (
        "#define MODEL_FIXED 1",
        "#if !MICROTRAIN_FIXED",
        '#error "This model was converted with --requantize fixed: compile all with -DMICROTRAIN_FIXED=1."',
        "#endif\n",
    )


def _header(graph: Graph, plan: Plan, items: tuple[Trainable, ...], origin: str, records: int) -> str:
    h, w, c = graph.tensors[graph.input.tensor].shape
    lines = [
        _banner(origin, f"Model {graph.name}: sizes, and the tables of model_weights.c."),
        "#ifndef MODEL_H\n#define MODEL_H\n",
        '#include "model_api.h"\n#include "model_weights.h"\n',
        f"#if MODEL_API_VERSION != {API_VERSION}",
        '#error "This model was generated for another firmware version: run tools/convert again."',
        "#endif\n",
        f"{ID_LINE} 0",
        f"#define MODEL_HEIGHT {h}\n#define MODEL_WIDTH {w}\n#define MODEL_CHANNELS {c}",
        f"#define MODEL_CLASSES {graph.tensors[graph.output].channels}",
        f"#define MODEL_ARENA_BYTES {plan.arena}",
        f"#define MODEL_TRAINABLE_BYTES {block_bytes(items)}",
        f"#define MODEL_INIT_BYTES {len(stored_block(items))}\n",
        *([f"#define MODEL_RECORDS {records}"] if records else ()),
        *([f"#define MODEL_RECORD_BYTES {record_bytes(graph)}\n"] if records else ()),
        *_choices(graph),
        *_targets(graph),
        *([f"#define MODEL_SOUND {c_string(graph.sound.text())}"] if graph.sound else ()),
        *([f"#define MODEL_UNITS {c_string(graph.units.text())}"] if graph.units else ()),
        *_hop(graph),
        *([f"#define MODEL_IMPRINT {graph.imprint} /* features of a group */\n"] if graph.imprint else ()),
        *_fleet(graph),
        *(f"extern {table.declaration};" for table in tables.collect(graph)),
        "\n#endif",
    ]
    return "\n".join(lines) + "\n"


def _targets(graph: Graph) -> list[str]:
    """What a firmware must know of a model that learns by targets in the place of labels."""
    task = task_of(graph)
    if not task:
        return []
    return [
        f"#define MODEL_TARGETS {graph.tensors[graph.output].channels}",
        f'#define MODEL_TASK "{task}"',
        f"#define MODEL_GUESSES {GUESSES[task]} /* classes whose guessing costs as much */\n",
    ]


def _hop(graph: Graph) -> list[str]:
    """What a firmware must know of windows that overlap."""
    if not graph.hop:
        return []
    lines = [f"#define MODEL_HOP {graph.hop} /* rows by which a window moves on */"]
    if graph.sound is not None:
        whole, stays = hop.samples(graph)
        lines += [
            f"#define MODEL_ALL_HEARD {whole} /* samples of a window */",
            f"#define MODEL_HEARD {stays}",
        ]
    return lines


def _fleet(graph: Graph) -> list[str]:
    """What a firmware must know that makes its updates in a fleet itself."""
    if not graph.fleet:
        return []
    return [
        f"#define MODEL_FLEET_ROOM {graph.fleet}",
        f"#define MODEL_FLEET_STATE {fleet.STATE}",
        f"#define MODEL_FLEET_BYTES {fleet.fleet_bytes(graph)} /* behind the trainables */\n",
    ]


def _weights(names: Names, items: tuple[Trainable, ...], origin: str, body: Body) -> str:
    lines = [_banner(origin, "Weights, biases and tables, each once."), f"{HEADER}\n"]
    for table in tables.collect(names.graph):
        lines.append(f"{table.declaration} = {{\n{body(table.values)}\n}};\n")
    block = np.frombuffer(stored_block(items), np.uint8)
    lines.append(f"MODEL_WEIGHTS uint8_t model_trainables_init[{len(block)}] = {{\n{body(block)}\n}};")
    return "\n".join(lines) + "\n"


def _model(names: Names, plan: Plan, items: tuple[Trainable, ...], scheme: Scheme, origin: str) -> str:
    graph = names.graph
    return "\n".join(
        [
            _banner(origin, f"Model {graph.name}, scheme {scheme.name}: parameters and steps."),
            "#include <stddef.h>\n#include <string.h>\n"
            if graph.record or graph.hop
            else "#include <stddef.h>\n",
            *(f'#include "kernels/{name}.h"' for name in _headers(graph)),
            *(['#include "microtrain_fleet.h"'] if graph.fleet else ()),
            f"{HEADER}\n",
            "#define AT(offset) ((void *)(model_arena + (offset)))",
            "#define TRAINED(offset) ((void *)(model_trainables + (offset)))\n",
            "uint8_t model_arena[MODEL_ARENA_BYTES] __attribute__((aligned(8)));",
            f"uint8_t model_trainables[{_kept(graph)}] __attribute__((aligned(8)));\n",
            *(
                ["float model_target[MODEL_TARGETS];\n#define TARGET model_target\n"]
                if task_of(graph)
                else ()
            ),
            _offsets(plan),
            _parts(graph, stored_block(items)),
            _info(graph, scheme),
            *tables.structs(names),
            _error_structs(names),
            *own_rows(names),
            _forward(names),
            _backward(names),
            *_imprint(names),
            *_sound(names),
            *([fleet.table(graph, "model_shared")] if graph.fleet else ()),
            *_outside(graph),
        ]
    )


def _outside(graph: Graph) -> tuple[str, ...]:
    """What tells a firmware whose weights lie beside the chip; a build without the driver is stopped."""
    if not graph.outside:
        return ()
    return (
        "#if defined(__arm__) && !MICROTRAIN_EXTERNAL",
        '#error "Weights of this model lie beside the chip: compile all with -DMICROTRAIN_EXTERNAL=1."',
        "#endif",
        "MODEL_WEIGHTS_OUTSIDE uint32_t model_outside = MODEL_ID;\n",
    )


def _kept(graph: Graph) -> str:
    return "MODEL_TRAINABLE_BYTES + MODEL_FLEET_BYTES" if graph.fleet else "MODEL_TRAINABLE_BYTES"


def _headers(graph: Graph) -> list[str]:
    """Headers of the kernels that the model calls, and of those that every model includes."""
    nodes = [part for node in graph.nodes for part in (node, *node.parts)]
    own = {"imprint"} if graph.imprint else set()
    coded = {product_code.HEADER} if graph.codes else set()
    heard = log_mel.headers(graph)
    hops = {hop.HEADER} if graph.hop and graph.arriving else set()
    return sorted({*COMMON_HEADERS, *own, *coded, *heard, *hops, *(TABLE[node.op].header for node in nodes)})


def _offsets(plan: Plan) -> str:
    """Where each tensor lives and during which steps."""
    lines = ["/* Offsets in the arena, and the steps during which the bytes are in use. */", "enum {"]
    for p in sorted(plan.placements.values(), key=lambda p: (p.birth, p.offset, p.name)):
        lines.append(f"    {_offset_name(p)} = {p.offset}, /* {p.bytes} B, steps {p.birth}..{p.death} */")
    return "\n".join([*lines, "};\n"])


def _offset_name(placement: Placement) -> str:
    return f"T_{identifier(placement.name)}"


def _parts(graph: Graph, block: bytes) -> str:
    """All tables in flash, and the CRC-32 of what they must hold. block: the trainables' start values."""
    found = tables.collect(graph)
    crc = zlib.crc32(b"".join([*(table.bytes for table in found), block]))
    sizes = [*(f"{{{t.name}, sizeof {t.name}}}" for t in found), "{model_trainables_init, MODEL_INIT_BYTES}"]
    lines = [f"    {entry}," for entry in sizes]
    return "\n".join(
        [f"#define PARTS_CRC 0x{crc:08x}u", "static const struct model_part parts[] = {", *lines, "};\n"]
    )


def _info(graph: Graph, scheme: Scheme) -> str:
    gain = ", ".join(number(v) for v in graph.input.gain)
    offset = ", ".join(number(v) for v in graph.input.offset)
    channels = len(graph.input.gain)
    weight, bias, head = (number(r) for r in scheme.rates)
    return f"""static const float input_gain[{channels}] = {{{gain}}};
static const float input_offset[{channels}] = {{{offset}}};

const struct model_info model_info = {{
    .name = {c_string(graph.name)},
    .id = MODEL_ID,
    .height = MODEL_HEIGHT, .width = MODEL_WIDTH, .channels = MODEL_CHANNELS, .classes = MODEL_CLASSES,
    .arena_bytes = MODEL_ARENA_BYTES,
    .trainable_bytes = MODEL_TRAINABLE_BYTES,
    .init_bytes = MODEL_INIT_BYTES,
    .input_gain = input_gain,
    .input_offset = input_offset,
    .lr_weight = {weight}, .lr_bias = {bias}, .lr_head = {head},
    .parts = parts, .part_count = sizeof parts / sizeof parts[0], .parts_crc = PARTS_CRC,
}};
"""


def _error_structs(names: Names) -> str:
    """One struct per error tensor, one per clamp."""
    lines = ["/* Back-propagated errors and the clamps they pass. */"]
    for name, tensor in sorted(names.graph.tensors.items()):
        if tensor.dtype == "error":
            cid = identifier(name)
            lines.append(f"static const struct error_s8 {cid} = {{AT(T_{cid}), AT(T_{cid}_scale)}};")
    for step, node in enumerate(names.graph.nodes):
        if node.clamp is not None:
            mask = names.at(node.clamp.mask) if node.clamp.mask else "NULL"
            m = f"m_{identifier(node.clamp.layer)}" if node.clamp.layer else "NULL"
            lines.append(f"static const struct clamp clamp_{step} = {{{mask}, {m}}};")
    return "\n".join(lines) + "\n"


def step_text(graph: Graph, step: int, node: Node) -> str:
    """One line on a step: number, op, layer, MACs, shapes."""
    macs = TABLE[node.op].macs(graph, node)
    shapes = [_shape_text(graph, t) for t in (node.inputs[0], *node.outputs[:1])]
    work = f"  {macs} MAC" if macs else ""
    again = " again" if node.again else ""
    return f"{step}: {node.op} {node.name}{again}{work}  {' -> '.join(shapes)}"


def _shape_text(graph: Graph, tensor: str) -> str:
    return "x".join(str(n) for n in graph.tensors[tensor].shape)


def _step(names: Names, step: int, indent: str) -> str:
    node = names.graph.nodes[step]
    call = TABLE[node.op].call(replace(names, step=step), node)
    lines = [f"/* {comment(step_text(names.graph, step, node))} */", *call.splitlines()]
    return "\n".join(indent + line for line in lines)


def _forward(names: Names) -> str:
    """The forward pass in two halves: a program for the host may keep what the first makes of an image."""
    graph = names.graph
    front, end = front_steps(graph), len(graph.forward_nodes)
    frozen = "Uses nothing that learns: what it makes of an image is always the same."
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
    keep, recall = recorded.copies(names)
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


def _backward(names: Names) -> str:
    graph = names.graph
    lines = ["float model_backward(uint32_t label, const struct sgd *sgd)", "{"]
    lines += ["    (void)label; /* it learns by a target */"] if task_of(graph) else []
    lines += [_step(names, step, "    ") for step in range(len(graph.forward_nodes), len(graph.nodes))]
    return "\n".join([*lines, "    return loss;", "}", ""])


def _imprint(names: Names) -> list[str]:
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


def _sound(names: Names) -> list[str]:
    """The front end that makes rows of sound."""
    if names.graph.sound is None:
        return []
    begin, hear, row = log_mel.functions(names.graph.sound, f"T_{log_mel.NAME}")
    return [
        *_function("void model_listen(void)", [f"    {begin}"]),
        *_function("uint32_t model_hear(const uint8_t *samples, uint32_t count)", [f"    {hear}"]),
        *_function("const uint8_t *model_heard(void)", [f"    {row}"]),
    ]
