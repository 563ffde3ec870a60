"""What the options of a fleet may be."""

from __future__ import annotations

STRATEGIES = ("fedavg", "fedprox", "fedavgm", "fedadam")
HEAD_KINDS = ("head_weight", "head_bias")
KEEP = {"head": HEAD_KINDS, "biases": ("bias",)}  # what a board may keep for itself: kinds of tensors
