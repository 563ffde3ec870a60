"""What one instruction of a Cortex-M does, and where it goes."""

from __future__ import annotations

from collections.abc import Callable
from operator import mul, or_
from typing import TYPE_CHECKING, Any

from capstone import arm

from .effects import Effects
from .values import (
    Field,
    Numbers,
    Registers,
    State,
    System,
    Value,
    combine,
    is_system,
    masked,
    number,
    plus,
)

if TYPE_CHECKING:
    from .routine import Walk

SP, LR, PC = arm.ARM_REG_SP, arm.ARM_REG_LR, arm.ARM_REG_PC
LOW = tuple(arm.ARM_REG_R0 + n for n in range(13))  # r0 to r12
CORE = frozenset((*LOW, SP, LR, PC))
CALLS = {arm.ARM_INS_BL, arm.ARM_INS_BLX}
FLAGS = ("msr", "vmrs", "fmstat", "svc")  # they change flags, beside what the disassembler says
PUSHES = {arm.ARM_INS_PUSH, arm.ARM_INS_VPUSH}
POPS = {arm.ARM_INS_POP, arm.ARM_INS_VPOP}
MULTIPLE = ("ldm", "stm", "vldm", "vstm", "push", "pop", "vpush", "vpop", "fldm", "fstm")
LOADS = ("ldr", "lda", "vldr")
STORES = ("st", "vst", "push", "vpush", "fst")
MOVES = {arm.ARM_INS_MOV, arm.ARM_INS_MOVW, arm.ARM_INS_MOVS}
ADDS = {arm.ARM_INS_ADD: 1, arm.ARM_INS_ADDW: 1, arm.ARM_INS_SUB: -1, arm.ARM_INS_SUBW: -1}
COMPARES = {arm.ARM_INS_CMP, arm.ARM_INS_CMN, arm.ARM_INS_TST, arm.ARM_INS_TEQ}
# Their first operand is all that they write; of any other instruction each operand may be.
ONE_RESULT = {
    *MOVES, *ADDS, arm.ARM_INS_MOVT, arm.ARM_INS_MVN, arm.ARM_INS_ADR, arm.ARM_INS_RSB, arm.ARM_INS_ADC,
    arm.ARM_INS_SBC, arm.ARM_INS_AND, arm.ARM_INS_ORR, arm.ARM_INS_ORN, arm.ARM_INS_EOR, arm.ARM_INS_BIC,
    arm.ARM_INS_LSL, arm.ARM_INS_LSR, arm.ARM_INS_ASR, arm.ARM_INS_ROR, arm.ARM_INS_MUL, arm.ARM_INS_MLA,
    arm.ARM_INS_MLS, arm.ARM_INS_SDIV, arm.ARM_INS_UDIV, arm.ARM_INS_UBFX, arm.ARM_INS_SBFX, arm.ARM_INS_BFI,
    arm.ARM_INS_BFC, arm.ARM_INS_CLZ, arm.ARM_INS_RBIT, arm.ARM_INS_REV, arm.ARM_INS_UXTB, arm.ARM_INS_UXTH,
    arm.ARM_INS_SXTB, arm.ARM_INS_SXTH, arm.ARM_INS_SSAT, arm.ARM_INS_USAT,
}  # fmt: skip
STACK_REGISTERS = ("msp", "psp", "control")
READ = 1  # an operand's access
OPERATIONS: dict[int, Callable[[int, int], int]] = {
    arm.ARM_INS_ORR: or_,
    arm.ARM_INS_MUL: mul,
    arm.ARM_INS_RSB: lambda x, y: y - x,
}


class Arm(Effects):
    """The instructions of Armv7-M and Armv8-M; with IT blocks."""

    registers = Registers(
        SP, LR, LOW[0], kept=frozenset(LOW[4:12]), scratch=frozenset((*LOW[:4], LOW[12], LR))
    )

    def called(self, i: Any) -> str:
        return str(i.reg_name(i.operands[0].reg))

    def grows(self, i: Any) -> bool:
        return i.id in ADDS

    def step(self, walk: Walk, i: Any, state: State) -> None:
        """In an IT block it runs or not, and all with the same condition do as it does."""
        if i.id == arm.ARM_INS_IT or i.cc in (arm.ARM_CC_AL, arm.ARM_CC_INVALID):
            state.held = None
            self.execute(walk, i, state)
            return
        if state.held != i.cc:
            skipped = state.copy()
            skipped.held = opposite(i.cc)
            walk.go(i.address + i.size, skipped)
        if state.held != opposite(i.cc):
            state.held = None if changes_flags(i) else i.cc
            self.execute(walk, i, state)

    def execute(self, walk: Walk, i: Any, state: State) -> None:
        """Apply an instruction, and go where it goes."""
        kind, after = i.id, i.address + i.size  # the disassembler looks its id up each time
        if kind in CALLS:
            walk.call(i, state, self.operand(i, i.operands[0], state))
        elif kind == arm.ARM_INS_B:
            walk.jump(i.operands[-1].imm, state)
        elif kind in (arm.ARM_INS_CBZ, arm.ARM_INS_CBNZ):
            walk.jump(i.operands[-1].imm, state.copy())
            walk.go(after, state)
        elif kind in (arm.ARM_INS_TBB, arm.ARM_INS_TBH):
            based = i.operands[0].mem.base == PC
            walk.choose(
                i, state, self.code.byte_table(after, 1 if kind == arm.ARM_INS_TBB else 2) if based else []
            )
        elif kind == arm.ARM_INS_BX:
            walk.leave(i, state, state.get(i.operands[0].reg))
        elif kind == arm.ARM_INS_LDR and i.operands[0].reg == PC and i.operands[1].mem.index:
            base = state.get(i.operands[1].mem.base)
            start = base.one if isinstance(base, Numbers) else None
            walk.choose(i, state, self.code.word_table(start) if start is not None else [])
        elif kind != arm.ARM_INS_UDF:
            self.apply(i, state)
            if state.left:
                walk.leave(i, state, state.target)
            else:
                walk.go(after, state)

    def apply(self, i: Any, state: State) -> None:
        """All of an instruction but where it goes; state.left where it writes pc."""
        kind = i.id
        if kind in COMPARES or kind == arm.ARM_INS_IT:
            return
        if kind == arm.ARM_INS_SVC:  # its handler answers in r0 to r3
            for register in LOW[:4]:
                state.set(register, None)
        elif kind == arm.ARM_INS_MSR:
            self.special(i)
        elif i.insn_name().startswith(MULTIPLE):
            self.multiple(i, state)
        elif any(op.type == arm.ARM_OP_MEM for op in i.operands):
            self.access(i, state)
        else:
            self.compute(i, state)

    def special(self, i: Any) -> None:
        if i.op_str.startswith(STACK_REGISTERS):
            self.routine.problem(f"sets the stack pointer (`{self.code.text(i)}`)")

    def multiple(self, i: Any, state: State) -> None:
        """Loads and stores of several registers, pushes and pops."""
        implied = i.id in PUSHES | POPS
        base = SP if implied else i.operands[0].reg
        registers = [op.reg for op in i.operands[0 if implied else 1 :]]
        sizes = [8 if i.reg_name(register).startswith("d") else 4 for register in registers]
        start = state.get(base)
        self.routine.uses(start)
        down = i.id in PUSHES or "db" in i.insn_name()
        rest = 4 if i.insn_name().endswith("x") else 0  # fldmx and fstmx move a word more
        end = plus(start, number(sum(sizes) + rest), -1 if down else 1)
        places = [end if down else start]
        for size in sizes[:-1]:
            places.append(plus(places[-1], number(size)))
        if i.insn_name().startswith(STORES):
            for register, size, place in zip(registers, sizes, places, strict=True):
                self.store(i, state, place, size, state.get(register), is_system(start))
            loaded = []
        else:
            loaded = [(r, self.load(state, p)) for r, p in zip(registers, places, strict=True)]
        if implied or i.writeback:
            self.write(i, state, base, end if end is not None or not is_system(start) else System())
        for register, value in loaded:
            self.write(i, state, register, value)

    def access(self, i: Any, state: State) -> None:
        """Loads and stores of one or two registers."""
        place = next(n for n, op in enumerate(i.operands) if op.type == arm.ARM_OP_MEM)
        memory, data = i.operands[place].mem, [op.reg for op in i.operands[:place]]
        base = number(i.address + 4 & ~3) if memory.base == PC else state.get(memory.base)
        offset = number(memory.disp) if not memory.index else None
        self.routine.uses(base)
        self.routine.uses(state.get(memory.index) if memory.index else None)
        moved = plus(base, offset)
        address = base if i.post_index else moved
        system = is_system(base) or bool(memory.index and is_system(state.get(memory.index)))
        loads: list[tuple[int, Value]] = []
        if i.insn_name().startswith(STORES):
            if "ex" in i.insn_name():
                loads = [(data.pop(0), None)]  # whether the exclusive store was done
            for n, register in enumerate(data):
                part = plus(address, number(4 * n))
                self.store(i, state, part, width(i, register), state.get(register), system)
        else:
            whole = i.insn_name().startswith(LOADS) and width(i, data[0] if data else 0) >= 4
            parts = (plus(address, number(4 * n)) for n in range(len(data)))
            loads = [(r, self.load(state, p) if whole else None) for r, p in zip(data, parts, strict=True)]
            if loads == [(data[0], None)] and whole and not memory.index and memory.disp in self.code.fields:
                loads = [(data[0], Field(memory.disp))]
        if i.writeback:
            amount = number(i.operands[place + 1].imm) if i.post_index else offset
            self.write(i, state, memory.base, plus(base, amount) or (System() if system else None))
        for register, value in loads:
            self.write(i, state, register, value)

    def compute(self, i: Any, state: State) -> None:
        """Everything else: moves and additions are followed, other results are not known."""
        registers = [op.reg for op in i.operands if op.type == arm.ARM_OP_REG and op.reg in CORE]
        results = registers[:1] if i.id in ONE_RESULT else registers
        value = self.value(i, state)
        if i.id not in MOVES:
            read = i.operands[0 if i.operands and i.operands[0].access & READ else 1 :]
            sources = [state.get(op.reg) for op in read if op.type == arm.ARM_OP_REG and op.reg in CORE]
            for source in sources:
                self.routine.uses(source)
            if value is None and any(is_system(source) for source in sources):
                value = System()
        implied = [r for r in i.regs_access()[1] if r not in registers]
        for register in dict.fromkeys((*results, *implied)):
            self.write(i, state, register, value)

    def value(self, i: Any, state: State) -> Value:
        """The result of a move or an addition."""
        if i.id not in ONE_RESULT or any(op.shift.type for op in i.operands):
            return None
        operands = [self.operand(i, op, state) for op in i.operands]
        if i.id in MOVES:
            return operands[1]
        if i.id == arm.ARM_INS_MVN:
            return combine(operands[1], operands[1], lambda x, _: ~x)
        if i.id == arm.ARM_INS_MOVT:
            return combine(operands[0], operands[1], lambda x, y: x & 0xFFFF | y << 16)
        if i.id == arm.ARM_INS_ADR:
            return plus(number(i.address + 4 & ~3), operands[1])
        if i.id in ADDS:
            return plus(operands[-2], operands[-1], ADDS[i.id])
        if i.id == arm.ARM_INS_AND:
            return masked(operands[-2], operands[-1])
        if i.id == arm.ARM_INS_MLA:
            return plus(combine(operands[1], operands[2], mul), operands[3])
        operation = OPERATIONS.get(i.id)
        return combine(operands[-2], operands[-1], operation) if operation is not None else None

    def operand(self, i: Any, operand: Any, state: State) -> Value:
        if operand.type == arm.ARM_OP_IMM:
            return number(operand.imm)
        if operand.type != arm.ARM_OP_REG:
            return None
        if operand.reg != PC:
            return state.get(operand.reg)
        is_adr = any(op.type == arm.ARM_OP_IMM for op in i.operands)  # ADDW and SUBW of a number: ADR.W
        return number(i.address + 4 & ~3 if is_adr else i.address + 4)

    def write(self, i: Any, state: State, register: int, value: Value) -> None:
        if register == SP:
            self.move_stack(i, state, value)
        elif register == PC:
            state.left, state.target = True, value
        elif register in CORE:
            state.set(register, value)
        else:  # the FPU's are not followed
            self.routine.hands_on(value, i.address)


def width(i: Any, register: int) -> int:
    """Bytes that an instruction loads or stores of each register."""
    name = i.insn_name()
    if name.startswith("v"):
        return 8 if i.reg_name(register).startswith("d") else 4
    letters = name[3:].removeprefix("ex").removeprefix("s")
    return {"b": 1, "h": 2}.get(letters[:1], 4)


def opposite(condition: int) -> int:
    """eq and ne, hs and lo, ...: neighbours in the disassembler's list."""
    return int((condition - 1 ^ 1) + 1)


def changes_flags(i: Any) -> bool:
    return bool(i.update_flags) or i.insn_name() in FLAGS
