"""The memory planner, and the checker that shares no code with it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from networks import random_network, residual_network

from microtrain.convert.ir import ConvertError
from microtrain.convert.memory.check_plan import check_plan
from microtrain.convert.memory.plan import Plan, plan
from microtrain.convert.pipeline import Compiled, compile_graph, training_graph
from microtrain.convert.scheme import Scheme, convolutions
from microtrain.convert.trainables import block_bytes, layout


def compiled(seed: int = 0) -> Compiled:
    graph = residual_network(seed)
    names = convolutions(graph)
    return compile_graph(graph, Scheme("test", biases=-1, weights={names[3]: 0.5, names[-1]: 1.0}), 5)


@pytest.mark.parametrize("seed", range(25))
def test_random_networks_reach_the_lower_bound_within_2_percent(seed: int) -> None:
    graph = random_network(seed)
    scheme = Scheme(
        "all", biases=-1, weights=dict.fromkeys(convolutions(graph), 0.5), fraction_bits=seed % 3 * 4
    )
    found = plan(training_graph(graph, scheme, 4))
    assert found.lower_bound <= found.arena <= 1.02 * found.lower_bound


def test_the_plan_is_the_same_every_time() -> None:
    assert compiled().plan == compiled().plan


def test_the_arena_holds_a_push_of_all_trainables() -> None:
    graph = random_network(0)
    scheme = Scheme("all", biases=-1, weights=dict.fromkeys(convolutions(graph), 1.0), fraction_bits=8)
    result = compile_graph(graph, scheme, 4)
    assert result.plan.arena >= block_bytes(layout(result.graph))


def moved(placed: Plan, name: str, offset: int) -> Plan:
    placements = {**placed.placements, name: replace(placed.placements[name], offset=offset)}
    return replace(placed, placements=placements)


def test_every_collision_is_caught() -> None:
    """Each tensor in turn is moved onto another one that is alive with it."""
    result = compiled()
    placements = list(result.plan.placements.values())
    caught = 0
    for victim in placements:
        rivals = [p for p in placements if p.birth <= victim.death and victim.birth <= p.death]
        rival = next((p for p in rivals if p.offset != victim.offset and p.bytes <= victim.bytes), None)
        if rival is None or victim.offset + rival.bytes > result.plan.arena:
            continue
        with pytest.raises(ConvertError, match="memory plan"):
            check_plan(result.graph, moved(result.plan, rival.name, victim.offset))
        caught += 1
    assert caught > 20


def test_a_tensor_outside_the_arena_is_caught() -> None:
    result = compiled()
    with pytest.raises(ConvertError, match="misplaced"):
        check_plan(result.graph, moved(result.plan, "logits", result.plan.arena))


def test_an_unaligned_tensor_is_caught() -> None:
    result = compiled()
    logits = result.plan.placements["logits"]
    with pytest.raises(ConvertError, match="misplaced"):
        check_plan(result.graph, moved(result.plan, "logits", logits.offset + 4))


def test_nothing_is_in_the_arena_for_untrained_layers() -> None:
    graph = residual_network()
    result = compile_graph(graph, Scheme("head"), 5)
    kinds = {p.kind for p in result.plan.placements.values()}
    assert "mask" not in kinds
    assert "error" not in kinds
