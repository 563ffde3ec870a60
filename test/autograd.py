"""The same quantized network in PyTorch: autograd is the oracle of the compiled backward pass.

Values are the stored integers as float64. Rounding passes gradients straight through, saturation stops them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

from microtrain.base.trained import PROTOTYPES
from microtrain.convert.execute.executor import Executor
from microtrain.convert.ir import Graph, Node, Tensor
from microtrain.convert.ops import mul_add, position, programs, prototypes, reconstruct, scale_values
from microtrain.convert.ops.aten.pool import DOWN
from microtrain.convert.ops.curves import NUMBERS
from microtrain.convert.ops.functions import (
    ABSOLUTE,
    ACTIVATIONS,
    CLIP,
    CURVE,
    EXPONENTIAL,
    LOGARITHM,
    POWER,
    PROGRAM,
)
from microtrain.convert.ops.scale import MULTIPLY, PIXELS, SCALE
from microtrain.convert.reference.prototypes import FINE, SHARP

torch.set_num_threads(1)
Key = tuple[str, str]


CURVES: dict[float, Callable[..., torch.Tensor]] = {
    NUMBERS["log_sigmoid"]: F.logsigmoid,
    NUMBERS["softsign"]: F.softsign,
    NUMBERS["erf"]: torch.erf,
    NUMBERS["sin"]: torch.sin,
    NUMBERS["sign"]: torch.sign,
    NUMBERS["gt"]: lambda x, other: (x > other).double(),
}
WRITTEN: dict[str, Callable[..., torch.Tensor]] = {  # those that have no name of one word in PyTorch
    ABSOLUTE: torch.abs,
    EXPONENTIAL: torch.exp,
    LOGARITHM: lambda x, shift, gain: gain * torch.log((x + shift).clamp(min=1e-30)),
    CURVE: lambda x, number, *given: (of_program if number == PROGRAM else CURVES[number])(x, *given),
    POWER: lambda x, exponent, gain: (gain * (x if exponent in (2, 3) else x.clamp(min=0))) ** exponent,
}


def of_program(x: torch.Tensor, *program: float) -> torch.Tensor:
    """What ops/programs.py says, step by step."""
    stack, rest = list[torch.Tensor](), list(program)
    while rest:
        word = rest.pop(0)
        if word == programs.NUMBER:
            stack.append(x)
        elif word == programs.LINE:
            stack.append(stack.pop() * rest.pop(0) + rest.pop(0))
        elif word == programs.SUM:
            b, a, times = stack.pop(), stack.pop(), rest.pop(0)
            stack.append(rest.pop(0) * (a + times * b))
        elif word == programs.PRODUCT:
            stack.append(stack.pop() * stack.pop())
        else:
            op, count = list(ACTIVATIONS)[int(rest.pop(0))], int(rest.pop(0))
            stack.append(activation(op, stack.pop(), tuple(rest[:count])))
            del rest[:count]
    (result,) = stack
    return result


def activation(op: str, x: torch.Tensor, factors: tuple[float, ...]) -> torch.Tensor:
    """PyTorch's own activation of that name."""
    if op == CLIP:  # as relu and relu6, and unlike clamp, it passes nothing on at its limits
        least, most = factors
        return F.hardtanh(x, least, most)
    if op in WRITTEN:
        return WRITTEN[op](x, *factors)
    if op == "gelu":
        return F.gelu(x, approximate="tanh" if factors[0] else "none")
    taken = {"elu": 1, "celu": 1, "selu": 0}.get(op, len(factors))
    made: torch.Tensor = getattr(F, op)(x, *factors[:taken])
    return made


def gradients(executor: Executor, label: Any, loss: str = "cross_entropy") -> dict[Key, np.ndarray]:
    """Gradients of every layer's stored weights and biases for the executor's last image, by autograd.

    The stored values are the executor's own, so that ties in rounding cannot blur the comparison.
    """
    env = executor.env
    graph = env.graph
    leaves: dict[Key, torch.Tensor] = {}
    values = {graph.input.tensor: _nchw(env.values[graph.input.tensor])}
    for node in graph.forward_layers:
        if node.op == "gather":
            continue
        if node.op == "head":
            logits = _head(executor, node, values[node.inputs[0]], leaves)
            continue
        if node.op == prototypes.NAME:
            logits = _of_prototypes(executor, values[node.inputs[0]])
            continue
        if node.op == reconstruct.NAME:
            return _of_score(node, graph, values, leaves, label)
        y = graph.tensors[node.outputs[0]]
        raw = _run(executor, node, values, leaves)
        values[y.name] = _store(raw, y, _nchw(env.values[y.name]))
    _loss(logits, label, loss, graph).backward()
    return {key: _grad(leaf, graph, key) for key, leaf in leaves.items()}


def _loss(logits: torch.Tensor, label: Any, loss: str, graph: Graph) -> torch.Tensor:
    """PyTorch's own, against a label or, where that is an array, a target."""
    if isinstance(label, np.ndarray):
        target = torch.tensor(label.astype(np.float64))[None]
        if loss == "labels":
            return F.binary_cross_entropy_with_logits(logits, target)
        unit = torch.tensor(graph.forward_nodes[-1].factors, dtype=torch.float64)
        y, wanted = logits / unit, target / unit
        return F.huber_loss(y, wanted) if loss == "huber" else F.mse_loss(y, wanted)
    onehot = F.one_hot(torch.tensor([label]), logits.shape[1]).double()
    return F.cross_entropy(logits, onehot) if loss == "cross_entropy" else ((logits - onehot) ** 2).mean()


def _of_score(
    node: Node, graph: Graph, values: dict[str, torch.Tensor], leaves: dict[Key, torch.Tensor], label: int
) -> dict[Key, np.ndarray]:
    """Gradients of an autoencoder's score; from an anomaly nothing is learned."""
    y, x = (((values[t] - graph.tensors[t].zero) * graph.tensors[t].scale).flatten() for t in node.inputs)
    score = ((y - x) ** 2).mean() / node.factors[0]
    (score * (label == reconstruct.NORMAL)).backward()
    return {key: _grad(leaf, graph, key) for key, leaf in leaves.items()}


def _of_prototypes(executor: Executor, x: torch.Tensor) -> torch.Tensor:
    """Logits: distances of centred embeddings of length 1, and of what is none of them."""
    env = executor.env
    sums, distances = (torch.tensor(env.statistics[kind]).double() for kind in PROTOTYPES)
    sums, counts = sums[:, :-1], sums[:, -1]
    centre = torch.tensor(env.graph.centre).double() / FINE
    e = F.normalize(x.permute(0, 2, 3, 1).flatten(1) - centre)
    squares = (e - sums / counts[:, None]).square().sum(1) * counts / (counts + 1)
    own, total, off, others, away = distances
    mean, far = total / own, away / others
    threshold = torch.stack((mean + 5 * off / own, (mean + far) / 2, 0.85 * far)).min()
    return -torch.cat([threshold[None], SHARP * squares])[None]


def _nchw(stored: np.ndarray) -> torch.Tensor:
    return torch.tensor(stored.astype(np.float64)).permute(2, 0, 1)[None]


def _store(raw: torch.Tensor, y: Tensor, stored: torch.Tensor) -> torch.Tensor:
    """The stored value; gradients pass where rounding did not saturate."""
    rounded = raw.detach().round()
    inside = ((rounded >= -128) & (rounded <= 127)).double()
    through = raw * inside
    return through + (stored - through).detach()


def _run(
    executor: Executor, node: Node, values: dict[str, torch.Tensor], leaves: dict[Key, torch.Tensor]
) -> torch.Tensor:
    """The unrounded output of a node in stored units."""
    graph = executor.env.graph
    y, xs = graph.tensors[node.outputs[0]], [graph.tensors[t] for t in node.inputs]
    if node.op == "add":
        a, b = ((values[x.name] - x.zero) * x.scale for x in xs)
        times, share = (*node.factors, 1.0, 1.0)[:2]
        return (a + times * b) * share / y.scale + y.zero
    if node.op in (SCALE, PIXELS, MULTIPLY):
        a, b = ((values[x.name] - x.zero) * x.scale for x in xs)
        return a * b / y.scale + y.zero
    if node.op == "normalise":
        return _normalised(values[xs[0].name], node, xs[0]) / y.scale + y.zero
    if node.op == "attention":
        return _attention(values[xs[0].name], node, xs[0]) / y.scale + y.zero
    if node.op == "position":
        real = ((values[xs[0].name] - xs[0].zero) * xs[0].scale).flatten(2)
        table = torch.tensor(position.table_of(graph, node) * position.scale_of(node)).T[None]
        made = F.pad(real, (table.shape[2] - real.shape[2], 0)) + table
        return made.reshape(1, y.channels, *y.shape[:2]) / y.scale + y.zero
    if node.op == scale_values.VALUES:
        factors = scale_values.table_of(graph, node) * scale_values.scale_of(node)
        real = (values[xs[0].name] - xs[0].zero) * xs[0].scale
        return real * torch.tensor(factors).permute(2, 0, 1) / y.scale + y.zero
    if node.op == mul_add.MUL_ADD:
        own = mul_add.constants(node)
        factor = torch.tensor(own.factor.real)[:, None, None]
        term = 0.0 if own.term is None else torch.tensor(own.term.added)[:, None, None]
        return ((values[xs[0].name] - xs[0].zero) * xs[0].scale * factor + term) / y.scale + y.zero
    if node.op == "concat":
        return torch.cat([(values[x.name] - x.zero) * x.scale / y.scale + y.zero for x in xs], dim=1)
    if node.op == "upsample":
        down, across = (int(factor) for factor in node.factors)
        return values[xs[0].name].repeat_interleave(down, dim=2).repeat_interleave(across, dim=3)
    if node.op == "unflatten":
        h, w, c = y.shape
        return values[xs[0].name].permute(0, 2, 3, 1).reshape(1, h, w, c).permute(0, 3, 1, 2)
    if node.op == "resample":
        rows, columns = (torch.tensor(axis.matrix / axis.whole, dtype=torch.float64) for axis in node.axes)
        mixed = torch.einsum("oh,pw,nchw->ncop", rows, columns, values[xs[0].name] - xs[0].zero)
        return torch.as_tensor(mixed + xs[0].zero)
    if node.op == "channel_mean":
        return values[xs[0].name].mean(1, keepdim=True)
    if node.op == "channel_max":
        return values[xs[0].name].max(1, keepdim=True)[0]
    if node.op == "take":
        return values[xs[0].name][:, list(node.channels or ())]
    if node.op in ACTIVATIONS:
        real = (values[xs[0].name] - xs[0].zero) * xs[0].scale
        return torch.as_tensor(activation(node.op, real, node.factors) / y.scale + y.zero)
    k = node.window
    assert k is not None
    if node.op == "avgpool":
        around = (k.pad_w, k.pad_w + k.more_w, k.pad_h, k.pad_h + k.more_h)
        padded = F.pad(values[xs[0].name] - xs[0].zero, around)
        made = F.avg_pool2d(padded, (k.kh, k.kw), (k.stride_h, k.stride_w)) + xs[0].zero
        return made.transpose(2, 3) if node.factors == DOWN else made
    if node.op == "maxpool":
        made = F.max_pool2d(values[xs[0].name], (k.kh, k.kw), (k.stride_h, k.stride_w), (k.pad_h, k.pad_w))
        return made.transpose(2, 3) if node.factors == DOWN else made
    name = node.layer or ""
    layer, state = graph.layers[name], executor.env.state[name]
    weight = torch.tensor(state.weight.astype(np.float64))
    weight = weight[:, None] if layer.depthwise else weight.permute(0, 3, 1, 2)
    leaves[name, "weight"] = weight.contiguous().requires_grad_()
    leaves[name, "bias"] = torch.tensor(state.bias.astype(np.float64)).requires_grad_()
    groups = xs[0].channels // weight.shape[1]
    sides = zip((k.kh, k.kw), weight.shape[2:], strict=True)
    apart = [max((size - 1) // max(n - 1, 1), 1) for size, n in sides]
    around = (k.pad_w, k.pad_w + k.more_w, k.pad_h, k.pad_h + k.more_h)
    sums = F.conv2d(
        F.pad(values[xs[0].name] - xs[0].zero, around),
        leaves[name, "weight"],
        leaves[name, "bias"],
        (k.stride_h, k.stride_w),
        dilation=apart,
        groups=groups,
    )
    assert layer.weight_scale is not None
    m = torch.tensor(np.float32(xs[0].scale * layer.weight_scale / y.scale).astype(np.float64))
    return sums * m[None, :, None, None] + y.zero


def _attention(stored: torch.Tensor, node: Node, x: Tensor) -> torch.Tensor:
    """By PyTorch's own, of the tokens that lie equally far apart."""
    factor, heads, down, across = node.factors
    h, w, c = x.shape
    made = torch.zeros(1, c // 3, h, w, dtype=stored.dtype)
    for i in range(int(down)):
        for j in range(int(across)):
            own = (..., slice(i, None, int(down)), slice(j, None, int(across)))
            real = ((stored - x.zero) * x.scale)[own]
            q, k, v = real.reshape(3, int(heads), -1, real[0, 0].numel()).transpose(-1, -2)
            found = F.scaled_dot_product_attention(q, k, v, scale=factor)
            made[own] = found.transpose(-1, -2).reshape(made[own].shape)
    return made


def _normalised(stored: torch.Tensor, node: Node, x: Tensor) -> torch.Tensor:
    """By PyTorch's own group norm, or at each pixel apart."""
    eps, groups, apart = node.factors
    real = (stored - x.zero) * x.scale
    if not apart:
        return F.group_norm(real, int(groups), eps=eps)
    pixels = real.permute(0, 2, 3, 1).reshape(-1, x.channels)
    made = F.group_norm(pixels, int(groups), eps=eps)
    return made.reshape(1, *x.shape).permute(0, 3, 1, 2)


def _head(executor: Executor, node: Node, x: torch.Tensor, leaves: dict[Key, torch.Tensor]) -> torch.Tensor:
    name = node.layer or ""
    tensor, state = executor.env.graph.tensors[node.inputs[0]], executor.env.state[name]
    leaves[name, "weight"] = torch.tensor(state.weight.astype(np.float64)).requires_grad_()
    leaves[name, "bias"] = torch.tensor(state.bias.astype(np.float64)).requires_grad_()
    features = ((x - tensor.zero) * tensor.scale).permute(0, 2, 3, 1).flatten(1)
    return features @ leaves[name, "weight"].T + leaves[name, "bias"]


def _grad(leaf: torch.Tensor, graph: Graph, key: Key) -> np.ndarray:
    """A leaf's gradient in the layout of the kernels, of the trained columns where only some are."""
    assert leaf.grad is not None
    layer = graph.layers[key[0]]
    grad = leaf.grad
    if key[1] == "bias" or layer.weight_scale is None:
        return grad.numpy()
    full = (grad[:, 0] if layer.depthwise else grad.permute(0, 2, 3, 1)).numpy()
    if not layer.trained:
        return full
    return full.take(layer.trained, axis=0 if layer.depthwise else 3)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Cosine of the angle between two gradients; 1 for two zero gradients."""
    a, b = a.reshape(-1).astype(np.float64), b.reshape(-1).astype(np.float64)
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    if norms == 0:
        return 1.0 if not a.any() and not b.any() else 0.0
    return float(a @ b) / norms
