"""Where the project's files are: in a checkout beside the package, in an installed package within it."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = (PACKAGE.parent / "platformio.ini").is_file()

# The PlatformIO project that ships: platformio.ini, firmware/, platform/, scripts/, examples/.
ROOT = PACKAGE.parent if CHECKOUT else PACKAGE / "project"
FIRMWARE = ROOT / "firmware"


def project() -> Path | None:
    """The PlatformIO project that is being worked in; else the checkout, None without either."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "platformio.ini").is_file() and (folder / "firmware/include/model_api.h").is_file():
            return folder
    return ROOT if CHECKOUT else None


def cache() -> Path:
    """What can be made again: build/ in a checkout, a folder of the user's elsewhere."""
    if CHECKOUT:
        return ROOT / "build"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "microtrain"
