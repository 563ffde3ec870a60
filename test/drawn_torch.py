"""What PyTorch's calls may follow one another: each with random arguments, for a tensor of some shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as f

from microtrain.convert.frontends.aten.rules import RULES
from microtrain.convert.ops import TABLE, ForwardOp

SIDES = (1, 2, 3, 4, 4, 4, 5, 6, 7)  # 4 is drawn often, so that rows are as many as columns, or as channels
Step = Callable[[list[Tensor]], Tensor]  # of all tensors so far; the last is what it goes on with


class Net(nn.Module):
    """Steps, each of which may read what any before it has made; it ends in a linear layer."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        self.steps: list[Step] = []
        self.parts = nn.ModuleList()

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for step in self.steps:
            values.append(step(values))
        return values[-1]

    def one(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, share: float = 0.5) -> bool:
        return bool(self.rng.random() < share)

    def part(self, module: nn.Module) -> Step:
        """A module whose statistics are drawn too."""
        for name, value in module.named_buffers():
            if value.is_floating_point():
                value.copy_(torch.rand_like(value) + (0.5 if "var" in name else 0.0))
        self.parts.append(module.eval())
        return lambda values: module(values[-1])

    def parameter(self, *shape: int, around: float = 0.0) -> nn.Parameter:
        made = nn.Parameter(torch.randn(shape) * 0.5 + around)
        self.register_parameter(f"p{len(list(self.parameters(recurse=False)))}", made)
        return made


Draw = Callable[[Net, list[Tensor]], Step]  # what has no meaning for these tensors raises


def _rank(values: list[Tensor], least: int, most: int = 4) -> Tensor:
    if not least <= values[-1].ndim <= most:
        raise ValueError("another rank")
    return values[-1]


def _conv(net: Net, values: list[Tensor]) -> Step:
    x = _rank(values, 3)
    c, sides = x.shape[1], x.shape[2:]
    groups = net.one([g for g in (1, 1, 1, 2, c) if c % g == 0])
    kernel = [net.one((1, 2, 3, 3, 5)) for _ in sides]
    about: dict[str, Any] = {
        "stride": [net.one((1, 1, 2)) for _ in sides],
        "padding": [net.one((0, k // 2)) for k in kernel],
    }
    about["dilation"] = [net.one((1, 1, 1, 2)) for _ in sides]
    outputs = groups * net.one((1, 2, 3)) if groups > 1 else net.one(SIDES)
    kind: Any = nn.Conv1d if len(sides) == 1 else nn.Conv2d
    return net.part(kind(c, outputs, kernel, groups=groups, bias=net.chance(0.7), **about))


def _transposed(net: Net, values: list[Tensor]) -> Step:
    x = _rank(values, 4)
    kernel, stride = net.one((1, 2, 3)), net.one((1, 2, 3))
    return net.part(
        nn.ConvTranspose2d(x.shape[1], net.one(SIDES), kernel, stride, net.one((0, kernel // 2)),
                           output_padding=net.one((0, stride - 1)))
    )  # fmt: skip


def _linear(net: Net, values: list[Tensor]) -> Step:
    return net.part(nn.Linear(values[-1].shape[-1], net.one(SIDES), bias=net.chance(0.7)))


def _pool(net: Net, values: list[Tensor]) -> Step:
    x = _rank(values, 4)
    kernel = [net.one([k for k in (1, 2, 3) if k <= side]) for side in x.shape[2:]]
    padding = [net.one((0, k // 2)) for k in kernel]
    stride = [net.one((1, 2, k)) for k in kernel]
    ceil, count = net.chance(0.3), net.chance()
    if net.chance():
        return lambda v: f.max_pool2d(v[-1], kernel, stride, padding, ceil_mode=ceil)
    return lambda v: f.avg_pool2d(v[-1], kernel, stride, padding, ceil, count)


def _adaptive(net: Net, values: list[Tensor]) -> Step:
    x = _rank(values, 4)
    size = [net.one((1, 2, side)) for side in x.shape[2:]]
    kind = net.one((f.adaptive_avg_pool2d, f.adaptive_max_pool2d))
    return lambda v: kind(v[-1], size)


def _of_positive(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: function(x.abs() + 0.5)


def _functions() -> dict[str, Callable[[Tensor], Tensor]]:
    """What the op table has a rule for, and PyTorch applies to each number alone or to all of them."""
    entries = (entry.aten for entry in TABLE.values() if isinstance(entry, ForwardOp))
    found, x = dict[str, Callable[[Tensor], Tensor]](), torch.rand(1, 3, 4, 5) + 0.5
    for name in sorted({*RULES, *(name for rules in entries for name in rules)} - {*JUMPS}):
        function = getattr(f, name, getattr(torch, name, None))
        try:
            made = function(x)  # type: ignore[misc]
        except (TypeError, RuntimeError, ValueError):
            continue
        if not isinstance(made, Tensor) or made.shape != x.shape or "dropout" in name or "softmax" in name:
            continue
        of_all = all(bool(torch.isfinite(function(y)).all()) for y in (-x, 0 * x))  # type: ignore[misc]
        found[name] = function if of_all else _of_positive(function)  # type: ignore[assignment,arg-type]
    return found


JUMPS = ("ceil", "floor", "round", "sign", "detach", "detach_copy", "clone")  # and what does nothing
ALONE: dict[str, Callable[[Tensor], Tensor]] = {
    **_functions(),
    "hard gate": lambda x: x * f.relu6(x + 3) / 6,
    "clamp": lambda x: x.clamp(-0.3, 0.6),
    "dropout": lambda x: f.dropout(x, 0.5, False),
    "numbers": lambda x: (1.5 - 2 * x) / 3 + 0.25,
    "where": lambda x: torch.where(x > 0.1, x, 0.5 * x),
    "masked": lambda x: x.masked_fill(x < 0, 0.25),
}


def _alone(name: str) -> Draw:
    return lambda net, values: lambda v: ALONE[name](v[-1])


def _in_place(net: Net, values: list[Tensor]) -> Step:
    """Something of its own that is written to, all of it or a part."""
    side = values[-1].shape[1]
    change = net.one((torch.relu_, torch.exp_, lambda x: x.mul_(1.5), lambda x: x.add_(0.25)))

    def whole(v: list[Tensor]) -> Tensor:
        x = v[-1] * 1.25
        change(x)
        return x

    def part(v: list[Tensor]) -> Tensor:
        x = v[-1] * 1.25
        change(x[:, : max(side // 2, 1)])
        return x

    return whole if net.chance() else part


def _beside(net: Net, values: list[Tensor]) -> Step:
    """Arithmetic with what was made before, or with a parameter of a shape that goes with it."""
    x, op = values[-1], net.one((torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum))
    same = [i for i, v in enumerate(values[1:-1], 1) if v.shape == x.shape]
    if same and net.chance(0.7):
        place = net.one(same)
        return (lambda v: op(v[-1], v[place])) if net.chance() else (lambda v: op(v[place], v[-1]))
    channels = [1, x.shape[1], *[1] * (x.ndim - 2)]
    shape = net.one(
        (channels, channels, channels[1:], [1], [1] * (x.ndim - 1) + [x.shape[-1]], [x.shape[-1]])
    )
    p = net.parameter(*shape, around=net.one((0.0, 1.5)))
    return (lambda v: op(v[-1], p)) if net.chance() else (lambda v: op(p, v[-1]))


def _of_one_line(net: Net, values: list[Tensor]) -> Step:
    """Arithmetic with one row, column or channel of itself, or with the mean of all, in either order."""
    x, op = values[-1], net.one((torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum))
    axis = int(net.rng.integers(1, x.ndim))
    place, mean, first = int(net.rng.integers(x.shape[axis])), net.chance(), net.chance()

    def step(v: list[Tensor]) -> Tensor:
        line = v[-1].mean(axis, keepdim=True) if mean else v[-1].narrow(axis, place, 1)
        made: Tensor = op(line, v[-1]) if first else op(v[-1], line)
        return made

    return step


def _norm(net: Net, values: list[Tensor]) -> Step:
    x = values[-1]
    c, kind = x.shape[1], net.one(("batch", "group", "instance", "layer"))
    if kind == "batch":
        return net.part((nn.BatchNorm1d if x.ndim < 4 else nn.BatchNorm2d)(c))
    if kind == "layer":
        over = list(x.shape[net.one((-1, 1)) :])
        if math.prod(over) < 3:
            raise ValueError("nothing is left")
        return net.part(nn.LayerNorm(over, eps=1e-2))
    if x.ndim != 4 or math.prod(x.shape[2:]) < 3:
        raise ValueError("nothing is left")
    groups = net.one([g for g in (1, 2, c) if c % g == 0])
    return net.part(nn.GroupNorm(groups, c, eps=1e-2) if kind == "group" else nn.InstanceNorm2d(c, eps=1e-2))


def _mean(net: Net, values: list[Tensor]) -> Step:
    rank, keep = values[-1].ndim, net.chance()
    axes = net.one([(a,) for a in range(1, rank)] + [tuple(range(2, rank)) or (1,), (-1,)])
    op = net.one((torch.mean, torch.mean, torch.sum, torch.amax, torch.amin))
    return lambda v: op(v[-1], dim=axes, keepdim=keep)


def _view(net: Net, values: list[Tensor]) -> Step:
    dims = values[-1].shape
    rank, size = net.one((2, 3, 3, 4)), math.prod(dims)
    new = [1]
    for _ in range(rank - 2):
        new.append(net.one([d for d in range(1, size + 1) if size % d == 0 and d < 60]))
        size //= new[-1]
    return lambda v: v[-1].reshape(*new, -1)


def _axes(net: Net, values: list[Tensor]) -> Step:
    x = values[-1]
    perm = [0, *(int(a) + 1 for a in net.rng.permutation(x.ndim - 1))]
    axis = int(net.rng.integers(1, x.ndim))
    steps: tuple[Step, ...] = (
        lambda v: v[-1].permute(perm),
        lambda v: v[-1].transpose(axis, -1),
        lambda v: v[-1].flatten(axis),
        lambda v: v[-1].unsqueeze(axis) if v[-1].ndim < 4 else v[-1].flatten(1, 2),
        lambda v: v[-1].movedim(1, -1),
        lambda v: v[-1].squeeze(axis),
    )
    step: Step = net.one(steps)
    return step


def _last(net: Net, values: list[Tensor]) -> Step:
    """Channels last, a layer of them, and back: as ConvNeXt has it."""
    x = _rank(values, 3)
    perm, back = [0, *range(2, x.ndim), 1], [0, x.ndim - 1, *range(1, x.ndim - 1)]
    layer = net.one((nn.Linear(x.shape[1], net.one(SIDES)), nn.GELU(), nn.Softplus()))
    made = net.part(layer)
    return lambda v: made([v[-1].permute(perm)]).permute(back)


def _cut(net: Net, values: list[Tensor]) -> Step:
    x = values[-1]
    axis = net.one([a for a in range(1, x.ndim) if x.shape[a] > 1])
    side = x.shape[axis]
    first = int(net.rng.integers(1, side))
    places = torch.from_numpy(net.rng.integers(0, side, net.one((1, 2, side))))
    steps: tuple[Step, ...] = (
        lambda v: v[-1].narrow(axis, first, side - first),
        lambda v: torch.cat(v[-1].split([first, side - first], axis)[::-1], axis),
        lambda v: v[-1].chunk(2, axis)[0],
        lambda v: v[-1].select(axis, first),
        lambda v: v[-1].index_select(axis, places),
        lambda v: v[-1].flip(axis),
        lambda v: v[-1].roll(first, axis),
        lambda v: v[-1].diff(dim=axis),
        lambda v: torch.cat([v[-1], v[-1].narrow(axis, 0, 1)], axis),
        lambda v: torch.stack(v[-1].unbind(axis), axis),
    )
    step: Step = net.one(steps)
    return step


def _joined(net: Net, values: list[Tensor]) -> Step:
    x, axis = values[-1], int(net.rng.integers(1, values[-1].ndim))
    alike = [
        i for i, v in enumerate(values[1:-1], 1)
        if v.ndim == x.ndim and all(v.shape[a] == x.shape[a] for a in range(x.ndim) if a != axis)
    ]  # fmt: skip
    place = net.one(alike)
    return lambda v: torch.cat([v[place], v[-1]], axis)


def _copies(net: Net, values: list[Tensor]) -> Step:
    rank, axis = values[-1].ndim, int(net.rng.integers(1, values[-1].ndim))
    times = [1, *(net.one((1, 1, 2)) for _ in range(rank - 1))]
    steps: tuple[Step, ...] = (
        lambda v: v[-1].repeat(times),
        lambda v: v[-1].tile(times[1:]),
        lambda v: v[-1].repeat_interleave(2, axis),
        lambda v: torch.cat([v[-1], v[-1].relu(), v[-1]], axis),
    )
    step: Step = net.one(steps)
    return step


def _around(net: Net, values: list[Tensor]) -> Step:
    x = _rank(values, 3)
    mode = net.one(("constant", "replicate", "reflect"))
    pads = [net.one((0, 1)) for _ in range(2 * (x.ndim - 2))]
    return lambda v: f.pad(v[-1], pads, mode)


def _sized(net: Net, values: list[Tensor]) -> Step:
    x = _rank(values, 4)
    mode, size = net.one(("nearest", "bilinear")), [net.one((1, 2, 3)) * side for side in x.shape[2:]]
    corners = net.chance() if mode == "bilinear" else None
    steps: tuple[Step, ...] = (
        lambda v: f.interpolate(v[-1], size=size, mode=mode, align_corners=corners),
        lambda v: f.pixel_shuffle(v[-1], 2),
        lambda v: f.pixel_unshuffle(v[-1], 2),
        lambda v: f.channel_shuffle(v[-1], 2),
    )
    step: Step = net.one(steps)
    return step


def _attention(net: Net, values: list[Tensor]) -> Step:
    x = _rank(values, 3, 3)
    c = x.shape[2]
    q, k, v = (nn.Linear(c, 4) for _ in range(3))
    net.parts.extend((q, k, v))
    scale = net.one((1.0, 0.5))
    if net.chance():
        return lambda a: f.scaled_dot_product_attention(q(a[-1]), k(a[-1]), v(a[-1]))
    return lambda a: (q(a[-1]) @ k(a[-1]).transpose(1, 2) * scale).softmax(-1) @ v(a[-1])


def _squeeze_excite(net: Net, values: list[Tensor]) -> Step:
    c = _rank(values, 4).shape[1]
    less, more = nn.Conv2d(c, 2, 1), nn.Conv2d(2, c, 1)
    net.parts.extend((less, more))
    return lambda v: v[-1] * f.relu6(more(f.relu(less(v[-1].mean((2, 3), keepdim=True)))) + 3)


DRAWS: dict[str, Draw] = {
    "conv": _conv,
    "transposed": _transposed,
    "linear": _linear,
    "pool": _pool,
    "adaptive": _adaptive,
    **{name: _alone(name) for name in ALONE},
    "in place": _in_place,
    "beside": _beside,
    "of one line": _of_one_line,
    "norm": _norm,
    "mean": _mean,
    "view": _view,
    "axes": _axes,
    "last": _last,
    "cut": _cut,
    "joined": _joined,
    "copies": _copies,
    "around": _around,
    "sized": _sized,
    "attention": _attention,
    "squeeze and excite": _squeeze_excite,
}
