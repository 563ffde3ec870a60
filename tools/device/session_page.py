"""A session as a page: its curve, which classes were taken for which, and the images that went worst.

One file of HTML that needs nothing beside it.
"""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from pathlib import Path

from PIL import Image

from microtrain.base.files import replacing
from microtrain.samples.source import Dataset, Sample, evenly, load

from .curve import curve_svg
from .session import Evaluation, Log, name_of

WORST = 12  # images of a kind that are shown
SIDE = 96  # pixels of a thumbnail
COLOURS = 3  # channels of a picture that is not grey
STYLE = """
body{margin:2em auto;max-width:72em;padding:0 1em;font:16px/1.5 sans-serif;color:#222}
h1{font-size:1.6em}h2{font-size:1.2em;margin-top:2em}svg{max-width:100%;height:auto}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.85em}
td,th{padding:.2em .5em;text-align:right;font-variant-numeric:tabular-nums;border:1px solid #ddd}
th{font-weight:600;text-align:left}td.right{background:#dcefd6}
figure{display:inline-block;margin:.4em;width:9em;vertical-align:top;font-size:.8em}
figure img{width:6em;image-rendering:pixelated;display:block}
"""


def save_page(path: Path, log: Log, shape: tuple[int, int, int], datasets: Iterable[Dataset]) -> None:
    """Write the page of a session.

    shape     of the model's input
    datasets  whose images it may show
    Errors    FileError where it cannot be written
    """
    files = {name_of(sample): sample for dataset in datasets for sample in dataset.samples}
    title = f"{escape(str(log.device['model']))} on {escape(str(log.device['board']))}"
    body = "\n".join([f"<h1>{title}</h1>", *_parts(log, shape, files)])
    head = f"<meta charset='utf-8'><title>{title}</title><style>{STYLE}</style>"
    with replacing(path) as part:
        part.write_text(
            f"<!doctype html>\n<html lang='en'><head>{head}</head>\n<body>\n{body}\n</body></html>\n",
            encoding="utf-8",
        )


def _parts(log: Log, shape: tuple[int, int, int], files: Mapping[str, Sample]) -> Iterator[str]:
    if log.steps:
        yield f"<h2>How it went</h2>{curve_svg(log)}"
    if not log.evaluations:
        yield f"<p>No {log.noun}s were held out: <code>--eval FOLDER</code> names some.</p>"
        return
    last = log.evaluations[-1]
    yield f"<p>{last.correct} of {last.total} held-out {log.noun}s are right, {last.accuracy:.1%}.</p>"
    yield f"<h2>What was taken for what</h2><div class='wide'>{confusion(last, log.classes)}</div>"
    wrong = [(name, f"{log.classes[k]}, not {log.classes[label]}") for name, label, k in last.misses]
    yield _pictures(f"Held-out {log.noun}s that are wrong", wrong, shape, files)
    yield _pictures(f"Training {log.noun}s that cost most", list(_dearest(log)), shape, files)


def confusion(result: Evaluation, classes: tuple[str, ...]) -> str:
    """A table: a row for each class, a column for what its held-out images were taken for."""
    taken = Counter((label, predicted) for _, label, predicted in result.misses)
    header = "".join(f"<th>{escape(name)}</th>" for name in classes)
    lines = [f"<tr><th>class</th>{header}</tr>"]
    for label, name in enumerate(classes):
        right, total = result.by_class[label]
        cells = []
        for predicted in range(len(classes)):
            count = right if predicted == label else taken[label, predicted]
            cells.append(_cell(count, total, predicted == label))
        lines.append(f"<tr><th>{escape(name)}</th>{''.join(cells)}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _cell(count: int, total: int, right: bool) -> str:
    if right:
        return f"<td class='right'>{count}</td>"
    share = count / total if total else 0.0
    return f"<td style='background:rgba(217,96,12,{min(1.0, 1.5 * share):.2f})'>{count or ''}</td>"


def _dearest(log: Log) -> Iterator[tuple[str, str]]:
    """Training images with the largest loss when they were last shown, and how large it was."""
    last = {step.file: step for step in log.steps}
    for step in sorted(last.values(), key=lambda s: -s.loss)[:WORST]:
        taken = "" if step.predicted == step.label else f", taken for {log.classes[step.predicted]}"
        yield step.file, f"{log.classes[step.label]}: loss {step.loss:.2f}{taken}"


def _pictures(
    title: str, named: list[tuple[str, str]], shape: tuple[int, int, int], files: Mapping[str, Sample]
) -> str:
    """Images with what is said of them: WORST at most, from all over the list."""
    known = [(files[name], words) for name, words in named if name in files]
    if not known:
        return ""
    shown = evenly(known, WORST)
    more = f" ({len(shown)} of {len(known)})" if len(known) > len(shown) else ""
    return f"<h2>{title}{more}</h2>" + "".join(_figure(sample, words, shape) for sample, words in shown)


def _figure(sample: Sample, words: str, shape: tuple[int, int, int]) -> str:
    """A picture of a sample: of one that is none, a series say, its rows in grey."""
    pixels = load(sample.path, shape)
    picture = Image.fromarray(pixels if shape[2] == COLOURS else pixels.reshape(shape[0], -1))
    picture.thumbnail((SIDE, SIDE))
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    data = base64.b64encode(stream.getvalue()).decode()
    alt = escape(name_of(sample), quote=True)
    source = f"data:image/png;base64,{data}"
    return f"<figure><img src='{source}' alt='{alt}'><figcaption>{escape(words)}</figcaption></figure>"
