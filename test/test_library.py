"""The library: microtrain.h learns what the firmware learns, and bad use loses nothing."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from library import (
    ALIGNMENT,
    ARGUMENT,
    BUSY,
    EMPTY,
    FORMAT,
    INPUT,
    INSTANCE,
    KERNEL,
    LABEL,
    MEMORY,
    MORE,
    NO_RECORDS,
    NO_STATISTICS,
    NONE,
    OK,
    ORDER,
    OTHER_MODEL,
    SLOT,
    STORAGE,
    STRICT,
    TABLES,
    TASK,
    WORDS,
    Flash,
    Learner,
    images,
    pointer,
    shared,
    sources,
    u32,
    written,
)
from networks import Builder, residual_network
from test_attention import network as attending_network
from test_recurrent import network as recurrent_network
from test_stream import awkward_network

from lab.networks import with_codes
from microtrain import __version__
from microtrain.base.objects import objects
from microtrain.base.paths import FIRMWARE
from microtrain.base.plan import Origin, text
from microtrain.convert.emit.code import generate
from microtrain.convert.emit.document import document
from microtrain.convert.export import cli
from microtrain.convert.ir import Graph
from microtrain.convert.memory.replay import Request
from microtrain.convert.native_model import NativeModel, Sgd
from microtrain.convert.pipeline import Compiled, Passes, compile_graph
from microtrain.convert.recording import with_buffer
from microtrain.convert.scheme import Scheme, convolutions
from microtrain.samples.stored import stored
from microtrain.simulate.blueprint import load_blueprint
from microtrain.simulate.machine import Machine, library
from microtrain.simulate.replay import Rehearsing

# What a callback of a flash asserts reaches pytest as a warning alone: no exception can pass through C.
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")

STEPS = 6
SEED = 1  # what an instance begins with


def activations_network() -> Graph:
    """Stages that only model.c can make, one of which reads the arena: an activation, factors of channels.

    Its pixels are stored by tables.
    """
    b = Builder(np.random.default_rng(3), (14, 14, 3))
    x = b.layer("hardswish", b.conv("x", 8, 3, 2, relu=False))
    x = b.mul_add(b.layer("hardswish", b.depthwise(x, 3, relu=False)))
    graph, tables = b.finish(b.conv(x, 9), 4), np.random.default_rng(4).integers(-128, 128, (3, 256))
    return graph.replace(input=replace(graph.input, table=tuple(map(tuple, tables.tolist()))))


def groups_network() -> Graph:
    """Convolutions in groups and with taps apart: some stream, the last is trained."""
    b = Builder(np.random.default_rng(5), (14, 14, 3))
    x = b.grouped(b.conv("x", 8, 3, 2), 8, 3, 1, groups=4)
    return b.finish(b.grouped(b.grouped(x, 12, 3, 1, apart=2), 12, 3, 1, groups=3), 4)


def trained(graph: Graph, bits: int = 4) -> Compiled:
    """With a biased and a partly trained layer, a random head, and statistics of features."""
    names = convolutions(graph)
    weights: dict[str | int, float | tuple[int, ...]] = dict.fromkeys(names[-2:], 0.5)
    scheme = Scheme("s", len(names) // 2, weights, fraction_bits=bits, head="random")
    return compile_graph(graph, scheme, 5, Passes(imprint=8))


NETWORKS: dict[str, Callable[[], Compiled]] = {
    "residual": lambda: trained(residual_network()),
    "no_bits": lambda: trained(residual_network(4), bits=0),
    "awkward": lambda: trained(awkward_network()),
    "activations": lambda: trained(activations_network()),
    "in_groups": lambda: trained(groups_network()),
    "attending": lambda: trained(attending_network(3)),
    "over_time": lambda: compile_graph(recurrent_network("gru"), Scheme("s", 2, head="random"), 5, Passes()),
    "over_time_whole": lambda: compile_graph(
        recurrent_network("lstm_last"), Scheme("s", 2, head="random"), 5, Passes(fused=False)
    ),
    "of_codes": lambda: trained(with_codes(residual_network(5), skip=2)),
    "whole": lambda: compile_graph(
        residual_network(2), Scheme("s", 4, head="random"), 5, Passes(fused=False)
    ),
}


@pytest.fixture(scope="module")
def models() -> dict[str, Compiled]:
    return {name: make() for name, make in NETWORKS.items()}


@pytest.fixture(scope="module")
def folder(models: dict[str, Compiled], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One library with all models."""
    root = tmp_path_factory.mktemp("library")
    for name, compiled in models.items():
        written(compiled, name, root / "all", root / name)
    return root / "all"


@pytest.fixture(scope="module")
def lib(folder: Path) -> ctypes.CDLL:
    return shared(folder)


def as_taken(compiled: Compiled, pixels: np.ndarray) -> np.ndarray:
    return stored(pixels, compiled.graph.input)


def learned_by_the_firmware(
    compiled: Compiled, pixels: np.ndarray, folder: Path
) -> tuple[list[float], bytes]:
    native, losses = NativeModel(generate(compiled, "a test"), folder), []
    for step, image in enumerate(pixels):
        native.forward(as_taken(compiled, image), train=True)
        losses.append(native.backward(step % 4, Sgd(*compiled.scheme.rates, SEED, step)))
    return losses, native.trainables()


# ---------------------------------------------------------------- the same bits


@pytest.mark.parametrize("name", NETWORKS)
def test_it_learns_what_the_firmware_learns(
    name: str, models: dict[str, Compiled], lib: ctypes.CDLL, tmp_path: Path
) -> None:
    learner = Learner(lib, name)
    pixels = images(learner.shape, STEPS)
    losses = [learner.train(image, step % 4) for step, image in enumerate(pixels)]
    assert (losses, learner.trainables()) == learned_by_the_firmware(models[name], pixels, tmp_path)
    assert learner.state().steps == STEPS and learner.state().mean_loss == pytest.approx(np.mean(losses))
    assert learner.call("selftest") == OK


def test_the_selftest_looks_at_kernels_tables_and_memory(
    models: dict[str, Compiled], lib: ctypes.CDLL, tmp_path: Path
) -> None:
    """One bit of a table, and one of a kernel's operands. The test of the arena leaves a pattern there."""
    learner = Learner(lib, "residual")
    assert learner.call("selftest") == OK
    words = np.frombuffer(learner.arena, np.uint32)[: learner.sizes.arena_bytes // 4]
    assert (words == 0x55555555).all()
    operands = (FIRMWARE / "src/runtime/selftest_vectors.h").read_text(encoding="ascii")
    found = re.search(r"selftest_dense_w\[\d+\] = \{([^}]*)\}", operands)
    assert found is not None
    operand = np.array([int(number) for number in found[1].split(",") if number.strip()], np.int8).tobytes()
    table = next(iter(models["residual"].graph.layers.values())).bias.astype("<i4").tobytes()
    program = Path(str(lib._name)).read_bytes()
    for part, wrong in ((operand, KERNEL), (table, TABLES)):
        at = program.index(part)
        damaged = tmp_path / f"damaged{wrong}.so"
        damaged.write_bytes(program[:at] + bytes([program[at] ^ 4]) + program[at + 1 :])
        assert Learner(ctypes.CDLL(str(damaged)), "residual").call("selftest") == wrong


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("work", [0, 500, 20_000])
def test_the_bits_do_not_depend_on_slicing(name: str, work: int, lib: ctypes.CDLL) -> None:
    whole, sliced = Learner(lib, name), Learner(lib, name)
    took = []
    for step, image in enumerate(images(whole.shape, STEPS)):
        loss, pieces = sliced.train_in_pieces(image, step % 4, work)
        assert loss == whole.train(image, step % 4)
        took.append(pieces)
        assert sliced.scores_in_pieces(image, work).tobytes() == whole.scores(image).tobytes()
    assert sliced.trainables() == whole.trainables() and sliced.state().steps == STEPS
    assert len(set(took)) == 1 and took[0] > whole.shape[0]


def test_less_work_makes_more_pieces(lib: ctypes.CDLL) -> None:
    x = Learner(lib, "residual")
    image = images(x.shape, 1)[0]
    pieces = [x.train_in_pieces(image, 0, work)[1] for work in (0, 2_000, 2**32 - 1)]
    assert pieces[0] > pieces[1] > pieces[2] > x.shape[0]


def test_instances_and_models_do_not_know_of_each_other(lib: ctypes.CDLL) -> None:
    """Two instances of one model and one of another, a row or a piece at a time in turns."""
    names = ("residual", "residual", "awkward")
    alone = [Learner(lib, name) for name in names]
    together = [Learner(lib, name) for name in names]
    pixels = [images(learner.shape, STEPS, seed) for seed, learner in enumerate(alone)]
    for step in range(STEPS):
        for learner, own in zip(alone, pixels, strict=True):
            learner.train(own[step], step % 4)
        for y in range(max(learner.shape[0] for learner in together)):
            for learner, own in zip(together, pixels, strict=True):
                if y < learner.shape[0]:
                    row = np.ascontiguousarray(own[step][y])
                    assert learner.call("feed_row", u32(y), row.ctypes.data_as(pointer)) == OK
        for learner in together:
            assert learner.call("train_begin", u32(step % 4)) == OK
        busy = set(together)
        while busy:
            busy = {learner for learner in busy if learner.call("step", u32(1000), None) == MORE}
    assert [x.trainables() for x in together] == [x.trainables() for x in alone]
    assert alone[0].trainables() != alone[1].trainables()


def test_imprinting_makes_the_head_of_the_firmware(
    models: dict[str, Compiled], lib: ctypes.CDLL, tmp_path: Path
) -> None:
    learner = Learner(lib, "residual")
    native = NativeModel(generate(models["residual"], "a test"), tmp_path)
    pixels = images(learner.shape, 9)
    native.imprint_clear()
    for n, image in enumerate(pixels):
        assert learner.feed(image) == OK and learner.call("imprint", u32(n % 3)) == OK
        native.forward(as_taken(models["residual"], image), train=False)
        native.imprint_add(n % 3)
    known = u32()
    assert learner.state().looks == 9
    assert learner.call("imprint_head", ctypes.byref(known)) == OK
    assert known.value == native.imprint_solve() == 3
    assert learner.trainables() == native.trainables()


def test_seed_and_rate_are_used_and_kept_over_a_reset(lib: ctypes.CDLL) -> None:
    learner, other = Learner(lib, "residual"), Learner(lib, "residual")
    image = images(learner.shape, 1)[0]
    assert learner.call("set", u32(7), ctypes.c_float(2.0)) == OK
    learner.train(image, 1)
    other.train(image, 1)
    first = learner.trainables()
    assert first != other.trainables()
    assert learner.call("reset") == OK and learner.state().steps == 0
    assert learner.trainables() != first
    learner.train(image, 1)
    assert learner.trainables() == first


# ---------------------------------------------------------------- the C


def test_clang_compiles_it_without_warnings(folder: Path, tmp_path: Path) -> None:
    """As gcc does, of which `shared` asks it."""
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Wshadow", "-Werror"]
    objects("clang", (*flags, "-Isrc"), sources(folder), folder, tmp_path)


def test_headers_are_of_cpp_too(folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "main.cpp"
    program.write_text(
        '#include "residual.h"\n#include "awkward.h"\n'
        "static struct microtrain m;\n"
        "int main() { return microtrain_init(&m, &residual, nullptr) + microtrain_reset(&m); }\n"
    )
    flags = ["-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-fsyntax-only"]
    subprocess.run(["g++", *flags, f"-I{folder / 'src'}", str(program)], check=True)


LIBC = {"memcpy", "memset", "memmove"}


def symbols(folder: Path, made: Path, chosen: list[Path]) -> tuple[set[str], set[str], set[str]]:
    """Undefined, writable, and all global names of the library as one object."""
    command = [
        "gcc",
        "-std=c11",
        "-O1",
        "-fno-pie",
        "-r",
        "-nostdlib",
        f"-I{folder / 'src'}",
        *map(str, chosen),
    ]
    subprocess.run([*command, "-o", str(made)], check=True)
    lines = subprocess.run(["nm", str(made)], check=True, capture_output=True, text=True).stdout.splitlines()
    found = [(line.split()[-2], line.split()[-1]) for line in lines]
    return (
        {name for kind, name in found if kind == "U"},
        {name for kind, name in found if kind in "bBdDcCsS"},
        {name for kind, name in found if kind.isupper() and kind != "U"},
    )


def test_it_has_no_writable_globals_no_libc_and_no_name_but_its_own(folder: Path, tmp_path: Path) -> None:
    undefined, writable, names = symbols(folder, tmp_path / "all.o", sources(folder))
    assert undefined <= LIBC and writable == set()
    own = {name for name in names if not name.startswith("microtrain_")}
    assert own == {name + more for name in NETWORKS for more in ("", "_shared")}
    headers = ("microtrain.h", "microtrain_fleet.h")
    header = "".join((FIRMWARE / "include" / name).read_text(encoding="utf-8") for name in headers)
    public = set(re.findall(r"^[a-z].*?\b(microtrain_\w+)\(", header, re.MULTILINE))
    assert len(public) == 34 and public <= names


def test_a_planted_global_and_malloc_are_noticed(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    crc = copy / "src/microtrain/crc.c"
    crc.write_text(
        crc.read_text()
        + "#include <stdlib.h>\nint own_count;\nvoid *own(void) { return malloc(++own_count); }\n"
    )
    undefined, writable, names = symbols(copy, tmp_path / "all.o", [crc])
    assert "malloc" in undefined and writable == {"own_count"} and "own" in names


def test_the_version_is_that_of_the_package(lib: ctypes.CDLL) -> None:
    major, minor, patch = (int(part) for part in __version__.split("."))
    assert lib.microtrain_version() == major << 16 | minor << 8 | patch


def test_every_status_has_a_text_of_its_own(lib: ctypes.CDLL) -> None:
    header = (FIRMWARE / "include/microtrain.h").read_text(encoding="utf-8")
    codes = [int(n) for n in re.findall(r"^    MICROTRAIN_\w+ = (-?\d+)", header, re.MULTILINE)]
    lib.microtrain_text.restype = ctypes.c_char_p
    texts = {lib.microtrain_text(code) for code in codes}
    assert len(codes) == len(texts) == 24 and b"no such status" not in texts
    for code in (3, 4711, -22, -(2**31), 2**31 - 1):
        assert lib.microtrain_text(code) == b"no such status"


# ---------------------------------------------------------------- bad use


def same_after(learner: Learner, status: int, call: Callable[[], int]) -> None:
    """The call is refused with this status and the learner learns on as if it had not been made."""
    before, memory = learner.trainables(), bytes(learner.arena)
    assert call() == status
    assert learner.trainables() == before and bytes(learner.arena) == memory


def test_bad_arguments_are_refused(lib: ctypes.CDLL) -> None:
    x = Learner(lib, "residual")
    row = np.zeros(x.sizes.row_bytes, np.uint8).ctypes.data_as(pointer)
    flash = ctypes.byref(Flash(4096).storage)
    nan, infinite = ctypes.c_float(float("nan")), ctypes.c_float(float("inf"))
    refused: list[tuple[int, str, tuple[object, ...]]] = [
        (ARGUMENT, "feed", (None,)),
        (ARGUMENT, "feed_row", (u32(0), None)),
        (ARGUMENT, "feed_row", (u32(x.shape[0]), row)),
        (ORDER, "feed_row", (u32(1), row)),
        (INPUT, "predict", (None, None)),
        (INPUT, "train", (u32(0), None)),
        (LABEL, "train", (u32(x.sizes.classes), None)),
        (ARGUMENT, "train_target", (None, None)),
        (TASK, "train_target", (row, None)),
        (TASK, "train_target_begin", (row,)),
        (INPUT, "train_begin", (u32(0),)),
        (LABEL, "train_begin", (u32(2**32 - 1),)),
        (ORDER, "step", (u32(9), None)),
        (INPUT, "predict_begin", ()),
        (ORDER, "scores", (None, None)),
        (ARGUMENT, "feed_row_begin", (u32(0), None)),
        (ORDER, "feed_row_begin", (u32(1), row)),
        (INPUT, "imprint", (u32(0),)),
        (LABEL, "imprint", (u32(x.sizes.classes),)),
        (EMPTY, "imprint_head", (None,)),
        (NO_RECORDS, "remember", (None, u32(0))),
        (NO_RECORDS, "recall", (u32(1), u32(1), None)),
        (NO_RECORDS, "recall_begin", (u32(1), u32(1))),
        (ARGUMENT, "set", (u32(1), nan)),
        (ARGUMENT, "set", (u32(1), infinite)),
        (ARGUMENT, "set", (u32(1), ctypes.c_float(-1.0))),
        (ARGUMENT, "save", (None,)),
        (ARGUMENT, "state", (None,)),
        (NONE, "load", (flash,)),
    ]
    for status, name, arguments in refused:
        same_after(x, status, lambda name=name, arguments=arguments: x.call(name, *arguments))  # type: ignore[misc]
    for name in ("feed", "predict", "train", "reset", "save", "load", "forget", "selftest", "state", "step"):
        function = getattr(lib, f"microtrain_{name}")
        assert function(None, None, None) == ARGUMENT
        assert function((ctypes.c_uint64 * WORDS)(), flash, None) == INSTANCE


def test_no_sound_is_refused_without_a_front_end(lib: ctypes.CDLL) -> None:
    learner = Learner(lib, "residual")
    assert learner.sizes.sound_samples == 0
    for count in (0, 1):
        assert learner.call("feed_sound", u32(0), (ctypes.c_int16 * 4)(), u32(count)) == ARGUMENT


def test_init_wants_memory_of_its_size_and_alignment(lib: ctypes.CDLL) -> None:
    x = Learner(lib, "residual")
    right = x.memory
    model = pointer(x.model)

    def init(**other: int) -> int:
        given = {name: getattr(right, name) for name, _ in right._fields_} | other
        return int(lib.microtrain_init(x.words, model, ctypes.byref(type(right)(**given))))

    for name in ("arena", "trainables"):
        assert init(**{name: 0}) == ARGUMENT
        assert init(**{name: getattr(right, name) + 4}) == ALIGNMENT
    for name in ("arena_bytes", "trainable_bytes"):
        assert init(**{name: getattr(right, name) - 1}) == MEMORY
    assert init(trainables=right.arena) == init(arena=ctypes.addressof(x.words)) == ARGUMENT
    assert init(arena=right.trainables + right.trainable_bytes // 8 * 8 - 8) == ARGUMENT
    assert lib.microtrain_init(x.words, None, ctypes.byref(right)) == ARGUMENT
    assert lib.microtrain_init(x.words, model, None) == ARGUMENT
    assert init() == OK


def test_between_pieces_only_what_ends_them_is_let_in(lib: ctypes.CDLL) -> None:
    x, y = Learner(lib, "residual"), Learner(lib, "residual")
    pixels = images(x.shape, 2)
    image = np.ascontiguousarray(pixels[0])
    flash = Flash(x.sizes.slot_bytes * 2)
    assert x.feed(image) == OK and x.call("train_begin", u32(2)) == OK
    for _ in range(10):
        assert x.call("step", u32(1000), None) == MORE
    assert x.state().under_way == 1
    for call in (
        lambda: x.feed(image),
        lambda: x.call("train", u32(0), None),
        lambda: x.call("train_begin", u32(0)),
        lambda: x.call("predict", None, None),
        lambda: x.call("imprint", u32(0)),
        lambda: x.call("imprint_head", None),
        lambda: x.call("set", u32(0), ctypes.c_float(1)),
        lambda: x.storage("save", flash),
        lambda: x.storage("forget", flash),
        lambda: x.call("selftest"),
    ):
        same_after(x, BUSY, call)
    while x.call("step", u32(1000), None) == MORE:
        pass
    y.train(image, 2)
    assert x.trainables() == y.trainables() and x.state().under_way == 0
    assert (
        x.feed(image) == OK
        and x.call("train_begin", u32(2)) == OK
        and x.call("step", u32(1000), None) == MORE
    )
    assert x.call("reset") == OK and x.call("step", u32(1000), None) == ORDER
    assert x.train(pixels[1], 1) == Learner(lib, "residual").train(pixels[1], 1)


def test_a_call_out_of_a_call_is_refused(lib: ctypes.CDLL) -> None:
    """As an interrupt would make it: from inside a storage function."""
    x = Learner(lib, "residual")
    flash, said = Flash(x.sizes.slot_bytes * 2), []
    flash.sync = lambda _context: said.append(x.call("reset")) or 0  # type: ignore[func-returns-value,method-assign]
    flash.__post_init__()
    x.train(images(x.shape, 1)[0], 1)
    before = x.trainables()
    assert x.storage("save", flash) == OK
    assert said and set(said) == {BUSY} and x.trainables() == before


def test_a_model_without_statistics_says_so(lib: ctypes.CDLL) -> None:
    x = Learner(lib, "whole")
    assert x.feed(images(x.shape, 1)[0]) == OK
    assert x.call("imprint", u32(0)) == NO_STATISTICS == x.call("imprint_head", None)
    assert x.call("train", u32(0), None) == OK


# ---------------------------------------------------------------- storage


@pytest.mark.parametrize(("unit", "clears"), [(4, True), (8, False), (32, False), (256, False)])
def test_what_is_saved_is_loaded(unit: int, clears: bool, lib: ctypes.CDLL) -> None:
    x = Learner(lib, "residual")
    flash = Flash((x.sizes.slot_bytes * 2 + 1023) // 256 * 256, unit, clears)
    assert x.storage("load", flash) == NONE
    assert x.call("set", u32(9), ctypes.c_float(0.5)) == OK
    for step, image in enumerate(images(x.shape, 9)):  # more than both slots hold at once
        x.train(image, step % 4)
        assert x.storage("save", flash) == OK
        y = Learner(lib, "residual")
        assert y.storage("load", flash) == OK
        assert y.trainables() == x.trainables() and y.state().steps == step + 1
    image = images(x.shape, 1, 5)[0]
    assert x.train(image, 0) == y.train(image, 0) and x.trainables() == y.trainables()
    other = Learner(lib, "awkward")
    assert other.storage("load", flash) == other.storage("save", flash) == OTHER_MODEL
    assert other.storage("forget", flash) == OK and x.storage("load", flash) == NONE
    assert other.storage("save", flash) == OK


def test_the_smallest_slot_is_what_sizes_says(lib: ctypes.CDLL) -> None:
    x = Learner(lib, "residual")
    assert x.storage("save", Flash(x.sizes.slot_bytes, 32)) == OK
    assert x.storage("save", Flash(x.sizes.slot_bytes - 32, 32)) == SLOT
    for slot_bytes, unit in ((4096, 3), (4096, 2), (4096, 512), (4095, 4), (0, 4), (32, 4)):
        assert x.storage("save", Flash(slot_bytes, unit)) == SLOT


@pytest.mark.parametrize("clears", [True, False])
@pytest.mark.parametrize("cut", [False, True], ids=["one failure", "power cut"])
def test_a_storage_that_fails_at_any_call_loses_nothing(cut: bool, clears: bool, lib: ctypes.CDLL) -> None:
    """Saves, each repeated with a failure at each of its calls: the last save or this one is there."""
    x = Learner(lib, "residual")
    slot_bytes = x.sizes.slot_bytes * 2
    kept = [bytearray(b"\xff" * slot_bytes) for _ in range(2)]
    before, calls = None, 0
    for step, image in enumerate(images(x.shape, 6)):
        x.train(image, step % 4)
        now = x.trainables()
        whole = Flash(slot_bytes, clears=clears, slots=[bytearray(s) for s in kept])
        assert x.storage("save", whole) == OK
        for fails in range(0, whole.calls, 1 if whole.calls < 400 else 5):
            flash = Flash(slot_bytes, clears=clears, fails=fails, cut=cut, slots=[bytearray(s) for s in kept])
            status = x.storage("save", flash)
            assert status in (OK, STORAGE) and (status == STORAGE or not cut)
            assert x.trainables() == now
            y = Learner(lib, "residual")
            found = y.storage("load", Flash(slot_bytes, clears=clears, slots=flash.slots))
            assert found == (NONE if before is None and status != OK and y.state().steps == 0 else OK)
            assert y.trainables() == now or (status != OK and (before is None or y.trainables() == before))
            calls += 1
        before, kept = now, whole.slots
    assert calls > 300


def test_a_load_that_fails_at_any_call_changes_nothing(lib: ctypes.CDLL) -> None:
    x = Learner(lib, "residual")
    flash = Flash(x.sizes.slot_bytes * 2)
    pixels = images(x.shape, 3)
    x.train(pixels[0], 0)
    assert x.storage("save", flash) == OK
    whole = Flash(flash.slot_bytes, slots=flash.slots)
    assert x.storage("load", whole) == OK
    x.train(pixels[1], 1)
    for fails in range(whole.calls):
        before = x.trainables()
        assert x.storage("load", Flash(flash.slot_bytes, fails=fails, slots=flash.slots)) == STORAGE
        assert x.trainables() == before and x.state().steps == 2
    assert whole.calls > 20


def test_nothing_is_built_on_what_is_not_on_the_chip(lib: ctypes.CDLL) -> None:
    """What an earlier call could not sync is synced first; where that fails, nothing is done."""
    x = Learner(lib, "residual")
    flash, pixels = Flash(x.sizes.slot_bytes * 2), images(x.shape, 2)
    x.train(pixels[0], 0)
    assert x.storage("save", flash) == OK
    before, now = [bytes(slot) for slot in flash.slots], x.train(pixels[1], 1) and x.trainables()
    for name in ("save", "load", "forget"):
        cut = Flash(flash.slot_bytes, fails=0, slots=flash.slots)
        cut.read = cut.program = cut.erase = None  # type: ignore[method-assign,assignment]
        assert x.storage(name, cut) == STORAGE and cut.calls == 1
        assert [bytes(slot) for slot in flash.slots] == before and x.trainables() == now


class Doubtful(Flash):
    """Of its reads, that which comes behind `right` others gives a bit that is wrong, and nobody says so."""

    right = -1

    def read(self, context: int, slot: int, offset: int, to: int, size: int) -> int:
        status = super().read(context, slot, offset, to, size)
        if self.calls == self.right + 1 and size:
            ctypes.c_uint8.from_address(to + size // 2).value ^= 4
        return status


def test_a_bit_that_is_read_wrong_is_never_loaded(lib: ctypes.CDLL) -> None:
    """At any read of a load, also behind the one that has found the save whole."""
    x = Learner(lib, "residual")
    good = Flash(x.sizes.slot_bytes * 2)
    pixels = images(x.shape, 2)
    x.train(pixels[0], 0)
    assert x.storage("save", good) == OK
    saved, statuses = x.trainables(), []
    whole = Flash(good.slot_bytes, slots=good.slots)
    assert x.storage("load", whole) == OK
    x.train(pixels[1], 1)
    now = x.trainables()
    for right in range(whole.calls):
        y = Learner(lib, "residual")
        y.train(pixels[0], 0)
        y.train(pixels[1], 1)
        flash = Doubtful(good.slot_bytes, slots=good.slots)
        flash.right = right
        statuses.append(y.storage("load", flash))
        assert y.trainables() == (saved if statuses[-1] == OK else now)
    assert STORAGE in statuses and NONE in statuses and OK in statuses


def test_slots_of_other_sizes_are_not_taken_for_empty(lib: ctypes.CDLL) -> None:
    """A later firmware that says other sizes of its flash is told so, and erases nothing by itself."""
    x = Learner(lib, "residual")
    size = (x.sizes.slot_bytes * 2 + 1023) // 256 * 256
    flash = Flash(size, 8)
    x.train(images(x.shape, 1)[0], 0)
    assert x.storage("save", flash) == OK
    before = [bytes(slot) for slot in flash.slots]
    for slot_bytes, unit in ((size, 4), (size, 256), (size - 256, 8)):
        other = Flash(slot_bytes, unit, slots=flash.slots)
        for call in ("load", "save"):
            assert x.storage(call, other) == FORMAT
        assert [bytes(slot) for slot in flash.slots] == before
    grown = Flash(size + 256, 8, slots=[bytearray(s + b"\xff" * 256) for s in before])
    assert Learner(lib, "residual").storage("load", grown) == OK
    other = Flash(size, 256, slots=flash.slots)
    assert x.storage("forget", other) == OK and x.storage("save", other) == OK
    assert Learner(lib, "residual").storage("load", other) == OK


class Frayed(Flash):
    """An erase that is cut short leaves the first half of the slot."""

    def erase(self, _context: int, slot: int) -> int:
        if not self.fail():
            self.slots[slot][:] = b"\xff" * self.slot_bytes
            return 0
        half = self.slot_bytes // 2 if self.calls - 1 == self.fails else self.slot_bytes
        self.slots[slot][half:] = b"\xff" * (self.slot_bytes - half)
        return 1


@pytest.mark.parametrize("cut", [False, True], ids=["one failure", "power cut"])
@pytest.mark.parametrize("clears", [True, False])
def test_a_forget_that_fails_at_any_call_leaves_the_newest_or_nothing(
    clears: bool, cut: bool, lib: ctypes.CDLL
) -> None:
    x = Learner(lib, "residual")
    full = Frayed(x.sizes.slot_bytes * 3, clears=clears)
    for step, image in enumerate(images(x.shape, 5)):
        x.train(image, step % 4)
        assert x.storage("save", full) == OK
    newest, found = x.trainables(), []
    whole = Frayed(full.slot_bytes, clears=clears, slots=[bytearray(s) for s in full.slots])
    assert x.storage("forget", whole) == OK
    for fails in range(whole.calls):
        kept = [bytearray(s) for s in full.slots]
        flash = Frayed(full.slot_bytes, clears=clears, fails=fails, cut=cut, slots=kept)
        status = x.storage("forget", flash)
        after = Flash(full.slot_bytes, clears=clears, slots=flash.slots)
        y = Learner(lib, "residual")
        found.append(y.storage("load", after))
        assert found[-1] == NONE or (found[-1] == OK and status == STORAGE and y.trainables() == newest)
        y.train(images(y.shape, 1, 8)[0], 1)
        assert y.storage("save", after) == OK
        z = Learner(lib, "residual")
        assert z.storage("load", after) == OK and z.trainables() == y.trainables()
    assert OK in found and NONE in found


class Late(Flash):
    """An erase that is cut short has not begun."""

    def erase(self, _context: int, slot: int) -> int:
        failed = self.fail()
        if not failed:
            self.slots[slot][:] = b"\xff" * self.slot_bytes
        return int(failed)


def cut_everywhere(x: Learner, name: str, slots: list[bytearray]) -> list[list[bytearray]]:
    """What the slots may hold behind a call whose power was cut, each once."""
    size, found = len(slots[0]), {}
    whole = Late(size, 32, clears=False, slots=[bytearray(s) for s in slots])
    x.storage(name, whole)
    for fails in range(whole.calls):
        flash = Late(size, 32, clears=False, fails=fails, cut=True, slots=[bytearray(s) for s in slots])
        assert x.storage(name, flash) in (OK, STORAGE)
        found[b"".join(flash.slots)] = flash.slots
    return list(found.values())


def test_what_is_forgotten_stays_so_through_further_cuts(lib: ctypes.CDLL) -> None:
    """A forget that is cut leaves a whole record which the header of the other slot calls past. That one is
    erased later, since a save that was cut, too, has used its only place up."""
    x = Learner(lib, "residual")
    full, pixels = Late(x.sizes.slot_bytes, 32, clears=False), images(x.shape, 3)
    for image in pixels[:2]:
        x.train(image, 1)
        assert x.storage("save", full) == OK

    def found(slots: list[bytearray]) -> bytes | None:
        y = Learner(lib, "residual")
        flash = Flash(x.sizes.slot_bytes, 32, clears=False, slots=[bytearray(s) for s in slots])
        return y.trainables() if y.storage("load", flash) == OK else None

    past = [s for s in cut_everywhere(x, "forget", full.slots) if found(s) is None and b"MTCR" in b"".join(s)]
    x.train(pixels[2], 1)
    used = [s for slots in past for s in cut_everywhere(x, "save", slots) if found(s) is None]
    left = [found(s) for slots in used for s in cut_everywhere(x, "save", slots)]
    assert len(past) >= 1 and len(used) > len(past) and len(left) > len(used)
    assert set(left) <= {None, x.trainables()}


# ---------------------------------------------------------------- the command


def exported(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli.main, list(arguments))
    return done.exit_code, done.output


def test_the_command_writes_and_says_what_is_wrong(models: dict[str, Compiled], tmp_path: Path) -> None:
    generated = tmp_path / "generated"
    written(models["residual"], "first", tmp_path / "lib", generated)
    base = (str(tmp_path / "lib"), "--model", str(generated))
    status, said = exported(*base, "--name", "second")
    assert status == 0 and "second.h" in said
    headers = {"first.h", "second.h", "microtrain.h", "microtrain_fleet.h", "microtrain_votes.h"}
    assert {p.name for p in (tmp_path / "lib/src").glob("*.h")} == headers
    for name in (
        "int",
        "a_shared",
        "Garden",
        "9lives",
        "microtrain_x",
        "a b",
        "../x",
        "row",
        "crc32",
        "memcpy",
        "",
    ):
        status, said = exported(*base, "--name", name)
        assert (status == 1 and "is no name for a model" in said) or (name == "" and status == 0)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    status, said = exported(str(tmp_path / "full"), "--model", str(generated))
    assert status == 1 and "name a new folder" in said
    status, said = exported(str(tmp_path / "x"), "--model", str(tmp_path / "nothing"))
    assert status == 1 and "convert" in said and not (tmp_path / "x").exists()
    header = generated / "model.h"
    header.write_text(re.sub(r"#define MODEL_ID \S+", "#define MODEL_ID 0x1u", header.read_text()))
    status, said = exported(*base)
    assert status == 1 and "different conversions" in said


# ---------------------------------------------------------------- records


def remembering(part: int) -> Compiled:
    """With a place for records, as they are or with several values a byte."""
    graph = residual_network()
    scheme = Scheme("s", 2, {-1: 1.0}, head="random")
    request = Request(records=20, parts=(part,))
    compiled = compile_graph(graph, scheme, 5, Passes(imprint=8, replay=request))
    return with_buffer(compiled, request, None, images((*graph.tensors["x"].shape,), 16, 9))


@pytest.fixture(scope="module", params=[1, 3], ids=["whole", "coded"])
def rememberer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ctypes.CDLL, Machine]:
    """A library, and the same model as the simulator has it."""
    root, compiled = tmp_path_factory.mktemp("remembering"), remembering(request.param)
    lib = shared(written(compiled, "rememberer", root / "lib", root / "generated"))
    origin = Origin("rememberer", "0" * 64, "a test")
    said = document(compiled, generate(compiled, "a test"), origin, None)
    (root / "generated/plan.json").write_text(text(said))
    plan = load_blueprint(root / "generated")
    return lib, Machine(plan, library(plan, root / "native"))


def test_records_are_kept_and_recalled_as_by_the_firmware(
    rememberer: tuple[ctypes.CDLL, Machine],
) -> None:
    """Looks, a head, steps on images and on records at a falling rate: the bits of the simulator."""
    lib, machine = rememberer
    twin = Rehearsing(machine, 20)
    device = Learner(lib, "rememberer")
    twin.replay(0)
    assert device.remember(20) == OK
    pixels = images(device.shape, 40, 3)
    for n, image in enumerate(pixels):
        assert device.feed(image) == OK and device.call("imprint", u32(n % 5)) == OK
        twin.imprint(machine.look(image), n % 5)
    assert device.call("imprint_head", None) == OK and twin.imprint_head() == 5
    assert device.state().records == 20
    for n, image in enumerate(images(device.shape, 8, 4)):
        device.train(image, n % 5)
        twin.train(machine.look(image), n % 5)
        device.recall()
        twin.rehearse(1)
    for left in range(12, 0, -1):
        work = 500 if left % 2 else 1 << 31
        device.recall_in_pieces(left, 12, work)
    twin.idle(12)
    assert device.trainables() == machine.pull() and device.state().steps == 1 + 8 + 8 + 12


def test_memory_for_records_is_what_the_sizes_say(rememberer: tuple[ctypes.CDLL, Machine]) -> None:
    device = Learner(rememberer[0], "rememberer")
    least, each = device.sizes.memory_bytes, device.sizes.record_bytes
    assert device.call("recall", u32(1), u32(1), None) == EMPTY
    room = (ctypes.c_uint64 * (least // 8 + 2))()
    assert device.call("remember", room, u32(least - 1)) == MEMORY
    assert device.call("remember", ctypes.byref(room, 4), u32(least)) == ALIGNMENT
    assert device.call("remember", device.arena, u32(least)) == ARGUMENT
    assert device.call("remember", room, u32(least)) == OK
    guard = bytes(room)[least:]
    for n, image in enumerate(images(device.shape, 30, 5)):
        device.train(image, n % 5)
    assert device.state().records == 5 and bytes(room)[least:] == guard
    assert (
        device.call("recall", u32(2), u32(1), None) == ARGUMENT == device.call("recall", u32(0), u32(0), None)
    )
    assert device.recall() > 0
    assert device.call("reset") == OK and device.state().records == 0
    assert device.call("remember", None, u32(0)) == OK
    device.train(images(device.shape, 1)[0], 1)
    assert device.state().records == 0 and each > 2


def test_records_do_not_depend_on_slicing(rememberer: tuple[ctypes.CDLL, Machine]) -> None:
    """What is learned from in pieces becomes a record as what is learned from at once, and the same one."""
    whole, sliced = (Learner(rememberer[0], "rememberer") for _ in range(2))
    assert whole.remember(7) == sliced.remember(7) == OK
    for n, image in enumerate(images(whole.shape, 20, 6)):
        work = (0, 500, 1 << 31)[n % 3]
        assert sliced.train_in_pieces(image, n % 5, work)[0] == whole.train(image, n % 5)
        assert bytes(sliced.remembered) == bytes(whole.remembered)
    assert whole.state().records == sliced.state().records == 7
    assert whole.recall(3, 4) == sliced.recall(3, 4) and whole.trainables() == sliced.trainables()


def test_without_memory_for_records_nothing_changes(rememberer: tuple[ctypes.CDLL, Machine]) -> None:
    kept, plain = Learner(rememberer[0], "rememberer"), Learner(rememberer[0], "rememberer")
    assert kept.remember(20) == OK
    for n, image in enumerate(images(plain.shape, STEPS)):
        assert kept.train(image, n % 5) == plain.train(image, n % 5)
    assert kept.trainables() == plain.trainables()


def test_the_header_says_how_much_memory_records_take(tmp_path: Path) -> None:
    folder = written(remembering(3), "rememberer", tmp_path / "lib", tmp_path / "generated")
    program = tmp_path / "size.c"
    program.write_text(
        '#include "rememberer.h"\nint main(void) {\n    struct microtrain_sizes s;\n'
        "    microtrain_sizes(&rememberer, &s);\n"
        "return REMEMBERER_RECORDS_BYTES(7) != s.memory_bytes + 2 * s.record_bytes; }\n"
    )
    made = tmp_path / "size"
    files = map(str, [program, *sources(folder)])
    subprocess.run(["gcc", *STRICT, f"-I{folder / 'src'}", *files, "-o", str(made)], check=True)
    assert subprocess.run([str(made)], check=False).returncode == 0
