"""docs/embed.md: every block of C compiles, and the program learns the same here and under QEMU."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT
from library import STRICT, written
from networks import residual_network
from pages import c_files

from lab.cores.machines import CORES, SEMIHOSTING, Core, linked, ran
from microtrain.base.objects import objects
from microtrain.base.paths import FIRMWARE
from microtrain.convert.memory.replay import Request
from microtrain.convert.pipeline import Passes, compile_graph
from microtrain.convert.recording import with_buffer
from microtrain.convert.scheme import Scheme

PAGE = (ROOT / "docs/embed.md").read_text(encoding="utf-8")
FILES = c_files(PAGE)
FRAMES = 12
LINES = 30  # of the program, at most
RUN = [
    core for core in CORES if core.name in ("host-clang", "cortex-m4f", "cortex-m7", "cortex-m33", "rv32imc")
]
QUICK = ("cortex-m4f",)
BOARD_H = """#include <stdint.h>
#include "microtrain.h"
enum { CHIP_SECTOR_BYTES = 65536 };
extern const struct microtrain_storage flash;
int sensor_read(uint8_t *frame);
int button(void);
void show_loss(float loss);
void show_class(uint32_t label);
void show_text(const char *text);
void control(void);
void moment(const float g[3], uint8_t row[3]);
int learn(struct microtrain *device, uint32_t label);
uint8_t *chip_flash(uint32_t slot);
int chip_program(void *to, const void *from, uint32_t size);
int chip_erase(void *slot);
"""
BOARD_C = f"""#include "board.h"
#include "garden.h"
#include "sha256.h"
#include <stdio.h>
#include <string.h>
static uint8_t sectors[2][CHIP_SECTOR_BYTES];
static uint32_t frames, state = 1;
int sensor_read(uint8_t *frame)
{{
    for (uint32_t i = 0; i < GARDEN_INPUT_BYTES; i++) {{
        state = state * 1664525u + 1013904223u;
        frame[i] = (uint8_t)(state >> 24);
    }}
    return frames++ < {FRAMES};
}}
int button(void) {{ return frames % 3 ? (int)(frames % 5) : -1; }}
void show_loss(float loss)
{{
    uint32_t bits;
    memcpy(&bits, &loss, sizeof bits);
    printf("loss %08lx\\n", (unsigned long)bits);
}}
void show_class(uint32_t label) {{ printf("class %lu\\n", (unsigned long)label); }}
extern uint64_t learned[];
void show_text(const char *text)
{{
    uint8_t digest[SHA256_BYTES];
    sha256((const uint8_t *)learned, GARDEN_TRAINABLE_BYTES, digest);
    printf("weights ");
    for (int i = 0; i < SHA256_BYTES; i++) {{
        printf("%02x", digest[i]);
    }}
    printf("\\n%s\\n", text);
}}
uint8_t *chip_flash(uint32_t slot) {{ return sectors[slot]; }}
int chip_program(void *to, const void *from, uint32_t size) {{ memcpy(to, from, size); return 0; }}
int chip_erase(void *slot) {{ memset(slot, 0xff, CHIP_SECTOR_BYTES); return 0; }}
"""
FREERTOS = {
    "FreeRTOS.h": "#include <stdint.h>\n#define portMAX_DELAY 0xffffffffu\n#define pdTRUE 1\n",
    "queue.h": "typedef void *QueueHandle_t;\nint xQueueReceive(QueueHandle_t, void *, uint32_t);\n",
    "task.h": "void learner(void *parameters);\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's files, a board, and a library with the model garden."""
    root = tmp_path_factory.mktemp("embed")
    buffer = Request(records=8)
    passes, scheme = Passes(imprint=8, replay=buffer), Scheme("s", 4, {-1: 0.5}, head="random")
    compiled = with_buffer(compile_graph(residual_network(), scheme, 5, passes), buffer, None)
    written(compiled, "garden", root / "garden", root / "generated")
    for name, text in (FILES | FREERTOS | {"board.h": BOARD_H, "board.c": BOARD_C}).items():
        (root / name).write_text(text)
    return root


def test_every_block_of_c_has_a_name() -> None:
    assert PAGE.count("```c\n") == len(FILES) == 9


def test_the_program_is_short() -> None:
    assert len([line for line in FILES["main.c"].splitlines()[1:] if line.strip()]) <= LINES


@pytest.mark.parametrize("name", FILES)
def test_a_block_compiles_without_warnings(name: str, folder: Path) -> None:
    include = (f"-I{folder}", f"-I{folder / 'garden/src'}")
    subprocess.run(["gcc", *STRICT, *include, "-fsyntax-only", str(folder / name)], check=True)


def test_the_deadline_is_that_of_a_core_that_was_measured(folder: Path, tmp_path: Path) -> None:
    (core,) = (core for core in CORES if core.name == "cortex-m4f")
    if core.missing:
        pytest.skip(f"{core.missing} is not installed")
    made, include = tmp_path / "deadline.o", f"-I{folder / 'garden/src'}"
    command = [
        core.cc,
        *STRICT,
        *core.flags,
        "--specs=picolibc.specs",
        include,
        "-c",
        str(folder / "deadline.c"),
    ]
    subprocess.run([*command, "-o", str(made)], check=True)
    assert b"work_of_a_piece" in made.read_bytes()


def said(core: Core, folder: Path) -> str:
    """What the program prints on a core."""
    src, made = folder / "garden/src", folder / f"program-{core.name}"
    engine = [*src.glob("*.c"), *(src / "microtrain").glob("*.c")]
    engine += (src / "microtrain").glob("*.S") if "arm" in core.cc else ()
    board = [folder / "flash.c", folder / "board.c", FIRMWARE / "src/base/sha256.c"]
    flags, specs = ("-std=c11", "-O2", *core.flags), SEMIHOSTING[:1] if core.qemu else ()
    asked = (*flags, *specs, "-Igarden/src", "-I.", f"-I{FIRMWARE / 'include'}")
    seen = (*asked, "-Dstatic=")  # so that the board sees what was learned
    parts = objects(core.cc, seen, [folder / "main.c"], folder, folder / f"main-{core.name}")
    parts += objects(core.cc, asked, [*board, *sorted(engine)], folder, folder / f"objects-{core.name}")
    link = [core.cc, *flags, "-Wl,--gc-sections", *linked(core), *map(str, parts)]
    subprocess.run([*link, "-o", str(made)], check=True)
    return ran(core, made)


@pytest.mark.parametrize(
    "core",
    [pytest.param(c, id=c.name, marks=[] if c.name in QUICK else [pytest.mark.slow]) for c in RUN],
)
def test_the_program_learns_the_same_everywhere(core: Core, folder: Path) -> None:
    if core.missing:
        pytest.skip(f"{core.missing} is not installed")
    here, there = said(CORES[0], folder), said(core, folder)
    assert here == there and here.count("loss") > here.count("class") > 2 and here.splitlines()[-1] == "ok"
    assert re.search(r"^weights [0-9a-f]{64}$", here, re.MULTILINE)
