"""Small networks of ops that the published ones have not, to count these too."""

from __future__ import annotations

from collections.abc import Iterator

from lab.pieces.networks import attended, groups, normed
from microtrain.convert.pipeline import Compiled

ATTENDED = ("0", "1", "5", "8", "9", "11", "14")  # with tokens in front, and without; of few and of many
GROUPS = ("0", "3", "6")
NORMED = ("12", "40")  # pixels a side


def others() -> Iterator[tuple[str, Compiled]]:
    """Normalisations, groups, attention and positions, in several sizes, by their names."""
    kinds = {"attended": (attended(), ATTENDED), "groups": (groups(), GROUPS), "": (normed(), NORMED)}
    for kind, (networks, chosen) in kinds.items():
        for name, compiled in networks:
            number = "".join(c for c in name.partition("_")[0] if c.isdigit())
            if number in chosen and (compiled.scheme.weights or kind == "attended"):
                yield name, compiled
