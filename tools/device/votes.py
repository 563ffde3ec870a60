"""What windows that come one after the other say together: microtrain_vote() of microtrain_votes.h."""

from __future__ import annotations

from collections import Counter, deque

import click

MOST = 32  # windows


class Votes:
    """The class that `need` of the last `of` windows were taken for: more than half of them."""

    def __init__(self, need: int, of: int) -> None:
        self.need, self.of = need, of
        self._last: deque[int] = deque(maxlen=of)

    def count(self, label: int) -> int | None:
        """The class that wins now, if one does. label: what the newest window was taken for"""
        self._last.append(label)
        winner, votes = Counter(self._last).most_common(1)[0]
        return winner if votes >= self.need else None


class NeedOf(click.ParamType):  # type: ignore[type-arg]
    """ "3/5": three of the last five."""

    name = "NEED/OF"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Votes:
        need, _, of = str(value).partition("/")
        if not (need.isdecimal() and of.isdecimal() and int(of) / 2 < int(need) <= int(of) <= MOST):
            self.fail(
                f"{value!r} is not as 3/5: more than half of the last windows, {MOST} at most.", param, ctx
            )
        return Votes(int(need), int(of))
