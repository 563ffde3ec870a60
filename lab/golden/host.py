"""The generated C on this machine, every tensor at its own place, to be read after a step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from microtrain.convert.emit.code import emit
from microtrain.convert.execute.executor import Executor
from microtrain.convert.ir import Graph, Tensor
from microtrain.convert.memory.check_plan import check_plan
from microtrain.convert.memory.plan import Plan, plan
from microtrain.convert.native_model import NativeModel, Sgd
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.kernels import Error
from microtrain.convert.scheme import Scheme
from microtrain.convert.storage import align

from .check import Logits, Tick, compare_blocks, compare_logits, nothing
from .data import Data, stored
from .graphs import IMAGENET_CLASSES, LOGITS, golden_scheme, step_graph, with_classifier

RATES = (0.01, 0.01, 0.01)  # of weights, biases and head: large enough that every step changes many weights
SEED = 7


class HostModel:
    """One training graph as C, compiled by the host's compiler with the kernels' portable code."""

    def __init__(self, graph: Graph, scheme: Scheme, folder: Path) -> None:
        self.graph = graph
        self.plan = apart(plan(graph))
        check_plan(graph, self.plan)
        self.model = NativeModel(emit(graph, self.plan, scheme, "golden data"), folder)

    def tensor(self, name: str) -> Any:
        """What the last step left in a tensor, in the form in which the executor keeps it."""
        tensor = self.graph.tensors[name]
        if tensor.dtype == "error":
            return Error(decode(tensor, self._bytes(name)), self._floats(f"{name}/scale"))
        return decode(tensor, self._bytes(name))

    def differences(self, executor: Executor) -> list[str]:
        """The tensors of the last step that are not what the NumPy reference makes, bit for bit."""
        values = {n: v for n, v in executor.env.values.items() if n != self.graph.input.tensor}
        return [name for name, value in values.items() if not same(self.tensor(name), value)]

    def _bytes(self, part: str) -> bytes:
        placed = self.plan.placements[part]
        return self.model.arena(placed.offset, placed.bytes)

    def _floats(self, part: str) -> np.ndarray:
        return np.frombuffer(self._bytes(part), np.float32)


@dataclass(frozen=True)
class HostResult:
    """Host C against the golden data and against NumPy.

    logits     int8 logits, against the golden ones
    blocks     `compare_blocks`
    tensors    tensors of the training steps that were compared with NumPy's: activations, masks, errors
    different  those that are not the same bit for bit, and "trainables" where what was learned is not
    """

    logits: Logits
    blocks: dict[tuple[int, str], int]
    tensors: int
    different: list[str]


def check_host(data: Data, network: str, count: int, folder: Path, tick: Tick = nothing) -> HostResult:
    """Run `count` images (0: all) and train on the four golden ones with the generated C."""
    golden = data.train_step(network)
    plain = step_graph(data, network, golden)
    graph = with_classifier(plain, data, network, range(IMAGENET_CLASSES))
    host = HostModel(graph, golden_scheme(golden), folder)

    def forward(image: np.ndarray) -> np.ndarray:
        host.model.forward(image, train=False)
        return np.asarray(host.tensor(LOGITS)).reshape(-1)

    logits = compare_logits(forward, data, network, count, tick)
    blocks = compare_blocks(forward, host.tensor, graph, golden)
    executor, compared, different = Executor(graph), 0, []
    for step, (pixels, label) in enumerate(zip(golden["images_u8"], golden["labels"], strict=True)):
        executor.forward(stored(pixels))
        host.model.forward(stored(pixels), train=True)
        executor.backward(int(label), reference.Sgd(*RATES, seed=SEED, step=step))
        host.model.backward(int(label), Sgd(*RATES, seed=SEED, step=step))
        compared += len(executor.env.values) - 1  # the image
        different += host.differences(executor)
        if host.model.trainables() != executor.trainables():
            different.append("trainables")
    return HostResult(logits, blocks, compared, different)


def apart(packed: Plan) -> Plan:
    """The same buffers, none of which shares its bytes with another."""
    placements, end = {}, 0
    for name, placed in packed.placements.items():
        placements[name] = replace(placed, offset=end)
        end += align(placed.bytes)
    return replace(packed, placements=placements, arena=end)


def decode(tensor: Tensor, data: bytes) -> np.ndarray:
    """The bytes of a tensor: masks bool [h, w, c], float32 vectors [c], else int8 or uint8 [h, w, c]."""
    if tensor.dtype == "f32":
        return np.frombuffer(data, np.float32)
    if tensor.dtype == "bits":
        packed = np.frombuffer(data, np.uint8).reshape(*tensor.shape[:2], -1)
        return np.unpackbits(packed, axis=2, bitorder="little")[..., : tensor.channels].astype(bool)
    return np.frombuffer(data, np.uint8 if tensor.dtype == "u8" else np.int8).reshape(tensor.shape)


def same(a: Any, b: Any) -> bool:
    """Equal shape, type and bytes."""
    if isinstance(a, Error):
        return isinstance(b, Error) and same(a.q, b.q) and same(a.scale, b.scale)
    b = np.asarray(b)
    return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
