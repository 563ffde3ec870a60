"""A matrix of one's own, x @ w: what was trained goes back the way round it came."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from test_resample import assert_as_pytorch
from torch import nn
from torch.nn import functional

from microtrain.base.plan import Origin, Plan, read_plan, text
from microtrain.base.trained import TURNED
from microtrain.convert.emit.code import generate
from microtrain.convert.emit.document import document
from microtrain.convert.frontends.module import load_model
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.scheme import ALL, Scheme
from microtrain.convert.trainables import layout
from microtrain.device.merging import merge

DTYPES = {"s8": "i1", "s16": "<i2", "f32": "<f4"}


class Own(nn.Module):
    """A hidden layer and a head of one's own, as square as can be, and one of nn.Linear's."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.inner = nn.Conv2d(3, 6, 3), nn.Linear(6, 6)
        self.w, self.v = nn.Parameter(torch.randn(6, 6) * 0.5), nn.Parameter(torch.randn(6, 6) * 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv(x)).mean((2, 3))
        x = torch.relu(self.inner(torch.relu(x @ self.w)))
        return torch.mm(x, self.v)


class Transposed(Own):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv(x)).mean((2, 3))
        x = torch.relu(self.inner(torch.relu(functional.linear(x, self.w.t()))))
        return x @ self.v


def planned(model: nn.Module, path: Path) -> tuple[Plan, dict[str, np.ndarray]]:
    """The plan of a conversion in which all learns, and the weights that the device begins with."""
    graph = load_model(path).graph
    images = np.random.default_rng(0).integers(0, 256, (16, 9, 9, 3)).astype(np.uint8)
    scheme = Scheme("full", biases=-1, weights={ALL: 1.0}, head="keep")
    compiled = compile_graph(quantize_model(graph, images, Choices()), scheme, 6)
    written = document(compiled, generate(compiled, "a test"), Origin("", "", ""), None)
    (path.parent / "plan.json").write_text(text(written))
    arrays = {
        item.name: np.frombuffer(item.data, DTYPES[item.dtype]).reshape(item.shape)
        for item in layout(compiled.graph)
    }
    return read_plan(path.parent / "plan.json"), arrays


@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("kind", [Own, Transposed])
def test_they_go_back_as_they_came(kind: type[Own], decomposed: bool, tmp_path: Path) -> None:
    torch.manual_seed(2)
    model, path = kind().eval(), tmp_path / "model.pt2"
    assert_as_pytorch(model, path, (3, 9, 9))
    program = torch.export.export(model, (torch.zeros(1, 3, 9, 9),))
    torch.export.save(program.run_decompositions() if decomposed else program, path)
    plan, arrays = planned(model, path)
    state = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
    merged, _ = merge(plan, arrays, state)
    turned = {t.source.weight for t in plan.trainables.tensors if t.source.columns == TURNED}
    assert turned == {"w", "v"} and {"w", "v", "inner.weight", "conv.weight"} <= merged.keys()
    for name in ("w", "v", "inner.weight", "conv.weight"):
        np.testing.assert_allclose(merged[name], state[name], atol=0.02, err_msg=name)
        assert name not in ("w", "v") or np.abs(merged[name].T - state[name]).max() > 0.2
