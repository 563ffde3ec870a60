"""--mean and --std, for the commands that read a model; light, since every `--help` reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from microtrain.base.options import option

if TYPE_CHECKING:
    from .normalisation import MeanAndStd

Numbers = tuple[float, ...]


class PerChannel(click.ParamType):  # type: ignore[type-arg]
    """One number, or one a channel, of pixels 0..1; 1/255 is a number too. The word imagenet: ImageNet's."""

    name = "N,N,N|imagenet"

    def __init__(self, which: int) -> None:
        self.which = which

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Numbers:
        from fractions import Fraction

        from .normalisation import IMAGENET

        if value == "imagenet":
            return IMAGENET[self.which]
        try:
            return tuple(float(Fraction(part.strip())) for part in str(value).split(","))
        except (ValueError, ZeroDivisionError, OverflowError):
            self.fail(
                f"{value!r} is neither imagenet nor numbers such as 0.5 or 0.485,0.456,0.406", param, ctx
            )


def mean_option() -> Any:
    return option(
        "--mean",
        type=PerChannel(0),
        help="What training subtracted from pixels 0..1, or from other samples' bytes as such: one number or "
        "one a channel. The model's file, its forward(), or samples of numbers may say it instead.",
    )


def std_option() -> Any:
    return option(
        "--std", type=PerChannel(1), help="What training then divided by: as --mean, and together with it."
    )


def both(mean: Numbers | None, std: Numbers | None) -> MeanAndStd | None:
    """What the two options say; None where neither is given. UsageError where one is."""
    if (mean is None) != (std is None):
        raise click.UsageError("--mean and --std belong together: give both (--mean 0 or --std 1 for none).")
    return None if mean is None or std is None else (mean, std)
