"""The serial protocol of docs/protocol.md, spoken with the firmware built for this machine."""

from __future__ import annotations

import hashlib
import random
import re
import shutil
import struct
import subprocess
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pio_build import NULL_MODEL, ROOT, build, build_once
from serial_program import ANSWER_S, DATA, ROW, WEIGHTS, H, Program, W, frame

INITIAL = bytes(range(1, 65))
CROWDED = 160  # bytes of trainables, more than the arena has
DOCUMENTED = set(re.findall(r"^\| `([a-z]+)", (ROOT / "docs" / "protocol.md").read_text(), re.MULTILINE))


def hash32(x: int) -> int:
    x ^= x >> 16
    x = x * 0x7FEB352D & 0xFFFFFFFF
    x ^= x >> 15
    x = x * 0x846CA68B & 0xFFFFFFFF
    return x ^ x >> 16


def pattern(n: int) -> bytes:
    return bytes(hash32((n + i * 0x9E3779B9) & 0xFFFFFFFF) & 255 for i in range(H * W))


def expected_logits(image: bytes, trainables: bytes = INITIAL) -> np.ndarray:
    """What the null model computes, by its description."""
    x = np.frombuffer(image, np.uint8).astype(np.int32) - 128
    products = x * np.frombuffer(trainables, np.int8)
    return np.array([products[k::3].sum() for k in range(3)], np.float32) / np.float32(1024)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace, _ = build_once(tmp_path_factory, "pio-asan", "native_asan")
    return workspace / "build" / "native_asan" / "program"


@pytest.fixture
def device(program: Path) -> Iterator[Program]:
    """A fresh device, which must end cleanly (a sanitizer's finding is another exit status)."""
    device = Program(program)
    yield device
    _, rest = device.process.communicate(timeout=ANSWER_S)[0], device.process.returncode
    assert rest == 0


# ---------------------------------------------------------------- lines


def test_help_names_every_documented_command(device: Program) -> None:
    lines = device.ask_all("help")
    assert len(DOCUMENTED) == 33
    named = {re.split(r"[ :]", line)[0] for line in lines[:-1]}
    elsewhere = {
        "imprint",
        "keep",
        "idle",
        "target",
        "slide",
        "join",
        "share",
    }  # with what not every firmware has: test_replay.py, test_hop.py, test_fleet_on_board.py, ...
    assert named == DOCUMENTED - elsewhere
    assert lines[-1] == "ok"


def test_info(device: Program) -> None:
    info = dict(line.split(" ", 1) for line in device.ask_all("info")[:-1])
    assert info == {
        "board": "native",
        "model": "null",
        "id": "6c6c756e",
        "input": "8x8x1",
        "classes": "3",
        "arena": "128",
        "trainable": "64",
        "frame": "512",
        "baud": "115200",
        "records": "0",
        "api": "4",
    }


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("ping", "ok pong"),
        ("  ping  ", "ok pong"),
        ("image", "ok image"),
        ("pattern 4294967295", "ok pattern"),
        ("rate 0.5", "ok rate 0.5"),
        ("rate 1000", "ok rate 1000"),
        ("seed 4294967295", "ok seed 4294967295"),
        ("reset", "ok reset"),
        ("stats clear", "ok"),
        ("baud 921600", "ok baud 921600"),
        ("led 1", "ok led"),
        ("led 0", "ok led"),
    ],
)
def test_command(device: Program, line: str, answer: str) -> None:
    assert device.ask(line) == answer


BAD_ARGUMENTS = """
    ping now; pattern; pattern 4294967296; pattern -1; train x; train 3; eval 3; stats now; led 2
    rate 1000.1; rate -1; rate 1e3; rate nan; seed 4294967296; baud 9599; baud 3000001
    row 0 0; row 0 0 0; row 0 0 0g; row 0 4 00; row 1 0 00; row 8 0 00
    push 64 0; push 64 xyz 6c6c756e; replay 4; replay clear; rehearse 1
"""
BAD_LINES = [
    *((line.strip(), "argument") for line in BAD_ARGUMENTS.strip().replace("\n", ";").split(";")),
    *((f"row 0 0 {'00' * size}", "argument") for size in (9, 49)),
    *((line, "image") for line in ("infer", "train 0", "eval 0")),
    *((line, "command") for line in ("frobnicate", "PING", "   ", "x" * 128, "ping\x01", "a b c d e f g h")),
]


@pytest.mark.parametrize(("line", "word"), BAD_LINES)
def test_bad_line_is_answered_and_survived(device: Program, line: str, word: str) -> None:
    before = device.sha()
    answer = device.ask(line)
    assert answer.split()[:2] == ["err", word]
    assert len(answer.split()) > 3, "an error is a sentence"
    assert device.ask("ping") == "ok pong"
    assert device.sha() == before


def test_longest_line_is_read_and_empty_lines_are_not_answered(device: Program) -> None:
    device.send("\r\n\n\r")
    assert device.ask("ping" + " " * 123) == "ok pong"  # 127 characters
    assert device.ask("ping" + " " * 124).startswith("err command line is longer")


def test_image_by_frames_gives_the_models_logits(device: Program) -> None:
    image = random.Random(1).randbytes(H * W)
    device.send_image(image)
    lines = device.ask_all("infer")
    words = [f"{struct.unpack('<I', struct.pack('<f', v))[0]:08x}" for v in expected_logits(image)]
    best = int(expected_logits(image).argmax())
    assert lines == [f"logits {' '.join(words)}", f"class {best}", f"ok infer {best}"]


def test_image_by_lines_equals_image_by_frames(device: Program) -> None:
    image = random.Random(2).randbytes(H * W)
    for y in range(H):
        row = image[W * y : W * (y + 1)].hex()
        assert device.ask(f"row {y} 0 {row[:6]}") == f"ok row {y}"
        assert device.ask(f"row {y} 3 {row[6:].upper()}") == f"ok row {y}"
    assert np.array_equal(device.logits(), expected_logits(image))


def test_pattern_is_the_documented_one(device: Program) -> None:
    assert device.ask("pattern 12345") == "ok pattern"
    assert np.array_equal(device.logits(), expected_logits(pattern(12345)))


def test_missing_rows_are_counted_and_a_step_consumes_the_image(device: Program) -> None:
    for y in range(4):
        device.ask(frame(ROW, y, bytes(W)))
    assert device.ask("infer") == "err image rows missing 4"
    for y in range(4, 8):
        device.ask(frame(ROW, y, bytes(W)))
    assert device.ask("infer").startswith("ok infer")
    assert device.ask("train 1") == "err image rows missing 8"
    device.ask("pattern 1")
    assert device.ask("image") == "ok image"
    assert device.ask("eval 1") == "err image rows missing 8"


def test_rows_come_in_order_and_may_come_again(device: Program) -> None:
    image = random.Random(3).randbytes(H * W)
    rows = [image[W * y : W * (y + 1)] for y in range(H)]
    device.ask(frame(ROW, 0, bytes(W)))  # of an image that is given up
    for y in (0, 1, 2):
        assert device.ask(frame(ROW, y, rows[y])).startswith(f"ok row {y}")
    assert device.ask(frame(ROW, 4, rows[4])).startswith("err frame row is not the next one")
    assert device.ask(frame(ROW, 1, bytes(W))).startswith("ok row 1")  # it is in: passed over
    for y in range(3, H):
        assert device.ask(frame(ROW, y, rows[y])).startswith(f"ok row {y}")
    assert np.array_equal(device.logits(), expected_logits(image))


def test_a_frame_may_hold_several_rows(device: Program) -> None:
    """They lead where single rows do; the answer names the first of them."""
    image = random.Random(5).randbytes(H * W)
    assert device.ask(frame(ROW, 0, image[: 3 * W], 7)) == "ok row 0 7"
    assert device.ask(frame(ROW, 1, bytes(3 * W), 8)) == "ok row 1 8"  # two are in, and the third is not
    assert device.ask("infer") == f"err image rows missing {H - 4}"
    assert device.ask(frame(ROW, 0, image[: 3 * W], 9)) == "ok row 0 9"
    assert device.ask(frame(ROW, 3, image[3 * W :], 10)) == "ok row 3 10"
    assert np.array_equal(device.logits(), expected_logits(image))


@pytest.mark.parametrize("size", [0, W - 1, W + 1, 3 * W - 1])
def test_a_frame_of_no_whole_rows_is_refused(device: Program, size: int) -> None:
    assert device.ask(frame(ROW, 0, bytes(size))).startswith(
        "err frame length is not that of whole image rows"
    )


def test_rows_beyond_the_image_are_refused_and_those_before_are_in(device: Program) -> None:
    image = random.Random(6).randbytes(H * W)
    device.ask(frame(ROW, 0, image[: (H - 1) * W]))
    said = device.ask(frame(ROW, H - 1, image[(H - 1) * W :] + bytes(W)))
    assert said.startswith("err frame row is outside the image")
    assert np.array_equal(device.logits(), expected_logits(image))


def test_training_is_repeatable_and_reset_undoes_it(device: Program) -> None:
    def learn(seed: int, rate: str = "0.7") -> str:
        device.ask("reset")
        device.ask(f"seed {seed}")
        device.ask(f"rate {rate}")
        for n in range(20):
            device.ask(f"pattern {n}")
            assert re.fullmatch(r"ok train \d \d \d+\.\d{4}", device.ask(f"train {n % 3}"))
        return device.sha()

    first = learn(1)
    assert first != hashlib.sha256(INITIAL).hexdigest()
    assert learn(1) == first
    assert learn(2) != first
    assert learn(1, "0") == hashlib.sha256(INITIAL).hexdigest()
    assert learn(1) == first
    assert device.ask("reset") == "ok reset"
    assert device.sha() == hashlib.sha256(INITIAL).hexdigest()


def test_statistics(device: Program) -> None:
    losses = []
    for n in range(3):
        device.ask(f"pattern {n}")
        losses.append(float(device.ask("train 1").split()[4]))
    right = 0
    for n in range(5):
        device.ask(f"pattern {n}")
        _, _, label, predicted, correct, total = device.ask("eval 2").split()
        right += label == predicted
        assert (int(correct), int(total)) == (right, n + 1)
    device.ask(frame(ROW, 0, bytes(W)))
    device.ask(frame(ROW, 9, bytes(W)))
    stats = dict(line.split() for line in device.ask_all("stats")[:-1])
    assert (stats["steps"], stats["evaluated"], stats["correct"]) == ("3", "5", str(right))
    assert float(stats["loss"]) == pytest.approx(sum(losses) / 3, abs=2e-4)
    assert (stats["frames_ok"], stats["frames_bad"], stats["bytes_lost"]) == ("1", "1", "0")
    assert {"infer_cycles", "step_cycles", "uptime_ms"} <= stats.keys()
    device.ask("stats clear")
    stats = dict(line.split() for line in device.ask_all("stats")[:-1])
    assert (stats["steps"], stats["evaluated"], stats["loss"]) == ("3", "0", "0.0000")


# ---------------------------------------------------------------- replay


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program for the null model with a replay buffer of 6 records."""
    line = "#define MODEL_RECORD_BYTES 64"
    return build(*with_header(tmp_path_factory, line, f"#define MODEL_RECORDS 6\n{line}"))


def learn_patterns(device: Program, count: int) -> str:
    """SHA-256 after a step on each of the first test patterns."""
    for n in range(count):
        device.ask(f"pattern {n}")
        assert device.ask(f"train {n % 3}").startswith("ok train")
    return device.sha()


def counters(device: Program) -> tuple[str, str, str]:
    stats = dict(line.split() for line in device.ask_all("stats")[:-1])
    return stats["steps"], stats["replays"], stats["records_held"]


def test_replayed_steps_are_steps(remembering: Path) -> None:
    device = Program(remembering)
    assert counters(device) == ("0", "4", "0")
    assert device.ask("replay 3") == "ok replay 3"
    learned = learn_patterns(device, 10)
    assert counters(device) == ("40", "3", "6")
    device.ask(frame(ROW, 0, bytes(W)))
    assert device.ask("rehearse 5") == "ok rehearse 5"
    assert device.ask("infer") == "err image rows missing 8"
    assert counters(device) == ("45", "3", "6")
    assert device.sha() != learned
    assert device.ask("reset") == "ok reset"
    assert counters(device) == ("0", "3", "0")
    assert learn_patterns(device, 10) == learned
    device.ask("reset")
    device.ask("replay 2")
    assert learn_patterns(device, 10) != learned
    device.process.communicate(timeout=ANSWER_S)
    assert device.process.returncode == 0


def until_idle(device: Program) -> tuple[str, str]:
    """Waits for the steps that the device may take, asking rarely enough; returns steps and what is left."""
    for _ in range(20):
        time.sleep(0.8)
        stats = dict(line.split() for line in device.ask_all("stats")[:-1])
        if stats["idle"] == "0":
            break
    return stats["steps"], stats["idle"]


def test_silence_is_used_for_steps_on_records(remembering: Path) -> None:
    device = Program(remembering)
    device.ask("replay 0")
    assert device.ask("idle 3") == "ok idle 3"
    assert until_idle(device) == ("0", "0"), "there are no records: the budget is gone"
    learned = learn_patterns(device, 6)
    device.ask("idle 3")
    assert until_idle(device) == ("9", "0")
    assert device.sha() != learned
    device.ask(frame(ROW, 0, bytes(W)))
    device.ask("idle 1")
    time.sleep(1.2)
    assert device.ask("infer") == "err image rows missing 7", "an image on its way is not lost"
    device.ask("image")
    assert until_idle(device) == ("10", "0")
    device.ask("idle 5")
    assert device.ask("idle 0") == "ok idle 0"
    for line in ("idle x", "idle -1"):
        assert device.ask(line) == "err argument idle takes a number of steps, 0..4294967295"
    device.process.communicate(timeout=ANSWER_S)
    assert device.process.returncode == 0


def test_images_are_kept_while_the_host_says_so(remembering: Path) -> None:
    device = Program(remembering)
    assert device.ask("keep 0") == "ok keep 0"
    learn_patterns(device, 3)
    assert counters(device)[2] == "0"
    assert device.ask("keep 1") == "ok keep 1"
    learn_patterns(device, 3)
    assert counters(device)[2] == "3"
    for line in ("keep 2", "keep x"):
        assert device.ask(line) == "err argument keep takes 0 or 1"
    device.process.communicate(timeout=ANSWER_S)
    assert device.process.returncode == 0


def test_without_replay_images_are_recorded_and_change_nothing(remembering: Path, device: Program) -> None:
    other = Program(remembering)
    assert other.ask("replay 0") == "ok replay 0"
    assert learn_patterns(other, 7) == learn_patterns(device, 7)
    assert counters(other) == ("7", "0", "6")
    assert other.ask("replay clear") == "ok replay clear"
    assert counters(other) == ("7", "0", "0")
    assert other.ask("rehearse 1") == "err argument there are no records to rehearse"
    for line in ("rehearse 0", "rehearse 101", "rehearse x"):
        assert other.ask(line) == "err argument rehearse takes a number of steps, 1..100"
    for line in ("replay 101", "replay x", "replay -1"):
        assert other.ask(line) == "err argument replay takes a number of steps, 0..100, or `clear`"
    other.process.communicate(timeout=ANSWER_S)
    assert other.process.returncode == 0


# ---------------------------------------------------------------- frames


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (frame(ROW, 0, bytes(W))[:-1] + b"\x00", "payload CRC"),
        (frame(ROW, 0, bytes(W - 1)), "length"),
        (frame(ROW, 0, bytes(W + 1)), "length"),
        (frame(ROW, 0, b""), "length"),
        (frame(ROW, 0, bytes(513)), "length"),
        (frame(ROW, 0, bytes(65535)), "length"),
        (frame(ROW, 3, bytes(W)), "row is not the next one"),
        (frame(ROW, H, bytes(W)), "row"),
        (frame(ROW, 0xFFFFFFFF, bytes(W)), "row"),
        (frame(DATA, 0, bytes(W)), "type"),
        (frame(0, 0, bytes(W)), "type"),
        (frame(WEIGHTS, 0, bytes(W)), "no push"),
    ],
)
def test_bad_frame_is_answered_once_and_survived(device: Program, bad: bytes, sentence: str) -> None:
    before = device.sha()
    answer = device.ask(bad)
    assert answer.startswith("err frame ") and sentence in answer
    assert device.ask(frame(ROW, 0, bytes(W), 200)) == "ok row 0 200"
    assert device.sha() == before


def test_wrong_header_is_answered_and_a_newline_finds_the_place_again(device: Program) -> None:
    bad = bytearray(frame(ROW, 0, bytes(W)))
    bad[4] ^= 1
    device.send(bytes(bad) + b"\n")
    assert device.line() == "err frame header CRC is wrong"
    assert device.line().startswith("err command")
    assert device.ask("ping") == "ok pong"


def test_truncated_frame_times_out(device: Program) -> None:
    before = device.sha()
    for size in (1, 2, 11, 12, 15, 23):
        start = time.monotonic()
        assert device.ask(frame(ROW, 0, bytes(W))[:size]) == "err frame timeout"
        assert time.monotonic() - start > 0.4  # not at once: the frame might still have gone on
    assert device.ask("ping") == "ok pong"
    assert device.sha() == before


@pytest.mark.parametrize(
    "noise",
    [
        b"\xa5",
        b"\xa5\xa5\xa5",
        b"\xa5\x5a",
        b"\xa5\x5a\x01\xa5\x5a\x01",
        b"\x00\xff\x80",
        frame(ROW, 0, bytes(W))[:11],
        b"\xa5\x5a" * 5 + b"\xa5",
    ],
)
def test_frame_is_found_behind_noise(device: Program, noise: bytes) -> None:
    device.send(noise + frame(ROW, 0, bytes(W), 99) + b"\n")
    said = device.quiet(0.7)
    assert "ok row 0 99\r\n" in said
    assert device.ask("ping") == "ok pong"


def test_dropped_sync_byte_spoils_the_line_it_is_in(device: Program) -> None:
    before = device.sha()
    device.ask("pattern 1")
    assert device.ask(b"tra\xa5in 1\n").startswith("err command")
    assert device.sha() == before


def test_frame_in_the_middle_of_a_line(device: Program) -> None:
    device.send(b"pi" + frame(ROW, 0, bytes(W)) + b"ng\n")
    assert device.line() == "ok row 0 7"
    assert device.line() == "ok pong"


def test_garbage_is_survived(device: Program) -> None:
    rng = random.Random(3)
    before = device.sha()
    for _ in range(30):
        pieces = [rng.randbytes(rng.randrange(200)), b"\xa5\x5a" + rng.randbytes(rng.randrange(20))]
        pieces += [frame(rng.randrange(5), rng.randrange(10), rng.randbytes(rng.randrange(12)))[:-1], b"\n"]
        rng.shuffle(pieces)
        device.send(b"".join(pieces))
    device.quiet(0.8)
    device.send("\n")
    device.quiet(0.1)
    assert device.ask("ping") == "ok pong"
    assert device.sha() == before


# ---------------------------------------------------------------- pull and push


def test_pull_gives_the_trainables(device: Program) -> None:
    assert device.pull() == INITIAL
    device.ask("pattern 5")
    device.ask("train 2")
    block = device.pull()
    assert block != INITIAL
    assert device.sha() == hashlib.sha256(block).hexdigest()


def test_push_restores_what_was_pulled(device: Program) -> None:
    device.ask("pattern 5")
    device.ask("train 2")
    block = device.pull()
    device.ask("reset")
    assert device.start_push(block) == "ok push"
    assert device.ask(frame(WEIGHTS, 0, block[:40], 1)) == "ok weights 0 1"
    assert device.ask(frame(WEIGHTS, 0, block[:40], 2)) == "ok weights 0 2"  # again: its answer was lost
    assert device.sha() == hashlib.sha256(INITIAL).hexdigest()
    assert device.ask(frame(WEIGHTS, 40, block[40:], 3)) == "ok push done"
    assert device.pull() == block
    assert device.ask("infer").startswith("err image")  # the staging used the image's memory
    assert device.ask(frame(WEIGHTS, 0, block, 4)).startswith("err frame no push")


def test_push_for_another_model_or_size_is_refused(device: Program) -> None:
    assert device.start_push(bytes(64), model="6c6c756f").startswith("err push")
    assert device.start_push(bytes(63)).startswith("err push")
    assert device.start_push(bytes(68)).startswith("err push")
    assert device.ask(frame(WEIGHTS, 0, bytes(64))).startswith("err frame no push")
    assert device.pull() == INITIAL


def test_push_with_wrong_crc_changes_nothing(device: Program) -> None:
    block = bytes(64)
    assert device.start_push(block, crc=zlib.crc32(block) ^ 1) == "ok push"
    assert device.ask(frame(WEIGHTS, 0, block)).startswith("err push CRC")
    assert device.pull() == INITIAL


@pytest.mark.parametrize(("position", "size"), [(8, 8), (0, 65), (64, 1), (0xFFFFFFF8, 8), (0, 0)])
def test_push_outside_the_trainables_changes_nothing(device: Program, position: int, size: int) -> None:
    assert device.start_push(bytes(64)) == "ok push"
    assert device.ask(frame(WEIGHTS, position, bytes(size))).startswith("err frame")
    assert device.pull() == INITIAL


def test_push_keeps_the_arena_until_it_ends(device: Program) -> None:
    assert device.start_push(bytes(64)) == "ok push"
    for line in ("pattern 1", "row 0 0 00", "infer", "train 1", "eval 1"):
        assert device.ask(line).startswith("err busy")
    assert device.ask(frame(ROW, 0, bytes(W))).startswith("err busy")
    assert device.ask("image") == "ok image"
    assert device.ask("pattern 1") == "ok pattern"
    assert device.ask(frame(WEIGHTS, 0, bytes(64))).startswith("err frame no push")
    assert device.pull() == INITIAL


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program for a model whose trainables are larger than its arena."""
    size = "MODEL_TRAINABLE_BYTES"
    return build(*with_header(tmp_path_factory, f"{size} 64", f"{size} {CROWDED}"))


def with_header(factory: pytest.TempPathFactory, old: str, new: str) -> tuple[Path, str, Path]:
    """What build() takes, for the null model with another line in its header."""
    folder = factory.mktemp("other")
    model = folder / "model"
    shutil.copytree(NULL_MODEL, model)
    header = (model / "model.h").read_text()
    assert old in header
    (model / "model.h").write_text(header.replace(old, new))
    return folder, "native_asan", model


def test_push_that_cannot_be_staged_is_all_or_marked(crowded: Path) -> None:
    device = Program(crowded)
    block = bytes(range(CROWDED))
    start = f"push {CROWDED} {zlib.crc32(block):08x} 6c6c756e"
    assert device.ask(start) == "ok push"
    assert device.ask(frame(WEIGHTS, 0, block[:64])).startswith("ok weights 0")
    assert device.ask("image") == "ok image"
    for line in ("infer", "pattern 1", "pull"):
        assert device.ask(line) == "err push trainables are incomplete: push again, or `reset`"
    assert device.ask(start) == "ok push"
    assert device.ask(frame(WEIGHTS, 0, bytes(CROWDED))).startswith("err push CRC")
    assert device.ask("pattern 1").startswith("err push trainables are incomplete")
    assert device.ask(start) == "ok push"
    assert device.ask(frame(WEIGHTS, 0, block)) == "ok push done"
    assert device.ask("pattern 1") == "ok pattern"
    assert device.sha() == hashlib.sha256(block).hexdigest()
    assert device.ask("reset") == "ok reset"
    assert device.sha() == hashlib.sha256(INITIAL + bytes(CROWDED - 64)).hexdigest()
    device.process.communicate(timeout=ANSWER_S)
    assert device.process.returncode == 0


def test_nothing_is_done_with_incomplete_trainables(crowded: Path, tmp_path: Path) -> None:
    device = Program(crowded, tmp_path / "flash.bin")
    block = bytes(range(CROWDED))
    device.ask("pattern 1")
    device.ask("train 1")  # a step that `reboot` would save
    device.ask(f"push {CROWDED} {zlib.crc32(block):08x} 6c6c756e")
    assert device.ask(frame(ROW, 0, bytes(W))).startswith("err busy")
    assert device.ask(frame(WEIGHTS, 0, block[:64])).startswith("ok weights 0")
    assert device.ask(frame(ROW, 0, bytes(W))).startswith("err busy")
    device.ask("image")
    steps = ("row 0 0 00", "pattern 1", "infer", "train 1", "eval 1", "rehearse 1", "selftest")
    for asked in (frame(ROW, 0, bytes(W)), *steps, "pull", "sha", "save"):
        assert device.ask_all(asked) == ["err push trainables are incomplete: push again, or `reset`"]
    assert stats_line(device, "frames_bad") == "3"
    device.ask("reboot")
    device.boot()
    assert device.checkpoint == "checkpoint none"
    assert device.ask(frame(ROW, 0, bytes(W), 1)) == "ok row 0 1"
    device.process.communicate(timeout=ANSWER_S)
    assert device.process.returncode == 0


def stats_line(device: Program, key: str) -> str:
    return dict(line.split(" ", 1) for line in device.ask_all("stats")[:-1])[key]


# ---------------------------------------------------------------- the device as a whole


def test_reboot_starts_over(device: Program) -> None:
    device.ask("pattern 1")
    device.ask("train 1")
    assert device.ask("reboot") == "ok reboot"
    device.boot()
    assert device.checkpoint == "checkpoint none"  # on a host without a file for its flash
    assert device.pull() == INITIAL


def test_baud_goes_back_unless_a_line_proves_it(device: Program) -> None:
    def baud() -> str:
        return dict(line.split(" ", 1) for line in device.ask_all("info")[:-1])["baud"]

    assert device.ask("baud 1000000") == "ok baud 1000000"
    assert device.ask("nonsense").startswith("err")  # proves nothing
    time.sleep(2.2)
    assert baud() == "115200"
    assert device.ask("baud 1000000") == "ok baud 1000000"
    assert device.ask("ping") == "ok pong"
    time.sleep(2.2)
    assert baud() == "1000000"


def test_end_of_input_ends_the_program_after_the_last_answer(program: Path) -> None:
    result = subprocess.run(
        [program], input=b"pattern 1\ninfer\nping\n", capture_output=True, timeout=10, check=False
    )
    assert result.returncode == 0
    assert result.stdout.endswith(b"ok pong\r\n")
