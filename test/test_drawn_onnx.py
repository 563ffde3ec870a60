"""Random ONNX networks have the values of ONNX's own evaluator, or are refused with the name of a layer."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from drawing import TIMES, apart
from drawn_onnx import SIDES, Net, conv, gemm
from drawn_onnx_ops import DRAWS, Draw
from test_onnx import load, reference

from microtrain.convert.ir import ConvertError

DRAWN = 24 * TIMES  # files for each operator
FEW = {"Tile": 1, "attention": 1, "SpaceToDepth": 1, "DepthToSpace": 1}  # that convert: most draws fit none
MOST = 2000  # numbers of a tensor


def grown(net: Net, x: str, draw: Draw) -> str:
    """A step more, or x: many draws are nothing that ONNX has."""
    nodes, held = list(net.nodes), dict(net.held)
    try:
        made = draw(net, x)
    except Exception:  # whatever the evaluator raises
        made = ""
    fits = made and net.held[made].dtype == np.float32 and net.held[made].size <= MOST
    if fits and net.shape(made)[:1] == (1,):
        return made
    net.nodes, net.held = nodes, held
    return x


def network(seed: int, op: str, folder: Path) -> Path | None:
    """A file in which an operator stands; None where no draw of it was one."""
    net = Net(seed)
    rank = net.one((4, 4, 4, 3, 2))
    bare = rank == 2 or net.chance(0.2)  # no layer says how the input lies: all its sizes are different
    sides = [net.one(SIDES) for _ in range(rank - 1)]
    x = net.input(1, *(list(net.rng.permutation((2, 3, 4, 5, 6))[: rank - 1]) if bare else sides))
    x = x if bare else grown(net, x, conv if rank > 2 else gemm)
    others = list(DRAWS.values())
    for _ in range(net.one((0, 0, 1))):
        x = grown(net, x, net.one(others))
    before, count = x, 0
    while x == before and (count := count + 1) < 8:
        x = grown(net, x, DRAWS[op])
    if x == before:
        return None
    for _ in range(net.one((0, 1, 1, 2))):
        x = grown(net, x, net.one(others))
    x = net.add("Flatten", x) if net.rank(x) != 2 else x
    x = net.add("Gemm", x, net.drawn(net.shape(x)[1], 3), net.drawn(3))
    return net.saved(folder / f"{seed}.onnx", x)


def _is_right(path: Path) -> bool:
    """Whether a file converts, with the evaluator's values."""
    try:
        graph = load(path)
    except ConvertError as error:
        assert "layer" in str(error), error
        return False
    entry = onnx.load(str(path)).graph.input[0].type.tensor_type.shape.dim
    differs = apart(graph, [d.dim_value for d in entry[1:]], lambda samples: reference(path, samples))
    assert differs is not None and differs < 1e-4
    return True


@pytest.mark.parametrize("op", DRAWS)
def test_drawn_networks_are_right_or_refused(op: str, tmp_path: Path) -> None:
    seeds = (1000 * draw + list(DRAWS).index(op) for draw in range(DRAWN))
    files = [path for seed in seeds if (path := network(seed, op, tmp_path))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        right = sum(_is_right(path) for path in files)
    assert right >= FEW.get(op, 4) * TIMES, f"{right} of {len(files)}"
