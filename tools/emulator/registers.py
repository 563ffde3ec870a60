"""Names of the processor's registers, with Unicorn's numbers."""

from __future__ import annotations

from enum import IntEnum

from unicorn import arm_const


class Register(IntEnum):
    R0 = arm_const.UC_ARM_REG_R0
    R1 = arm_const.UC_ARM_REG_R1
    R2 = arm_const.UC_ARM_REG_R2
    R3 = arm_const.UC_ARM_REG_R3
    R4 = arm_const.UC_ARM_REG_R4
    R5 = arm_const.UC_ARM_REG_R5
    R6 = arm_const.UC_ARM_REG_R6
    R7 = arm_const.UC_ARM_REG_R7
    R8 = arm_const.UC_ARM_REG_R8
    R9 = arm_const.UC_ARM_REG_R9
    R10 = arm_const.UC_ARM_REG_R10
    R11 = arm_const.UC_ARM_REG_R11
    R12 = arm_const.UC_ARM_REG_R12
    SP = arm_const.UC_ARM_REG_SP
    LR = arm_const.UC_ARM_REG_LR
    PC = arm_const.UC_ARM_REG_PC
    XPSR = arm_const.UC_ARM_REG_XPSR
    NZCVQG = arm_const.UC_ARM_REG_XPSR_NZCVQG
    EPSR = arm_const.UC_ARM_REG_EPSR
    IPSR = arm_const.UC_ARM_REG_IPSR
    CONTROL = arm_const.UC_ARM_REG_CONTROL
    BASEPRI = arm_const.UC_ARM_REG_BASEPRI
    PRIMASK = arm_const.UC_ARM_REG_PRIMASK
    FAULTMASK = arm_const.UC_ARM_REG_FAULTMASK
    S0 = arm_const.UC_ARM_REG_S0
    FPSCR = arm_const.UC_ARM_REG_FPSCR

    @classmethod
    def general(cls) -> tuple[Register, ...]:
        """R0 to R12."""
        return tuple(cls[f"R{number}"] for number in range(13))
