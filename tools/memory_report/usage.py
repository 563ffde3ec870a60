"""Every byte of flash and SRAM put under one heading, and the sums held against chip and budget."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from microtrain.base.elf import Section, Symbol
from microtrain.base.errors import Error
from microtrain.base.plan import Plan
from microtrain.pictures.arena import arena_kinds

from .chip import WEIGHTS
from .firmware import Firmware
from .stack import Path, Stack

SERIAL = re.compile(r"ring|rx|tx|uart|usart|serial|protocol|receiver|frame|line", re.IGNORECASE)
INIT = "model_trainables_init"
ARENA = "model_arena"
TRAINABLES = "model_trainables"
REPLAY = "replay_buffer"


@dataclass(frozen=True)
class Report:
    """All numbers are bytes.

    arena    kind of tensor to bytes at the peak step, None without a plan
    regions  flash region to (used, size)
    symbols  name to (bytes, "flash" or "SRAM")
    dtcm     part of SRAM to (bytes that never wait, bytes); {} for a chip without such memory
    """

    firmware: Firmware
    plan: Plan | None
    stack: Stack
    flash: dict[str, int]
    sram: dict[str, int]
    arena: dict[str, int] | None
    regions: dict[str, tuple[int, int]]
    symbols: dict[str, tuple[int, str]]
    dtcm: dict[str, tuple[int, int]]
    flash_budget: int | None
    sram_budget: int | None

    @property
    def flash_total(self) -> int:
        return sum(self.flash.values())

    @property
    def sram_total(self) -> int:
        return sum(self.sram.values())

    def failures(self) -> list[str]:
        """Sentences on whatever is over a limit or not proven."""
        chip = self.firmware.chip
        found = over("SRAM", self.sram_total, chip.sram.size, self.sram_budget)
        found += over("flash", self.flash_total, chip.flash.size, self.flash_budget)
        for name, (used, size) in self.regions.items():
            if used > size or (used and name.startswith("checkpoint")):
                room = size if not name.startswith("checkpoint") else 0
                found.append(f"flash region {name} holds {used} bytes, {used - room} too many")
        if self.stack.reserved is not None and self.stack.worst > self.stack.reserved:
            short = self.stack.worst - self.stack.reserved
            found.append(
                f"the stack may need {self.stack.worst} bytes, {short} more than are reserved (STACK_SIZE)"
            )
        return found + [f"the stack is not bounded: {problem}" for problem in self.stack.problems]


def over(what: str, used: int, chip: int, budget: int | None) -> list[str]:
    """What is wrong with a sum, if anything."""
    if used > chip:
        return [f"{what}: {used} bytes are {used - chip} more than the chip's {chip}"]
    if budget is not None and used > budget:
        return [f"{what}: {used} bytes are {used - budget} more than the budget of {budget}"]
    return []


def make_report(
    firmware: Firmware, plan: Plan | None, stack: Stack, sram_budget: int | None, flash_budget: int | None
) -> Report:
    """Measure a firmware. Error where the plan is another model's, or a section is off the chip."""
    if plan is not None:
        check_same_model(firmware, plan)
        board = plan.budget
        sram_budget = board.sram if board and sram_budget is None else sram_budget
        flash_budget = board.flash if board and flash_budget is None else flash_budget
    check_places(firmware)
    return Report(
        firmware,
        plan,
        stack,
        flash_kinds(firmware),
        sram_kinds(firmware, stack, plan.fleet.bytes if plan is not None and plan.fleet is not None else 0),
        arena_kinds(plan, plan.arena.peak_step) if plan is not None else None,
        region_use(firmware),
        symbol_sizes(firmware),
        dtcm_use(firmware),
        flash_budget,
        sram_budget,
    )


def check_same_model(firmware: Firmware, plan: Plan) -> None:
    """The id and the arena that were linked in must be the plan's."""
    info, arena = firmware.symbol("model_info"), firmware.symbol(ARENA)
    if info is None or arena is None:
        raise Error(
            f"{firmware.path} holds no model (model_info, {ARENA}): build the firmware, or drop --plan."
        )
    linked = firmware.elf.word(info.address + 4)
    if linked != plan.id or arena.size < plan.arena.bytes:
        raise Error(
            f"{firmware.path} holds model {linked:08x}, but {plan.path} describes {plan.name} {plan.id:08x}: "
            "build again after converting, or name the right --plan."
        )


def check_places(firmware: Firmware) -> None:
    for section in firmware.elf.sections:
        for address in {section.address, section.load}:
            if not any(r.holds(address) for r in firmware.chip.memories):
                raise Error(
                    f"section {section.name} lies at {address:#010x}, outside flash and SRAM: "
                    "check the linker script."
                )


def in_ram(firmware: Firmware, section: Section) -> bool:
    return firmware.chip.sram.holds(section.address)


def is_stack(firmware: Firmware, section: Section) -> bool:
    """The stack's reservation; what counts is what the stack can really reach."""
    return section.name == ".stack" or (
        not section.bits and section.address == firmware.elf.names.get("__stack_limit")
    )


def flash_kinds(firmware: Firmware) -> dict[str, int]:
    kinds = {"code": 0, "weights": 0, "tables": 0, "trainables' start values": 0, ".data's start values": 0}
    for section in firmware.elf.sections:
        if not section.bits or not firmware.chip.flash.holds(section.load):
            continue
        if in_ram(firmware, section):
            kind = ".data's start values" if section.write else "code"
        elif section.execute or "vector" in section.name:
            kind = "code"
        else:
            kind = "weights" if section.name.startswith(WEIGHTS) else "tables"
        kinds[kind] += section.size
        init = firmware.symbol(INIT)
        if init is not None and section.holds(init.address):
            kinds[kind] -= init.size
            kinds["trainables' start values"] += init.size
    return kinds


def sram_kinds(firmware: Firmware, stack: Stack, fleet: int) -> dict[str, int]:
    """All memory that the CPU can write, by use. The named parts are taken out of their sections.

    fleet  bytes behind the trainables, for what a board holds back of its updates
    """
    kinds = {".data": 0, ".bss, the rest": 0, "arena": 0, "trainables": 0, "serial buffers": 0}
    for section in firmware.elf.sections:
        if not in_ram(firmware, section) or is_stack(firmware, section):
            continue
        kinds[".data" if section.bits else ".bss, the rest"] += section.size
    for symbol in objects(firmware):
        home, part = firmware.elf.section_at(symbol.address), part_of(symbol)
        if home is not None and in_ram(firmware, home) and part is not None:
            kinds[".data" if home.bits else ".bss, the rest"] -= symbol.size
            kinds[part] = kinds.get(part, 0) + symbol.size
    if fleet:
        kinds["trainables"] -= fleet
        kinds["updates of a fleet"] = fleet
    return {**kinds, "worst stack": stack.worst}


def part_of(symbol: Symbol) -> str | None:
    """Which named part of SRAM an object is."""
    if symbol.name == ARENA:
        return "arena"
    if symbol.name == TRAINABLES:
        return "trainables"
    if symbol.name == REPLAY:
        return "replay buffer"
    return "serial buffers" if SERIAL.search(symbol.name) or SERIAL.search(symbol.file) else None


def objects(firmware: Firmware) -> list[Symbol]:
    return [s for s in firmware.symbols if not s.function and s.size]


def region_use(firmware: Firmware) -> dict[str, tuple[int, int]]:
    """Bytes of flash used in each region, padding included; that beside the chip only where it is used."""
    chip, used = firmware.chip, {}
    external = chip.external if chip.external and any(map(chip.external.holds, loads(firmware))) else None
    for region in (*chip.regions, *([external] if external else [])):
        ends = [
            min(s.load + s.size, region.end) - region.start
            for s in firmware.elf.sections
            if s.bits and s.load < region.end and s.load + s.size > region.start
        ]
        used[region.name] = (max(ends, default=0), region.size)
    return used


def dtcm_use(firmware: Firmware) -> dict[str, tuple[int, int]]:
    """What of each part of SRAM lies where it never waits, the stack as it is reserved."""
    dtcm, used = firmware.chip.dtcm, dict[str, tuple[int, int]]()
    if dtcm is None:
        return {}
    ram = [s for s in firmware.elf.sections if in_ram(firmware, s)]
    places = [("stack, reserved", s.address, s.size) for s in ram if is_stack(firmware, s)]
    for symbol in sorted(objects(firmware), key=lambda symbol: symbol.address):
        home = firmware.elf.section_at(symbol.address)
        if home is not None and in_ram(firmware, home) and not is_stack(firmware, home):
            places.append((part_of(symbol) or "the rest", symbol.address, symbol.size))
    for part, start, size in places:
        inside = max(0, min(start + size, dtcm.end) - max(start, dtcm.start))
        before = used.get(part, (0, 0))
        used[part] = (before[0] + inside, before[1] + size)
    return used


def loads(firmware: Firmware) -> list[int]:
    """Where the sections that an upload writes begin."""
    return [section.load for section in firmware.elf.sections if section.bits]


def symbol_sizes(firmware: Firmware) -> dict[str, tuple[int, str]]:
    sizes: dict[str, tuple[int, str]] = {}
    for symbol in firmware.symbols:
        section = firmware.elf.section_at(symbol.address)
        if section is not None and symbol.size:
            name = symbol.name if symbol.name not in sizes else f"{symbol.name} ({symbol.file})"
            sizes[name] = (symbol.size, "SRAM" if in_ram(firmware, section) else "flash")
    return dict(sorted(sizes.items(), key=lambda s: (-s[1][0], s[0])))


def as_json(report: Report) -> dict[str, Any]:
    """The report as --json writes it and --diff reads it; no paths, no dates: equal builds, equal files."""
    plan, stack, found = report.plan, report.stack, report.dtcm.items()
    return {
        "format": 1,
        "elf": report.firmware.path.name,
        "model": None if plan is None else {"name": plan.name, "model_id": plan.model_id},
        "flash": {
            "kinds": report.flash,
            "total": report.flash_total,
            "chip": report.firmware.chip.flash.size,
            "budget": report.flash_budget,
            "regions": {name: {"used": used, "size": size} for name, (used, size) in report.regions.items()},
        },
        "sram": {
            "kinds": report.sram,
            "total": report.sram_total,
            "chip": report.firmware.chip.sram.size,
            "budget": report.sram_budget,
            "arena": report.arena,
            **({"dtcm": {part: {"inside": n, "bytes": size} for part, (n, size) in found}} if found else {}),
        },
        "stack": {
            "worst": stack.worst,
            "reserved": stack.reserved,
            "exception_frame": stack.frame,
            "thread": path_json(stack.thread),
            "handler": path_json(stack.handler),
            **({"nested": [path_json(path) for path in stack.nested]} if stack.nested else {}),
            "fault": path_json(stack.fault),
            "problems": list(stack.problems),
        },
        "symbols": {name: {"bytes": size, "where": where} for name, (size, where) in report.symbols.items()},
        "failures": report.failures(),
    }


def path_json(path: Path) -> dict[str, Any]:
    return {"bytes": path.bytes, "path": [[frame.name, frame.bytes] for frame in path.frames]}
