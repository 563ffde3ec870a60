"""Masked rounds on Flower: what members and server say before and behind an update (masks.py).

A node keeps its boards' secrets of the round in Flower's context, from message to message, and forgets them
when it has revealed what the sum needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from microtrain.base.errors import Error
from microtrain.base.reading import reading

from .errors import FleetError
from .federation import Federation
from .masks import LEAST, Keys, Masked, Masker
from .member import Member

STATE = "masks"
KEYS, SHARES, UNMASK = "query.keys", "query.shares", "query.unmask"
Record = Mapping[str, Any]
Handler = Callable[[Sequence[Member], Record, RecordDict], dict[str, Any]]


# ---------------------------------------------------------------- a node


def held(state: RecordDict) -> ConfigRecord:
    """The secrets that a node keeps, by board."""
    if STATE not in state.config_records:
        state.config_records[STATE] = ConfigRecord()
    found: ConfigRecord = state.config_records[STATE]
    return found


def masker_of(member: Member, state: RecordDict) -> Masker | None:
    """A board's side of the masked round that is under way."""
    kept = state.config_records.get(STATE, {})
    if member.name not in kept:
        return None
    return Masker.loads(member.name, member.sharing.all, str(kept[member.name]))


def keys(members: Sequence[Member], said: Record, state: RecordDict) -> dict[str, Any]:
    """New secrets for a round; their public halves."""
    federation, number = str(said["federation"]), int(said["round"])
    names, cipher, mask = [], [], []
    for member in members:
        masker = Masker(member.name, member.sharing.all, federation, number)
        held(state)[member.name] = masker.dumps()
        names.append(member.name)
        cipher.append(masker.keys()[0])
        mask.append(masker.keys()[1])
    return {"board": names, "cipher": cipher, "mask": mask}


def shares(members: Sequence[Member], said: Record, state: RecordDict) -> dict[str, Any]:
    """Shares of the secrets, for each of the others."""
    listed = zip(said["board"], said["cipher"], said["mask"], strict=True)
    found = {str(name): (bytes(cipher), bytes(mask)) for name, cipher, mask in listed}
    rows: list[tuple[str, str, bytes]] = []
    for member in members:
        masker = masker_of(member, state)
        if masker is not None and member.name in found:
            rows += [(member.name, to, data) for to, data in masker.shares(found).items()]
            held(state)[member.name] = masker.dumps()
    return {"from": [r[0] for r in rows], "to": [r[1] for r in rows], "data": [r[2] for r in rows]}


def unmask(members: Sequence[Member], said: Record, state: RecordDict) -> dict[str, Any]:
    """What the sum needs; the secrets are forgotten."""
    arrived, rows = {str(name) for name in said["arrived"]}, []
    for member in members:
        masker = masker_of(member, state)
        if masker is not None:
            del held(state)[member.name]
            rows += [(member.name, name, data) for name, data in masker.unmask(arrived).items()]
    return {"from": [r[0] for r in rows], "of": [r[1] for r in rows], "data": [r[2] for r in rows]}


HANDLERS: dict[str, Handler] = {KEYS: keys, SHARES: shares, UNMASK: unmask}


def answered(kind: str, members: Sequence[Member], message: Message, state: RecordDict) -> Message:
    """A node's answer to one of these questions; an empty one where it has none to give."""
    found: dict[str, Any] = {}
    try:
        with reading(FleetError, lambda why: f"a question about masks is refused ({why})."):
            found = HANDLERS[kind](members, message.content.config_records["config"], state)
    except Error as error:
        found = {"refused": str(error)}
    return Message(RecordDict({"config": ConfigRecord(found)}), reply_to=message)


def ready(members: Sequence[Member], record: Record, state: RecordDict) -> dict[str, Masker]:
    """Maskers that have taken the shares which came with a task."""
    found: dict[str, Masker] = {}
    for member in members:
        masker = masker_of(member, state)
        if masker is None or "from" not in record:
            continue
        rows = zip(record["from"], record["to"], record["data"], strict=True)
        masker.take({str(a): bytes(data) for a, b, data in rows if b == member.name})
        held(state)[member.name] = masker.dumps()
        found[member.name] = masker
    return found


# ---------------------------------------------------------------- the server


class Exchange:
    """The server's side of a masked round."""

    def __init__(self, federation: Federation, grid: Grid, patience: float) -> None:
        self.federation, self.grid, self.patience = federation, grid, patience
        self.nodes: dict[str, int] = {}  # of each board
        self.keys: dict[str, Keys] = {}

    def _ask(self, kind: str, asked: Mapping[int, dict[str, Any]]) -> Iterable[tuple[int, Record]]:
        """Answers of the nodes; those of whom none comes, or a refusal, are left out."""
        messages = [
            Message(RecordDict({"config": ConfigRecord(said)}), dst_node_id=node, message_type=kind)
            for node, said in asked.items()
        ]
        for reply in self.grid.send_and_receive(messages, timeout=self.patience):
            if not reply.has_error() and "refused" not in reply.content.config_records.get("config", {}):
                yield reply.metadata.src_node_id, reply.content.config_records["config"]

    def agree(self, nodes: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Keys and shares; for each node what its task brings of them. Errors as federation.expect()."""
        federation = self.federation
        asked = {"federation": federation.name, "round": federation.number}
        for node, said in self._ask(KEYS, dict.fromkeys(nodes, asked)):
            with reading(FleetError, lambda why: f"a node sent no keys ({why})."):
                for name, cipher, mask in zip(said["board"], said["cipher"], said["mask"], strict=True):
                    if self.nodes.setdefault(str(name), federation.owners.get(str(name), node)) == node:
                        self.keys[str(name)] = bytes(cipher), bytes(mask)
        if len(self.keys) < LEAST:
            raise FleetError(f"a masked round needs {LEAST} boards, {len(self.keys)} are there.")
        names = sorted(self.keys)
        every = {"board": names, "cipher": [self.keys[n][0] for n in names]}
        every["mask"] = [self.keys[n][1] for n in names]
        sent: dict[int, dict[str, Any]] = {}
        rows: list[tuple[str, str, bytes]] = []
        for _, said in self._ask(SHARES, dict.fromkeys(sorted(set(self.nodes.values())), every)):
            with reading(FleetError, lambda why: f"a node sent no shares ({why})."):
                rows += list(zip(said["from"], said["to"], map(bytes, said["data"]), strict=True))
        sharing = {a for a, _, _ in rows}
        federation.expect({name: self.keys[name] for name in sharing})
        for node in sorted({self.nodes[name] for name in sharing}):
            own = [row for row in rows if self.nodes.get(row[1]) == node]
            sent[node] = {"from": [r[0] for r in own], "to": [r[1] for r in own], "data": [r[2] for r in own]}
        return sent

    def reveal(self) -> None:
        """Ask for what the sum needs, and give it to the federation. Errors as Masked.total()."""
        masked: Masked = self.federation.masked()
        arrived = {"arrived": sorted(masked.bodies)}
        revealed: dict[str, dict[str, bytes]] = {}
        for _, said in self._ask(
            UNMASK, dict.fromkeys(sorted({self.nodes[n] for n in masked.keys}), arrived)
        ):
            with reading(FleetError, lambda why: f"a node revealed no shares ({why})."):
                for name, of, data in zip(said["from"], said["of"], said["data"], strict=True):
                    revealed.setdefault(str(name), {})[str(of)] = bytes(data)
        self.federation.lift(masked.total(revealed))
