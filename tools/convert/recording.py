"""A model with its replay buffer: as many records as are wanted, as they are or in fewer bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from .compression import Code
from .execute.batched import batches, run_int8
from .ir import ConvertError, Graph
from .memory.replay import WHOLE, Request, rows_of
from .pipeline import Compiled
from .reference.product_code import learned

IMAGES = 128  # that books are learned from, at most


def with_buffer(
    compiled: Compiled, request: Request, budget_sram: int | None, images: np.ndarray | None = None
) -> Compiled:
    """The model with a replay buffer of the requested size.

    budget_sram  bytes, None: none
    images       typical ones, uint8 [N, h, w, c], that codes are learned from
    Errors       ConvertError where codes are asked for and there are no images, or as Request.size()
    """
    spare = None if budget_sram is None else budget_sram - compiled.sram
    part = request.part(compiled.graph, spare)
    records = request.size(compiled.graph, spare, part)
    if part == WHOLE or not records:
        return replace(compiled, records=records)
    if images is None:
        raise ConvertError(
            f"{compiled.graph.name} carries no samples to learn codes of records from: pass --calibration "
            "with some typical ones, or --replay-code off"
        )
    return replace(compiled, records=records, graph=coded(compiled.graph, images, part))


def coded(graph: Graph, images: np.ndarray, part: int) -> Graph:
    """The graph with codes for all that a record holds, `part` values a byte."""
    chosen = images[np.linspace(0, len(images) - 1, min(len(images), IMAGES)).astype(int)]
    codes = {}
    for tensor, values in recorded(graph, chosen).items():
        rows, row = rows_of(graph.tensors[tensor])
        books = learned(values.reshape(-1, row), part)
        codes[tensor] = Code(rows, row, part, tuple(books))
    return graph.replace(codes=codes)


def recorded(graph: Graph, images: np.ndarray) -> Mapping[str, np.ndarray]:
    """What records of the images hold: tensor -> int8 [N, h, w, c]."""
    layers = graph.replace(nodes=graph.forward_layers, forward=-1)
    front = layers.nodes[: layers.cut]
    part = layers.replace(nodes=front, output=front[-1].outputs[0] if front else graph.input.tensor)
    found: dict[str, list[np.ndarray]] = {tensor: [] for tensor in graph.record}

    def observe(tensor: str, values: np.ndarray) -> None:
        if tensor in found:
            found[tensor].append(values)

    for batch in batches(part, images, "learning codes of records"):
        run_int8(part, batch, observe)
    return {tensor: np.concatenate(values) for tensor, values in found.items()}
