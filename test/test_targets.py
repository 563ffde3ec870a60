"""`convert --task regression` and `multilabel`: losses against targets, with the same bits everywhere."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from autograd import cosine, gradients
from library import ARGUMENT, OK, TASK, Learner, pointer, shared, u32, written
from library import images as pictures
from networks import residual_network
from test_executor import images, partly_trained
from test_gradients import LEAST, STILL, everything, image

from microtrain.convert.emit.code import generate
from microtrain.convert.execute.executor import Executor
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.native_model import Sgd as NativeSgd
from microtrain.convert.ops.regression import measured
from microtrain.convert.pipeline import Compiled
from microtrain.convert.reference.numeric import Sgd
from microtrain.samples.stored import stored

LOSSES = ("huber", "squares", "labels")


def network(loss: str) -> Graph:
    """The residual network; of a regression with outputs that are far apart in size."""
    graph = residual_network()
    outputs = graph.tensors[graph.output].channels
    spread = np.random.default_rng(0).normal(0, 10.0 ** np.linspace(-1, 2, outputs), (50, outputs))
    return graph if loss == "labels" else measured(graph, spread)


def target(graph: Graph, loss: str, seed: int = 0) -> np.ndarray:
    rng, outputs = np.random.default_rng(seed), graph.tensors[graph.output].channels
    if loss == "labels":
        return rng.integers(0, 2, outputs).astype(np.float32)
    return (rng.normal(0, 2, outputs) * graph.forward_nodes[-1].factors).astype(np.float32)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("errors", ["fp32", "int8"])
def test_gradients_are_those_of_autograd(errors: str, loss: str) -> None:
    """PyTorch's losses of outputs in their units. The head's rows learn as if they were in units too."""
    graph = everything(network(loss), loss).graph
    executor, wanted = Executor(graph, errors), target(graph, loss)
    executor.forward(image(graph))
    oracle = gradients(executor, wanted, loss)
    executor.backward(wanted, STILL)
    if loss != "labels":
        head, units = graph.forward_nodes[-1].layer or "", np.array(graph.forward_nodes[-1].factors)
        for kind in ("weight", "bias"):
            grad = oracle[head, kind]
            oracle[head, kind] = grad * np.square(units).reshape(-1, *[1] * (grad.ndim - 1))
    found = {key: cosine(grad, oracle[key]) for key, grad in executor.env.gradients.items()}
    assert len(found) > 8 and min(found.values()) > LEAST[errors], found


def train_both(trained: Compiled, loss: str, native: NativeModel, steps: int) -> list[float]:
    """Steps on both sides, compared after each; returns the losses."""
    executor, losses = Executor(trained.graph), []
    for step, sample in enumerate(images(trained.graph, steps)):
        wanted, about = target(trained.graph, loss, step), (0.01, 0.01, 0.01, 7, step)
        assert native.forward(sample, True).tobytes() == executor.forward(sample).tobytes()
        losses.append(executor.backward(wanted, Sgd(*about)))
        assert native.backward(wanted, NativeSgd(*about)) == np.float32(losses[-1])
        assert native.trainables() == executor.trainables(), step
    return losses


@pytest.mark.parametrize("loss", LOSSES)
def test_generated_code_trains_like_the_executor(loss: str, tmp_path: Path) -> None:
    trained = partly_trained(network(loss), 4, loss)
    train_both(trained, loss, NativeModel(generate(trained, "a test"), tmp_path), 6)


@pytest.mark.parametrize("work", [0, 2000])
def test_the_library_takes_targets(work: int, tmp_path: Path) -> None:
    """The bits of the firmware, whole and in pieces; labels are refused, and numbers that are none."""
    trained = partly_trained(network("huber"), 4, "huber")
    lib = shared(written(trained, "meter", tmp_path / "lib", tmp_path / "generated"))
    native, learner = NativeModel(generate(trained, "a test"), tmp_path / "native"), Learner(lib, "meter")
    assert learner.sizes.targets == learner.sizes.classes
    for step, pixels in enumerate(pictures(learner.shape, 4)):
        wanted = target(trained.graph, "huber", step)
        numbers, loss = wanted.ctypes.data_as(pointer), ctypes.c_float()
        learner.feed(pixels)
        if work:
            assert learner.call("train_target_begin", numbers) == OK
            loss.value, _ = learner.finish(work)
        else:
            assert learner.call("train_target", numbers, ctypes.byref(loss)) == OK
        native.forward(stored(pixels, trained.graph.input), train=True)
        assert native.backward(wanted, NativeSgd(*trained.scheme.rates, 1, step)) == loss.value
    assert learner.trainables() == native.trainables()
    learner.feed(pixels)
    assert learner.call("train", u32(0), None) == learner.call("train_begin", u32(0)) == TASK
    wanted[-1] = np.nan
    assert learner.call("train_target", wanted.ctypes.data_as(pointer), None) == ARGUMENT


def test_outputs_without_units_are_refused() -> None:
    with pytest.raises(ConvertError, match="--task regression"):
        generate(everything(residual_network(), "huber"), "a test")
