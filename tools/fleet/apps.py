"""What Flower runs: the ServerApp on the server, the ClientApp on every node (`microtrain fleet new`)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from microtrain.base.plan import read_plan
from microtrain.base.schema import SchemaError, decode
from microtrain.samples.source import scan

from .board import Host, HostBoard
from .errors import FleetError
from .federation import Federation
from .flower import Rounds, client_app, step_of
from .gateway import members_of
from .layout import Layout
from .member import Member
from .settings import Settings, named
from .view import View

FILE = "boards"  # the key of --node-config that names the node's file


def settings_of(config: Mapping[str, Any]) -> Settings:
    """The run's settings. FleetError where one is missing or wrong."""
    try:
        return decode(Settings, {**config, "keep": str(config.get("keep", "")).split()})
    except SchemaError as error:
        raise FleetError(f"the run's settings are not as they must be: {error}.") from error


def begun(settings: Settings, host: Host) -> Federation:
    """The federation of a run: from its state file, else from the model's conversion."""
    layout = Layout(host.plan, settings.keep)
    others = tuple(Layout(read_plan(Path(path)), settings.keep) for path in settings.others.split())
    values = layout.read(HostBoard(host, "the server").fresh())
    federation = Federation(layout, values, settings.seed, named(settings.seed, settings.name), others)
    if settings.state and Path(settings.state).is_file():
        federation.resume(Path(settings.state))
    return federation


def accuracy_of(settings: Settings, host: Host) -> Callable[[Federation], float | None]:
    """What measures the shared values and keeps them; without a folder of images it only keeps them."""
    fresh = HostBoard(host, "the server").fresh()
    testing = scan(Path(settings.test), host.plan.classes, known=host.plan.known) if settings.test else None

    def measure(federation: Federation) -> float | None:
        if settings.state:
            federation.save(Path(settings.state))
        if testing is None:
            return None
        return host.evaluate(federation.layout.write(federation.values, fresh), testing).accuracy

    return measure


server = ServerApp()


@server.main()  # type: ignore[untyped-decorator, unused-ignore]
def serve(grid: Grid, context: Context) -> None:
    settings = settings_of(context.run_config)
    plan = read_plan(Path(settings.plan))
    work = Path(settings.state or settings.plan).resolve().parent
    host = Host(plan, work / "library")
    federation = begun(settings, host)
    with View(log=Path(settings.log) if settings.log else None) as view:
        rounds = Rounds(
            federation,
            settings.work(federation.name),
            step_of(settings.strategy, settings.tuning()),
            settings.nodes,
            settings.patience,
            accuracy_of(settings, host),
            view.tell,
            masked=settings.masked == "yes",
        )
        rounds.run(grid, max(0, settings.rounds - federation.number))
    trained = federation.layout.write(federation.values, HostBoard(host, "the server").fresh())
    (work / "fleet.trainables").write_bytes(trained)
    print(f"{federation.number} rounds, sha256 {hashlib.sha256(trained).hexdigest()}")


@contextmanager
def members(context: Context) -> Iterator[list[Member]]:
    """The boards of a node."""
    file = context.node_config.get(FILE)
    if not isinstance(file, str):
        raise FleetError("this node names no boards: --node-config 'boards=\"/path/to/boards.json\"'.")
    with members_of(Path(file)) as found:
        yield found


client: ClientApp = client_app(members)
