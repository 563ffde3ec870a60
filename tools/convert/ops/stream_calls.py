"""The calls of a stream's stages, as stream.c makes them: how many rows of which stage at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from microtrain.convert import ops
from microtrain.convert.ir import Graph, Node
from microtrain.convert.reference.hostlib import Record

from . import hop
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
    together: int

    def largest(self, helium: bool) -> float:
        """Work of the largest unit."""
        return self.unit.largest(helium) if self.unit else self.work


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

    def slid(self, shift: int) -> None:
        """How it stands when its input has moved by so many rows: moved() of hop.c."""
        rows = self.fed - min(max(self.made * self.p.stride_h, shift), self.fed)
        self.made = max(self.made - shift // self.p.stride_h, 0)
        self.fed = max(self.fed - shift, 0)
        self.first = self.fed - rows

    def ready(self) -> int:
        need = self.made * self.p.stride_h + self.p.kh
        ready = 0 if self.fed < need else (self.fed - need) // self.p.stride_h + 1
        return int(min(ready, self.p.h_out - self.made))


@dataclass
class _Run:
    """A stream on its way.

    strip     rows that enter at once
    read      the first stage reads them from x itself
    arrives   they come one by one, and a piece ends with each
    times     (stage, rows) -> how often they are made
    now       since the last such end
    together  and at most between two ends
    moved     and the most bytes that are moved for it
    """

    stage: list[_Stage]
    strip: int
    read: bool
    arrives: bool
    times: Counter[tuple[int, int]] = field(default_factory=Counter)
    now: Counter[tuple[int, int]] = field(default_factory=Counter)
    together: Counter[tuple[int, int]] = field(default_factory=Counter)
    moved: Counter[tuple[int, int]] = field(default_factory=Counter)

    def make(self, i: int, rows: int, moved: int) -> None:
        last = i + 1 == len(self.stage)
        moved += 0 if last else self.stage[i + 1].opened()
        self.times[i, rows] += 1
        self.now[i, rows] += 1
        self.moved[i, rows] = max(self.moved[i, rows], moved)
        if not last:
            self.stage[i + 1].fed += rows
        self.stage[i].made += rows

    def advance(self, i: int, moved: int) -> None:
        while i < len(self.stage) and (rows := self.stage[i].ready()):
            self.make(i, rows, moved)
            i, moved = i + 1, 0

    def enter(self, rows: int) -> None:
        """The next rows of the input."""
        first = self.stage[0]
        for row in range(0, rows, self.strip):
            if self.arrives:
                self.end()
            new = min(self.strip, rows - row)
            if self.read:
                self.make(0, new, 0)
                self.advance(1, 0)
            else:
                moved = first.opened() + new * first.in_bytes
                first.fed += new
                self.advance(0, moved)

    def finish(self) -> None:
        for i, stage in enumerate(self.stage):
            while stage.made < stage.p.h_out:
                left = (stage.p.h_out - 1) * stage.p.stride_h + stage.p.kh - stage.fed
                rows = min(left, stage.most)
                moved = stage.opened() + rows * stage.in_bytes
                stage.fed += rows
                self.advance(i, moved)
        self.end()

    def end(self) -> None:
        """Of a piece, at the latest."""
        self.together |= self.now
        self.now.clear()


def calls_of(graph: Graph, node: Node) -> Iterator[Call]:
    """All calls of a stream, those that are alike once; also behind a slide."""
    run = _begun(graph, node)
    run.enter(run.stage[0].p.h_in)
    run.finish()
    if graph.hop and not resident(graph, node) and hop.kept(graph).goes:
        other = _slid(graph, node)
        other.enter(graph.hop)
        other.finish()
        run.times, run.moved = run.times | other.times, run.moved | other.moved
        run.together |= other.together
    yield from _calls(graph, node, run)


def calls_of_slide(graph: Graph) -> Iterator[Call]:
    """Those of hop_slide(), for rows that enter anew."""
    node = graph.nodes[0]
    run = _begun(graph, node)
    run.enter(hop.kept(graph).again)
    yield from _calls(graph, node, run)


def _calls(graph: Graph, node: Node, run: _Run) -> Iterator[Call]:
    chain = stages(node.parts)
    for (i, rows), times in sorted(run.times.items()):
        p, moved, together = strip_of(run.stage[i].p, rows), run.moved[i, rows], run.together[i, rows]
        yield _call(graph, chain[i], p, moved, times, together)
        if i + 1 == len(chain) and closing_row(graph, node) is not None:
            part = node.parts[-1]
            terms = scaled(in_one_go(graph, part), run.stage[i].p, p)
            work = 2.0 * OUTPUT * rows * p.w_out * p.c_out
            yield Call(part.op, None, ((part.op, terms),), (), work, 0, times, together)


def _begun(graph: Graph, node: Node) -> _Run:
    found, most = [], node.rows
    for rows in stages(node.parts):
        p = conv_of(geometry(graph, rows))
        found.append(_Stage(p, most))
        most = -(-most // p.stride_h)
    first, whole = found[0].p, resident(graph, node)
    read = whole and first.kh == first.stride_h == 1 and first.pad_h == 0
    return _Run(found, node.rows, read, not whole)


def _slid(graph: Graph, node: Node) -> _Run:
    """A window that has moved on, and whose stages go on from there."""
    run, before, shift = _begun(graph, node), _begun(graph, node), graph.hop
    before.enter(before.stage[0].p.h_in)
    run.enter(hop.kept(graph).again)
    for stage in before.stage:
        stage.slid(shift)
        shift //= stage.p.stride_h
    run.stage = before.stage
    return run


def conv_of(record: Record) -> Conv2d:
    assert isinstance(record, Conv2d)
    return record


def strip_of(p: Conv2d, rows: int) -> Conv2d:
    """Parameters of so many output rows, whose input is the image, padding included."""
    strip = Conv2d.from_buffer_copy(p)
    strip.h_in, strip.h_out, strip.pad_h = (rows - 1) * p.stride_h + p.kh, rows, 0
    return strip


def _call(graph: Graph, rows: Rows, p: Conv2d, moved: int, times: int, together: int) -> Call:
    part, stage = rows.first, stage_of(rows.first)
    unit = ops.TABLE[part.op].unit(graph, part, p) if isinstance(stage, WindowStage) else None
    if not rows.tail and isinstance(stage, WindowStage) and stage.kind is not None:
        assert unit is not None, part.op
        return Call(part.op, unit, (), (), unit.total, moved, times, together)
    whole = conv_of(geometry(graph, rows))
    going = ((part.op, unit),) if unit else ()
    others = rows.tail if unit else (part, *rows.tail)
    terms = [(each.op, scaled(in_one_go(graph, each), whole, p)) for each in others]
    return Call(
        part.op, None, terms, going, float(OUTPUT * p.h_out * p.w_out * p.c_out), moved, times, together
    )


def scaled(terms: Mapping[str, float], whole: Conv2d, strip: Conv2d) -> Terms:
    """What a step of all rows grows with, of some of them."""
    made, seen = strip.h_out / whole.h_out, min(1.0, strip.h_in / whole.h_in)
    part = {name: max(made, seen) if name.startswith("in ") else made for name in terms}
    same = ("step", "in channels", "out channels")
    return {name: value * (1.0 if name in same else part[name]) for name, value in terms.items()}
