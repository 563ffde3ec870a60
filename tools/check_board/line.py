"""At which rates a board's serial line loses nothing."""

from __future__ import annotations

from microtrain.device.client import Device

RATES = (115200, 230400, 460800, 921600, 1000000, 2000000, 3000000)


def clean_rates(device: Device) -> dict[int, bool]:
    """Baud rate -> whether bursts of pings are all answered there; {} on a line that has no rate."""
    return {baud: device.bears(baud) for baud in RATES} if device.has_rate else {}
