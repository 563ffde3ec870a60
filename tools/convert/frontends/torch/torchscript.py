"""Reads TorchScript (torch.jit.save), scripted or traced, without torch and without running it.

torch.jit.load would call what a file defines as `__setstate__`, which may write files. Here the archive is
data: objects come out of its pickle as plain attributes (base/pickles.py), methods out of its source text,
and a small interpreter walks these. Numbers are computed, tensor ops go to the walker, all else is an error.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from microtrain.base.archive import Archive
from microtrain.base.pickles import Instance, read_pickle
from microtrain.base.reading import reading
from microtrain.convert.aten_call import Act, Call, Param, is_symbol
from microtrain.convert.ir import ConvertError
from microtrain.convert.lowering import Lowering
from microtrain.convert.nearest import KEEPS_SHAPE
from microtrain.convert.raw import Raw

from ..aten.constants import concerns
from ..aten.rules import lower, names_of
from ..found import together
from ..returned import returned
from .scalars import applies, evaluate
from .script_source import Source

MAX_STEPS = 200_000  # expressions that reading a model may take
MAX_TENSORS = 100_000
NAMES = {"True": True, "False": False, "None": None, "inf": math.inf, "nan": math.nan}
CASTS = {"int": "Int", "float": "Float", "bool": "Bool"}


def read_torchscript(archive: Archive, input_shape: tuple[int, ...]) -> Raw:
    """The raw graph of a TorchScript file for an input of (c, h, w)."""
    low = Lowering(archive.name)
    image = low.input((1, *input_shape))
    beyond = f"{low.name} is TorchScript that is damaged or beyond what is read here"
    with reading(ConvertError, lambda why: f"{beyond} ({why}); export the model with torch.export instead"):
        root = read_objects(archive, "data")
        outputs = _Interpreter(low, archive).method(Module(root, ""), "forward", [image], {})
    shapes = [value.shape for value in state_of(archive).values() if value.dtype.kind == "f"]
    return low.finish(returned(low, outputs if isinstance(outputs, tuple) else [outputs]), shapes)


def read_objects(archive: Archive, name: str) -> Any:
    """The root of one of the archive's pickles: "data" is the model, "constants" a tuple."""
    return read_pickle(archive.bytes(f"{name}.pkl"), archive.name, lambda key: archive.bytes(f"{name}/{key}"))


def state_of(archive: Archive) -> dict[str, np.ndarray]:
    """Parameters and buffers by their names in the state dict."""
    state: dict[str, np.ndarray] = {}
    for path, value in _tensors(read_objects(archive, "data"), ""):
        state[path] = value
        if len(state) > MAX_TENSORS:
            raise ConvertError(f"{archive.name} has more than {MAX_TENSORS} tensors; save the model again")
    return state


def _tensors(value: Any, path: str) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(value, np.ndarray):
        yield path, value
    elif isinstance(value, Instance):
        for name, item in value.attributes.items():
            yield from _tensors(item, f"{path}.{name}" if path else str(name))


class Module:
    """An object of the file, with its path from the root."""

    def __init__(self, value: Instance, path: str) -> None:
        self.value = value
        self.path = path

    @property
    def builtin(self) -> bool:
        return "torch.nn.modules." in self.value.kind and ".container." not in self.value.kind

    def attribute(self, name: str) -> Any:
        if name not in self.value.attributes:
            raise KeyError(f"{self.path or 'the model'} has no {name}")
        value = self.value.attributes[name]
        path = f"{self.path}.{name}" if self.path else name
        if isinstance(value, np.ndarray):
            return Param(path, value)
        if isinstance(value, Instance) and "quantized" in value.kind + str(value.args):
            raise ConvertError(f"{path} is quantized; convert the float model, it is quantized here")
        return Module(value, path) if isinstance(value, Instance) else value


class _Function:
    """A free function, called for a module."""

    def __init__(self, node: ast.FunctionDef) -> None:
        self.node = node


class _Returned(BaseException):
    """Leaves a function with its value."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class _Interpreter:
    """Runs the text with activations as symbols. One method for each kind of statement and expression."""

    def __init__(self, low: Lowering, archive: Archive) -> None:
        self.low = low
        self.archive = archive
        self.source = Source(archive)
        self.steps = 0
        self._constants: Any = None

    def method(self, owner: Module, name: str, args: list[Any], keywords: dict[str, Any]) -> Any:
        """Call a method of a module."""
        methods = self.source.klass(owner.value.kind).methods
        if name not in methods:
            raise KeyError(f"{owner.value.kind} has no method {name}")
        return self.run(methods[name], owner, [owner, *args], keywords)

    def run(self, function: ast.FunctionDef, owner: Module, args: list[Any], keywords: dict[str, Any]) -> Any:
        """Call a function on behalf of a module; returns its value."""
        names = [a.arg for a in function.args.args]
        given = dict(zip(names, args, strict=False)) | keywords
        defaults = dict(zip(reversed(names), reversed(function.args.defaults), strict=False))
        missing = [n for n in names if n not in given and n not in defaults]
        if missing or len(args) > len(names):
            takes = (
                f"{len(names) - 1} inputs"
                if not owner.path
                else f"{len(names) - 1} arguments in {owner.path}"
            )
            raise ConvertError(f"{self.low.name} takes {takes}; it must take one image tensor")
        frame = _Frame(self, owner, {})
        frame.names = {n: given[n] if n in given else frame.value(defaults[n]) for n in names}
        try:
            frame.block(function.body)
        except _Returned as result:
            return result.value
        return None

    def step(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise ConvertError(
                f"{self.low.name} runs for more than {MAX_STEPS} steps; export it with torch.export"
            )

    def constant(self, name: str, owner: Module) -> Any:
        """CONSTANTS.c3, a tensor or other value that the file keeps in its second pickle.

        A trace holds the 2 of `x.shape[1] // 2` as a tensor of no dimensions: here it is a number.
        """
        if self._constants is None:
            self._constants = read_objects(self.archive, "constants")
        value = self._constants[int(name.removeprefix("c"))]
        if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind == "i":
            return int(value)
        return Param(f"{owner.path or 'forward'}:{name}", value) if isinstance(value, np.ndarray) else value

    def operation(self, op: str, owner: Module, args: list[Any], keywords: dict[str, Any]) -> Any:
        """An op: of numbers it is evaluated, of tensors it goes to the walker."""
        if applies(op, [*args, *keywords.values()]) and set(keywords) <= {"rounding_mode"}:
            return evaluate(op, [*args, *keywords.values()])
        call = Call(
            op, owner.path, owner.builtin, dict(zip(names_of(op, args), args, strict=False)) | keywords
        )
        everything = [*args, *keywords.values()]
        tensors = any(is_symbol(v) for a in everything for v in (a if isinstance(a, list) else [a]))
        if not tensors and not concerns(call):
            raise call.error(f"the TorchScript op {op} is not supported; export with torch.export instead")
        try:
            return lower(self.low, call)
        except ConvertError as error:
            x = call.x
            if not isinstance(x, Act) or call.op.rstrip("_") not in KEEPS_SHAPE:
                raise self._cut_short(error) from error
            return self.low.stand_in(call, error, x.dims)

    def _cut_short(self, error: ConvertError) -> ConvertError:
        """The end of reading: what the op makes, and all behind it, is not known."""
        if not self.low.found:
            return error
        self.low.found.append(error)
        return together(self.low.name, self.low.found)


class _Frame:
    """A function that is running: its names and the module it runs for."""

    def __init__(self, interpreter: _Interpreter, owner: Module, names: dict[str, Any]) -> None:
        self.all = interpreter
        self.owner = owner
        self.names = names

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.all.step()
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[target]):
                self.bind(target, self.value(node.value))
            case ast.Expr():
                self.value(node.value)
            case ast.Return():
                raise _Returned(None if node.value is None else self.value(node.value))
            case ast.If():
                self.block(node.body if self.value(node.test) else node.orelse)
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=[count])):
                for turn in range(self.value(count)):
                    self.names[name] = turn
                    self.block(node.body)
            case ast.While():
                while self.value(node.test):
                    self.block(node.body)
            case ast.Pass():
                pass
            case _:
                raise ValueError(f"the statement {ast.unparse(node)[:60]}")

    def bind(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name():
                self.names[target.id] = value
            case ast.Tuple() if isinstance(value, tuple | list) and len(value) == len(target.elts):
                for part, item in zip(target.elts, value, strict=True):
                    self.bind(part, item)
            case _:
                raise ValueError(f"an assignment to {ast.unparse(target)[:60]}")

    def value(self, node: ast.expr) -> Any:
        """The value of an expression."""
        self.all.step()
        match node:
            case ast.Constant():
                return node.value
            case ast.Name(id=name):
                return self.names[name] if name in self.names else NAMES[name]
            case ast.List() | ast.Tuple():
                items = [self.value(e) for e in node.elts]
                return items if isinstance(node, ast.List) else tuple(items)
            case ast.Dict():
                pairs = zip(node.keys, node.values, strict=True)
                return {self.value(k): self.value(v) for k, v in pairs if k is not None}
            case ast.UnaryOp(op=ast.USub()):
                return evaluate("neg", [self.value(node.operand)])
            case ast.IfExp():
                return self.value(node.body if self.value(node.test) else node.orelse)
            case ast.Subscript():
                return evaluate("__getitem__", [self.value(node.value), self.value(node.slice)])
            case ast.Attribute():
                return self.attribute(node)
            case ast.Call():
                return self.call(node)
        raise ValueError(f"the expression {ast.unparse(node)[:60]}")

    def attribute(self, node: ast.Attribute) -> Any:
        """An attribute of a module, a constant of the file, or a function by its whole name."""
        path = dotted(node)
        if path is not None and path.startswith("CONSTANTS."):
            return self.all.constant(node.attr, self.owner)
        if path is not None and path.startswith("__torch__."):
            return _Function(self.all.source.function(path))
        return self.member(self.value(node.value), node.attr)

    def member(self, value: Any, name: str) -> Any:
        if not isinstance(value, Module):
            raise ValueError(f"the attribute {name}")
        if name in value.value.attributes:
            return value.attribute(name)
        constants = self.all.source.klass(value.value.kind).constants
        return self.value(constants[name])

    def call(self, node: ast.Call) -> Any:
        """A call of an op, a function or a method, or a word that is written like one."""
        path = dotted(node.func) or ""
        word = _WORDS.get(path) if path not in self.names else None
        if word is not None:
            return word(self, node)
        args = [self.value(a) for a in node.args]
        keywords = {k.arg: self.value(k.value) for k in node.keywords if k.arg is not None}
        if path == "ops.prim.RaiseException":
            raise ConvertError(
                f"{self.all.low.name} refuses an input of this shape: {args[0]}; see --input CxHxW"
            )
        root, _, op = path.partition(".")
        if root in ("torch", "ops") and root not in self.names:
            return self.all.operation(op.rpartition(".")[2], self.owner, args, keywords)
        if path in CASTS:
            return self.all.operation(CASTS[path], self.owner, args, keywords)
        if isinstance(node.func, ast.Attribute) and root != "__torch__":
            owner = self.value(node.func.value)
            if isinstance(owner, Module):
                return self.all.method(owner, node.func.attr, args, keywords)
        function = self.value(node.func)
        if not isinstance(function, _Function):
            raise ValueError(f"the call {ast.unparse(node)[:60]}")
        return self.all.run(function.node, self.owner, args, keywords)


def dotted(node: ast.expr) -> str | None:
    """A chain of names as text, "torch.nn.functional"; None for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def _typed(frame: _Frame, node: ast.Call) -> Any:
    """annotate(Type, value), unchecked_cast(Type, value): the value."""
    return frame.value(node.args[1])


def _member(frame: _Frame, node: ast.Call) -> Any:
    """getattr(module, "0")"""
    return frame.member(frame.value(node.args[0]), frame.value(node.args[1]))


def _nothing(frame: _Frame, node: ast.Call) -> Any:
    """uninitialized(Type) and torch.device("cpu"): values that nothing depends on."""
    return None


_WORDS: dict[str, Callable[[_Frame, ast.Call], Any]] = {
    "annotate": _typed,
    "unchecked_cast": _typed,
    "ops.prim.unchecked_cast": _typed,
    "getattr": _member,
    "uninitialized": _nothing,
    "torch.device": _nothing,
}
