"""Objects of C sources, each compiled for itself: ccache knows those that another build has compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from microtrain.base.errors import Error


def objects(cc: str, flags: Sequence[str], sources: Sequence[Path], root: Path, folder: Path) -> list[Path]:
    """Compile sources, with ccache where it is installed.

    flags    of the compiler; folders of headers below `root` relative to it
    root     where the compiler runs. What lies below it is named relative to it: ccache takes two sources for
             the same only where the names of all headers are, so a library may lie anywhere
    folder   where the objects go, one for each source
    Errors   Error with what the compiler says
    """
    ccache = shutil.which("ccache")
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for number, source in enumerate(sources):
        name = source.relative_to(root) if source.is_relative_to(root) else source
        made.append(folder / f"{number}-{source.stem}.o")
        command = [*([ccache] if ccache else []), cc, *flags, "-c", str(name), "-o", str(made[-1].resolve())]
        environment = {**os.environ, "CCACHE_NOHASHDIR": "1"}
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Error(f"{cc} does not compile {source}: {done.stderr[:1000]}")
    return made
