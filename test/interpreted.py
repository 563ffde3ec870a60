"""What TFLite's own interpreter makes of a float file. Tests are skipped where it is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest


def interpreted(path: Path, pixels: np.ndarray) -> np.ndarray:
    """The results of samples [n, ...] of bytes, which the file is given as 0..1, one after the other."""
    run = _opened(path)
    entry, out = (each[0]["index"] for each in (run.get_input_details(), run.get_output_details()))
    made = []
    for each in pixels:
        run.reset_all_variables()
        run.set_tensor(entry, each[None] / np.float32(255))
        run.invoke()
        made.append(run.get_tensor(out)[0].copy())
    return np.array(made)


def sample_shape(path: Path) -> tuple[int, ...]:
    """Of the file's input, without the batch."""
    return tuple(map(int, _opened(path).get_input_details()[0]["shape"][1:]))


def _opened(path: Path) -> Any:
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    kind = (
        litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )  # which want the sizes that a file leaves open
    run = litert.Interpreter(str(path), experimental_op_resolver_type=kind)
    run.allocate_tensors()
    return run
