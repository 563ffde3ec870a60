"""Scheme files: what they mean, and what is said where they are wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from networks import residual_network

from microtrain.base.plan import HeadRows
from microtrain.convert.ir import ConvertError, Layer, Source
from microtrain.convert.names import number
from microtrain.convert.passes.autodiff import differentiate
from microtrain.convert.passes.prune import prune
from microtrain.convert.pipeline import with_head
from microtrain.convert.scheme import Scheme, apply, column_norms, convolutions, find, load
from microtrain.convert.trainables import new_head


def load_text(tmp_path: Path, text: str) -> Scheme:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    return load(path)


def test_a_full_file(tmp_path: Path) -> None:
    scheme = load_text(
        tmp_path,
        "name: n\nbiases: 3\nweights:\n  layer1: 0.5\n  7: {channels: [4, 1]}\n"
        "select: first\nfraction_bits: 4\nloss: mse\nlearning_rate: {weight: 0.1, head: 0.2}\nhead: random\n",
    )
    assert scheme == Scheme(
        "n", 3, {"layer1": 0.5, 7: (1, 4)}, "first", 4, "mse", (0.1, 0.002, 0.2), "random"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("biases: -1", "biases"),
        ("biases: many", "biases"),
        ("weights: [1]", "weights must map"),
        ("weights: everything", "or be `all`"),
        ("weights: 0", "weights must map"),
        ('weights: ""', "weights must map"),
        ("weights: {a: 0}", "fraction of 'a' is 0"),
        ("weights: {a: 1.5}", "fraction of 'a'"),
        ("weights: {a: .nan}", "fraction of 'a' is nan"),
        ("weights: {a: }", "fraction of 'a' is None"),
        ("weights: {a: 'half'}", "fraction of 'a' is 'half'"),
        ("weights: {a: {channels: [1, 1]}}", "channels of 'a'"),
        ("weights: {a: {channels: []}}", "channels of 'a'"),
        ("weights: {a: {channels: [1.0]}}", "channels of 'a'"),
        ('weights: {"": }', "weights has an entry without a layer's name: None"),
        ('weights: {" ": 0.5}', "weights has an entry without a layer's name: 0.5"),
        ("weights: {2020-01-01: 0.5}", "put the name in quotes"),
        ("weights: {a: 1, a: 0.5}", "the key 'a' stands there twice"),
        ("weights: {1: 0.5, 0x1: 1}", "the key 1 stands there twice"),
        ("weights: {<<: {a: 0.5}, a: 1}", "the key 'a' stands there twice"),
        ("weights: {a: &x 1, b: *x}", "aliases"),
        (f"weights: {{0: 0x{'f' * 6000}}}", "the number 0xf+[.]{3} is too large"),
        (f"biases: 0x{'f' * 6000}", "is too large"),
        ("name: 7", "name is 7; it must be text"),
        ("name: ", "name is None"),
        ('name: " "', "name is ' '"),
        ("network: [net]", r"network is \['net'\]"),
        ("fraction_bits: 5", "fraction_bits"),
        ("fraction_bits: true", "fraction_bits"),
        ("fraction_bits: 4.0", "fraction_bits is 4.0"),
        ("select: best", "select"),
        ("loss: hinge", "loss"),
        ("head: ones", "head"),
        ("head: {rows: [1, 1]}", "row 1 of the head stands there twice"),
        ("head: {rows: [1, -2]}", "rows of head"),
        ("head: {rows: 3}", "rows of head"),
        ("head: {rows: [4]}", "two rows at least"),
        ("head: [1, 2]", "must be one of"),
        ("learning_rate: -1", "learning rate"),
        ("learning_rate: .nan", "learning rate"),
        ("learning_rate: 1e39", "learning rate of weight is '1e39'"),
        ("learning_rate: 1.0e+39", "learning rate of weight is 1e[+]39; it must be 0 or a number"),
        ("learning_rate: {bias: 1.0e-39}", "learning rate of bias is 1e-39; it must be 0 or a number"),
        ("learning_rate: .inf", "learning rate of weight is inf"),
        (f"learning_rate: {10**400}", "learning rate of weight is 1000+[.][.][.]0+; it must be 0"),
        ("learning_rate: true", "learning rate"),
        ("learning_rate: {wait: 1}", "unknown learning rate"),
        ("momentum: 0.9", "unknown key 'momentum'"),
        ("- 1", "no scheme"),
        ("a: [", "not a YAML"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConvertError, match=said):
        load_text(tmp_path, text)


def test_the_head_starts_from_chosen_rows(tmp_path: Path) -> None:
    scheme = load_text(tmp_path, "head: {rows: [4, 0, 2]}")
    assert scheme.summary().head == HeadRows((4, 0, 2))
    graph = residual_network(classes=5)
    own, new = (g.layers["head"] for g in (graph, with_head(graph, 3, scheme.head)))
    np.testing.assert_array_equal(new.weight, own.weight[[4, 0, 2]])
    np.testing.assert_array_equal(new.bias, own.bias[[4, 0, 2]])


@pytest.mark.parametrize("rate", [0, 1e-37, 3.4e38, 1])
def test_rates_that_float32_holds_are_taken(tmp_path: Path, rate: float) -> None:
    assert load_text(tmp_path, f"learning_rate: {rate:.1e}").rates == (rate, rate, rate)


@pytest.mark.parametrize("value", [1e39, -1e39, float("inf"), float("nan")])
def test_no_number_of_generated_code_is_infinite(value: float) -> None:
    """An `inff` in model.c would not compile."""
    with pytest.raises(ConvertError, match="no finite float32"):
        number(value)
    assert np.float32(number(3.4e38)[:-1]) == np.float32(3.4e38)


@pytest.mark.parametrize(
    ("rows", "said"),
    [((0, 1), "2 rows of the model's own, for 3 classes"), ((0, 5, 1), "row 5 .* rows 0 to 4")],
)
def test_rows_that_do_not_fit_the_head(rows: tuple[int, ...], said: str) -> None:
    with pytest.raises(ConvertError, match=said):
        with_head(residual_network(classes=5), 3, rows)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match=r"nothing\.yaml"):
        load(tmp_path / "nothing.yaml")


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        (Scheme("s", weights={"nowhere": 0.5}), "no convolution 'nowhere'"),
        (Scheme("s", weights={99: 0.5}), "no convolution 99"),
        (Scheme("s", weights={-99: 0.5}), "no convolution -99"),
        (Scheme("s", weights={0: 0.01}), "is none"),
        (Scheme("s", weights={0: (1, 40)}), "channel 40"),
        (Scheme("s", biases=1000), "1000 convolutions"),
    ],
)
def test_schemes_that_do_not_fit_the_network(scheme: Scheme, said: str) -> None:
    with pytest.raises(ConvertError, match=said):
        apply(residual_network(), scheme)


def test_negative_numbers_count_from_the_end() -> None:
    graph = residual_network()
    last = convolutions(graph)[-1]
    layers = apply(graph, Scheme("s", weights={-1: 1.0})).layers
    assert {name for name, layer in layers.items() if layer.trained} == {last}


def test_all_stands_for_every_convolution_and_later_entries_count(tmp_path: Path) -> None:
    graph = residual_network()
    first, *rest = convolutions(graph)
    assert load_text(tmp_path, "weights: all").weights == {"all": 1.0}
    layers = apply(graph, load_text(tmp_path, "weights: {all: 1, 0: {channels: [0]}}")).layers
    assert layers[first].trained == (0,)
    assert all(len(layers[name].trained) == layers[name].columns for name in rest)


@pytest.mark.parametrize(
    ("name", "weights", "biases"),
    [("head-only", 0, 0), ("bias-only", 0, None), ("last-6", 6, 6), ("full", None, None)],
)
def test_generic_schemes_fit_any_network(name: str, weights: int | None, biases: int | None) -> None:
    graph = residual_network()
    names = convolutions(graph)
    layers = apply(graph, find(Path(name))).layers
    assert [n for n in names if layers[n].trained] == last(names, weights)
    assert [n for n in names if layers[n].bias_trained] == last(names, biases)


def last(names: list[str], count: int | None) -> list[str]:
    """The last `count` names; None: all."""
    return names if count is None else names[len(names) - count :]


def test_norm_selects_the_largest_columns() -> None:
    graph = residual_network()
    name = convolutions(graph)[3]
    layer = apply(graph, Scheme("s", weights={name: 0.5})).layers[name]
    norms = column_norms(layer)
    rest = np.delete(norms, layer.trained)
    assert len(layer.trained) == layer.columns // 2
    assert norms[list(layer.trained)].min() >= rest.max()
    assert apply(graph, Scheme("s", weights={name: 0.5}, select="first")).layers[name].trained == tuple(
        range(8)
    )


def test_backward_stops_at_the_first_trained_layer() -> None:
    graph = residual_network()
    names = convolutions(graph)
    pruned = prune(differentiate(apply(graph, Scheme("s", biases=2))))
    touched = {n.layer for n in pruned.backward_nodes if n.layer}
    assert touched == {*names[-2:], "head"}
    masks = [t for t in pruned.tensors.values() if t.dtype == "bits"]
    assert len(masks) == 2  # of the two layers whose errors are needed


def test_a_partly_trained_layer_saves_only_its_channels() -> None:
    graph = residual_network()
    name = convolutions(graph)[6]
    pruned = prune(differentiate(apply(graph, Scheme("s", weights={name: 0.25}))))
    update = next(n for n in pruned.backward_nodes if n.op == "dwconv2d_bwd_w" or n.op == "conv2d_bwd_w")
    saved = pruned.tensors[update.inputs[1]]
    assert saved.name == f"saved:{name}"
    assert saved.channels == len(pruned.layers[name].trained)


@pytest.mark.parametrize("classes", [3, 5, 7])
def test_a_kept_head_has_the_models_rows_and_zeros_for_more(classes: int) -> None:
    rng = np.random.default_rng(0)
    own = Layer(rng.normal(size=(5, 4)).astype(np.float32), np.ones(5, np.float32), Source("head.weight"))
    made = new_head(own, 4, classes, "keep")
    assert made.weight.shape == (classes, 4) and made.bias.shape == (classes,)
    assert np.array_equal(made.weight[:5], own.weight[:classes]) and not made.weight[5:].any()
    assert np.array_equal(made.bias[:5], own.bias[:classes]) and not made.bias[5:].any()
