"""What kinds of layers gain (lab/prior), and that conversion's own choice follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from networks import Builder

from lab import marks, notes
from lab.golden.data import NETWORKS
from lab.prior import cli, fit, measure
from lab.prior.measure import BIASES, DEPTHWISE, EXPAND, OTHER, PROJECT, Gain
from microtrain.convert.ir import Graph
from microtrain.convert.scheme import Scheme, convolutions
from microtrain.search.space import space_of


@pytest.fixture
def graph() -> Graph:
    """A stem and four inverted residuals."""
    b = Builder(np.random.default_rng(0), (12, 12, 3))
    x = b.conv("x", 8, 3, 2)
    for _ in range(4):
        x = b.add(x, b.conv(b.depthwise(b.conv(x, 24), 3, 1), 8, relu=False))
    return b.finish(x, 5)


def made_up(network: str, expand: float, project: float) -> list[Gain]:
    """Biases gain the square root of their share; weights of two layers what is said, by their fraction."""
    one = Gain(network, "photos", "", BIASES, 0.0, 1.0, 0.0)
    found = [replace(one, depth=share, gain=0.1 * share**0.5) for share in (0.25, 1.0)]
    for layer, kind, gain in (("layer1", EXPAND, expand), ("layer3", PROJECT, project)):
        found += [
            replace(one, layer=layer, kind=kind, depth=0.5, fraction=f, gain=f * gain) for f in (0.25, 1.0)
        ]
    return found


def test_a_layer_is_told_by_what_it_is(graph: Graph) -> None:
    names = convolutions(graph)
    kinds = [measure.kind(graph, name) for name in names]
    assert kinds == [OTHER, *[EXPAND, DEPTHWISE, PROJECT] * 4]
    total = len(names)
    measured = measure.layers(graph, space_of(graph, (4,), 0.002))
    late = {layer for layer, level in measured if level == measure.FULL}
    assert late == set(range(-(-total // 2), total)), "of the last half all are measured whole"
    early = {layer for layer, _ in measured} - late
    assert early and all(kinds[layer] == EXPAND for layer in early)


def test_gains_are_told_by_kind() -> None:
    gains = made_up("a", 0.04, -0.01)
    assert fit.by_kind(gains) == pytest.approx({EXPAND: 0.04, PROJECT: -0.01})
    assert fit.with_depth(gains)[0] == pytest.approx(0.04)
    deeper = [replace(g, depth=0.9, gain=g.gain / 2) if g.kind == EXPAND else g for g in gains]
    assert fit.with_depth([*gains, *deeper])[1] < -0.01, "a layer that gains less in front is seen"


def test_a_network_is_foretold_by_others_alone() -> None:
    alike = made_up("a", 0.04, -0.01) + made_up("b", 0.05, -0.02)
    assert fit.left_out(alike, "b") == pytest.approx(1.0)
    assert fit.left_out(made_up("a", -0.04, 0.01) + made_up("b", 0.05, -0.02), "b") < 0


def test_a_scheme_is_worth_its_biases_and_its_weights(graph: Graph) -> None:
    gains = made_up("a", 0.04, -0.01)
    half = Scheme("half", len(convolutions(graph)), {1: 0.5, "layer3": 1.0, "layer2": 1.0})
    biases, weights = fit.worth(gains, graph, half)
    assert biases == pytest.approx(0.1) and weights == pytest.approx(0.02 - 0.01)
    assert fit.worth(gains, graph, Scheme("none")) == (0.0, 0.0)


def known() -> list[Gain]:
    return [Gain(**row) for row in notes.read(cli.RECORD, [])]


def foretold(gains: Sequence[Gain]) -> bool:
    """What default_scheme.last() takes for granted, of each network."""
    by = {name: fit.by_kind([g for g in gains if g.network == name]) for name in NETWORKS}
    expands = all(
        own[EXPAND] > 0.02 and own[EXPAND] > 3 * max(own[PROJECT], own[DEPTHWISE]) for own in by.values()
    )
    return expands and all(fit.left_out(gains, name) > 0.4 for name in NETWORKS)


def test_the_rule_follows_from_what_was_measured() -> None:
    gains = known()
    assert foretold(gains)
    swapped = {EXPAND: PROJECT, PROJECT: EXPAND}
    assert not foretold([replace(gain, kind=swapped.get(gain.kind, gain.kind)) for gain in gains])


def test_the_page_has_the_measured_gains(tmp_path: Path) -> None:
    page = tmp_path / "search.md"
    page.write_text(cli.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    marks.insert(page, cli.COMMAND, {"gains": cli.by_kind(known())})
    assert page.read_text(encoding="utf-8") == cli.PAGE.read_text(encoding="utf-8")
