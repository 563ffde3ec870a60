"""An ESTIMATE of cycles: how often each basic block ran, times what llvm-mca's model of the core takes for
it, and the cycles that the modelled caches made it wait.

llvm-mca issues in order, on the Cortex-M7 two instructions at once. The cache model sees every fetch, load
and store that the firmware makes (cache.h states its assumptions); a board made without `caches=True`, and a
Cortex-M4, have none, and the estimate is that of a core that never waits. Neither knows mispredicted
branches: real numbers come from the device's own cycle counter.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from microtrain.base.columns import wrapped

from .board import Board
from .errors import EmulatorError
from .memory import FLASH_BASE
from .report import CacheUse

COVERED = 0.995  # share of all instructions whose blocks are looked at; the rest is scaled
ITERATIONS = 100
WIDTH = 80  # of a line of the report
VERSIONS = ("llvm-mca", *(f"llvm-mca-{version}" for version in range(22, 13, -1)))
CONDITIONS = "eq ne cs cc mi pl vs vc hi ls ge lt gt le hs lo".replace(" ", "|")
BRANCH = re.compile(rf"b(?:l|lx|x)?({CONDITIONS})?(?:\.[nw])?$")
LABEL = ".Lblock"
KNOWN: dict[tuple[str, str, str], float | None] = {}  # what llvm-mca said, of (program, core, source)


@dataclass(frozen=True)
class Block:
    """A basic block in flash: `runs` times, `retired` instructions and `stalls` cycles in all."""

    address: int
    size: int
    runs: int
    retired: int
    stalls: int


@dataclass
class Estimate:
    """issue       cycles to issue everything that ran in flash, no access ever waiting
    cache          misses, and the cycles that they cost; zeros where the board models no caches
    instructions   retired in flash
    unknown        blocks that llvm-mca could not read; counted as one cycle per instruction
    by_function    issue and stall cycles of the blocks that were looked at
    """

    cache: CacheUse
    issue: float = 0.0
    instructions: int = 0
    unknown: int = 0
    by_function: dict[str, float] = field(default_factory=dict)

    @property
    def cycles(self) -> float:
        """Of everything: issue and stalls."""
        return self.issue + self.cache.stalls


def hot_blocks(board: Board) -> tuple[list[Block], int]:
    """The dearest blocks, COVERED of all instructions, and the number of all instructions."""
    counters = board.engine.counters[0]
    retired = memoryview(counters.retired).cast("B").cast("Q")
    blocks = []
    for i, count in enumerate(retired):
        if count:
            size = counters.blocks[i] >> 16
            blocks.append(Block(FLASH_BASE + 2 * i, size, counters.entries[i], count, counters.stalls[i]))
    blocks.sort(key=lambda block: (-block.retired, block.address))
    total, seen = sum(block.retired for block in blocks), 0
    for i, block in enumerate(blocks):
        seen += block.retired
        if seen >= COVERED * total:
            return blocks[: i + 1], total
    return blocks, total


def estimate(board: Board) -> Estimate:
    """Cycles since power-on or `clear_profile`.

    Errors   EmulatorError where llvm-mca or objdump is not installed
    """
    mca = next(filter(None, map(shutil.which, VERSIONS)), None)
    objdump = shutil.which("arm-none-eabi-objdump")
    if mca is None or objdump is None:
        missing = "llvm-mca" if mca is None else "arm-none-eabi-objdump"
        package = "llvm" if mca is None else "binutils-arm-none-eabi"
        raise EmulatorError(f"no cycle estimate: {missing} is not on PATH (`apt install {package}`).")
    blocks, total = hot_blocks(board)
    code = _disassemble(objdump, board.image.path)
    taken = _cycles_of(mca, board.chip.cpu, [_source(code, block) for block in blocks])
    result = Estimate(board.cache_use(), instructions=total)
    issue = 0.0
    for block, cycles in zip(blocks, taken, strict=True):
        if cycles is None:
            result.unknown += 1
            cycles = block.retired / block.runs
        function = board.image.function(block.address)
        name = function.name if function else "?"
        issue += cycles * block.runs
        result.by_function[name] = result.by_function.get(name, 0.0) + cycles * block.runs + block.stalls
    seen = sum(block.retired for block in blocks)
    result.issue = issue * total / seen if seen else 0.0
    return result


def report(board: Board, rows: int = 20) -> str:
    """The estimate as text, or the sentence that says why there is none."""
    try:
        result = estimate(board)
    except EmulatorError as error:
        return str(error)
    lines = [f"{'est. cycles':>14}  function"]
    ordered = sorted(result.by_function.items(), key=lambda item: (-item[1], item[0]))
    lines += [f"{cycles:>14,.0f}  {name}" for name, cycles in ordered[:rows]]
    whole = (
        f"{result.cycles:>14,.0f}  estimated for {result.instructions:,} instructions: "
        f"{_parts(board, result)}, no mispredicted branches"
    )
    return "\n".join([*lines, wrapped(whole, WIDTH, 16)])


def _parts(board: Board, result: Estimate) -> str:
    """What an estimate is made of, in words."""
    if not board.caches:
        return "no caches, no wait states"
    use = result.cache
    return (
        f"{result.issue:,.0f} to issue them, {use.stalls:,} of waiting for {use.instruction_misses:,} lines "
        f"of code and {use.data_misses:,} of data ({use.write_backs:,} written back)"
    )


def _disassemble(objdump: str, path: Path) -> dict[int, tuple[str, str]]:
    """{address: (mnemonic, operands)}"""
    command = [objdump, "-d", "--no-show-raw-insn", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    code = {}
    for line in text.splitlines():
        found = re.match(r"\s*([0-9a-f]+):\s+(\S+)\s*(.*)", line)
        if found:
            operands = re.split(r"[@;]", found[3])[0].strip()
            code[int(found[1], 16)] = (found[2], operands)
    return code


def _source(code: dict[int, tuple[str, str]], block: Block) -> str:
    """A block as assembler source. IT instructions stay, for what follows them is conditional."""
    lines = [".syntax unified", ".thumb", f"{LABEL}:"]
    for address in range(block.address, block.address + block.size, 2):
        if address in code:
            lines.append(_instruction(*code[address]))
    return "\n".join(lines) + "\n"


def _instruction(mnemonic: str, operands: str) -> str:
    """objdump's text as llvm-mca takes it. Calls and returns become branches: their cost would be made up."""
    branch = BRANCH.match(mnemonic)
    if branch:
        return f" b{branch[1] or ''}.w {LABEL}"
    if mnemonic.startswith("cb"):
        return f" cmp {operands.split(',')[0]}, #0\n b.w {LABEL}"
    if mnemonic.startswith(("pop", "ldm")) and "pc" in operands:
        rest = f" {mnemonic} {operands.replace(', pc', '')}\n" if ", pc" in operands else ""
        return f"{rest} b.w {LABEL}"
    if mnemonic.endswith(".w") and (operands.endswith("!") or re.search(r"\], #", operands)):
        mnemonic = mnemonic[:-2]  # .w with write-back crashes llvm-mca (LLVM issue 97020)
    return f" {mnemonic} {operands}"


def _cycles_of(mca: str, cpu: str, sources: list[str]) -> list[float | None]:
    """Cycles of one run of each block in steady state, None where llvm-mca cannot say.

    One call for all of them, since most of a call is its start; but a block that ends among conditional
    instructions would make those of the next one conditional. An instruction that llvm-mca has no model of
    spoils its call: blocks without it are asked for again, or halves where none has what it names.
    """
    new = [source for source in dict.fromkeys(sources) if (mca, cpu, source) not in KNOWN]
    alone = [source for source in new if _open(source)]
    waiting = [[source for source in new if source not in alone], *([source] for source in alone)]
    while waiting:
        part = waiting.pop()
        found, refused = _asked(mca, cpu, part)
        if refused:
            found = dict.fromkeys(refused)
            waiting.append([source for source in part if source not in refused])
        elif len(found) < len(part) == 1:
            found = dict.fromkeys(part)
        elif len(found) < len(part):
            middle = len(part) // 2
            waiting += [part[:middle], part[middle:]]
            continue
        KNOWN.update({(mca, cpu, source): cycles for source, cycles in found.items()})
    return [KNOWN[mca, cpu, source] for source in sources]


def _asked(mca: str, cpu: str, sources: list[str]) -> tuple[dict[str, float | None], set[str]]:
    """Cycles of blocks by one call, none where it fails; and the blocks with what it has no model of."""
    options = [
        "-mtriple=thumbv7em-none-eabi",
        f"-mcpu={cpu}",
        f"-iterations={ITERATIONS}",
        "-noalias",
        "-json",
    ]
    regions = (
        f"@ LLVM-MCA-BEGIN {number}\n{source.replace(LABEL, f'{LABEL}{number}')}@ LLVM-MCA-END\n"
        for number, source in enumerate(sources)
    )
    command = [mca, *options, "-"]
    result = subprocess.run(command, input="".join(regions), capture_output=True, text=True, check=False)
    refused: set[str] = set()
    if unknown := re.search(r"^note: instruction:(.*)", result.stderr, re.MULTILINE):
        refused = {one for one in sources if _form(unknown[1]) in map(_form, one.splitlines())}
    try:
        found = json.loads(result.stdout)["CodeRegions"]
        cycles = [float(region["SummaryView"]["TotalCycles"]) / ITERATIONS for region in found]
    except (ValueError, KeyError):
        cycles = []
    return dict(zip(sources, cycles, strict=False)), refused


def _open(source: str) -> bool:
    """Whether a block ends before the instructions that its last IT makes conditional."""
    lines = source.splitlines()
    last = next((n for n in reversed(range(len(lines))) if lines[n].startswith(" it")), None)
    return last is not None and len(lines) - 1 - last < len(lines[last].split()[0]) - 1


def _form(line: str) -> str:
    """What all instructions of one encoding have in common; of an IT, whatever follows it, its name."""
    words = " ".join(line.split()).replace("#0.0", "#0")
    words = re.sub(r"\b(?:[rsd]\d+|s[bl]|fp|ip|sp|lr|pc)\b", "R", words)
    return "it" if re.match(r"it[te]* ", words) else words
