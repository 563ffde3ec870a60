"""Lite residual modules beside frozen blocks (Cai et al. 2020, TinyTL, section 3.2 and figure 2).

A module averages what its block takes, convolves it in groups, normalises the outputs of each group, with a
ReLU, and goes by a 1x1 convolution and nearest upsampling into the sum with what the block gives. The 1x1
convolution begins with zeros, and the sum is in the block's own units: a network answers as it did, bit for
bit, until it learns.

So nothing of a module is calibrated. What is normalised may come in any units, wide enough for weights that
grow; normalised values reach to four deviations; and what is added to a block has the block's units, since
the sum can be no more precise.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from microtrain.base.errors import short
from microtrain.base.plan import LITE
from microtrain.base.shapes import by
from microtrain.convert.ir import ConvertError, Graph, Layer, Node, Shape, Source, Tensor, Window
from microtrain.convert.lite import LiteResiduals
from microtrain.convert.ops import add, conv, grouped, normalise, pool, upsample
from microtrain.convert.verify import verify

from .blocks import Block, blocks

REACH = 4.0  # deviations that normalised values reach to
ROOM = 8.0  # the same of sums in front of that: twice as much, for weights that grow
USUAL = 1 / 16  # of the range of an input is its deviation
ADDED = 1 / 8  # of a block's range is the deviation of what weights of 127 units add
STORED = 42  # deviation of the convolution's weights at the start, in units
EPSILON = 1e-5
Pair = tuple[int, int]


@dataclass(frozen=True)
class Sizes:
    """down: strides of a block; reduce: rows and columns that are averaged into one."""

    down: Pair
    reduce: Pair


@dataclass
class _Module:
    """Collects the nodes of one module. last: what the last of them makes"""

    path: str
    last: Tensor
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    layers: dict[str, Layer] = field(default_factory=dict)

    def append(self, made: Tensor, node_of: Callable[..., Node], *about: object) -> None:
        """A node that reads what was made last, and makes a tensor of the same name."""
        self.nodes.append(node_of(made.name, self.last.name, made.name, *about))
        self.tensors[made.name] = self.last = made

    def layer(self, part: str, weight: np.ndarray, scale: float, wanted: LiteResiduals, bits: int) -> Layer:
        """A layer without biases, all of whose weights learn. scale: real value of a unit"""
        made = Layer(
            weight,
            np.zeros(len(weight), np.int32),
            Source(f"{self.path}{part}.weight"),
            np.full(len(weight), scale),
            np.zeros(len(weight), bool),
            fraction_bits=bits,
            rate=wanted.rate,
        )
        self.layers[f"{self.path}{part}"] = made = replace(made, trained=tuple(range(made.columns)))
        return made


def with_lite_residuals(graph: Graph, wanted: LiteResiduals, fraction_bits: int) -> Graph:
    """The quantized forward graph with a module beside each block that is asked for, all of which learns.

    Errors   ConvertError where there is no such block, or it has not the shape for such a module
    """
    for block in chosen(graph, wanted):
        graph = _beside(graph, block, wanted, fraction_bits)
    return verify(graph)


def chosen(graph: Graph, wanted: LiteResiduals) -> tuple[Block, ...]:
    """The blocks that get a module, in forward order."""
    found = blocks(graph)
    if isinstance(wanted.blocks, int):
        if wanted.blocks > len(found):
            raise ConvertError(
                f"{graph.name} has {len(found)} blocks, fewer than the {wanted.blocks} of lite_residuals"
            )
        return found[len(found) - wanted.blocks :]
    places = {_place(graph, key, found) for key in wanted.blocks}
    return tuple(block for place, block in enumerate(found) if place in places)


def _place(graph: Graph, key: str | int, found: tuple[Block, ...]) -> int:
    names = [block.name for block in found]
    if isinstance(key, int) and -len(names) <= key < len(names):
        return key % len(names)
    if key in names:
        return names.index(str(key))
    if not names:
        raise ConvertError(f"{graph.name} has no block for lite_residuals: none of its layers makes a map")
    known = f"{names[0]} ... {names[-1]}" if len(names) > 8 else ", ".join(names)
    raise ConvertError(
        f"{graph.name} has no block {short(key)} for lite_residuals; there are {known} "
        f"(or numbers 0 to {len(names) - 1}, from the end -1 to {-len(names)})"
    )


def sizes_of(graph: Graph, block: Block, wanted: LiteResiduals) -> Sizes:
    """The shapes of a module. ConvertError where there is none beside such a block."""
    x, y = graph.tensors[block.x].shape, graph.tensors[block.y].shape
    where = f"the block {block.name} takes {by(x)} and gives {by(y)}"
    if x[0] % y[0] or x[1] % y[1]:
        raise ConvertError(f"{where}: a lite residual beside it needs sides that are whole multiples")
    reduce = tuple(1 if side == 1 else wanted.reduce for side in x[:2])
    if any(side % factor for side, factor in zip(y[:2], reduce, strict=True)):
        raise ConvertError(
            f"{where}, which {wanted.reduce}x{wanted.reduce} pixels do not tile: "
            "say `reduce: 1` for its lite residual, or leave the block out"
        )
    if x[2] % wanted.groups:
        most = max(n for n in range(1, wanted.groups) if x[2] % n == 0)
        raise ConvertError(
            f"{where}: {x[2]} channels do not fall into the {wanted.groups} groups of its lite residual; "
            f"`groups: {most}` is the nearest that fits"
        )
    return Sizes((x[0] // y[0], x[1] // y[1]), (reduce[0], reduce[1]))


def _beside(graph: Graph, block: Block, wanted: LiteResiduals, bits: int) -> Graph:
    """The graph with a module beside a block."""
    sizes, y = sizes_of(graph, block, wanted), graph.tensors[block.y]
    module = _Module(f"{block.name}{LITE}", graph.tensors[block.x])
    path, reduced = module.path, sizes.reduce != (1, 1)
    if reduced:
        made = replace(module.last, name=f"{path}pool", shape=_divided(module.last.shape, sizes.reduce))
        module.append(made, pool.node_of, Window(*sizes.reduce, *sizes.reduce))
    small = _divided(y.shape, sizes.reduce)
    _features(module, (*small[:2], module.last.channels), wanted, sizes.down, bits)
    c = module.last.channels
    zeros = np.zeros((y.channels, 1, 1, c), np.int8)
    layer = module.layer("project", zeros, y.scale * ADDED * (2.0 / c) ** 0.5, wanted, bits)
    made = Tensor(f"{path}project", small, y.dtype, y.scale)
    module.append(made, conv.node_of, layer, Window(1, 1))
    if reduced:
        module.append(replace(made, name=f"{path}larger", shape=y.shape), upsample.node_of, sizes.reduce)
    return _inserted(graph, y, module)


def _features(module: _Module, shape: Shape, wanted: LiteResiduals, down: Pair, bits: int) -> None:
    """The convolution in groups, and its outputs normalised. shape: of both"""
    x, path, k = module.last, module.path, wanted.kernel
    weight = _random(path, x.channels, wanted)
    deviation = (2.0 / weight[0].size) ** 0.5
    layer = module.layer("conv", weight, deviation / STORED, wanted, bits)
    sums = x.scale * 255 * USUAL * 2**0.5 * ROOM / 127
    window = Window(k, k, *down, k // 2, k // 2)
    made = Tensor(f"{path}conv", shape, x.dtype, float(np.float32(sums)))
    module.append(made, grouped.node_of, layer, window, wanted.groups)
    made = Tensor(f"{path}norm", shape, x.dtype, float(np.float32(REACH / 255)), -128)
    module.append(made, normalise.node_of, wanted.groups, EPSILON)


def _divided(shape: Shape, by: Pair) -> Shape:
    return shape[0] // by[0], shape[1] // by[1], shape[2]


def _random(path: str, c: int, wanted: LiteResiduals) -> np.ndarray:
    """Weights of a convolution in groups, int8 [c_out][k][k][c_in / groups], or depthwise [c][k][k]; always
    the same for a block."""
    rng = np.random.default_rng(zlib.crc32(path.encode()))
    shape = (c, wanted.kernel, wanted.kernel, c // wanted.groups)
    found = np.clip(np.rint(rng.normal(0.0, STORED, shape)), -127, 127).astype(np.int8)
    return found[..., 0] if wanted.groups == c > 1 else found


def _inserted(graph: Graph, y: Tensor, module: _Module) -> Graph:
    """The module behind its block. The sum has the name and the units of what the block gave, whose name is
    another now, so that whatever is behind stays as it was."""
    own = replace(y, name=f"{module.path}block")
    total = add.node_of(f"{module.path}sum", (own.name, module.last.name), y.name)
    place = next(i for i, node in enumerate(graph.nodes, 1) if y.name in node.outputs)
    *before, last = graph.nodes[:place]
    given = replace(last, outputs=tuple(own.name if t == y.name else t for t in last.outputs))
    return graph.replace(
        nodes=(*before, given, *module.nodes, total, *graph.nodes[place:]),
        tensors={**graph.tensors, own.name: own, **module.tensors},
        layers={**graph.layers, **module.layers},
    )
