"""PlatformIO, run in a workspace of its own, with a model of choice."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from .commands import checked, environment
from .hostcc import cache_folder
from .paths import ROOT

BOARD, NATIVE = "disco_f746ng", "native"  # environments of platformio.ini
COMPILERS = ("cc", "gcc", "arm-none-eabi-gcc")


def pio(
    *words: str,
    workspace: Path,
    model: Path,
    project: Path = ROOT,
    extra: Mapping[str, str | None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run PlatformIO. With -s it drops the report of the memory, which is then not made (pio_memory.py).

    workspace  holds all that it makes; the build folder is workspace/build
    model      folder of the generated model
    extra      variables of the environment; None: unset
    """
    own = {
        "MICROTRAIN_MODEL": str(model),
        "PLATFORMIO_WORKSPACE_DIR": str(workspace),
        "PLATFORMIO_BUILD_DIR": str(workspace / "build"),
        "PLATFORMIO_SETTING_ENABLE_TELEMETRY": "no",
        **({"MICROTRAIN_SILENT": "1"} if "-s" in words else {}),
        **with_ccache(),
        **(extra or {}),
    }
    command = [sys.executable, "-m", "platformio", *words]
    return subprocess.run(
        command, cwd=project, env=environment(own), text=True, capture_output=True, check=False
    )


def with_ccache() -> dict[str, str]:
    """Variables that let ccache stand before the compilers; {} where it is not installed.

    Builds of several models share most of their objects, whatever folders they are built in.
    """
    ccache = shutil.which("ccache")
    if ccache is None:
        return {}
    folder = cache_folder() / f"links{ccache.replace(os.sep, '-')}"
    folder.mkdir(exist_ok=True)
    for name in COMPILERS:
        with contextlib.suppress(FileExistsError):
            (folder / name).symlink_to(ccache)
    path = f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {"PATH": path, "CCACHE_NOHASHDIR": "1"}


def build(model: Path, workspace: Path, *environments: str) -> list[Path]:
    """`pio run` of some environments; returns the ELF or the program of each.

    Errors   Error with the end of the log, workspace.log, where it fails
    """
    selection = [word for name in environments for word in ("-e", name)]
    checked(pio("run", "-s", *selection, workspace=workspace, model=model), workspace.with_suffix(".log"))
    return [product(workspace, name) for name in environments]


def product(workspace: Path, environment: str) -> Path:
    """What a build of an environment makes."""
    name = "program" if environment.startswith(NATIVE) else "firmware.elf"
    return workspace / "build" / environment / name
