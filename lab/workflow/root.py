"""A bare Debian root in a folder: made by debootstrap, entered by chroot, and left as a shell leaves it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from microtrain.base.errors import Error
from microtrain.base.paths import ROOT

SUITES = {"debian:12": "bookworm", "debian:13": "trixie"}
WORK = "/checkout"  # in the root
ADDED, SET = "/tmp/github_path", "/tmp/github_env"  # files that steps write to
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Root:
    """folder: of the root; binds: folders of this machine that are seen in it, read-only."""

    folder: Path
    binds: tuple[Path, ...] = ()

    def make(self, image: str) -> None:
        """The root of an image; one that is there stays. Error where it cannot be made."""
        if (self.folder / "etc/debian_version").is_file():
            return
        if image not in SUITES:
            raise Error(
                f"only {', '.join(SUITES)} can be made here, not {image or 'a job without an image'}."
            )
        for program in ("debootstrap", "unshare", "chroot"):
            if shutil.which(program) is None:
                raise Error(f"there is no {program} on PATH: `apt-get install debootstrap`, as root.")
        if os.geteuid():
            raise Error("a root is made and entered by root alone.")
        command = ["debootstrap", "--variant=minbase", SUITES[image], str(self.folder)]
        if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
            raise Error(f"debootstrap failed: {self.folder}/debootstrap/debootstrap.log says why.")

    def checkout(self) -> None:
        """What actions/checkout does: the commit that this checkout is at."""
        target = self.folder / WORK.lstrip("/")
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(target)], check=True)
        for name in (ADDED, SET):
            (self.folder / name.lstrip("/")).write_text("", encoding="utf-8")

    def run(self, script: str, environment: Mapping[str, str], seconds: float) -> int:
        """Exit status of a script in the root, as GitHub runs it; 124 where it takes too long."""
        lines = (self.folder / ADDED.lstrip("/")).read_text(encoding="utf-8").split()
        known = {"HOME": "/root", "PATH": ":".join([*reversed(lines), PATH]), "CI": "true", **environment}
        known |= {"GITHUB_PATH": ADDED, "GITHUB_ENV": SET}
        (self.folder / "tmp/step.sh").write_text(script, encoding="utf-8")
        where = WORK if (self.folder / WORK.lstrip("/")).is_dir() else "/"
        inside = ["env", "-i", *(f"{k}={v}" for k, v in known.items()), "bash", "-c"]
        inside.append(f"cd {where} && exec bash --noprofile --norc -eo pipefail /tmp/step.sh")
        words = ["timeout", f"{seconds:.0f}", "chroot", str(self.folder), *inside]
        mounts = " && ".join([*self._mounts(), "exec " + shlex.join(words)])
        return subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "sh", "-c", mounts], check=False
        ).returncode

    def _mounts(self) -> list[str]:
        """Commands that make a root usable; they end with the step."""
        root = shlex.quote(str(self.folder))
        found = [f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev"]
        found.append(f"cp -L /etc/resolv.conf {root}/etc/resolv.conf")
        for bind in self.binds:
            target = shlex.quote(f"{self.folder}{bind.absolute()}")
            make = (
                f"mkdir -p {target}" if bind.is_dir() else f"mkdir -p $(dirname {target}) && touch {target}"
            )
            found.append(f"{make} && mount --bind -r {shlex.quote(str(bind.absolute()))} {target}")
        return found
