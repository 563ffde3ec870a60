"""The run loop: slices of guest code between exceptions, timers, sleep and faults."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import unicorn

from .core import BUS_FAULT, HARD_FAULT, SVC, USAGE_FAULT
from .errors import Fault, PeripheralFault
from .memory import FLASH_BASE
from .native import EXC_RETURN, NEVER, STOPPED_AT_LIMIT, VIOLATION_ALIGNMENT
from .registers import Register

if TYPE_CHECKING:
    from .board import Board

SLICE = 1 << 26  # instructions at most without looking around
SVC_INTERRUPT, BKPT_INTERRUPT = 2, 7  # Unicorn's numbers
NEAR_STACK_LIMIT = 32  # bytes
BAD_ACCESS = {
    unicorn.UC_MEM_READ_UNMAPPED: "BusFault on read",
    unicorn.UC_MEM_WRITE_UNMAPPED: "BusFault on write",
    unicorn.UC_MEM_FETCH_UNMAPPED: "BusFault on instruction fetch",
    unicorn.UC_MEM_FETCH_PROT: "instruction fetch from memory that holds no code",
    unicorn.UC_MEM_READ_PROT: "read of memory that cannot be read",
    unicorn.UC_MEM_WRITE_PROT: "store to flash that is not being programmed",
}
CFSR_FETCH, CFSR_DATA, CFSR_UNDEFINED, CFSR_NO_FPU, CFSR_UNALIGNED = 1 << 8, 0x8200, 1 << 16, 1 << 19, 1 << 24
CFSR_STACKING = 1 << 12


class Stop(StrEnum):
    """Why `Board.run` returned."""

    LIMIT = "limit"  # time or instructions are used up
    SLEEP = "sleep"  # WFI, all received bytes taken, and the caller wanted to know
    IDLE = "idle"  # WFI, and nothing is left that could end it
    OUTPUT = "output"  # the firmware has sent what the caller waits for
    POWER_CUT = "power-cut"


class Until(StrEnum):
    """What output ends `Board.run`."""

    LINE = "line"
    BYTE = "byte"


TX_STOP = {None: 0, Until.LINE: 1, Until.BYTE: 2}  # as in native.c


@dataclass(frozen=True)
class _Limits:
    end_s: float | None  # virtual time
    end_count: int  # instructions since power-on
    stop_on_sleep: bool
    until: Until | None


class Loop:
    """Drives a board's engine.

    pc                where the guest goes on
    reset_requested   by AIRCR.SYSRESETREQ
    trouble           what a register access failed with
    """

    def __init__(self, board: Board) -> None:
        self.board = board
        self.restart(0)

    def restart(self, pc: int) -> None:
        self.pc = pc
        self.asleep = self.reset_requested = False
        self.trouble: Exception | None = None
        self._bad: tuple[int, int] | None = None
        self._sent = self._held = False  # held: an exception that only a mask holds back
        self._event: int | None = None  # cycle of what comes next by itself

    def run(
        self, seconds: float | None, instructions: int | None, stop_on_sleep: bool, until: Until | None
    ) -> Stop:
        board, state = self.board, self.board.engine.state
        end_s = None if seconds is None else board.seconds + seconds
        end_count = NEVER if instructions is None else board.instructions + instructions
        limits = _Limits(end_s, end_count, stop_on_sleep, until)
        state.usart.tx_stop = TX_STOP[until]
        state.hard_limit = min(end_count, board.cut_count)
        self._sent = False
        while True:
            stop = self._look_around(limits) or (self._sleep(limits) if self.asleep else self._slice(limits))
            if stop is not None:
                state.usart.tx_stop = 0
                return stop

    # ---------------------------------------------------------------- between slices
    def _look_around(self, limits: _Limits) -> Stop | None:
        """Fire timers, take exceptions, and see whether the run is over."""
        board, now = self.board, self.board.now
        self._event = self._next_event(limits)
        if due := self._event is not None and self._event <= now:
            for timer in (board.core.systick, board.usart, board.watchdog):
                if timer.due is not None and timer.due <= now:
                    timer.fire()
            self._event = self._next_event(limits)
        if board.instructions >= board.cut_count:
            board.cut_power()
        if not board.powered:
            return Stop.POWER_CUT
        if limits.until is not None and self._sent:
            return Stop.OUTPUT
        if board.instructions >= limits.end_count or (
            due and limits.end_s is not None and board.now >= board.clock.cycle(limits.end_s)
        ):
            return Stop.LIMIT
        self._take_exception()
        return None

    def _take_exception(self) -> None:
        core = self.board.core
        number = core.candidate()
        self._held = False
        if number is None:
            return
        if core.preempts(number):
            self._enter(number, self.pc)  # the most urgent one: no other may preempt it
        elif core.preempts(number, masks=False):
            self._held, self.asleep = True, False  # WFI ends although a mask holds the exception back

    def _next_event(self, limits: _Limits, tick: bool = True) -> int | None:
        """Cycle of what comes next by itself; without `tick`, of what SysTick has no part in."""
        board = self.board
        event = board.core.systick.due if tick else None
        for due in (board.usart.due, board.watchdog.due):
            if due is not None and (event is None or due < event):
                event = due
        if limits.end_s is not None:
            end = board.clock.cycle(limits.end_s)
            event = end if event is None else min(event, end)
        return event

    def _sleep(self, limits: _Limits) -> Stop | None:
        """WFI: let bytes arrive, else skip to the next event."""
        board = self.board
        if not board.usart.paced and board.usart.due is not None and board.usart.hungry:
            board.usart.refill()
            return None
        if limits.stop_on_sleep and (board.usart.due is None or not board.usart.hungry):
            return Stop.SLEEP
        event = self._event if board.core.systick.wakes else self._next_event(limits, tick=False)
        if event is None:
            return Stop.IDLE
        board.engine.state.idle += max(0, event - board.now)
        return None

    # ---------------------------------------------------------------- one slice
    def _slice(self, limits: _Limits) -> Stop | None:
        board, state = self.board, self.board.engine.state
        wait = SLICE if self._event is None else min(SLICE, self._event - board.now)
        self._watch_masks()
        state.may_return = int(len(board.core.active) == 1 and not board.core.pending)
        state.deadline = board.instructions + max(1, wait)
        error = board.engine.run(self.pc)
        self.pc = board.engine.get(Register.PC)
        if state.usart.tx_count:
            self.deliver()
        if board.powered:
            self._after_slice(error)
        return None

    def _watch_masks(self) -> None:
        """Have native.c stop where PRIMASK, BASEPRI or FAULTMASK change, if an exception waits for that."""
        state = self.board.engine.state
        state.watch_masks = int(self._held)
        if self._held:
            state.masks = self.board.engine.masks()

    def _after_slice(self, error: unicorn.UcError | None) -> None:
        """Find out why the engine came back."""
        board, state = self.board, self.board.engine.state
        if self.trouble is not None:
            self._raise_trouble()
        elif self.reset_requested:
            board.reset()
        elif self.pc >= EXC_RETURN:
            self._leave()
        elif state.violation:
            self._violation(state.violation, state.violation_pc, state.violation_address)
        elif state.interrupt >= 0:
            self._interrupt(state.interrupt)
        elif error is not None:
            self._error()
        elif not state.stopped:
            self.asleep = True
        elif state.stopped == STOPPED_AT_LIMIT and state.hard_limit > state.total:
            board.engine.step(self.pc, state.hard_limit - state.total)
            self.pc = board.engine.get(Register.PC)
            self.deliver()

    def deliver(self) -> None:
        """Hand on what the firmware has sent."""
        data = self.board.usart.drain()
        if not data:
            return
        self._sent = (
            self._sent or self.board.engine.state.usart.tx_stop != TX_STOP[Until.LINE] or b"\n" in data
        )
        if not self.board.usart.listeners:
            self.board.output += data
        for listener in self.board.usart.listeners:
            listener(data)

    # ---------------------------------------------------------------- exceptions
    def _enter(self, number: int, pc: int) -> None:
        board = self.board
        self.asleep = False
        board.core.pending.discard(number)
        no_room = board.engine.enter(number, pc, bool(board.core.active))
        if no_room:
            number = self._enter_without_stack(no_room, pc)
        board.core.active.append(number)
        vector = board.core.vector(number)
        if not vector & 1:
            raise self._fault(f"vector {number} holds {vector:#x}, no Thumb address", vector, pc)
        self.pc = vector

    def _enter_without_stack(self, address: int, pc: int) -> int:
        """The frame of an exception has no room at `address`. Returns what is entered instead."""
        fault = self._fault("stack overflow on exception entry", address, pc)
        if not self.board.guest_faults:
            raise fault
        self.board.last_fault = fault
        self.board.engine.enter(HARD_FAULT, pc, bool(self.board.core.active), stacked=False)
        self.board.core.escalate(HARD_FAULT, CFSR_STACKING, address)
        return HARD_FAULT

    def _leave(self) -> None:
        board = self.board
        if not board.core.active:
            link = board.engine.get(Register.LR)
            raise self._fault("exception return in thread mode", self.pc, link)
        board.core.active.pop()
        bad, pc = board.engine.leave(self.pc, board.core.active[-1] if board.core.active else 0)
        if bad:
            raise self._fault("exception return without a stack", bad, board.engine.state.block)
        self.pc = pc

    def _interrupt(self, number: int) -> None:
        if number == SVC_INTERRUPT:
            self._enter(SVC, self.pc)
        elif number == BKPT_INTERRUPT:
            self._guest_fault(HARD_FAULT, "breakpoint", self.pc, self.pc, 0)
        else:
            raise self._fault(f"CPU exception {number}", self.pc, self.pc)

    # ---------------------------------------------------------------- faults
    def bad_access(self, kind: int, address: int, data: bytes) -> bool:
        """Unicorn found an access that the memory map forbids. True: it may go on."""
        offset = address - FLASH_BASE
        in_flash = 0 <= offset < self.board.chip.flash_size
        if kind == unicorn.UC_MEM_WRITE_PROT and in_flash and self.board.powered:
            try:
                if self.board.flash.store(offset, data):
                    return True
            except Exception as error:
                self.board.stop_for(error)
        self._bad = kind, address
        return False

    def _error(self) -> None:
        if self._bad is None:
            self._guest_fault(USAGE_FAULT, "undefined instruction", self.pc, self.pc, CFSR_UNDEFINED)
            return
        kind, address = self._bad
        self._bad = None
        fetch = kind in (unicorn.UC_MEM_FETCH_UNMAPPED, unicorn.UC_MEM_FETCH_PROT)
        what = BAD_ACCESS.get(kind, f"memory fault {kind}")
        if self.board.memory.in_external(address):
            what = "access to the flash beside the chip, whose window QUADSPI or the MPU keeps shut"
        self._guest_fault(BUS_FAULT, what, address, self.pc, CFSR_FETCH if fetch else CFSR_DATA)

    def _violation(self, kind: int, pc: int, address: int) -> None:
        self.pc = pc
        if kind == VIOLATION_ALIGNMENT:
            self._guest_fault(USAGE_FAULT, "unaligned access", address, pc, CFSR_UNALIGNED)
        else:
            self._guest_fault(
                USAGE_FAULT, "FPU instruction before CPACR enables the FPU", pc, pc, CFSR_NO_FPU
            )

    def _raise_trouble(self) -> None:
        error, self.trouble = self.trouble, None
        assert error is not None
        if not isinstance(error, PeripheralFault):
            raise error
        raise self._fault(error.kind, error.address, self.board.engine.state.block) from None

    def _guest_fault(self, number: int, kind: str, address: int, pc: int, status: int) -> None:
        """Give a fault to the firmware's handler where that is wanted and possible, else raise it."""
        fault = self._fault(kind, address, pc)
        self.board.last_fault = fault
        in_fault = any(active <= USAGE_FAULT for active in self.board.core.active)
        if not self.board.guest_faults or in_fault:
            raise fault
        self._enter(self.board.core.escalate(number, status, address), pc)

    def _fault(self, kind: str, address: int, pc: int) -> Fault:
        image, pc = self.board.image, pc & ~1
        text = f"{kind} at {address:#010x}: pc {image.where(pc)}"
        link = self.board.engine.get(Register.LR)
        if self.board.memory.in_flash(link):
            text += f", called from {image.where((link & ~1) - 2)}"
        sp, limit = self.board.engine.get(Register.SP), image.symbols.get("__stack_limit")
        if limit is not None and sp < limit + NEAR_STACK_LIMIT:
            text += f" [STACK OVERFLOW: sp is {sp:#010x}, the stack ends at {limit:#010x}]"
        function = image.function(pc)
        return Fault(text, kind, address, pc, function.name if function else "?", image.line(pc))
