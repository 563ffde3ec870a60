"""Layers that read the same constants of a file."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from microtrain.convert.ir import Graph, Layer

MOST_NAMED = 3


def mark_shared(graph: Graph) -> Graph:
    """The graph whose layers know that others read what they read; one warning says which.

    Trained, they would differ on the device, and the file has one place for them.
    """
    layers, first = _among(graph.layers), dict[str, str]()
    for name, layer in layers.items():
        read = _constants(layer)
        known = next((first[c] for c in read if c in first), layer.shares)
        if known and known != name:
            for one in (name, known):
                layers[one] = replace(layers[one], shares=layers[one].shares or known)
        first |= {c: known or name for c in read if c not in first}
    _say(Counter(layer.shares for layer in layers.values() if layer.shares and not _is_conversions(layer)))
    return graph.replace(layers=layers)


def _among(layers: Mapping[str, Layer]) -> dict[str, Layer]:
    """The layers; where the first of some that share weights is left out, the next one is it."""
    users = Counter(layer.shares for layer in layers.values() if layer.shares not in layers)
    named, found = dict[str, str](), dict(layers)
    for name, layer in layers.items():
        if layer.shares and layer.shares not in layers:
            first = named.setdefault(layer.shares, name)
            found[name] = replace(layer, shares=first if users[layer.shares] > 1 else "")
    return found


def _is_conversions(layer: Layer) -> bool:
    """Whether conversion made a layer, which is none of the model's: of weights that are 1 and 0."""
    return not layer.source.weight and layer.weight_scale is not None


def _constants(layer: Layer) -> list[str]:
    """Names in the file; those of a scale that is no batch norm are not always a constant's."""
    source = layer.source
    norm = source.bn if source.eps is not None else None
    return [name for name in (source.weight, source.bias, norm) if name]


def _say(uses: Counter[str]) -> None:
    if not uses:
        return
    said = ", ".join(f"{name}, used {count} times" for name, count in list(uses.items())[:MOST_NAMED])
    more = f", and {len(uses) - MOST_NAMED} more" if len(uses) > MOST_NAMED else ""
    what = "layers that the model uses more than once stay frozen, and flash has their weights once"
    warnings.warn(f"{what}: {said}{more}", stacklevel=5)
