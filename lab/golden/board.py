"""The ELF on the emulated board: what its kernels leave in SRAM, read layer by layer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from microtrain.base.pio import build
from microtrain.base.plan import Budget, Origin, text
from microtrain.convert import boards
from microtrain.convert.emit.code import generate
from microtrain.convert.emit.document import document
from microtrain.convert.execute.executor import Executor
from microtrain.convert.frontends.checkpoint import read_checkpoint
from microtrain.convert.ir import Graph
from microtrain.convert.memory.check_plan import check_plan
from microtrain.convert.memory.plan import Plan, plan
from microtrain.convert.names import identifier
from microtrain.convert.native_model import Sgd
from microtrain.convert.ops import forward_op, saves
from microtrain.convert.pipeline import Compiled, Passes, compile_graph, training_graph
from microtrain.convert.reference import kernels as reference
from microtrain.convert.scheme import Scheme, find
from microtrain.convert.storage import align
from microtrain.convert.trainables import block_bytes, layout
from microtrain.device.client import Device
from microtrain.emulator import Board, EmulatedPort
from microtrain.emulator.registers import Register

from .check import Logits, Tick, compare_blocks, compared, nothing
from .data import Data, stored
from .graphs import CLASSES, IMAGENET_CLASSES, LOGITS, golden_head, with_classifier
from .host import HostModel, decode

SCHEMES = {"mcunet-5fps": "mcunet-49kb", "proxyless-w0.3": "proxyless-49kb", "mbv2-w0.35": "mbv2-49kb"}
ENVIRONMENT = "disco_f746ng"
SEED = 7


class LayerWatch:
    """Copies every int8 tensor of the forward pass out of the emulated SRAM, as soon as it is complete.

    A layer's kernel is called with the address of the layer's parameter struct, which has a symbol; its
    output is complete when the next layer begins.

    values   tensor -> int8 [h, w, c] of the last image
    """

    def __init__(self, board: Board, graph: Graph, placed: Plan) -> None:
        self.board, self.graph, self.placed = board, graph, placed
        self.values: dict[str, np.ndarray] = {}
        self._running: str | None = None
        addresses = {variable.name: variable.address for variable in board.image.variables}
        layers = [
            n for n in graph.forward_nodes if not saves(n) and graph.tensors[n.outputs[0]].dtype == "s8"
        ]
        self._outputs = {
            addresses[f"{forward_op(n).struct}_{identifier(n.layer or n.name)}"]: n.outputs[0] for n in layers
        }
        for kernel in {forward_op(n).kernel for n in layers}:
            board.watch(kernel, self._enter)

    def _enter(self) -> None:
        begun = self._outputs.get(self.board.register(Register.R0))
        if begun is not None:
            self.finish()
            self._running = begun

    def finish(self) -> None:
        """The layer that ran last is complete."""
        if self._running is not None:
            self.values[self._running] = self._read(self._running)
            self._running = None

    def _read(self, name: str) -> np.ndarray:
        part = self.placed.placements[name]
        start = self.board.image.symbols["model_arena"] + part.offset
        return decode(self.graph.tensors[name], self.board.read_memory(start, part.bytes))


@dataclass(frozen=True)
class BoardLogits:
    """int8 logits of some images, and the blocks of the golden training steps (`compare_blocks`)."""

    logits: Logits
    blocks: dict[tuple[int, str], int]


@dataclass(frozen=True, eq=False)
class ProbeBoard:
    """An emulated board that infers with the float head and with some rows of the int8 classifier."""

    rows: range
    graph: Graph
    device: Device
    watch: LayerWatch

    def forward(self, image: np.ndarray) -> np.ndarray:
        """int8 logits [rows] of a stored image."""
        self.device.infer(shown(image))
        self.watch.finish()
        return self.watch.values[LOGITS].reshape(-1)


def probe_boards(data: Data, network: str, folder: Path) -> Iterator[ProbeBoard]:
    """Boards that have all 1000 rows between them: build an ELF with every tensor whole, and boot it."""
    scheme, golden = Scheme("golden-head"), data.train_step(network)
    quantized = read_checkpoint(data.checkpoint(network))
    plain = golden_head(training_graph(quantized, scheme, CLASSES, Passes(fused=False)), golden)
    parts = classifier_parts(plain)
    for first in range(parts):
        rows = range(first, IMAGENET_CLASSES, parts)
        graph = with_classifier(plain, data, network, rows)
        placed = plan(graph)
        check_plan(graph, placed)
        board = Board(build_elf(Compiled(graph, placed, scheme), folder))
        watch = LayerWatch(board, graph, placed)
        yield ProbeBoard(rows, graph, Device(EmulatedPort(board)), watch)


def classifier_parts(graph: Graph) -> int:
    """Parts into which the ImageNet classifier must be cut, so that one fits the flash beside the network."""
    layers = [layer for layer in graph.layers.values() if layer.weight_scale is not None]
    used = sum(align(layer.weight.size) + align(4 * len(layer.bias)) for layer in layers)
    room = boards.find(ENVIRONMENT).weights - used - block_bytes(layout(graph))
    features = graph.tensors["features"].channels
    return -(-IMAGENET_CLASSES * (features + 4) // room)


def check_logits(data: Data, network: str, count: int, folder: Path, tick: Tick = nothing) -> BoardLogits:
    """Run `count` images through the emulated boards, all 1000 rows; the golden steps on the first board."""
    images, labels = zip(*data.imagenet(count), strict=True)
    found = np.zeros((count, IMAGENET_CLASSES), np.int8)
    blocks: dict[tuple[int, str], int] = {}
    for board in probe_boards(data, network, folder):
        if not blocks:
            golden = data.train_step(network)
            blocks = compare_blocks(board.forward, board.watch.values.__getitem__, board.graph, golden)
        for row, image in zip(found, images, strict=True):
            row[board.rows] = board.forward(image)
            tick()
    return BoardLogits(compared(found, np.array(labels), data.logits(network)), blocks)


def shown(image: np.ndarray) -> np.ndarray:
    """A stored image as the pixels 0..255 that a client sends."""
    return (image.astype(np.int16) + 128).astype(np.uint8)


def build_elf(compiled: Compiled, folder: Path) -> Path:
    """Write the generated files and build the firmware for the board, as `pio run` does."""
    generated = folder / "generated"
    generated.mkdir(parents=True, exist_ok=True)
    output = generate(compiled, "golden data")
    board = boards.find(ENVIRONMENT)
    origin = Origin(compiled.graph.name, "", "checkpoint")
    plan = document(compiled, output, origin, Budget(board.sram, board.flash))
    for name, content in {**output.files, "plan.json": text(plan)}.items():
        (generated / name).write_text(content, encoding="utf-8")
    (elf,) = build(generated, folder / "pio", ENVIRONMENT)
    return elf


def check_training(data: Data, network: str, folder: Path, tick: Tick = nothing) -> list[bool]:
    """Train a published scheme on the golden images: emulated board, host C and NumPy side by side.

    The ELF is the one that would be flashed, but for its head, which is the golden one.
    Returns for each step whether all have the same float logits before it and the same trainables after.
    """
    golden = data.train_step(network)
    scheme = replace(find(Path(SCHEMES[network])), fraction_bits=0)
    compiled = compile_graph(read_checkpoint(data.checkpoint(network)), scheme, CLASSES)
    compiled = Compiled(golden_head(compiled.graph, golden), compiled.plan, scheme)
    device = Device(EmulatedPort(build_elf(compiled, folder)))
    device.seed(SEED)
    host, executor = HostModel(compiled.graph, scheme, folder / "host").model, Executor(compiled.graph)
    rates = dict(zip(("lr_weight", "lr_bias", "lr_head"), scheme.rates, strict=True))
    equal = []
    for step, (pixels, label) in enumerate(zip(golden["images_u8"], golden["labels"], strict=True)):
        expected = executor.forward(stored(pixels)).tobytes()
        logits = (device.infer(pixels).logits.tobytes(), host.forward(stored(pixels), True).tobytes())
        executor.backward(int(label), reference.Sgd(**rates, seed=SEED, step=step))
        host.backward(int(label), Sgd(**rates, seed=SEED, step=step))
        device.train(pixels, int(label))
        after = hashlib.sha256(executor.trainables()).hexdigest()
        trained = (device.sha(), hashlib.sha256(host.trainables()).hexdigest())
        equal.append(logits == (expected, expected) and trained == (after, after))
        tick()
    return equal
