"""What suites call the parts of a board: the variables of keywords.resource, for any of the boards."""

from __future__ import annotations

from microtrain.emulator.chips import Chip
from microtrain.emulator.peripherals.gpio import GPIO_BASE, IDR
from microtrain.emulator.peripherals.usart import NEWER, OLDER
from renode.exerciser import CANVAS, SECTOR

ON_RENODE = ("disco_f746ng",)  # boards that board.resc describes
MARGIN_S = 0.05  # before and after the end of an erase


def variables(chip: Chip) -> dict[str, str]:
    """{name: value} without ${}."""
    port, pin = chip.button
    offset, size = chip.places[SECTOR[chip.board]]
    return {
        "BOARD": chip.board,
        "UART": f"sysbus.{chip.serial.name.lower()}",
        "USER_LED": f"sysbus.gpioPort{chip.led[0]}.userLed",
        "USER_BUTTON": f"sysbus.gpioPort{port}.userButton",
        "BUTTON_REGISTER": f"{GPIO_BASE + 0x400 * chip.ports.index(port) + IDR:#010x}",
        "BUTTON_MASK": f"{1 << pin:#x}",
        "BUTTON_DOWN": f"{int(chip.pressed) << pin:#x}",
        "SECTOR": f"{0x0800_0000 + offset:#010x}",
        "STILL_ERASING_S": f"{chip.erase_s[size] - MARGIN_S:g}",
        "CANVAS": f"{CANVAS[chip.board]:#010x}",
        "USART_BRR": f"{chip.serial.base + (OLDER if chip.serial.older else NEWER).brr:#010x}",
        "SERIAL_IRQ": str(chip.serial.irq),
        "SERIAL_BUS": str({1: 10, 2: 13}[chip.serial.apb]),
        "HSE_HZ": str(chip.hse_hz),
        "CORE_HZ": str(chip.max_hz),
        "APB1_HZ": str(chip.apb_max_hz[0]),
        "APB2_HZ": str(chip.apb_max_hz[1]),
        "SEND_PULLS": _pulls(chip, chip.serial.send[0]),
        "SEND_PIN": str(chip.serial.send[1]),
        "RECEIVE_PULLS": _pulls(chip, chip.serial.receive[0]),
        "RECEIVE_PIN": str(chip.serial.receive[1]),
    }


def _pulls(chip: Chip, port: str) -> str:
    """Address of a port's GPIO_PUPDR."""
    return f"{GPIO_BASE + 0x400 * chip.ports.index(port) + 0x0C:#010x}"
