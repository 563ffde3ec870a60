"""A board at rest as plain data: everything that its next instruction depends on, beside flash and SRAM.

At rest is asleep in thread mode, with nothing on the serial line. What a profile counts and what a noisy line
draws is left out: it begins anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .core import CPACR
from .registers import Register

if TYPE_CHECKING:
    from .board import Board

Fields = dict[str, Any]  # a part's attributes, as JSON has them
CONTROL_SPSEL = 2
SINGLES = 32  # registers of the FPU
THREAD = (Register.CONTROL, Register.SP, Register.LR, Register.NZCVQG, Register.FPSCR)
MASKS = (Register.BASEPRI, Register.PRIMASK, Register.FAULTMASK)
REGISTERS = (*THREAD, *MASKS, *Register.general(), *range(Register.S0, Register.S0 + SINGLES))
READ_AS: dict[int, int] = {Register.NZCVQG: Register.XPSR}  # which is one for writing
COUNTS = ("total", "idle", "thread")  # fields of native.c's state
LINE = ("seen", "powered", "cr1", "full", "rdr", "errors")  # and of its serial line
PERIPHERAL = (
    *("registers", "causes", "levels", "operations", "wear", "worn", "_keys", "_status"),
    *("_locked", "_end_s", "_flags", "_left", "_selected"),
)  # whichever of them one has
PARTS = {
    "loop": ("pc", "asleep"),
    "core": ("pending", "enabled", "_priorities", "_registers"),
    "systick": ("_control", "_reload", "_counted", "due"),
    "cycles": ("_start", "_running", "_unlocked"),
    "clock": ("hz", "_since_cycle", "_since_s"),
}


def at_rest(board: Board) -> bool:
    """Whether a board is in a state that take() can describe; one with a camera never is."""
    line = board.engine.state.usart
    quiet = board.usart.due is None and board.usart.hungry and not line.tx_count
    thread = not board.core.active and not board.register(Register.CONTROL) & CONTROL_SPSEL
    return board.powered and board.asleep and quiet and thread and board.camera is None


def take(board: Board) -> Fields:
    """The state of a board at rest."""
    state = board.engine.state
    return {
        "registers": [board.engine.get(READ_AS.get(register, register)) for register in REGISTERS],
        "counts": {name: getattr(state, name) for name in COUNTS},
        "line": {name: getattr(state.usart, name) for name in LINE},
        "parts": {name: _taken(part, names) for name, (part, names) in _parts(board).items()},
    }


def put(board: Board, saved: Fields) -> None:
    """Bring a board that was just made, with the same firmware, into the state that take() described.

    Errors   ValueError where it is no such state
    """
    state = board.engine.state
    try:
        for name, (part, names) in _parts(board).items():
            _restore(part, names, saved["parts"][name])
        for target, names, values in ((state, COUNTS, saved["counts"]), (state.usart, LINE, saved["line"])):
            for name in names:
                setattr(target, name, _number(values[name]))
        for register, value in zip(REGISTERS, saved["registers"], strict=True):
            board.engine.set(register, _number(value) & 0xFFFF_FFFF)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"no state of such a board: {error}") from error
    if board.core.read(CPACR):
        board.fpu_enabled()
    board.window_changed()


def _parts(board: Board) -> dict[str, tuple[object, tuple[str, ...]]]:
    """Every part of a board that has a state: the object, and the attributes that hold it."""
    single = {
        "loop": board.loop,
        "core": board.core,
        "systick": board.core.systick,
        "cycles": board.cycle_counter,
        "clock": board.clock,
    }
    found: dict[str, tuple[object, tuple[str, ...]]] = {name: (single[name], PARTS[name]) for name in PARTS}
    for part in board.peripherals:
        found[part.name] = part, tuple(name for name in PERIPHERAL if hasattr(part, name))
    return found


def _taken(part: object, names: tuple[str, ...]) -> Fields:
    fields: Fields = {}
    for name in names:
        value = getattr(part, name)
        fields[name] = sorted(value.items() if isinstance(value, dict) else value) if _many(value) else value
    return fields


def _restore(part: object, names: tuple[str, ...], fields: Fields) -> None:
    """Each attribute keeps the kind that it has."""
    for name in names:
        now, value = getattr(part, name), fields[name]
        if isinstance(now, dict):
            setattr(part, name, {_number(key): _number(entry) for key, entry in value})
        elif _many(now):
            setattr(part, name, type(now)(_number(entry) for entry in value))
        elif value is None or isinstance(value, (bool, int, float)):
            setattr(part, name, value)
        else:
            raise TypeError(f"{name} is {value!r:.40}")


def _many(value: object) -> bool:
    return isinstance(value, (dict, set, list))


def _number(value: object) -> int:
    """ValueError where it is no natural number of 64 bits."""
    if not isinstance(value, int) or not 0 <= value < 1 << 64:
        raise ValueError(f"{value!r:.40} is no number of 64 bits")
    return value
