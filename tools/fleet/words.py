"""What the options of a fleet may be."""

from __future__ import annotations

from microtrain.base.parts import HEAD_KINDS
from microtrain.base.trained import PROTOTYPES

STRATEGIES = ("fedavg", "fedprox", "fedavgm", "fedadam")
# What a board may keep for itself: kinds of tensors.
KEEP = {"head": (*HEAD_KINDS, *PROTOTYPES), "biases": ("bias",)}
