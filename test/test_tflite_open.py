"""Drawn TFLite files that leave sizes open, and drawn files into which trained weights were written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drawing import TIMES
from drawn_tflite import Drawn
from interpreted import interpreted
from test_drawn_int8 import drawn
from test_drawn_tflite import PIECES, alike, files

from lab.attack.tflite_files import Writer
from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import load_model
from microtrain.convert.frontends.tflite.reader import tflite_homes
from microtrain.convert.frontends.tflite.trained import trained_tflite
from microtrain.convert.ir import ConvertError

FILES = 12 * TIMES
OPENED = {"conv": 3, "depthwise": 3, "pool": 3, "linear": 3, "concatenation": 2, "view": 4, "transpose": 3}
OPENED |= {"reduced": 1, "stacked": 1, "ones": 3, "tile": 2, "unary": 3, "residual": 5}  # of FILES, at least


def as_open(net: Drawn) -> bytes:
    """The file with ones for all sizes that follow from others, and a signature that says so."""
    w, now = Writer(), dict[int, int]()
    made = {t for step in net.w.steps for t in step[2]}
    for number, shape in enumerate(net.w.shapes):
        dtype, data = net.w.types[number], net.w.constants.get(number)
        known = number not in made or len(shape) < 2
        now[number] = w.tensor(
            f"t{number}",
            shape if known else (1,) * len(shape),
            dtype,
            data,
            signature=() if known else (-1,) * len(shape),
        )
    for kind, inputs, outputs, table, about in net.w.steps:
        w.op(kind, [now.get(t, -1) for t in inputs], [now[t] for t in outputs], table, **about)
    return w.file((0,), (now[net.x],))


@pytest.mark.parametrize("name", PIECES)
def test_sizes_that_a_file_leaves_open(name: str, tmp_path: Path) -> None:
    """They follow from others, or a sentence says that one may vary."""
    count = 0
    for net, path, pixels, wanted in files(name, tmp_path, FILES):
        try:
            graph = load_model(path).graph
        except ConvertError:
            continue
        path.write_bytes(as_open(net))
        np.testing.assert_array_equal(interpreted(path, pixels), wanted)
        try:
            opened = load_model(path).graph
        except ConvertError as error:
            assert "has a size that may vary" in str(error)
            continue
        samples = pixels.reshape(3, *graph.tensors["input"].shape)
        np.testing.assert_array_equal(run_float(opened, samples), run_float(graph, samples))
        count += 1
    assert count >= OPENED.get(name, 0)


def drawn_weights(path: Path, rng: np.random.Generator, head: tuple[str, str]) -> dict[str, np.ndarray]:
    """Other numbers for all constants of layers, one class more, and biases where there are none."""
    homes = tflite_homes(path)
    made = {name: home.value + rng.normal(0, 0.1, home.value.shape) for name, home in homes.items()}
    made[head[0]] = rng.normal(0, 0.5, (4, *homes[head[0]].value.shape[1:]))
    made[head[1]] = rng.normal(0, 0.5, 4)
    for name in homes:
        if name.endswith(".weight") and name[:3] in ("fc0", "fc1", "fc2", "con", "dec", "dwc"):
            made.setdefault(name.removesuffix("weight") + "bias", rng.normal(0, 0.1, len(homes[name].value)))
    return {name: value.astype(np.float32) for name, value in made.items()}


@pytest.mark.parametrize("name", PIECES)
def test_weights_go_back_into_a_file(name: str, tmp_path: Path) -> None:
    """What is read from the copy is what was written, and answers so in TFLite."""
    rng = np.random.default_rng(0)
    for net, path, pixels, _ in files(name, tmp_path, FILES):
        try:
            graph = load_model(path).graph
        except ConvertError:
            continue
        source = graph.layers[graph.nodes[-1].layer or ""].source
        head = (source.weight, source.bias or f"{source.weight.removesuffix('weight')}bias")
        if head[0] not in tflite_homes(path):
            continue
        trained = drawn_weights(path, rng, head)
        path.write_bytes(trained_tflite(path, tflite_homes(path), trained, head))
        homes = tflite_homes(path)
        for each, value in trained.items():
            apart = homes[each].apart * np.abs(value).max()
            np.testing.assert_allclose(homes[each].value, value, rtol=0, atol=apart, err_msg=each)
        images = np.moveaxis(pixels, 1, -1) if net.first else pixels
        again = load_model(path).graph
        found = run_float(again, images.reshape(3, *again.tensors["input"].shape)).reshape(3, 4)
        wanted = interpreted(path, pixels)
        made = np.concatenate(
            [found, wanted]
        )  # a root of what is below 0 is NaN in TFLite, and a minimum drops it
        says = np.isfinite(made).all() and np.abs(made).max() < 1e4
        assert not says or alike(net, found, wanted)


def real_logits(path: Path, samples: np.ndarray) -> np.ndarray:
    """What TFLite makes of int8 samples where the last layer is one of floats."""
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    run = litert.Interpreter(str(path), experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF)
    run.allocate_tensors()
    entry, out, made = run.get_input_details()[0], run.get_output_details()[0], []
    for sample in samples:
        run.set_tensor(entry["index"], sample.reshape(entry["shape"]))
        run.invoke()
        made.append(run.get_tensor(out["index"]).reshape(-1).copy())
    return np.array(made)


@pytest.mark.parametrize("name", ["conv", "depthwise", "transposed", "linear", "view", "resize"])
def test_weights_go_back_into_a_file_of_integers(name: str, tmp_path: Path) -> None:
    """Those that it has give the logits that it gave, of a head that is float; others are in it to a unit."""
    made = [each for seed in range(1, 60) if (each := drawn(name, seed, tmp_path)) is not None]
    count = 0
    for path, samples, expected, (scale, zero) in made:
        try:
            graph = load_model(path).graph
        except ConvertError:
            continue
        source, homes = graph.layers[graph.nodes[-1].layer or ""].source, tflite_homes(path)
        head, out = (source.weight, source.bias or ""), tmp_path / "out.tflite"
        same = {key: home.value for key, home in homes.items() if home.scale is not None or key in head}
        out.write_bytes(trained_tflite(path, homes, same, head))
        inner = (expected > -128) & (expected < 127)
        apart = np.abs(real_logits(out, samples) - (expected - zero) * scale)[inner]
        assert apart.max(initial=0.0) < 1.01 * scale
        other = {key: 0.8 * value for key, value in same.items()}
        out.write_bytes(trained_tflite(path, homes, other, head))
        for key, home in tflite_homes(out).items():
            unit = homes[key].units if key in other and key not in head else None
            assert unit is None or (np.abs(home.value - other[key]) <= 0.501 * unit).all(), key
            assert key not in head or np.abs(home.value - other[key]).max() < 1e-6
        count += 1
    assert count > 3
