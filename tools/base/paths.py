"""Where the project's files are: in a checkout beside the package, in an installed package within it."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = (PACKAGE.parent / "platformio.ini").is_file()

# The PlatformIO project that ships: platformio.ini, firmware/, platform/, scripts/, examples/.
ROOT = PACKAGE.parent if CHECKOUT else PACKAGE / "project"
FIRMWARE = ROOT / "firmware"


def cache() -> Path:
    """What can be made again: build/ in a checkout, a folder of the user's elsewhere."""
    if CHECKOUT:
        return ROOT / "build"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "microtrain"
