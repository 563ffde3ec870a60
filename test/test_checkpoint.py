"""The front end for published quantized checkpoints: a small one of the same layout, whole and damaged."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from microtrain.convert.cli import main
from microtrain.convert.execute.executor import Executor
from microtrain.convert.frontends.checkpoint import read_checkpoint
from microtrain.convert.pipeline import training_graph
from microtrain.convert.scheme import Scheme

Found = dict[str, Any]
SCALES = {"x_scale": 0.02, "x_zero": -3, "y_scale": 0.02, "y_zero": -3}


def conv(c_in: int, c_out: int, kernel: int = 1, stride: int = 1, depthwise: bool = False) -> Found:
    rng = np.random.default_rng(c_in * 1000 + c_out)
    shape = (c_out, 1 if depthwise else c_in, kernel, kernel)
    params = {
        "weight": rng.integers(-127, 128, shape).astype(np.int8),
        "bias": rng.integers(-500, 500, c_out).astype(np.int32),
        "w_scales": rng.uniform(0.001, 0.01, c_out).astype(np.float32),
        **SCALES,
    }
    return {
        "in_channel": c_in,
        "out_channel": c_out,
        "kernel_size": (kernel, kernel),
        "stride": stride,
        "groups": c_in if depthwise else 1,
        "params": params,
    }


def block(c_in: int, inner: int, c_out: int, residual: bool) -> Found:
    return {
        "pointwise1": conv(c_in, inner),
        "depthwise": conv(inner, inner, 3, 1, True),
        "pointwise2": conv(inner, c_out),
        "residual": {"params": dict(SCALES)} if residual else None,
        "se": None,
    }


def network() -> Found:
    return {
        "first_conv": conv(3, 4, 3, 2),
        "blocks": [block(4, 8, 6, False), block(6, 8, 6, True)],
        "feature_mix": None,
        "classifier": conv(6, 5),
    }


def run(folder: Path, found: object, *arguments: str) -> Result:
    """Convert a checkpoint on the command line."""
    path = folder / "net.pkl"
    path.write_bytes(found if isinstance(found, bytes) else pickle.dumps(found))
    options = ["--input", "3x16x16", "-o", str(folder / "out")]
    return CliRunner().invoke(main, [str(path), *options, *arguments])


def refusal(folder: Path, found: object, *arguments: str) -> str:
    """The one sentence of a refusal, which writes nothing and shows no traceback."""
    result = run(folder, found, *arguments)
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.output.startswith("convert: ")
    assert result.output.count("\n") == 1
    assert not (folder / "out").exists()
    return result.output


def test_the_small_network_converts(tmp_path: Path) -> None:
    result = run(tmp_path, network())
    assert result.exit_code == 0, result.output
    assert "became constants" not in result.output


def test_head_rows_are_multiplied_out(tmp_path: Path) -> None:
    found = network()
    (tmp_path / "net.pkl").write_bytes(pickle.dumps(found))
    graph = training_graph(read_checkpoint(tmp_path / "net.pkl", 16), Scheme("rows", head=(4, 1)), 2)
    params = found["classifier"]["params"]
    real = params["weight"][:, :, 0, 0] * params["w_scales"].astype(np.float64)[:, None]
    np.testing.assert_allclose(graph.layers["classifier"].weight, real[[4, 1]], rtol=1e-6)
    scale = params["w_scales"].astype(np.float64) * SCALES["x_scale"]
    np.testing.assert_allclose(graph.layers["classifier"].bias, (params["bias"] * scale)[[4, 1]], rtol=1e-6)


def second(found: Found, part: str = "depthwise") -> Found:
    result: Found = found["blocks"][1][part]
    return result


def params(found: Found, part: str = "depthwise") -> Found:
    result: Found = second(found, part)["params"]
    return result


def setting(key: str, value: object) -> Callable[[Found], None]:
    """Sets a parameter of the second block's depthwise convolution."""
    return lambda found: params(found).__setitem__(key, value)


def field(key: str, value: object) -> Callable[[Found], None]:
    return lambda found: second(found).__setitem__(key, value)


def part(key: str, value: object) -> Callable[[Found], None]:
    return lambda found: found["blocks"][1].__setitem__(key, value)


def top(key: str, value: object) -> Callable[[Found], None]:
    return lambda found: found.__setitem__(key, value)


def one_scale(value: float) -> Callable[[Found], None]:
    return lambda found: params(found)["w_scales"].__setitem__(2, value)


WRONG: dict[str, tuple[Callable[[Found], object], str]] = {
    "key": (lambda f: params(f).pop("w_scales"), "blocks.1.depthwise.params has no w_scales"),
    "conv key": (lambda f: second(f).pop("stride"), "blocks.1.depthwise has no stride"),
    "block key": (lambda f: f["blocks"][1].pop("depthwise"), "blocks.1 has no depthwise"),
    "classifier": (lambda f: f.pop("classifier"), "has no classifier"),
    "no blocks": (top("blocks", []), "blocks are no list"),
    "blocks": (top("blocks", 3), "blocks are no list"),
    "block": (lambda f: f["blocks"].append(7), "blocks.2 is a int, not a dict"),
    "first": (top("first_conv", None), "first_conv is a NoneType, not a dict"),
    "params": (field("params", None), "blocks.1.depthwise.params is a NoneType"),
    "list": (setting("weight", [1, 2]), "weight is list, not int8 (8, 1, 3, 3)"),
    "float weight": (lambda f: setting("weight", params(f)["weight"] * 1.0)(f), "weight is float64"),
    "wide weight": (lambda f: setting("weight", params(f)["weight"] + np.int16(0))(f), "int16, not int8"),
    "shape": (lambda f: setting("weight", params(f)["weight"][1:])(f), "weight is int8 (7, 1, 3, 3), not"),
    "bias shape": (lambda f: setting("bias", params(f)["bias"][1:])(f), "bias is int32 (7,), not"),
    "bias type": (
        lambda f: setting("bias", params(f)["bias"] + 0.5)(f),
        "bias is float64 (8,), not integers",
    ),
    "bias range": (lambda f: setting("bias", params(f)["bias"] + np.int64(2**33))(f), "no int32"),
    "text scales": (setting("w_scales", np.array(["a"] * 8)), "not floats (8,)"),
    "nan": (one_scale(np.nan), "w_scales must be finite"),
    "negative": (one_scale(-0.1), "w_scales must be finite"),
    "zeros": (setting("w_scales", np.zeros(8)), "w_scales must be finite"),
    "zero scale": (setting("y_scale", 0.0), "y_scale is 0.0; it must be a number above 0"),
    "infinite": (setting("x_scale", float("inf")), "x_scale is inf"),
    "array": (setting("x_scale", np.ones(3)), "x_scale is an array (3,)"),
    "zero point": (setting("y_zero", 300), "y_zero is 300; it must be a whole number -128 to 127"),
    "half": (setting("y_zero", 1.5), "y_zero is 1.5"),
    "mismatch": (setting("x_scale", 0.03), "expects an input of scale 0.03"),
    "kernel": (field("kernel_size", 3), "kernel_size is 3; it must be two odd numbers"),
    "even": (field("kernel_size", (2, 2)), "two odd numbers"),
    "stride": (field("stride", 0), "stride is 0"),
    "groups": (field("groups", 2), "2 groups"),
    "channels": (lambda f: f["blocks"].__setitem__(1, block(7, 8, 7, True)), "reads 7 channels, but gets 6"),
    "overflow": (setting("bias", np.full(8, 2**31 - 1, np.int32)), "beyond int32"),
    "multiplier": (setting("w_scales", np.full(8, 1e300)), "multiplier of channel 0"),
    "se": (part("se", {"reduce": 4}), "squeeze-and-excite"),
    "skip": (part("residual", conv(6, 6)), "convolution in its skip path"),
    "residual": (part("residual", {"params": {}}), "blocks.1.residual has no x_scale"),
    "residual key": (part("residual", {}), "blocks.1.residual has no params"),
    "residual nan": (part("residual", {"params": {**SCALES, "y_scale": np.nan}}), "y_scale is nan"),
    "residual scale": (part("residual", {"params": {**SCALES, "x_zero": 5}}), "zero 5"),
    "add": (lambda f: f["blocks"].__setitem__(0, block(4, 8, 6, True)), "adds (8, 8, 4) to (8, 8, 6)"),
    "no convolution": (lambda f: f["blocks"][1].update(block_of_nothing()), "has no convolution"),
    "mix": (top("feature_mix", conv(6, 6)), "feature_mix"),
    "classifier channels": (top("classifier", conv(7, 5)), "not a 1x1 one of the 6 features"),
    "code": (top("blocks", [Path]), "it holds pathlib"),
}


def block_of_nothing() -> Found:
    return dict.fromkeys(("pointwise1", "depthwise", "pointwise2"))


@pytest.mark.parametrize("how", WRONG)
def test_damaged_checkpoints_are_named(tmp_path: Path, how: str) -> None:
    change, said = WRONG[how]
    found = network()
    change(found)
    assert said in refusal(tmp_path, found)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        pickle.dumps(network())[:-200],
        b"cos\nsystem\n(Vtrue\ntR.",
        b"\x80\x04\x95" + b"\xff" * 8,
        b"c_codecs\nencode\n(Vabc\nVno such codec\ntR.",
        b"cnumpy\ndtype\n(I5\ntR.",
        b"PK\x03\x04 cut short",
        pickle.dumps([1, 2]),
    ],
)
def test_files_that_hold_no_checkpoint(tmp_path: Path, data: bytes) -> None:
    assert "net.pkl is no quantized checkpoint" in refusal(tmp_path, data)


def test_an_input_that_the_strides_do_not_divide(tmp_path: Path) -> None:
    """Outputs have the pixels that PyTorch gives them, with its padding."""
    path = tmp_path / "net.pkl"
    path.write_bytes(pickle.dumps(network()))
    graph, first = read_checkpoint(path, image=15), network()["first_conv"]
    (kernel, _), stride = first["kernel_size"], first["stride"]
    made = torch.nn.Conv2d(3, 1, kernel, stride, kernel // 2)(torch.zeros(1, 3, 15, 15))
    assert graph.tensors["first_conv.y"].shape[:2] == tuple(made.shape[2:]) == (8, 8)


def test_calibration_images_are_refused(tmp_path: Path) -> None:
    assert "quantized already" in refusal(
        tmp_path, network(), "--calibration", str(tmp_path), "--replay", "off"
    )


def test_a_scheme_of_another_network(tmp_path: Path) -> None:
    assert "made for mcunet-5fps" in refusal(tmp_path, network(), "--scheme", "mcunet-49kb")


def test_dead_channels_become_constants_and_are_said_once(tmp_path: Path) -> None:
    found = network()
    for name in ("pointwise1", "depthwise"):
        params(found, name)["w_scales"][:2] = (3.9e-9, 0.0)
        params(found, name)["bias"][:2] = (2**31 - 1, -(2**31))
    result = run(tmp_path, found)
    assert result.exit_code == 0, result.output
    assert result.output.count("became constants") == 1
    assert "4 channels" in result.output
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = read_checkpoint(tmp_path / "net.pkl", 16)
    executor = Executor(graph)
    executor.forward(np.zeros((16, 16, 3), np.int8))
    constant = np.rint((2**31 - 1) * float(np.float32(3.9e-9))) - 3
    assert set(executor.env.values["blocks.1.pointwise1.y"][..., 0].flat) == {min(127, int(constant))}
    assert set(executor.env.values["blocks.1.pointwise1.y"][..., 1].flat) == {-3}
