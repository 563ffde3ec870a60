"""Keras' recurrent layers in TFLite files: TFLite's own values; every integer of its int8 LSTM."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interpreted import interpreted as in_floats
from test_executor import run_both

from lab.attack.recurrent_networks import (
    NETWORKS,
    Inside,
    int8_last_row,
    int8_over_time,
    last_row,
    looped,
    over_time,
)
from lab.attack.tflite_files import Int8, Writer
from lab.attack.tflite_networks import Float
from lab.tasks.logits import int8_graph, interpreted, logits
from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops.recurrent import INTEGER_LSTM, LAST
from microtrain.convert.ops.recurrent_cell import LSTM
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.reference.fixed_point import logistic16, tangent16
from microtrain.convert.scheme import Scheme

TIME, FEATURES, UNITS = 12, 5, 9
EVERY = np.arange(-(2**15), 2**15)


@pytest.mark.parametrize("make", NETWORKS)
def test_a_float_file(make: Callable[[], Float], tmp_path: Path) -> None:
    path = make().file(tmp_path)
    graph = load_model(path).graph
    pixels = np.random.default_rng(1).integers(0, 256, (8, 6, 5)).astype(np.uint8)
    found = run_float(graph, pixels.reshape(8, *graph.tensors[graph.input.tensor].shape))
    np.testing.assert_allclose(found.reshape(8, 3), in_floats(path, pixels), atol=2e-5)


def with_cells(seed: int) -> Int8:
    """Cells of every range, small ones and some that saturate or are cut off; scales that do not agree."""
    net = Int8.input((TIME, FEATURES), seed, scale=float(2.0 ** (seed % 5 - 6)), zero=3 - 9 * seed)
    left, read = (0.0055 + 0.0007 * seed, 4 * seed - 9), (0.0078 - 0.0004 * seed, 5 - seed)
    sides = (
        {"y": left, "left": left, "read": left} if seed % 2 else {"y": (0.007, 2), "left": left, "read": read}
    )
    return int8_over_time(
        net, UNITS, **sides, bits=seed % 7, clip=(0.0, 0.7, 10.0)[seed % 3], wide=0.01 * (1 + seed)
    )


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("seed", range(14))
def test_an_int8_file_has_every_integer_of_the_reference_kernel(
    seed: int, last: bool, tmp_path: Path
) -> None:
    net = with_cells(seed)
    net = int8_last_row(net).dense(4, (0.02, 5), 0) if last else net.linear(4, (0.02, 5))
    path = tmp_path / "m.tflite"
    path.write_bytes(net.file())
    graph = int8_graph(path)
    assert (LAST[INTEGER_LSTM] if last else INTEGER_LSTM) in {node.op for node in graph.nodes}
    samples = np.random.default_rng(seed).integers(-128, 128, (10, TIME, FEATURES)).astype(np.int8)
    wanted, said = interpreted(path, samples, reference=True)
    np.testing.assert_array_equal(logits(graph, samples, said), wanted)
    assert np.ptp(wanted, axis=0).min() > 2, "the logits say something"


@pytest.mark.parametrize("seed", [2, 5])
def test_the_device_has_them_too(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(int8_last_row(with_cells(seed)).dense(4, (0.02, 5), 0).softmax().file())
    compiled = compile_graph(int8_graph(path), Scheme("s", 0, head="keep"), 4)
    run_both(compiled, NativeModel(generate(compiled, "a test"), tmp_path), 5)


def test_functions_of_16_bits_are_what_they_say() -> None:
    assert np.abs(logistic16(EVERY) / 2**15 - 1 / (1 + np.exp(-EVERY / 2**12))).max() < 2.0**-12
    for bits in range(7):
        real = 2 / (1 + np.exp(-EVERY * 2.0 ** (bits - 14))) - 1
        assert np.abs(tangent16(EVERY, bits) / 2**15 - real).max() < 2.0**-11


def test_a_file_that_cuts_its_cell_off_earlier_than_it_could_grow_is_announced(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="cuts its cell off at 2 in the file and not here"):
        load_model(last_row(over_time(Float(6, 5), 7, clip=2.0)).linear(3).file(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_model(last_row(over_time(Float(6, 5), 7, clip=6.0)).linear(3).file(tmp_path))


def test_a_cell_for_which_tflite_has_no_kernel_is_computed_with_more_bits(tmp_path: Path) -> None:
    side = (0.0078, 0)
    net = int8_over_time(
        Int8.input((TIME, FEATURES)), UNITS, y=side, left=side, read=side, bits=-1, wide=0.002
    )
    path = tmp_path / "m.tflite"
    path.write_bytes(net.linear(4, (0.02, 5)).file())
    with pytest.warns(
        UserWarning, match="lstm0 keeps its cell in units of 1.52588e-05, for which TFLite has no"
    ):
        loaded = load_model(path).graph
    graph = int8_graph(path)
    pixels = np.random.default_rng(0).integers(0, 256, (20, *graph.tensors["input"].shape)).astype(np.uint8)
    found, wanted = (run(g, pixels).ravel() for run, g in ((run_int8, graph), (run_float, loaded)))
    assert graph.nodes[0].op == LSTM and np.abs(found - wanted).max() < 0.04 * np.ptp(wanted)


def turned_round(net: Int8, y: tuple[float, int]) -> Int8:
    """Rows in the other order; the same integers, under a scale and a zero point of their own."""
    axis = net.w.tensor("axis", (1,), "int32", np.array([1]))
    made = net.w.tensor("turned", (1, *net.shape), scale=y[:1], zero=y[1:])
    net.w.op("REVERSE_V2", (net.x, axis), (made,), "ReverseV2Options")
    net.x, net.scale, net.zero = made, y[0], y[1]
    return net


def test_integers_that_go_on_under_another_scale(tmp_path: Path) -> None:
    """As TensorFlow's converter writes bidirectional layers that return all rows."""
    path = tmp_path / "m.tflite"
    path.write_bytes(turned_round(with_cells(1), (0.0093, 12)).linear(4, (0.02, 5)).file())
    samples = np.random.default_rng(0).integers(-128, 128, (10, TIME, FEATURES)).astype(np.int8)
    wanted, said = interpreted(path, samples, reference=True)
    np.testing.assert_array_equal(logits(int8_graph(path), samples, said), wanted)


@pytest.mark.parametrize(
    "place, what",
    [(9, "peepholes"), (16, "a projection"), (20, "layer norms"), (-1, "coupled gates"), (-13, "no biases")],
)
def test_what_no_cell_here_has(place: int, what: str, tmp_path: Path) -> None:
    given = {"given": place} if place > 0 else {"left_out": -place}
    path = last_row(over_time(Float(6, 5), 7, **given)).linear(3).file(tmp_path)
    with pytest.raises(ConvertError, match=f"an LSTM with {what} is not supported"):
        load_model(path)


def test_a_loop_that_does_not_begin_with_zeros(tmp_path: Path) -> None:
    path = looped(Float(6, 5), 7, 3, begin=0.5).linear(3).file(tmp_path)
    with pytest.raises(ConvertError, match="while1: a loop that does not begin with zeros is not supported"):
        load_model(path)


def test_a_loop_whose_cell_is_read(tmp_path: Path) -> None:
    net = looped(Float(6, 5), 7, 4)
    net.x -= 3  # the cell that the loop leaves
    with pytest.raises(ConvertError, match="a loop whose cell or whose number of moments is read"):
        load_model(net.linear(3).file(tmp_path))


@pytest.mark.parametrize(
    ("changed", "into"), [("SUB", "ADD"), ("TANH", "LOGISTIC"), ("MUL", "ADD"), ("LESS", "LESS_EQUAL")]
)
def test_a_loop_of_another_cell(
    changed: str, into: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it computes is looked at: a GRU with one operator in the place of another is none."""
    write = Writer.op

    def other(self: Writer, kind: str, *args: Any, **about: Any) -> None:
        write(self, into if kind == changed else kind, *args, **about)

    monkeypatch.setattr(Writer, "op", other)
    path = looped(Float(6, 5), 7, 3).linear(3).file(tmp_path)
    with pytest.raises(ConvertError, match="a loop of another cell is not supported; the nearest"):
        load_model(path)


@pytest.mark.parametrize(
    ("after", "kind", "said"),
    [("TANH", "CAST", "with CAST in its cell"), ("ADD", "FLOOR_DIV", "with FLOOR_DIV")],
)
def test_a_loop_whose_data_decide(
    after: str, kind: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cast to whole numbers is one of all that were drawn, and of none that is larger."""
    plain = Inside.op

    def other(self: Inside, own: str, inputs: Any, shape: Any, *args: Any, **about: Any) -> int:
        made = plain(self, own, inputs, shape, *args, **about)
        given = (made, made)[: 2 if kind == "FLOOR_DIV" else 1]
        return plain(self, kind, given, shape) if own == after and len(shape) == 2 else made

    monkeypatch.setattr(Inside, "op", other)
    path = looped(Float(6, 5), 7, 1).linear(3).file(tmp_path)
    with pytest.raises(ConvertError, match=f"a loop {said}"):
        load_model(path)


def test_a_loop_that_ends_by_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Inside.op

    def other(self: Inside, own: str, inputs: Any, shape: Any, *args: Any, **about: Any) -> int:
        if own == "LOGICAL_AND":  # tensor 3 of the condition is the state
            inputs = (inputs[0], plain(self, "LESS", (3, 3), (), "bool"))
        return plain(self, own, inputs, shape, *args, **about)

    monkeypatch.setattr(Inside, "op", other)
    path = looped(Float(6, 5), 7, 1).linear(3).file(tmp_path)
    with pytest.raises(ConvertError, match="a loop that goes on as long as its data say"):
        load_model(path)


def test_a_graph_that_nothing_runs_is_not_left_out_silently(tmp_path: Path) -> None:
    net = looped(Float(6, 5), 7, 1).linear(3)
    other = net.w.beside()
    other.graph([x := other.tensor("x", (1, 5), "float32")], [x])
    with pytest.raises(ConvertError, match="holds 2 graphs that stand alone, as of several signatures"):
        load_model(net.file(tmp_path))


def test_a_network_that_was_made_to_stream_is_a_sentence(tmp_path: Path) -> None:
    """As microWakeWord's: a graph beside it says what its states begin with."""
    net = Float(6, 5)
    net.w.op("VAR_HANDLE", (), (net.w.tensor("state", (), "int32"),))
    other = net.w.beside()
    other.graph([], [])
    with pytest.raises(ConvertError, match=r"from one call to the next \(VAR_HANDLE\), as one"):
        load_model(net.linear(3).file(tmp_path))
