"""A process that can write to one folder only, by order of the kernel (Landlock, Linux 5.13 and later).

Files are read everywhere, as before. Beside it Python's audit hooks note what the kernel would not tell: that
a pickle looked for a class, that a program was started, that a file elsewhere was about to be written.
Source: Documentation/userspace-api/landlock.rst, PEP 578.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from pathlib import Path
from typing import Any

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls, the same on all architectures
NO_NEW_PRIVS, PATH_BENEATH = 38, 1
WRITING = 0x1FF2  # write, remove, make: all rights of ABI 1 but execute, read file, read directory
LATER = {2: 1 << 13, 3: 1 << 14, 5: 1 << 15}  # refer, truncate, ioctl: the ABI that has them

SUSPICIOUS = (
    "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect", "socket.bind",
    "pickle.find_class", "os.remove", "os.rename", "os.rmdir", "os.chmod", "os.symlink", "os.link",
    "shutil.rmtree", "shutil.move", "ctypes.dlopen", "webbrowser.open",
)  # fmt: skip


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def confine(folder: Path) -> bool:
    """From here on this process and its children write below the folder alone. False: the kernel cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    abi = libc.syscall(CREATE_RULESET, None, 0, 1)
    if abi < 1:
        return False
    rights = WRITING | sum(bit for since, bit in LATER.items() if abi >= since)
    wanted = _Ruleset(rights)
    ruleset = libc.syscall(CREATE_RULESET, ctypes.byref(wanted), ctypes.sizeof(wanted), 0)
    for path in (folder, Path(os.devnull)):
        allowed = rights if path.is_dir() else 0x2 | (rights & LATER[3])
        rule = _Beneath(allowed, os.open(path, os.O_PATH))
        if libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(rule), 0):
            return False
    libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
    return bool(libc.syscall(RESTRICT_SELF, ruleset, 0) == 0)


def limit_memory(megabytes: int) -> None:
    """Beyond this, asking for memory fails in this process."""
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


def peak_megabytes() -> int:
    """The most memory that this process held since it was started.

    Linux alone says so (proc(5), VmHWM): the maximum of getrusage(2) begins with that of the process
    that started this one.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) >> 10


class Watch:
    """Collects what no reader of a file does. `seen` is cleared by whoever has looked at it."""

    def __init__(self, folder: Path) -> None:
        self.seen: list[str] = []
        self.folder = os.fspath(folder.resolve())
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if event in SUSPICIOUS and not self._inside(args):
            self.seen.append(f"{event} {args!r:.80}")
        elif event == "open" and _writes(args) and not self._inside(args):
            self.seen.append(f"writes {args[0]!r:.80}")

    def _inside(self, args: tuple[Any, ...]) -> bool:
        """Whether the first argument is a path below the folder."""
        try:
            path = Path(os.fspath(args[0])).absolute()
        except (TypeError, IndexError, ValueError):
            return False
        return str(path).startswith(self.folder)


def _writes(args: tuple[Any, ...]) -> bool:
    path, mode, flags = args
    if not isinstance(path, str | bytes) or path == os.devnull:
        return False
    return bool((flags or 0) & (os.O_WRONLY | os.O_RDWR)) or (
        isinstance(mode, str) and bool(set(mode) & set("wax+"))
    )
