"""The arena over the steps of one training iteration, as SVG or as a page of HTML around it.

x is the step, y the byte offset, a rectangle a tensor. The busiest step is marked, and beside the map stands
what is alive then. Every rectangle and every step tells its name and size when pointed at.
"""

from __future__ import annotations

from dataclasses import dataclass
from xml.sax.saxutils import escape

from microtrain.base.errors import Error
from microtrain.base.plan import Plan, Tensor
from microtrain.base.shapes import by

from .arena import arena_kinds

COLOURS = {
    "input": "#4e79a7",
    "activation": "#76b7b2",
    "saved": "#59a14f",
    "mask": "#b6d7a8",
    "error": "#e15759",
    "error_scale": "#ff9da7",
    "scratch": "#bab0ac",
    "head": "#f2b134",
    "imprint": "#b07aa1",
}
OTHER = "#9c755f"
LEFT, TOP, HEIGHT, PANEL = 78, 74, 560, 400
MAP_WIDTH = 1000
STRIP = 12  # height of the coloured strip of steps below the map
LIST_ROWS = 22
CHARACTER = 6.1  # width of one in the names, pixels at 10.5 px
FONT = "font-family='DejaVu Sans, Verdana, sans-serif'"


@dataclass(frozen=True)
class Scale:
    """Steps and bytes to pixels."""

    steps: int
    bytes: int

    def x(self, step: float) -> float:
        return LEFT + step * MAP_WIDTH / max(1, self.steps)

    def y(self, offset: float) -> float:
        return TOP + HEIGHT - offset * HEIGHT / max(1, self.bytes)


def draw(plan: Plan, suffix: str) -> str:
    """The picture as text; suffix: ".svg", ".html" or ".htm". Error for any other, or an empty plan."""
    check_suffix(suffix)
    if not plan.tensors:
        raise Error(f"{plan.path} lists no tensors: there is nothing to draw.")
    picture = svg(plan)
    return picture if suffix.lower() == ".svg" else page(plan, picture)


def check_suffix(suffix: str) -> None:
    """Error where a file of this name cannot be drawn."""
    if suffix.lower() not in (".svg", ".html", ".htm"):
        raise Error(f"a picture is written as .svg or .html, not as {suffix or 'a file without a suffix'!r}.")


def svg(plan: Plan) -> str:
    last = max(t.death for t in plan.tensors) + 1
    scale = Scale(max(last, len(plan.steps)), max(plan.arena.bytes, max(t.end for t in plan.tensors)))
    width, height = LEFT + MAP_WIDTH + 24 + PANEL, TOP + HEIGHT + 100
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' "
        f"width='{width}' height='{height}' {FONT} font-size='12'>",
        f"<rect width='{width}' height='{height}' fill='white'/>",
        text(
            LEFT,
            24,
            f"Arena of {plan.name}: {plan.arena.bytes:,} bytes over one training iteration",
            size=17,
            bold=True,
        ),
        *phases(plan, scale),
        *axis(scale),
        *(rectangle(t, scale) for t in sorted(plan.tensors, key=lambda t: (t.birth, -t.bytes, t.name))),
        *bound(plan, scale),
        *peak(plan, scale),
        *strip(plan, scale),
        *legend(plan, height),
        *panel(plan),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def text(x: float, y: float, words: str, size: float = 12, bold: bool = False, more: str = "") -> str:
    weight = " font-weight='bold'" if bold else ""
    return f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size:g}'{weight} {more}>{escape(words)}</text>"


def rectangle(t: Tensor, scale: Scale) -> str:
    """A tensor, with its name where there is room for it."""
    x, y = scale.x(t.birth), scale.y(t.end)
    w, h = scale.x(t.death + 1) - x, scale.y(t.offset) - y
    shape = by(t.shape)
    tip = f"{t.name}: {t.kind}, {t.bytes:,} bytes at {t.offset:,}, {t.dtype} {shape}, "
    tip += f"steps {t.birth} to {t.death}"
    edge = 0.7 if min(w, h) > 4 else 0  # an edge would hide a thin one
    found = (
        f"<rect class='tensor' x='{x:.1f}' y='{y:.1f}' width='{w:.1f}' height='{max(h, 0.6):.1f}' "
        f"fill='{COLOURS.get(t.kind, OTHER)}' stroke='white' stroke-width='{edge:g}'>"
        f"<title>{escape(tip)}</title></rect>"
    )
    room = int((w - 6) / CHARACTER)
    if h < 12 or room < 4:
        return found
    name = t.name if len(t.name) <= room else "…" + t.name[1 - room :]  # the end tells more
    if h >= 26 and len(f"{t.bytes:,} B") <= room:
        found += label(x, y + h / 2 + 10, f"{t.bytes:,} B")
        return found + label(x, y + h / 2 - 3, name)
    return found + label(x, y + h / 2 + 4, name)


def label(x: float, y: float, words: str) -> str:
    return text(x + 3, y, words, 10.5, more="pointer-events='none' fill='#222'")


def phases(plan: Plan, scale: Scale) -> list[str]:
    """Forward and backward as two backgrounds."""
    forward = sum(step.phase == "forward" for step in plan.steps)
    found = []
    for name, low, high, fill in (
        ("forward", 0, forward, "#f2f7fc"),
        ("backward", forward, scale.steps, "#fdf4f0"),
    ):
        if high > low:
            x, w = scale.x(low), scale.x(high) - scale.x(low)
            found.append(f"<rect x='{x:.1f}' y='{TOP}' width='{w:.1f}' height='{HEIGHT}' fill='{fill}'/>")
            found.append(text(x + 4, TOP - 8, f"{name}, steps {low} to {high - 1}", more="fill='#555'"))
    return found


def axis(scale: Scale) -> list[str]:
    """Offsets at the left."""
    found = []
    tick = nice(scale.bytes / 8)
    for offset in range(0, scale.bytes + 1, tick):
        y = scale.y(offset)
        words = f"{offset / 1024:g} KB" if tick >= 512 else f"{offset} B"
        found.append(text(LEFT - 8, y + 4, words, 11, more="text-anchor='end' fill='#444'"))
        found.append(
            f"<line x1='{LEFT}' y1='{y:.1f}' x2='{LEFT + MAP_WIDTH}' y2='{y:.1f}' "
            "stroke='#ddd' stroke-width='0.6'/>"
        )
    return found


def nice(size: float) -> int:
    """The power of two that is not below `size`."""
    tick = 8
    while tick < size:
        tick *= 2
    return tick


def bound(plan: Plan, scale: Scale) -> list[str]:
    """The least that any placement of these tensors needs."""
    y = scale.y(plan.arena.lower_bound)
    gap = 100 * (plan.arena.bytes / max(1, plan.arena.lower_bound) - 1)
    words = f"lower bound {plan.arena.lower_bound:,} bytes (arena {gap:.1f} % above it)"
    return [
        f"<line x1='{LEFT}' y1='{y:.1f}' x2='{LEFT + MAP_WIDTH}' y2='{y:.1f}' "
        f"stroke='#222' stroke-width='1.2' stroke-dasharray='7 4'><title>{words}</title></line>",
        text(LEFT + MAP_WIDTH, TOP - 26, f"- - {words}", 11, more="text-anchor='end' fill='#222'"),
    ]


def peak(plan: Plan, scale: Scale) -> list[str]:
    """A frame around the busiest step."""
    x, w = scale.x(plan.arena.peak_step), scale.x(plan.arena.peak_step + 1) - scale.x(plan.arena.peak_step)
    left = plan.arena.peak_step < scale.steps / 2
    place, anchor = (x, "start") if left else (x + w, "end")
    words = f"peak: step {plan.arena.peak_step}"
    return [
        f"<rect x='{x:.1f}' y='{TOP - 3}' width='{w:.1f}' height='{HEIGHT + 6}' fill='none' stroke='#b00020' "
        "stroke-width='2' pointer-events='none'/>",
        text(place, TOP + HEIGHT + STRIP + 34, words, 12, True, f"text-anchor='{anchor}' fill='#b00020'"),
    ]


def strip(plan: Plan, scale: Scale) -> list[str]:
    """The steps below the map: colour is the phase, numbers where there is room."""
    found = []
    every = max(1, round(scale.steps / 20))
    y = TOP + HEIGHT + 4
    for step in plan.steps:
        x, w = scale.x(step.index), scale.x(step.index + 1) - scale.x(step.index)
        fill = "#9ec3e6" if step.phase == "forward" else "#f0b49a"
        tip = escape(f"step {step.index}, {step.phase}: {step.op} of {step.layer}")
        found.append(
            f"<rect x='{x:.1f}' y='{y}' width='{max(w - 0.5, 0.5):.1f}' height='{STRIP}' fill='{fill}'>"
            f"<title>{tip}</title></rect>"
        )
        if step.index % every == 0:
            found.append(
                text(x + w / 2, y + STRIP + 13, str(step.index), 10, more="text-anchor='middle' fill='#444'")
            )
    return found


def legend(plan: Plan, height: float) -> list[str]:
    found = []
    x = float(LEFT)
    kinds = {t.kind for t in plan.tensors}
    for kind in [*(k for k in COLOURS if k in kinds), *sorted(kinds - COLOURS.keys())]:
        colour = COLOURS.get(kind, OTHER)
        found.append(f"<rect x='{x:.1f}' y='{height - 30}' width='13' height='13' fill='{colour}'/>")
        found.append(text(x + 18, height - 19, kind.replace("_", " ")))
        x += 40 + 7.2 * len(kind)
    return found


def panel(plan: Plan) -> list[str]:
    """What is alive at the busiest step, the largest first."""
    x, y = LEFT + MAP_WIDTH + 24, TOP + 4
    alive = plan.alive(plan.arena.peak_step)
    step = plan.steps[plan.arena.peak_step] if 0 <= plan.arena.peak_step < len(plan.steps) else None
    found = [text(x, y - 14, f"What makes the peak, step {plan.arena.peak_step}", 14, True, "fill='#b00020'")]
    if step is not None:
        found.append(
            text(x, y + 6, shorten(f"{step.phase}: {step.op} of {step.layer}", 58), 11, more="fill='#444'")
        )
    y += 30
    for t in alive[:LIST_ROWS]:
        found.append(
            f"<rect x='{x}' y='{y - 10}' width='11' height='11' fill='{COLOURS.get(t.kind, OTHER)}'/>"
        )
        found.append(f"<g>{text(x + 17, y, shorten(t.name, 44), 11)}<title>{escape(t.name)}</title></g>")
        found.append(text(x + PANEL - 12, y, f"{t.bytes:,}", 11, more="text-anchor='end'"))
        y += 18
    if len(alive) > LIST_ROWS:
        rest = alive[LIST_ROWS:]
        found.append(text(x + 17, y, f"and {len(rest)} smaller ones", 11, more="fill='#444'"))
        found.append(text(x + PANEL - 12, y, f"{sum(t.bytes for t in rest):,}", 11, more="text-anchor='end'"))
        y += 18
    for kind, size in arena_kinds(plan, plan.arena.peak_step).items():
        y += 15
        words = "between the tensors" if kind == "unused" else f"all {kind.replace('_', ' ')}"
        found.append(text(x + 17, y, words, 10.5, more="fill='#555'"))
        found.append(text(x + PANEL - 12, y, f"{size:,}", 10.5, more="text-anchor='end' fill='#555'"))
    return found


def shorten(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def page(plan: Plan, picture: str) -> str:
    """The picture in a page that outlines what the pointer is on."""
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f"<title>Arena of {escape(plan.name)}</title>\n"
        "<style>body{margin:1em;font-family:sans-serif}svg{max-width:100%;height:auto}"
        ".tensor:hover{stroke:#000;stroke-width:2}</style></head>\n<body>\n"
        f"{picture}</body></html>\n"
    )
