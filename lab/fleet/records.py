"""build/fleet.json: commands put into it what they find, others at work at the same time too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from filelock import FileLock

from lab import notes
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.base.schema import AtLeast, SchemaError, decode
from microtrain.base.terminal import say

OUTPUT = ROOT / "build/fleet.json"
Found = dict[str, Any]


@dataclass(frozen=True)
class Summary:
    """What the file says of fleets in short.

    boards to accuracy_float, and the hashes, are of the demo; bytes_per_round is of CIFAR-10 on ten boards;
    ssim by defence; the troubles are those of whole updates. Tables of cases stand beside it (`cifar10`,
    `speakers`, `simulation`, `troubles`)
    """

    boards: Annotated[int, AtLeast(1)]
    rounds: Annotated[int, AtLeast(1)]
    accuracy_global: float
    accuracy_local: tuple[float, ...]
    accuracy_float: float
    bytes_per_round: dict[str, int]
    sha256_boards: str
    sha256_host: str
    ssim: dict[str, float]
    dropouts_survived: int
    stuck_rounds: int


def checked(document: Found) -> Summary:
    """What all parts of `make fleet` have written. Error where one has not."""
    try:
        found = decode(Summary, document)
    except SchemaError as error:
        raise Error(f"{OUTPUT.name} does not say all of fleets: {error}.") from error
    if missing := {"full", "dgc"} - set(found.bytes_per_round):
        raise Error(f"{OUTPUT.name} does not say the bytes of {' and '.join(sorted(missing))} updates.")
    return found


def read() -> Found:
    found: Found = notes.read(OUTPUT, {})
    return found


def add(found: Found) -> None:
    """Numbers, beside what is there."""
    _change(lambda document: document | found)
    say(f"{OUTPUT.name}: {', '.join(found)}")


def keeper(table: str, case: Found) -> Callable[[Found], None]:
    """What puts numbers into the row of a case; other cases' rows, and what else this one has, are kept."""

    def joined(document: Found, found: Found) -> Found:
        rest = [row for row in document.get(table, []) if row["case"] != case]
        return document | {table: [*rest, row(document, table, case) | found]}

    return lambda found: _change(lambda document: joined(document, found))


def row(document: Found, table: str, case: Found) -> Found:
    """What a table has of a case."""
    rows: list[Found] = document.get(table, [])
    return next((known for known in rows if known["case"] == case), {"case": case})


def _change(how: Callable[[Found], Found]) -> None:
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(OUTPUT.with_suffix(".lock")):
        notes.write(OUTPUT, how(read()))
