"""Command line of tools/convert."""

from __future__ import annotations

import getpass
import hashlib
import json
import sys
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import click
from filelock import FileLock
from rich.console import Console

from microtrain.base import paths
from microtrain.base.errors import Error
from microtrain.base.plan import Budget, Origin, text
from microtrain.base.terminal import console, say

from . import boards
from .default_scheme import default_scheme
from .emit import report
from .emit.arrays import archive
from .emit.document import document
from .emit.explain import print_waterfall
from .emit.names import safe_name
from .frontends.checkpoint import IMAGE, read_checkpoint
from .frontends.module import LoadedModel, load_model
from .ir import ConvertError, Graph
from .memory.replay import RECORDS_MAX, Request
from .pipeline import Compiled, Passes, compile_within, generate, with_buffer
from .quantize.fidelity_report import draw, print_report
from .quantize.int8 import warn_dead
from .quantize.ptq import Choices, calibration_images, quantization_report, quantize_model
from .quantize.ranges import DEFAULT, RULES
from .scheme import Scheme
from .scheme import find as find_scheme
from .scheme import head_rows as checked_rows

KB = 1024
NATIVE = "native"


def generated() -> Path:
    """Where the firmware looks for the model: in the project that is being worked in."""
    project = paths.project()
    if project is None:
        raise click.UsageError(
            "there is no PlatformIO project here: `microtrain new FOLDER` makes one, or give -o."
        )
    return project / "firmware/generated"


class Shape(click.ParamType):
    """CxHxW, as in 3x128x128."""

    name = "CxHxW"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int, int]:
        parts = str(value).lower().split("x")
        if len(parts) != 3 or not all(p.isdigit() and int(p) > 0 for p in parts):
            self.fail(f"{value} is not a shape CxHxW such as 3x128x128", param, ctx)
        return int(parts[0]), int(parts[1]), int(parts[2])


class Rows(click.ParamType):
    """Numbers and ranges of rows, as in 281,285,970-979."""

    name = "ROWS"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        rows: list[int] = []
        for part in str(value).split(","):
            first, _, last = part.partition("-")
            ends = (first, last or first)
            if not all(e.isascii() and e.isdigit() and len(e) <= 5 for e in ends) or int(ends[0]) > int(
                ends[1]
            ):
                self.fail(f"{part!r} is no row or range of rows such as 281 or 970-979", param, ctx)
            rows += range(int(ends[0]), int(ends[1]) + 1)
        try:
            return checked_rows(tuple(rows), "--head-rows")
        except ConvertError as error:
            self.fail(str(error), param, ctx)


class Records(click.ParamType):
    """A number of records, bytes as in 64KB, or "spare"."""

    name = "N|nKB|spare"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Request:
        text = str(value).lower()
        number = text.removesuffix("kb")
        if text == "spare":
            return Request()
        if not (number.isascii() and number.isdigit() and 0 < int(number) <= RECORDS_MAX):
            self.fail(f"{value} is no number of records, no size such as 64KB, and not spare", param, ctx)
        return Request(bytes=int(number) * KB) if number != text else Request(records=int(number))


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    help="Folder of images or .npz with `images` uint8 [N,h,w,c].",
)
@click.option(
    "--ranges",
    "rule",
    type=click.Choice(list(RULES)),
    default=DEFAULT,
    show_default=True,
    help="How int8 ranges are chosen: all that calibration saw, all but the rarest, or with the least error.",
)
@click.option(
    "--bias-correction/--no-bias-correction",
    "correct",
    default=False,
    show_default=True,
    help="Correct each bias by what rounding the weights shifts its channel's mean by.",
)
@click.option(
    "--quantization",
    "compared",
    is_flag=True,
    help="Compare int8 with the float model, layer by layer: a table, quantization.svg and .json.",
)
@click.option(
    "--evaluate",
    "labelled",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="For --quantization: images that the model was not trained on, a folder for each of its classes.",
)
@click.option(
    "--scheme",
    type=click.Path(path_type=Path),
    help="Sparse update scheme: a YAML file (docs/schemes.md) or the name of one in tools/convert/schemes.",
)
@click.option(
    "--fraction-bits",
    type=click.Choice(["0", "4", "8"]),
    help="Extra bits of each trained weight, instead of the scheme's.",
)
@click.option(
    "--classes", type=click.IntRange(2, 65535), help="Classes of the new task; the model's own if not given."
)
@click.option(
    "--head-rows",
    type=Rows(),
    help="Start the head from these rows of the model's own, as in 281,285,970-979: one per class.",
)
@click.option(
    "--input", "input_shape", type=Shape(), help="Input shape, for a module saved whole or TorchScript."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=generated,
    show_default="firmware/generated of the project",
)
@click.option(
    "--budget-sram", type=click.IntRange(1), show_default="all of the board's", help="All-in SRAM in KB."
)
@click.option(
    "--budget-flash", type=click.IntRange(1), show_default="all of the board's", help="Flash image in KB."
)
@click.option(
    "--board",
    "board_name",
    type=click.Choice([*boards.names(), NATIVE]),
    default=boards.DEFAULT,
    show_default=True,
    help="The board to convert for. native is this machine (`pio run -e native`), which has no budgets.",
)
@click.option(
    "--whole", is_flag=True, help="Keep every tensor whole: no row-by-row streaming of frozen layers."
)
@click.option(
    "--keep-image",
    is_flag=True,
    help="Keep the image whole in SRAM until a step runs: by default its rows are used up as they arrive.",
)
@click.option(
    "--replay",
    type=Records(),
    help="Buffer for replaying old images in SRAM: records, a size, or all that the budget leaves.",
)
@click.option("--explain", is_flag=True, help="Print what each memory pass saves, every row a real plan.")
@click.option("--trust", is_flag=True, help="Load a pickled module, which may execute code from the file.")
def main(
    model: Path,
    calibration: Path | None,
    rule: str,
    correct: bool,
    compared: bool,
    labelled: Path | None,
    scheme: Path | None,
    fraction_bits: str | None,
    classes: int | None,
    head_rows: tuple[int, ...] | None,
    input_shape: tuple[int, int, int] | None,
    output: Path,
    budget_sram: int | None,
    budget_flash: int | None,
    board_name: str,
    whole: bool,
    keep_image: bool,
    replay: Request | None,
    explain: bool,
    trust: bool,
) -> None:
    """Turn MODEL (.pt: torch.export archive, TorchScript, or a module saved whole) and a sparse update scheme
    into C for the microcontroller: model.c, model.h, model_weights.c, plan.json and model.npz.

    \b
    Examples:
      python tools/convert examples/digits/model.pt
      python tools/convert model.pt --calibration photos/ --classes 5 --scheme my.yaml --budget-sram 160
    """
    warnings.showwarning = show_warning
    if fraction_bits and not scheme:
        raise click.UsageError("--fraction-bits changes a scheme: name one with --scheme.")
    board = boards.find(board_name) if board_name != NATIVE else None
    budget = budget_of(board, budget_sram, budget_flash) if board else None
    try:
        loaded = load(model, trust, input_shape)
        choices = Choices(calibration, rule, correct)
        quantized, report_files = quantized_with_report(
            loaded, choices, compared or labelled is not None, labelled
        )
        passes = Passes(fused=not whole, arriving=not keep_image, replay=replay)
        room = budget.sram if budget else sys.maxsize
        chosen = choose_scheme(scheme, fraction_bits) if scheme else None
        compiled = compile_for(quantized, chosen, classes, head_rows, room, passes)
        if replay:
            compiled = with_buffer(compiled, replay, budget.sram if budget else None)
        write(compiled, loaded, model, output, board, budget, report_files)
        if explain:
            print_waterfall(quantized, compiled, screen())
    except Error as error:
        say(f"convert: {error}", err=True)
        sys.exit(1)


def budget_of(board: boards.Board, sram_kb: int | None, flash_kb: int | None) -> Budget:
    """What was asked for, where nothing was all that the board has."""
    return Budget(
        sram=board.sram if sram_kb is None else sram_kb * KB,
        flash=board.flash if flash_kb is None else flash_kb * KB,
    )


def choose_scheme(name: Path, fraction_bits: str | None) -> Scheme:
    """The scheme that was named, with other fraction bits where they are given."""
    scheme = find_scheme(name)
    return scheme if fraction_bits is None else replace(scheme, fraction_bits=int(fraction_bits))


def show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """A warning as one line, without the place in our code that raised it."""
    say(f"convert: {message}", err=True)


def load(model: Path, trust: bool, input_shape: tuple[int, int, int] | None) -> LoadedModel:
    """Read the model with the front end for its kind of file."""
    if model.suffix != ".pkl":
        loaded = load_model(model, trust=trust, input_shape=input_shape)
        return replace(loaded, graph=loaded.graph.replace(name=model_name(model)))
    c, h, w = input_shape or (3, IMAGE, IMAGE)
    if c != 3 or h != w:
        raise ConvertError(f"{model.name} takes square RGB images: pass --input 3xNxN, not {c}x{h}x{w}")
    graph = read_checkpoint(model, h)
    warn_dead(graph.name, graph.layers)
    return LoadedModel(graph, None, (), (), (), "checkpoint")


def model_name(model: Path) -> str:
    """The file's name; a file called model.pt takes that of its folder."""
    folder = model.resolve().parent.name
    return safe_name(folder if model.stem == "model" and folder else model.stem)


def compile_for(
    quantized: Graph,
    scheme: Scheme | None,
    classes: int | None,
    head_rows: tuple[int, ...] | None,
    budget_sram: int,
    passes: Passes,
) -> Compiled:
    """Compile with the given scheme, or the largest default one, to fit `budget_sram` bytes.

    classes    None: as many as the head has rows to start from, or the model's own
    head_rows  rows of the model's own head, in place of what the scheme says; None: the scheme's
    """
    head = head_rows or (scheme.head if scheme else "zeros")
    wanted = classes or (
        len(head) if isinstance(head, tuple) else quantized.tensors[quantized.output].channels
    )
    if scheme is None:
        return default_scheme(quantized, wanted, budget_sram, passes, head)
    return compile_within(quantized, replace(scheme, head=head), wanted, budget_sram, passes)


def quantized_with_report(
    loaded: LoadedModel, choices: Choices, compared: bool, labelled: Path | None
) -> tuple[Graph, dict[str, str]]:
    """The int8 graph; with `compared` its quantization report is printed, and returned as files."""
    if loaded.kind == "checkpoint":
        if choices != Choices() or compared:
            raise ConvertError(
                f"{loaded.graph.name} is quantized already: leave --calibration, --ranges, "
                "--bias-correction, --quantization and --evaluate out"
            )
        return loaded.graph, {}
    images = calibration_images(loaded, choices.calibration)
    quantized = quantize_model(loaded, images, choices)
    if not compared:
        return quantized, {}
    made = quantization_report(loaded.graph, quantized, images, choices, labelled)
    print_report(made, screen())
    return quantized, {
        "quantization.json": json.dumps(made.json(), indent=1) + "\n",
        "quantization.svg": draw(made),
    }


def screen() -> Console:
    """The terminal, or wide where the output goes into a file."""
    return console(width=None if sys.stdout.isatty() else 160)


def write(
    compiled: Compiled,
    loaded: LoadedModel,
    model: Path,
    output: Path,
    board: boards.Board | None,
    budget: Budget | None,
    more: dict[str, str],
) -> None:
    """Check the budget, if any, write the files and `more` (all or none) and print the table."""
    if board is not None and budget is not None:
        report.check_budget(compiled, budget, board)
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    generated = generate(compiled, f"{model.name} (sha256 {digest[:16]})")
    plan = document(compiled, generated, Origin(model.name, digest, loaded.kind), budget)
    texts = generated.files | {"plan.json": text(plan)} | more
    files = {name: content.encode() for name, content in texts.items()}
    files["model.npz"] = archive(compiled.graph, generated.model_id)
    write_all(files, output)
    report.print_table(compiled, budget, screen(), board)
    say(f"wrote {', '.join(sorted(files))} to {output}")


def write_all(files: dict[str, bytes], folder: Path) -> None:
    """Write every file elsewhere first, then move them in, one process at a time.

    So nothing is left half-written, and of two conversions into one folder the files of one are left.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as new, alone(folder):
            for name, content in files.items():
                (Path(new) / name).write_bytes(content)
            for name in files:
                (Path(new) / name).replace(folder / name)
    except OSError as error:
        raise ConvertError(f"cannot write to {folder}: {error.strerror}") from error


def alone(folder: Path) -> FileLock:
    """Waits until no other process of this user writes to the folder."""
    owner = f"{getpass.getuser()}:{folder.resolve()}"
    name = f"microtrain-{hashlib.sha256(owner.encode()).hexdigest()[:16]}.lock"
    return FileLock(Path(tempfile.gettempdir()) / name)
