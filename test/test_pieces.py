"""Pieces of the library are never longer than conversion says, on cores whose instructions QEMU counts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import test_normalise
from click.testing import CliRunner
from conftest import ROOT
from hypothesis import HealthCheck, Phase, given, seed, settings
from library import written
from networks import residual_network
from test_coded import small_maps
from test_compiler_properties import CLASSES, Case, cases

from lab.cores.machines import CORES
from lab.networks import varied_network, with_codes
from lab.pieces.cli import added
from lab.pieces.fit import bounding, passed
from lab.pieces.measure import PIECE, SLIDE, Longest, measured
from lab.sizes.networks import SCHEMES, example, quantized
from microtrain.base.errors import Error
from microtrain.convert.export import cli
from microtrain.convert.frontends.checkpoint import read_checkpoint
from microtrain.convert.frontends.module import load_model
from microtrain.convert.memory.replay import Request
from microtrain.convert.ops import TABLE
from microtrain.convert.ops.hop import checked
from microtrain.convert.pieces import BEGIN, KEEP, RECALL, STREAM, bound, bounds, coefficients, most_draws
from microtrain.convert.pieces import CORES as KNOWN
from microtrain.convert.pipeline import Compiled, Passes, compile_graph
from microtrain.convert.recording import with_buffer
from microtrain.convert.scheme import Scheme, find
from microtrain.simulate.replay import draws, random_key

WORKS = (1, 4000, 30_000, 200_000)
SCHEME = Scheme("s", 4, {-1: 0.5}, fraction_bits=4, head="random")
DATA = Path(os.environ.get("MICROTRAIN_DATA", "/nowhere"))
needs_data = pytest.mark.skipif(not (DATA / "models").is_dir(), reason="MICROTRAIN_DATA: no networks")


def counted(core: str, models: Mapping[str, Compiled], folder: Path, flag: str = "-O2") -> list[Longest]:
    (machine,) = (each for each in CORES if each.name == core)
    if machine.missing:
        pytest.skip(f"{machine.missing} is not installed")
    return measured(machine, models, folder, WORKS, flag)


def drawn(examples: int, start: int) -> dict[str, Compiled]:
    """Networks and schemes of the property tests."""
    found: list[Compiled] = []

    @seed(start)
    @settings(
        max_examples=examples, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck)
    )
    @given(cases())
    def draw(case: Case) -> None:
        found.append(compile_graph(case[0], case[1], CLASSES))

    draw()
    return {f"drawn{number}": compiled for number, compiled in enumerate(found[:examples])}


@pytest.fixture(scope="module")
def small() -> dict[str, Compiled]:
    """Nothing of it was fitted with: also windows that overlap, and records, as they are and in codes."""
    residual = residual_network(3)
    return {
        "residual": compile_graph(residual, SCHEME, 5),
        "normed": compile_graph(test_normalise.network(5, size=18), SCHEMES[4], 5),
        "hops": compile_graph(checked(residual, 2), SCHEME, 5),
        "whole_hops": compile_graph(checked(residual, 3), SCHEME, 5, Passes(arriving=False)),
        "coded": compile_graph(with_codes(small_maps()), Scheme("biases", biases=-1), 5),
        "remembering": recalling(1),
        "in_codes": recalling(2),
        **drawn(8, 4711),
    }


def recalling(part: int) -> Compiled:
    """With records, in which so many values share a byte."""
    request = Request(records=20, parts=(part,))
    graph = varied_network(4711)
    classes = graph.tensors[graph.output].channels
    compiled = compile_graph(graph, SCHEMES[1], classes, Passes(replay=request))
    images = np.random.default_rng(0).integers(0, 256, (64, *graph.tensors[graph.input.tensor].shape))
    return with_buffer(compiled, request, None, images.astype(np.uint8))


@pytest.fixture(scope="module")
def found(small: dict[str, Compiled], tmp_path_factory: pytest.TempPathFactory) -> list[Longest]:
    return counted("cortex-m4f", small, tmp_path_factory.mktemp("pieces"))


def test_no_piece_is_longer_than_its_bound(found: list[Longest]) -> None:
    assert passed(coefficients()["cortex-m4f"], found) == []
    assert {each.counted.kind for each in found} == {PIECE, BEGIN, SLIDE, KEEP, RECALL} and len(found) > 500


def test_the_bound_is_not_far_above_the_longest_piece(found: list[Longest]) -> None:
    model = coefficients()["cortex-m4f"]
    for name in ("residual", "normed"):
        own = [each for each in found if each.counted.model == name]
        for work in WORKS[:3]:
            longest = max(each.counted.instructions for each in own if each.counted.work == work)
            assert bound(own[0].graph, model).at(work) < 6 * longest


@pytest.mark.parametrize(
    "op",
    ["conv2d_bwd_x", "dwconv2d", "normalise_bwd_x", "bias_update", "head_bwd_w", STREAM, BEGIN, KEEP, RECALL],
)
def test_a_wrong_coefficient_is_noticed(op: str, found: list[Longest]) -> None:
    model = coefficients()["cortex-m4f"]
    lowered = {KEEP, RECALL} if op in (KEEP, RECALL) else {op}  # records have one bound
    if op == STREAM:  # mostly what its kernels take
        lowered.add("conv2d")
    wrong = {name: {term: each / 20 for term, each in model[name].items()} for name in lowered}
    assert passed(replace(model, prices={**model.prices, **wrong}), found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("core", "flag"),
    [
        *(("cortex-m4f", "-Os"), ("cortex-m7", "-O2"), ("cortex-m33", "-O3"), ("rv32imafc", "-O2")),
        *(("cortex-m3", "-O2"), ("cortex-m55", "-O2"), ("rv32imc", "-Os")),
    ],
)
def test_it_holds_on_other_cores_and_for_other_flags(
    core: str, flag: str, small: dict[str, Compiled], tmp_path: Path
) -> None:
    name = "cortex-m4f" if core in ("cortex-m7", "cortex-m33") else core
    assert passed(coefficients()[name], counted(core, small, tmp_path, flag)) == []


@pytest.mark.slow
def test_it_holds_for_the_example(tmp_path: Path) -> None:
    graph = example(ROOT)
    models = {
        f"digits{i}": compile_graph(graph, scheme, 10) for i, scheme in enumerate((SCHEMES[1], SCHEMES[4]))
    }
    assert passed(coefficients()["cortex-m4f"], counted("cortex-m4f", models, tmp_path)) == []


@pytest.mark.slow
@needs_data
def test_it_holds_for_mcunet(tmp_path: Path) -> None:
    graph = read_checkpoint(DATA / "models/mcunet-5fps.pkl")
    compiled = compile_graph(graph, find(Path("mcunet-49kb")), 10)
    found = counted("cortex-m4f", {"mcunet": compiled}, tmp_path)
    assert passed(coefficients()["cortex-m4f"], found) == []
    longest = max(each.counted.instructions for each in found if each.counted.work == 30_000)
    assert longest < 100_000 and bound(compiled.graph, coefficients()["cortex-m4f"]).at(30_000) < 5 * longest


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("file", ["kws_dscnn_int8", "resnet8_int8"])
def test_it_holds_for_networks_of_mlperf_tiny(file: str, tmp_path: Path) -> None:
    loaded = load_model(DATA / f"mlperf_tiny/{file}.tflite")
    shape = loaded.graph.tensors[loaded.graph.input.tensor].shape
    graph = quantized(loaded, np.random.default_rng(0).integers(0, 256, (8, *shape)).astype(np.uint8))
    models = {
        f"tiny{i}": compile_graph(graph, scheme, 10) for i, scheme in enumerate((SCHEMES[1], SCHEMES[4]))
    }
    assert passed(coefficients()["cortex-m4f"], counted("cortex-m4f", models, tmp_path)) == []


@pytest.mark.slow
@pytest.mark.parametrize("start", [1, 2, 3])
def test_it_holds_for_drawn_networks(start: int, tmp_path: Path) -> None:
    assert passed(coefficients()["cortex-m4f"], counted("cortex-m4f", drawn(20, start), tmp_path)) == []


# ---------------------------------------------------------------- what is said of it


def test_ops_that_are_new_leave_the_others_their_bounds() -> None:
    old, own = {"add": {"step": 1.0}}, {"add": {"step": 9.0}, "new": {"step": 2.0}}
    assert added(old, own) == {"add": {"step": 1.0}, "new": {"step": 2.0}}


def test_every_op_has_coefficients() -> None:
    assert coefficients().keys() == KNOWN.keys()
    for model in coefficients().values():
        assert set(TABLE) - {"stream"} | {BEGIN, STREAM, KEEP, RECALL} == model.prices.keys()
        assert all(each > 0 for op in model.prices.values() for each in op.values())


def test_a_graph_with_an_op_that_was_not_measured_has_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    from microtrain.convert import pieces as module

    graph = compile_graph(residual_network(), SCHEME, 5).graph
    assert set(module.bounds(graph)) == set(coefficients())
    less = {
        core: replace(model, prices={op: each for op, each in model.prices.items() if op != "add"})
        for core, model in coefficients().items()
    }
    monkeypatch.setattr(module, "coefficients", lambda: less)
    assert module.bounds(graph) == {}


def test_a_place_among_records_is_found_after_as_many_draws_as_there_are_records() -> None:
    for records in range(1, 140):
        for turn in range(20):
            key = random_key(1, turn, 0)
            found = [sum(1 for _ in draws(i, records, key)) for i in range(records)]
            assert max(found) <= most_draws(records)
    assert max(sum(1 for _ in draws(i, 65, 0)) for i in range(65)) == 1  # a key that moves nothing
    assert max(sum(1 for _ in draws(i, 65, random_key(1, 3, 0))) for i in range(65)) > 4


def test_the_bound_of_records_grows_with_them() -> None:
    most = bound(recalling(1).graph, coefficients()["cortex-m4f"]).records
    assert most is not None and most.at(70) < most.at(1000)
    assert bound(residual_network(), coefficients()["cortex-m4f"]).records is None


@pytest.mark.parametrize("passes", [Passes(), Passes(arriving=False)])
def test_windows_that_overlap_have_a_bound_of_the_slide(passes: Passes) -> None:
    graph = compile_graph(checked(residual_network(), 2), SCHEME, 5, passes).graph
    assert all(most.slide > 0 for most in bounds(graph).values()) and bounds(graph).keys() == KNOWN.keys()
    assert bounds(graph.replace(hop=0))["cortex-m3"].slide == 0


def test_coefficients_pass_all_rows_closely() -> None:
    rows = [({"a": float(n), "step": 1.0}, 100.0 + 7.0 * n) for n in (1, 20, 300, 4000)]
    found = bounding(rows)
    for terms, instructions in rows:
        assert instructions < sum(found[name] * each for name, each in terms.items()) < 1.6 * instructions
    with pytest.raises(Error, match="no coefficients"):
        bounding([({"a": 0.0, "b": 1.0}, 5.0), ({"a": 1.0, "b": 0.0}, 5.0), ({"a": 0.0, "b": 0.0}, 5.0)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("said")
    written(compile_graph(residual_network(), SCHEME, 5), "residual", root / "library", root / "generated")
    return root


PROGRAM = """#include "residual.h"
#define DEADLINE (RESIDUAL_PIECE_LEAST + 100000)
_Static_assert(RESIDUAL_PIECE_INSTRUCTIONS(RESIDUAL_PIECE_WORK(DEADLINE)) <= DEADLINE, "a deadline");
_Static_assert(RESIDUAL_PIECE_INSTRUCTIONS(4000000000u) == RESIDUAL_PIECE_MOST, "no number is too large");
_Static_assert(RESIDUAL_PIECE_WORK(RESIDUAL_PIECE_MOST) == 4294967295u, "a step is never longer");
const uint32_t numbers[] = {RESIDUAL_PIECE_INSTRUCTIONS(1), RESIDUAL_PIECE_INSTRUCTIONS(30000)};
"""
NUMBERS = re.compile(r"^numbers:\s+\.(?:4byte|word)\s+(\d+)\s+\.(?:4byte|word)\s+(\d+)", re.MULTILINE)


@pytest.mark.parametrize("core", [core.name for core in CORES if core.qemu])
def test_the_header_says_it_of_its_core(core: str, folder: Path, tmp_path: Path) -> None:
    (machine,) = (each for each in CORES if each.name == core)
    if shutil.which(machine.cc) is None:
        pytest.skip(f"{machine.cc} is not installed")
    source, asm = tmp_path / "a.c", tmp_path / "a.s"
    source.write_text(PROGRAM)
    strict = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Wconversion",
        "-Werror",
        "--specs=picolibc.specs",
    ]
    command = [machine.cc, *machine.flags, *strict, f"-I{folder / 'library/src'}", "-S", str(source)]
    subprocess.run([*command, "-o", str(asm)], check=True)
    found = NUMBERS.search(asm.read_text())
    model = coefficients()[core if core in KNOWN else "cortex-m4f"]
    most = bound(compile_graph(residual_network(), SCHEME, 5).graph, model)
    assert found is not None
    for said, work in zip(map(int, found.groups()), (1, 30_000), strict=True):
        assert most.at(work) <= said <= most.at(work) + 1


@pytest.mark.parametrize(
    "compiler",
    [
        "gcc",
        "arm-none-eabi-gcc -mthumb -mcpu=cortex-m4 --specs=picolibc.specs",
        "riscv64-unknown-elf-gcc -march=rv64imafdc -mabi=lp64d --specs=picolibc.specs",
    ],
)
def test_on_other_cores_the_header_says_nothing(compiler: str, folder: Path, tmp_path: Path) -> None:
    cc, *flags = compiler.split()
    if shutil.which(cc) is None:
        pytest.skip(f"{cc} is not installed")
    source = tmp_path / "a.c"
    source.write_text('#include "residual.h"\n#ifdef RESIDUAL_PIECE_WORK\n#error said\n#endif\nint a;\n')
    include = f"-I{folder / 'library/src'}"
    subprocess.run([cc, *flags, include, "-c", str(source), "-o", str(tmp_path / "a.o")], check=True)


def test_export_library_prints_it(folder: Path, tmp_path: Path) -> None:
    arguments = [str(tmp_path / "x"), "--model", str(folder / "generated"), "--name", "garden"]
    lines = CliRunner().invoke(cli.main, arguments).output.splitlines()
    most = bound(compile_graph(residual_network(), SCHEME, 5).graph, coefficients()["cortex-m4f"])
    (line,) = (line for line in lines if line.startswith("  Cortex-M4F, M7 and M33: "))
    said, least = (
        int(number.replace(",", "")) for number in re.findall(r"(?:: |than )(\d[\d,]*\d)", line)[:2]
    )
    assert most.at(30_000) <= said <= most.at(30_000) + 1 and least == most.least and "(step " in line
    assert lines[-1].startswith("GARDEN_PIECE_WORK(n) in garden.h")


def test_the_number_for_a_bound_keeps_it() -> None:
    most = bound(compile_graph(residual_network(), SCHEME, 5).graph, coefficients()["cortex-m4f"])
    for wished in (most.least, most.least + 1, 50_000, 123_456):
        assert wished < most.least or most.at(most.work(wished)) <= wished
    assert most.work(most.least - 1) == 1 and most.at(most.work(most.most)) == most.most
