"""Plans for tests: that of the null model, with what a test changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pio_build import NULL_MODEL


def plan_document(**changes: Any) -> dict[str, Any]:
    """A whole plan.json."""
    return {**json.loads((NULL_MODEL / "plan.json").read_text()), **changes}


def write_plan(folder: Path, **changes: Any) -> Path:
    """The path of such a file in a folder."""
    path = folder / "plan.json"
    path.write_text(json.dumps(plan_document(**changes)))
    return path
