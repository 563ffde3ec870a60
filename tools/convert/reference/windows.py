"""What the batched runs of several ops share: windows over images, and int8 numbers in float32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from microtrain.convert.ir import Window


def centred(stored: np.ndarray, zero: int) -> np.ndarray:
    """int8 less its zero point, float32."""
    return stored.astype(np.float32) - np.float32(zero)


def requantized(values: np.ndarray, zero: int) -> np.ndarray:
    """sat8((int)rint(value) + zero) of float32 values, which are overwritten."""
    np.rint(np.clip(values, -1024.0, 1024.0, out=values), out=values)
    values += np.float32(zero)
    return np.clip(values, -128.0, 127.0, out=values).astype(np.int8)


def window_sums(x: np.ndarray, weight: np.ndarray, k: Window) -> np.ndarray:
    """A convolution without bias, [N, h_out, w_out, c_out]; weight (c_out, kh, kw, c_in) or (c, kh, kw).

    Fewer input channels than x has: groups. Fewer taps than the window: they lie apart.
    """
    if weight.ndim == 3:
        by_tap = weight.reshape(len(weight), -1).T
        result: np.ndarray = np.add.reduce([t * w for t, w in zip(taps(x, k, 0.0), by_tap, strict=True)])
        return result
    windows = _windows(x, k)
    n, oh, ow, c = windows.shape[:4]
    if weight.shape[1:] != (k.kh, k.kw, c):
        down, across = tap_steps(weight, k)
        return _group_sums(windows[..., ::down, ::across], weight)
    seen = _columns(windows)
    found: np.ndarray = (seen @ weight.reshape(len(weight), -1).T).reshape(n, oh, ow, -1)
    return found


def columns(x: np.ndarray, k: Window) -> np.ndarray:
    """What each output of a dense convolution sees, [N * h_out * w_out, kh * kw * c_in]."""
    return _columns(_windows(x, k))


def _windows(x: np.ndarray, k: Window) -> np.ndarray:
    """[N, h_out, w_out, c, kh, kw]"""
    windows = sliding_window_view(_padded(x, k, 0.0), (k.kh, k.kw), axis=(1, 2))
    return windows[:, :: k.stride_h, :: k.stride_w]


def _columns(windows: np.ndarray) -> np.ndarray:
    n, oh, ow = windows.shape[:3]
    return windows.transpose(0, 1, 2, 4, 5, 3).reshape(n * oh * ow, -1)


def tap_steps(weight: np.ndarray, k: Window) -> tuple[int, int]:
    """How far apart the taps of a weight (c_out, kh, kw, c_in) lie in a window: its dilation."""
    _, kh, kw, _ = weight.shape
    return (k.kh - 1) // max(kh - 1, 1) or 1, (k.kw - 1) // max(kw - 1, 1) or 1


def _group_sums(windows: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """window_sums() of windows [n, oh, ow, c, kh, kw] by groups of channels."""
    n, oh, ow, c, kh, kw = windows.shape
    inputs, groups = weight.shape[-1], c // weight.shape[-1]
    parts = windows.reshape(n, oh, ow, groups, inputs, kh, kw).transpose(3, 0, 1, 2, 5, 6, 4)
    by_group = weight.reshape(groups, len(weight) // groups, -1).transpose(0, 2, 1)
    sums = parts.reshape(groups, n * oh * ow, -1) @ by_group
    found: np.ndarray = sums.transpose(1, 0, 2).reshape(n, oh, ow, -1)
    return found


def _padded(x: np.ndarray, k: Window, fill: float) -> np.ndarray:
    if not (k.pad_h or k.pad_w or k.more_h or k.more_w):
        return x
    below, right = k.pad_h + k.more_h, k.pad_w + k.more_w
    x = x[:, : x.shape[1] + min(below, 0), : x.shape[2] + min(right, 0)]
    pads = ((0, 0), (k.pad_h, max(below, 0)), (k.pad_w, max(right, 0)), (0, 0))
    return np.pad(x, pads, constant_values=x.dtype.type(fill))


def torch_padded(x: Any, k: Mapping[str, int], fill: float) -> tuple[Any, tuple[int, int]]:
    """A tensor [..., h, w] for torch's windows, and the padding that they have still to be told of.

    k  the fields of a Window; more on one side than on the other is nothing that they know
    """
    more_h, more_w = k.get("more_h", 0), k.get("more_w", 0)
    if not (more_h or more_w):
        return x, (k["pad_h"], k["pad_w"])
    from torch.nn import functional

    sides = (k["pad_w"], k["pad_w"] + more_w, k["pad_h"], k["pad_h"] + more_h)
    return functional.pad(x, sides, value=fill), (0, 0)


def taps(x: np.ndarray, k: Window, fill: float) -> Iterator[np.ndarray]:
    """The image as every position of the window sees it, each [n, h_out, w_out, c]."""
    padded = _padded(x, k, fill)
    rows = (padded.shape[1] - k.kh) // k.stride_h + 1
    columns = (padded.shape[2] - k.kw) // k.stride_w + 1
    for ky in range(k.kh):
        for kx in range(k.kw):
            down = slice(ky, ky + (rows - 1) * k.stride_h + 1, k.stride_h)
            across = slice(kx, kx + (columns - 1) * k.stride_w + 1, k.stride_w)
            yield padded[:, down, across]
