"""The one reader of ELF files, against binutils."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from emulator_firmware import build

from microtrain.base.elf import Elf, read_elf
from microtrain.base.errors import FileError

if shutil.which("arm-none-eabi-gcc") is None:
    pytest.skip("arm-none-eabi-gcc is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def elf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("elf"))


def binutils(tool: str, *words: object) -> list[str]:
    command = [f"arm-none-eabi-{tool}", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def nm(path: Path) -> dict[str, int]:
    rows = [line.split() for line in binutils("nm", "--defined-only", path)]
    return {name: int(value, 16) for value, _, name in rows if not name.startswith("$")}


def objdump(path: Path) -> set[tuple[str, int, int, int]]:
    """Name, size, address and load address of the allocated sections."""
    text = "\n".join(binutils("objdump", "-h", path))
    row = re.compile(r"^ +\d+ (\S+) +(\w{8})  (\w{8})  (\w{8})  \w{8}  2\*\*\d+\n(.*)$", re.M)
    parts = [(name, *(int(n, 16) for n in numbers), flags) for name, *numbers, flags in row.findall(text)]
    return {(name, size, at, load) for name, size, at, load, flags in parts if "ALLOC" in flags and size}


def agrees(firmware: Elf, path: Path) -> bool:
    """Symbols (nm shows Thumb functions at their even address) and sections."""
    names = {s.name: s.address for s in firmware.symbols if s.defined and s.kind != "other"}
    sections = {(s.name, s.size, s.address, s.load) for s in firmware.sections if s.bits}
    found = {part for part in objdump(path) if part[0] in {s.name for s in firmware.sections if s.bits}}
    return names == nm(path) and sections == found


def test_symbols_and_sections_are_those_of_binutils(elf: Path) -> None:
    firmware = read_elf(elf)
    assert agrees(firmware, elf)
    assert {s.file == "" for s in firmware.symbols if s.binding != "STB_LOCAL"} == {True}
    wrong = tuple(replace(s, load=s.load + 4) for s in firmware.sections)
    assert not agrees(replace(firmware, sections=wrong), elf)
    assert not agrees(replace(firmware, symbols=firmware.symbols[1:]), elf)


def test_lines_are_those_of_addr2line(elf: Path) -> None:
    firmware = read_elf(elf)
    functions = [s.address for s in firmware.symbols if s.function and s.size]
    said = binutils("addr2line", "-e", elf, *map(hex, functions))
    known = [
        (at, Path(row.split(" ")[0]).name) for at, row in zip(functions, said, strict=True) if "?" not in row
    ]
    assert len(known) > 5 and all(firmware.line(at) == row for at, row in known)
    assert any(firmware.line(at + 64) != row for at, row in known)


@pytest.mark.parametrize("dwarf", [4, 5])
def test_the_end_of_a_source_hides_no_line_behind_it(dwarf: int, tmp_path: Path) -> None:
    """Where a source is read later, and lies before the other. What stands in a header is the header's."""
    for name, file in (("a", "a.c"), ("b", "b.h")):
        (tmp_path / file).write_text(f"int f{name}(int x);\nint f{name}(int x) {{ return x + 1; }}\n")
    (tmp_path / "b.c").write_text('#include "b.h"\n')
    flags = [
        "-mcpu=cortex-m7",
        "-mthumb",
        "-Os",
        f"-gdwarf-{dwarf}",
        f"-Wa,--gdwarf-{dwarf}",
        "-ffunction-sections",
        "-nostdlib",
    ]
    link = ["-Wl,--sort-section=name", "-Wl,-e,0", "-o", str(tmp_path / "both.elf")]
    sources = [str(tmp_path / f"{name}.c") for name in "ba"]
    subprocess.run(["arm-none-eabi-gcc", *flags, *sources, *link], check=True)
    firmware = read_elf(tmp_path / "both.elf")
    first, second = (next(s for s in firmware.symbols if s.name == name) for name in ("fa", "fb"))
    assert first.address + first.size == second.address
    assert [firmware.line(s.address) for s in (first, second)] == ["a.c:2", "b.h:2"]


def test_bytes_are_those_that_are_programmed(elf: Path, tmp_path: Path) -> None:
    """A copy of a section by objcopy, and the flash image as a whole."""
    firmware = read_elf(elf)
    part = max((s for s in firmware.sections if s.execute), key=lambda s: s.size)
    binutils("objcopy", "-O", "binary", "-j", part.name, elf, tmp_path / "part.bin")
    assert firmware.read(part.address, part.size) == (tmp_path / "part.bin").read_bytes()
    binutils("objcopy", "-O", "binary", elf, tmp_path / "all.bin")
    image = (tmp_path / "all.bin").read_bytes()
    first = min(address for address, _ in firmware.segments)
    for address, data in firmware.segments:
        assert image[address - first :][: len(data)] == data


def test_what_is_no_firmware_is_one_sentence(elf: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.elf"
    content = elf.read_bytes()
    for damaged, said in (
        (b"", "is not an ELF file that can be read"),
        (content[:60], "is not an ELF file that can be read"),
        (Path("/bin/true").read_bytes(), "is not a linked firmware for Arm"),
    ):
        bad.write_bytes(damaged)
        with pytest.raises(FileError, match=said):
            read_elf(bad)
    with pytest.raises(FileError, match="no such ELF file"):
        read_elf(tmp_path / "none.elf")
    binutils("strip", elf, "-o", bad)
    with pytest.raises(FileError, match="has no symbols"):
        read_elf(bad).with_symbols()
    with pytest.raises(FileError, match="has no nobody"):
        read_elf(elf).value("nobody")
    with pytest.raises(FileError, match="holds nothing at 0x00000004"):
        read_elf(elf).word(4)
