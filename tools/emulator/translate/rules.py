"""All instructions that are translated. Of the others, and of others' operands, Unicorn takes care."""

from __future__ import annotations

from .instruction import Instruction, Rule, UnknownInstructionError
from .integers import INTEGERS
from .memory import MEMORY
from .reals import REALS

RULES: dict[str, Rule] = {**INTEGERS, **MEMORY, **REALS}


def statements(i: Instruction) -> str:
    """What an instruction does that is no jump.

    Errors   UnknownInstructionError
    """
    rule = RULES.get(i.name)
    if rule is None:
        raise UnknownInstructionError(i.name)
    try:
        return rule(i)
    except (IndexError, ValueError) as error:
        raise UnknownInstructionError(i.name) from error
