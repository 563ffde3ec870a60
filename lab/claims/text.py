"""The parts of README and pages/demo.md that numbers stand in."""

from __future__ import annotations

from typing import Any

from lab.bench.cases import TIGHT_KB
from lab.bench.records import Row

from .record import COURSES, SEEDS, Record

COMMAND = "python lab/claims"
NETWORK, SCHEME = "mcunet-5fps", "mcunet-49kb"
# The training example of the engine of arXiv 2206.15472, built with arm-none-eabi-gcc 12 -Ofast, and counted.
PUBLISHED = {"sram": 258_048, "flash": 680_960, "inference": 65.0e6, "step": 106.4e6}
TRAINED = {
    "scheme": "head, 9 biases, weights of 3 layers",
    "bias": "head, 9 biases",
    "head": "head",
}
DEMO = """\
The demo's network was pretrained on the digits 0 to 6. On the emulated board it meets all ten, slanted,
thicker and partly inverted: {steps} images, each of them once. Its accuracy on {images} new images rises from
{before} to **{after}**; training only the last layer gives {head}. All of it takes {sram} bytes of SRAM, and
the trained weights equal, bit for bit, those that a PC computes. [More about the demo](lab/pages/demo.md)."""


def readme(record: Record, rows: list[Row]) -> dict[str, str]:
    """The parts of README by name, from the record and the rows of the benchmark."""
    return {"demo": demo(record["report"]), "table": engine(rows)}


def demo_page(record: Record) -> dict[str, str]:
    """The parts of pages/demo.md by name."""
    return {"report": report(record["report"]), "schemes": schemes(record)}


def demo(found: dict[str, Any]) -> str:
    """The demo in a few sentences."""
    shares = {key: share(found[f"accuracy_{key}"]) for key in ("before", "after")}
    return DEMO.format(
        steps=found["train_steps"],
        images=found["test_images"],
        head=share(found["accuracy_head_only"]),
        sram=f"{found['sram_reported']:,}",
        **shares,
    )


def engine(rows: list[Row]) -> str:
    """MCUNet with the published scheme: the published engine's numbers and ours."""
    own, tight = case(rows, None), case(rows, TIGHT_KB[SCHEME, 0])
    sram = f"**{own['sram_all_in']:,}**; {tight['sram_all_in']:,} with recomputation"
    body = [
        ["SRAM in all, bytes", f"{PUBLISHED['sram']:,}", sram],
        ["flash, bytes", f"{PUBLISHED['flash']:,}", f"**{own['flash_bytes']:,}**"],
        ["instructions of an inference", millions(PUBLISHED["inference"]), ours(own, "inference")],
        ["instructions of a training step", millions(PUBLISHED["step"]), ours(own, "step")],
    ]
    return table(["", "published engine", "microtrain"], body)


def case(rows: list[Row], budget_kb: int | None) -> Row:
    """The row of the README's network with int8 weights, as planned or within a budget."""
    wanted = (NETWORK, SCHEME, 0, budget_kb, None, None)
    keys = ("network", "scheme", "fraction_bits", "budget_kb", "weights_bits", "requantize")
    return next(row for row in rows if tuple(row.get(key) for key in keys) == wanted)


def ours(row: Row, what: str) -> str:
    return f"**{millions(row[f'{what}_instructions'])}**"


def report(found: dict[str, Any]) -> str:
    """The report as a table."""
    accuracies = " / ".join(share(found[f"accuracy_{key}"]) for key in ("after", "bias_only", "head_only"))
    body = [
        ["accuracy before training", share(found["accuracy_before"])],
        ["after: sparse scheme / head and biases / head alone", accuracies],
        ["SRAM in all, bytes: reported / measured", pair(found, "sram_reported", "sram_measured")],
        ["flash image, bytes", f"{found['flash_bytes']:,}"],
        [
            "instructions: inference / training step",
            pair(found, "inference_instructions", "step_instructions"),
        ],
        ["SHA-256 of the trained weights", f"`{found['sha256_device']}`"],
    ]
    return table(["", ""], body)


def schemes(record: Record) -> str:
    """A line for each scheme; accuracies of the seeds stand beside each other."""
    titles = ["scheme", "trained", "trainables, bytes", "backward MACs", *(c.title for c in COURSES)]
    body = [
        [
            f"`{name}.yaml`",
            TRAINED[name],
            f"{found['trainables']:,}",
            f"{found['backward_macs']:,}",
            *(" / ".join(map(share, found["accuracy"][course.title])) for course in COURSES),
        ]
        for name, found in record["schemes"].items()
    ]
    assert all(len(found["accuracy"][COURSES[0].title]) == len(SEEDS) for found in record["schemes"].values())
    return table(titles, body)


def pair(found: dict[str, Any], first: str, second: str) -> str:
    return f"{found[first]:,} / {found[second]:,}"


def share(accuracy: float) -> str:
    return f"{100 * accuracy:.1f} %"


def millions(count: float) -> str:
    return f"{count / 1e6:.1f} M"


def table(titles: list[str], body: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [titles, ["---"] * len(titles), *body])
