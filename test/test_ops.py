"""An op is one entry: a field left out is an error, no other file names one, a new one goes all the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from networks import residual_network
from test_executor import RATES, images
from test_parallel import assert_simulated
from torch import nn

from lab.house import op_names
from microtrain.convert.emit.code import generate
from microtrain.convert.execute.executor import Executor
from microtrain.convert.frontends.aten import affine
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import Graph, Node
from microtrain.convert.native_model import Sgd
from microtrain.convert.ops import TABLE, BackwardOp, ForwardOp, Op, bounds, functions, scale
from microtrain.convert.ops.outputs import Output
from microtrain.convert.ops.stage import ElementStage
from microtrain.convert.ops.table import (
    NOT_ALIGNED,
    Aten,
    Folds,
    Learns,
    Leaves,
    Updates,
    gathers_channels,
    in_place_of,
    no_arrays,
    no_facts,
    no_macs,
    no_scratch,
    no_statistics,
    no_structs,
    no_tables,
    shape_of_input,
)
from microtrain.convert.ops.unit import whole
from microtrain.convert.ops.work import by_size, one_way
from microtrain.convert.pipeline import Compiled, Passes, compile_graph
from microtrain.convert.quantize.int8 import quantize
from microtrain.convert.quantize.ranges import measure_ranges
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.hostlib import NUMBER, S8, Clamp, ErrorS8
from microtrain.convert.reference.kernels import Error
from microtrain.convert.scheme import Scheme
from microtrain.native.model import CHECKED, Model, compile_model

FIELDS = [(name, f.name) for name, op in TABLE.items() for f in fields(op) if f.name != "name"]


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_an_entry_that_leaves_a_field_out_is_an_error(name: str, field: str) -> None:
    """Most of them were once a wrong model without a word, or a message of gcc."""
    op = TABLE[name]
    said = {f.name: getattr(op, f.name) for f in fields(op) if f.name not in ("name", field)}
    with pytest.raises(TypeError, match=f"the entry of the op {name} says nothing of {field}$"):
        type(op)(name, **said)


def test_a_struct_that_no_entry_defines_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An entry that says it has no structs, but whose call uses one, does not get as far as gcc."""
    graph = compile_graph(residual_network(), Scheme("all", -1), 5)
    generate(graph, "a test")
    entry = TABLE["maxpool"]
    assert isinstance(entry, ForwardOp)
    monkeypatch.setitem(TABLE, "maxpool", replace(entry, step_structs=no_structs))
    with pytest.raises(ValueError, match=r"would use pool_maxpool\d+, which nothing defines: see layer_str"):
        generate(graph, "a test")


def test_no_other_file_names_an_op() -> None:
    assert op_names.violations() == []


def test_a_planted_name_is_noticed() -> None:
    planted = {
        'if node.op == "dwconv2d":\n    pass': ["dwconv2d"],
        'ready = node.op in ("add", "none")': ["add"],
        'node.op.endswith("_bwd_w")': ["_bwd_w"],
        'board.watch("conv2d_fwd_s8", enter)': ["conv2d_fwd_s8"],
        '"""add: a docstring may say it."""': [],
    }
    assert {text: op_names.named_in(text) for text in planted} == planted
    assert len(list(op_names.sources())) > 50
    assert set(op_names.named()) == op_names.OTHER_WORDS, "a word that is there no longer"


@pytest.mark.parametrize("op", [*functions.ACTIVATIONS, scale.SCALE])
def test_an_op_touches_few_files(op: str) -> None:
    """Its entry and its kernel; the rest are tests and the list of what to use instead of what is missing."""
    files = [name for name in op_names.files_naming(op) if not name.startswith("docs/")]
    own = [name for name in files if name.startswith(("tools/", "firmware/"))]
    assert 1 <= len(own) <= 5, own
    assert len(files) <= 8, files


# ---- an op that exists only here: y = -x, stored as -1 - x so that no value is lost

FLIP_H = """
#ifndef KERNELS_FLIP_H
#define KERNELS_FLIP_H
#include "kernels/numeric.h"
void flip_fwd_s8(uint32_t n, const int8_t *x, int8_t *y);
void flip_bwd_x_s8(uint32_t pixels, uint32_t c, const struct error_s8 *ey, const struct clamp *clamp,
                   const struct error_s8 *ex);
#endif
"""
FLIP_C = """
#include "kernels/flip.h"
void flip_fwd_s8(uint32_t n, const int8_t *x, int8_t *y)
{
    while (n--) {
        *y++ = (int8_t)(-1 - *x++);
    }
}
void flip_bwd_x_s8(uint32_t pixels, uint32_t c, const struct error_s8 *ey, const struct clamp *clamp,
                   const struct error_s8 *ex)
{
    for (uint32_t i = 0; i < pixels * c; i++) {
        uint32_t byte = i / c * ((c + 7) / 8) + i % c / 8, bit = i % c % 8;
        int passes = !clamp->mask || clamp->mask[byte] >> bit & 1;
        ex->q[i] = (int8_t)(passes ? -ey->q[i] : 0);
    }
    for (uint32_t ch = 0; ch < c; ch++) {
        ex->scale[ch] = clamp->m ? ey->scale[ch] * multiplier_f32(clamp->m[ch]) : ey->scale[ch];
    }
}
"""


def flip_gradient(tape: Any, node: Node, error: str | None) -> None:
    if error is not None:
        tape.send(node.inputs[0], Node("flip_bwd_x", node.name, (error,), ()))


def flip_output(out: Output) -> Any:
    return replace(out.tensor, dtype="s8", scale=out.x.scale, zero=-1 - out.x.zero)


def flip_run(env: Any, node: Node) -> None:
    env.values[node.outputs[0]] = (-1 - env.values[node.inputs[0]].astype(int)).astype(np.int8)


def flip_run_backward(env: Any, node: Node) -> None:
    error, clamp = env.values[node.inputs[0]], env.clamp(node.clamp)
    turned = -error if env.real else Error(-error.q, error.scale)
    env.values[node.outputs[0]] = env.backend.error_pass(turned, 1.0, clamp)


def flip_call(names: Any, node: Node) -> str:
    n = names.graph.tensors[node.inputs[0]].elements
    return f"flip_fwd_s8({n}, {names.at(node.inputs[0])}, {names.at(node.outputs[0])});"


def flip_call_backward(names: Any, node: Node) -> str:
    x = names.graph.tensors[node.inputs[0]]
    ends = f"{names.error(x.name)}, {names.clamp()}, {names.error(node.outputs[0])}"
    return f"flip_bwd_x_s8({x.pixels}, {x.channels}, {ends});"


def flip_rule(low: Any, call: Any) -> Any:
    x = low.activation(call, call.x)
    return low.emit(call, "flip", (x,), low.shape(x), dims=x.dims)


def flip_ops() -> Iterator[Op]:
    yield ForwardOp(
        "flip",
        shapes=shape_of_input,
        run=flip_run,
        call=flip_call,
        accumulators=bounds.no_integers,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=in_place_of(0),
        kernels={"flip_fwd_s8": (None, (NUMBER, S8, S8))},
        header="flip",
        aten={"neg": Aten("self", flip_rule)},
        folds=Folds.NOTHING,
        learns=Learns.NOTHING,
        output=flip_output,
        float_run=lambda graph, node, env: -env[node.inputs[0]],
        int8_run=lambda graph, node, env: (-1 - env[node.inputs[0]].astype(int)).astype(np.int8),
        gathers=gathers_channels,
        gradient=flip_gradient,
        leaves=Leaves.NOTHING,
        tables=no_tables,
        layer_structs=no_structs,
        step_structs=no_structs,
        kernel="flip_fwd_s8",
        struct="flip",
        stage=ElementStage(
            (), lambda names, node, x: f"flip_fwd_s8((uint32_t)p->h_out * p->w_out * p->c_out, {x}, y);"
        ),
        arrays=no_arrays,
        facts=no_facts,
        parallel=lambda run, step, x: -x,
        statistics=no_statistics,
    )
    yield BackwardOp(
        "flip_bwd_x",
        shapes=shape_of_input,
        run=flip_run_backward,
        call=flip_call_backward,
        accumulators=bounds.no_integers,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=in_place_of(0),
        kernels={"flip_bwd_x_s8": (None, (NUMBER, NUMBER, ErrorS8, Clamp, ErrorS8))},
        header="flip",
        updates=Updates.NOTHING,
        reads_weights=False,
        guard=NOT_ALIGNED,
    )


class Flipped(nn.Module):
    """The new op behind a convolution, in front of one, and at the beginning of a chain."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.point = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 12, 1)
        self.deep, self.last = nn.Conv2d(12, 12, 3, 1, 1, groups=12), nn.Conv2d(12, 8, 1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = -torch.relu(self.stem(x))
        y = -self.deep(torch.relu(self.point(x)))
        y = self.last(-y) + x
        result: torch.Tensor = self.head(y.mean((2, 3)))
        return result


@pytest.fixture
def flipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Graph:
    """A quantized network of the new op, made from a file of PyTorch's."""
    for op in flip_ops():
        monkeypatch.setitem(TABLE, op.name, op)
    monkeypatch.delitem(affine.ARITHMETIC, "neg")  # which the front end knows as a factor
    torch.manual_seed(0)
    module, path = Flipped().eval(), tmp_path / "flipped.pt2"
    torch.export.save(torch.export.export(module, (torch.zeros(1, 3, 16, 16),)), path)
    graph = load_model(path).graph
    pixels = np.random.default_rng(0).integers(0, 256, (8, 16, 16, 3)).astype(np.uint8)
    return quantize(graph, measure_ranges(graph, pixels))


def compiled_with_flip(compiled: Compiled, folder: Path) -> Model:
    """The generated C, compiled with the new kernel's file beside the firmware's."""
    (folder / "include/kernels").mkdir(parents=True)
    (folder / "include/kernels/flip.h").write_text(FLIP_H)
    (folder / "flip.c").write_text(FLIP_C)
    for name, text in generate(compiled, "a test").files.items():
        (folder / name).write_text(text)
    flags = (*CHECKED, f"-I{folder / 'include'}")
    return Model(folder, compile_model(folder, folder, flags, more=(folder / "flip.c",)))


@pytest.mark.parametrize("biases", [0, 2, -1])
def test_an_op_of_this_test_goes_all_the_way(biases: int, flipped: Graph, tmp_path: Path) -> None:
    """Front end, quantize, autodiff, prune, fuse, plan, check, emit, gcc: the bytes are the executor's."""
    weights: Mapping[str | int, float] = {} if biases == 0 else {-1: 1.0}
    scheme = Scheme("test", biases, dict(weights), head="random")
    compiled = compile_graph(flipped, scheme, 4)
    streamed = [part.op for node in compiled.graph.nodes for part in node.parts]
    assert ("flip" in streamed) == (biases >= 0)
    assert ("flip_bwd_x" in [n.op for n in compiled.graph.nodes]) == (biases != 0)
    native, executor = compiled_with_flip(compiled, tmp_path / "c"), Executor(compiled.graph)
    for step, image in enumerate(images(compiled.graph, 6)):
        assert native.forward(image, train=True).tobytes() == executor.forward(image).tobytes()
        executor.backward(step % 4, reference.Sgd(**RATES, seed=7, step=step))
        native.backward(step % 4, Sgd(**RATES, seed=7, step=step))
        assert native.trainables() == executor.trainables()


def test_it_is_simulated_too(flipped: Graph, tmp_path: Path) -> None:
    """The float simulation and the executor with real errors: the same logits and gradients."""
    compiled = compile_graph(flipped, Scheme("t", -1, {"all": 1.0}, head="random"), 4, Passes(fused=False))
    assert_simulated(compiled, images(compiled.graph, 1)[0], tmp_path)


def test_a_wrong_kernel_of_it_is_noticed(
    flipped: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "FLIP_C", FLIP_C.replace("-1 - *x++", "-2 - *x++"))
    compiled = compile_graph(flipped, Scheme("head", head="random"), 4)
    native, executor = compiled_with_flip(compiled, tmp_path / "c"), Executor(compiled.graph)
    image = images(compiled.graph, 1)[0]
    assert native.forward(image, train=False).tobytes() != executor.forward(image).tobytes()
