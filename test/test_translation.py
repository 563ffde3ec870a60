"""Translated code does what Unicorn does: each instruction, and sessions with all that is counted of them."""

from __future__ import annotations

import dataclasses
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from conftest import Built
from guest import FLASH, SRAM, Both, drawn

from microtrain.base.errors import Error
from microtrain.base.plan import read_plan
from microtrain.device.client import Device
from microtrain.emulator import Board, EmulatedPort
from microtrain.emulator.translate import build
from microtrain.emulator.translate.blocks import Span, Translator
from microtrain.emulator.translate.build import Translate, Translation
from microtrain.emulator.translate.rules import RULES

STATES = 12  # of each instruction
THREE = (
    "add",
    "adds",
    "sub",
    "subs",
    "and",
    "ands",
    "orr",
    "orrs",
    "eor",
    "eors",
    "bic",
    "bics",
    "orn",
    "orns",
)
CARRIES = ("adc", "adcs", "sbc", "sbcs", "rsb", "rsbs")
HALVES = ("bb", "bt", "tb", "tt")
CONDITIONS = ("eq", "ne", "hs", "lo", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le")
BY_TABLE = """cmp r2, #2; bhs 9f; tbb [pc, r2]; 1: .byte (to_2-1b)/2, (to_3-1b)/2
    to_2: movs r0, #2; bx lr; to_3: movs r0, #3; 9:"""
BEHIND_ANOTHER = "movs r0, #1; ldm r1, {r3, r4, r7}"
INSTRUCTIONS = [
    *(f"{name} r0, r3, r4" for name in THREE + CARRIES),
    *(f"{name} r5, r6, #0x81" for name in THREE + CARRIES),
    *(f"{name} r5, r6, #0xff000000" for name in ("ands", "orrs", "eors", "bics", "adds", "subs")),
    *(f"{name} r5, r6, #0x00ab00ab" for name in ("ands", "adds")),
    *(
        f"{name} r7, r8, r9, {how}"
        for name in ("adds", "subs", "ands", "orrs", "rsbs")
        for how in ("lsl #3", "lsr #32", "asr #7", "ror #9", "rrx")
    ),
    *(
        f"{name} r3, r4, #{by}"
        for name in ("lsls", "lsrs", "asrs", "rors", "lsl", "lsr", "asr", "ror")
        for by in (1, 17, 31)
    ),
    *(f"{name} r3, r4, #32" for name in ("lsrs", "asrs")),
    *(f"{name} r3, r4, r2" for name in ("lsls", "lsrs", "asrs", "rors", "lsl", "lsr", "asr", "ror")),
    *(
        "movs r0, r3",
        "mov r0, sp",
        "mvns r0, r3",
        "mvn r0, r3, asr #4",
        "movw r0, #0x8001",
        "movt r0, #0x7fee",
    ),
    *("movs r0, #0", "movs.w r0, #0x80000000", "mvns r0, #0x80000000", "negs r0, r3", "rrxs r0, r3"),
    *("add r0, sp, #8", "add r3, r4", "adr r0, .+8", "addw r0, r3, #0x123", "subw r0, r3, #0x123"),
    *(
        "cmp r3, r4",
        "cmp r3, #0",
        "cmn r3, r4",
        "cmn r3, #1",
        "tst r3, r4",
        "tst r3, #0x80000000",
        "teq r3, r4",
    ),
    *("mul r0, r3, r4", "muls r3, r4, r3", "mla r0, r3, r4, r5", "mls r0, r3, r4, r5"),
    *("udiv r0, r3, r4", "sdiv r0, r3, r4", "udiv r0, r3, r2", "sdiv r0, r3, r2"),
    *(f"{name} r5, r6, r3, r4" for name in ("umull", "smull", "umlal", "smlal")),
    *(f"{name} r0, r3, r4" for name in ("smmul", "smmulr", "smuad", "qadd", "qsub")),
    *(f"{name} r0, r3, r4, r5" for name in ("smmla", "smmlar", "smmls", "smmlsr", "smlad")),
    *(f"smul{xy} r0, r3, r4" for xy in HALVES),
    *(f"smla{xy} r0, r3, r4, r5" for xy in HALVES),
    *("ssat r0, #8, r3", "ssat r0, #16, r3, asr #3", "ssat r0, #32, r3", "ssat r0, #1, r3, lsl #2"),
    *("usat r0, #4, r3", "usat r0, #0, r3", "usat r0, #31, r3, asr #2"),
    *(
        "pkhbt r0, r3, r4",
        "pkhbt r0, r3, r4, lsl #16",
        "pkhtb r0, r3, r4, asr #16",
        "pkhtb r0, r3, r4, asr #32",
    ),
    *(
        f"{name} r0, r3"
        for name in ("sxtb", "sxth", "uxtb", "uxth", "sxtb16", "uxtb16", "clz", "rev", "rev16", "rbit")
    ),
    *(f"{name} r0, r3, ror #8" for name in ("sxtb", "sxth", "uxtb", "uxth", "sxtb16", "uxtb16")),
    *(f"{name} r0, r3, r4" for name in ("sxtab", "sxtah", "uxtab", "uxtah", "sxtab16", "uxtab16")),
    *(f"{name} r0, r3, r4, ror #16" for name in ("sxtab", "uxtah", "sxtab16", "uxtab16")),
    *(
        "ubfx r0, r3, #5, #9",
        "sbfx r0, r3, #0, #1",
        "sbfx r0, r3, #23, #9",
        "bfi r0, r3, #4, #12",
        "bfc r0, #8, #24",
    ),
    *(f"it {c}; add{c} r0, r3, r4" for c in CONDITIONS),
    *("ite ge; movge r0, r3; movlt r0, #7", "itte ls; movls r0, r3; subls r0, r0, r4; mvnhi r0, r5"),
    *(f"b{c} 1f; movs r0, #1; 1:" for c in CONDITIONS),
    *("cbz r3, 1f; movs r0, #9; 1:", "cbnz r3, 1f; movs r0, #9; 1:", "1: subs r2, r2, #1; bpl 1b"),
    *("b 1f; .word 0x12345678; 1: ldr r0, 1b", "ldr r0, =0x89abcdef; bx lr; .ltorg", "nop"),
    BY_TABLE,
    BEHIND_ANOTHER,
    *(f"{name} r0, [r1]" for name in ("ldr", "ldrb", "ldrh", "ldrsb", "ldrsh", "str", "strb", "strh")),
    *(f"{name} r0, [r1, #4]!" for name in ("ldr", "ldrb", "ldrsh", "str", "strh")),
    *(f"{name} r0, [r1], #-6" for name in ("ldr", "ldrsb", "strb", "str")),
    *(f"{name} r0, [r1, r2, lsl #2]" for name in ("ldr", "ldrh", "str", "strb")),
    *("it ne; ldrne r0, [r1]", "it hi; strhi r0, [r1, #8]"),
    *("ldrd r3, r4, [r1, #8]", "strd r3, r4, [r1], #16", "ldrd r1, r4, [r1]", "ldrd r3, r4, [r1, #-8]!"),
    *("ldm r1, {r3, r4, r7}", "ldmia r1!, {r3, r4, r7}", "ldmdb r1!, {r3, r4}", "ldm r1, {r1, r4}"),
    *("stm r1!, {r3, r4, r7}", "stmdb r1, {r3, r4, r7}", "stmdb r1!, {r0, r5}", "stmia r1, {r1, r3}"),
    *(
        "push {r3, r4, lr}",
        "push {r0, r4}; pop {r5, r6}",
        "push {r3, lr}; pop {r4, pc}",
        "push {lr}; ldr pc, [sp], #4",
    ),
    *(
        "vldr s3, [r1, #4]",
        "vstr s3, [r1]",
        "vldmia r1!, {s3-s6}",
        "vstmia r1!, {s3-s6}",
        "vstmdb r1!, {s3}",
        "vldmdb r1!, {s3-s5}",
        "vldr d2, [r1]",
    ),
    *(
        "vpush {s16-s18}",
        "vpush {d8}; vpop {d9}",
        "vmov s3, r3",
        "vmov r3, s3",
        "vmov s4, s5, r3, r4",
        "vmov r3, r4, s4, s5",
    ),
    *("vmov.f32 s3, s4", "vmov.f32 s3, #-1.5", "vmov s6, s7, r3, r4"),
    *(f"v{name}.f32 s3, s4, s5" for name in ("add", "sub", "mul", "nmul", "div", "maxnm", "minnm")),
    *(f"v{name}.f32 s3, s4" for name in ("abs", "neg", "sqrt")),
    *("vrintx.f32 s3, s4", "vrintn.f32 s3, s4", "vrintr.f32 s3, s4"),
    *(f"{name} s4, s5; vmrs apsr_nzcv, fpscr" for name in ("vcmp.f32", "vcmpe.f32")),
    *("vcmpe.f32 s4, #0; vmrs apsr_nzcv, fpscr; it gt; vdivgt.f32 s3, s4, s5",),
    *(f"vcvt.{kind} s3, s4" for kind in ("f32.s32", "f32.u32", "s32.f32", "u32.f32")),
    *("vcvtr.s32.f32 s3, s4", "vcvt.f32.s16 s3, s3, #0", "vcvt.f32.s16 s3, s3, #15"),
    *(f"vsel{c}.f32 s3, s4, s5" for c in ("eq", "vs", "ge", "gt")),
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    return Both(tmp_path_factory.mktemp("guest"), INSTRUCTIONS)


def difference(both: Both, number: int) -> str | None:
    """What one of them does differently, in the first state in which it does."""
    rng = np.random.default_rng(number)
    for turn in range(STATES):
        base = SRAM + 0x1000 + (int(rng.integers(256)) if turn % 2 else 4 * int(rng.integers(64)))
        state = drawn(rng, base)
        found = both.translated(number, state)
        if (
            found.left is not None
        ):  # Unicorn goes on from there: nothing may have happened in that instruction
            if dataclasses.replace(found, left=None).memory != state.memory:
                return f"{INSTRUCTIONS[number]}: stores before it hands over"
            continue
        wanted = both.emulated(number, state)
        for field in dataclasses.fields(wanted):
            a, b = getattr(found, field.name), getattr(wanted, field.name)
            if a != b:
                return f"{INSTRUCTIONS[number]}: {field.name} {a!r:.300} in the place of {b!r:.300}"
    return None


def test_instructions(both: Both) -> None:
    found = [text for number in range(len(INSTRUCTIONS)) if (text := difference(both, number))]
    assert not found, "\n".join(found)


def test_aligned_accesses_are_not_handed_over(both: Both) -> None:
    rng = np.random.default_rng(0)
    for number, text in enumerate(INSTRUCTIONS):
        assert both.translated(number, drawn(rng, SRAM + 0x1000)).left is None, text


def test_unaligned_words_are(both: Both) -> None:
    rng = np.random.default_rng(0)
    for text in ("ldm r1, {r3, r4, r7}", "strd r3, r4, [r1], #16", "vldr s3, [r1, #4]"):
        number = INSTRUCTIONS.index(text)
        state = drawn(rng, SRAM + 0x1002)
        left = both.translated(number, state)
        assert dataclasses.replace(left, left=None) == state
        assert left.left == (both.starts[number], both.starts[number])


def test_what_is_handed_over_within_a_block_tells_which(both: Both) -> None:
    """Faults of peripherals say in which block the firmware was."""
    number = INSTRUCTIONS.index(BEHIND_ANOTHER)
    start = both.starts[number]
    assert both.translated(number, drawn(np.random.default_rng(0), SRAM + 0x1002)).left == (start + 2, start)


def test_every_rule_has_an_instruction() -> None:
    """A rule that no instruction here needs is one that nothing compares with Unicorn."""
    text = " ".join(INSTRUCTIONS)
    missing = [
        name for name in RULES if not name.startswith("it") and not re.search(rf"\b{re.escape(name)}", text)
    ]
    assert not missing


def test_blocks_end_where_they_have_ended() -> None:
    """Where Unicorn ends a long block depends on all that it looks at: one that never ran is left to it."""
    code = b"\x00\xbf" * 99 + b"\x70\x47"  # nop, bx lr
    read = lambda address, size: code[address - FLASH : address - FLASH + size].ljust(2, b"\0")  # noqa: E731
    span = Span(FLASH, len(code))
    assert Translator(read, {}).function(span).blocks == {}
    known = Translator(read, {FLASH: 100, FLASH + 100: 100}).function(span).blocks
    assert {a: block.size for a, block in known.items()} == {FLASH: 100, FLASH + 100: 100}
    assert list(Translator(read, {FLASH + 180: 20}).function(span).blocks) == [FLASH + 180]


@pytest.mark.parametrize("name", ["adc", "vmul.f32", "ldrsb"])
def test_a_wrong_rule_is_noticed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"adc": "add", "vmul.f32": "vadd.f32", "ldrsb": "ldrb"}
    monkeypatch.setitem(RULES, name, RULES[wrong[name]])
    made = Both(tmp_path, INSTRUCTIONS)
    assert any(difference(made, n) for n, text in enumerate(INSTRUCTIONS) if text.startswith(name))


# ---------------------------------------------------------------- sessions
@dataclasses.dataclass
class Session:
    board: Board
    trained: bytes
    said: object


def session(elf: Path, image: np.ndarray, when: Translate, caches: bool = False) -> Session:
    """A few steps, of which calls are counted."""
    board = Board(elf, caches=caches, translate=when)
    device = Device(EmulatedPort(board))
    for label in range(4):
        device.train(image, label)
    board.watch_calls(["model_forward", "model_backward"], only_inside=True)
    device.train(np.flip(image, 0).copy(), 4)
    return Session(board, device.pull(), board.calls())


@pytest.fixture(scope="module")
def image(example: Built) -> np.ndarray:
    shape = read_plan(example.folder / "plan.json").input.shape
    return np.random.default_rng(1).integers(0, 256, shape, np.uint8)


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "SHORT", 1_000_000)


@pytest.mark.parametrize("caches", [False, True], ids=["", "caches"])
@pytest.mark.usefixtures("early")
def test_a_session_is_the_same(example: Built, image: np.ndarray, caches: bool) -> None:
    one, other = (session(example.elf, image, w, caches) for w in (Translate.NEVER, Translate.AT_ONCE))
    assert one.board.engine.translated == 0
    assert other.board.engine.translated > 0.4 * other.board.instructions
    assert (one.trained, one.said) == (other.trained, other.said)
    assert (one.board.instructions, one.board.now) == (other.board.instructions, other.board.now)
    assert one.board.cache_use() == other.board.cache_use()
    assert one.board.profile() == other.board.profile()
    for a, b in zip(one.board.engine.counters, other.board.engine.counters, strict=True):
        for name in ("entries", "retired", "stalls"):
            assert bytes(getattr(a, name)) == bytes(getattr(b, name)), name
        ran = np.flatnonzero(np.ctypeslib.as_array(a.entries))
        assert [a.blocks[int(i)] for i in ran] == [b.blocks[int(i)] for i in ran]


def cut(elf: Path, image: np.ndarray, instructions: int, when: Translate) -> tuple[bytes, int, bytes]:
    """SRAM, the program counter and flash where the power is cut in the third step."""
    board = Board(elf, translate=when)
    device = Device(EmulatedPort(board))
    for label in range(2):
        device.train(image, label)
    board.power_cut_at(instructions)
    with pytest.raises(Error):
        device.train(image, 2)
    assert board.instructions == instructions
    return board.read_memory(SRAM, board.chip.sram_size), board.pc, board.flash_content()


@pytest.mark.usefixtures("early")
def test_the_power_is_cut_at_the_same_instruction(example: Built, image: np.ndarray) -> None:
    for instructions in (5_000_001, 5_123_457, 5_234_562):
        assert cut(example.elf, image, instructions, Translate.NEVER) == cut(
            example.elf, image, instructions, Translate.AT_ONCE
        )


def warm(elf: Path, image: np.ndarray, when: Translate = Translate.AT_ONCE) -> tuple[Board, Device]:
    """A board that has taken two steps, and so is translated."""
    board = Board(elf, translate=when)
    device = Device(EmulatedPort(board))
    for label in range(2):
        device.train(image, label)
    assert board.engine.translated > 0
    return board, device


@pytest.mark.usefixtures("early")
def test_code_that_is_another_one_is_not_run_as_it_was(example: Built, image: np.ndarray) -> None:
    """Flash that is changed from outside ends the translation."""
    board, device = warm(example.elf, image)
    code = board.image.symbols["model_forward"] & ~1
    board.write_memory(code, board.read_memory(code, 2))
    before = board.engine.translated
    device.train(image, 0)
    assert board.engine.translated == before


@pytest.mark.usefixtures("early")
def test_functions_that_are_watched_are_seen(example: Built, image: np.ndarray) -> None:
    board, device = warm(example.elf, image)
    seen = []
    board.watch("model_forward", lambda: seen.append(board.pc))
    device.train(image, 0)
    assert len(seen) == 1


@pytest.mark.usefixtures("early")
def test_a_translation_is_kept_for_the_next_board(example: Built, image: np.ndarray) -> None:
    warm(example.elf, image)
    warm(example.elf, image, Translate.WHEN_LONG)


@pytest.mark.usefixtures("early")
def test_boards_of_one_firmware_count_each_for_itself(example: Built, image: np.ndarray) -> None:
    """They share the code that was compiled, and run at the same time."""
    alone = session(example.elf, image, Translate.AT_ONCE).board
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: session(example.elf, image, Translate.AT_ONCE).board, range(2)))
    for board in found:
        assert board.profile() == alone.profile()


@pytest.mark.usefixtures("early")
def test_a_damaged_translation_is_made_anew(
    example: Built, image: np.ndarray, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Translation, "_place", lambda self, caches: tmp_path / "translated.so")
    (tmp_path / "translated.so").write_bytes(b"no library")
    warm(example.elf, image)
