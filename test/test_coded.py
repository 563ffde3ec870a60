"""Weights as codes: what a layer loses to them, the same bytes everywhere, what conversion says of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import Builder, residual_network
from test_convert_cli import EXAMPLE, MODEL, convert, refused
from test_executor import run_both
from test_parallel import assert_simulated, image_of
from test_stream import assert_same_logits

from lab.bench import accuracy
from lab.networks import coded_weights, varied_network, with_codes
from lab.trellis.learn import signal
from microtrain.base.npz import read_npz
from microtrain.base.plan import read_plan
from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_int8
from microtrain.convert.execute.executor import Executor
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import coded
from microtrain.convert.ops.coded import candidates
from microtrain.convert.pipeline import Compiled, Passes, compile_graph
from microtrain.convert.quantize.compress import LEAST_SIGNAL, Trained, compressed
from microtrain.convert.quantize.pair_codes import SPREAD, Inputs, fit
from microtrain.convert.scheme import Scheme, convolutions

PHOTOS = EXAMPLE / "calibration.npz"


def biased(graph: Graph, passes: Passes | None = None) -> Compiled:
    """The biases of all layers are trained, no weights but the head's."""
    return compile_graph(graph, Scheme("biases", -1, head="random"), 5, passes or Passes())


# ---------------------------------------------------------------- codes
@pytest.mark.parametrize("length", [1, 2, 7, 40, 41])
def test_codes_are_the_weights(length: int) -> None:
    rows = coded_weights(np.random.default_rng(length), (30, length))
    codes, state = coded.codes_of(rows), np.zeros(30, int)
    decoded = np.empty((30, length + 1), np.int8)
    for k in range(0, length, 2):
        code = codes[:, k // 2].astype(int)
        decoded[:, k : k + 2] = coded.PAIRS[code, state]
        state = code >> 6
    np.testing.assert_array_equal(decoded[:, :length], rows)


@pytest.mark.parametrize("length", [6, 7])
def test_other_weights_have_no_codes(length: int) -> None:
    rows = coded_weights(np.random.default_rng(0), (4, length))
    turned = rows[:, ::-1]
    for wrong in (turned, np.where(np.arange(length) == length - 1, -128, rows)):
        with pytest.raises(ValueError, match="no path through the trellis"):
            coded.codes_of(wrong.astype(np.int8))


def test_the_table_is_good_for_normal_numbers() -> None:
    """Better than any table of 256 pairs is, 20.8 dB; one that is the same in each state is not."""
    assert len(np.unique(coded.PAIRS.reshape(-1, 2), axis=0)) == coded.CODES * coded.STATES
    table = coded.PAIRS / SPREAD
    assert signal(table) > 21.9
    assert signal(np.repeat(table[:, :1], coded.STATES, axis=1)) < 20.8


def drawn_layer(columns: int = 31) -> tuple[np.ndarray, Inputs]:
    """Weights, and inputs that vary together."""
    rng = np.random.default_rng(1)
    weight = np.clip(np.rint(rng.normal(0, 40, (64, columns))), -127, 127).astype(np.int8)
    weight[3] = 0
    x = rng.normal(0, 1, (4000, columns)) @ rng.normal(0, 1, (columns, columns))
    seen = np.cov(x.T, bias=True)
    return weight, Inputs(seen)


def lost(weight: np.ndarray, inputs: Inputs, quick: bool) -> float:
    """What codes change of the sums, in parts of their energy."""
    found = fit(weight, inputs, quick)
    coded.codes_of(found.stored)
    change = found.stored / found.factor[:, None] - weight
    return float(np.trace(change @ inputs.seen @ change.T) / np.trace(weight @ inputs.seen @ weight.T))


@pytest.mark.parametrize("columns", [30, 31])
def test_errors_passed_on_change_the_sums_less(columns: int) -> None:
    weight, inputs = drawn_layer(columns)
    assert lost(weight, inputs, quick=False) < 0.75 * lost(weight, inputs, quick=True) < 0.02


def test_depthwise_pairs_that_know_their_inputs_change_the_sums_less() -> None:
    rng = np.random.default_rng(3)
    weight = np.clip(np.rint(rng.normal(0, 40, (96, 25))), -127, 127).astype(np.int8)
    weight[5] = 0
    mixed = rng.normal(0, 1, (96, 25, 25))
    seen = mixed @ mixed.transpose(0, 2, 1)
    change = {}
    for quick in (True, False):
        found = fit(weight, Inputs(seen), quick)
        coded.codes_of(found.stored)
        assert not found.stored[5].any() and found.factor[5] == 1.0
        off = found.stored / found.factor[:, None] - weight
        change[quick] = float(np.einsum("ck,ckl,cl->", off, seen, off))
    assert change[False] < 0.75 * change[True]


def test_a_channel_without_weights_keeps_none_and_its_scale() -> None:
    found = fit(*drawn_layer())
    assert not found.stored[3].any() and found.factor[3] == 1.0


def test_weights_follow_the_inputs_that_they_will_have() -> None:
    """Inputs that have become half as large want weights of twice the size."""
    weight, inputs = drawn_layer(30)
    halved = fit(weight, Inputs(inputs.seen / 4, inputs.seen / 2))
    ratio = np.sum(halved.stored / halved.factor[:, None] * weight) / np.sum(np.square(weight.astype(float)))
    assert 1.6 < ratio < 2.1


# ---------------------------------------------------------------- the same bytes
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("seed", range(5))
def test_generated_code_trains_like_the_executor(seed: int, compiler: str, tmp_path: Path) -> None:
    """Random networks: all layers of codes but two, which are trained."""
    graph = with_codes(varied_network(seed), seed, skip=2)
    names = [n.layer for n in graph.nodes if n.layer and coded.can_be_coded(graph, n)]
    weights: dict[str | int, float | tuple[int, ...]] = {name: 1.0 for name in names if name}
    scheme = Scheme("s", -1, weights, fraction_bits=4, head="random")
    compiled = compile_graph(graph, scheme, graph.tensors[graph.output].channels)
    run_both(compiled, NativeModel(generate(compiled, "a test"), tmp_path, compiler), 5)


def test_codes_compute_what_their_weights_compute() -> None:
    """A network of codes and one of the same weights as int8: logits, and what a step learns."""
    graph = with_codes(residual_network())
    dense = graph.replace(
        nodes=tuple(replace(n, op="conv2d") if n.op == coded.CODED else n for n in graph.nodes)
    )
    assert dense.nodes != graph.nodes
    runs = [Executor(biased(each).graph) for each in (graph, dense)]
    image = image_of(graph, 1)
    first, second = (run.forward(image).tobytes() for run in runs)
    assert first == second


def small_maps() -> Graph:
    """A depthwise layer of maps that are small beside others."""
    b = Builder(np.random.default_rng(6), (32, 32, 3))
    x = b.conv(b.conv(b.conv("x", 24, 3, 2), 24, 3, 2), 48, 3, 2)
    return b.finish(b.conv(b.depthwise(x), 24), 5)


def test_depthwise_codes_train_like_the_executor(tmp_path: Path) -> None:
    compiled = biased(with_codes(small_maps()))
    assert {"cdwconv2d", "cdwconv2d_bwd_x"} <= {node.op for node in compiled.graph.nodes}
    run_both(compiled, NativeModel(generate(compiled, "a test"), tmp_path), 5)


def test_depthwise_layers_of_large_maps_stay() -> None:
    graph = wide_network()
    depthwise = [n for n in graph.nodes if n.op == "dwconv2d"]
    assert depthwise and not any(coded.can_be_coded(graph, n) for n in depthwise)


@pytest.mark.parametrize("arriving", [True, False])
def test_rows_give_the_same_logits(arriving: bool, tmp_path: Path) -> None:
    graph = with_codes(residual_network())
    frozen = compile_graph(graph, Scheme("head", head="random"), 5, Passes(arriving=arriving))
    assert any(part.op == coded.CODED for node in frozen.graph.nodes for part in node.parts)
    assert_same_logits(frozen, tmp_path)


def test_the_simulation_has_the_executors_gradients(tmp_path: Path) -> None:
    graph = with_codes(residual_network())
    model = compile_graph(graph, Scheme("b", -1, head="random"), 4, Passes(fused=False))
    assert_simulated(model, image_of(graph, 1), tmp_path)


def test_weights_in_four_bits_cannot_be_trained() -> None:
    graph = with_codes(residual_network())
    name = convolutions(graph)[0]
    with pytest.raises(ConvertError, match=f"{name} has weights in 4 bits, which cannot be trained"):
        compile_graph(graph, Scheme("s", weights={name: 1.0}), 4)


# ---------------------------------------------------------------- the pass
def wide_network() -> Graph:
    """Layers of which some take less flash as codes."""
    b = Builder(np.random.default_rng(2), (16, 16, 3))
    x = b.conv("x", 24, 3, 2)
    for _ in range(2):
        x = b.conv(b.depthwise(b.conv(x, 96)), 24, relu=False)
    return b.finish(x, 10)


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.random.default_rng(4).integers(0, 256, (40, 16, 16, 3)).astype(np.uint8)


def test_all_frozen_layers_or_as_many_as_keep_the_answers(images: np.ndarray) -> None:
    graph = wide_network()
    names = candidates(graph, frozenset())
    assert len(names) == 4 and graph.nodes[0].layer not in names  # its codes would take as much as it does
    every, some = (compressed(graph, images, Trained(frozenset(names[:1])), every) for every in (True, False))
    assert every.compression is not None and some.compression is not None
    assert every.compression.layers == tuple(names[1:])
    assert set(some.compression.layers) <= set(names[1:]) and some.compression.signal >= LEAST_SIGNAL
    assert some.compression.signal >= every.compression.signal
    for name in names[1:]:
        coded.codes_of(every.layers[name].weight)
    logits = [run_int8(g, images) for g in (graph, every)]
    signal = np.square(logits[0] - logits[0].mean(axis=1, keepdims=True)).sum()
    assert np.square(logits[1] - logits[0]).sum() < 0.2 * signal


def test_trained_biases_of_compressed_models_are_lean(images: np.ndarray, tmp_path: Path) -> None:
    """16 bits and no table of scaling, the same numbers in C and in NumPy."""
    graph = wide_network()
    small = compressed(graph, images, Trained(biases=frozenset(convolutions(graph))), every=True)
    plain, lean = (biased(each) for each in (graph, small))
    before, after = ("".join(generate(each, "a test").files.values()) for each in (plain, lean))
    assert "qas_b_" in before and "lean_" not in before
    assert "qas_b_" not in after and "lean_" in after
    run_both(lean, NativeModel(generate(lean, "a test"), tmp_path), 5)


def test_biases_behind_coded_layers_follow(images: np.ndarray) -> None:
    graph = wide_network()
    first, second, *behind = candidates(graph, frozenset())
    found = compressed(graph, images, Trained(weights=frozenset(behind)), every=True)
    assert found.compression is not None and found.compression.layers == (first, second)
    assert len(behind) == 2
    assert all((found.layers[name].bias != graph.layers[name].bias).any() for name in behind)


def test_layers_that_save_less_than_the_table_takes_stay(images: np.ndarray) -> None:
    graph = wide_network()
    first, *others = candidates(graph, frozenset())
    assert 0 < coded.saved_by(graph.layers[first]) < coded.TABLE_BYTES
    assert candidates(graph, frozenset(others)) == []


def test_a_network_without_a_layer_to_code_is_told(images: np.ndarray) -> None:
    graph = wide_network()
    with pytest.raises(ConvertError, match="has no frozen layer that 4 bits make smaller"):
        compressed(graph, images, Trained(frozenset(graph.layers)), every=True)


# ---------------------------------------------------------------- the command
def test_conversion_says_what_it_saves_and_loses(tmp_path: Path) -> None:
    sizes = {}
    for bits in ("8", "4"):
        done = convert(MODEL, "--scheme", "bias-only", "--weights-bits", bits, "-o", tmp_path / bits)
        assert done.exit_code == 0, done.output
        sizes[bits] = read_plan(tmp_path / bits / "plan.json")
    plain, small = sizes["8"], sizes["4"]
    assert plain.compression is None and "compression" not in json.loads(plain.path.read_text())
    found = small.compression
    assert found is not None and found.layers and found.signal > 10 and found.same > 0.8
    assert plain.flash.weights - small.flash.weights == found.saved > 0
    assert {row.layer for row in small.layers if row.op == coded.CODED} == set(found.layers)
    said = f"4 bits in {len(found.layers)} layers, {found.saved:,} B of flash less"
    assert said in done.output and said in (tmp_path / "4/report.html").read_text()


def test_a_checkpoint_without_photographs_is_told(tmp_path: Path) -> None:
    from lab.golden.data import find

    try:
        model = find().checkpoint("mcunet-5fps")
    except Exception:
        pytest.skip("MICROTRAIN_DATA is not set")
    said = refused(tmp_path / "out", model, "--weights-bits", "4", "--classes", 10)
    assert re.search(r"carries no calibration samples: pass --calibration DIR", " ".join(said.split()))


def test_a_scheme_that_trains_everything_leaves_nothing_to_code(tmp_path: Path) -> None:
    said = refused(tmp_path / "out", MODEL, "--weights-bits", "4", "--scheme", "full")
    wanted = "no frozen layer that 4 bits make smaller: convert with --weights-bits 8"
    assert wanted in " ".join(said.split())


class Numbered:
    """Test data whose image of ImageNet number n holds n, and is of class n % 3."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def imagenet(self) -> Iterator[tuple[np.ndarray, int]]:
        side = np.zeros((accuracy.SIDE, accuracy.SIDE, 3), np.int8)
        return iter([(side + np.int8(number - accuracy.SHOWN), number % 3) for number in range(1, 8)])

    def checkpoint(self, network: str) -> Path:
        return self.folder / network


def test_a_model_is_judged_on_images_that_it_was_not_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data: Any = Numbered(tmp_path)
    monkeypatch.setattr(
        accuracy, "_photos", lambda _: np.zeros((4, accuracy.SIDE, accuracy.SIDE, 3), np.uint8)
    )

    def numbers(images: np.ndarray) -> set[int]:
        return {int(image[0, 0, 0]) for image in images} - {0}

    def answers(left_out: set[int], images: np.ndarray) -> np.ndarray:
        """Right, by a model that was not made of these images."""
        right = images[:, 0, 0, 0] % 3 + (not numbers(images) <= left_out)
        found: np.ndarray = np.eye(4)[right]
        return found

    made = [
        numbers(read_npz(accuracy.photos_without(data, tmp_path, part))["images"])
        for part in range(accuracy.PARTS)
    ]
    assert set.union(*made) == set(range(1, 8)) and all(made)
    monkeypatch.setattr(accuracy, "read_checkpoint", lambda _: None)
    monkeypatch.setattr(accuracy, "_with_layers", lambda _, folder: set(range(1, 8)) - made[int(folder.name)])
    monkeypatch.setattr(accuracy, "batches", lambda _, images, __: [images])
    monkeypatch.setattr(accuracy, "run_int8", answers)
    assert accuracy.top1(data, "network", [Path("0"), Path("1")]) == 1
    assert accuracy.top1(data, "network", [Path("1"), Path("0")]) == 0
