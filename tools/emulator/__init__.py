"""The boards in software: runs the firmware that would be flashed, counts, finds faults."""

from .board import Board
from .errors import EmulatorError, Fault
from .kept import KeptPort
from .loop import Stop, Until
from .port import EmulatedPort
from .report import CacheUse, CallCost, FunctionCost, SramUse, measure_sram

__all__ = [
    "Board",
    "CacheUse",
    "CallCost",
    "EmulatedPort",
    "EmulatorError",
    "Fault",
    "FunctionCost",
    "KeptPort",
    "SramUse",
    "Stop",
    "Until",
    "measure_sram",
]
