"""Command line: a demonstration, a Flower app of one's own, and a look at a fleet that runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from microtrain.base.errors import Error
from microtrain.base.options import Number, collected, option
from microtrain.base.terminal import Sentences, console, say

from .words import KEEP, STRATEGIES

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


@dataclass(frozen=True)
class Learning:
    """What the demo and an app have in common."""

    strategy: str = option(
        "--strategy", type=click.Choice(STRATEGIES), default="fedavg", show_default=True,
        help="How the server makes one model of many.",
    )  # fmt: skip
    rounds: int = option(
        "--rounds", type=click.IntRange(1, 100_000), default=5, show_default=True, help="Rounds of the fleet."
    )
    seed: int = option(
        "--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True,
        help="Of orders and of rounding: the same seed, the same bits.",
    )  # fmt: skip
    share: float = option(
        "--compress", type=Number(0, 1), default=0.0, metavar="PART",
        help="Bytes of an update, as a part of those of all that is trained. [whole updates]",
    )  # fmt: skip
    keep: tuple[str, ...] = option(
        "--keep", type=click.Choice(tuple(KEEP)), multiple=True, help="What every board keeps for itself."
    )


@dataclass(frozen=True)
class App(Learning):
    """What an app has beyond that."""

    others: tuple[Path, ...] = option(
        "--also", multiple=True, type=FILE, metavar="PLAN",
        help="plan.json of another scheme of the same network that boards may run.",
    )  # fmt: skip
    name: str = option("--name", default="fleet", show_default=True, help="Another name begins anew.")
    epochs: int = option(
        "--epochs",
        type=click.IntRange(1, 1000),
        default=1,
        show_default=True,
        help="Passes of each board over its samples, in a round.",
    )
    limit: int = option(
        "--limit", type=click.IntRange(0), default=0, metavar="N", help="Most samples a pass. [all]"
    )
    rate: float = option(
        "--lr-factor", type=Number(0, 1000), default=1.0, show_default=True, help="On the scheme's rates."
    )
    mu: float = option(
        "--mu", type=Number(0, 1_000_000), default=0.1, show_default=True, help="fedprox: its term."
    )
    momentum: float = option("--momentum", type=Number(0, 1), default=0.9, show_default=True, help="fedavgm.")
    server_rate: float = option(
        "--server-rate", type=Number(0, 100), default=0.3, show_default=True, help="fedavgm: server's rate."
    )
    eta: float = option("--eta", type=Number(0, 10), default=0.003, show_default=True, help="fedadam: rate.")
    tau: float = option("--tau", type=Number(0, 10), default=0.001, show_default=True, help="fedadam.")
    masked: bool = option(
        "--masked", is_flag=True, help="The server sees sums of updates alone, of three boards or more."
    )
    nodes: int = option(
        "--nodes", type=click.IntRange(1), default=1, show_default=True, metavar="N",
        help="A round waits for so many before it begins.",
    )  # fmt: skip
    patience: float = option(
        "--patience", type=Number(1, 1_000_000), default=3600, show_default=True, metavar="S",
        help="Seconds that a round waits for its nodes; who is later is in the next one.",
    )  # fmt: skip
    test: Path | None = option(
        "--test", type=FOLDER, metavar="DIR", help="Samples that the server measures with after each round."
    )


@click.group(cls=Sentences, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Let many boards learn one model, each from its own data, with Flower (docs/fleet.md).

    \b
    microtrain fleet demo
    microtrain fleet new garden --plan generated/plan.json --nodes 2
    flwr run garden
    """


@main.command()
@click.option("--boards", type=click.IntRange(2, 16), default=4, show_default=True)
@collected(Learning, into="wanted")
def demo(boards: int, wanted: Learning) -> None:
    """Four emulated boards that see different digits learn all of them together: three minutes."""
    from .demo import Wanted, run

    run(Wanted(boards, wanted.rounds, wanted.seed, wanted.strategy, wanted.share, wanted.keep))


@main.command()
@click.argument("folder", type=FOLDER)
@click.option("--plan", required=True, type=FILE, metavar="FILE", help="plan.json of the fleet's model.")
@collected(App, into="app")
def new(folder: Path, plan: Path, app: App) -> None:
    """Write FOLDER, a Flower app for a fleet whose model `microtrain convert` has made."""
    from microtrain.base.plan import read_plan

    from .project import create
    from .settings import Settings

    if app.masked and app.share:
        raise Error("--masked hides which values an update has, and --compress says it: leave one out.")
    for path in (plan, *app.others):
        read_plan(path)
    here = folder.resolve()
    settings = Settings(
        plan=str(plan.resolve()),
        others=" ".join(str(path.resolve()) for path in app.others),
        test=str(app.test.resolve()) if app.test else "",
        state=str(here.with_suffix(".state") / "server.npz"),
        log=str(here.with_suffix(".state") / "fleet.jsonl"),
        masked="yes" if app.masked else "no",
        **{name: getattr(app, name) for name in TAKEN},
    )
    create(folder, settings)
    say(
        f"{folder} is a Flower app. With a SuperLink and its SuperNodes running (docs/fleet.md):\n"
        f"  flwr run {folder}\n"
        f"  microtrain fleet watch {settings.log}"
    )


TAKEN = (
    *("name", "rounds", "strategy", "seed", "epochs", "limit", "rate", "mu", "share", "keep"),
    *("nodes", "patience", "momentum", "server_rate", "eta", "tau"),
)


@main.command()
@click.option("--noise", type=Number(0.01, 10_000), required=True, help="As the gateway's file has it.")
@click.option(
    "--rounds", type=click.IntRange(1, 1_000_000), default=5, show_default=True, help="Rounds of the fleet."
)
def privacy(noise: float, rounds: int) -> None:
    """Say what noise on updates is worth: epsilon of all rounds together."""
    from .private import DELTA, epsilon

    say(f"epsilon {epsilon(noise, rounds):.3g} at delta {DELTA:g}, for a board in {rounds} rounds")


@main.command()
@click.argument("log", type=FILE)
@click.option("--once", is_flag=True, help="Show it as it is and end.")
def watch(log: Path, once: bool) -> None:
    """Show a fleet from its LOG of JSON lines, and go on until Ctrl-C."""
    from .view import follow

    follow(log, once, console())
