"""Reads TorchScript (torch.jit.save), scripted or traced.

A small interpreter walks the graphs method by method, unfrozen, so that every op knows the path of its
module and every weight its name in the state dict. Numbers are computed, tensor ops go to the walker; no
code of the file is run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..ir import ConvertError, Graph
from .aten import lower
from .lowering import Act, Call, Lowering, Param
from .scalars import applies, evaluate

MAX_LOOP = 10_000


class Object:
    """A module (or other object) of the file, with its path from the root."""

    def __init__(self, value: Any, path: str) -> None:
        self.value = value
        self.path = path

    @property
    def builtin(self) -> bool:
        return "torch.nn.modules." in str(self.value._type()) and ".container." not in str(self.value._type())

    def attribute(self, name: str) -> Any:
        value = self.value.getattr(name)
        path = f"{self.path}.{name}" if self.path else name
        if isinstance(value, torch.Tensor):
            return to_param(path, value)
        if isinstance(value, torch._C.ScriptObject):
            return Object(value, path)
        return value


def to_param(name: str, value: torch.Tensor) -> Param:
    """A constant tensor; half precision is widened, quantized ones are refused."""
    if value.is_quantized:
        raise ConvertError(f"{name} is a quantized tensor; convert the float model, it is quantized here")
    tensor = value.detach().cpu()
    return Param(name, (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy())


def read_torchscript(path: Path, name: str, input_shape: tuple[int, int, int]) -> Graph:
    """The raw graph of a TorchScript file for an input of (c, h, w)."""
    unit = torch._C.CompilationUnit()
    load: Any = (
        torch._C.import_ir_module
    )  # what torch.jit.load calls; here the unit with its functions is kept
    low = Lowering(name)
    image = low.input((1, *input_shape))
    try:
        root = load(unit, str(path), torch.device("cpu"), {}, False)
        outputs = _Interpreter(low, unit).method(Object(root, ""), "forward", [image])
    except (RuntimeError, KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConvertError(
            f"{name} is TorchScript that is damaged or beyond what is read here ({line}); "
            "export the model with torch.export instead"
        ) from error
    return low.finish(list(outputs) if isinstance(outputs, tuple) else [outputs])


class _Interpreter:
    """Evaluates TorchScript graphs with activations as symbols."""

    def __init__(self, low: Lowering, unit: Any) -> None:
        self.low = low
        self.unit = unit

    def method(self, owner: Object, name: str, args: list[Any]) -> Any:
        graph = owner.value._get_method(name).graph
        return self.run(graph, owner, [owner, *args])

    def run(self, graph: Any, owner: Object, args: list[Any]) -> Any:
        """Call a graph on behalf of a module; returns its value."""
        names = [i.debugName() for i in graph.inputs()]
        if len(names) != len(args):
            takes = (
                f"{len(names) - 1} inputs"
                if not owner.path
                else f"{len(names) - 1} arguments in {owner.path}"
            )
            raise ConvertError(f"{self.low.name} takes {takes}; it must take one image tensor")
        env = dict(zip(names, args, strict=True))
        self.block(graph, owner, env)
        outputs = [env[o.debugName()] for o in graph.outputs()]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def block(self, block: Any, owner: Object, env: dict[str, Any]) -> None:
        for node in block.nodes():
            values = self.node(node, owner, env, [env[i.debugName()] for i in node.inputs()])
            for output, value in zip(node.outputs(), values, strict=False):
                env[output.debugName()] = value

    def node(self, node: Any, owner: Object, env: dict[str, Any], args: list[Any]) -> list[Any]:
        """The values of one node's outputs."""
        kind = node.kind()
        if kind == "prim::If":
            return self.branch(node, owner, env, args[0])
        if kind == "prim::Loop":
            return self.loop(node, owner, env, args)
        if kind == "prim::Constant":
            return [_constant(node, owner)]
        if kind == "prim::GetAttr":
            return [args[0].attribute(node.s("name"))]
        if kind in ("prim::ListConstruct", "prim::TupleConstruct"):
            return [list(args) if kind == "prim::ListConstruct" else tuple(args)]
        if kind in ("prim::ListUnpack", "prim::TupleUnpack"):
            return list(args[0])
        if kind == "prim::CallMethod":
            return [self.method(args[0], node.s("name"), args[1:])]
        if kind == "prim::CallFunction":
            return [self.run(self.unit.find_function(args[0]).graph, owner, args[1:])]
        if kind == "prim::RaiseException":
            raise ConvertError(
                f"{self.low.name} refuses an input of this shape: {args[0]}; see --input CxHxW"
            )
        if kind in ("prim::unchecked_cast", "prim::requires_grad"):
            return [args[0]]
        return [self.operation(node, owner, args)]

    def branch(self, node: Any, owner: Object, env: dict[str, Any], condition: Any) -> list[Any]:
        chosen = list(node.blocks())[0 if condition else 1]
        self.block(chosen, owner, env)
        return [env[o.debugName()] for o in chosen.outputs()]

    def loop(self, node: Any, owner: Object, env: dict[str, Any], args: list[Any]) -> list[Any]:
        trips, going, *carried = args
        body = next(iter(node.blocks()))
        names = [i.debugName() for i in body.inputs()]
        turn = 0
        while going and turn < min(trips, MAX_LOOP):
            env.update(zip(names, [turn, *carried], strict=True))
            self.block(body, owner, env)
            going, *carried = (env[o.debugName()] for o in body.outputs())
            turn += 1
        return carried

    def operation(self, node: Any, owner: Object, args: list[Any]) -> Any:
        """An aten op: of numbers it is evaluated, of tensors it goes to the walker."""
        op = node.kind().partition("::")[2]
        if applies(op, args):
            return evaluate(op, args)
        names = _argument_names(node)
        call = Call(op, owner.path, owner.builtin, dict(zip(names, args, strict=False)))
        if not any(isinstance(v, Act | Param) for a in args for v in (a if isinstance(a, list) else [a])):
            raise call.error(
                f"the TorchScript op {node.kind()} is not supported; export with torch.export instead"
            )
        return lower(self.low, call)


def _constant(node: Any, owner: Object) -> Any:
    """A constant; a function stands for itself by its qualified name, a rank 0 tensor for its number."""
    output = node.output()
    if str(output.type().kind()) == "FunctionType":
        return output.type().annotation_str
    value = output.toIValue()
    return (
        to_param(f"{owner.path or 'forward'}:constant", value) if isinstance(value, torch.Tensor) else value
    )


def _argument_names(node: Any) -> list[str]:
    """Names of an op's arguments in its schema."""
    schema = node.schema()
    if schema.startswith("("):
        return []
    return [a.name for a in torch._C.parse_schema(schema).arguments]
