"""The constants of convolutions: multipliers, units of what is trained, tables in flash."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from microtrain.base.plan import FIXED, TFLITE
from microtrain.convert.ir import MEAN, ONCE, Graph, Layer, Node
from microtrain.convert.names import identifier
from microtrain.convert.reference import tflite
from microtrain.convert.reference.biases import DEAD_MULTIPLIER, Bias, bias_shift, lean_bias, lean_of, qas_of
from microtrain.convert.reference.numeric import fixed_multipliers
from microtrain.convert.reference.proofs import fixed_words, multiplier_words
from microtrain.convert.splits import channel_order, columns_read, split_weight

from .bounds import bias_limit
from .ctext import Table


def multipliers(graph: Graph, node: Node) -> np.ndarray:
    """m[c] = s_x * s_w[c] / s_y of a convolution, worked out in double, stored as float32.

    Where the graph says fixed point or TensorFlow Lite, rounded as that needs it.
    """
    if graph.requantize == TFLITE:
        return _as_tflite(graph, node)[0]
    m = _in_double(graph, node).astype(np.float32)
    return fixed_multipliers(m) if graph.requantize == FIXED else m


def fine(graph: Graph, node: Node) -> np.ndarray | None:
    """The same in 31 bits, int32 [c], where sums are rounded as TensorFlow Lite does; else None."""
    found = _as_tflite(graph, node)[1] if graph.requantize == TFLITE else np.zeros(0, np.int32)
    return found if found.any() else None


def _as_tflite(graph: Graph, node: Node) -> tuple[np.ndarray, np.ndarray]:
    """tflite.multipliers() of a layer: FULLY_CONNECTED has none, MEAN has them divided by its pixels."""
    layer, m = graph.layers[node.layer or ""], _in_double(graph, node)
    if layer.sums == ONCE:
        return m.astype(np.float32), np.zeros(len(m), np.int32)
    pixels = math.prod(layer.weight.shape[1:]) if layer.sums == MEAN else 1
    return tflite.multipliers(m * pixels, pixels)


def _in_double(graph: Graph, node: Node) -> np.ndarray:
    layer = graph.layers[node.layer or ""]
    assert layer.weight_scale is not None
    x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    return np.asarray(x.scale * layer.weight_scale / y.scale, np.float64)


def weight_id(graph: Graph, layer: str) -> int:
    """Id of the random numbers of a layer's weights; its biases have the next one."""
    return 2 * list(graph.layers).index(layer)


def qas_weights(layer: Layer) -> np.ndarray:
    """65536 / s_w^2, 0 for dead channels (quantization-aware scaling, arXiv 2206.15472 section 3.1), times
    the layer's rate."""
    assert layer.weight_scale is not None
    return _qas(layer, layer.weight_scale, 65536.0 * layer.rate)


def trained_bias(graph: Graph, name: str, delta: np.ndarray) -> Bias:
    """The trained biases of a layer, given what training has added to them."""
    layer = graph.layers[name]
    node = graph.forward_of[name]
    qas, m = qas_biases(graph, name), multipliers(graph, node)
    return Bias(layer.bias, delta, m, qas, bias_limit(layer), weight_id(graph, name) + 1)


def bias_scale(graph: Graph, name: str) -> np.ndarray:
    """Real value of the unit in which a layer's biases are trained, float64 [c]."""
    layer = graph.layers[name]
    assert layer.weight_scale is not None
    node = graph.forward_of[name]
    unit = 2.0 ** bias_shift(multipliers(graph, node))
    return np.asarray(layer.weight_scale * graph.tensors[node.inputs[0]].scale * unit)


def qas_biases(graph: Graph, name: str) -> np.ndarray:
    """256 / (s_x * s_w)^2, in units of what is trained; 0 for dead channels."""
    layer = graph.layers[name]
    assert layer.weight_scale is not None
    node = graph.forward_of[name]
    m = multipliers(graph, node)
    if is_lean(graph, name):
        return qas_of(qas_unit(graph, node), m)
    unit = 2.0 ** bias_shift(m)
    return _qas(layer, layer.weight_scale * graph.tensors[node.inputs[0]].scale, 256.0 / unit)


def qas_unit(graph: Graph, node: Node) -> np.float32:
    """256 / s_y^2, of which and of its multiplier the scaling of a bias can be made."""
    return np.float32(256.0 / graph.tensors[node.outputs[0]].scale ** 2)


def is_lean(graph: Graph, name: str) -> bool:
    """Whether flash holds a layer's trained biases in 16 bits, and nothing of their scaling.

    In compressed models, where 16 bits are enough and multipliers tell which channels are dead.
    """
    layer = graph.layers[name]
    if graph.compression is None or not layer.bias_trained:
        return False
    m = multipliers(graph, graph.forward_of[name])
    dead = np.zeros(len(m), bool) if layer.dead is None else layer.dead
    if not np.array_equal(dead, m == np.float32(DEAD_MULTIPLIER)):
        return False
    return np.array_equal(lean_bias(layer.bias, m), layer.bias)


def _qas(layer: Layer, scale: np.ndarray, unit: float | np.ndarray) -> np.ndarray:
    dead = np.zeros(len(scale), bool) if layer.dead is None else layer.dead
    return np.where(dead, 0.0, unit / np.square(scale)).astype(np.float32)


def words_of(m: np.ndarray, zero: int, requantize: str) -> np.ndarray:
    """int32 [c]: the words of multipliers, for outputs of that zero point."""
    if requantize == TFLITE:
        return np.ascontiguousarray(m, np.float32).view(np.int32)
    return fixed_words(m) if requantize == FIXED else multiplier_words(m, zero)


def tables(graph: Graph, node: Node) -> Iterator[Table]:
    """The tables of a layer."""
    name = node.layer or ""
    layer, cid = graph.layers[name], identifier(name)
    frozen = split_weight(layer)[0]
    if frozen.size and name not in graph.copies:
        yield Table(f"MODEL_WEIGHTS int8_t w_{cid}[{frozen.size}]", frozen, "weights")
    m, zero = multipliers(graph, node), graph.tensors[node.outputs[0]].zero
    lean = is_lean(graph, name)
    if lean:
        start = lean_of(layer.bias, m)
        yield Table(f"MODEL_WEIGHTS int16_t lean_{cid}[{len(start)}]", start, "biases")
    else:
        yield Table(f"MODEL_WEIGHTS int32_t b_{cid}[{len(layer.bias)}]", layer.bias, "biases")
    yield Table(f"const int32_t m_{cid}[{len(layer.bias)}]", words_of(m, zero, graph.requantize), "tables")
    exact = fine(graph, node)
    if exact is not None:
        yield Table(f"const int32_t fine_{cid}[{len(layer.bias)}]", exact, "tables")
    order = channel_order(layer)
    if order:
        yield Table(f"const uint16_t order_{cid}[{len(order)}]", np.array(order, np.uint16), "tables")
        read = columns_read(layer, graph.tensors[node.inputs[0]].channels)
        trained = np.array(read, np.uint16)
        yield Table(f"const uint16_t channels_{cid}[{len(trained)}]", trained, "tables")
    if layer.trained:
        yield Table(f"const float qas_w_{cid}[{len(layer.bias)}]", qas_weights(layer), "tables")
    if layer.bias_trained and not lean:
        yield Table(f"const float qas_b_{cid}[{len(layer.bias)}]", qas_biases(graph, name), "tables")


def arrays(graph: Graph, node: Node) -> Mapping[str, np.ndarray]:
    """What model.npz holds of a layer beside its weights and biases."""
    layer = graph.layers[node.layer or ""]
    assert layer.weight_scale is not None
    return {
        "weight": layer.weight,
        "bias": layer.bias,
        "scale": layer.weight_scale,
        "bias_unit": bias_scale(graph, node.layer or ""),
        "multiplier": multipliers(graph, node),
        "dead": np.zeros(len(layer.bias), bool) if layer.dead is None else layer.dead,
    }
