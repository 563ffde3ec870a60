"""lab/pages/recipe.md, from the rows beside it."""

from __future__ import annotations

from collections.abc import Sequence

from lab import notes
from microtrain.base.paths import ROOT

from . import parts
from .cases import SCHEMES
from .known import key_of
from .sets import ARCHIVES, FURTHER
from .table import Row, gates, tables, together

PAGE, ROWS = ROOT / "lab/pages/recipe.md", ROOT / "lab/pages/recipe.json"
ABOUT = """# What a board learns with nothing tuned

Written by `python lab/recipe --page` from [recipe.json](recipe.json), in which every row has the command
that made it, and the hash of what the device had learned at its end; `--verify` behind the command runs a
row again and compares. Accuracy in percent on at most 400 held-out images, means over three published
networks (MCUNet-5FPS, ProxylessNAS 0.3, MobileNetV2 0.35; the 49 KB schemes with 4 fraction bits, at most
90 KB of SRAM all in, statistics of features included, beside what the default remembers) and over seeds,
which draw the images: lines of as many seeds have seen the same. All that learns is the device's own
arithmetic, bit for bit, but the heads in closed form and `pc-tail`.

- **default**: what `convert` and `device train` do by themselves: one look at each image makes the head. What
  SRAM the board has left (of 128 KB in order) remembers images, and a session ends with a rehearsal of them
  ([how](../../docs/imprint.md#what-is-remembered)). Six passes that somebody asks for have a cosine in its
  place.
- **look**: that head alone, as the device makes it. **lda**, **ridge**, **ncm**: heads in closed form on the
  same features in float64, with the covariance of all features; ridge with its penalty by leave-one-out.
- **before**: a head of zeros and a constant rate. **cosine**: a head of zeros, twice the rate on a cosine.
- **exact**: `default` with records as they are: a third to a sixth as many fit into the same SRAM, and where
  that is fewer than five a class (MCUNet with 19 classes) conversion makes no buffer.
- **found**: `default` with the scheme that `search` found on clothing10, no larger than the published one.
  **unsearched**: with the one that conversion chooses where none is named. Records fill the same SRAM.
- **shuffled**: `default` on the same board in 128 KB, where the images come shuffled.
- **head**: as default, but nothing learns behind the head.
- **six-passes-before**: `cosine`, each image six times. **pc-tail**: the same trainables in PyTorch, float32,
  AdamW, the best of three rates by the very accuracy shown.

Such tables of your own images, a folder of class folders, and of your own network if you want, in minutes:

    python lab/recipe --data photos --model model.pt2 --seeds 1 --only "photos/*/shots-10/*"

"""
GATED = """
## Steps that are not taken

`default` with `convert --gate LOSS`: a step ends where the loss is below, without a backward pass, on records
too. Accuracy, and how many of all steps ended so; the default above them has the same sessions.

{table}

What that saves is in the next table: a third of a step on a new image, and more than half of one on a record.
"""
COSTS = """
## What each part costs

MCUNet-5FPS with the 49 KB scheme, 4 fraction bits and ten classes, built by {compiler};
each firmware has what stands to the left of it as well. Measured by `python lab/recipe --parts`: SRAM and
flash as in the [benchmark](bench.md), instructions on the board model, of a network that has learned for a
step. Records may fill 320 KB.

{table}

The statistics lie where the first layers would compute more rows at a time: that is what an inference and a
step take more. To keep a code means to look for the nearest of 256 vectors, for each few values.

Refused, at equal memory: [exact records and finer codes](replay.md#what-codes-lose-and-what-views-do) and
[lite residual modules](arithmetic.md#lite-residual-modules);
[momentum and mean gradients](arithmetic.md#optimiser-state-at-equal-bytes).
"""
BESIDE = """
## Sets that nothing was chosen on

The same commands on public sets that are not in the test data. No rate, number of steps or threshold of the
defaults was chosen on them. Put a set into build/sets, in a folder of this name, and say for instance

    python lab/recipe --data build/sets/{first} --only "{first}/*/shots-10/*"

{sources}

"""
ALL = """
## All sets together

Means over sets, each of which counts the same, of the arms that were measured on every one of them. What the
defaults are was chosen on sets of the test data alone.

{table}
"""


def write(rows: Sequence[Row]) -> None:
    """Both files, of the published networks on sets that anybody can have. Rows that were there stay, but for
    those that were made anew."""
    known = {key_of(row): row for row in (*notes.read(ROWS, []), *rows)}
    public = {**ARCHIVES, **FURTHER}
    ordered = sorted(
        (row for row in known.values() if row["network"] in SCHEMES and row["dataset"] in public),
        key=lambda row: [str(row[key]) for key in ("protocol", "dataset", "network", "arm", "seed")],
    )
    notes.write(ROWS, ordered)
    PAGE.write_text(text(ordered, notes.read(parts.RESULT, None)), encoding="utf-8")


def text(rows: Sequence[Row], costs: parts.Numbers | None) -> str:
    """The page. costs: what parts.measured() gives; None: nothing was measured yet"""
    further = [row for row in rows if row["dataset"] in FURTHER]
    found = ABOUT + tables([row for row in rows if row["dataset"] in ARCHIVES])
    found += beside(further) + tables(further, "###") if further else ""
    found += all_sets(rows)
    ended = gates(rows)
    found += GATED.format(table="\n".join(ended)) if ended else ""
    if costs is None:
        return found
    return found + COSTS.format(compiler=costs["compiler"], table="\n".join(parts.table(costs)))


def all_sets(rows: Sequence[Row]) -> str:
    """Means over the sets of the test data, the further ones, and both; nothing where no arm has them all."""
    groups = {
        f"the {len(ARCHIVES)} of the test data": tuple(ARCHIVES),
        f"the {len(FURTHER)} that nothing was chosen on": tuple(FURTHER),
        f"all {len(ARCHIVES) + len(FURTHER)}": (*ARCHIVES, *FURTHER),
    }
    found = together(rows, groups)
    return ALL.format(table="\n".join(found)) if found else ""


def beside(rows: Sequence[Row]) -> str:
    """What the sets are that are not in the test data."""
    names = sorted({row["dataset"] for row in rows})
    sources = "\n".join(
        f"- **{name}**: {FURTHER[name].words} ([source]({FURTHER[name].address}))." for name in names
    )
    return BESIDE.format(first=names[0], sources=sources)
