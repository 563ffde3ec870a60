"""What an op is. All that the compiler, the simulator and the tests know of one stands in one entry.

No field has a default: an op that has nothing to say says so (`no_macs`, `NOT_A_STAGE`), and an entry that
leaves a field out is a TypeError at import that names the op and the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from microtrain.convert.aten_call import Call
from microtrain.convert.ir import Graph, Node, Shape, Tensor
from microtrain.convert.lowering import Lowering
from microtrain.convert.names import Names
from microtrain.convert.reference.hostlib import Signature

from .bounds import Bounds
from .ctext import Table
from .environment import Env
from .outputs import Output
from .stage import Stage
from .unit import Units
from .work import Terms

if TYPE_CHECKING:
    from .tape import Tape

Values = Mapping[str, np.ndarray]  # of a batch of images, by tensor
BatchRun = Callable[[Graph, Node, Values], np.ndarray]

COMMON_HEADERS = ("conv2d", "elementwise", "head", "pool", "stream")  # every model.c includes them


class Entry:
    """An entry of the table: refuses to be made with a field left out."""

    def __new__(cls, *name: str, **said: object) -> Entry:
        known = [f.name for f in fields(cls) if f.name != "name"]  # type: ignore[arg-type]
        op = name[0] if name else said.get("name", "without a name")
        missing = [f for f in known if f not in said]
        if missing:
            raise TypeError(f"the entry of the op {op} says nothing of {', '.join(missing)}")
        return super().__new__(cls)


@dataclass(frozen=True, kw_only=True)
class Op(Entry):
    """One op of the IR.

    name          its key in the table
    shapes        shape of each output, from the node's inputs and window
    run           the NumPy reference, a device's arithmetic or real numbers: reads and writes the environment
    call          the C call
    accumulators  the integers that the kernel keeps and how large they can become
    scratch       bytes the kernel needs beside its arguments: asks the kernel's own C function
    macs          multiply-accumulates of one execution
    way           which way through its kernels a step takes, where that changes what it costs: " 3x3/1"
    work          numbers that the instructions of a step grow with, by name
    unit          what a piece of it is made of in the library; None: it cannot stop on its way
    in_place      inputs whose memory the first output may take: position -> by how many bytes at least it
                  must begin before that input
    kernels       its C functions: name -> what it returns and takes
    header        of firmware/include/kernels that declares them
    """

    name: str = field(kw_only=False)
    shapes: Callable[[Graph, Node], tuple[Shape, ...]]
    run: Callable[[Env, Node], None]
    call: Callable[[Names, Node], str]
    accumulators: Bounds
    scratch: Callable[[Graph, Node], int]
    macs: Callable[[Graph, Node], int]
    way: Callable[[Graph, Node], str]
    work: Callable[[Graph, Node], Terms]
    unit: Units
    in_place: Callable[[Graph, Node], Mapping[int, int]]
    kernels: Mapping[str, Signature]
    header: str


class Learns(Enum):
    """What a scheme may train of a layer."""

    NOTHING = "nothing"
    COLUMNS = "int8 weights, by input channels, and biases"
    HEAD = "the float head"
    STATISTICS = "what no gradient moves, whatever the scheme"


class Leaves(Enum):
    """What the forward pass writes beside its result for the backward pass; the value: the tensor's dtype."""

    NOTHING = ""
    CLAMP_MASK = "bits"
    POSITIONS = "u8"


class Folds(Enum):
    """What of the layer behind it an op takes in before anything is quantized."""

    NOTHING = "nothing"
    RELU = "a relu or relu6"
    NORM_AND_RELU = "a batch norm, and a relu or relu6"
    RELU_PASSES = "nothing, but a relu may as well stand before it"


@dataclass(frozen=True)
class Aten:
    """How a front end makes an op from a call.

    arguments  names of the call's arguments by position, as native_functions.yaml has them
    rule       appends what the call means, and returns its value
    """

    arguments: str
    rule: Callable[[Lowering, Call], Any]


@dataclass(frozen=True, kw_only=True)
class ForwardOp(Op):
    """A layer of the forward pass.

    aten           calls that become it, by name
    folds          what is folded into it
    learns         what of it a scheme may train
    output         the quantized output tensor: its scale and zero
    float_run      result of a batch in float, before a folded activation
    int8_run       result of a batch as the device has it; logits float32
    gathers        numbers that a batched run lays out for each output pixel
    gradient       appends the backward nodes to the tape
    leaves         what the forward pass leaves behind for them
    tables         constant tables of the layer
    layer_structs  parameter structs, wherever the layer runs
    step_structs   parameter structs, where it runs as a step of its own
    kernel         the forward kernel
    struct         generated code's word for the parameter struct, the kernel's first argument
    stage          how it runs inside a stream
    arrays         constants in model.npz, by name
    facts          what model.npz says of the node beside its shapes
    parallel       the float simulation: (run, step, stored inputs less their zeros) -> the same of the output
    statistics     what it learns without a gradient, as converted, by kind of trainable
    """

    aten: Mapping[str, Aten]
    folds: Folds
    learns: Learns
    output: Callable[[Output], Tensor]
    float_run: BatchRun
    int8_run: BatchRun
    gathers: Callable[[Graph, Node], int]
    gradient: Callable[[Tape, Node, str | None], None]
    leaves: Leaves
    tables: Callable[[Graph, Node], Iterable[Table]]
    layer_structs: Callable[[Names, Node], Iterable[str]]
    step_structs: Callable[[Names, Node], Iterable[str]]
    kernel: str
    struct: str
    stage: Stage
    arrays: Callable[[Graph, Node], Mapping[str, np.ndarray]]
    facts: Callable[[Graph, Node], Mapping[str, Any]]
    parallel: Callable[..., Any]
    statistics: Callable[[Graph, Node], Mapping[str, np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class SavingOp(Op):
    """Sets aside, right after a layer and only in training, what the backward pass needs of its input."""


@dataclass(frozen=True, kw_only=True)
class StreamOp(Op):
    """Runs the nodes in its `parts` row by row.

    step_structs  parameter structs of the stream
    """

    step_structs: Callable[[Names, Node], Iterable[str]]


class Updates(Enum):
    """What a backward node changes of its layer."""

    NOTHING = "nothing"
    WEIGHTS = "trained columns"
    BIASES = "biases"
    HEAD = "weights and biases of the head"
    STATISTICS = "what it keeps of samples"

    @property
    def weights(self) -> bool:
        """Whether the way back reads what it changes."""
        return self not in (Updates.NOTHING, Updates.BIASES)


@dataclass(frozen=True, kw_only=True)
class BackwardOp(Op):
    """A step of the backward pass.

    updates        what it changes; a node that changes something is there for its effect
    reads_weights  it needs its layer's weights, or statistics, as the forward pass had them
    guard          fraction bits to which it aligns the errors of a layer's channels
    """

    updates: Updates
    reads_weights: bool
    guard: Callable[[Graph, Node], int] | None


NOT_ALIGNED = None  # no channels meet, or they meet as floats
NO_ATEN: Mapping[str, Aten] = {}


def no_scratch(graph: Graph, node: Node) -> int:
    return 0


def no_statistics(graph: Graph, node: Node) -> Mapping[str, np.ndarray]:
    return {}


def no_macs(graph: Graph, node: Node) -> int:
    return 0


def not_in_place(graph: Graph, node: Node) -> Mapping[int, int]:
    return {}


def no_output(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return ()


def shape_of_input(graph: Graph, node: Node) -> tuple[Shape, ...]:
    """Every output has the shape of the first input."""
    return (graph.tensors[node.inputs[0]].shape,) * len(node.outputs)


def no_gradient(tape: Tape, node: Node, error: str | None) -> None:
    """No gradient passes: what lies before such a layer is not trained."""


def gradient_with_input(backward: str) -> Callable[[Tape, Node, str | None], None]:
    """The error goes to the input by an op that reads the error and the input."""

    def gradient(tape: Tape, node: Node, error: str | None) -> None:
        if error is not None:
            tape.send(node.inputs[0], Node(backward, node.name, (error, node.inputs[0]), ()))

    return gradient


def no_tables(graph: Graph, node: Node) -> Iterable[Table]:
    return ()


def no_structs(names: Names, node: Node) -> Iterable[str]:
    return ()


def no_arrays(graph: Graph, node: Node) -> Mapping[str, np.ndarray]:
    return {}


def no_facts(graph: Graph, node: Node) -> Mapping[str, Any]:
    return {}


def gathers_channels(graph: Graph, node: Node) -> int:
    """One number per channel."""
    return graph.tensors[node.outputs[0]].channels


def in_place_of(*positions: int) -> Callable[[Graph, Node], Mapping[int, int]]:
    """For ops that go element by element: the output may begin where one of these inputs begins."""
    return lambda graph, node: dict.fromkeys((p for p in positions if p < len(node.inputs)), 0)
