"""Everything that is not supported in a model, said at once."""

from __future__ import annotations

import re
from collections.abc import Sequence

from microtrain.convert.aten_call import LayerError
from microtrain.convert.compression import Weights
from microtrain.convert.ir import ConvertError

NONE = Weights(0, 0)
NAMED = 3  # layers of an obstacle that are named


class UnsupportedError(ConvertError):
    """All that stands in the way of a model.

    sentences  one an obstacle
    weights    of the model's parameters
    """

    def __init__(self, name: str, sentences: Sequence[str], weights: Weights) -> None:
        many = "".join(f"\n  - {sentence}" for sentence in sentences)
        text = (
            sentences[0]
            if len(sentences) == 1
            else f"{name} cannot be converted, {len(sentences)} obstacles:{many}"
        )
        super().__init__(text)
        self.sentences = tuple(sentences)
        self.weights = weights


def together(name: str, found: Sequence[ConvertError], weights: Weights = NONE) -> ConvertError:
    """One error for all that was found; layers with the same obstacle, but for numbers, share a sentence."""
    groups: dict[str, list[ConvertError]] = {}
    for error in found:
        key = re.sub(r"\d+", "N", error.text) if isinstance(error, LayerError) else str(error)
        groups.setdefault(key, []).append(error)
    return UnsupportedError(name, [_sentence(group) for group in groups.values()], weights)


def _sentence(group: list[ConvertError]) -> str:
    first = group[0]
    if len(group) == 1 or not isinstance(first, LayerError):
        return str(first)
    layers = list(dict.fromkeys(e.where.removeprefix("layer ") for e in group if isinstance(e, LayerError)))
    if len(layers) == 1:
        return f"{first.where}, {len(group)} times: {first.text}"
    more = ", ..." if len(layers) > NAMED else ""
    return f"{len(layers)} layers ({', '.join(layers[:NAMED])}{more}): {first.text}"
