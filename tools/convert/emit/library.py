"""Code generation for the library: model_library.inc, the steps of a model whose memory is passed.

What model.c says of one model in a firmware, said so that many models, and many instances of each, live in
one program: every step is a case of one switch, and a struct that holds an address is made where it is used.
The calls are those of model.c, from the same entries of the op table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from microtrain.base.paths import FIRMWARE
from microtrain.convert import pieces
from microtrain.convert.ir import Graph
from microtrain.convert.memory import fleet, imprint
from microtrain.convert.memory.replay import record_bytes
from microtrain.convert.names import Names, comment
from microtrain.convert.names import number as constant
from microtrain.convert.ops import TABLE, hop, log_mel, saves
from microtrain.convert.ops.imprint import statistics
from microtrain.convert.ops.losses import task_of
from microtrain.convert.ops.stream import STREAM_STRUCT, before_rows, kernel_scratch_at, own_rows
from microtrain.convert.trainables import guesses_of

from . import records, tables

STRUCT = re.compile(r"static const struct (\w+) (\w+)(\[\])? = (\{.*?\});\n", re.DOTALL)
PLACED = re.compile(r"\b(AT|TRAINED)\(")
PACED = re.compile(r"\bvoid (\w+)\([^;]*? PACED\);")
PASSED = "struct model_memory *memory"
OWN_ROWS = "own_rows"


FILE = "model_library.inc"
PIECES = "/* Pieces: the longest unit of work, and what a piece takes at most, in instructions. */"
INFO = re.compile(r"const struct model_info model_info = (\{.*?\n\});\n", re.DOTALL)


@dataclass(frozen=True)
class Inner:
    """What model.c has as well.

    offsets  enum of where tensors are in the arena
    errors   structs of errors and clamps
    info     model_info and its tables
    parts    the table of tables
    """

    offsets: str
    errors: str
    info: str
    parts: str


def steps(names: Names, inner: Inner) -> str:
    """The text of model_library.inc, behind its banner. Whoever includes it has defined MODEL, the name."""
    graph = names.graph
    structs = [*tables.structs(names), inner.errors]
    own = own_rows(names)
    return "\n".join(
        [
            "#define AT(offset) ((void *)(memory->arena + (offset)))",
            "#define TRAINED(offset) ((void *)(memory->trainables + (offset)))\n",
            *(["#define TARGET (memory->target)\n"] if task_of(graph) else ()),
            inner.offsets,
            inner.parts,
            INFO.sub("", inner.info),
            *_structs(structs, bool(own)),
            *_own(own),
            *_rows(names),
            f"static const float *logits({PASSED}) {{ return {names.at(graph.output)}; }}\n",
            _step(names),
            *_record(names),
            *_imprint(names),
            *_sound(names),
            _table(graph, inner.info),
            f"#define MODEL_HELD_BYTES {fleet.held_bytes(graph)}\n{fleet.table(graph, 'MODEL_SHARED')}",
            _pieces(graph),
        ]
    )


def _structs(texts: list[str], own: bool) -> Iterator[str]:
    """Those that hold an address of the arena or of the trainables as macros: made where they are used."""
    placed: set[str] = set()
    for text in texts:
        yield STRUCT.sub(lambda found: _struct(found, placed, own), text)


def _struct(found: re.Match[str], placed: set[str], own: bool) -> str:
    kind, name, array, body = found.groups()
    if kind == STREAM_STRUCT:
        body = body[:-1] + (f", {OWN_ROWS}, memory}}" if own else ", NULL, NULL}")
    inner = set(re.findall(r"[A-Za-z_]\w*", body))
    if not (PLACED.search(body) or inner & placed or (kind == STREAM_STRUCT and own)):
        return found[0][: found.start(4) - found.start()] + body + ";\n"
    placed.add(name)
    lines = body.replace("\n", " \\\n")
    return f"#define {name} ((const struct {kind}{array or ''}){lines})\n"


def _pieces(graph: Graph) -> str:
    """How long a piece can be on each core, for the header that export-library writes."""
    lines, word = [PIECES], "#if"
    for core, bound in pieces.bounds(graph).items():
        name, condition = pieces.CORES[core]
        longest = "a begin" if bound.longest is None else pieces.named(graph, bound.longest)
        lines += [
            f"{word} {condition} /* {name} */",
            f"#define MODEL_PIECE_LEAST {bound.least} /* {comment(longest)} */",
            f"#define MODEL_PIECE_MOST {bound.most}",
            f"#define MODEL_PIECE_ONCE {bound.once}",
            f"#define MODEL_PIECE_RATE {round(bound.rate * 1000)} /* thousandths */",
        ]
        if bound.records is not None:
            lines.append(f"#define MODEL_RECORD_ONCE {bound.records.once}")
            lines.append(f"#define MODEL_RECORD_EACH {round(bound.records.each * 1000)} /* thousandths */")
        if bound.slide:
            lines.append(f"#define MODEL_SLIDE_INSTRUCTIONS {bound.slide}")
        word = "#elif"
    return "\n".join([*lines, "#endif\n"]) if len(lines) > 1 else ""


def _own(text: list[str]) -> list[str]:
    """The rows of stages that only this model has; `stage` and `scratch` may go unused."""
    if not text:
        return []
    head = f"static void {OWN_ROWS}({PASSED}, const struct stream_stage *stage, const struct conv2d *p,"
    return [
        head,
        "                     const int8_t *x, int8_t *y, void *scratch)",
        "{",
        "    (void)memory;",
        *(_paced(line, "NULL") for line in text[3:]),
    ]


@cache
def paced_kernels() -> re.Pattern[str]:
    """A call of a kernel that can stop on its way: those whose prototypes say PACED."""
    headers = sorted((FIRMWARE / "include/kernels").glob("*.h"))
    names = {name for path in headers for name in PACED.findall(path.read_text(encoding="utf-8"))}
    return re.compile(rf"\b({'|'.join(sorted(names))})\((.*)\);")


def _paced(call: str, pace: str) -> str:
    return paced_kernels().sub(rf"\1(\2, {pace});", call)


def _rows(names: Names) -> list[str]:
    graph = names.graph
    if graph.arriving:
        first = graph.nodes[0]
        stream, y, scratch = names.stream(first), names.at(first.outputs[0]), kernel_scratch_at(names, first)
        take = hop.take(names) if graph.hop else f"stream_take({stream}, {y}, {scratch});"
        slide = hop.slide(replace(names, step=0))
        begin = [*before_rows(replace(names, step=0), first), f"stream_begin({stream}, {scratch});"]
        return [
            f"static void start({PASSED}) {{ {' '.join(begin)} }}",
            f"static int8_t *row({PASSED}) {{ return stream_row({stream}, {scratch}); }}",
            f"static void take_row({PASSED}) {{ {_paced(take, 'memory->pace')} }}",
            *([f"static void slide({PASSED}) {{ {slide} }}"] if graph.hop else ()),
            "",
        ]
    h, w, c = graph.tensors[graph.input.tensor].shape
    place = f"(int8_t *){names.at(graph.input.tensor)} + memory->rows * {w * c}u"
    keep = f"{hop.whole_row(names, 'memory->rows')} " if graph.hop else ""
    slide = f"static void slide({PASSED}) {{ {hop.whole_slide(names)} memory->rows = {h - graph.hop}; }}"
    return [
        f"static void start({PASSED}) {{ memory->rows = 0; }}",
        f"static int8_t *row({PASSED}) {{ return {place}; }}",
        f"static void take_row({PASSED}) {{ {keep}memory->rows++; }}",
        *([slide] if graph.hop else ()),
        "",
    ]


def _step(names: Names) -> str:
    """Each step of the forward and of the backward pass as a case."""
    graph, cases = names.graph, []
    for number, node in enumerate(graph.nodes):
        call = TABLE[node.op].call(replace(names, step=number), node)
        call = _paced(call.replace("const float loss =", "pass->loss ="), "memory->pace")
        lines = [f"            {line}" for line in call.splitlines()]
        if saves(node):
            lines = ["            if (train) {", *(f"    {line}" for line in lines), "            }"]
        cases += [f"        case {number}: {{", *lines, "            break;", "        }"]
    return "\n".join(
        [
            f"static void step({PASSED}, uint32_t number, struct model_pass *pass)",
            "{",
            "    const int train = pass->train;",
            "    const uint32_t label = pass->label;",
            "    const struct sgd *sgd = &pass->sgd;",
            "    (void)train, (void)label, (void)sgd;",
            *_gate(graph),
            "    switch (number) {",
            *(line[4:] for line in cases),
            "    }",
            "}",
            "",
        ]
    )


def _gate(graph: Graph) -> list[str]:
    """Nothing is done behind the loss where it is too small to learn from."""
    if not graph.gate:
        return []
    loss = len(graph.forward_nodes)
    return [
        f"    if (number > {loss} && pass->loss < {constant(graph.gate)}) {{",
        "        return;",
        "    }",
    ]


def _record(names: Names) -> list[str]:
    """What a replay buffer in the caller's memory needs."""
    if not names.graph.record:
        return []
    keep, recall = records.copies(names)
    return [
        *(f"static void keep({PASSED}, uint8_t *record)\n{{", *keep, "}\n"),
        *(f"static void recall({PASSED}, const uint8_t *record)\n{{", *recall, "}\n"),
    ]


def _imprint(names: Names) -> list[str]:
    if not names.graph.imprint:
        return []
    node = imprint.head_of(names.graph)
    clear, add, solve = statistics(names, node, names.at(imprint.NAME), names.at(imprint.SCRATCH))
    return [
        f"static void imprint_clear_all({PASSED}) {{ {clear} }}",
        f"static void imprint_add({PASSED}, uint32_t label) {{ {add} }}",
        f"static uint32_t imprint_solve({PASSED}) {{ return {solve} }}",
        "",
    ]


def _sound(names: Names) -> list[str]:
    if names.graph.sound is None:
        return []
    begin, hear, row = log_mel.functions(names.graph.sound, f"T_{log_mel.NAME}")
    return [
        f"static void listen({PASSED}) {{ {begin} }}",
        f"static uint32_t hear({PASSED}, const uint8_t *samples, uint32_t count) {{ {hear} }}",
        f"static const uint8_t *heard({PASSED}) {{ {row} }}",
        "",
    ]


def _table(graph: Graph, info: str) -> str:
    """The descriptor: all that the library knows of the model."""
    names = ("imprint_clear_all", "imprint_add", "imprint_solve") if graph.imprint else ("NULL",) * 3
    clear, add, solve = names
    extras = ""
    if graph.sound is not None:
        samples = graph.sound.samples(graph.tensors[graph.input.tensor].shape[0])
        extras = f"    .sound_samples = {samples}, .listen = listen, .hear = hear, .heard = heard,\n"
    if graph.input.table:
        extras += f"    .input_table = {tables.PIXELS}, .input_tables = {len(graph.input.table)},\n"
    if graph.hop:
        extras += f"    .hop = {graph.hop}, .heard_on = {hop.samples(graph)[1]}, .slide = slide,\n"
    if graph.record:
        extras += f"    .record_step = {graph.cut}, .record_bytes = {record_bytes(graph)},\n"
        extras += "    .keep = keep, .recall = recall,\n"
    found, task = INFO.search(info), task_of(graph)
    outputs, guesses = graph.tensors[graph.output].channels, guesses_of(graph)
    targets, guesses = outputs if task else 0, guesses if task or guesses != outputs else 0
    assert found is not None
    return f"""const struct microtrain_model MODEL = {{
    .info = {found[1]},
    .init = model_trainables_init,
    .targets = {targets}, .guesses = {guesses},
    .forward_steps = {len(graph.forward_nodes)}, .steps = {len(graph.nodes)},
    .start = start, .row = row, .take_row = take_row, .logits = logits, .step = step,
    .imprint_clear = {clear}, .imprint_add = {add}, .imprint_solve = {solve},
{extras}}};
"""
