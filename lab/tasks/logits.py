"""What TFLite's own interpreter makes of samples: the oracle of the front end."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from microtrain.base.extras import require
from microtrain.convert.execute.batched import batches, run_int8
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import Graph
from microtrain.convert.quantize.int8 import quantize


def int8_graph(path: Path) -> Graph:
    """A quantized file's graph, which needs no calibration."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of channels that are constants
        return quantize(load_model(path).graph, {})


def interpreted(
    path: Path, samples: np.ndarray, reference: bool = False
) -> tuple[np.ndarray, tuple[float, int]]:
    """What TFLite makes of int8 samples right before a softmax, and its scale and zero.

    Each begins anew, with states of zero.

    reference  by its reference kernels, which round twice, not by those that it takes by itself
    """
    require("dev", "TFLite's interpreter", "ai_edge_litert")
    from ai_edge_litert import interpreter

    kind = interpreter.OpResolverType
    resolver = kind.BUILTIN_REF if reference else kind.AUTO
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of memory
        run = interpreter.Interpreter(
            str(path), experimental_op_resolver_type=resolver, experimental_preserve_all_tensors=True
        )
    run.allocate_tensors()
    steps = [s for s in run._get_ops_details() if s["op_name"] not in ("SOFTMAX", "DELEGATE")]
    last, entry = int(steps[-1]["outputs"][0]), run.get_input_details()[0]
    found = []
    for sample in samples:
        run.reset_all_variables()
        run.set_tensor(entry["index"], sample.reshape(entry["shape"]))
        run.invoke()
        found.append(run.get_tensor(last).reshape(-1).astype(int))
    said = next(d["quantization"] for d in run.get_tensor_details() if d["index"] == last)
    return np.stack(found), said


def logits(graph: Graph, samples: np.ndarray, said: tuple[float, int]) -> np.ndarray:
    """The graph's logits in the file's unit. samples: int8."""
    shape = graph.tensors[graph.input.tensor].shape
    images = (samples.astype(int) + 128).astype(np.uint8).reshape(-1, *shape)
    made = np.concatenate([run_int8(graph, batch) for batch in batches(graph, images, "logits")])
    stored: np.ndarray = np.clip(np.rint(made.reshape(len(samples), -1) / said[0]) + said[1], -128, 127)
    return stored.astype(int)


def most_apart(path: Path, images: np.ndarray, reference: bool = False) -> int:
    """Units by which any logit of some samples, uint8, is off from TFLite's."""
    samples = (images.astype(int) - 128).astype(np.int8).reshape(len(images), -1)
    expected, said = interpreted(path, samples, reference)
    return int(np.abs(logits(int8_graph(path), samples, said) - expected).max())
