"""The backward ops of `kernels.py` with real-valued errors: float64, nothing rounded.

Every gradient here is a float64 array [h, w, c] with respect to stored integers (or, in front of a clamp, to
the integer sum behind it); rounding passes straight through. Against these, PyTorch's autograd on the same
quantized network says whether the backward graph is right, and the int8 errors say what their rounding costs.
"""

from __future__ import annotations

import numpy as np

from microtrain.convert.ir import Shape

from .kernels import (
    Array,
    Clamp,
    Conv,
    Pool,
    conv2d_weight_sums_of,
    dwconv2d_weight_sums_of,
    features,
    scatter,
    taps_of,
)


def clamped(gradient: Array, clamp: Clamp) -> Array:
    """A gradient of a stored tensor behind its clamp: that of the sum it was made from."""
    if clamp.mask is not None:
        gradient = np.where(clamp.mask, gradient, 0.0)
    return gradient if clamp.m is None else gradient * clamp.m.astype(np.float64)


def conv2d_bwd_x(p: Conv, ey: Array, w: Array, clamp: Clamp) -> Array:
    """Gradient of x from that of the sums."""
    w = w.astype(np.float64)
    return clamped(scatter(p, ((t, ey @ w[:, t[0], t[1]]) for t in taps_of(p.window)), np.float64), clamp)


def dwconv2d_bwd_x(p: Conv, ey: Array, w: Array, clamp: Clamp) -> Array:
    w = w.astype(np.float64)
    return clamped(scatter(p, ((t, ey * w[:, t[0], t[1]]) for t in taps_of(p.window)), np.float64), clamp)


def conv2d_bwd_w(p: Conv, ey: Array, x: Array) -> Array:
    """Gradient of the stored weights before QAS, [c_out, kh, kw, channels of x]. x: int8, saved channels."""
    return conv2d_weight_sums_of(p, ey, x.astype(np.float64) - p.x_zero)


def dwconv2d_bwd_w(p: Conv, ey: Array, x: Array, channels: Array) -> Array:
    """Gradient of the stored depthwise weights of the listed channels, [channels, kh, kw]."""
    return dwconv2d_weight_sums_of(p, ey[:, :, channels], x.astype(np.float64) - p.x_zero)


def bias_gradient(ey: Array) -> Array:
    """Gradient of the stored biases before QAS, [c]."""
    return np.asarray(ey.sum(axis=(0, 1)))


def error_pass(e: Array, factor: float, clamp: Clamp) -> Array:
    return clamped(e * factor, clamp)


def error_add(a: Array, a_factor: float, b: Array, b_factor: float, clamp: Clamp) -> Array:
    return clamped(a * a_factor + b * b_factor, clamp)


def avgpool_bwd_x(p: Pool, ey: Array, clamp: Clamp) -> Array:
    share = ey / (p.window.kh * p.window.kw)
    return clamped(scatter(p, ((t, share) for t in taps_of(p.window)), np.float64), clamp)


def maxpool_bwd_x(p: Pool, ey: Array, arg: Array, clamp: Clamp) -> Array:
    terms = ((t, np.where(arg == i, ey, 0.0)) for i, t in enumerate(taps_of(p.window)))
    return clamped(scatter(p, terms, np.float64), clamp)


def head_bwd_x(shape: Shape, x_scale: float, grad: Array, w: Array, clamp: Clamp) -> Array:
    """Gradient of the stored features of that shape from that of the logits."""
    sums = grad.astype(np.float64) @ w.astype(np.float64)
    return clamped(sums.reshape(shape) * float(np.float32(x_scale)), clamp)


def head_bwd_w(x: Array, x_zero: int, x_scale: float, grad: Array) -> tuple[Array, Array]:
    """Gradients of the head's weights [classes, features] and biases [classes]."""
    grad = grad.astype(np.float64)
    return np.outer(grad, features(x, x_zero, x_scale).astype(np.float64)), grad
