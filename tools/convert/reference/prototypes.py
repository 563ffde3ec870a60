"""The NumPy twin of kernels/prototypes.h: distances to means of embeddings, and what these learn."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from microtrain.base.trained import DISTANCES, SUMS
from microtrain.convert.ir import Graph

from .hostlib import Record
from .kernels import loss_cross_entropy
from .numeric import f32, inverse_root, kept, log_f32, quantize_error

UNKNOWN = 0  # the class of what is none of those that are known
SAMPLES = f32(32)  # the most that a count becomes
NONE = f32(-1e30)  # logit of a class without samples
FINE = 16  # units of a centre in one of a stored value
SHARP = 8.0  # logit by which a squared distance of 1 is less than 0
# Distances before there are any, each as much as a quarter of one: kernels/prototypes.h has their order.
BEFORE = (0.25, 0.15 * SHARP, 0.05 * SHARP, 0.25, 0.225 * SHARP)
NEAR = f32(0.85)  # of the distance to the nearest of another class
DEVIATIONS = f32(5)  # mean ones above the mean: four standard ones of a normal distribution


class Prototypes(Record):
    _fields_ = (
        *((n, ctypes.c_uint16) for n in ("pixels", "c", "classes")),
        ("unit", ctypes.c_float),
    )


def embedding(graph: Graph, stored: np.ndarray) -> tuple[np.ndarray, Any]:
    """That of stored values [h, w, c], float32 [h * w * c], and what scaled it to length 1."""
    q = stored.reshape(-1).astype(np.int64) * FINE - np.array(graph.centre)
    squares = int((q * q).sum())
    gain = inverse_root(squares) if squares else f32(0)
    return np.asarray(q.astype(f32) * gain), gain


def threshold(distances: np.ndarray) -> Any:
    """Distance from which on a sample is of no class, float32."""
    own, total, off, others, far = distances
    mean, far = total / own, far / others
    most, half, near = mean + DEVIATIONS * (off / own), mean + (far - mean) * f32(0.5), NEAR * far
    half = half if half < near else near
    return half if half < most else most


def logits_of(p: Prototypes, e: np.ndarray, learned: Mapping[str, np.ndarray]) -> np.ndarray:
    """The twin of prototypes_fwd_f32. e: an embedding, float32"""
    logits = [kept(-threshold(learned[DISTANCES]))]
    for *sums, count in learned[SUMS]:
        if not count > 0:
            logits.append(NONE)
            continue
        d, total = e - np.array(sums) * (f32(1) / count), f32(0)
        for square in d * d:
            total = total + square
        logits.append(kept(f32(p.unit) * (count / (count + f32(1)) * total)))
    return np.array(logits, f32)


def _follow(of: np.ndarray, distance: Any) -> Any:
    """A distance joins a count and the sum behind it. Returns what is kept of older ones."""
    keep = _keep(of[0])
    of[:] = kept(of * keep + np.array([1, distance], f32))
    return keep


def _keep(count: Any) -> Any:
    """What is left of older samples where one more joins."""
    older = SAMPLES - f32(1)
    return older / count if count > older else f32(1)


def loss(logits: np.ndarray, label: int, distances: np.ndarray) -> tuple[Any, np.ndarray]:
    """The twin of loss_prototypes_f32: the loss and its gradient; distances follow."""
    if not logits[label] > NONE:
        return log_f32(f32(len(logits))), np.zeros(len(logits), f32)
    nearest = NONE
    for k in range(1, len(logits)):
        if k != label and logits[k] > nearest:
            nearest = logits[k]
    if label != UNKNOWN:
        keep = _follow(distances[:2], -logits[label])
        off = abs(-logits[label] - distances[1] / distances[0])
        distances[2] = kept(distances[2] * keep + off)
    if nearest > NONE:
        _follow(distances[3:], -nearest)
    return loss_cross_entropy(logits, label)


def pulls(e: np.ndarray, grad: np.ndarray, learned: Mapping[str, np.ndarray]) -> np.ndarray:
    """Of each value of an embedding, the sum that its error is made of, float32."""
    total, all_of = np.zeros(len(e), f32), f32(0)
    for g, (*sums, count) in zip(grad[1:], learned[SUMS], strict=True):
        w = g / (count + f32(1)) if count > 0 else f32(0)
        total, all_of = total + w * np.array(sums), all_of + w * count
    pulled: np.ndarray = total - e * all_of
    along = f32(0)
    for product in e * pulled:
        along = along + product
    return np.asarray(pulled - e * along)


def error(
    p: Prototypes,
    graph: Graph,
    stored: np.ndarray,
    grad: np.ndarray,
    learned: Mapping[str, np.ndarray],
    clamp: Any,
) -> Any:
    """The twin of prototypes_bwd_x_f32. stored: the embedding, int8"""
    sums, unit = gradient_of(p, graph, stored, grad, learned)
    return quantize_error(sums, unit, clamp)


def gradient_of(
    p: Prototypes, graph: Graph, stored: np.ndarray, grad: np.ndarray, learned: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, Any]:
    """Sums of the stored embedding's shape, and the real gradient of 1 in one, float32."""
    e, gain = embedding(graph, stored)
    sums = pulls(e, grad, learned).reshape(stored.shape)
    return sums, f32(p.unit) * f32(-2 * FINE) * gain


def join(e: np.ndarray, label: int, sums: np.ndarray) -> None:
    """The twin of prototypes_update_f32."""
    if label != UNKNOWN:
        own = sums[label - 1]
        own[:] = kept(own * _keep(own[-1]) + np.append(e, f32(1)))
