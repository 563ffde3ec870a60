"""A search from the command line's wishes to the scheme file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from microtrain.base.errors import Error
from microtrain.base.files import write_json
from microtrain.base.progress import Bars
from microtrain.base.terminal import say
from microtrain.convert.ir import Graph
from microtrain.convert.lite import LiteResiduals
from microtrain.convert.loading import load, quantized_with_report
from microtrain.convert.quantize.ptq import Choices
from microtrain.convert.tasks import headed
from microtrain.device.options import Course, in_words
from microtrain.native.model import kernels
from microtrain.samples.source import (
    Dataset,
    class_folders,
    counted,
    hold_out,
    read_list,
    scan,
    split,
    training_part,
)

from . import output
from .cli import WORK, Wanted
from .contribution import Plan
from .cost import Budget
from .engine import engine
from .lab import Lab
from .pipeline import Request, Result, search
from .space import places_for, space_of

KB, MILLION = 1024, 1e6
Item = TypeVar("Item")


def run(model: Path, wanted: Wanted) -> tuple[Result, list[Path]]:
    """Search, and write what was found."""
    training, validation = hold_out(images(wanted.data))
    graph = quantized(model, wanted)
    identity = {
        "model": digest_graph(graph),
        "images": digest_files([s.path for d in (training, validation) for s in d.samples]),
        "kernels": digest_files(kernels()),
    }
    folder = checked(wanted.cache, identity, graph.name)
    lab = Lab(graph, len(training.classes), training, validation, folder)
    lite = LiteResiduals(0) if wanted.lite else None
    space = space_of(graph, wanted.bits, wanted.lr, lite)
    for reason in places_for(graph, lite)[1] if lite else ():
        say(f"no lite residual: {reason}", err=True)
    chosen = engine(wanted.jobs or os.cpu_count() or 1, wanted.backend)
    request = request_of(wanted)
    course = Course(kinds=lab.augmentation.kinds, variants=lab.augmentation.variants)
    say(in_words(course, (1.0,), space.rates, files=training.files))
    result = search(lab, space, request, chosen, progress)
    return result, output.write(wanted.path, lab, request, result, str(wanted.data))


def request_of(wanted: Wanted) -> Request:
    """What the search itself is told of the options."""
    step = wanted.budget_step_minstr * MILLION if wanted.budget_step_minstr else float("inf")
    seeds = tuple(range(wanted.seed, wanted.seed + wanted.final_seeds))
    return Request(
        budget=Budget(int(wanted.budget_sram * KB), wanted.budget_flash * KB, step),
        contributions=Plan(wanted.epochs, wanted.limit, (wanted.seed,)),
        final=Plan(wanted.final_epochs, 0, seeds),
        evaluations=wanted.evaluations,
        finalists=wanted.finalists,
        rounds=wanted.rounds,
        measured=wanted.measured,
        seed=wanted.seed,
        compared=wanted.compare,
    )


def images(data: Path) -> Dataset:
    """The images to learn from and judge by; those that `data` sets apart for tests are left alone."""
    listed = data / "train.txt"
    if listed.is_file():
        return split(data, len(read_list(listed, None).classes))[0]
    folder = training_part(data)
    names = class_folders(folder)
    if len(names) < 2:
        raise Error(
            f"{folder} holds {counted(len(names))}: a search needs two or more, each with its samples."
        )
    return scan(folder, len(names))


def quantized(model: Path, wanted: Wanted) -> Graph:
    """The int8 forward graph, as `microtrain convert` makes it."""
    given = wanted.normalisation, wanted.calibration, wanted.logits
    loaded = load(model, wanted.trust, wanted.input_shape, *given)
    headed(loaded.graph)
    return quantized_with_report(loaded, Choices(wanted.calibration), False, None, whole=wanted.lite)[0]


def digest_graph(graph: Graph) -> str:
    """SHA-256 of everything that a forward graph computes with."""
    state = hashlib.sha256(repr((graph.input, graph.nodes, sorted(graph.tensors.items()))).encode())
    for name, layer in sorted(graph.layers.items()):
        state.update(name.encode())
        for array in (layer.weight, layer.bias, layer.weight_scale, layer.dead):
            state.update(b"" if array is None else array.tobytes())
    return state.hexdigest()


def digest_files(paths: Iterable[Path]) -> str:
    """SHA-256 of some files' names, without their folders, and bytes."""
    state = hashlib.sha256()
    for path in paths:
        state.update(f"{path.parent.name}/{path.name}".encode())
        state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()


def checked(cache: Path | None, identity: dict[str, str], name: str) -> Path:
    """The folder for what is measured; one that was named must be new or of the same model and images."""
    every = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:12]
    folder = cache or WORK / f"{name}-{every}"
    about = folder / "about.json"
    if about.is_file():
        known = json.loads(about.read_text(encoding="utf-8"))
        other = [what for what, digest in identity.items() if known.get(what) != digest]
        if other:
            raise Error(
                f"{folder} holds what was measured with other {' and '.join(other)}: "
                "name another folder with --cache, or leave the option out."
            )
    folder.mkdir(parents=True, exist_ok=True)
    write_json(about, identity)
    return folder


def progress(name: str, total: int, items: Iterable[Item]) -> Iterator[Item]:
    """The items, with their progress on stderr."""
    with Bars() as bars:
        bar = bars.add(name, total)
        for item in items:
            bar.advance()
            yield item
        bar.set(total)
        bar.end()
