"""What a network ends with: the layer that makes the logits, and what a loss applies to them."""

from __future__ import annotations

import warnings
from dataclasses import replace

from microtrain.convert.aten_call import LayerError
from microtrain.convert.ir import ConvertError, Graph, Node, Window
from microtrain.convert.lowering import LINEAR, NORM, SOFTMAX, STAND_IN
from microtrain.convert.nearest import NO_LENGTH, NO_SOFTMAX
from microtrain.convert.ops import conv, functions, pool
from microtrain.convert.ops.aten.lengths import UNIT

from .edits import without

LONGER = (
    "the L2 normalisation at the model's end is left out: its outputs keep their directions and which is "
    "largest, but not the length 1; --classes makes a new head in the place of the last layer"
)
OF_PIXELS = (
    "; no loss is one of every pixel, as segmentation has. --until LAYER --classes N makes such a layer, "
    "which reads the mean of LAYER's map"
)
OF_CUT = (
    ", and no {act} behind it, which lets no logit be negative: --until {layer} --classes N makes such a "
    "layer, which reads the mean of {layer}'s map"
)
OF_WINDOW = (
    ": its logits are means of a map that a window makes. --until {layer} --classes N makes such a layer, "
    "which reads the mean of {layer}'s map"
)
OF_EMBEDDING = "; what it makes may also be an embedding, by which --task open-set tells classes apart"
Found = list[ConvertError]  # what is not supported: a pass adds to it and goes on without
ENDINGS = (SOFTMAX, functions.SIGMOID, UNIT)  # at the end of a network: they are left out
NOWHERE_ELSE = {  # of them those that are nothing inside a network
    SOFTMAX: f"a softmax inside the network is not supported; the nearest that is: {NO_SOFTMAX}",
    UNIT: f"an L2 normalisation inside the network is not supported; the nearest that is: {NO_LENGTH}",
}


def drop_ending(graph: Graph, found: Found) -> Graph:
    """The graph without one of ENDINGS at its end; one that stands anywhere else is noted.

    The loss on the device applies softmax and logistic function to the logits. What makes a map like the
    input of an autoencoder keeps its logistic function.
    """
    last = graph.producer(graph.output)
    kept = last is not None and last.op not in NOWHERE_ELSE and makes_its_map(graph)
    if last is not None and last.op in ENDINGS and not kept:
        graph = without(graph, last).replace(ending=last.op)
        if last.op == UNIT:
            warnings.warn(LONGER, stacklevel=3)
    while node := next((n for n in graph.nodes if n.op in NOWHERE_ELSE), None):
        found.append(LayerError(f"layer {node.name}", NOWHERE_ELSE[node.op]))
        graph = without(graph, node)
    return graph


def check_end(graph: Graph, found: Found) -> Graph:
    """The graph that ends in a linear layer, or in something else, which no head can follow (tasks.opened).

    No layer at all is noted.
    """
    graph = _mean_first(graph)
    last = graph.producer(graph.output)
    if last is not None and last.op.startswith(STAND_IN):
        return graph
    if last is not None and last.op == conv.DENSE and _sees_all(graph, last):
        graph = graph.replace(nodes=tuple(replace(n, op=LINEAR) if n is last else n for n in graph.nodes))
        last = graph.producer(graph.output)
    if last is None or last.op != LINEAR or last.act != "none":
        if last is None:
            found.append(headless(graph))
    elif graph.readers(graph.output):
        what = f"the logits of {last.name} are read again; they must be the only output"
        found.append(ConvertError(f"{graph.name}: {what}"))
    return graph


def makes_its_input(graph: Graph) -> bool:
    """True for an end of the input's shape, as an autoencoder makes it."""
    return graph.tensors[graph.output].shape == graph.tensors[graph.input.tensor].shape


def makes_its_map(graph: Graph) -> bool:
    """The same of a map; a vector is made by a linear layer."""
    return makes_its_input(graph) and graph.tensors[graph.output].pixels > 1


def headless(graph: Graph) -> ConvertError:
    """What is said of a network that does not end with a linear layer."""
    last = graph.producer(graph.output)
    end = "its input" if last is None else f"{last.name} ({last.act if last.act != 'none' else last.op})"
    what = f"ends with {end}; it must end with a linear layer, one logit per class (nn.Linear)"
    makers = _makers(graph, last)
    if len(makers) > 1 and all(op in (LINEAR, conv.DENSE) for op in makers):
        what += ": one for all outputs, in the place of several"
    if last is not None and makes_its_input(graph):
        what += ", or learn what is normal, with --task anomaly, as an autoencoder that makes its input again"
    elif graph.tensors[graph.output].pixels > 1:
        what += OF_PIXELS
    elif (maker := cut_off(graph)) is not None:
        what += (OF_WINDOW if maker.act == "none" else OF_CUT).format(act=maker.act, layer=maker.layer)
    if last is not None and graph.tensors[graph.output].pixels == 1:
        what += OF_EMBEDDING
    return ConvertError(f"{graph.name} {what}")


def cut_off(graph: Graph) -> Node | None:
    """The convolution whose map the end is the mean of, behind an activation, as SqueezeNet's, or of several
    pixels each; else None."""
    last = graph.producer(graph.output)
    over_all = last is not None and (is_mean(graph, last) or _is_mean_of_file(graph, last))
    before = graph.producer(last.inputs[0]) if last is not None and over_all else None
    return before if before is not None and before.op == conv.DENSE else None


def _makers(graph: Graph, node: Node | None) -> list[str]:
    """Ops of the layers whose results the end is put together of: joined, or summed and scaled."""
    if node is None or not (len(node.inputs) > 1 or node.op in (NORM, conv.DEPTHWISE)):
        return [node.op if node is not None else ""]
    return [op for name in node.inputs for op in _makers(graph, graph.producer(name))]


def _mean_first(graph: Graph) -> Graph:
    """The graph that ends in a convolution of one pixel, where it ended in the mean over what one makes."""
    last = graph.producer(graph.output)
    before = graph.producer(last.inputs[0]) if last is not None and is_mean(graph, last) else None
    if last is None or before is None or before.op != conv.DENSE or before.window != Window(1, 1):
        return graph
    if before.act != "none" or len(graph.readers(before.outputs[0])) > 1:
        return graph
    x, made = graph.tensors[before.inputs[0]], before.outputs[0]
    mean = replace(last, inputs=before.inputs, outputs=(made,), window=Window(*x.shape[:2], *x.shape[:2]))
    end = replace(before, inputs=(made,), outputs=last.outputs)
    nodes = tuple(mean if n is before else end if n is last else n for n in graph.nodes)
    tensors = {**graph.tensors, made: replace(graph.tensors[made], shape=(1, 1, x.channels), given=x.given)}
    return graph.replace(nodes=nodes, tensors=tensors)


def _sees_all(graph: Graph, node: Node) -> bool:
    """True for a convolution whose window is the whole map, without padding: a linear layer."""
    h, w, _ = graph.tensors[node.inputs[0]].shape
    return node.window is not None and replace(node.window, stride_h=1, stride_w=1) == Window(h, w)


def _is_mean_of_file(graph: Graph, node: Node) -> bool:
    """True for a layer of each channel of a whole map: its average, where the file has another scale."""
    h, w, _ = graph.tensors[node.inputs[0]].shape
    return node.op == conv.DEPTHWISE and node.window == Window(h, w, h, w)


def is_mean(graph: Graph, node: Node) -> bool:
    """True for the average of a whole map."""
    h, w, _ = graph.tensors[node.inputs[0]].shape
    return node.op == pool.AVERAGE and node.window == Window(h, w, h, w)
