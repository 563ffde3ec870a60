"""From words on the command line to what a command is asked for, and to the settings of what it runs."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn

from microtrain.base.errors import Error
from microtrain.base.plan import Budget
from microtrain.convert import boards, options
from microtrain.convert import cli as convert
from microtrain.convert import command as conversion
from microtrain.convert.ir import ConvertError
from microtrain.convert.memory.replay import Request as Buffer
from microtrain.device.options import factors
from microtrain.device.recipe import Situation
from microtrain.device.session import Evaluation, Log, Settings
from microtrain.search import cli as search
from microtrain.search import command as searching
from microtrain.search.contribution import Plan
from microtrain.simulate import cli as simulate
from microtrain.simulate.runs import Outcome

SEARCH = ("m.pt", "--data", "d", "--budget-sram", "2.5")


def asked(command: click.Command, kind: type, *words: str) -> Any:
    """The dataclass that a command makes of words."""
    context = command.make_context("test", list(words))
    names = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in context.params.items() if name in names})


def test_a_conversion_without_options_is_for_the_whole_default_board() -> None:
    wanted = asked(convert.main, options.Wanted, "m.pt", "-o", "out")
    board = boards.find(boards.DEFAULT)
    target = conversion.target_of(wanted)
    assert (target.folder, target.limits.board, target.limits.budget) == (
        Path("out"),
        board,
        Budget(board.sram, board.flash),
    )
    assert (wanted.head_rows, wanted.input_shape, wanted.scheme) == (None,) * 3
    assert wanted.replay == Buffer(optional=True)


def test_budgets_are_in_kilobytes_and_this_machine_has_none() -> None:
    words = ("m.pt", "-o", "out", "--budget-sram", "64")
    board = boards.find(boards.DEFAULT)
    assert conversion.target_of(asked(convert.main, options.Wanted, *words)).limits.budget == Budget(
        65536, board.flash
    )
    both = asked(convert.main, options.Wanted, *words, "--budget-flash", "2")
    assert conversion.target_of(both).limits.budget == Budget(65536, 2048)
    native = asked(convert.main, options.Wanted, *words, "--board", "native")
    assert conversion.target_of(native).limits.budget is None


@pytest.mark.parametrize(
    ("option", "text", "field", "value"),
    [
        ("--input", "3X8x9", "input_shape", (3, 8, 9)),
        ("--head-rows", "9,2-4", "head_rows", (9, 2, 3, 4)),
        ("--replay", "40", "replay", Buffer(records=40)),
        ("--replay", "64KB", "replay", Buffer(bytes=65536)),
        ("--replay", "Spare", "replay", Buffer()),
        ("--replay", "auto", "replay", Buffer(optional=True)),
        ("--replay", "Off", "replay", None),
        ("--fraction-bits", "8", "fraction_bits", "8"),
    ],
)
def test_values_of_a_kind_of_their_own(option: str, text: str, field: str, value: object) -> None:
    assert getattr(asked(convert.main, options.Wanted, "m.pt", "-o", "x", option, text), field) == value


@pytest.mark.parametrize(
    ("option", "text"),
    [
        *(("--input", text) for text in ("3x8x8x8", "3x8x", "3x0x8", "3x-1x8", "3x²x8", "3x8x" + "9" * 5000)),
        *(("--head-rows", text) for text in ("", "1-", "3-2", "1,1", "²", "1", "1," + "9" * 5000)),
        *(("--replay", text) for text in ("0", "0KB", "-4", "4MB", "²", "9" * 5000, "99999999999KB")),
    ],
)
def test_values_of_a_kind_of_their_own_that_cannot_be(option: str, text: str) -> None:
    done = CliRunner().invoke(convert.main, ["m.pt", "-o", "x", option, text])
    assert done.exit_code == 2 and isinstance(done.exception, SystemExit)
    assert f"Error: Invalid value for '{option}'" in done.output


def test_fraction_bits_replace_the_schemes() -> None:
    assert conversion.choose_scheme(Path("last-2"), None).fraction_bits == 0
    assert conversion.choose_scheme(Path("last-2"), "8").fraction_bits == 8
    done = CliRunner().invoke(convert.main, ["m.pt", "-o", "x", "--fraction-bits", "4"])
    assert done.exit_code == 2 and "name one with --scheme" in done.output
    with pytest.raises(ConvertError, match="there is no scheme nothing: give a YAML file, or one of "):
        conversion.choose_scheme(Path("nothing"), None)


def test_a_search_counts_in_bytes_and_instructions() -> None:
    request = searching.request_of(asked(search.main, search.Wanted, *SEARCH))
    assert (request.budget.sram, request.budget.flash) == (2560, 1 << 20)
    assert request.budget.instructions == math.inf
    more = (
        "--budget-step-minstr",
        "1.5",
        "--seed",
        "7",
        "--final-seeds",
        "3",
        "--limit",
        "9",
        "--epochs",
        "2",
    )
    request = searching.request_of(asked(search.main, search.Wanted, *SEARCH, *more))
    assert request.budget.instructions == 1.5e6
    assert request.contributions == Plan(2, 9, (7,)) and request.seed == 7
    assert request.final.seeds == (7, 8, 9) and request.final.limit == 0


def test_a_search_takes_the_shape_that_a_file_lacks(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    model = tmp_path / "net.pt"
    torch.jit.trace(net.eval(), torch.zeros(1, 3, 12, 12)).save(str(model))
    np.savez(
        tmp_path / "typical.npz", images=np.random.default_rng(0).integers(0, 256, (8, 12, 12, 3), np.uint8)
    )
    given = (*SEARCH, "--calibration", str(tmp_path / "typical.npz"))
    wanted = asked(search.main, search.Wanted, *given, "--input", "3x12x12")
    assert searching.quantized(model, wanted).sample_shape == (12, 12, 3)
    with pytest.raises(ConvertError, match="does not say its input's shape: pass --input CxHxW"):
        searching.quantized(model, asked(search.main, search.Wanted, *given))


def test_fraction_bits_of_a_search_are_a_list() -> None:
    assert asked(search.main, search.Wanted, *SEARCH).bits == (0, 4)
    assert asked(search.main, search.Wanted, *SEARCH, "--fraction-bits", "8,0,8").bits == (0, 8)
    done = CliRunner().invoke(search.main, [*SEARCH, "--fraction-bits", "0,5"])
    assert done.exit_code == 2 and "choose from 0, 4 and 8, as in 0,4" in done.output


def sessions(samples: int, *words: str) -> list[Settings]:
    """The settings of a simulation's sessions on so many images."""
    wanted = asked(simulate.main, simulate.Wanted, "generated", "--data", "d", *words)
    task = SimpleNamespace(training=SimpleNamespace(samples=[None] * samples))
    return simulate.settings_of(
        cast(Any, task), wanted, factors(wanted.lrs, wanted.given, None) or (1.0,), False
    )


def test_a_simulation_runs_every_rate_with_every_seed() -> None:
    runs = sessions(10, "--lr-factor", "1", "--lr-factor", "3", "--seed", "4", "--seed", "5", "--epochs", "2")
    assert [(run.rate, run.seed) for run in runs] == [(1, 4), (1, 5), (3, 4), (3, 5)]
    assert {(run.epochs, run.schedule) for run in runs} == {(2, "cosine")}


@pytest.mark.parametrize(
    ("words", "every"),
    [
        ((), 10),
        (("--limit", "4"), 4),
        (("--limit", "40"), 10),
        (("--eval-every", "3"), 3),
        (("--order", "classes"), 0),
    ],
)
def test_a_simulation_evaluates_after_each_pass(words: tuple[str, ...], every: int) -> None:
    assert [run.eval_every for run in sessions(10, *words)] == [every]


def test_augmentations_are_a_list_or_none() -> None:
    def kinds(*words: str) -> tuple[str, ...]:
        found = asked(simulate.main, simulate.Wanted, "generated", "--data", "d", *words).kinds
        return cast(tuple[str, ...], found)

    assert kinds() is None and kinds("--augment", "none") == ()
    assert kinds("--augment", "light,flip") == ("flip", "light")
    done = CliRunner().invoke(simulate.main, ["generated", "--data", "d", "--augment", "flip,spin"])
    assert done.exit_code == 2 and "spin: choose from flip, crop, light, or none" in done.output


@pytest.mark.parametrize("error", [Error("too small: enlarge it"), OSError(28, "No space left on device")])
def test_what_stops_a_simulation_is_a_sentence(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(plan: Path) -> None:
        raise error

    monkeypatch.setattr(simulate, "load_blueprint", stop)
    done = CliRunner().invoke(simulate.main, ["generated", "--data", "d"])
    assert done.exit_code == 1 and done.output == f"Error: {error}\n"


def test_a_simulation_that_diverged_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    model: Any = SimpleNamespace(
        name="net", scheme=SimpleNamespace(name="last-2"), absolute=lambda factor: factor * 0.002
    )
    log = Log({}, ("a", "b"), Settings(rate=9), diverged=7, sha256="ab" * 32)
    log.evaluations = [Evaluation(0, 1, 4, ((1, 2), (0, 2))), Evaluation(7, 2, 4, ((1, 2), (1, 2)))]
    simulate.show(model, [Outcome(log, 2.0)], [Path("out/log.json")])
    said = capsys.readouterr().out
    assert "25.0% ->  50.0% of 4 held-out samples" in said and "wrote out/log.json" in said
    assert "diverged at step 7: these are the last good weights; use a lower --lr" in said


@pytest.mark.parametrize(
    ("words", "epochs", "rehearse"),
    [
        ((), 0, 80),
        (("--epochs", "2"), 2, 0),
        (("--epochs", "2", "--rehearse", "7"), 2, 7),
        (("--epochs", "0"), 0, 0),
        (("--rehearse", "7"), 0, 7),
    ],
)
def test_what_is_asked_for_is_done(words: tuple[str, ...], epochs: int, rehearse: int) -> None:
    """The buffer holds all ten images, so that by itself a session rehearses them."""
    wanted = asked(simulate.main, simulate.Wanted, "generated", "--data", "d", *words)
    course = wanted.resolved(Situation(10, 12, True, "shuffled"))
    assert (course.epochs, course.rehearse) == (epochs, rehearse)
    assert course.kinds == course.augmentation.kinds == ("flip", "crop", "light")


def test_what_is_normal_is_not_varied_unless_somebody_says_so() -> None:
    for words, kinds in (((), ()), (("--augment", "flip"), ("flip",))):
        wanted = asked(simulate.main, simulate.Wanted, "generated", "--data", "d", *words)
        course = wanted.resolved(Situation(100, 0, False, "shuffled", small=True, normal=True))
        assert (course.kinds, course.epochs) == (kinds, 20)
