"""The calls of a stream's stages, as stream.c makes them: how many rows of which stage at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from microtrain.convert import ops
from microtrain.convert.ir import Graph, Node
from microtrain.convert.reference.hostlib import Record

from .conv_structs import Conv2d
from .stage import WindowStage
from .stream import Rows, closing_row, geometry, resident, stage_of, stages
from .unit import OUTPUT, Unit
from .work import Terms, in_one_go


@dataclass(frozen=True)
class Call:
    """Some rows of a stage, or of the add behind the last one.

    op, unit  the kernel that can stop on its way; None: it is one unit
    whole     what runs in one go: op and what its instructions grow with
    going     and kernels that could stop elsewhere
    work      in units of pace.h; unit: of its largest unit
    moved     bytes of windows that are moved, filled or copied for it, at most
    times     how often it is made
    """

    op: str
    unit: Unit | None
    whole: Sequence[tuple[str, Terms]]
    going: Sequence[tuple[str, Unit]]
    work: float
    moved: float
    times: int

    @property
    def least(self) -> float:
        """Work of the largest unit."""
        return self.unit.work if self.unit else self.work


@dataclass
class _Stage:
    """How a stage stands: kernels/stream.h."""

    p: Conv2d
    most: int
    first: int = 0
    fed: int = field(init=False)
    made: int = 0

    def __post_init__(self) -> None:
        self.fed = self.p.pad_h

    @property
    def in_bytes(self) -> int:
        return int(self.p.w_in * self.p.c_in)

    def opened(self) -> int:
        """Drops rows that nothing needs; returns the bytes that are moved for that."""
        after = min(self.made * self.p.stride_h, self.fed)
        moved = (self.fed - after) * self.in_bytes if after > self.first else 0
        self.first = max(self.first, after)
        return moved

    def ready(self) -> int:
        need = self.made * self.p.stride_h + self.p.kh
        ready = 0 if self.fed < need else (self.fed - need) // self.p.stride_h + 1
        return int(min(ready, self.p.h_out - self.made))


@dataclass
class _Run:
    """A stream on its way. found: (stage, rows) -> how often, and the most bytes that are moved."""

    stage: list[_Stage]
    times: Counter[tuple[int, int]] = field(default_factory=Counter)
    moved: Counter[tuple[int, int]] = field(default_factory=Counter)

    def make(self, i: int, rows: int, moved: int) -> None:
        last = i + 1 == len(self.stage)
        moved += 0 if last else self.stage[i + 1].opened()
        self.times[i, rows] += 1
        self.moved[i, rows] = max(self.moved[i, rows], moved)
        if not last:
            self.stage[i + 1].fed += rows
        self.stage[i].made += rows

    def advance(self, i: int, moved: int) -> None:
        while i < len(self.stage) and (rows := self.stage[i].ready()):
            self.make(i, rows, moved)
            i, moved = i + 1, 0

    def finish(self) -> None:
        for i, stage in enumerate(self.stage):
            while stage.made < stage.p.h_out:
                left = (stage.p.h_out - 1) * stage.p.stride_h + stage.p.kh - stage.fed
                rows = min(left, stage.most)
                moved = stage.opened() + rows * stage.in_bytes
                stage.fed += rows
                self.advance(i, moved)


def calls_of(graph: Graph, node: Node) -> Iterator[Call]:
    """All calls of a stream, those that are alike once."""
    chain = stages(node.parts)
    run = _run(graph, node, chain)
    for (i, rows), times in sorted(run.times.items()):
        p, moved = strip_of(run.stage[i].p, rows), run.moved[i, rows]
        yield _call(graph, chain[i], p, moved, times)
        if i + 1 == len(chain) and closing_row(graph, node) is not None:
            part = node.parts[-1]
            terms = scaled(in_one_go(graph, part), run.stage[i].p, p)
            yield Call(
                part.op, None, ((part.op, terms),), (), 2.0 * OUTPUT * rows * p.w_out * p.c_out, 0, times
            )


def _run(graph: Graph, node: Node, chain: Sequence[Rows]) -> _Run:
    found, most = [], node.rows
    for rows in chain:
        p = conv_of(geometry(graph, rows))
        found.append(_Stage(p, most))
        most = -(-most // p.stride_h)
    run, first = _Run(found), found[0]
    read = resident(graph, node) and first.p.kh == 1 and first.p.stride_h == 1 and first.p.pad_h == 0
    for row in range(0, first.p.h_in, node.rows):
        rows_in = min(node.rows, first.p.h_in - row)
        if read:
            run.make(0, rows_in, 0)
            run.advance(1, 0)
        else:
            moved = first.opened() + rows_in * first.in_bytes
            first.fed += rows_in
            run.advance(0, moved)
    run.finish()
    return run


def conv_of(record: Record) -> Conv2d:
    assert isinstance(record, Conv2d)
    return record


def strip_of(p: Conv2d, rows: int) -> Conv2d:
    """Parameters of so many output rows, whose input is the image, padding included."""
    strip = Conv2d.from_buffer_copy(p)
    strip.h_in, strip.h_out, strip.pad_h = (rows - 1) * p.stride_h + p.kh, rows, 0
    return strip


def _call(graph: Graph, rows: Rows, p: Conv2d, moved: int, times: int) -> Call:
    part, stage = rows.first, stage_of(rows.first)
    unit = ops.TABLE[part.op].unit(graph, part, p) if isinstance(stage, WindowStage) else None
    if not rows.tail and isinstance(stage, WindowStage) and stage.kind is not None:
        assert unit is not None, part.op
        return Call(part.op, unit, (), (), unit.total, moved, times)
    whole = conv_of(geometry(graph, rows))
    going = ((part.op, unit),) if unit else ()
    others = rows.tail if unit else (part, *rows.tail)
    terms = [(each.op, scaled(in_one_go(graph, each), whole, p)) for each in others]
    return Call(part.op, None, terms, going, float(OUTPUT * p.h_out * p.w_out * p.c_out), moved, times)


def scaled(terms: Mapping[str, float], whole: Conv2d, strip: Conv2d) -> Terms:
    """What a step of all rows grows with, of some of them."""
    made, seen = strip.h_out / whole.h_out, min(1.0, strip.h_in / whole.h_in)
    part = {name: max(made, seen) if name.startswith("in ") else made for name in terms}
    same = ("step", "in channels", "out channels")
    return {name: value * (1.0 if name in same else part[name]) for name, value in terms.items()}
