"""Which of a model's results are the logits, where it returns several."""

from __future__ import annotations

import warnings
from dataclasses import replace

from microtrain.base.errors import one_line, short
from microtrain.base.shapes import by
from microtrain.convert.ir import ConvertError
from microtrain.convert.raw import Raw

from .edits import needed
from .endings import ENDINGS


def chosen(raw: Raw, wanted: str | None) -> Raw:
    """The raw graph that ends in the wanted result, without what others alone are made by.

    wanted  its number, from 0 on, or its name; None: there must be one, or one that the others are a softmax
            or a logistic function of, which is said
    """
    name = raw.graph.name
    if not raw.results or (wanted is None and len(raw.results) == 1):
        return raw
    names = (f"{i} is {one_line(r.name)}, {by(r.dims) or 'of no axis'}" for i, r in enumerate(raw.results))
    known = ", ".join(names)
    if wanted is None and (logits := _behind_others(raw)) is not None:
        wanted = str(logits)
        said = f"{name} returns {len(raw.results)} values ({known})"
        warnings.warn(f"{said}; the logits are {logits}: the others are made of it", stacklevel=2)
    if wanted is None:
        raise ConvertError(
            f"{name} returns {len(raw.results)} values ({known}); one of them must be the logits: name it, "
            "as in --logits 0, or wrap the model in a module that returns it alone"
        )
    found = [r for i, r in enumerate(raw.results) if wanted in (str(i), r.name)]
    if len(found) != 1:
        raise ConvertError(f"{name} has no result called {short(wanted)}: {known}")
    graph = raw.graph.replace(output=found[0].tensor)
    kept = needed(graph, {graph.output})
    others = needed(graph, {r.tensor for r in raw.results}) - kept
    nodes = tuple(n for n in graph.nodes if not others.intersection(n.outputs))
    layers = {n.layer for n in nodes}
    graph = graph.replace(nodes=nodes, layers={k: v for k, v in graph.layers.items() if k in layers})
    gone = {error for tensor, error in raw.stood.items() if tensor in others}
    gone -= {error for tensor, error in raw.stood.items() if tensor in kept}
    return replace(raw, graph=graph, found=tuple(e for e in raw.found if e not in gone))


def _behind_others(raw: Raw) -> int | None:
    """The result that all others are a softmax or a logistic function of, if there is one."""
    makers = {out: node for node in raw.graph.nodes for out in node.outputs}
    ends = [(result.tensor, makers.get(result.tensor)) for result in raw.results]
    read = {node.inputs[0] for _, node in ends if node is not None and node.op in ENDINGS}
    rest = [i for i, (_, node) in enumerate(ends) if node is None or node.op not in ENDINGS]
    return rest[0] if len(rest) == 1 and read == {ends[rest[0]][0]} else None
