"""Thumb-2 instructions as the stack sees them: what they push, where they go, whom they call."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, replace
from typing import Any

import capstone
from capstone import arm

from memory_report.errors import ReportError
from memory_report.firmware import Firmware, Symbol

PUSHES = {arm.ARM_INS_PUSH, arm.ARM_INS_VPUSH, arm.ARM_INS_STMDB, arm.ARM_INS_VSTMDB}
MULTIPLE = ("stm", "ldm", "vstm", "vldm")
POPS = {arm.ARM_INS_POP, arm.ARM_INS_VPOP, arm.ARM_INS_LDM, arm.ARM_INS_VLDMIA}
CONSTANT_WINDOW = 12  # instructions to look back for the value of a register


@dataclass(frozen=True)
class Step:
    """One instruction.

    grows     bytes it adds to the stack, negative where it gives some back
    next      addresses inside the code that may follow it, the next instruction included
    calls     functions it calls; jumps: functions it leaves for and does not come back from
    problem   why the stack cannot be bounded here
    """

    address: int
    grows: int = 0
    next: tuple[int, ...] = ()
    calls: tuple[int, ...] = ()
    jumps: tuple[int, ...] = ()
    problem: str | None = None


class Code:
    """The functions of a firmware, decoded when first looked at."""

    def __init__(self, firmware: Firmware) -> None:
        self.firmware = firmware
        self.functions = [s for s in firmware.symbols if s.function]
        self._starts = [s.address for s in self.functions]
        self._steps: dict[int, Step] = {}
        self._decoded: set[int] = set()
        mode = capstone.CS_MODE_THUMB | capstone.CS_MODE_MCLASS | capstone.CS_MODE_V8
        self._decoder = capstone.Cs(capstone.CS_ARCH_ARM, mode)
        self._decoder.detail = True

    def function_at(self, address: int) -> Symbol | None:
        """The function whose code holds `address`."""
        index = bisect.bisect_right(self._starts, address) - 1
        if index < 0:
            return None
        found = self.functions[index]
        return found if address < self.end(found) else None

    def end(self, function: Symbol) -> int:
        """Where a function's code ends; one without a size (assembly) reaches to the next."""
        if function.size:
            return function.address + function.size
        index = bisect.bisect_right(self._starts, function.address)
        section = self.firmware.section_at(function.address)
        limit = section.address + section.size if section else function.address
        return min(limit, self._starts[index]) if index < len(self._starts) else limit

    def step(self, address: int) -> Step | None:
        """The instruction at an address of some function; None where there is none."""
        function = self.function_at(address)
        if function is not None and function.address not in self._decoded:
            self._decoded.add(function.address)
            self._decode(function)
        return self._steps.get(address)

    def _decode(self, function: Symbol) -> None:
        start, end = function.address, self.end(function)
        edges = [a for a, _ in self.firmware.marks if start < a < end]
        instructions: list[Any] = []
        for low, high in zip([start, *edges], [*edges, end], strict=True):
            if self.firmware.mark_at(low) == "t" and low < high:
                instructions += self._disassemble(low, high)
        for index, instruction in enumerate(instructions):
            self._steps[instruction.address] = Reader(self, function, instructions, index).step()

    def _disassemble(self, low: int, high: int) -> list[Any]:
        found: list[Any] = []
        data = self.firmware.read(low, high - low)
        at = low
        while at < high:
            found += self._decoder.disasm(data[at - low :], at)
            at = found[-1].address + found[-1].size if found and found[-1].address >= at else at
            if at < high:
                wide = data[at - low + 1] >> 3 >= 0x1D if at - low + 1 < len(data) else False
                found.append(Unknown(at, 4 if wide else 2))
                at += found[-1].size
        return found


@dataclass(frozen=True)
class Unknown:
    """An encoding the disassembler does not know."""

    address: int
    size: int


@dataclass(frozen=True)
class Reader:
    """Reads one instruction in its context: the instructions before it give the values of registers."""

    code: Code
    function: Symbol
    all: list[Any]
    index: int

    def step(self) -> Step:
        i = self.all[self.index]
        after = i.address + i.size
        if isinstance(i, Unknown):
            raw = self.code.firmware.read(i.address, i.size).hex()
            return Step(i.address, next=(after,), problem=f"has an instruction that is not known ({raw})")
        flow = self.flow(i, after)
        grows, problem = self.growth(i) if flow.next else (0, None)
        if i.cc not in (arm.ARM_CC_AL, arm.ARM_CC_INVALID):  # in an IT block: it may do nothing
            flow = replace(flow, next=tuple(sorted({*flow.next, after})))
            grows = max(0, grows)
        return replace(flow, grows=grows, problem=flow.problem or problem)

    def flow(self, i: Any, after: int) -> Step:
        """Where an instruction goes."""
        here = Step(i.address, next=(after,))
        if i.id in (arm.ARM_INS_BL, arm.ARM_INS_BLX):
            target = self.target(i.operands[0])
            return self.call(here, target, i)
        if i.id in (arm.ARM_INS_B, arm.ARM_INS_CBZ, arm.ARM_INS_CBNZ):
            always = i.id == arm.ARM_INS_B and i.cc == arm.ARM_CC_AL
            return self.jump(Step(i.address, next=() if always else (after,)), i.operands[-1].imm)
        if i.id in (arm.ARM_INS_TBB, arm.ARM_INS_TBH):
            return Step(i.address, next=self.table(after, 1 if i.id == arm.ARM_INS_TBB else 2))
        if i.id == arm.ARM_INS_BX:
            return self.leave(i, i.operands[0])
        if i.id == arm.ARM_INS_UDF:
            return Step(i.address)
        if self.writes_pc(i):
            return self.load_pc(i)
        return here

    def call(self, here: Step, target: int | None, i: Any) -> Step:
        if target is None:
            name = i.reg_name(i.operands[0].reg)
            return replace(here, problem=f"calls through a pointer ({name}) at {i.address:#010x}")
        return replace(here, calls=(target & ~1,))

    def jump(self, here: Step, target: int) -> Step:
        """A branch: to the start of another function it is a call that does not come back."""
        target &= ~1
        other = self.code.function_at(target)
        if other is not None and other.address == target and other.address != self.function.address:
            return replace(here, jumps=(target,))
        if other is None:
            return replace(here, problem=f"jumps to {target:#010x}, where no function is")
        return replace(here, next=(*here.next, target))

    def leave(self, i: Any, operand: Any) -> Step:
        """bx: a return through lr, else a jump through a pointer."""
        if operand.reg == arm.ARM_REG_LR:
            return Step(i.address)
        target = self.target(operand)
        if target is None:
            return Step(i.address, problem=f"jumps through a pointer at {i.address:#010x}")
        return self.jump(Step(i.address), target)

    def writes_pc(self, i: Any) -> bool:
        return any(
            op.type == arm.ARM_OP_REG and op.reg == arm.ARM_REG_PC and op.access & 2 for op in i.operands
        )

    def load_pc(self, i: Any) -> Step:
        """A return that pops pc, a veneer's jump to a literal, or a jump through a pointer."""
        if i.id in POPS or (i.id == arm.ARM_INS_LDR and i.operands[1].mem.base == arm.ARM_REG_SP):
            return Step(i.address)
        literal = self.literal(i) if i.id == arm.ARM_INS_LDR else None
        if literal is not None:
            return self.jump(Step(i.address), literal)
        targets = self.table((i.address + i.size + 3) & ~3, 4) if i.id == arm.ARM_INS_LDR else ()
        problem = None if targets else f"jumps through a pointer at {i.address:#010x}"
        return Step(i.address, next=targets, problem=problem)

    def table(self, start: int, width: int) -> tuple[int, ...]:
        """Targets of a jump table, the data up to the next code: half distances, or words of addresses."""
        firmware, end = self.code.firmware, self.code.end(self.function)
        found = set()
        at = start
        while at + width <= end and firmware.mark_at(at) == "d":
            value = int.from_bytes(firmware.read(at, width), "little")
            target = value & ~1 if width == 4 else start + 2 * value
            if start < target < end and firmware.mark_at(target) == "t":
                found.add(target)
            at += width
        return tuple(sorted(found))

    def growth(self, i: Any) -> tuple[int, str | None]:
        """Bytes that an instruction adds to the stack, or why that is not known."""
        if "sp" not in i.op_str and i.id not in PUSHES | POPS:
            return 0, None
        ops = i.operands
        if i.id in (arm.ARM_INS_PUSH, arm.ARM_INS_VPUSH, arm.ARM_INS_POP, arm.ARM_INS_VPOP):
            return self.sign(i) * self.list_bytes(i, ops), None
        if i.id in PUSHES | POPS and ops[0].reg == arm.ARM_REG_SP:
            return (self.sign(i) * self.list_bytes(i, ops[1:]) if i.writeback else 0), None
        if i.writeback and self.sp_index(i) is not None:
            return -(self.sp_index(i) or 0), None
        if i.mnemonic.startswith(MULTIPLE) and not i.writeback:
            return 0, None  # stores or loads at sp and leaves it where it is
        if not self.writes_sp(i):
            return 0, None
        return self.arithmetic(i)

    def sign(self, i: Any) -> int:
        return 1 if i.id in PUSHES else -1

    def list_bytes(self, i: Any, ops: Any) -> int:
        return sum(8 if i.reg_name(op.reg).startswith("d") else 4 for op in ops)

    def sp_index(self, i: Any) -> int | None:
        """What a store or load with writeback adds to sp: [sp, #n]! or [sp], #n."""
        for number, op in enumerate(i.operands):
            if op.type == arm.ARM_OP_MEM and op.mem.base == arm.ARM_REG_SP:
                rest = i.operands[number + 1 :]
                amount = rest[0].imm if rest else op.mem.disp
                return int(-amount if getattr(op, "subtracted", False) and amount > 0 else amount)
        return None

    def writes_sp(self, i: Any) -> bool:
        if i.id == arm.ARM_INS_MSR:
            return any(op.type == arm.ARM_OP_SYSREG for op in i.operands) and "sp" in i.op_str.split(",")[0]
        return (
            bool(i.operands) and i.operands[0].type == arm.ARM_OP_REG and i.operands[0].reg == arm.ARM_REG_SP
        )

    def arithmetic(self, i: Any) -> tuple[int, str | None]:
        """add and sub on sp; mov sp, rN, the end of a frame that a pointer kept, gives nothing back."""
        if i.id in (arm.ARM_INS_ADD, arm.ARM_INS_SUB, arm.ARM_INS_ADDW, arm.ARM_INS_SUBW):
            last = i.operands[-1]
            amount = last.imm if last.type == arm.ARM_OP_IMM else self.constant(last.reg)
            if amount is not None:
                return (amount if i.id in (arm.ARM_INS_SUB, arm.ARM_INS_SUBW) else -amount), None
            return 0, f"grows its stack by an amount that only it knows (`{i.mnemonic} {i.op_str}`)"
        if i.id == arm.ARM_INS_MOV and i.operands[1].type == arm.ARM_OP_REG:
            return 0, None
        return 0, f"sets the stack pointer (`{i.mnemonic} {i.op_str}`)"

    def target(self, operand: Any) -> int | None:
        if operand.type == arm.ARM_OP_IMM:
            return int(operand.imm)
        return self.constant(operand.reg)

    def constant(self, register: int) -> int | None:
        """The value of a register that was set just before, in straight-line code."""
        high: int | None = None
        for i in reversed(self.all[max(0, self.index - CONSTANT_WINDOW) : self.index]):
            if isinstance(i, Unknown) or i.group(arm.ARM_GRP_JUMP) or i.group(arm.ARM_GRP_CALL):
                return None
            if i.cc not in (arm.ARM_CC_AL, arm.ARM_CC_INVALID) or register not in i.regs_access()[1]:
                continue
            value = i.operands[-1].imm if i.operands[-1].type == arm.ARM_OP_IMM else None
            if i.id == arm.ARM_INS_MOVT and value is not None:
                high = value
            elif i.id in (arm.ARM_INS_MOVW, arm.ARM_INS_MOV) and value is not None:
                return int(value) | (high or 0) << 16
            else:
                return self.literal(i) if i.id == arm.ARM_INS_LDR and high is None else None
        return None

    def literal(self, i: Any) -> int | None:
        """The word that ldr rN, [pc, #n] loads."""
        memory = i.operands[1].mem
        if i.operands[1].type != arm.ARM_OP_MEM or memory.base != arm.ARM_REG_PC or memory.index:
            return None
        try:
            return self.code.firmware.word(((i.address + 4) & ~3) + memory.disp)
        except ReportError:
            return None
