"""What a training session is asked for, on a device as in the simulator: the same options and defaults."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import click

from microtrain.base.errors import Error
from microtrain.base.options import LearningRate, Number, option
from microtrain.base.terminal import say
from microtrain.samples.augment import Augmentation
from microtrain.samples.images import WAYS
from microtrain.samples.kind import KNOWN_ORDER, Shape, sound_of
from microtrain.samples.source import Dataset, noun_of, varied

from .answers import NO_IMPRINT, REPLAY_MAX
from .recipe import AGAIN, FALLING, FAST, PASSES, STEPS, TIMES, VIEWS, Situation
from .session import COSINE, ORDERS, SCHEDULES, SHUFFLED, Settings, per_epoch

LR_HELP = (
    "Learning rate, of which a schedule makes less; of several in the scheme the largest. [the scheme's]"
)
FACTOR_HELP = "In its place: a factor on the scheme's learning rates."
PLAIN = Augmentation()
SMALL = 4096  # numbers of a sample that any line takes in half a second
Rates = tuple[float, float, float]  # of weights, biases and head


class Kinds(click.ParamType):  # type: ignore[type-arg]
    """Augmentations, separated by commas, or "none"."""

    name = "kinds"

    def convert(
        self, value: str | tuple[str, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if not isinstance(value, str):
            return value
        kinds = () if value == "none" else tuple(value.split(","))
        unknown = set(kinds) - set(WAYS)
        if unknown:
            self.fail(f"{', '.join(sorted(unknown))}: choose from {', '.join(WAYS)}, or none.", param, ctx)
        return tuple(kind for kind in WAYS if kind in kinds)


@dataclass(frozen=True)
class Course:
    """How a session goes, whatever it trains."""

    epochs: int | None = option(
        "--epochs",
        type=click.IntRange(0),
        metavar="N",
        help=f"Passes over the samples. [1; of sounds as many as make {STEPS} steps, at most {PASSES}; 0 "
        "where a replay buffer holds all of them, or classes come one after the other: then records are "
        "rehearsed]",
    )
    limit: int = option(
        "--limit", default=0, type=click.IntRange(0), metavar="N", help="At most N samples per epoch."
    )
    schedule: str | None = option(
        "--schedule",
        type=click.Choice(SCHEDULES),
        help="Of the learning rates: cosine falls to 0 over the session. [cosine; constant where records are "
        "rehearsed behind a pass]",
    )
    warmup: int = option(
        "--warmup", default=0, type=click.IntRange(0), metavar="N", help="Steps of rising learning rates."
    )
    imprint: bool | None = option(
        "--imprint/--no-imprint",
        default=None,
        help="First look once at each sample and make the head of that. [where it can, and nothing is "
        "learned yet]",
    )
    views: int | None = option(
        "--views",
        type=click.IntRange(1),
        metavar="N",
        help=f"Ways of each sample in that look, of those that --augment makes. [up to {VIEWS}, where they "
        "become records]",
    )
    kinds: tuple[str, ...] | None = option(
        "--augment",
        type=Kinds(),
        help=f"How training samples vary from epoch to epoch, or none. [{','.join(PLAIN.kinds)}; none of "
        "what is normal]",
    )
    variants: int = option(
        "--variants",
        default=PLAIN.variants,
        show_default=True,
        type=click.IntRange(1),
        help="At most so many per sample.",
    )
    order: str = option(
        "--order",
        type=click.Choice(ORDERS),
        default=SHUFFLED,
        show_default=True,
        help="Order of the training samples: classes come one after the other, each for all of its epochs.",
    )
    rehearse: int | None = option(
        "--rehearse",
        type=click.IntRange(0),
        metavar="N",
        help=f"At the end, N steps on old samples alone, with a rate that falls to 0. [{AGAIN} for each "
        f"record; {TIMES} without a pass]",
    )
    recalled_rate: float | None = option(
        "--recalled-rate",
        type=Number(0, 1000),
        metavar="F",
        help=f"A factor on the rate in these. [{FALLING / FAST:g} behind a shuffled pass, else 1]",
    )

    @property
    def augmentation(self) -> Augmentation:
        return Augmentation(PLAIN.kinds if self.kinds is None else self.kinds, self.variants)

    def situation(
        self, shape: Shape, training: Dataset, records: int, looks: bool, enrols: bool
    ) -> Situation:
        """What a session meets. shape: of a sample; records, looks, enrols: as Situation has them"""
        normal = training.classes == KNOWN_ORDER
        sounds = sound_of(shape) is not None and len(training.classes) > 1
        small = sounds or (normal and math.prod(shape) <= SMALL)
        return Situation(per_epoch(training, self.limit), records, looks, self.order, small, normal, enrols)

    def resolved(self, found: Situation) -> Self:
        """The course with what nobody said as recipe.py has it."""
        chosen = found.chosen(self.epochs) | {"kinds": () if found.normal else PLAIN.kinds}
        return replace(self, **{name: value for name, value in chosen.items() if getattr(self, name) is None})

    def factor_in(self, found: Situation) -> float:
        """On the scheme's learning rates, where nobody says it."""
        return found.rate if self.epochs is None else 1.0

    def settings(
        self,
        factor: float,
        seed: int,
        eval_every: int,
        replay: int | None,
        imprint: bool = False,
        backs_off: bool = False,
    ) -> Settings:
        """Of a session with this course. factor: on the scheme's learning rates; imprint: as imprints() has
        it; backs_off: nobody asked for that rate"""
        return Settings(
            epochs=1 if self.epochs is None else self.epochs,
            seed=seed,
            limit=self.limit,
            eval_every=eval_every,
            rate=factor,
            schedule=self.schedule or COSINE,
            warmup=self.warmup,
            order=self.order,
            replay=replay,
            rehearse=self.rehearse or 0,
            recalled_rate=1.0 if self.recalled_rate is None else self.recalled_rate,
            imprint=imprint,
            views=self.views or 1,
            backs_off=backs_off,
        )


def imprints(wanted: bool | None, able: bool, fresh: bool) -> bool:
    """Whether a session begins with a head that is made of one look at each image.

    wanted  None: not said
    able    the model was converted with statistics of features
    fresh   nothing has been learned that such a head would replace
    Errors  Error where it is wanted and cannot be
    """
    if wanted and not able:
        raise Error(NO_IMPRINT)
    return able and fresh if wanted is None else wanted


def factors(wanted: Sequence[float], given: Sequence[float], rates: Rates | None) -> tuple[float, ...]:
    """Factors on the scheme's learning rates; none where neither is asked for.

    wanted   learning rates, the largest of the scheme's at the session's beginning
    given    factors
    rates    the scheme's; None: not known
    Errors   Error where both are asked for, or a learning rate cannot be had by a factor
    """
    if wanted and given:
        raise Error("--lr is a learning rate and --lr-factor a factor on the scheme's: name one of them.")
    if not wanted:
        return tuple(given)
    if rates is None:
        raise Error(
            "--lr needs the plan of the model, which has the scheme's learning rates: name it with --plan, "
            "or use --lr-factor."
        )
    if not max(rates):
        raise Error("--lr has no learning rate to change: the scheme's are 0 (docs/schemes.md).")
    return tuple(rate / max(rates) for rate in wanted)


def in_words(
    course: Course,
    chosen: Sequence[float],
    rates: Rates | None,
    imprint: bool = False,
    files: Sequence[Path] = (),
) -> str:
    """What a session is about to do, in a line.

    chosen   factors, as factors() has them
    imprint  as imprints() has it
    files    that are learned from
    """
    if rates is None:
        rate = f"rate {' and '.join(f'{factor:g}' for factor in chosen)} x the scheme's"
    elif len(set(rates)) == 1:
        rate = f"rate {' and '.join(f'{factor * rates[0]:g}' for factor in chosen)}"
    else:
        each = ["/".join(f"{factor * rate:g}" for rate in rates) for factor in chosen]
        rate = f"rate {' and '.join(each)} (weights/biases/head)"
    schedule = course.schedule or COSINE
    fall = f"{schedule} to 0" if schedule == COSINE else schedule
    rise = f", {course.warmup} steps of warm-up" if course.warmup else ""
    changed, noun = varied(files, course.kinds or ()), noun_of(files)
    variants = f"{changed} ({course.variants} variants)" if changed else "none"
    first = f"{_looks(course.views or 1, noun, bool(changed))} first; " if imprint else ""
    if course.epochs == 0:
        then = f"then {course.rehearse} steps on records" if course.rehearse else "no training"
        return f"{first}{then}; {rate}, {fall}"
    last = f"; then {course.rehearse} steps on records, cosine to 0" if course.rehearse else ""
    return f"{first}{rate}, {fall}{rise}; augmentation {variants}{last}"


def _looks(views: int, noun: str, varied: bool) -> str:
    if views == 1:
        return f"one look at each {noun}"
    return f"one look at {views} ways of each {noun}" if varied else f"{views} looks at each {noun}"


def warn_of_variants(course: Course, training: Dataset) -> None:
    """Say that an autoencoder takes what varies for normal, where classes are called as its are."""
    changed = varied(training.files, course.kinds or ())
    if training.classes == KNOWN_ORDER and changed and (course.epochs or 1) > 1:
        say(
            f"samples vary from pass to pass ({changed}), and an autoencoder learns that as "
            "normal: --augment none, if this is one",
            err=True,
        )


@dataclass(frozen=True)
class Training(Course):
    """What a session on a device is asked for."""

    lr: float | None = option("--lr", type=LearningRate(0), help=LR_HELP)
    given: float | None = option("--lr-factor", type=Number(0, 1000), help=FACTOR_HELP)
    rate: float | None = option("--rate", type=Number(0, 1000), hidden=True, help="The old name of it.")
    seed: int = option(
        "--seed",
        default=0,
        show_default=True,
        type=click.IntRange(0, 2**32 - 1),
        help="Of the order and of the rounding.",
    )
    eval_every: int = option(
        "--eval-every", default=0, type=click.IntRange(0), metavar="N", help="Also evaluate every N steps."
    )
    replay: int | None = option(
        "--replay",
        type=click.IntRange(0, REPLAY_MAX),
        metavar="K",
        help="Steps on old samples after each new one, with a replay buffer. [as the device is set]",
    )

    def factor(self, rates: Rates | None) -> float | None:
        """On the scheme's learning rates, where they are known; None: nobody says it. Errors as factors()."""
        if self.rate is not None:
            say("--rate is called --lr-factor now, and --lr takes a learning rate", err=True)
        given = (value for value in (self.given, self.rate) if value is not None)
        return next(iter(factors([] if self.lr is None else [self.lr], list(given), rates)), None)
