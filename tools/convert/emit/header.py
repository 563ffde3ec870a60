"""model.h: what the firmware must know of a model before it is linked."""

from __future__ import annotations

from microtrain.base.plan import FLOAT
from microtrain.convert.ir import Graph
from microtrain.convert.memory import fleet
from microtrain.convert.memory.replay import record_bytes
from microtrain.convert.names import c_string, number
from microtrain.convert.ops import hop
from microtrain.convert.ops.losses import task_of
from microtrain.convert.trainables import block_bytes, guesses_of

from . import tables
from .model import Model
from .windows import windows

API_VERSION = 4
ID_LINE = "#define MODEL_ID"


def header(model: Model) -> str:
    """The text of model.h, in which MODEL_ID is still 0."""
    graph = model.graph
    h, w, c = graph.tensors[graph.input.tensor].shape
    lines = [
        model.banner(f"Model {graph.name}: sizes, and the tables of model_weights.c."),
        "#ifndef MODEL_H\n#define MODEL_H\n",
        '#include "model_api.h"\n#include "model_weights.h"\n',
        f"#if MODEL_API_VERSION != {API_VERSION}",
        '#error "This model was generated for another firmware version: run tools/convert again."',
        "#endif\n",
        f"{ID_LINE} 0",
        f"#define MODEL_HEIGHT {h}\n#define MODEL_WIDTH {w}\n#define MODEL_CHANNELS {c}",
        f"#define MODEL_CLASSES {graph.tensors[graph.output].channels}",
        f"#define MODEL_ARENA_BYTES {model.plan.arena}",
        f"#define MODEL_TRAINABLE_BYTES {block_bytes(model.items)}",
        f"#define MODEL_INIT_BYTES {len(model.block)}\n",
        *_records(model),
        *_choices(graph),
        *_targets(graph),
        *_known(graph),
        *([f"#define MODEL_SOUND {c_string(graph.sound.text())}"] if graph.sound else ()),
        *([f"#define MODEL_UNITS {c_string(graph.units.text())}"] if graph.units else ()),
        *_pixels(graph),
        *_hop(graph),
        *_gate(graph),
        *([f"#define MODEL_IMPRINT {graph.imprint} /* features of a group */\n"] if graph.imprint else ()),
        *_fleet(graph),
        *(f"extern {table.declaration};" for table in tables.collect(graph)),
        "\n#endif",
    ]
    return "\n".join(lines) + "\n"


def _pixels(graph: Graph) -> tuple[str, ...]:
    count = len(graph.input.table)
    return (f"#define MODEL_PIXEL_TABLES {count} /* of input_table */\n",) if count else ()


def _choices(graph: Graph) -> tuple[str, ...]:
    """What the build tells the kernels: MODEL_.. as -DMICROTRAIN_.. (kernels/choices.h)."""
    external = ("#define MODEL_EXTERNAL 1\n",) if graph.outside else ()
    return (f"#define MODEL_WINDOWS 0x{windows(graph):03x}\n", *external, *_saves(graph), *_arithmetic(graph))


def _saves(graph: Graph) -> tuple[str, ...]:
    """Says where weights may lie in the flash of checkpoints, and stops a build that would look for some."""
    if graph.saves:
        return ()
    return (
        "#define MODEL_CHECKPOINTS 0",
        "#if defined(__arm__) && !defined(MICROTRAIN_CHECKPOINTS)",
        '#error "This model was converted with --no-checkpoints: compile all with -DMICROTRAIN_CHECKPOINTS=0 '
        'and link with -Wl,--defsym=NO_CHECKPOINTS=1."',
        "#endif\n",
    )


def _arithmetic(graph: Graph) -> tuple[str, ...]:
    """Says where convolutions are not requantized in float32, and stops a build whose kernels would do so."""
    if graph.requantize == FLOAT:
        return ()
    choice = graph.requantize.upper()
    return (
        f"#define MODEL_{choice} 1",
        f"#if !MICROTRAIN_{choice}",
        f'#error "This model was converted with --requantize {graph.requantize}: compile all with '
        f'-DMICROTRAIN_{choice}=1."',
        "#endif\n",
    )


def _records(model: Model) -> list[str]:
    """Of the replay buffer."""
    if not model.records:
        return []
    return [
        f"#define MODEL_RECORDS {model.records}",
        f"#define MODEL_RECORD_BYTES {record_bytes(model.graph)}\n",
    ]


def _targets(graph: Graph) -> list[str]:
    """What a firmware must know of a model that learns targets, or what is normal, and no classes."""
    task, outputs, guesses = task_of(graph), graph.tensors[graph.output].channels, guesses_of(graph)
    targets = [f"#define MODEL_TARGETS {outputs}", f'#define MODEL_TASK "{task}"'] if task else []
    if not task and guesses == outputs:
        return []
    return [*targets, f"#define MODEL_GUESSES {guesses} /* classes whose guessing costs as much */\n"]


def _known(graph: Graph) -> list[str]:
    """How many classes of an open set there is room for, beside what is none of them."""
    if not graph.centre:
        return []
    return [f"#define MODEL_KNOWN {graph.tensors[graph.output].channels - 1}\n"]


def _gate(graph: Graph) -> list[str]:
    """Which steps are not worth their backward pass."""
    if not graph.gate:
        return []
    return [f"/* Loss below which a step learns nothing. */\n#define MODEL_GATE {number(graph.gate)}\n"]


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
