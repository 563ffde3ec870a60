"""The page of a conversion: what was chosen, where the memory goes, what is trained, and what to do next.

One file of HTML that needs nothing beside it: no script, no font, no address.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from microtrain.base.plan import Budget, Layer, Plan
from microtrain.base.shapes import by

from .arena_map import svg

Line = tuple[str, str]  # a word and what is to be said about it
COLOURS = ("#4e79a7", "#59a14f", "#f2b134", "#e15759", "#76b7b2", "#9c755f")
STYLE = """
body{margin:2em auto;max-width:72em;padding:0 1em;font:16px/1.5 sans-serif;color:#222}
h1{font-size:1.6em}h2{font-size:1.2em;margin-top:2em}svg{max-width:100%;height:auto}
table{border-collapse:collapse}.wide td{white-space:nowrap}
td,th{padding:.15em .8em .15em 0;text-align:left;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}th{font-weight:600}
tr.learns td{background:#eaf4e6}.wide{overflow-x:auto}.wide table{font-size:.85em}
.bar{display:flex;height:1.6em;background:#eee;margin:.2em 0;overflow:hidden}.bar i{display:block}
.key i{display:inline-block;width:.8em;height:.8em;margin:0 .4em 0 1em}.over{color:#b00020;font-weight:600}
pre{background:#f5f5f5;padding:.7em 1em;overflow-x:auto}.tensor:hover{stroke:#000;stroke-width:2}
"""


@dataclass(frozen=True)
class Firmware:
    """Bytes of the firmware beside the model; estimates, before it is built."""

    sram: int
    flash: int


@dataclass(frozen=True)
class Story:
    """What the page tells beside what plan.json says.

    choices       what was chosen and why, one line each
    commands      what to do next: a comment and a command line
    firmware      what it takes beside the model
    quantization  picture of the quantization report as SVG; "" where none was asked for
    """

    choices: Sequence[Line]
    commands: Sequence[Line]
    firmware: Firmware
    quantization: str = ""


def report(plan: Plan, story: Story) -> str:
    """The page of a conversion."""
    parts = [
        f"<h1>{escape(plan.name)}: what the board gets</h1>",
        _definitions(story.choices),
        "<h2>Memory</h2>",
        *_memory(plan, story.firmware),
        f"<div class='wide'>{svg(plan)}</div>" if plan.tensors else "",
        "<h2>What is trained</h2>",
        _layers(plan.layers),
        "<h2>Quantization</h2>",
        _quantization(story.quantization),
        "<h2>Next</h2>",
        _commands(story.commands),
    ]
    title = f"{escape(plan.name)}: conversion"
    head = f"<meta charset='utf-8'><title>{title}</title><style>{STYLE}</style>"
    body = "\n".join(filter(None, parts))
    return f"<!doctype html>\n<html lang='en'><head>{head}</head>\n<body>\n{body}\n</body></html>\n"


def _definitions(lines: Iterable[Line]) -> str:
    rows = (f"<tr><th>{escape(word)}</th><td>{escape(said)}</td></tr>" for word, said in lines)
    return f"<table>{''.join(rows)}</table>"


def _memory(plan: Plan, firmware: Firmware) -> list[str]:
    budget = plan.budget or Budget(0, 0)
    replay = {"replay buffer": plan.replay.bytes} if plan.replay else {}
    sram = {"arena": plan.sram.arena, "trainables": plan.sram.trainables, **replay}
    kinds = plan.flash
    flash = {
        "weights": kinds.weights,
        "biases": kinds.biases,
        "tables": kinds.tables,
        "start values": kinds.trainables_init,
    }
    return [
        _bar("SRAM", {**sram, "firmware (estimate)": firmware.sram}, budget.sram),
        _bar("flash", {**flash, "firmware (estimate)": firmware.flash}, budget.flash),
    ]


def _bar(name: str, parts: dict[str, int], size: int) -> str:
    """Parts of a memory side by side, against its size in bytes; 0: it has none."""
    total = sum(parts.values())
    width = max(total, size, 1)
    pieces, key = [], []
    for colour, (part, count) in zip(COLOURS, parts.items(), strict=False):
        pieces.append(
            f"<i style='width:{100 * count / width:.2f}%;background:{colour}' "
            f"title='{escape(part)}: {count:,} bytes'></i>"
        )
        key.append(f"<i style='background:{colour}'></i>{escape(part)} {count:,}")
    of = f" of {size:,}" if size else ""
    over = f" <span class='over'>{total - size:,} over</span>" if size and total > size else ""
    return (
        f"<p><b>{name}</b> {total:,}{of} bytes{over}</p><div class='bar'>{''.join(pieces)}</div>"
        f"<p class='key'>{''.join(key)}</p>"
    )


def _layers(layers: Iterable[Layer]) -> str:
    titles = ("layer", "op", "in", "out", "trained")
    numbers = ("MACs", "flash B", "trainable B", "kept for training B")
    head = "".join(f"<th>{t}</th>" for t in titles) + "".join(f"<th class='n'>{t}</th>" for t in numbers)
    rows = "\n".join(_layer(layer) for layer in layers)
    note = "<p>Green rows learn. Sizes are height x width x channels; a series is as high as it is long.</p>"
    return f"{note}<div class='wide'><table><tr>{head}</tr>\n{rows}</table></div>"


def _layer(layer: Layer) -> str:
    learns = layer.trained not in ("", "-")
    words = (layer.layer, layer.op, by(layer.input), by(layer.output), layer.trained)
    numbers = (
        layer.macs,
        layer.flash_bytes,
        layer.trainable_bytes,
        layer.saved_bytes + layer.mask_bytes,
    )
    cells = "".join(f"<td>{escape(word)}</td>" for word in words)
    cells += "".join(f"<td class='n'>{n:,}</td>" if n else "<td></td>" for n in numbers)
    return f"<tr{' class=learns' if learns else ''}>{cells}</tr>"


def _quantization(picture: str) -> str:
    if picture:
        return f"<div class='wide'>{picture[picture.index('<svg') :]}</div>"
    return "<p>Convert with <code>--quantization</code> to see, layer by layer, what int8 costs.</p>"


def _commands(lines: Iterable[Line]) -> str:
    text = "\n".join(f"{escape(command)}   # {escape(why)}" for why, command in lines)
    return f"<pre>{text}</pre>"
