"""Which device a command talks to: a port, an emulated board, or a program on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from microtrain.base.errors import Error
from microtrain.base.plan import Plan, read_plan
from microtrain.base.terminal import say

from .client import Device
from .errors import DeviceError
from .link import DEFAULT_BAUD, EmulatorPort, Port, ProgramPort, SerialPort
from .options import Rates
from .plan import check_same_model

DEFAULT_PLAN = Path("firmware/generated/plan.json")


@dataclass(frozen=True)
class Target:
    """Which device to talk to, and the plan of the model it should run."""

    port: str | None
    emulate: Path | None
    native: Path | None
    plan: Path | None
    baud: int | None
    fresh: bool = False

    def open_port(self) -> tuple[Port, str]:
        """The byte port and what to call it. DeviceError where not exactly one is named."""
        if self.fresh and self.emulate is None:
            raise DeviceError(
                "--fresh is for --emulate; a board forgets with the commands `forget` and `reset`."
            )
        if sum(choice is not None for choice in (self.port, self.emulate, self.native)) != 1:
            raise DeviceError(
                "name one device: --port /dev/ttyACM0, or --emulate FILE.elf, or --native PROGRAM."
            )
        if self.emulate is not None:
            board = EmulatorPort(self.emulate, kept=True, fresh=self.fresh)
            say(board.told, err=True)
            return board, str(self.emulate)
        if self.native is not None:
            if "MICROTRAIN_FLASH" not in os.environ:
                say(
                    f"{self.native} forgets all when it ends; MICROTRAIN_FLASH=FILE keeps what it saves",
                    err=True,
                )
            return ProgramPort(self.native), str(self.native)
        assert self.port is not None
        return SerialPort(self.port), self.port

    def connect(self) -> Device:
        """The device, greeted; with --plan it must run that plan's model."""
        port, where = self.open_port()
        try:
            device = Device(port, where, self.baud or DEFAULT_BAUD)
            if self.plan is not None:
                check_same_model(read_plan(self.plan), device.info.model, device.info.model_id, where)
        except BaseException:
            port.close()
            raise
        return device

    def hurry(self, device: Device) -> None:
        """Where no rate was asked for, take the fastest: for commands that move much."""
        if self.baud is None and (baud := device.hurry()) != DEFAULT_BAUD:
            say(f"the line runs at {baud} baud", err=True)

    def plan_of(self, device: Device) -> Plan:
        """The plan of the model that the device runs: --plan, or the one beside the firmware."""
        plan = read_plan(self.plan or DEFAULT_PLAN)
        check_same_model(plan, device.info.model, device.info.model_id, device.where)
        return plan

    def rates_of(self, device: Device) -> Rates | None:
        """The scheme's learning rates; None where no plan of the model is at hand and none was named.

        A plan of another model beside the firmware is told of: perhaps the new firmware was not uploaded.
        """
        if self.plan is None and not DEFAULT_PLAN.is_file():
            return None
        try:
            return self.plan_of(device).scheme.learning_rate.all
        except Error as error:
            if self.plan is not None:
                raise
            say(f"note: {error}", err=True)
            return None
