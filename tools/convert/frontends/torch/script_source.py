"""The source text inside a TorchScript archive: a subset of Python, one file for each module path.

It is parsed by Python's own parser, which executes nothing, and looked up by qualified name.
Format: torch/csrc/jit/serialization/python_print.cpp.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from microtrain.base.archive import Archive, damaged

MAX_SOURCE = 16 << 20  # bytes per file


@dataclass(frozen=True)
class Class:
    """Methods of a class by name, and its constants (`Final`)."""

    methods: dict[str, ast.FunctionDef] = field(default_factory=dict)
    constants: dict[str, ast.expr] = field(default_factory=dict)


class Source:
    """All code of an archive."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self._files: dict[str, ast.Module] = {}

    def klass(self, qualified: str) -> Class:
        """A class by its name, "__torch__.torch.nn.modules.conv.Conv2d". KeyError where there is none."""
        node = self._find(qualified, ast.ClassDef)
        assert isinstance(node, ast.ClassDef)
        methods = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
        named = [n for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
        return Class(methods, {n.target.id: n.value for n in named if n.value is not None})  # type: ignore[union-attr]

    def function(self, qualified: str) -> ast.FunctionDef:
        """A free function by its name. KeyError where there is none."""
        node = self._find(qualified, ast.FunctionDef)
        assert isinstance(node, ast.FunctionDef)
        return node

    def _find(self, qualified: str, kind: type[ast.stmt]) -> ast.stmt:
        module, _, name = qualified.rpartition(".")
        for node in self._module(module).body:
            if isinstance(node, kind) and getattr(node, "name", None) == name:
                return node
        raise KeyError(f"no {qualified} in the file")

    def _module(self, dotted: str) -> ast.Module:
        path = f"code/{dotted.replace('.', '/')}.py"
        if path not in self._files:
            text = self.archive.bytes(path)
            try:
                if len(text) > MAX_SOURCE:
                    raise ValueError(f"{path} is {len(text) >> 20} MB of source")
                self._files[path] = ast.parse(text, path)
            except Exception as error:  # the parser's own, MemoryError for text that is nested too deeply
                raise damaged(self.archive.name, error) from error
        return self._files[path]
