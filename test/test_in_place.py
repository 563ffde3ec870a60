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

from microtrain.convert.frontends.aten import in_place
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


def copy(net: Own, x: torch.Tensor) -> Any:
    """Each of what is called a copy has memory of its own, whichever of both changes."""
    y = net.a(x)
    z, same = y.clone(), y * 1
    functional.relu_(y)
    same.abs_()
    return net.head((y * z + same + functional.interpolate(y, scale_factor=1).neg_()).mean((2, 3)))


def padded(net: Own, x: torch.Tensor) -> Any:
    """What is noted of a map for later: zeros around it, and the mean of its rows."""
    y = net.a(x)
    wide, rows = functional.pad(y, (1, 1, 1, 1)), y.mean(3, keepdim=True)
    functional.relu_(y)
    return net.head(
        (functional.conv2d(wide, net.get_parameter("b.weight")) + y * rows.mean(2, keepdim=True)).mean((2, 3))
    )


def shares(net: Own, x: torch.Tensor) -> Any:
    """A softmax that is written out where it is read."""
    y = net.a(x)
    made = y.softmax(1)
    functional.relu_(y)
    return net.head((made * y).mean((2, 3)))


def scaled(net: Own, x: torch.Tensor) -> Any:
    """Tokens times a number, which attention would take in."""
    y = net.a(x).flatten(2).transpose(1, 2)
    half = y * 0.5
    functional.relu_(y)
    return net.head((net.c(half) + y).mean(1))


def scores(net: Own, x: torch.Tensor) -> Any:
    y = net.a(x).flatten(2).transpose(1, 2)
    q, k = net.c(y), net.c(y) * 2
    made = q @ k.transpose(1, 2)
    made *= 0.3
    functional.relu_(q)
    return net.head((made.softmax(-1) @ y + q).mean(1))


def centred(net: Own, x: torch.Tensor) -> Any:
    y = net.a(x).mean((2, 3))
    less = y - y.mean(1, keepdim=True)
    functional.relu_(y)
    return net.head(less / torch.sqrt((less * less).mean(1, keepdim=True) + 1e-3) + y)


def average(net: Own, x: torch.Tensor) -> Any:
    """Rows have a mean, of which the one has changed that was made first."""
    y = net.a(x)
    made = functional.avg_pool2d(y, (1, 6)).relu_()
    return net.head((made + y.mean(3, keepdim=True)).mean((2, 3)))


def turned(net: Own, x: torch.Tensor) -> Any:
    """Groups of channels exchanged: here a map of its own, there a view."""
    y = net.a(x)
    groups = y.view(-1, 2, 3, 6, 6).transpose(1, 2)
    made = groups.reshape(-1, 6, 6, 6)
    functional.relu_(groups)
    return net.head(made.mean((2, 3)))


def across(net: Own, x: torch.Tensor) -> Any:
    """Two parts that have channels in common."""
    y = net.a(x)
    first, last = y[:, :4], y[:, 3:]
    functional.relu_(first)
    return net.head(torch.cat([first[:, :3], last], 1).mean((2, 3)))


def beside(net: Own, x: torch.Tensor) -> Any:
    """Two parts that have none, of one tensor by two names."""
    y = net.a(x)
    first, last = functional.relu_(y)[:, :3], y[:, 3:]
    return net.head(torch.cat([first.neg_(), last.abs_()], 1).mean((2, 3)))


def network(forward: Callable[[Own, torch.Tensor], Any]) -> Own:
    torch.manual_seed(2)
    return Own(forward, nn.Conv2d(3, 6, 3), nn.Conv2d(6, 6, 3), nn.Linear(6, 6), head=nn.Linear(6, 3)).eval()


REFUSED = {
    part: "mean reads what mul has changed through a part or a view",
    part_of_a_part: "mean reads what relu has changed through a part or a view",
    row: "mean reads what mul has changed through a part or a view",
    whole: "cat reads what relu has changed through a part or a view",
    across: "cat reads what relu has changed through a part or a view",
    turned: "mean reads what relu has changed through a part or a view",
    assigned: r"the op fill is not supported; the nearest that is: parts that are computed and put together",
}


OTHERS = (view, unread, dropped, copy, padded, shares, scaled, scores, centred, average, beside)


@pytest.mark.parametrize("suffix", [".pt2", ".pt"])
@pytest.mark.parametrize("forward", REFUSED)
def test_what_would_have_other_numbers_is_refused(forward: Any, suffix: str, tmp_path: Path) -> None:
    path = save(network(forward), SHAPE, tmp_path / f"net{suffix}")
    with pytest.raises(ConvertError, match=REFUSED[forward]) as caught:
        read(path, SHAPE)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".pt2", ".torchscript"])
@pytest.mark.parametrize("forward", OTHERS)
def test_the_rest_is_as_pytorch_has_it(forward: Any, suffix: str, tmp_path: Path) -> None:
    assert_as_pytorch(network(forward), tmp_path / f"net{suffix}", SHAPE)


def test_without_the_watch_numbers_are_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place, "_check", lambda *about: None)
    with pytest.raises(AssertionError):
        assert_as_pytorch(network(part), tmp_path / "net.pt2", SHAPE)
