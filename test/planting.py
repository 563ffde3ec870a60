"""Copies of the kernels with faults planted in them."""

from __future__ import annotations

import shutil
from pathlib import Path

from microtrain.base.paths import ROOT

KERNELS = ROOT / "firmware/src/kernels"


def planted(folder: Path, *faults: tuple[str, str, str]) -> Path:
    """The kernels in `folder`, which may be there. faults: file, right text, wrong text in all its places"""
    shutil.copytree(KERNELS, folder, dirs_exist_ok=True)
    for name, right, wrong in faults:
        text = (folder / name).read_text()
        assert right in text, f"{name} no longer contains {right!r}: plant the fault elsewhere"
        (folder / name).write_text(text.replace(right, wrong))
    return folder
