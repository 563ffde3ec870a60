"""What the firmware's sources promise without being run: their licence."""

from __future__ import annotations

from pathlib import Path

from networks import residual_network

from microtrain.convert.pipeline import compile_graph, generate
from microtrain.convert.scheme import Scheme

ROOT = Path(__file__).resolve().parent.parent
FIRMWARE = ROOT / "firmware"
SOURCES = (".c", ".h", ".S", ".inc", ".ld")
LICENCE = "/* SPDX-License-Identifier: Apache-2.0 */\n"


def sources(*folders: Path) -> list[Path]:
    """Files of C, assembly and the linker, but for what `convert` has written."""
    found = [path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix in SOURCES]
    return [path for path in found if FIRMWARE / "generated" not in path.parents]


# ---------------------------------------------------------------- licence


def unlicensed(paths: list[Path]) -> list[str]:
    """Names of the files that do not begin with the licence."""
    return [path.name for path in paths if not path.read_text(encoding="utf-8").startswith(LICENCE)]


def test_every_source_names_its_licence() -> None:
    found = sources(FIRMWARE, ROOT / "examples", ROOT / "test")
    assert {path.suffix for path in found} == set(SOURCES) and len(found) > 100
    assert unlicensed(found) == []


def test_a_source_without_licence_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "good.c").write_text(LICENCE + "int one;\n")
    (tmp_path / "late.h").write_text("int two;\n" + LICENCE)
    (tmp_path / "none.S").write_text("    nop\n")
    assert unlicensed(sources(tmp_path)) == ["late.h", "none.S"]


def test_what_is_generated_says_whose_it_is() -> None:
    files = generate(compile_graph(residual_network(), Scheme("s", 1), 3), "a test").files
    texts = {name: text for name, text in files.items() if name.endswith((".c", ".h"))}
    assert len(texts) == 3
    for text in texts.values():
        head = text.partition("*/")[0]
        assert "It belongs to whoever ran the conversion." in head and "SPDX" not in text
