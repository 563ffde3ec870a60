"""Random PyTorch networks have PyTorch's values, or are refused with the name of a layer."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from drawing import TIMES, apart
from drawn_torch import ALONE, DRAWS, SIDES, Draw, Net
from torch import Tensor, nn

from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError
from microtrain.convert.verify import verify

DRAWN = {name: (6 if name in ALONE else 24) * TIMES for name in DRAWS}  # files
FEW = {"attention": 1, "joined": 2, "transposed": 2, "in place": 5}  # that convert: most draws fit none
MOST = 2000  # numbers of a tensor
LARGEST = 50.0  # of them: sines of large numbers are luck


def grown(net: Net, values: list[Tensor], draw: Draw) -> bool:
    """A step more, if the draw has a meaning here."""
    parts = len(net.parts)
    try:
        step = draw(net, values)
        made = step(values)
    except (ValueError, RuntimeError, IndexError):
        made = values[0][:0]
    whole = (
        made.numel() and made.ndim in (2, 3, 4) and made.shape[0] == 1 and bool(torch.isfinite(made).all())
    )
    if not whole or made.numel() > MOST:
        del net.parts[parts:]
        return False
    net.steps.append(step)
    values.append(made)
    return True


def network(seed: int, name: str) -> tuple[Net, tuple[int, ...]] | None:
    """A network in which a step stands, and its input's shape; None where no draw had a meaning."""
    net = Net(seed)
    rank = net.one((4, 4, 4, 3, 2))
    dims = (1, *(net.one(SIDES) for _ in range(rank - 1)))
    values, others = [torch.rand(dims)], list(DRAWS.values())
    with torch.no_grad():
        grown(net, values, DRAWS["conv" if rank > 2 else "linear"])
        for _ in range(net.one((0, 1))):
            grown(net, values, net.one(others))
        if not any(grown(net, values, DRAWS[name]) for _ in range(8)):
            return None
        for _ in range(net.one((0, 1, 1, 2))):
            grown(net, values, net.one(others))
        last = nn.Linear(values[-1][0].numel(), 3)
    net.parts.append(last)
    net.steps.append(lambda v: last(v[-1].flatten(1)))
    return net, dims


def logits(net: Net, samples: np.ndarray) -> np.ndarray:
    """One by one: batches are of one."""
    return torch.cat([net(torch.from_numpy(each)[None]) for each in samples]).numpy()


def is_right(net: Net, dims: tuple[int, ...], path: Path) -> bool:
    """Whether a network converts, with PyTorch's values of an image or, in its own order, of a sequence."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.jit.trace(net.eval(), torch.rand(dims), check_trace=False).save(str(path))
        try:
            graph = verify(load_model(path, input_shape=dims[1:]).graph)
        except ConvertError as error:
            assert "layer" in str(error) or "forward()" in str(error), error
            return False
        net.double()
        differs = apart(graph, dims[1:], lambda samples: logits(net, samples))
    if differs is None:
        return False
    assert differs < 1e-4
    return True


@pytest.mark.parametrize("name", DRAWS)
def test_drawn_networks_are_right_or_refused(name: str, tmp_path: Path) -> None:
    seeds = [1000 * draw + list(DRAWS).index(name) for draw in range(DRAWN[name])]
    drawn = [found for seed in seeds if (found := network(seed, name))]
    right = sum(is_right(net, dims, tmp_path / f"{i}.pt") for i, (net, dims) in enumerate(drawn))
    assert right >= FEW.get(name, DRAWN[name] // TIMES // 3) * TIMES, f"{right} of {len(drawn)}"
