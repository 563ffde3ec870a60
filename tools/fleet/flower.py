"""Flower around it: a strategy for its ServerApp, a ClientApp, and a grid within one process.

Flower carries bytes and runs the rounds. What the bytes mean is checked in message.py, and the average is
that of federation.py; momentum and Adam on the server are Flower's own strategies, given the exact mean.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, Strategy
from flwr.supercore.task_identity import TaskIdentity

from microtrain.base.errors import Error, printable
from microtrain.base.reading import reading

from . import secure
from .errors import FleetError
from .events import Event, Tell
from .federation import Closed, Federation, Step
from .masks import Masker
from .member import Member
from .message import Work
from .secure import Exchange
from .settings import Tuning

TASK, UPDATES, REFUSED = "task", "updates", "refused"
TRAIN = "train"
KEY = "trainables"


# ---------------------------------------------------------------- strategies


def step_of(name: str, tuning: Tuning) -> Step | None:
    """What a strategy does on the server; None for those that only average there."""
    if name == "fedavgm":
        return _Stepping(FedAvgM(server_learning_rate=tuning.server_rate, server_momentum=tuning.momentum))
    if name == "fedadam":
        return _Stepping(FedAdam(eta=tuning.eta, tau=tuning.tau))
    return None


class _Stepping:
    """One of Flower's strategies, shown the exact mean as if it were the only reply."""

    def __init__(self, inner: FedAvg) -> None:
        self.inner: Any = inner

    def __call__(self, number: int, before: np.ndarray, mean: np.ndarray) -> np.ndarray:
        record = ArrayRecord({KEY: Array(before)})
        self.inner.current_arrays = record if isinstance(self.inner, FedAvgM) else {KEY: before}
        content = RecordDict(
            {"arrays": ArrayRecord({KEY: Array(mean)}), "metrics": MetricRecord({"num-examples": 1})}
        )
        arrays, _ = self.inner.aggregate_train(number, [Message(content, dst_node_id=1, message_type=TRAIN)])
        return np.asarray(arrays[KEY].numpy(), np.float64)


# ---------------------------------------------------------------- the server


class Rounds(Strategy):  # type: ignore[misc, unused-ignore]
    """A federation as one of Flower's strategies.

    nodes     that a round waits for before it begins
    patience  seconds that the nodes are waited for
    accuracy  of the shared values; None: nobody measures it
    masked    the server sees sums alone (secure.py)
    """

    def __init__(
        self,
        federation: Federation,
        work: Work,
        step: Step | None = None,
        nodes: int = 1,
        patience: float = 600,
        accuracy: Callable[[Federation], float | None] = lambda federation: None,
        tell: Tell = lambda event: None,
        *,
        masked: bool = False,
    ) -> None:
        self.masked = masked
        self._exchange: Exchange | None = None
        self.federation, self.work, self.step = federation, work, step
        self.nodes, self.patience, self.accuracy, self.tell = nodes, patience, accuracy, tell
        self.total = 0
        self._down, self._began = 0, 0.0
        self._failed: list[str] = []

    def summary(self) -> None:
        """Nothing: the command has said it."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """A task for each node that is there; a node that comes later takes part in the next round."""
        deadline, asked = time.monotonic() + self.patience, sorted(grid.get_node_ids())
        while len(asked) < self.nodes and time.monotonic() < deadline:
            time.sleep(0.2)
            asked = sorted(grid.get_node_ids())
        self.federation.begin()
        self._began = time.monotonic()
        records: dict[int, dict[str, Any]] = {node: {} for node in asked}
        if self.masked:
            self._failed, records = self._agreed(grid, asked)
        for node, record in records.items():
            record[TASK] = self.federation.task(self.work, node)
        self._down = sum(len(record[TASK]) for record in records.values())
        return [
            Message(RecordDict({"config": ConfigRecord(record)}), dst_node_id=node, message_type=TRAIN)
            for node, record in records.items()
        ]

    def _agreed(self, grid: Grid, nodes: Sequence[int]) -> tuple[list[str], dict[int, dict[str, Any]]]:
        """What was refused, and what each node's task brings of the masks, if there is a round."""
        self._exchange = Exchange(self.federation, grid, self.patience)
        try:
            return [], self._exchange.agree(nodes)
        except FleetError as error:
            return [str(error)], {}

    def _revealed(self) -> list[str]:
        """Lift the masks off the sum; what was refused."""
        if self._exchange is None or self._failed:
            return self._failed
        try:
            self._exchange.reveal()
            return []
        except FleetError as error:
            return [str(error)]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take what came, and close the round whatever it was."""
        refused: list[str] = []
        known = set(self.federation.got)
        for reply in replies:
            refused += self._take(reply)
        refused += self._revealed()
        closed = self.federation.close(self.step)
        present = {report.board for report in closed.reports}
        self.tell(self._event(closed, refused, sorted((known | set(self.federation.got)) - present)))
        return arrays_of(self.federation), MetricRecord({"boards": len(closed.reports)})

    def _take(self, reply: Message) -> list[str]:
        """What was refused of a node's reply, in sentences."""
        node = reply.metadata.src_node_id
        if reply.has_error():
            return [printable(f"node {node}: {reply.error.reason}"[:300])]
        refused: list[str] = []
        try:
            with reading(FleetError, lambda why: f"node {node} sent no updates ({why})."):
                config = reply.content.config_records["config"]
                updates = [bytes(update) for update in config[UPDATES]]  # type: ignore[union-attr, unused-ignore]
                refused += [printable(str(said)[:300]) for said in config[REFUSED]]  # type: ignore[union-attr, unused-ignore]
        except FleetError as error:
            return [str(error)]
        for update in updates:
            try:
                self.federation.take(update, node)
            except FleetError as error:
                refused.append(str(error))
        return refused

    def _event(self, closed: Closed, refused: list[str], missing: list[str]) -> Event:
        return Event(
            round=closed.number,
            of=self.total,
            boards={
                r.board: {"samples": r.samples, "steps": r.steps, "loss": r.loss, "again": r.again}
                for r in closed.reports
            },
            refused=tuple(refused),
            missing=tuple(missing),
            bytes_up=closed.received,
            bytes_down=self._down,
            seconds=round(time.monotonic() - self._began, 2),
            sha256=closed.sha256,
            accuracy=self.accuracy(self.federation),
        )

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nothing: the shared values are measured where they are."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return None

    def run(self, grid: Grid, rounds: int) -> None:
        """All rounds, one after the other; none waits longer than its patience."""
        self.total = self.federation.number + rounds
        if rounds:
            self.start(grid, arrays_of(self.federation), num_rounds=rounds, timeout=self.patience)


def arrays_of(federation: Federation) -> ArrayRecord:
    return ArrayRecord({KEY: Array(federation.values)})


# ---------------------------------------------------------------- the clients


Members = Callable[[Context], AbstractContextManager[Sequence[Member]]]


def client_app(members: Members) -> ClientApp:
    """A ClientApp for the boards of a node: one where it is the board's own, many behind a gateway.

    members  of the node whose context it is
    """
    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator, unused-ignore]
    def train(message: Message, context: Context) -> Message:
        updates: list[bytes] = []
        refused: list[str] = []
        try:
            record = message.content.config_records["config"]
            task = bytes(record[TASK])  # type: ignore[arg-type, unused-ignore]
            with members(context) as present:
                maskers = secure.ready(present, record, context.state)
                for update, said in worked(present, task, maskers):
                    updates += [update] if update else []
                    refused += [said] if said else []
        except (Error, KeyError, TypeError, ValueError) as error:
            refused.append(f"the task cannot be worked off: {error}")
        config = ConfigRecord({UPDATES: updates, REFUSED: refused})
        return Message(RecordDict({"config": config}), reply_to=message)

    for kind in secure.HANDLERS:
        app.query(kind.partition(".")[2])(_questioned(kind, members))
    return app


def _questioned(kind: str, members: Members) -> Callable[[Message, Context], Message]:
    def query(message: Message, context: Context) -> Message:
        with members(context) as present:
            return secure.answered(kind, present, message, context.state)

    return query


def worked(members: Sequence[Member], task: bytes, maskers: Mapping[str, Masker]) -> list[tuple[bytes, str]]:
    """The update of each board, or why there is none; boards behind a gateway work side by side."""

    def one(member: Member) -> tuple[bytes, str]:
        try:
            return member.handle(task, maskers.get(member.name)), ""
        except Error as error:
            return b"", str(error)

    with ThreadPoolExecutor(len(members)) as pool:
        return list(pool.map(one, members))


# ---------------------------------------------------------------- within one process


@dataclass
class _Node:
    app: ClientApp
    context: Context
    room: threading.Semaphore  # how many nodes work at once
    lock: threading.Lock = field(default_factory=threading.Lock)  # a node does one thing at a time

    def answer(self, message: Message) -> Message:
        with self.lock, self.room:
            return self.app(message, self.context)


class Nearby(Grid):  # type: ignore[misc, unused-ignore]
    """A grid whose nodes are threads of this process: for demonstrations, tests and studies.

    The nodes of Flower's own simulation are processes of Ray; these share the model's library.
    """

    def __init__(self, apps: Sequence[ClientApp], at_once: int = 1) -> None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
        room = threading.Semaphore(at_once)
        self._nodes = {
            100 + n: _Node(app, Context(1, 100 + n, {}, RecordDict(), {}), room) for n, app in enumerate(apps)
        }
        self._pool = ThreadPoolExecutor(len(apps))
        self._results: dict[str, Future[Message]] = {}

    def set_run(self, run: Any) -> None:
        raise FleetError("a grid in this process has one run: runs are a SuperLink's.")

    @property
    def run(self) -> Any:
        raise FleetError("a grid in this process has one run: runs are a SuperLink's.")

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id=dst_node_id, message_type=message_type, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return list(self._nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for message in messages:
            name = str(len(self._results))
            self._results[name] = self._pool.submit(self._nodes[message.metadata.dst_node_id].answer, message)
            names.append(name)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found = [self._results[name] for name in message_ids]
        return [future.result() for future in found if future.done()]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """What has come when the time is up; later answers are not heard."""
        names = list(self.push_messages(messages))
        wait([self._results[name] for name in names], timeout)
        return self.pull_messages(names)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def app_of(member: Member) -> ClientApp:
    """The app of a node with one board, which stays."""
    return client_app(lambda context: nullcontext([member]))


def nearby(members: Sequence[Member], rounds: Rounds, count: int, at_once: int = 1) -> None:
    """A whole federation within this process, a node for each member.

    at_once  boards that compute at the same time
    """
    logging.getLogger("flwr").setLevel(logging.WARNING)
    grid = Nearby([app_of(member) for member in members], at_once)
    try:
        rounds.run(grid, count)
    finally:
        grid.close()
