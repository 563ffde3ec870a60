"""The C compilers on this machine, and a folder that keeps what they made.

    library = compiled(Parts("the kernels", "kernels", sources, ("-shared", "-fPIC"), (include,)), folder)

What is kept bears a hash of all that it is made from in its name, so nothing is compiled twice and nothing is
stale. Of several C files each has an object of its own, so that a change costs one of them and a link; where
ccache is installed, a header or a flag costs only what it changes, and a copy of the sources nothing. Many
processes may ask for the same at once.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from . import paths
from .errors import Error

INCLUDED = re.compile(r'^#include "([\w.]+\.c)"', re.MULTILINE)
OF_THE_LINKER = ("-shared", "-r", "-nostdlib")  # a compiler that links nothing may complain of these


@dataclass(frozen=True)
class Parts:
    """What a file is made from.

    what     it is, in a sentence
    name     of the file, to which the hash is added
    sources  C files, or objects
    flags    of the compiler; a file that one of them names is among `others`, since the hash follows no paths
    include  folders of headers; every .h below them counts
    others   further files that count
    forced   a header that is included before each source
    hint     the way out where it does not compile
    """

    what: str
    name: str
    sources: tuple[Path, ...]
    flags: tuple[str, ...]
    include: tuple[Path, ...] = ()
    others: tuple[Path, ...] = ()
    forced: Path | None = None
    hint: str = "the checkout is not complete, or has a mistake"

    def inputs(self) -> list[Path]:
        """Every file that counts."""
        headers = [path for folder in self.include for path in sorted(folder.glob("**/*.h"))]
        return [*self.sources, *headers, *self.others, *([self.forced] if self.forced else [])]

    @property
    def folder(self) -> Path:
        """Where the compiler runs, the last folder of headers: ccache takes two sources for the same only
        where the names of all files are, and that folder may lie anywhere."""
        found = [folder for folder in self.include if folder.is_dir()]
        return (found[-1] if found else self.sources[0].parent).resolve()

    def arguments(self) -> list[str]:
        def named(path: Path) -> str:
            whole = path.resolve()
            return str(whole.relative_to(self.folder) if whole.is_relative_to(self.folder) else whole)

        forced = ["-include", named(self.forced)] if self.forced else []
        include = [f"-I{named(folder)}" for folder in self.include]
        libraries = [] if {"-c", "-r", "-nostdlib"} & set(self.flags) else ["-lm"]
        return [*self.flags, *forced, *include, *map(named, self.sources), *libraries]

    @property
    def objects(self) -> list[Parts]:
        """What becomes an object of its own: each C file, where there are several."""
        found = [path for path in self.sources if path.suffix == ".c"]
        flags = ("-c", *(flag for flag in self.flags if flag not in OF_THE_LINKER))
        return [
            replace(self, name=p.stem, sources=(p,), flags=flags, others=(*self.others, *included(p)))
            for p in found
            if len(found) > 1
        ]


def included(source: Path) -> list[Path]:
    """The C files beside a C file that it includes, which are in no folder of headers."""
    names = INCLUDED.findall(source.read_text(encoding="utf-8", errors="replace")) if source.is_file() else []
    return [path for path in (source.parent / name for name in names) if path.is_file()]


def compiled(parts: Parts, folder: Path | None = None, cc: str | None = None, suffix: str = ".so") -> Path:
    """The file that the compiler makes of the parts, in `folder`; made where the folder lacks it.

    folder   None: cache_folder()
    cc       a compiler's name; None: compiler()
    Errors   Error where there is no compiler, a source is missing, or it does not compile
    """
    found = compiler(cc)
    folder = folder or cache_folder()
    target = folder / f"{parts.name}-{_identity(found, parts)}{suffix}"
    if target.is_file():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    linked = _with_objects(parts, folder, cc)
    handle, part = tempfile.mkstemp(dir=folder.resolve(), suffix=".part")
    os.close(handle)
    try:
        _compile([found, *linked.arguments(), "-o", part], parts)
        Path(part).replace(target)  # atomic: another process may have made it meanwhile
    finally:
        Path(part).unlink(missing_ok=True)
    return target


def compiler(name: str | None = None) -> str:
    """Path of the C compiler: the given one, else $CC, else cc, gcc or clang. Error where there is none."""
    wanted = [name] if name else list(dict.fromkeys([os.environ.get("CC") or "cc", "cc", "gcc", "clang"]))
    for candidate in wanted:
        if found := shutil.which(candidate):
            return found
    package = {"arm-none-eabi-gcc": "gcc-arm-none-eabi"}.get(name or "gcc", name or "gcc")
    raise Error(
        f"no C compiler on PATH (looked for {', '.join(wanted)}): install one, on Debian and Ubuntu with "
        f"`apt-get install {package}`."
    )


def cache_folder() -> Path:
    """Where compiled files are kept: a folder of the user's own that can be written."""
    wanted = paths.cache() / "host"
    private = Path(tempfile.gettempdir()) / f"microtrain-{os.getuid()}"
    for folder in (wanted, private):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK):
            return folder
    raise Error(f"neither {wanted} nor {private} can be written: set XDG_CACHE_HOME to a folder of yours.")


def _with_objects(parts: Parts, folder: Path, cc: str | None) -> Parts:
    """The parts with an object in the place of each C file, where there are several."""
    objects = parts.objects
    if not objects:
        return parts
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(lambda one: compiled(one, folder, cc, ".o"), objects)
        return replace(parts, sources=(*made, *(p for p in parts.sources if p.suffix != ".c")))


def _compile(command: list[str], parts: Parts) -> None:
    ccache = shutil.which("ccache") if "-c" in parts.flags else None
    words = [*([ccache] if ccache else []), *command]
    environment = {**os.environ, "CCACHE_NOHASHDIR": "1"}
    done = subprocess.run(
        words, cwd=parts.folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        first = next((line for line in lines if "error:" in line), lines[0])
        raise Error(f"{command[0]} could not compile {parts.what} ({first}): {parts.hint}.")


def _identity(cc: str, parts: Parts) -> str:
    """Hash of everything that the file is made from: sources, headers, flags, compiler and machine."""
    state = hashlib.sha256(repr((Path(cc).name, _version(cc), platform.machine(), parts.flags)).encode())
    for path in parts.inputs():
        try:
            state.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        except OSError as error:
            raise Error(f"{path} cannot be read ({error.strerror}): {parts.hint}.") from error
    return state.hexdigest()[:16]


@functools.cache
def _version(cc: str) -> str:
    return subprocess.run([cc, "--version"], capture_output=True, text=True, check=False).stdout
