"""What a conversion can be asked for: the options of the command line and the values they take."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from microtrain.base import paths
from microtrain.base.errors import Error, short
from microtrain.base.options import Number, option
from microtrain.base.plan import MULTILABEL, REGRESSION, REQUANTIZE

from . import boards, defaults
from .mean_std import both, mean_option, std_option

if TYPE_CHECKING:
    from microtrain.base.sound import LogMel

    from .memory.imprint import Request as Imprint
    from .memory.replay import Request
    from .normalisation import MeanAndStd

ROW_MAX = 99_999  # of a head that rows are taken from
PART_MAX = 64  # values that share a byte (PRODUCT_CODE_PART_MAX)
NATIVE = "native"
ANOMALY = "anomaly"
OPEN_SET = "open-set"
TASKS = ("classify", ANOMALY, REGRESSION, MULTILABEL, OPEN_SET)
FEATURES, OUTPUT = EMBEDDINGS = ("features", "output")
LOSSES = {"huber": "huber", "mse": "squares"}  # of a regression, and what a scheme calls them


def generated() -> Path:
    """Where the firmware looks for the model: in the project that is being worked in."""
    project = paths.project()
    if project is None:
        raise click.UsageError(
            "there is no PlatformIO project here: `microtrain new FOLDER` makes one, or give -o."
        )
    return project / "firmware/generated"


def number(text: str) -> int | None:
    """A number of at most nine decimal digits; None for any other text."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


class Shape(click.ParamType):  # type: ignore[type-arg]
    """CxHxW of images, as in 3x128x128; CxT of a series, as in 9x128; F of features."""

    name = "CxHxW"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        sizes = tuple(number(part) or 0 for part in str(value).lower().split("x"))
        if len(sizes) > 3 or not all(sizes):
            self.fail(
                f"{short(value)} is not a shape CxHxW such as 3x128x128, nor that of a series, such as 9x128",
                param,
                ctx,
            )
        return sizes


class Rows(click.ParamType):  # type: ignore[type-arg]
    """Numbers and ranges of rows, as in 281,285,970-979."""

    name = "ROWS"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        from .ir import ConvertError
        from .scheme import head_rows as checked_rows

        rows: list[int] = []
        for part in str(value).split(","):
            first, _, last = part.partition("-")
            low, high = number(first), number(last or first)
            if low is None or high is None or not low <= high <= ROW_MAX:
                self.fail(f"{short(part)} is no row or range of rows such as 281 or 970-979", param, ctx)
            rows += range(low, high + 1)
        try:
            return checked_rows(tuple(rows), "--head-rows")
        except ConvertError as error:
            self.fail(str(error), param, ctx)


class Records(click.ParamType):  # type: ignore[type-arg]
    """A number of records, bytes as in 64KB, "spare", "auto", or "off"."""

    name = "auto|off|N|nKB|spare"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Request | None:
        from .memory.replay import RECORDS_MAX, Request

        text = str(value).lower()
        count = number(text.removesuffix("kb"))
        if text == "off":
            return None
        if text in ("spare", "auto"):
            return Request(optional=text == "auto")
        if count is None or not 0 < count <= RECORDS_MAX:
            self.fail(
                f"{short(value)} is no number of records, no size such as 64KB, and not auto, off or spare",
                param,
                ctx,
            )
        return Request(bytes=count * boards.KB) if text.endswith("kb") else Request(records=count)


class Code(click.ParamType):  # type: ignore[type-arg]
    """How many values of a record share a byte, or "auto", or "off"."""

    name = "auto|off|N"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        text = str(value).lower()
        if text in ("auto", "off"):
            return None if text == "auto" else 0
        count = number(text)
        if not count or count > PART_MAX:
            self.fail(
                f"{short(value)} is neither auto nor off nor a number of values, 1..{PART_MAX}", param, ctx
            )
        return count


class Group(click.ParamType):  # type: ignore[type-arg]
    """How many features share a covariance matrix, or "auto", or "off"."""

    name = "auto|off|N"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Imprint:
        from .memory.imprint import Request as Imprint

        text = str(value).lower()
        if text in ("auto", "off"):
            return Imprint(None if text == "auto" else 0)
        count = number(text)
        if not count or count > ROW_MAX:
            self.fail(f"{short(value)} is neither auto nor off nor a number of features", param, ctx)
        return Imprint(count)


class FrontEnd(click.ParamType):  # type: ignore[type-arg]
    """What the device makes of sound or vibration, as in log-mel:rate=8000,frame=256,hop=128,bands=40."""

    name = "log-mel:NAME=VALUE,..."

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> LogMel:
        from microtrain.base.sound import parse

        try:
            return parse(str(value))
        except Error as error:
            self.fail(str(error), param, ctx)


@dataclass(frozen=True)
class Wanted:
    """What a conversion is asked for."""

    calibration: Path | None = option(
        "--calibration",
        type=click.Path(path_type=Path),
        help="Folder of samples (images, .npy, .wav) or .npz with `images` uint8 [N,h,w,c].",
    )
    mean: tuple[float, ...] | None = mean_option()
    std: tuple[float, ...] | None = std_option()
    rule: str = option(
        "--ranges",
        type=click.Choice(defaults.RULES),
        default=defaults.RULE,
        show_default=True,
        help="How int8 ranges are chosen: all that calibration saw, all but the rarest, or with the "
        "least error.",
    )
    correct: bool = option(
        "--bias-correction/--no-bias-correction",
        default=False,
        show_default=True,
        help="Correct each bias by what rounding the weights shifts its channel's mean by.",
    )
    weights_bits: str = option(
        "--weights-bits",
        type=click.Choice(list(defaults.WEIGHTS_BITS)),
        default=defaults.WEIGHTS_BITS[0],
        show_default=True,
        help="Of frozen layers in flash: 4 in all of them, chosen on calibration samples; auto: 4 in "
        "as many as hardly change what the model answers.",
    )
    requantize: str | None = option(
        "--requantize",
        type=click.Choice(REQUANTIZE),
        help="How sums of convolutions become int8: by a float32 multiplier; by an integer one, which takes "
        "fewer instructions and rounds a little differently; or as TensorFlow Lite's reference kernels do, "
        "bit for bit, which takes more. [tflite of an int8 .tflite file, else float]",
    )
    gate: float | None = option(
        "--gate",
        type=Number(0, min_open=True),
        metavar="LOSS",
        help="End a training step where the sample's loss is below this: its backward pass would change "
        "little. [none]",
    )
    compared: bool = option(
        "--quantization",
        is_flag=True,
        help="Compare int8 with the float model, layer by layer: a table, quantization.svg and .json.",
    )
    labelled: Path | None = option(
        "--evaluate",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="For --quantization: samples that the model was not trained on, a folder for each class.",
    )
    sound: LogMel | None = option(
        "--frontend",
        type=FrontEnd(),
        help="Make the model's input of sound, on the device: rate, frame, hop and bands of a log-mel "
        "spectrogram, also fft, fmin, fmax, floor (dB) and gain (units a dB); mfcc:... with coefficients; "
        "for vibration spectrum:..., RMS and bands of equal width in Hz.",
    )
    hop: int | None = option(
        "--hop",
        type=click.IntRange(1),
        metavar="ROWS",
        help="Let windows overlap: behind an inference the input can move on by so many rows, and only they "
        "are sent and computed.",
    )
    scheme: Path | None = option(
        "--scheme",
        type=click.Path(path_type=Path),
        help="Sparse update scheme: a YAML file (docs/schemes.md) or the name of one in "
        "tools/convert/schemes.",
    )
    fraction_bits: str | None = option(
        "--fraction-bits",
        type=click.Choice(["0", "4", "8"]),
        help="Extra bits of each trained weight, instead of the scheme's.",
    )
    task: str = option(
        "--task",
        type=click.Choice(TASKS),
        default=TASKS[0],
        show_default=True,
        help="What is learned: to tell classes apart; what is normal, by an autoencoder, which must make as "
        "many numbers as it takes, and whose --calibration needs normal samples; numbers; labels that "
        "hold or not, each for itself; or classes that come as they come, by the distances of embeddings, "
        "and what is none of them.",
    )
    loss: str | None = option(
        "--loss",
        type=click.Choice(list(LOSSES)),
        help="Of a regression. [huber, which wrong samples pull less at]",
    )
    classes: int | None = option(
        "--classes",
        type=click.IntRange(1, 65534),
        help="Classes, or labels, of the new task; the model's own if not given. Of an open set as many as "
        "there may ever be.",
    )
    embedding: str | None = option(
        "--embedding",
        type=click.Choice(EMBEDDINGS),
        help="Of an open set: what the last linear layer reads, or what the model makes. [features, where it "
        "ends in a linear layer, as classifiers do; else its output]",
    )
    until: str | None = option(
        "--until",
        metavar="LAYER",
        help="Leave out what comes behind this layer: a new head reads the mean of its map. Needs --classes.",
    )
    head_rows: tuple[int, ...] | None = option(
        "--head-rows",
        type=Rows(),
        help="Start the head from these rows of the model's own, as in 281,285,970-979: one per class.",
    )
    input_shape: tuple[int, ...] | None = option(
        "--input", type=Shape(), help="Input shape, for a module saved whole or TorchScript."
    )
    logits: str | None = option(
        "--logits",
        metavar="N|NAME",
        help="Which result of a model with several is the logits: its number, from 0 on, or its layer.",
    )
    output: Path = option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        default=generated,
        show_default="firmware/generated of the project",
        help="Folder that the generated files go to; it is made if need be.",
    )
    budget_sram: int | None = option(
        "--budget-sram", type=click.IntRange(1), show_default="all of the board's", help="All-in SRAM in KB."
    )
    budget_flash: int | None = option(
        "--budget-flash", type=click.IntRange(1), show_default="all of the board's", help="Flash image in KB."
    )
    no_checkpoints: bool = option(
        "--no-checkpoints",
        is_flag=True,
        help="Give the flash that checkpoints would have to weights: nothing that the board learns is saved.",
    )
    external_flash: str | None = option(
        "--external-flash",
        metavar="NAME",
        help="Put frozen weights that the chip's own flash has no room for, those that are read least, into "
        "this flash beside it: qspi, 16 MB, of disco_f746ng. It is slower.",
    )
    board_name: str = option(
        "--board",
        type=click.Choice([*boards.names(), NATIVE]),
        default=boards.DEFAULT,
        show_default=True,
        help="The board to convert for. native is this machine (`pio run -e native`), which has no budgets "
        "but those given.",
    )
    whole: bool = option(
        "--whole", is_flag=True, help="Keep every tensor whole: no row-by-row streaming of frozen layers."
    )
    keep_image: bool = option(
        "--keep-image",
        is_flag=True,
        help="Keep the input whole in SRAM until a step runs: by default its rows are used up as "
        "they arrive.",
    )
    replay: Request | None = option(
        "--replay",
        type=Records(),
        default="auto",
        show_default=True,
        help="Buffer for replaying old samples in SRAM: records, a size, or all that the budget leaves; "
        "auto: all but a little of that, where it is room for 5 records of each class.",
    )
    code: int | None = option(
        "--replay-code",
        type=Code(),
        default="auto",
        show_default=True,
        help="How many values of a record share a byte, by codes learned from the calibration samples; "
        "auto: as few as give the records that --replay asks for, or 10 a class.",
    )
    imprint: Imprint = option(
        "--imprint",
        type=Group(),
        default="auto",
        show_default=True,
        help="Statistics of features, from which the device makes its head after one look at each sample: "
        "of how many features the covariance is kept together; auto: as many as the budget allows.",
    )
    fleet: float = option(
        "--fleet",
        type=Number(0, 1),
        default=0.0,
        metavar="SHARE",
        help="Memory on the board for making its updates in a fleet itself, of this share of all trained "
        "bytes at most, as in 0.01. By default its gateway makes them.",
    )
    library: Path | None = option(
        "--library",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Also write the model and the engine as C for a firmware of your own (export-library), and "
        "print how many instructions a piece of a training step takes at most.",
    )
    explain: bool = option(
        "--explain", is_flag=True, help="Print what each memory pass saves, every row a real plan."
    )
    check: bool = option(
        "--check",
        is_flag=True,
        help="Only say, in seconds and without calibrating, whether MODEL fits and what stands in its way.",
    )
    trust: bool = option(
        "--trust", is_flag=True, help="Load a pickled module, which may execute code from the file."
    )

    @property
    def normalisation(self) -> MeanAndStd | None:
        """What --mean and --std say; None where they are not given."""
        return both(self.mean, self.std)
