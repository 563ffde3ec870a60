"""What a few other calls make: the larger of two maps, quotients, choices, norms, softmax inside, flips."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_executor import partly_trained, run_both
from test_own_models import Own, beside_pytorch, read, save
from torch import nn
from torch.nn import functional

from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops.curves import CURVES, NUMBERS, value
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.tasks import headed

IMAGE, SERIES = (3, 12, 10), (6, 20)
Function = Callable[[torch.Tensor], torch.Tensor]


def behind(function: Callable[..., torch.Tensor]) -> Callable[[], Own]:
    """A function of what two convolutions make, or of what one does, in front of another one."""
    two = function.__code__.co_argcount == 2

    def forward(net: Own, x: torch.Tensor) -> Any:
        made = function(net.a(x), net.b(x)) if two else function(net.a(x))
        return net.head(net.c(made).mean((2, 3)))

    def make() -> Own:
        first, second = (nn.Conv2d(3, 6, 3, padding=1) for _ in range(2))
        return Own(forward, first, second, nn.LazyConv2d(5, 3), head=nn.Linear(5, 3))

    return make


def pooled_by_attention(net: Own, x: torch.Tensor) -> Any:
    """Attention pooling over time, as networks for keywords and gestures have it."""
    y = net.a(x).transpose(1, 2)
    return net.head((y * functional.softmax(net.b(torch.atan(y)), 1)).sum(1))


def of_tokens(net: Own, x: torch.Tensor) -> Any:
    """The same calls on tokens, whose features are the last axis."""
    y = net.a(x.transpose(1, 2))
    return net.head((y.softmax(-1) + torch.atan(y)).mean(1))


def standardised(net: Own, x: torch.Tensor) -> Any:
    away = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-3)
    return net.head(functional.relu(net.a(away)).mean(-1))


def with_length(net: Own, x: torch.Tensor) -> Any:
    """The length of the vector beside its parts, as of an accelerometer."""
    return net.head(functional.relu(net.a(torch.cat([x, x.norm(dim=1, keepdim=True)], 1))).mean(-1))


def of_length_one(net: Own, x: torch.Tensor) -> Any:
    return net.head(functional.normalize(functional.relu(net.a(x)).mean(-1), dim=1))


def normalised_flat(net: Own, x: torch.Tensor) -> Any:
    """A batch norm of each number of a flattened map."""
    return net.head(functional.relu(net.c(net.b(functional.relu(net.a(x)).flatten(1)))))


def weighted(net: Own, x: torch.Tensor) -> Any:
    """A share that was learned, through a function."""
    share = torch.atan(torch.as_tensor(net.c.weight))
    return net.head((share * net.a(x) + (1 - share) * net.b(x)).mean((2, 3)))


class Standardised(nn.Conv2d):
    """Weight standardisation (Qiao et al. 2019)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return functional.conv2d(x, w / (w.std((1, 2, 3), keepdim=True) + 1e-5), self.bias, padding=1)


def flat_norm() -> nn.BatchNorm1d:
    norm = nn.BatchNorm1d(480)
    assert norm.running_mean is not None and norm.running_var is not None
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    norm.running_mean.normal_(0, 0.2)
    norm.running_var.uniform_(0.5, 1.5)
    return norm


def halves(x: torch.Tensor) -> torch.Tensor:
    """Max feature maps (LightCNN)."""
    first, second = x.chunk(2, 1)
    return torch.max(first, second)


def first_of_all(net: Own, x: torch.Tensor) -> Any:
    """A head of every moment, of which one is returned, as forward() of many a recurrent network has it."""
    return net.head(net.a(x.transpose(1, 2)).relu())[:, -1]


def of_length_one_flat(net: Own, x: torch.Tensor) -> Any:
    return net.head(functional.relu(functional.normalize(net.a(x).permute(0, 2, 3, 1).flatten(1))))


NETWORKS: dict[str, tuple[Callable[[], Own], tuple[int, ...]]] = {
    "larger": (behind(lambda a, b: torch.maximum(a, b)), IMAGE),
    "smaller": (behind(lambda a, b: torch.min(a, b)), IMAGE),
    "larger half": (behind(halves), IMAGE),
    "choice": (behind(lambda a, b: torch.where(a > 0.1, a, 0.2 * b)), IMAGE),
    "one number or a map": (behind(lambda a: torch.where(a <= 0, 0.3, a)), IMAGE),
    "mask": (behind(lambda a: a * (a > 0.05).float()), IMAGE),
    "quotient": (behind(lambda a, b: a / (1 + b.abs())), IMAGE),
    "a number by a map": (behind(lambda a: 2 / (1 + a * a)), IMAGE),
    "softmax over channels": (behind(lambda a: functional.softmax(a, 1)), IMAGE),
    "log softmax over channels": (behind(lambda a: functional.log_softmax(a, 1) + a), IMAGE),
    "log softmax over a map": (behind(lambda a: a.flatten(2).log_softmax(2).view(a.shape)), IMAGE),
    "logarithm of a sum": (behind(lambda a: a + a.logsumexp(1, keepdim=True)), IMAGE),
    "logarithm of the sum of a map": (behind(lambda a: a * a.logsumexp((2, 3))[:, :, None, None]), IMAGE),
    "one channel beside many": (behind(lambda a: a - a.amax(1, keepdim=True)), IMAGE),
    "flipped": (behind(lambda a: a.flip(3)), IMAGE),
    "differences": (behind(lambda a: a.diff(dim=3)), IMAGE),
    "of differences": (behind(lambda a: torch.diff(a, 2, 2)), IMAGE),
    "of channels": (behind(lambda a: a.diff(dim=1)), IMAGE),
    "rolled": (behind(lambda a: torch.roll(a, (2, -1), (2, 3))), IMAGE),
    "chosen channels": (behind(lambda a: a[:, [4, 1, 1, 0]]), IMAGE),
    "rows behind rows": (behind(lambda a, b: torch.cat([a, b[:, :, :3]], 2)), IMAGE),
    "softplus of a slope": (behind(lambda a: functional.softplus(a, beta=2)), IMAGE),
    "smallest": (behind(lambda a: a.amin((2, 3), keepdim=True) + a), IMAGE),
    "largest of a flat map": (behind(lambda a: a.flatten(2).max(2)[0][:, :, None, None] + a), IMAGE),
    "deviations of rows and of a map": (
        behind(lambda a, b: b - a.std(2, keepdim=True) - (a * b).std((2, 3), keepdim=True)),
        IMAGE,
    ),
    "more channels": (behind(lambda a: functional.pad(a[:, :, ::2, ::2], (0, 0, 0, 0, 2, 3))), IMAGE),
    "more channels and pixels": (behind(lambda a: functional.pad(a, (1, 0, 0, 2, 0, 2), value=0.0)), IMAGE),
    "zeros beside a map": (
        behind(lambda a: torch.cat([a, torch.zeros(1, 4, *a.shape[2:]), torch.ones(1, 1, *a.shape[2:])], 1)),
        IMAGE,
    ),
    "double precision": (behind(lambda a: a.double().relu().float()), IMAGE),
    "batch norm of a flat map": (
        lambda: Own(
            normalised_flat,
            nn.Conv2d(3, 4, 3, padding=1),
            flat_norm(),
            nn.Linear(480, 9),
            head=nn.Linear(9, 3),
        ),
        IMAGE,
    ),
    "share that is computed": (
        lambda: Own(weighted, nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3), nn.Linear(1, 1), head=nn.Linear(4, 3)),
        IMAGE,
    ),
    "standardised weights": (
        lambda: Own(
            lambda net, x: net.head(functional.relu(net.a(x)).mean((2, 3))),
            Standardised(3, 6, 3),
            head=nn.Linear(6, 3),
        ),
        IMAGE,
    ),
    "pooled by attention": (
        lambda: Own(pooled_by_attention, nn.Conv1d(6, 8, 3), nn.Linear(8, 1), head=nn.Linear(8, 3)),
        SERIES,
    ),
    "tokens": (lambda: Own(of_tokens, nn.Linear(6, 8), head=nn.Linear(8, 3)), SERIES),
    "standardised": (lambda: Own(standardised, nn.Conv1d(6, 8, 3), head=nn.Linear(8, 3)), SERIES),
    "one of many heads": (lambda: Own(first_of_all, nn.Linear(6, 8), head=nn.Linear(8, 3)), SERIES),
    "of length one, flat": (
        lambda: Own(of_length_one_flat, nn.Conv2d(3, 4, 3), head=nn.Linear(320, 3)),
        IMAGE,
    ),
    "layer norm, flat": (
        lambda: Own(
            lambda net, x: net.head(functional.relu(net.b(net.a(x).flatten(1)))),
            nn.Conv2d(3, 4, 3),
            nn.LayerNorm(320, elementwise_affine=False),
            head=nn.Linear(320, 3),
        ),
        IMAGE,
    ),
    "with length": (lambda: Own(with_length, nn.Conv1d(7, 8, 3), head=nn.Linear(8, 3)), SERIES),
    "of length one": (lambda: Own(of_length_one, nn.Conv1d(6, 8, 3), head=nn.Linear(8, 3)), SERIES),
}
NOT_IN_ONNX = ("with length", "tokens")  # refused: views in orders of the exporter
NOT_EXPORTED = ("differences", "of differences", "of channels")


def made(name: str, suffix: str, folder: Path) -> tuple[Graph, np.ndarray, np.ndarray]:
    """The float graph of a network, images and what PyTorch makes of them."""
    make, shape = NETWORKS[name]
    torch.manual_seed(3)
    net = make().eval()
    graph, pixels, wanted = beside_pytorch(net, shape, folder / f"net{suffix}")
    return graph, np.moveaxis(pixels, 1, -1).reshape(-1, *graph.tensors[graph.input.tensor].shape), wanted


@pytest.mark.parametrize("suffix", [".pt2", ".pt", ".onnx"])
@pytest.mark.parametrize("name", NETWORKS)
def test_it_computes_what_pytorch_does(name: str, suffix: str, tmp_path: Path) -> None:
    if suffix == ".onnx" and name in NOT_IN_ONNX:
        pytest.skip("refused with a sentence there")
    if suffix == ".onnx" and name in NOT_EXPORTED:
        pytest.skip("torch.onnx's older exporter does not know it")
    graph, images, wanted = made(name, suffix, tmp_path)
    found = run_float(graph, images).reshape(wanted.shape)
    assert np.abs(found - wanted).max() < 2e-5 * np.abs(wanted).max()
    stored = run_int8(quantize_model(graph, images, Choices()), images).reshape(wanted.shape)
    assert np.abs(stored - wanted).max() < 0.1 * np.ptp(wanted), "in int8"


@pytest.mark.parametrize(
    "name",
    [
        *("larger", "softmax over channels", "choice", "rows behind rows", "of length one"),
        *("log softmax over channels", "more channels"),
    ],
)
def test_it_learns_on_the_device_as_in_the_executor(name: str, tmp_path: Path) -> None:
    graph, images, _ = made(name, ".pt2", tmp_path)
    trained = partly_trained(quantize_model(graph, images, Choices()), 4)
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path), 4)


RETURNS: dict[str, Callable[[Own, torch.Tensor], Any]] = {
    "flipped": lambda net, x: net.head(net.a(x).mean((2, 3))).flip(1),
    "in an order": lambda net, x: net.head(net.a(x).mean((2, 3)))[:, [2, 0, 1]],
    "rolled": lambda net, x: torch.roll(net.head(net.a(x).mean((2, 3))), 1, 1),
    "of length one": lambda net, x: functional.normalize(net.head(net.a(x).flatten(2).mean(-1)).flip(1)),
    "scaled": lambda net, x: (net.head(net.a(x).flatten(2).transpose(1, 2)) * 0.5)[:, 0],
}


@pytest.mark.parametrize("suffix", [".pt2", ".pt"])
@pytest.mark.parametrize("name", RETURNS)
def test_logits_in_another_order_are_a_sentence(name: str, suffix: str, tmp_path: Path) -> None:
    """They were taken for those in the layer's order, one class for another."""
    net = Own(RETURNS[name], nn.Conv2d(3, 4, 3), head=nn.Linear(4, 3)).eval()
    with pytest.raises(ConvertError, match=r"it must end with a linear layer|is not supported"):
        headed(read(save(net, IMAGE, tmp_path / f"net{suffix}"), IMAGE))


def test_places_of_a_square_are_taken_in_onnx(tmp_path: Path) -> None:
    """A square alone was handed on as it is, whatever the step does with its places."""
    torch.manual_seed(3)
    net = Own(
        lambda net, x: net.head((net.a(x).mean((2, 3)) ** 2).flip(1)),
        nn.Conv2d(3, 4, 3),
        head=nn.Linear(4, 3),
    ).eval()
    pixels = np.random.default_rng(4).integers(0, 256, (8, *IMAGE)).astype(np.uint8)
    with torch.no_grad():
        wanted = net(torch.tensor(pixels / np.float32(255))).numpy()
    graph = read(save(net, IMAGE, tmp_path / "net.onnx"), IMAGE)
    found = run_float(graph, np.moveaxis(pixels, 1, -1)).reshape(wanted.shape)
    assert np.abs(found - wanted).max() < 2e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("suffix", [".pt2", ".pt", ".onnx"])
def test_a_shuffled_vector_keeps_its_order(suffix: str, tmp_path: Path) -> None:
    """In ONNX it was taken for one with its channels last, and its order was lost."""

    def forward(net: Own, x: torch.Tensor) -> Any:
        return net.head(net.a(x).mean((2, 3)).view(1, 3, 2).transpose(1, 2).reshape(1, 6))

    torch.manual_seed(3)
    net = Own(forward, nn.Conv2d(3, 6, 3), head=nn.Linear(6, 3)).eval()
    pixels = np.random.default_rng(4).integers(0, 256, (4, *IMAGE)).astype(np.uint8)
    with torch.no_grad():
        wanted = np.concatenate([net(torch.tensor(p / np.float32(255))[None]).numpy() for p in pixels])
    graph = read(save(net, IMAGE, tmp_path / f"net{suffix}"), IMAGE)
    found = run_float(graph, np.moveaxis(pixels, 1, -1)).reshape(wanted.shape)
    assert np.abs(found - wanted).max() < 2e-5 * np.abs(wanted).max()


def test_a_divisor_near_nothing_is_a_sentence(tmp_path: Path) -> None:
    """int8 would hold one number of its reciprocals, and the network answers anything."""
    torch.manual_seed(3)
    net = behind(lambda a: a / (functional.relu(a - 0.2).sum(1, keepdim=True) + 1e-4))().eval()
    images = np.random.default_rng(4).integers(0, 256, (8, 12, 10, 3)).astype(np.uint8)
    net(torch.zeros(1, *IMAGE))
    graph = read(save(net, IMAGE, tmp_path / "net.pt2"), IMAGE)
    with pytest.raises(
        ConvertError, match=r"divides by numbers that come too near to 0 .* add to the divisor"
    ):
        quantize_model(graph, images, Choices())


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_a_flat_batch_norm_in_front_of_anything_else_is_a_sentence(suffix: str, tmp_path: Path) -> None:
    net = Own(
        lambda net, x: net.head(functional.relu(net.b(net.a(x).flatten(1)))),
        *(nn.Conv2d(3, 4, 3, padding=1), flat_norm()),
        head=nn.Linear(480, 3),
    ).eval()
    path = save(net, IMAGE, tmp_path / f"net{suffix}")
    with pytest.raises(
        ConvertError, match="the op relu of a batch norm behind what flattens a map is not supp"
    ):
        read(path, IMAGE)


OF_PYTORCH: dict[str, Function] = {
    "softsign": functional.softsign,
    "hardshrink": functional.hardshrink,
    "softshrink": functional.softshrink,
    "threshold": lambda x: functional.threshold(x, 0.2, -1.0),
    "log_sigmoid": functional.logsigmoid,
    "hard_sigmoid": lambda x: (0.2 * x + 0.5).clamp(0, 1),
    "gt": lambda x: (x > 0.3).double(),
    "ge": lambda x: (x >= 0.3).double(),
    "lt": lambda x: (x < 0.3).double(),
    "le": lambda x: (x <= 0.3).double(),
}
GIVEN = {"threshold": (0.2, -1.0), **dict.fromkeys(("gt", "ge", "lt", "le"), (0.3,))}


@pytest.mark.parametrize("name", CURVES)
def test_a_curve_and_its_slope_are_pytorchs(name: str) -> None:
    curve, function = CURVES[name], OF_PYTORCH.get(name) or getattr(torch, name)
    given = GIVEN.get(name, tuple(float(default or 0.0) for _, default in curve.given))
    x = torch.linspace(-3.0, 3.0, 121, dtype=torch.float64)[1::2].requires_grad_()
    y = function(x)
    np.testing.assert_allclose(
        value(x.detach().numpy(), NUMBERS[name], *given), y.detach().numpy(), atol=2e-7
    )
    slope = torch.autograd.grad(y.sum(), x)[0].numpy() if y.requires_grad else np.zeros(len(x))
    np.testing.assert_allclose(curve.slope(x.detach().numpy(), *given), slope, atol=2e-7)


@pytest.mark.parametrize("suffix", [".pt2", ".pt"])
@pytest.mark.parametrize("name", [n for n in CURVES if n not in ("gt", "ge", "lt", "le", "hard_sigmoid")])
def test_a_curve_converts(name: str, suffix: str, tmp_path: Path) -> None:
    function = OF_PYTORCH.get(name) or getattr(torch, name)
    torch.manual_seed(3)
    net = behind(lambda a: function(3 * a))().eval()
    net(torch.zeros(1, *IMAGE))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = read(save(net, IMAGE, tmp_path / f"net{suffix}"), IMAGE)
    pixels = np.random.default_rng(4).integers(0, 256, (4, *IMAGE)).astype(np.uint8)
    wanted = net(torch.tensor(pixels / np.float32(255))).detach().numpy()
    found = run_float(graph, np.moveaxis(pixels, 1, -1)).reshape(wanted.shape)
    assert np.abs(found - wanted).max() < 2e-5 * np.abs(wanted).max()
