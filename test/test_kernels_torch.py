"""The arithmetic of the references against PyTorch: sums, gradients, and what int8 errors lose."""

from __future__ import annotations

import kernel_cases
import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from microtrain.convert.ir import Window
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference import real as reference_f32
from microtrain.convert.reference.kernels import Array, Clamp, Conv, Error, Pool

torch.set_num_threads(1)


def nchw(values: Array) -> torch.Tensor:
    """[h, w, c] -> float64 [1, c, h, w]."""
    return torch.tensor(np.moveaxis(values.astype(np.float64), 2, 0)[None])


def nhwc(values: torch.Tensor) -> Array:
    return np.moveaxis(values.detach().numpy()[0], 0, 2)


def torch_sums(p: Conv, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Sums over x - x_zero, padded by hand: p may pad more at one end than at the other."""
    k = p.window
    h = (p.y[0] - 1) * k.stride_h + k.kh
    width = (p.y[1] - 1) * k.stride_w + k.kw
    below, right = h - p.x[0] - k.pad_h, width - p.x[1] - k.pad_w
    padded = F.pad(x - p.x_zero, (k.pad_w, max(right, 0), k.pad_h, max(below, 0)))[:, :, :h, :width]
    return F.conv2d(
        padded, w, stride=(k.stride_h, k.stride_w), groups=p.x[2] if w.shape[1] == 1 < p.x[2] else 1
    )


def torch_weights(w: Array) -> torch.Tensor:
    """(c_out, kh, kw, c_in) or depthwise (c, kh, kw) -> PyTorch's (c_out, c_in / groups, kh, kw)."""
    return torch.tensor((w[:, None] if w.ndim == 3 else np.moveaxis(w, 3, 1)).astype(np.float64))


def draw(seed: int, depthwise: bool) -> tuple[np.random.Generator, Conv, Array, Array]:
    rng = np.random.default_rng([11, seed])
    p = kernel_cases.draw_conv(rng, depthwise)
    shape = (p.y[2], p.window.kh, p.window.kw, p.x[2])[: 3 if depthwise else 4]
    return rng, p, rng.integers(-128, 128, p.x, dtype=np.int8), rng.integers(-127, 128, shape, dtype=np.int8)


def cosine(a: Array, b: Array) -> float:
    return float((a * b).sum() / (np.linalg.norm(a) * np.linalg.norm(b)))


@pytest.mark.parametrize("op", ["conv2d", "dwconv2d"])
def test_forward_sums_are_those_of_torch(op: str) -> None:
    for seed in range(60):
        _, p, x, w = draw(seed, op == "dwconv2d")
        want = nhwc(torch_sums(p, nchw(x), torch_weights(w)))
        np.testing.assert_array_equal(getattr(reference, f"{op}_sums")(p, x, w), want)


def test_a_missing_zero_point_would_show() -> None:
    _, p, x, w = draw(1, False)
    wrong = Conv(p.x, p.y, p.window, p.x_zero + 1, p.y_zero, p.m)
    assert not np.array_equal(
        reference.conv2d_sums(wrong, x, w), nhwc(torch_sums(p, nchw(x), torch_weights(w)))
    )


@pytest.mark.parametrize("op", ["conv2d", "dwconv2d"])
def test_gradients_are_those_of_autograd(op: str) -> None:
    """x was clamp(sum * m) of an earlier op, mask where it did not saturate."""
    for seed in range(40):
        rng, p, x, w = draw(seed, op == "dwconv2d")
        clamp = kernel_cases.draw_clamp(rng, p.x)
        ey = rng.normal(0, 1, p.y)
        tx, tw = nchw(x).requires_grad_(), torch_weights(w).requires_grad_()
        bias = torch.zeros(p.y[2], dtype=torch.float64, requires_grad=True)
        (torch_sums(p, tx, tw) + bias[:, None, None]).backward(nchw(ey))
        assert tx.grad is not None and tw.grad is not None and bias.grad is not None
        want = reference_f32.clamped(nhwc(tx.grad), clamp)
        got = getattr(reference_f32, f"{op}_bwd_x")(p, ey, w, clamp)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
        extra = (np.arange(p.x[2]),) if op == "dwconv2d" else ()
        gradient = getattr(reference_f32, f"{op}_bwd_w")(p, ey, x, *extra)
        np.testing.assert_allclose(torch_weights(gradient), tw.grad, rtol=1e-9, atol=1e-7)
        np.testing.assert_allclose(reference_f32.bias_gradient(ey), bias.grad, rtol=1e-9, atol=1e-9)


def test_the_clamp_is_autograds_clamp() -> None:
    """Saturation and multiplier: the mask of the forward pass is where torch.clamp passes a gradient."""
    rng = np.random.default_rng(3)
    p = Conv((5, 6, 7), (5, 6, 9), Window(3, 3, 1, 1, 1, 1), -9, 20, np.full(9, 0.002, np.float32))
    x, w = rng.integers(-128, 128, p.x, dtype=np.int8), rng.integers(-127, 128, (9, 3, 3, 7), dtype=np.int8)
    y, mask = reference.conv2d_fwd(p, x, w, np.zeros(p.y[2], np.int32))
    sums = torch_sums(p, nchw(x), torch_weights(w)).requires_grad_()
    m = torch.tensor(p.m.astype(np.float64))[:, None, None]
    scaled = sums * m
    rounded = scaled + (torch.round(scaled) - scaled).detach()
    stored = torch.clamp(rounded + p.y_zero, -128, 127)
    g = rng.normal(0, 1, p.y)
    stored.backward(nchw(g))
    assert sums.grad is not None
    assert np.abs(nhwc(stored) - y).max() <= 1  # float32 against float64, a tie at most
    assert 0 < mask.mean() < 1
    got = reference_f32.error_pass(g, 1.0, Clamp(mask, p.m))
    np.testing.assert_allclose(got, nhwc(sums.grad), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("op", ["conv2d", "dwconv2d"])
def test_int8_errors_point_the_right_way(op: str) -> None:
    """Cosine > 0.98 behind two roundings: the error that comes in and the one that goes out."""
    worst = 1.0
    for seed in range(40):
        rng, p, _, w = draw(seed, op == "dwconv2d")
        p = Conv(p.x, p.y, p.window, p.x_zero, p.y_zero, p.m, min(p.guard + 8, 8))
        scale = 10.0 ** rng.uniform(-0.5, 0.5, p.y[2])
        real = rng.normal(0, 1, p.y) * scale
        ey = reference.quantize_error((real * 2**16).astype(np.int64), 2.0**-16, Clamp())
        clamp = Clamp(rng.random(p.x) < 0.8, rng.uniform(0.5, 1, p.x[2]).astype(np.float32))
        want = getattr(reference_f32, f"{op}_bwd_x")(p, real, w, clamp)
        if np.any(want):
            got = getattr(reference, f"{op}_bwd_x")(p, ey, w, clamp).gradient
            worst = min(worst, cosine(got, want))
    assert worst > 0.98


def test_the_weight_step_is_that_of_torch_on_average() -> None:
    """The mean of the stochastic steps of many seeds is the real step with QAS."""
    rng, p, x, w = draw(5, False)
    ey = Error(rng.integers(-127, 128, p.y, dtype=np.int8), rng.uniform(0.5, 1, p.y[2]).astype(np.float32))
    s_w = rng.uniform(0.01, 0.02, p.y[2])
    gradient = reference_f32.conv2d_bwd_w(p, ey.gradient, x)
    qas = (1 / s_w**2)[:, None, None, None]
    lr = 2.0 / np.abs(gradient * qas).max()
    trained = reference.Trained(w // 2, None, 0, (65536 / s_w**2).astype(np.float32), 3)
    steps = [
        trained.w.astype(int) - reference.conv2d_bwd_w(p, ey, x, trained, reference.Sgd(lr, 0, 0, seed, 0)).w
        for seed in range(300)
    ]
    assert cosine(np.mean(steps, axis=0), gradient * qas) > 0.999
    np.testing.assert_allclose(np.mean(steps, axis=0), lr * gradient * qas, atol=0.15)


@pytest.mark.parametrize("kind", ["avgpool", "maxpool"])
def test_pooling_is_that_of_torch(kind: str) -> None:
    rng = np.random.default_rng(9)
    for k in (Window(2, 2, 2, 2), Window(3, 3, 2, 2, 1, 1), Window(3, 2, 1, 2, 1, 0), Window(7, 6)):
        y = ((7 + 2 * k.pad_h - k.kh) // k.stride_h + 1, (6 + 2 * k.pad_w - k.kw) // k.stride_w + 1, 5)
        p, x = Pool((7, 6, 5), y, k, 0), rng.permuted(np.arange(7 * 6 * 5).reshape(7, 6, 5) - 105)
        x = x.astype(np.int8)
        tx = nchw(x).requires_grad_()
        args = ((k.kh, k.kw), (k.stride_h, k.stride_w), (k.pad_h, k.pad_w))
        want = F.avg_pool2d(tx, *args) if kind == "avgpool" else F.max_pool2d(tx, *args)
        ey = rng.normal(0, 1, y)
        want.backward(nchw(ey))
        assert tx.grad is not None
        if kind == "avgpool":
            np.testing.assert_array_equal(reference.avgpool_fwd(p, x), np.rint(nhwc(want)))
            got = reference_f32.avgpool_bwd_x(p, ey, Clamp())
        else:
            values, arg = reference.maxpool_fwd(p, x)
            np.testing.assert_array_equal(values, nhwc(want))
            got = reference_f32.maxpool_bwd_x(p, ey, arg, Clamp())
        np.testing.assert_allclose(got, nhwc(tx.grad), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_head_and_losses_are_those_of_torch(loss: str) -> None:
    rng = np.random.default_rng(4)
    x, zero, scale, classes, label = rng.integers(-128, 128, (1, 1, 40), dtype=np.int8), -7, 0.03, 6, 2
    w, b = rng.normal(0, 0.2, (classes, 40)).astype(np.float32), rng.normal(0, 1, classes).astype(np.float32)
    tx = torch.tensor(x.reshape(-1).astype(np.float64), requires_grad=True)
    tw = torch.tensor(w.astype(np.float64), requires_grad=True)
    tb = torch.tensor(b.astype(np.float64), requires_grad=True)
    logits = tw @ ((tx - zero) * scale) + tb
    onehot = torch.nn.functional.one_hot(torch.tensor(label), classes).double()
    target = (
        F.cross_entropy(logits, torch.tensor(label))
        if loss == "cross_entropy"
        else F.mse_loss(logits, onehot)
    )
    target.backward()
    assert tx.grad is not None and tw.grad is not None and tb.grad is not None
    got = reference.head_fwd(x, zero, scale, w, b)
    np.testing.assert_allclose(got, logits.detach(), rtol=1e-5, atol=1e-5)
    value, grad = getattr(reference, f"loss_{loss}")(got, label)
    np.testing.assert_allclose(value, target.item(), rtol=1e-5)
    np.testing.assert_allclose(grad, tb.grad, rtol=1e-4, atol=1e-6)
    ex = reference_f32.head_bwd_x((1, 1, 40), scale, grad, w, Clamp())
    np.testing.assert_allclose(ex.reshape(-1), tx.grad, rtol=1e-4, atol=1e-7)
    weights, biases = reference_f32.head_bwd_w(x, zero, scale, grad)
    np.testing.assert_allclose(weights, tw.grad, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(biases, tb.grad, rtol=1e-4, atol=1e-6)


def test_joints_of_the_error_graph() -> None:
    """A residual stream: two readers, factors of an add, a clamp; a dropped branch would show."""
    rng = np.random.default_rng(2)
    a, b = rng.normal(0, 1, (4, 4, 9)), rng.normal(0, 3, (4, 4, 9))
    clamp = Clamp(rng.random((4, 4, 9)) < 0.8, rng.uniform(0.1, 1, 9).astype(np.float32))
    ea, eb = (reference.quantize_error(v.astype(np.float32), 1.0, Clamp()) for v in (a, b))
    want = reference_f32.error_add(a, 0.7, b, 1.3, clamp)
    assert cosine(reference.error_add(ea, 0.7, eb, 1.3, clamp).gradient, want) > 0.999
    assert cosine(reference.error_add(ea, 0.7, eb, 0.0, clamp).gradient, want) < 0.9
    passed = reference.error_pass(ea, 0.7, clamp).gradient
    assert cosine(passed, reference_f32.error_pass(a, 0.7, clamp)) > 0.999
