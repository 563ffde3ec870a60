"""What a conversion chose, in a few lines, and what to do next: for the terminal and for its page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from microtrain.base.columns import wrapped
from microtrain.base.plan import Plan, block_of
from microtrain.base.trained import SUMS
from microtrain.convert.boards import Limits
from microtrain.pictures.report import Line

PAGE = "report.html"
HERE = Path("GENERATED")  # the folder of the page, which is the same page wherever it lies
WORD = 12  # columns of the first word


def choices(plan: Plan, asked_for: bool) -> tuple[Line, ...]:
    """What is trained and how. asked_for: the user named the scheme."""
    scheme, rates = plan.scheme, plan.scheme.learning_rate
    why = "as asked for" if asked_for else "conversion's own choice"
    same = len({rates.weight, rates.bias, rates.head}) == 1
    apart = f"weights {rates.weight:g}, biases {rates.bias:g}, head {rates.head:g}"
    modules = scheme.lite_residuals
    faster = f"; modules learn at {modules.rate:g} times that of weights" if modules else ""
    return (
        ("trained", learns(plan)),
        ("scheme", f"{scheme.name}, {why}"),
        (
            "rate",
            f"{rates.head if same else apart}; weights keep {scheme.fraction_bits} fraction bits{faster}",
        ),
    )


def unsaved(plan: Plan, limits: Limits) -> tuple[Line, ...]:
    """That the board cannot save what it learns, where that is so."""
    learned = plan.trainables.bytes
    if limits.board is None or limits.board.can_save(learned):
        return ()
    if not limits.board.slot:
        return (("saved", "never: --no-checkpoints; `device pull` fetches what was learned"),)
    return (("saved", f"never: {learned:,} B to keep, and a checkpoint slot has {limits.board.slot:,} B"),)


def gated(plan: Plan) -> tuple[Line, ...]:
    """Which steps learn nothing, where there are any."""
    return (("gate", f"a step ends where the loss is below {plan.gate:g}"),) if plan.gate else ()


def coded(plan: Plan) -> tuple[Line, ...]:
    """What weights in 4 bits save and lose, where there are any."""
    found = plan.compression
    if found is None:
        return ()
    layers = "1 layer" if len(found.layers) == 1 else f"{len(found.layers)} layers"
    return (
        (
            "weights",
            f"4 bits in {layers}, {found.saved:,} B of flash less; of {found.images} samples that were not "
            f"learned from {found.same:.1%} are answered as before, signal to noise {found.signal:.1f} dB",
        ),
    )


def outside(plan: Plan, limits: Limits) -> tuple[Line, ...]:
    """Which weights lie beside the chip, where a flash there was given."""
    if limits.external is None:
        return ()
    found, name = plan.external, limits.external.name
    if found is None:
        return (("outside", f"nothing: all weights fit the chip's own flash, and {name} stays as it is"),)
    layers = "1 layer" if len(found.layers) == 1 else f"{len(found.layers)} layers"
    return (
        (
            "outside",
            f"frozen weights of {layers}, {found.bytes:,} B, in {name} beside the chip, which is slower to "
            "read; an upload writes it, too",
        ),
    )


def learns(plan: Plan) -> str:
    """What learns, in words: "the head, biases of 9 layers, weights of 3 layers, 2 lite residual modules"."""
    tensors = plan.trainables.tensors
    kinds = [tensor.kind for tensor in tensors if block_of(tensor.layer) is None]
    modules = len({block_of(tensor.layer) for tensor in tensors} - {None})
    biases, weights = kinds.count("bias"), kinds.count("weight")
    parts = ["the head"] if "head_weight" in kinds else ["classes by their means"] if SUMS in kinds else []
    if biases:
        parts.append("biases of 1 layer" if biases == 1 else f"biases of {biases} layers")
    if weights:
        parts.append("weights of 1 layer" if weights == 1 else f"weights of {weights} layers")
    if modules:
        parts.append("a lite residual module" if modules == 1 else f"{modules} lite residual modules")
    return ", ".join(parts)


def commands(limits: Limits, folder: Path = HERE) -> tuple[Line, ...]:
    """Why, and the command line. SAMPLES: a folder with a folder of them for each class."""
    simulate = ("train on this machine, same bits", f"microtrain simulate {folder} --data SAMPLES")
    if limits.board is None:
        return (("build for this machine", "pio run -e native"), simulate)
    elf = f".pio/build/{limits.board.name}/firmware.elf"
    return (
        simulate,
        ("build and flash", f"pio run -e {limits.board.name} -t upload"),
        ("measured sizes", f"microtrain report --elf {elf}"),
        ("train the board", "microtrain device --port PORT train SAMPLES"),
    )


def text(choices: Sequence[Line], commands: Sequence[Line], width: int) -> str:
    """Choices and commands for a terminal of that width; commands stay in one line each."""
    lines = [wrapped(f"{word:<{WORD}}{said}", width, WORD) for word, said in choices]
    lines += [f"{'' if i else 'next':<{WORD}}{command}" for i, (_, command) in enumerate(commands)]
    return "\n".join(lines)
