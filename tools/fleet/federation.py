"""The server's side: what all boards share, and how a round's updates change it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from microtrain.base.errors import Error
from microtrain.base.files import replacing
from microtrain.base.npz import read_npz
from microtrain.base.plan import short_id

from . import dgc
from .errors import FleetError
from .layout import Layout
from .masks import LEAST, SUM_BITS, Keys, Masked, body_bytes
from .message import TASK, UPDATE, Message, Report, Work, dense, longest, parsed, settled, undense, written
from .rounding import divided, noise, rounded
from .sharing import Sharing, share

WEIGHT_MOST = 2**31 - 1  # samples of a round, so that no sum leaves 64 bits

# What a strategy makes of the mean of the boards: (round, shared values, their mean after training), all in
# the units of the float model, float64 [size].
Step = Callable[[int, np.ndarray, np.ndarray], np.ndarray]


@dataclass
class Open:
    """A round under way: weighted sums of changes, the weights, and what each board said."""

    total: np.ndarray
    weight: np.ndarray
    reports: dict[str, Report] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)  # under masks
    keys: dict[str, Keys] = field(default_factory=dict)  # of those who may send such; none: a plain round
    received: int = 0


@dataclass(frozen=True)
class Closed:
    """A finished round. received: bytes of its updates; moved: values that it changed."""

    number: int
    reports: tuple[Report, ...]
    received: int
    moved: int
    sha256: str


class Federation:
    """The shared values, from round to round.

    name    16 hex digits that no other federation has
    others  layouts of other schemes of the network that boards may run
    """

    def __init__(
        self, layout: Layout, values: np.ndarray, seed: int, name: str, others: Sequence[Layout] = ()
    ) -> None:
        self.layout, self.seed, self.name = layout, seed, name
        self.values = values.astype(np.int64)
        self.number = 0
        self.got: dict[str, int] = {}
        self.owners: dict[str, int] = {}
        self._sharings: dict[str, Sharing] = {
            own.plan.model_id: share(layout, own) for own in (layout, *others)
        }
        self._open: Open | None = None

    # ------------------------------------------------------------ a round
    def begin(self) -> int:
        """A new round; what is left of one that was not closed is gone. Returns its number."""
        self.number += 1
        self._open = self._empty(0)
        return self.number

    def _empty(self, received: int) -> Open:
        size = self.layout.size
        return Open(np.zeros(size, np.int64), np.zeros(size, np.int64), received=received)

    def task(self, work: Work, node: int) -> bytes:
        """The message of this round for a node."""
        own = {board: number for board, number in self.got.items() if self.owners.get(board) == node}
        asked = replace(work, federation=self.name, seed=self.seed, got=own)
        body = dense(self.layout, self.values)
        return written(TASK, self.layout.plan.model_id, self.number, asked, body)

    def take(self, data: bytes, node: int) -> Report:
        """An update of a board behind a node.

        Errors   FleetError where it is refused; nothing has changed then
        """
        if self._open is None:
            raise FleetError("an update is refused: no round is under way.")
        message = parsed(data, UPDATE, self.longest)
        report = settled(Report, message)
        sharing = self._checked(message, report, node)
        current, most = self._open, 1 << SUM_BITS if self._open.keys else WEIGHT_MOST
        if sum(r.samples for r in current.reports.values()) + report.samples > most:
            raise FleetError(f"an update of {report.board} is refused: the round has too many samples.")
        if current.keys:
            current.bodies[report.board] = masked_body(self.layout, message.body)
        else:
            current.total += report.samples * sharing.to_all(body_of(sharing.own, report, message.body))
            self.got[report.board] = self.number
        current.weight += report.samples * sharing.say()
        current.reports[report.board] = report
        current.received += len(data)
        self.owners[report.board] = node
        return report

    # ------------------------------------------------------------ a masked round
    def expect(self, keys: Mapping[str, Keys]) -> None:
        """The round under way takes updates of these boards alone, under masks. FleetError: too few."""
        if self._open is None or len(keys) < LEAST:
            raise FleetError(f"a masked round needs {LEAST} boards, {len(keys)} are there.")
        self._open.keys = dict(keys)

    def masked(self) -> Masked:
        """What has arrived of a masked round."""
        assert self._open is not None
        return Masked(self.layout, self.name, self.number, self._open.keys, self._open.bodies)

    def lift(self, total: np.ndarray) -> None:
        """The sum of all that arrived. FleetError where no board could have sent such a one."""
        assert self._open is not None
        if (np.abs(total) > 2 * self.layout.limits * self._open.weight).any():
            raise FleetError("the round has no sum: one of its values is out of its range.")
        self._open.total = total
        self.got |= dict.fromkeys(self._open.bodies, self.number)
        self._open.keys = {}

    @property
    def longest(self) -> int:
        """Bytes that no update exceeds."""
        return max(longest(sharing.own) for sharing in self._sharings.values())

    def _checked(self, message: Message, report: Report, node: int) -> Sharing:
        """How the sender's layout goes with ours. FleetError where the update is not one of this round."""
        said = f"an update of {report.board} is refused:"
        sharing = self._sharings.get(message.model_id)
        assert self._open is not None
        if sharing is None:
            raise FleetError(
                f"{said} it is of model {short_id(message.model_id)}, which has no part in this fleet."
            )
        if report.federation != self.name:
            raise FleetError(f"{said} it is of another federation.")
        if message.round != self.number:
            raise FleetError(f"{said} it is of round {message.round}, and this is round {self.number}.")
        if (report.body == "masked") != bool(self._open.keys):
            raise FleetError(f"{said} this round is {'masked' if self._open.keys else 'not masked'}.")
        if self._open.keys and report.board not in self._open.keys:
            raise FleetError(f"{said} it has shared no keys.")
        if report.board in self._open.reports:
            raise FleetError(f"{said} this round has one already.")
        if self.owners.get(report.board, node) != node:
            raise FleetError(f"{said} another node has this board.")
        return sharing

    def close(self, step: Step | None = None) -> Closed:
        """End the round: the shared values move by the mean of the changes, weighted by samples.

        step   of a strategy; None: plain averaging, exact in integers
        """
        current, layout = self._open, self.layout
        if current is None:
            raise FleetError("no round is under way.")
        if current.keys:  # masks that were not lifted: nothing is known of it
            current = self._open = self._empty(current.received)
        bits = noise(self.seed, self.number, "average", layout.size)
        if step is None or not current.reports:
            values = self.values + divided(current.total, current.weight, bits)
        else:
            values = self._stepped(step, current, bits)
        values = np.clip(values, -layout.limits, layout.limits)
        moved = int(np.count_nonzero(values != self.values))
        self.values, self._open = values, None
        reports = tuple(current.reports[name] for name in sorted(current.reports))
        return Closed(self.number, reports, current.received, moved, self.sha256())

    def _stepped(self, step: Step, current: Open, bits: np.ndarray) -> np.ndarray:
        mean = current.total / np.maximum(current.weight, 1)
        before = self.layout.real(self.values)
        after = step(self.number, before, before + self.layout.real(mean))
        wanted = (after - before) / self.layout.scales
        if not np.isfinite(wanted).all():
            raise FleetError("the strategy left the numbers: lower its rate.")
        most = 2.0 * self.layout.limits
        return self.values + np.where(current.weight > 0, rounded(np.clip(wanted, -most, most), bits), 0)

    def sha256(self) -> str:
        """Of the shared values, 64 hex digits."""
        return hashlib.sha256(self.values.astype("<i8").tobytes()).hexdigest()

    # ------------------------------------------------------------ what survives a restart of the server
    def save(self, file: Path) -> None:
        about = {"name": self.name, "seed": self.seed, "number": self.number, "got": self.got}
        about |= {"owners": self.owners, "model_id": self.layout.plan.model_id}
        with replacing(file) as part, part.open("wb") as out:
            np.savez_compressed(out, about=np.array(json.dumps(about)), values=self.values)

    def resume(self, file: Path) -> None:
        """Go on where save() was. FleetError where the file is damaged or of another model."""
        try:
            arrays = read_npz(file)
            about = json.loads(str(arrays["about"]))
            values = arrays["values"].astype(np.int64)
            if about["model_id"] != self.layout.plan.model_id or values.shape != (self.layout.size,):
                raise FleetError("it is of another model")
            self.name, self.seed = str(about["name"]), int(about["seed"])
            self.number, self.values = int(about["number"]), values
            self.got, self.owners = whole(about["got"]), whole(about["owners"])
        except (Error, KeyError, ValueError, TypeError, AttributeError) as error:
            raise FleetError(f"{file} cannot be gone on with ({error}): delete it to begin anew.") from error


def whole(numbers: Mapping[str, int]) -> dict[str, int]:
    return {str(name): int(number) for name, number in numbers.items()}


def masked_body(layout: Layout, body: memoryview) -> bytes:
    """FleetError where it is of another size."""
    if len(body) != body_bytes(layout):
        raise FleetError(f"a masked change of {len(body)} bytes is refused.")
    return bytes(body)


def body_of(layout: Layout, report: Report, body: memoryview) -> np.ndarray:
    """The change that an update says, in the board's own units, int64 [layout.size]. Errors as undense()."""
    if report.body == "sparse":
        return dgc.unpacked(layout, body)
    return undense(layout, body, 2)
