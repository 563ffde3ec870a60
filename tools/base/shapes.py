"""How shapes are written."""

from collections.abc import Iterable


def by(shape: Iterable[int]) -> str:
    """As in 3x224x224."""
    return "x".join(map(str, shape))
