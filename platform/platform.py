"""This project's own PlatformIO development platform.

It exists so that `pio run` needs nothing that only PlatformIO's registry has:

* a program that is on PATH is used as it is, otherwise its registry package is;
* SCons, which PlatformIO Core takes from its registry, is taken from pip's `scons` where that is installed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any

from platformio import __registry_mirror_hosts__
from platformio.dependencies import get_core_dependencies
from platformio.exception import UserSideException
from platformio.package.meta import PackageItem, PackageMetadata, PackageSpec, PackageType
from platformio.platform.base import PlatformBase

REGISTRY = ("api." + __registry_mirror_hosts__[0], 443)
REGISTRY_TIMEOUT_S = 5.0
TOOLCHAIN = "toolchain-gccarmnoneeabi"
OPENOCD = "tool-openocd"

SCONS_SCRIPT = """# Written by {origin}; delete this folder to use the registry's SCons
import sys

sys.path.append({scons!r})
from SCons.Script.Main import main

main()
"""


class OfflineError(UserSideException):
    MESSAGE = "{0}"


def registry_is_reachable() -> bool:
    """Ask once: Core itself retries an unreachable registry for a minute, then says nothing."""
    if os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy"):
        return True
    try:
        socket.create_connection(REGISTRY, timeout=REGISTRY_TIMEOUT_S).close()
    except OSError:
        return False
    return True


class Stm32Platform(PlatformBase):
    """A board means an STM32, no board the host."""

    embedded = True

    def is_embedded(self) -> bool:
        return self.embedded

    def configure_default_packages(self, options: dict[str, Any], targets: list[str]) -> None:
        """Called by Core before a build: say which packages this one needs."""
        self.embedded = "board" in options
        super().configure_default_packages(options, targets)
        with_gcc = bool(shutil.which("arm-none-eabi-gcc"))
        self.packages[TOOLCHAIN]["optional"] = with_gcc or not self.embedded
        self.packages[OPENOCD]["optional"] = not self._needs_openocd(options, targets)
        self._require(TOOLCHAIN, "arm-none-eabi-gcc (Debian: gcc-arm-none-eabi libnewlib-arm-none-eabi)")
        self._require(OPENOCD, "openocd (Debian: openocd)")
        self._provide_scons()

    def _needs_openocd(self, options: dict[str, Any], targets: list[str]) -> bool:
        if not self.embedded or not any("upload" in target for target in targets) or shutil.which("openocd"):
            return False
        protocol = options.get("upload_protocol") or self.board_config(options["board"]).get(
            "upload.protocol"
        )
        return bool(protocol == "stlink")

    def _require(self, name: str, program: str) -> None:
        """Fail at once, with a hint, where neither PATH nor the registry has a program."""
        if self.packages[name]["optional"] or self.get_package(name) or registry_is_reachable():
            return
        raise OfflineError(
            f"PATH has no {program}, and PlatformIO's registry cannot be reached for its package `{name}`: "
            "install the program, or connect this machine to the network."
        )

    def _provide_scons(self) -> None:
        """Wrap pip's SCons as the core package `tool-scons`, unless that is installed already."""
        requirement = get_core_dependencies()["tool-scons"]
        if self.pm.get_package(PackageSpec(owner="platformio", name="tool-scons", requirements=requirement)):
            return
        scons = importlib.util.find_spec("SCons")
        if scons and scons.origin:
            self._wrap_scons(Path(scons.origin).parent.parent, requirement.lstrip("~^= "))
        elif not registry_is_reachable():
            raise OfflineError(
                "this Python has no SCons, and PlatformIO's registry cannot be reached for `tool-scons`: "
                "run `python -m pip install scons`."
            )

    def _wrap_scons(self, site_packages: Path, version: str) -> None:
        folder = Path(self.pm.package_dir) / "tool-scons-pip"
        folder.mkdir(parents=True, exist_ok=True)
        manifest = {"name": "tool-scons", "version": version, "system": "*"}
        (folder / "package.json").write_text(json.dumps(manifest), encoding="utf-8")
        script = SCONS_SCRIPT.format(origin=Path(self.manifest_path).resolve(), scons=str(site_packages))
        (folder / "scons.py").write_text(script, encoding="utf-8")
        # A package with a URI is left alone when Core checks the registry for updates.
        spec = PackageSpec(owner="platformio", name="tool-scons", uri=f"file://{folder}")
        PackageItem(str(folder), PackageMetadata(PackageType.TOOL, "tool-scons", version, spec)).dump_meta()
        self.pm.memcache_reset()
