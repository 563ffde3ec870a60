"""Code generation: a planned training graph -> model.h, model.c, model_weights.c.

Generated code is data and straight-line calls; all logic stays in the kernels. The text depends on nothing
but the graph and the plan, so a diff of generated code means something.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.memory import fleet
from microtrain.convert.memory.plan import Placement, Plan
from microtrain.convert.names import Names, c_string, identifier, number
from microtrain.convert.ops import TABLE, hop, log_mel, product_code
from microtrain.convert.ops.losses import task_of
from microtrain.convert.ops.stream import own_rows
from microtrain.convert.ops.table import COMMON_HEADERS
from microtrain.convert.pipeline import Compiled
from microtrain.convert.scheme import Scheme

from . import library, steps, tables
from .header import ID_LINE, header
from .model import Model

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
    model = Model(compiled.graph, compiled.plan, compiled.scheme, origin, compiled.records)
    made = _firmware(model, tables.body)
    return Output(made.files | {library.FILE: _library(model, made.model_id)}, made.model_id)


def emit(
    graph: Graph, plan: Plan, scheme: Scheme, origin: str, records: int = 0, body: Body = tables.body
) -> Output:
    """The C files of a firmware.

    origin   says in a comment what they were made from
    records  of the replay buffer
    body     how the values of a table are written
    """
    return _firmware(Model(graph, plan, scheme, origin, records), body)


def _firmware(model: Model, body: Body) -> Output:
    check_identifiers(model.graph, model.plan)
    files = {
        "model.h": header(model),
        "model.c": _code(model),
        "model_weights.c": _weights(model, body),
    }
    check_structs(files["model.c"])
    digest = hashlib.sha256("".join(files[name] for name in sorted(files)).encode()).hexdigest()
    word = _word(digest)
    files["model.h"] = files["model.h"].replace(f"{ID_LINE} 0\n", f"{ID_LINE} 0x{word:08x}u\n")
    for name in ("model.c", "model_weights.c"):
        files[name] = files[name].replace(HEADER, f"{HEADER}\n{_same_conversion(name, word)}", 1)
    return Output(files, digest)


def _word(model_id: str) -> int:
    """MODEL_ID: its first four bytes, little-endian."""
    return int.from_bytes(bytes.fromhex(model_id)[:4], "little")


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


def _library(model: Model, model_id: str) -> str:
    """The model's steps for the library, in the place of model.c."""
    inner = library.Inner(_offsets(model.plan), _error_structs(model.names), _info(model), _parts(model))
    stop = _same_conversion(library.FILE, _word(model_id))
    banner = model.banner("The model's steps for the library (microtrain export-library).")
    return f"{banner}\n{stop}\n\n{library.steps(model.names, inner)}"


def _weights(model: Model, body: Body) -> str:
    lines = [model.banner("Weights, biases and tables, each once."), f"{HEADER}\n"]
    for table in tables.collect(model.graph):
        lines.append(f"{table.declaration} = {{\n{body(table.values)}\n}};\n")
    block = np.frombuffer(model.block, np.uint8)
    lines.append(f"MODEL_WEIGHTS uint8_t model_trainables_init[{len(block)}] = {{\n{body(block)}\n}};")
    return "\n".join(lines) + "\n"


def _code(model: Model) -> str:
    """The text of model.c."""
    graph, names = model.graph, model.names
    return "\n".join(
        [
            model.banner(f"Model {graph.name}, scheme {model.scheme.name}: parameters and steps."),
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
            *([TARGET] if task_of(graph) else ()),
            _offsets(model.plan),
            _parts(model),
            _info(model),
            *tables.structs(names),
            _error_structs(names),
            *own_rows(names),
            steps.forward(names),
            steps.backward(names),
            *steps.look(names),
            *steps.sound(names),
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


def _parts(model: Model) -> str:
    """All tables in flash, and the CRC-32 of what they must hold."""
    found = tables.collect(model.graph)
    crc = zlib.crc32(b"".join([*(table.bytes for table in found), model.block]))
    sizes = [*(f"{{{t.name}, sizeof {t.name}}}" for t in found), "{model_trainables_init, MODEL_INIT_BYTES}"]
    lines = [f"    {entry}," for entry in sizes]
    return "\n".join(
        [f"#define PARTS_CRC 0x{crc:08x}u", "static const struct model_part parts[] = {", *lines, "};\n"]
    )


def _info(model: Model) -> str:
    graph = model.graph
    gain = ", ".join(number(v) for v in graph.input.gain)
    offset = ", ".join(number(v) for v in graph.input.offset)
    channels = len(graph.input.gain)
    weight, bias, head = (number(r) for r in model.scheme.rates)
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
