"""plan.json, written and read: inverse for any plan, and one sentence for any value that is wrong."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_plans import Place, places, plans, wrong_values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from networks import residual_network
from plans import plan_document
from test_compiler_properties import CLASSES, PLAIN, Case, cases

from microtrain.base.errors import FileError
from microtrain.base.plan import Budget, Origin, Plan, read_plan, text
from microtrain.base.schema import encode
from microtrain.convert.emit.code import generate
from microtrain.convert.emit.document import document
from microtrain.convert.ops.conv_constants import multipliers
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.reference.biases import Bias
from microtrain.convert.scheme import Scheme

SLOW_TO_DRAW = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plan") / "plan.json"


def refusal(document: Any, path: Path) -> str | None:
    """The sentence with which a document is refused, None where it is read."""
    path.write_text(json.dumps(document), encoding="utf-8")
    try:
        read_plan(path)
    except FileError as error:
        return str(error)
    return None


@settings(SLOW_TO_DRAW, max_examples=100)
@given(plan=plans())
def test_any_plan_that_is_written_is_read_again(plan: Plan, path: Path) -> None:
    path.write_text(text(plan), encoding="utf-8")
    assert read_plan(path) == plan
    assert text(read_plan(path)) == path.read_text(encoding="utf-8")


def test_plans_that_differ_are_told_apart(path: Path) -> None:
    """The comparison above can fail."""
    path.write_text(json.dumps(plan_document()))
    plan = read_plan(path)
    other = replace(plan, arena=replace(plan.arena, peak_step=plan.arena.peak_step + 1))
    path.write_text(text(other))
    assert read_plan(path) == other != plan


@settings(max_examples=15)
@given(case=cases(), budget=st.sampled_from((None, Budget(10**6, 10**6))))
def test_the_plan_of_any_conversion_is_read_again(case: Case, budget: Budget | None, path: Path) -> None:
    graph, scheme, _ = case
    compiled = compile_graph(graph, scheme, CLASSES, PLAIN)
    plan = document(compiled, generate(compiled, "drawn"), Origin("drawn.pt", "0" * 64, "exported"), budget)
    path.write_text(text(plan), encoding="utf-8")
    assert read_plan(path) == plan


def whole() -> dict[str, Any]:
    """A plan with something in every key."""
    sizes = {"records": 1, "record_bytes": 8, "part": 1, "bytes": 8, "all_in_sram": 9}
    replay = {**sizes, "tensors": ["input"], "step": 0}
    made = copy.deepcopy(plan_document(replay=replay))
    made["scheme"] |= {"weights": {"linear": [0, 1]}, "head": {"rows": [0, 1]}}
    made["trainables"]["tensors"][0] |= {"channels": [0], "base": [0.5], "dead": [1]}
    return made


PLACES = list(places(Plan, whole()))


def of(document: dict[str, Any], number: int) -> Place:
    return list(places(Plan, document))[number]


@pytest.mark.parametrize("number", range(len(PLACES)), ids=[place.where for place in PLACES])
def test_a_value_that_is_missing_or_wrong_is_named(number: int, path: Path) -> None:
    for value in wrong_values(PLACES[number].hint):
        made = whole()
        place = of(made, number)
        place.holder[place.key] = value
        named(refusal(made, path), place.where)
    made = whole()
    place = of(made, number)
    if isinstance(place.holder, dict):
        del place.holder[place.key]
        said = refusal(made, path)
        if place.where == "replay":
            assert said is None  # may be left out
        else:
            named(said, f"{place.where} is missing")


def named(said: str | None, words: str) -> None:
    assert said is not None, words
    assert words in said or "has plan format" in said
    assert said.endswith("convert again.") and "\n" not in said


def test_the_places_are_all_of_the_schema(path: Path) -> None:
    assert refusal(whole(), path) is None
    found = {place.where for place in PLACES}
    assert {"format", "layers[0].in[2]", "scheme.head.rows[1]", "replay.tensors[0]", "budget.sram"} <= found
    assert len(PLACES) > 120


@settings(SLOW_TO_DRAW, max_examples=150)
@given(plan=plans(), value=ANY, data=st.data())
def test_any_value_anywhere_is_read_or_refused_in_a_sentence(
    plan: Plan, value: Any, data: st.DataObject, path: Path
) -> None:
    made = json.loads(json.dumps(encode(plan)))
    place = data.draw(st.sampled_from(list(places(Plan, made))))
    place.holder[place.key] = value
    said = refusal(made, path)
    if said is None:
        read_plan(path)
    else:
        assert said.endswith("convert again.") and "\n" not in said
        assert place.where in said or "has plan format" in said


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b[2J", "x" * 500])
def test_a_name_that_cannot_be_read_is_quoted(name: str, path: Path) -> None:
    made = whole()
    made["scheme"]["weights"] = {name: "most"}
    said = refusal(made, path)
    assert said is not None and "\n" not in said
    assert "scheme.weights['" in said and "is 'most', not a number or a list" in said


def test_a_bias_on_the_device_is_the_layers_in_real_numbers() -> None:
    """What a pull makes of the integers: where they start, and where one unit leads."""
    compiled = compile_graph(residual_network(), Scheme("biases", biases=-1, head="random"), 5)
    graph = compiled.graph
    plan = document(compiled, generate(compiled, "a test"), Origin("", "", ""), None)
    biases = [t for t in plan.trainables.tensors if t.kind == "bias"]
    assert len(biases) == len(graph.layers) - 1
    for item in biases:
        layer, x = graph.layers[item.layer], graph.tensors[graph.forward_of[item.layer].inputs[0]]
        assert layer.weight_scale is not None and item.scale is not None and item.base is not None
        real = x.scale * layer.weight_scale
        assert np.any(layer.bias) and np.allclose(item.base, layer.bias * real, rtol=1e-12)
        m = multipliers(graph, graph.forward_of[item.layer])
        one = Bias(layer.bias, np.ones(len(m), np.int16), m, np.zeros(len(m)), 2**30, 0).expanded
        assert np.allclose(item.scale, (one - layer.bias) * real, rtol=1e-12)
