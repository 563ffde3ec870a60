"""A fleet of one's own as a Flower app: a folder that `flwr run` sends to the server and to every node."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .errors import FleetError
from .settings import Settings

APP = """\
# Written by `microtrain fleet new`. `flwr run .` runs it; docs/fleet.md says how.
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0.0"
description = "A fleet of boards that learn together"
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "nobody"

[tool.flwr.app.components]
serverapp = "fleet:server"
clientapp = "fleet:client"

[tool.flwr.app.config]
{config}
"""
CODE = '''\
"""What Flower runs; microtrain is installed on the server and on every node."""

from microtrain.fleet.apps import client, server

__all__ = ["client", "server"]
'''


def create(folder: Path, settings: Settings) -> None:
    """Write the app. FleetError where the folder is not empty or cannot be written."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FleetError(f"{folder} is there already: name a new folder, or delete it first.")
    config = "\n".join(f"{key} = {toml(value)}" for key, value in asdict(settings).items())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pyproject.toml").write_text(APP.format(name="fleet", config=config), encoding="utf-8")
        (folder / "fleet.py").write_text(CODE, encoding="utf-8")
    except OSError as error:
        raise FleetError(f"{folder} cannot be written ({error.strerror}).") from error


def toml(value: Any) -> str:
    """A string or a number; JSON writes them as TOML does."""
    return json.dumps(" ".join(value) if isinstance(value, tuple) else value)
