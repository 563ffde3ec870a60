"""Models compiled for this machine, quickly: memory by first fit, the kernels once for all of them."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from microtrain.base.plan import Origin
from microtrain.convert.emit.code import emit
from microtrain.convert.emit.document import document
from microtrain.convert.emit.tables import string_body
from microtrain.convert.ir import Graph
from microtrain.convert.memory.plan import plan
from microtrain.convert.pipeline import Compiled, Passes, training_graph
from microtrain.convert.scheme import Scheme
from microtrain.native.model import compile_model
from microtrain.simulate.blueprint import Blueprint, blueprint
from microtrain.simulate.machine import FAST

from .lab import Lab


def convert(graph: Graph, scheme: Scheme, classes: int, passes: Passes) -> Compiled:
    """A plan for a machine with memory to spare."""
    trained = training_graph(graph, scheme, classes, passes)
    return Compiled(trained, plan(trained, passes.in_place, solved=False), scheme)


def compile_here(compiled: Compiled, lab: Lab) -> tuple[Blueprint, Path]:
    """The library of a model, in a new folder of lab.scratch.

    Nothing there is deleted while processes run: a library is known to its process by its inode.
    """
    folder = Path(tempfile.mkdtemp(dir=lab.scratch))
    output = emit(compiled.graph, compiled.plan, compiled.scheme, "a search", body=string_body)
    made = document(compiled, output, Origin(compiled.graph.name, "", "search"), None)
    for name, content in output.files.items():
        (folder / name).write_text(content, encoding="utf-8")
    return blueprint(replace(made, path=folder / "plan.json")), compile_model(folder, folder, FAST)
