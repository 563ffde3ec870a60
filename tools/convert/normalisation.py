"""What a model takes in place of a pixel: (pixel / 255 - mean) / std, and who says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from microtrain.base.units import Units
from microtrain.convert.ir import ConvertError, Input, Shape

MeanAndStd = tuple[tuple[float, ...], tuple[float, ...]]  # one number each, or one a channel

IMAGENET: MeanAndStd = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
RAW: MeanAndStd = ((0.0,), (1 / 255,))
SCALED: MeanAndStd = ((0.0,), (1.0,))
COARSEST = (
    0.1  # a model that multiplies its input by less takes pixels 0..255: no std of pixels 0..1 is above 10
)


class Origin(Enum):
    """Who says how images are normalised."""

    OPTION = "--mean and --std"
    FILE = "the file"
    FORWARD = "forward() itself"
    ASSUMED = "assumed"
    STORED = "the file's int8"
    SAMPLES = "the samples"


@dataclass(frozen=True)
class Normalisation:
    """forward() takes (pixel / 255 - mean) / std; a value a channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    origin: Origin

    def behind(self, own: Input) -> Input:
        """The graph's input for pixels 0..255. own: what forward() makes of what it takes."""
        gain = tuple(g / (255.0 * s) for g, s in zip(own.gain, self.std, strict=True))
        terms = zip(own.gain, own.offset, self.mean, self.std, strict=True)
        return replace(own, gain=gain, offset=tuple(-m / s * g + o for g, o, m, s in terms))

    def before(self, whole: Input) -> Input:
        """What forward() makes of what it takes. whole: the graph's input for pixels 0..255"""
        gain = tuple(g * 255.0 * s for g, s in zip(whole.gain, self.std, strict=True))
        terms = zip(whole.offset, self.mean, whole.gain, strict=True)
        return replace(whole, gain=gain, offset=tuple(o + m * 255.0 * g for o, m, g in terms))

    def units(self) -> Units:
        """Of the numbers that forward() takes."""
        scale = tuple(1.0 / (255.0 * s) for s in self.std)
        low = tuple(-m / s for m, s in zip(self.mean, self.std, strict=True))
        alike = len(set(scale)) == 1 and len(set(low)) == 1
        return Units(scale[:1], low[:1]) if alike else Units(scale, low)

    def sentence(self, shape: Shape) -> str:
        """What is taken to be true of the model's input [h, w, c], in a line or two of 80 columns."""
        one, all_ = ("pixel", "images") if shape[1] > 1 else ("byte", "samples")
        if self.origin is Origin.ASSUMED:
            return (
                f"{one}s as 0..1, mean 0 and std 1: assumed, since neither forward(),\n"
                f"the file nor --mean and --std say how training normalised its {all_}"
            )
        if self.origin is Origin.STORED:
            scale = 1.0 / (255.0 * self.std[0])
            zero = round(255.0 * self.mean[0]) - 128
            return f"int8 as in the file, {scale:g} * (q - {zero}); a byte that arrives is q + 128"
        if self.origin is Origin.SAMPLES:
            units = self.units()
            span = f"{min(units.low):.6g} to {max(units.high):.6g}"
            each = ", each channel in its own range" if len(units.low) > 1 else ""
            return f"numbers from {span}{each}, as in the samples; others are clipped"
        if self.origin is Origin.FORWARD:
            what = "0..255" if self.std[0] < 1 else "0..1"
            return f"{one}s as {what}, which {self.origin.value} normalises"
        numbers = f"mean {_text(self.mean)}, std {_text(self.std)}"
        return f"({one} / 255 - mean) / std, by {self.origin.value}:\n{numbers}"


def _text(values: tuple[float, ...]) -> str:
    return " ".join(f"{v:g}" for v in (values[:1] if len(set(values)) == 1 else values))


def as_stored(scale: float, zero: int, channels: int) -> Normalisation:
    """Of a model whose file quantizes its input: real = scale * (byte - 128 - zero)."""
    return Normalisation(
        ((zero + 128) / 255.0,) * channels, (1.0 / (255.0 * scale),) * channels, Origin.STORED
    )


def of_range(low: float, high: float, channels: int) -> Normalisation:
    """Of numbers that lie between the two: the lowest is byte 0, the highest 255."""
    return of_ranges([(low, high)] * channels)


def of_ranges(spans: Sequence[tuple[float, float]]) -> Normalisation:
    """The same of numbers that lie elsewhere in each channel. spans: the lowest and the highest of each"""
    widths = [high - low if high > low else max(abs(low), 1.0) for low, high in spans]
    means = tuple(-low / width for (low, _), width in zip(spans, widths, strict=True))
    return Normalisation(means, tuple(1.0 / width for width in widths), Origin.SAMPLES)


def choose(given: MeanAndStd | None, entry: Any, where: str, own: Input) -> Normalisation:
    """The normalisation that the user names, else the one in the file, else what forward() lets assume.

    entry  {"mean": [...], "std": [...]} of the file, {} where it says nothing; where: what names it in errors
    own    what forward() makes of what it takes
    """
    channels = len(own.gain)
    if given is not None:
        mean, std = (
            spread(v, channels, f"--{key}", key) for key, v in zip(("mean", "std"), given, strict=True)
        )
        return Normalisation(mean, std, Origin.OPTION)
    if entry != {}:
        fields = entry if isinstance(entry, dict) else {"mean": None}
        mean, std = (
            spread(fields.get(key, list(default)), channels, f"{where}.{key}", key)
            for key, default in zip(("mean", "std"), SCALED, strict=True)
        )
        return Normalisation(mean, std, Origin.FILE)
    if own.gain == (1.0,) * channels and own.offset == (0.0,) * channels:
        return Normalisation((0.0,) * channels, (1.0,) * channels, Origin.ASSUMED)
    mean, std = RAW if max(abs(g) for g in own.gain) < COARSEST else SCALED
    return Normalisation(mean * channels, std * channels, Origin.FORWARD)


def spread(values: Any, channels: int, where: str, key: str) -> tuple[float, ...]:
    """Finite numbers, one or one a channel, as one a channel. ConvertError otherwise; key: mean or std."""
    listed = isinstance(values, list | tuple)
    numbers = listed and all(type(v) in (int, float) and np.isfinite(v) for v in values)
    if not numbers or len(values) not in (1, channels) or (key == "std" and min(values) <= 0):
        wanted = ("1 number" if channels == 1 else f"1 or {channels} numbers") + (
            " above 0" if key == "std" else ""
        )
        raise ConvertError(f"{where} is {values!r}; it must be {wanted}")
    return tuple(float(v) for v in values) * (channels // len(values))
