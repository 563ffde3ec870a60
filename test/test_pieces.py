"""Pieces of the library are never longer than conversion says, on cores whose instructions QEMU counts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import test_normalise
from click.testing import CliRunner
from conftest import ROOT
from hypothesis import HealthCheck, Phase, given, seed, settings
from library import written
from networks import residual_network
from test_compiler_properties import CLASSES, Case, cases

from lab.cores.machines import CORES
from lab.pieces.fit import bounding
from lab.pieces.measure import Longest, measured
from lab.sizes.networks import SCHEMES, example, quantized
from microtrain.base.errors import Error
from microtrain.convert.export import cli
from microtrain.convert.frontends.checkpoint import read_checkpoint
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ops import TABLE
from microtrain.convert.pieces import BEGIN, STREAM, Model, bound, bounds, coefficients, pieces
from microtrain.convert.pieces import CORES as KNOWN
from microtrain.convert.pipeline import Compiled, compile_graph
from microtrain.convert.scheme import Scheme, find

WORKS = (1, 4000, 30_000, 200_000)
SCHEME = Scheme("s", 4, {-1: 0.5}, fraction_bits=4, head="random")
DATA = Path(os.environ.get("MICROTRAIN_DATA", "/nowhere"))
needs_data = pytest.mark.skipif(not (DATA / "models").is_dir(), reason="MICROTRAIN_DATA: no networks")


def longer(found: list[Longest], model: Model) -> list[str]:
    """Pieces longer than the bound of their step, or than that of the model; less the timer's step."""
    graphs = {piece.model: piece.graph for piece in found}
    steps = {name: pieces(graph, model) for name, graph in graphs.items()}
    whole = {name: bound(graph, model) for name, graph in graphs.items()}
    wrong = []
    for piece in found:
        own = steps[piece.model][0 if piece.step is None else piece.step + 1]
        most = min(own.at(piece.work), whole[piece.model].at(piece.work))
        if piece.instructions - piece.tick > most:
            wrong.append(f"{piece.model}, {own.step}: {piece.instructions:.0f} > {most} of {piece.work}")
    return wrong


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
    """Nothing of it was fitted with."""
    return {
        "residual": compile_graph(residual_network(3), SCHEME, 5),
        "normed": compile_graph(test_normalise.network(5, size=18), SCHEMES[4], 5),
        **drawn(8, 4711),
    }


@pytest.fixture(scope="module")
def found(small: dict[str, Compiled], tmp_path_factory: pytest.TempPathFactory) -> list[Longest]:
    return counted("cortex-m4f", small, tmp_path_factory.mktemp("pieces"))


def test_no_piece_is_longer_than_its_bound(found: list[Longest]) -> None:
    assert longer(found, coefficients()["cortex-m4f"]) == []
    assert {piece.step for piece in found} > {None, 0, 1} and len(found) > 500


def test_the_bound_is_not_far_above_the_longest_piece(found: list[Longest]) -> None:
    model = coefficients()["cortex-m4f"]
    for name in ("residual", "normed"):
        own = [piece for piece in found if piece.model == name]
        for work in WORKS[:3]:
            longest = max(piece.instructions for piece in own if piece.work == work)
            assert bound(own[0].graph, model).at(work) < 6 * longest


@pytest.mark.parametrize(
    "op", ["conv2d_bwd_x", "dwconv2d", "normalise_bwd_x", "bias_update", "head_bwd_w", STREAM, BEGIN]
)
def test_a_wrong_coefficient_is_noticed(op: str, found: list[Longest]) -> None:
    model = coefficients()["cortex-m4f"]
    wrong = {**model, op: {name: each / 20 for name, each in model[op].items()}}
    if op == STREAM:  # mostly what its kernels take
        wrong["conv2d"] = {name: each / 20 for name, each in model["conv2d"].items()}
    assert longer(found, wrong)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("core", "flag"),
    [("cortex-m4f", "-Os"), ("cortex-m7", "-O2"), ("cortex-m33", "-O3"), ("rv32imafc", "-O2")],
)
def test_it_holds_on_other_cores_and_for_other_flags(
    core: str, flag: str, small: dict[str, Compiled], tmp_path: Path
) -> None:
    name = "cortex-m4f" if core in ("cortex-m7", "cortex-m33") else core
    assert longer(counted(core, small, tmp_path, flag), coefficients()[name]) == []


@pytest.mark.slow
def test_it_holds_for_the_example(tmp_path: Path) -> None:
    graph = example(ROOT)
    models = {
        f"digits{i}": compile_graph(graph, scheme, 10) for i, scheme in enumerate((SCHEMES[1], SCHEMES[4]))
    }
    assert longer(counted("cortex-m4f", models, tmp_path), coefficients()["cortex-m4f"]) == []


@pytest.mark.slow
@needs_data
def test_it_holds_for_mcunet(tmp_path: Path) -> None:
    graph = read_checkpoint(DATA / "models/mcunet-5fps.pkl")
    compiled = compile_graph(graph, find(Path("mcunet-49kb")), 10)
    found = counted("cortex-m4f", {"mcunet": compiled}, tmp_path)
    assert longer(found, coefficients()["cortex-m4f"]) == []
    longest = max(piece.instructions for piece in found if piece.work == 30_000)
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
    assert longer(counted("cortex-m4f", models, tmp_path), coefficients()["cortex-m4f"]) == []


@pytest.mark.slow
@pytest.mark.parametrize("start", [1, 2, 3])
def test_it_holds_for_drawn_networks(start: int, tmp_path: Path) -> None:
    assert longer(counted("cortex-m4f", drawn(20, start), tmp_path), coefficients()["cortex-m4f"]) == []


# ---------------------------------------------------------------- what is said of it


def test_every_op_has_coefficients() -> None:
    for core, model in coefficients().items():
        assert core in KNOWN and set(TABLE) - {"stream"} | {BEGIN, STREAM} == model.keys()
        assert all(each > 0 for op in model.values() for each in op.values())


def test_a_graph_with_an_op_that_was_not_measured_has_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    from microtrain.convert import pieces as module

    graph = compile_graph(residual_network(), SCHEME, 5).graph
    assert set(module.bounds(graph)) == set(coefficients())
    less = {
        core: {op: each for op, each in model.items() if op != "add"}
        for core, model in coefficients().items()
    }
    monkeypatch.setattr(module, "coefficients", lambda: less)
    assert module.bounds(graph) == {}


def test_windows_that_overlap_have_no_bound() -> None:
    graph = compile_graph(residual_network(), SCHEME, 5).graph
    assert bounds(graph) and bounds(graph.replace(hop=2)) == {}


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
_Static_assert(RESIDUAL_PIECE_INSTRUCTIONS(RESIDUAL_PIECE_WORK(400000)) <= 400000, "a deadline");
_Static_assert(RESIDUAL_PIECE_INSTRUCTIONS(4000000000u) > 4000000000u / 2, "no number is too large");
const uint32_t numbers[] = {RESIDUAL_PIECE_INSTRUCTIONS(1), RESIDUAL_PIECE_INSTRUCTIONS(30000)};
"""
NUMBERS = re.compile(r"^numbers:\s+\.(?:4byte|word)\s+(\d+)\s+\.(?:4byte|word)\s+(\d+)", re.MULTILINE)


@pytest.mark.parametrize("core", ["cortex-m4f", "cortex-m7", "cortex-m33", "rv32imafc"])
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
    model = coefficients()[core if core[0] == "r" else "cortex-m4f"]
    most = bound(compile_graph(residual_network(), SCHEME, 5).graph, model)
    assert found is not None
    for said, work in zip(map(int, found.groups()), (1, 30_000), strict=True):
        assert most.at(work) <= said <= most.at(work) + 1


@pytest.mark.parametrize(
    "compiler",
    [
        "gcc",
        "arm-none-eabi-gcc -mthumb -mcpu=cortex-m55 -mfloat-abi=hard --specs=picolibc.specs",
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
    assert most.work(most.least - 1) == 1
