"""What the device's arithmetic is compared with, and the guard over a learning rate that is too high."""

from __future__ import annotations

import ctypes
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Built, run
from networks import residual_network

from microtrain.base.errors import Error
from microtrain.convert.emit.code import generate
from microtrain.convert.execute.executor import Executor
from microtrain.convert.native_model import NativeModel, Sgd
from microtrain.convert.ops.conv_constants import qas_weights
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.reference.kernels import Sgd as ReferenceSgd
from microtrain.convert.scheme import Scheme, convolutions
from microtrain.convert.trainables import layout
from microtrain.device.session import WINDOW, Log, Settings, TrainStep
from microtrain.native.model import Model, compile_model
from microtrain.simulate.arithmetic import check, forced, overwrite, plain_tables
from microtrain.simulate.blueprint import load_blueprint
from microtrain.simulate.guard import LastGood, diverges
from microtrain.simulate.machine import Machine, library
from microtrain.simulate.network import load_network

LR = 0.05


def test_truncating_weights_lose_what_is_below_a_unit(tmp_path: Path) -> None:
    """Every weight against NumPy, trunc(w - step), where that is not next to a whole number."""
    graph = residual_network()
    layers = convolutions(graph)[-2:]
    scheme = Scheme("test", 2, dict.fromkeys(layers, 1.0), head="random")
    model = compile_graph(graph, scheme, 4)
    output = generate(model, "a test")
    NativeModel(output, tmp_path)
    library = compile_model(tmp_path, tmp_path, forced=forced("truncating"))
    truncating, executor = Model(tmp_path, library), Executor(model.graph)
    image = np.random.default_rng(0).integers(-128, 128, truncating.shape).astype(np.int8)
    truncating.forward(image, train=True)
    truncating.backward(1, Sgd(LR, LR, LR, 1, 0))
    executor.forward(image)
    before = {name: executor.env.trained_columns(name).astype(np.float64) for name in layers}
    executor.backward(1, ReferenceSgd(LR, LR, LR, 1, 0))
    trained = truncating.trainables()
    changed = 0
    for name, old in before.items():
        factor = qas_weights(model.graph.layers[name]) / 65536.0
        step = LR * executor.env.gradients[name, "weight"] * factor.reshape(-1, *[1] * (old.ndim - 1))
        wanted, clear = np.trunc(old - step), np.abs(old - step - np.rint(old - step)) > 1e-3
        at = next(i for i in layout(model.graph) if (i.layer, i.kind) == (name, "weight"))
        found = np.frombuffer(trained, np.int8, old.size, at.offset).reshape(old.shape)
        np.testing.assert_array_equal(found[clear], wanted[clear])
        changed += int((found != old).sum())
    assert changed > 100


def test_plain_sgd_has_one_constant_for_all(example: Built, tmp_path: Path) -> None:
    plan = load_blueprint(example.folder)
    network = load_network(plan.folder, plan.model_id)
    tables = plain_tables(network)
    plain = Machine(plan, library(plan, tmp_path, "device-no-qas"), "device-no-qas")
    scaled = Machine(plan, library(plan, tmp_path))
    assert tables
    for symbol, values in tables.items():
        shape = ctypes.c_float * len(values)
        assert np.array_equal(np.array(shape.in_dll(plain.model.lib, symbol)), values)
        assert not np.array_equal(np.array(shape.in_dll(scaled.model.lib, symbol)), values)
        if symbol.startswith("qas_w_"):
            assert set(values) <= {np.float32(0), np.float32(65536 * network.plain_factor())}


def test_a_model_without_the_table_is_told(example: Built, tmp_path: Path) -> None:
    machine = Machine(load_blueprint(example.folder), library(load_blueprint(example.folder), tmp_path))
    with pytest.raises(Error, match=r"qas_b_none is not in this model.*--weights-bits 8"):
        overwrite(machine.model, "qas_b_none", np.zeros(3, np.float32))


def test_truncating_needs_whole_weights(example: Built) -> None:
    plan = load_blueprint(example.folder)
    bits = replace(plan, scheme=replace(plan.scheme, fraction_bits=4))
    check(plan, "truncating")
    with pytest.raises(Error, match="--fraction-bits 0"):
        check(bits, "truncating")


class Trained:
    """Something that counts how often it is asked."""

    guesses = 10

    def __init__(self) -> None:
        self.bytes = b"0"

    def pull(self) -> bytes:
        return self.bytes

    def push(self, block: bytes) -> None:
        self.bytes = block


def test_a_session_that_diverges_keeps_the_last_good_weights() -> None:
    holder, log = Trained(), Log({}, ("a",) * 10, Settings())
    guard = LastGood(holder)
    ended = 0
    for step in range(1, 4 * WINDOW):
        holder.bytes = str(step).encode()
        loss = 1.0 if step <= 2 * WINDOW + 10 else 30.0
        log.steps.append(TrainStep(step, 0, "", 0, 0, loss))
        if guard.spoiled(log):
            ended = step
            break
    assert 2 * WINDOW + 10 < ended < 3 * WINDOW
    assert holder.bytes == str(2 * WINDOW).encode()


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_ends_it_at_once(loss: float) -> None:
    steps = [TrainStep(1, 0, "", 0, 0, loss)]
    assert diverges(steps, 10)
    assert not diverges([TrainStep(1, 0, "", 0, 0, 3.0)], 10)


def test_the_command_line_says_at_which_step_it_diverged(
    example: Built, digits: Path, tmp_path: Path
) -> None:
    command = ["python", "tools/simulate", str(example.folder), "--data", str(digits)]
    options = ["--limit", "400", "--lr-factor", "1000", "--schedule", "constant", "-o", str(tmp_path / "out")]
    result = run([*command, *options])
    assert "diverged at step" in result
    assert "lower --lr" in result
