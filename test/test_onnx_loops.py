"""Loops over time in ONNX files, as tf2onnx writes Keras' GRU and SimpleRNN: known by what they compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import RuntimeTypeError
from onnx.reference.ops.op_loop import Loop as LoopOfOnnx

from lab.attack.onnx_loops import NETWORKS, Looped, Node, op
from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import load_model
from microtrain.convert.frontends.onnx.reader import onnx_homes
from microtrain.convert.frontends.onnx.trained import trained_onnx
from microtrain.convert.ir import ConvertError

ANOTHER = "of another cell"
NEAREST = "the nearest that is: Keras' LSTM, GRU"


class Loop(LoopOfOnnx):
    """With an axis of their own for the moments, as ONNX has them and its evaluator has not."""

    def _run(self, *args: Any, **about: Any) -> Any:
        run: Any = super()._run
        *left, rows = run(*args, **about)
        return (*left, rows[:, None])


def is_right(path: Path) -> bool:
    """Whether a file that converts has the values of ONNX's evaluator, sample by sample."""
    graph, run = load_model(path).graph, ReferenceEvaluator(str(path), new_ops=[Loop])
    dims = [d.dim_value for d in onnx.load(str(path)).graph.input[0].type.tensor_type.shape.dim][1:]
    pixels = np.random.default_rng(0).integers(0, 256, (4, *dims)).astype(np.uint8)
    real = (pixels / np.float32(255)).astype(np.float32)
    wanted = np.concatenate([np.asarray(next(iter(run.run(None, {"x": each[None]})))) for each in real])
    found = run_float(graph, pixels.reshape(4, *graph.tensors["input"].shape)).reshape(4, -1)
    assert np.ptp(wanted, axis=0).min() > 1e-3, "the logits say something"
    return bool(np.abs(found - wanted).max() < 1e-5)


def refusal(path: Path) -> str:
    with pytest.raises(ConvertError) as error:
        load_model(path)
    return str(error.value)


@pytest.mark.parametrize("read", ["last", "h", "rows"])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("gates", [1, 3, 4])
def test_loops_of_keras(gates: int, backward: bool, read: str, tmp_path: Path) -> None:
    assert is_right(Looped(gates, backward=backward, read=read).file(tmp_path))


@pytest.mark.parametrize("about", [{"time": 1}, {"units": 1}, {"features": 1}, {"features": 7}, {"time": 40}])
@pytest.mark.parametrize("gates", [1, 3, 4])
def test_sizes(gates: int, about: dict[str, Any], tmp_path: Path) -> None:
    for backward in (False, True):
        assert is_right(Looped(gates, backward=backward, **about).file(tmp_path))


@pytest.mark.parametrize("gates", [1, 3, 4])
def test_an_input_that_is_viewed_with_time_first(gates: int, tmp_path: Path) -> None:
    """As tf2onnx writes a batch of one: it was once declared anew, as one moment."""
    model = Looped(gates, arrays={"sizes": np.array([6, 1, 5])}).model()
    model.graph.node[0].CopyFrom(onnx.helper.make_node("Reshape", ["x", "sizes"], ["rows"]))
    path = tmp_path / "viewed.onnx"
    path.write_bytes(model.SerializeToString())
    assert is_right(path)


@pytest.mark.parametrize("make", NETWORKS)
def test_networks_of_the_fuzzer(make: Any, tmp_path: Path) -> None:
    assert is_right(make().file(tmp_path))


SAME: dict[str, tuple[int, Sequence[Node]]] = {
    "a product with a bias in one": (1, [op("Gemm", "row w_in b_in", "xs")]),
    "weights that are turned": (
        3,
        [op("Transpose", "w_in", "w_turned"), op("Gemm", "row w_turned", "xw", transB=1)],
    ),
    "no bias": (1, [op("Add", "xw hr", "sum")]),
    "no bias of the state": (3, [op("Identity", "hr", "s1")]),
    "no bias of a moment": (3, [op("Identity", "xw", "s0")]),
    "the bias of one sum": (4, [op("Add", "xw b_in", "both"), op("Add", "both hr", "sums")]),
    "a moment with more axes": (
        1,
        [
            op("Gather", "rows at", "cut"),
            op("Unsqueeze", "cut first", "thin"),
            op("Squeeze", "thin first", "row"),
        ],
    ),
    "moments by the loop's own number": (3, [op("Gather", "rows number", "row")]),
    "a sum of three": (4, [op("Sum", "xw hr b_in", "sums")]),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_that_is_written_otherwise(name: str, tmp_path: Path) -> None:
    gates, changed = SAME[name]
    assert is_right(Looped(gates, changed=changed).file(tmp_path))


PULSE = [  # what is added at the moment 3 alone
    *(op("Add", "step step", "two"), op("Add", "two step", "three"), op("Equal", "at three", "is")),
    *(op("Cast", "is", "pulse", to=1), op("Tanh", "sum", "plain"), op("Add", "plain pulse", "h_after")),
]
CUBE = [  # what only a large cell shows
    *(op("Constant", "", "tiny", value_float=1e-6), op("Mul", "c_in c_in", "square")),
    *(op("Mul", "square c_in", "third"), op("Mul", "third tiny", "small")),
    *(op("Add", "kept new", "plain"), op("Add", "plain small", "c_after")),
]
OTHER: dict[str, tuple[int, Sequence[Node]]] = {
    "gates swapped": (3, [op("Split", f"s{i}", f"z{i} n{i} r{i}", axis=-1) for i in (0, 1)]),
    "gates of the state swapped": (3, [op("Split", "s1", "z1 n1 r1", axis=-1)]),
    "an LSTM's gates swapped": (4, [op("Split", "sums", "is gs fs os", axis=1)]),
    "the gate the other way round": (3, [op("Mul", "rest h_in", "kept"), op("Mul", "z n", "new")]),
    "a part of the gate": (3, [op("Sub", "z one", "rest")]),
    "another function": (1, [op("Sigmoid", "sum", "h_after")]),
    "no product": (3, [op("Add", "r n1", "rn")]),
    "the bias twice": (1, [op("Add", "xs b_in", "both"), op("Add", "both hr", "sum")]),
    "the bias behind the gate": (
        3,
        [op("Mul", "r hr_n", "rn"), op("Split", "hr", "hr_z hr_r hr_n", axis=-1)],
    ),
    "the moment behind": (1, [op("Gather", "rows next", "row")]),
    "one moment again and again": (1, [op("Sub", "at at", "zero"), op("Gather", "rows zero", "row")]),
    "one moment that is another": (1, PULSE),
    "a little more of a large cell": (4, CUBE),
    "a cell that forgets": (4, [op("Mul", "f g", "kept")]),
    "every second moment": (1, [op("Add", "step step", "two"), op("Add", "at two", "next")]),
    "the state of before": (1, [op("Identity", "h_in", "scan")]),
    "half of the gates": (1, [op("Add", "xs xs", "sum")]),
}


@pytest.mark.parametrize("name", OTHER)
def test_another_cell(name: str, tmp_path: Path) -> None:
    gates, changed = OTHER[name]
    said = refusal(Looped(gates, changed=changed).file(tmp_path))
    assert "/while_loop: a loop o" in said and NEAREST in said, said


WITH: dict[str, tuple[int, Sequence[Node]]] = {
    "Relu": (1, [op("Relu", "sum", "h_after")]),
    "Clip": (4, [op("Add", "kept new", "wide"), op("Clip", "wide", "c_after")]),
    "HardSigmoid": (3, [op("HardSigmoid", "zs", "z")]),
    "Where": (
        1,  # as a mask of rows that are zeros
        [
            *(
                op("Tanh", "sum", "plain"),
                op("ReduceMax", "row", "largest"),
                op("Cast", "largest", "some", to=9),
            ),
            op("Where", "some plain h_in", "h_after"),
        ],
    ),
    "Cast": (
        1,
        [op("Cast", "sum", "whole", to=7), op("Cast", "whole", "rest", to=1), op("Tanh", "rest", "h_after")],
    ),
    "Gather": (1, [op("Tanh", "sum", "plain"), op("Gather", "b_in plain", "h_after", axis=0)]),
}


@pytest.mark.parametrize("name", WITH)
def test_a_cell_with_what_no_cell_has(name: str, tmp_path: Path) -> None:
    """A limit or a choice that numbers seldom reach is none that drawn numbers would find."""
    gates, changed = WITH[name]
    said = refusal(Looped(gates, changed=changed).file(tmp_path))
    named = "ReduceMax" if name == "Where" else name
    assert f"a loop with {named} in its cell is not supported; {NEAREST}" in said, said
    assert "with their own activations" in said


def test_a_gru_that_resets_before_its_weights(tmp_path: Path) -> None:
    """As Keras' reset_after=False."""
    lists = {"zero": [0], "second": [1], "fourteen": [14], "far": [21]}
    changed = [
        *(op("Constant", "", name, value_ints=value) for name, value in lists.items()),
        *(op("Slice", "u_in zero fourteen second", "u_gates"), op("MatMul", "h_in u_gates", "hr")),
        *(op("Slice", "u_in fourteen far second", "u_new"), op("Mul", "r h_in", "rh")),
        *(op("Identity", "xw", "s0"), op("Split", "hr", "z1 r1", axis=1), op("MatMul", "rh u_new", "rn")),
    ]
    said = refusal(Looped(3, changed=changed).file(tmp_path))
    assert "a loop of a GRU with reset_after=False is not supported" in said and "reset_after=True" in said


COMPUTED = [op("ReduceMean", "x", "mean", axes=[1], keepdims=0)]
BY_DATA = "that goes on as long as its data say"
SOME, NO_ZEROS = "whose number of moments is computed", "that does not begin with zeros"
HALVES = np.full((1, 7), 0.5, np.float32)
TOP = op("ReduceMax", "row", "top", keepdims=0)
MASKED = [op("Gather", "mask at", "kept"), op("Tanh", "sum", "plain"), op("Add", "plain kept", "h_after")]
FRAMES: dict[str, tuple[str, Looped]] = {
    "fewer moments": ("over 3 of 6 moments", Looped(1, arrays={"most": 3})),
    "a later first moment": (ANOTHER, Looped(3, arrays={"moment": np.int32(3)})),
    "more moments": (ANOTHER, Looped(1, changed=[op("Less", "at time", "more")], arrays={"most": 9})),
    "no moments": ("of no moments", Looped(1, arrays={"most": 0})),
    "a condition that is false": ("of no moments", Looped(1, arrays={"goes": np.array(False)})),
    "numbers of moments": (SOME, Looped(1, arrays={"most": np.array([6, 6])})),
    "a computed number": (SOME, Looped(1, more=COMPUTED, given={"most": "mean"})),
    "a computed condition": (SOME, Looped(3, more=COMPUTED, given={"goes": "mean"})),
    "no end": ("without an end", Looped(1, given={"goes": "", "most": ""})),
    "a condition on data": (BY_DATA, Looped(1, changed=[TOP, op("Less", "top one", "more")])),
    "a step by data": (
        BY_DATA,
        Looped(1, changed=[TOP, op("Cast", "top", "by", to=6), op("Add", "at by", "next")]),
    ),
    "a state that is not zeros": (NO_ZEROS, Looped(1, arrays={"h": HALVES})),
    "a cell that is not zeros": (NO_ZEROS, Looped(4, arrays={"c": HALVES})),
    "a computed state": (NO_ZEROS, Looped(1, units=5, more=COMPUTED, given={"h": "mean"})),
    "a state of two samples": (ANOTHER, Looped(1, arrays={"h": np.zeros((2, 7), np.float32)})),
    "a mask": (
        "over 2 inputs, as with a mask,",
        Looped(1, units=5, more=[op("Tanh", "rows", "mask")], changed=MASKED),
    ),
    "no input": ("over 0 inputs", Looped(1, changed=[op("Identity", "h_in", "row")], features=7)),
    "the cell that is read": ("of which more is read than its state", Looped(4, read="c")),
    "the state of before": ("of which more is read than its state", Looped(1, outputs={"scan": "h_in"})),
    "too many moments": ("of up to 2,048 moments", Looped(1, time=2049)),
}


@pytest.mark.parametrize("name", FRAMES)
def test_loops_of_another_kind(name: str, tmp_path: Path) -> None:
    wanted, looped = FRAMES[name]
    said = refusal(looped.file(tmp_path))
    assert "/while_loop: a loop " in said and wanted in said and NEAREST in said, said


def test_what_a_loop_leaves_beside_its_state(tmp_path: Path) -> None:
    """Its counters and its constants are known."""
    looped = Looped(3, read="h")
    model = looped.model()
    last = model.graph.node[-1]
    model.graph.node.remove(last)
    nodes = [
        op("Cast", "moment_left", "six", to=1),
        op("Mul", "h_left six", "scaled"),
        op("MatMul", "scaled classes", "y"),
    ]
    model.graph.node.extend(
        onnx.helper.make_node(kind, i, o, f"{o[0]}_", **about) for kind, i, o, about in nodes
    )
    path = tmp_path / "left.onnx"
    path.write_bytes(model.SerializeToString())
    assert is_right(path)


def changed_body(looped: Looped, change: Callable[[Any, Any], Any], path: Path) -> Path:
    """A file whose loop was changed by what gets its node and its body."""
    model = looped.model()
    node = next(node for node in model.graph.node if node.op_type == "Loop")
    change(node, next(a.g for a in node.attribute if a.name == "body"))
    path.write_bytes(model.SerializeToString())
    return path


DAMAGED: dict[str, Callable[[Any, Any], Any]] = {
    "a loop without a body": lambda node, body: node.ClearField("attribute"),
    "fewer inputs": lambda node, body: node.input.pop(),
    "more outputs": lambda node, body: node.output.extend(["more", "than", "there", "are"]),
    "a name that means two things": lambda node, body: body.node.append(body.node[0]),
    "no results": lambda node, body: body.ClearField("output"),
    "an operator of another domain": lambda node, body: setattr(body.node[3], "domain", "own"),
    "a loop in the loop": lambda node, body: body.node[3].ParseFromString(node.SerializeToString()),
    "a step that reads what comes behind": lambda node, body: body.node.reverse(),
    "an input without a name": lambda node, body: setattr(body.input[0], "name", ""),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_loops(name: str, tmp_path: Path) -> None:
    said = refusal(changed_body(Looped(3), DAMAGED[name], tmp_path / "damaged.onnx"))
    assert ("while_loop: " in said and NEAREST in said) or "which no node before makes" in said, said


def test_nodes_of_bodies_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microtrain.convert.frontends.onnx.file.MOST_NODES", 20)
    assert "declares 29 nodes; 20 are the most" in refusal(Looped(3).file(tmp_path))


def test_much_work_is_none_of_a_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microtrain.convert.frontends.onnx.bodies.MOST_WORK", 1 << 16)
    assert ANOTHER in refusal(Looped(3).file(tmp_path))


def test_a_sequence_that_is_turned_in_part(tmp_path: Path) -> None:
    looped = Looped(3, backward=True, arrays={"lengths": np.array([4])})
    assert "ReverseSequence of lengths [4] of 6 is not supported" in refusal(looped.file(tmp_path))


def test_a_trained_copy_leaves_what_a_loop_reads(tmp_path: Path) -> None:
    """A constant that both the head and the body of a loop read gets a copy of its own for the head."""
    looped = Looped(1, units=3, features=3, changed=[op("MatMul", "h_in classes", "hr")])
    path = looped.file(tmp_path)
    assert is_right(path)
    homes = onnx_homes(path)
    ((name, home),) = homes.items()
    trained = {name: home.value + 1}
    copy = onnx.load_from_string(trained_onnx(path, homes, trained, (name, name.replace("weight", "bias"))))
    kept = {t.name: onnx.numpy_helper.to_array(t) for t in copy.graph.initializer}
    np.testing.assert_array_equal(kept["classes"], home.back(home.value))
    np.testing.assert_allclose(kept[copy.graph.node[-1].input[1]], home.back(home.value) + 1)


def test_weights_beside_a_file_that_only_a_body_reads(tmp_path: Path) -> None:
    model = Looped(1).model()
    body = next(a.g for node in model.graph.node for a in node.attribute if a.name == "body")
    weights = next(t for t in model.graph.initializer if t.name == "u")
    body.initializer.append(weights)
    body.initializer[-1].name = "inside"
    next(n for n in body.node if n.output[0] == "hr").input[1] = "inside"
    (tmp_path / "beside").mkdir()
    path = tmp_path / "beside" / "net.onnx"
    onnx.external_data_helper.convert_model_to_external_data(model, location="w.bin", size_threshold=0)
    onnx.external_data_helper.set_external_data(body.initializer[-1], "w.bin")
    onnx.save(model, str(path))
    assert is_right(path)
    homes = onnx_homes(path)
    ((name, home),) = homes.items()
    (tmp_path / "copy.onnx").write_bytes(trained_onnx(path, homes, {name: home.value}, None))
    assert is_right(tmp_path / "copy.onnx")


OPS = (
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Tanh",
    "Sigmoid",
    "Neg",
    "Identity",
    "MatMul",
    "Max",
    "Sum",
    "Less",
    "Split",
)


def change(random: Random, node: Any, body: Any) -> None:
    """Something else in a loop, of which nobody knows what it makes of it."""
    step = random.choice(body.node)
    made = [name for each in body.node for name in each.output]
    names = [*(each.name for each in (*body.input, *body.initializer)), *made]
    match random.randrange(6):
        case 0 | 1 if step.input:
            step.input[random.randrange(len(step.input))] = random.choice(names)
        case 2:
            step.op_type = random.choice(OPS)
        case 3:
            random.choice(body.output).name = random.choice(names)
        case 4 if step.attribute:
            step.attribute[0].i = random.choice([-1, 0, 1, 2])
        case _:
            node.input[random.randrange(2, len(node.input))] = random.choice(node.input)


@pytest.mark.parametrize("seed", range(4))
def test_random_changes_are_computed_or_refused(seed: int, tmp_path: Path) -> None:
    random, right = Random(seed), 0
    for _ in range(60):
        looped = Looped(random.choice([1, 3, 4]), time=4, features=3, units=random.choice([3, 4]))
        model = looped.model()
        node = next(node for node in model.graph.node if node.op_type == "Loop")
        change(random, node, node.attribute[0].g)
        path = tmp_path / "changed.onnx"
        path.write_bytes(model.SerializeToString())
        try:
            load_model(path)
        except ConvertError as error:
            assert NEAREST in str(error) or "which no node before makes" in str(error), error
            continue
        try:
            same = is_right(path)
        except (RuntimeTypeError, TypeError):  # types that no runtime takes: there is no right answer
            continue
        assert same
        right += 1
    assert right, "some changes are none"
