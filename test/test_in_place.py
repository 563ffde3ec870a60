"""What forward() changes in place: as PyTorch means it, or one sentence, never other numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_own_models import Own, read, save
from test_resample import assert_as_pytorch
from torch import nn
from torch.nn import functional

from microtrain.convert.frontends import in_place
from microtrain.convert.ir import ConvertError

SHAPE = (3, 8, 8)


def part(net: Own, x: torch.Tensor) -> Any:
    y = net.a(x)
    y[:, :2].mul_(3.0)
    return net.head(y.mean((2, 3)))


def part_of_a_part(net: Own, x: torch.Tensor) -> Any:
    y = net.a(x)
    functional.relu_(y[:, :4][:, :2])
    return net.head(y.mean((2, 3)))


def row(net: Own, x: torch.Tensor) -> Any:
    y = net.a(x)
    y[:, :, 0].mul_(2.0)
    return net.head(y.mean((2, 3)))


def whole(net: Own, x: torch.Tensor) -> Any:
    """The part was taken before the whole changed."""
    y = net.a(x)
    first = y[:, :3]
    functional.relu_(y)
    return net.head(torch.cat([first, y[:, 3:]], 1).mean((2, 3)))


def assigned(net: Own, x: torch.Tensor) -> Any:
    y = net.a(x)
    y[:, 0] = 0.0
    return net.head(y.mean((2, 3)))


def view(net: Own, x: torch.Tensor) -> Any:
    y = net.a(x)
    y.flatten(2).mul_(2.0)
    return net.head(y.mean((2, 3)))


def unread(net: Own, x: torch.Tensor) -> Any:
    """What changes is read by nobody any more."""
    y = functional.relu_(net.a(x)[:, :, :-1])
    made = net.head(y.mean((2, 3)))
    y += 1
    return made


def dropped(net: Own, x: torch.Tensor) -> Any:
    """A dropout in place that drops nothing, as MobileNetV3 has it in front of its last layer."""
    y = functional.relu6(net.a(x), inplace=True)
    functional.dropout(y[:, :2], 0.2, training=False, inplace=True)
    return net.head(functional.dropout(y.mean((2, 3)), 0.2, training=False, inplace=True))


def network(forward: Callable[[Own, torch.Tensor], Any]) -> Own:
    torch.manual_seed(2)
    return Own(forward, nn.Conv2d(3, 6, 3), head=nn.Linear(6, 3)).eval()


REFUSED = {
    part: "mean reads what mul has changed through a part or a view",
    part_of_a_part: "mean reads what relu has changed through a part or a view",
    row: "mean reads what mul has changed through a part or a view",
    whole: "cat reads what relu has changed through a part or a view",
    assigned: r"the op fill is not supported; the nearest that is: parts that are computed and put together",
}


@pytest.mark.parametrize("suffix", [".pt2", ".pt"])
@pytest.mark.parametrize("forward", REFUSED)
def test_what_would_have_other_numbers_is_refused(forward: Any, suffix: str, tmp_path: Path) -> None:
    path = save(network(forward), SHAPE, tmp_path / f"net{suffix}")
    with pytest.raises(ConvertError, match=REFUSED[forward]) as caught:
        read(path, SHAPE)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".pt2", ".torchscript"])
@pytest.mark.parametrize("forward", [view, unread, dropped])
def test_the_rest_is_as_pytorch_has_it(forward: Any, suffix: str, tmp_path: Path) -> None:
    assert_as_pytorch(network(forward), tmp_path / f"net{suffix}", SHAPE)


def test_without_the_watch_numbers_are_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place, "_check", lambda *about: None)
    with pytest.raises(AssertionError):
        assert_as_pytorch(network(part), tmp_path / "net.pt2", SHAPE)
