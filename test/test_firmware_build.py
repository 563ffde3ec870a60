"""What PlatformIO builds: no warnings, the linker script's layout, nothing that breaks exactness."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from pio_build import NULL_MODEL, ROOT, build, build_once, copy_project, pio

from microtrain.base.elf import read_elf
from microtrain.base.errors import Error
from microtrain.elfcheck.instructions import instructions
from microtrain.elfcheck.rules import check
from microtrain.emulator.board import Board
from microtrain.emulator.registers import Register
from microtrain.memory_report.firmware import load_firmware
from microtrain.memory_report.interrupts import analyse

ARM_GCC = ["arm-none-eabi-gcc", "-mcpu=cortex-m7", "-mthumb", "-mfloat-abi=hard", "-std=c11", "-O2"]
SLOTS = [
    f"-Wl,--defsym=__checkpoint_{name}={address}"
    for name, address in (
        ("a_start", "0x08020000"),
        ("a_end", "0x08040000"),
        ("b_start", "0"),
        ("b_end", "0"),
    )
]
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wdouble-promotion", "-Werror"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    return build_once(tmp_path_factory, "pio-null", "disco_f746ng", "native")


@pytest.fixture(scope="module")
def workspace(built: tuple[Path, str]) -> Path:
    return built[0]


@pytest.fixture(scope="module")
def log(built: tuple[Path, str]) -> str:
    """What a build of the board's and the host's firmware prints."""
    return built[1]


@pytest.fixture(scope="module")
def elf(workspace: Path, log: str) -> Path:
    return workspace / "build" / "disco_f746ng" / "firmware.elf"


@pytest.fixture(scope="module")
def planted_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("planted")


def plant(folder: Path, code: str, where: str = "    (void)train;\n") -> Path:
    """A copy of the null model with code planted into it, by default into model_forward."""
    model = folder / "model"
    shutil.copytree(NULL_MODEL, model)
    source = (model / "model.c").read_text()
    assert where in source
    (model / "model.c").write_text(source.replace(where, where + code))
    return model


def symbols(elf: Path) -> dict[str, int]:
    return read_elf(elf).names


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ccache") is None, reason="ccache is not installed")
def test_what_ccache_remembers_is_what_a_compiler_makes(
    elf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another folder nothing but the model is compiled again, and the firmware is the same."""
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setenv("CCACHE_DISABLE", "1")
    plain = build(tmp_path / "plain", "disco_f746ng")
    monkeypatch.delenv("CCACHE_DISABLE")
    for folder in ("first", "second"):
        remembered = build(tmp_path / folder, "disco_f746ng", plant(tmp_path / folder, ""))
    said = subprocess.run(["ccache", "--print-stats"], capture_output=True, text=True, check=True).stdout
    counts = {name: int(n) for name, n in (line.split() for line in said.splitlines())}
    assert counts["direct_cache_hit"] + counts["preprocessed_cache_hit"] > counts["cache_miss"] / 2 > 20
    assert loaded(plain) == loaded(remembered) == loaded(elf)


def loaded(elf: Path) -> list[tuple[str, bytes]]:
    """What an upload writes."""
    with elf.open("rb") as file:
        return [(s.name, s.data()) for s in ELFFile(file).iter_sections() if s["sh_flags"] & 2 and s.data()]


def test_a_link_ends_with_the_report_of_its_memory(log: str) -> None:
    assert log.count("Worst stack: ") == 1


def test_no_warning(log: str) -> None:
    assert "Compiling" in log
    assert "warning" not in log.lower()


@pytest.mark.parametrize("camera", [False, True])
def test_clang_accepts_the_same_sources(camera: bool) -> None:
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")
    sources = [p for p in (ROOT / "firmware" / "src").rglob("*.c") if not p.parent.name.startswith("stm32")]
    sources = sorted((ROOT / "examples/camera").glob("*.c")) if camera else sources
    folders = [ROOT / "firmware/include", ROOT / "firmware/src", ROOT / "examples/camera", NULL_MODEL]
    include = [f"-I{folder}" for folder in folders]
    assert len(sources) > (5 if camera else 12)
    subprocess.run(["clang", "-fsyntax-only", *STRICT, *include, *sources], check=True)


def test_native_program_speaks_the_protocol(workspace: Path, log: str) -> None:
    program = workspace / "build" / "native" / "program"
    result = subprocess.run([program], input="ping\n", text=True, capture_output=True, timeout=10, check=True)
    assert result.stdout.split("\n")[1:5] == ["start power", "checkpoint none", "ready", "ok pong"]


# ---------------------------------------------------------------- memory layout


def test_sections_lie_in_their_regions(elf: Path) -> None:
    regions = {
        ".isr_vector": (0x08000000, 0x08020000),
        ".text": (0x08000000, 0x08020000),
        ".rodata": (0x08000000, 0x08020000),
        ".data": (0x08000000, 0x08020000),
        ".weights": (0x08040000, 0x080C0000),
    }
    loaded = [section for section in read_elf(elf).sections if section.bits]
    assert {section.name for section in loaded} == set(regions)
    for section in loaded:
        start, end = regions[section.name]
        assert start <= section.load and section.load + section.size <= end, section


def test_stack_is_at_the_bottom_of_sram_and_all_else_above(elf: Path) -> None:
    at = symbols(elf)
    assert at["__stack_limit"] == at["__ram_start"] == 0x20000000
    assert at["__stack_top"] == at["__stack_limit"] + 4096
    assert at["__stack_top"] <= at["__data_start"] <= at["__data_end"] <= at["__bss_start"] < at["__bss_end"]
    assert at["__bss_end"] <= at["__ram_end"] == 0x20050000
    assert at["__bss_start"] <= at["model_arena"] < at["__bss_end"] and at["model_arena"] % 8 == 0
    assert 0x08040000 <= at["model_trainables_init"] < 0x080C0000
    assert (at["__checkpoint_a_start"], at["__checkpoint_a_end"]) == (0x08020000, 0x08040000)
    assert (at["__checkpoint_b_start"], at["__checkpoint_b_end"]) == (0x080C0000, 0x08100000)


def test_what_has_no_bytes_is_cleared_in_sram_and_nowhere_else(elf: Path) -> None:
    """A loader that goes by the load address, as Renode's, would else clear weights behind .data's image."""
    cleared = {section.name: section for section in read_elf(elf).sections if not section.bits}
    assert set(cleared) == {".stack", ".bss", ".noinit"}
    assert all(section.load == section.address for section in cleared.values())


def test_vectors(elf: Path) -> None:
    at = symbols(elf)
    firmware = read_elf(elf)
    section = next(s for s in firmware.sections if s.name == ".isr_vector")
    words = [firmware.word(section.address + i) for i in range(0, section.size, 4)]
    assert section.address == 0x08000000 and len(words) == 16 + 98
    assert words[0] == at["__stack_top"] and words[1] == at["Reset_Handler"] | 1
    assert words[16 + 37] == at["Serial_IRQHandler"] | 1
    assert all(word & 1 and 0x08000000 <= word < 0x08020000 for word in words[1:])


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("uint8_t filler[330000];\nvoid use(void);\nvoid use(void) { filler[0] = 1; }\n", "320 KB of SRAM"),
        ('#include "model_weights.h"\nMODEL_WEIGHTS uint8_t filler[530000] = {1};\n', "512 KB of flash"),
        ("const uint8_t filler[131072] = {1};\n", "128 KB of flash"),
        (
            '#include "model_weights.h"\nMODEL_WEIGHTS_OUTSIDE uint8_t filler[16777217] = {1};\n',
            "16 MB of the flash beside the chip",
        ),
    ],
)
def test_too_much_is_a_sentence_at_link_time(
    planted_workspace: Path, tmp_path: Path, code: str, message: str
) -> None:
    model = plant(tmp_path, code, '#include "model_api.h"\n')
    source = (model / "model.c").read_text()
    use = "    (void)train;\n    (void)*(const volatile uint8_t *)&filler[1];\n"
    (model / "model.c").write_text(source.replace("    (void)train;\n", use))
    result = pio(planted_workspace, "run", "-e", "disco_f746ng", model=model)
    assert result.returncode != 0
    assert message in result.stderr


# ---------------------------------------------------------------- crashes


CRASHES = """    if (label == 0) *(volatile uint32_t *)0x30000000u = 1;
    if (label == 1) __asm volatile("udf #0");
    if (label == 2) __asm volatile("ldr r0, =__stack_limit + 160\\n mov sp, r0\\n udf #0\\n .ltorg");
"""


FAULT_LINES = (
    r"fault [A-Z]\w+ [56](: [^:]+)+",
    "fault sp X cfsr X hfsr X".replace("X", "[0-9a-f]{8}"),
    "fault pc X lr X xpsr X".replace("X", "[0-9a-f]{8}"),
    "fault r0 X r1 X r2 X r3 X r12 X".replace("X", "[0-9a-f]{8}"),
)


@pytest.fixture(scope="module")
def crashing(planted_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Firmware that crashes in a training step, in a way that the label chooses."""
    model = plant(tmp_path_factory.mktemp("crash"), CRASHES, "const struct sgd *sgd)\n{\n")
    return build(planted_workspace, "disco_f746ng", model)


@pytest.mark.parametrize(
    ("label", "words"),
    [
        (0, ["BusFault", "address where nothing is", "0x30000000"]),
        (1, ["UsageFault", "undefined instruction"]),
        (2, ["UsageFault", "undefined instruction"]),  # with no room left on the stack
    ],
)
def test_crash_says_why_and_restarts(crashing: Path, label: int, words: list[str]) -> None:
    board = Board(crashing, guest_faults=True)
    board.run(seconds=0.1)
    board.take_output()
    board.feed(b"pattern 1\ntrain %d\n" % label)
    board.run(seconds=0.5)
    lines = bytes(board.take_output()).decode("ascii").split("\r\n")
    assert lines[0] == "ok pattern"
    faults = [line for line in lines if line.startswith("fault ")]
    assert len(faults) == 4 and all(word in faults[0] for word in words), lines
    assert all(re.fullmatch(form, line) for form, line in zip(FAULT_LINES, faults, strict=True)), faults
    pc = int(faults[2].split()[2], 16)
    assert symbols(crashing)["model_backward"] - 1 <= pc < symbols(crashing)["model_backward"] + 1000
    banner, start, crashed, checkpoint, ready = lines[-6:-1]
    assert banner.startswith("microtrain disco_f746ng null ") and ready == "ready"
    assert (start, checkpoint) == ("start software", "checkpoint none")
    number = {"BusFault": 5, "UsageFault": 6}[words[0]]
    assert crashed.startswith(f"crashed 1 times, last: exception {number} pc {pc:08x} lr ")
    board.feed(b"pattern 1\ntrain %d\n" % label)
    board.run(seconds=0.5)
    assert b"crashed 2 times" in board.take_output()
    board.power_on()
    board.run(seconds=0.1)
    said = bytes(board.take_output())
    assert b"start power" in said and b"crashed" not in said


def test_a_crash_with_no_memory_at_the_stack_pointer_says_so(crashing: Path) -> None:
    board = Board(crashing, guest_faults=True)
    board.run(seconds=0.1)
    board.take_output()
    nowhere = 0x1000_0000  # below all memory, as behind an overflow
    board.engine.watch(symbols(crashing)["model_backward"], lambda: board.engine.set(Register.SP, nowhere))
    board.feed(b"pattern 1\ntrain 1\n")
    board.run(seconds=0.5)
    lines = bytes(board.take_output()).decode("ascii").split("\r\n")
    faults = [line for line in lines if line.startswith("fault ")]
    assert faults[-1] == "fault registers were not saved: no memory at sp" and len(faults) == 3, lines
    assert faults[1].startswith("fault sp ") and lines[-2] == "ready"


HANGS = """    if (label == 0) for (volatile uint32_t i = 0;; i++) { }
    if (label == 1) {
        *(volatile uint32_t *)0xe000e010u = 0; /* no tick ends the sleep */
        for (;;) __asm volatile("cpsid i\\n wfi");
    }
"""


@pytest.fixture(scope="module")
def hanging(planted_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Firmware that hangs in a training step, awake or asleep."""
    model = plant(tmp_path_factory.mktemp("hang"), HANGS, "const struct sgd *sgd)\n{\n")
    return build(planted_workspace, "disco_f746ng", model)


@pytest.mark.parametrize("label", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_hang_ends_in_a_reset(hanging: Path, label: int) -> None:
    board = Board(hanging)
    board.run(seconds=0.1)
    board.feed(b"pattern 1\ntrain %d\n" % label)
    board.run(seconds=6.0)
    assert b"start" not in board.take_output().partition(b"ok pattern")[2]
    board.run(seconds=5.0)
    assert b"start watchdog" in board.take_output()


def test_an_idle_board_is_not_reset(elf: Path) -> None:
    board = Board(elf)
    board.run(seconds=25.0)
    assert board.take_output().count(b"ready") == 1


# ---------------------------------------------------------------- elfcheck


def test_firmware_keeps_to_the_numeric_contract(elf: Path) -> None:
    assert check(elf) == []


def test_every_call_is_direct(elf: Path) -> None:
    """So that memory_report sees the deepest stack; it follows jumps that a function computes for itself."""
    found = list(instructions(read_elf(elf)))
    assert len(found) > 2000
    assert [i for i in found if i.mnemonic in ("blx", "tbb")] == []
    assert {i.function for i in found if i.mnemonic == "tbh"} == {"run_windows"}  # a table of its own code
    assert analyse(load_firmware(elf)).problems == ()


def test_planted_double_does_not_compile(planted_workspace: Path, tmp_path: Path) -> None:
    model = plant(tmp_path, "    float tenth = (float)image()[0] * 0.1;\n    (void)tenth;\n")
    result = pio(planted_workspace, "run", "-e", "disco_f746ng", model=model)
    assert result.returncode != 0
    assert "to ‘double’" in result.stderr or "double-promotion" in result.stderr


def test_planted_faults_are_found_in_the_elf(
    planted_workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With warnings off, so that they reach the ELF."""
    declarations = (
        "void *malloc(size_t);\nint snprintf(char *, size_t, const char *, ...);\nvoid *_sbrk(int);\n"
    )
    code = """    volatile float tenth = (float)image()[0];
    tenth = tenth * 0.1;
    tenth = __builtin_fmaf(tenth, tenth, tenth);
    char *text = malloc(20);
    snprintf(text, 20, "%d", (int)tenth);
"""
    model = plant(tmp_path, code)
    source = (
        (model / "model.c").read_text().replace("void model_forward", declarations + "void model_forward")
    )
    stubs = "".join(f"int {name}(void) {{ return 0; }}\n" for name in ("_write", "_read", "_close", "_lseek"))
    stubs += (
        "int _fstat(void) { return 0; }\nint _isatty(void) { return 0; }\nint _getpid(void) { return 0; }\n"
    )
    stubs += "int _kill(void) { return 0; }\nvoid _exit(int n) { for (;;) { } }\nchar end;\n"
    (model / "model.c").write_text(source + stubs + "void *_sbrk(int n) { return 0; }\n")
    monkeypatch.setenv("PLATFORMIO_BUILD_FLAGS", "-w")
    found = check(build(planted_workspace, "disco_f746ng", model))
    calls = {(f.rule, f.what) for f in found if f.where.startswith("model_forward")}
    assert ("double", "calls __aeabi_dmul") in calls or ("double", "calls __muldf3") in calls
    assert any(rule == "fused" and what.startswith("vfma.f32") for rule, what in calls)
    assert ("heap", "calls malloc") in calls
    assert ("printf", "calls snprintf") in calls


def test_double_instructions_are_found(tmp_path: Path) -> None:
    source = tmp_path / "double.c"
    source.write_text("double f(double a, double b) { return a + b; }\n")
    elf = tmp_path / "double.elf"
    flags = ["-mfpu=fpv5-d16", "-nostdlib", "-Wl,-e,0", "-Wl,-Ttext=0x08030000"]
    subprocess.run([*ARM_GCC, *flags, *SLOTS, source, "-o", elf], check=True)
    assert [(f.rule, f.where.split()[0]) for f in check(elf)] == [("double", "f"), ("sector", ".text")]


@pytest.mark.parametrize(("at", "rules"), [("", ["sector"]), (" AT(ADDR(.bss))", [])])
def test_what_a_loader_would_clear_of_a_checkpoint_is_found(
    tmp_path: Path, at: str, rules: list[str]
) -> None:
    """GNU ld lets .bss load where the image of .data ends, in flash, unless it is told otherwise."""
    source, script, elf = (tmp_path / name for name in ("large.c", "large.ld", "large.elf"))
    source.write_text("char large[0x30000]; int one = 1; int f(void) { return large[one]; }\n")
    script.write_text(
        "MEMORY { FLASH : ORIGIN = 0x08000000, LENGTH = 64K RAM : ORIGIN = 0x20000000, LENGTH = 320K }\n"
        "PHDRS { code PT_LOAD; data PT_LOAD; bss PT_LOAD; }\n"
        "SECTIONS { .text : { *(.text*) } > FLASH :code .data : { *(.data) } > RAM AT> FLASH :data\n"
        f".bss (NOLOAD) :{at} {{ *(.bss) }} > RAM :bss }}\n"
    )
    subprocess.run([*ARM_GCC, "-nostdlib", "-Wl,-e,0", *SLOTS, "-T", script, source, "-o", elf], check=True)
    assert [(f.rule, f.where) for f in check(elf)] == [(rule, ".bss") for rule in rules]


@pytest.mark.parametrize(("fpu", "rules"), [("fpv5-sp-d16", []), ("fpv4-sp-d16", ["fpu"])])
def test_what_only_fpv5_has_is_found_where_the_fpu_is_older(
    tmp_path: Path, fpu: str, rules: list[str]
) -> None:
    """The assembler takes it for any FPU, and the chip does not."""
    source = tmp_path / "larger.c"
    source.write_text('float f(float a) { __asm("vmaxnm.f32 %0, %0, %0" : "+t"(a)); return a; }\n')
    elf = tmp_path / "larger.elf"
    flags = [f"-mfpu={fpu}", "-nostdlib", "-Wl,-e,0", "-Wl,-Ttext=0x08000000"]
    subprocess.run([*ARM_GCC, *flags, *SLOTS, source, "-o", elf], check=True)
    assert [f.rule for f in check(elf)] == rules


def test_elfcheck_of_another_linker_script_is_a_sentence(tmp_path: Path) -> None:
    source, elf = tmp_path / "empty.c", tmp_path / "empty.elf"
    source.write_text("int f(void) { return 0; }\n")
    subprocess.run([*ARM_GCC, "-mfpu=fpv5-sp-d16", "-nostdlib", "-Wl,-e,0", source, "-o", elf], check=True)
    with pytest.raises(Error, match="has no __checkpoint_a_start"):
        check(elf)


@pytest.mark.parametrize(("file", "message"), [("absent.elf", "no such ELF"), ("text.elf", "not an ELF")])
def test_elfcheck_of_no_elf_is_a_sentence(tmp_path: Path, file: str, message: str) -> None:
    (tmp_path / "text.elf").write_text("hello")
    command = [sys.executable, str(ROOT / "tools" / "elfcheck"), str(tmp_path / file)]
    result = subprocess.run(command, text=True, capture_output=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("Error: ") and message in result.stderr and result.stderr.count("\n") == 1


# ---------------------------------------------------------------- PlatformIO


def test_absent_model_is_a_sentence(planted_workspace: Path, tmp_path: Path) -> None:
    result = pio(planted_workspace, "run", "-e", "native", model=tmp_path / "nothing")
    assert result.returncode != 0
    assert "there is no model.c; run `microtrain convert MODEL.pt -o" in result.stderr
    assert "Traceback" not in result.stderr


APPLICATION = """#include "application.h"
#include "board.h"
#include "commands.h"
#include "reply.h"

static int greet(const struct protocol *p)
{
    struct microtrain_state state;
    (void)microtrain_state(&p->learner, &state);
    return reply_ok_u32("ok greet", state.steps);
}

#define TABLE(ROW) \\
    ROW(greet, greet(p), 0, 0, NEEDS_NOTHING, ": say the step")
enum { TABLE(COMMAND_NUMBER) TABLE_ROWS };
static const struct command table[] = {TABLE(COMMAND_ENTRY)};

void application_start(struct protocol *p) { (void)p; reply_line("greeter"); }
void application_poll(struct protocol *p) { (void)p; }
void application_help(void) { command_help(table, TABLE_ROWS); }
void application_led(int on) { reply_line(on ? "bright" : "dark"); }
int application_command(struct protocol *p, const struct words *w)
{
    int row = command_find(p, table, TABLE_ROWS, w);
    switch (row) {
        TABLE(COMMAND_CASE)
    }
    return row;
}
"""


def with_application(folder: Path, name: str) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The firmware for this machine, of a copy of the project; the application is in this folder of it."""
    project = copy_project(folder)
    settings = (project / "platformio.ini").read_text()
    wanted = f"[env:native]\ncustom_application = {name}\n"
    (project / "platformio.ini").write_text(settings.replace("[env:native]\n", wanted))
    (project / "mine").mkdir()
    (project / "mine/greeter.c").write_text(APPLICATION)
    program = folder / "pio/build/native/program"
    return program, pio(folder / "pio", "run", "-e", "native", project=project)


def test_an_application_of_ones_own(tmp_path: Path) -> None:
    program, built = with_application(tmp_path, "mine")
    assert built.returncode == 0, built.stdout + built.stderr
    typed = "greet\ngreet twice\nled 1\nwave\nhelp\n"
    done = subprocess.run([program], input=typed, text=True, capture_output=True, timeout=10, check=True)
    said = done.stdout.splitlines()[3:]
    assert said[:4] == ["greeter", "ready", "ok greet 0", "err argument greet: say the step"]
    assert said[4:6] == ["bright", "ok led"] and said[6].startswith("err command unknown")
    assert said[-2:] == ["greet: say the step", "ok"]


def test_an_application_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    _, built = with_application(tmp_path, "yours")
    assert built.returncode != 0
    assert "Error: custom_application is yours, where there is no source of C." in built.stderr


def test_upload_without_a_board_says_what_to_check(workspace: Path, log: str) -> None:
    if shutil.which("openocd") is None:
        pytest.skip("openocd is not installed")
    result = pio(workspace, "run", "-e", "disco_f746ng", "-t", "upload")
    if result.returncode == 0:
        pytest.skip("a board is connected")
    assert "Error: upload failed. Is the board's ST-LINK port (CN14" in result.stderr


def test_unit_tests_pass_and_leave_the_program_alone(workspace: Path, log: str) -> None:
    program = workspace / "build" / "native" / "program"
    before = program.read_bytes()
    result = pio(workspace, "test", "-e", "native")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "12 test cases: 12 succeeded" in result.stdout
    assert program.read_bytes() == before


def test_failing_unit_test_is_reported(tmp_path: Path) -> None:
    """In a copy of the project whose expectation of a CRC is wrong."""
    project = tmp_path / "project"
    for name in ("platform", "scripts", "firmware", "test/fixtures/null_model", "test/test_native_runtime"):
        shutil.copytree(
            ROOT / name, project / name, ignore=shutil.ignore_patterns("generated", "__pycache__")
        )
    for name in ("platformio.ini", "test/check.h", "test/test_custom_runner.py", "docs/protocol.md"):
        (project / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, project / name)
    test = project / "test" / "test_native_runtime" / "test_runtime.c"
    test.write_text(test.read_text().replace("== 0x29b1", "== 0x29b2"))
    model = Path(os.path.relpath(NULL_MODEL, ROOT))
    result = pio(tmp_path / "workspace", "test", "-e", "native", model=model, project=project)
    assert result.returncode != 0
    assert "crc16_is_ccitt_false:FAIL" in result.stdout
    assert "1 failed, 11 succeeded" in result.stdout + result.stderr
