"""The library as each ecosystem wants it: packages/ with names and one list of sources filled in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from microtrain import __version__
from microtrain.base.paths import ROOT

TEMPLATES = Path(__file__).with_name("packages")
LICENCE = "LICENSE"


def files(sources: Collection[str], models: list[str]) -> dict[str, str]:
    """Every file of packages/ by its place in the library.

    sources  what is compiled and included, by its place in the library
    models   their names; examples are of the first
    """
    values = _values(sources, models)
    found = {LICENCE: _licence()}
    for path in sorted(TEMPLATES.rglob("*")):
        if path.is_file():
            found[path.relative_to(TEMPLATES).as_posix()] = _filled(path.read_text(encoding="utf-8"), values)
    return found


def _values(sources: Collection[str], models: list[str]) -> dict[str, str]:
    compiled = sorted(name for name in sources if name.endswith(".c"))
    assembly = sorted(name for name in sources if name.endswith(".S"))
    headers = sorted(name for name in sources if name.endswith(".h") and name.count("/") == 1)
    entry = '        <file category="source" name="{}"/>'
    return {
        "version": __version__,
        "model": models[0],
        "MODEL": models[0].upper(),
        "what": ", ".join(models),
        "includes": "\n".join(f'#include "{name}.h"' for name in models),
        "named": "\n".join(f'    {{"{name}", &{name}}},' for name in models),
        "sources": "\n".join(f"    {name}" for name in compiled),
        "sources_mk": _continued(compiled),
        "assembly_mk": _continued(assembly),
        "assembly": "\n".join(f"        {name}" for name in assembly),
        "headers": " ".join(headers),
        "files": "\n".join(entry.format(name) for name in (*compiled, *assembly)),
    }


def _continued(names: list[str]) -> str:
    """A list over several lines of a makefile."""
    return " \\\n".join(f"    {name}" for name in names)


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text


def _licence() -> str:
    """The engine's, in a checkout and in an installed package."""
    return (ROOT / LICENCE).read_text(encoding="utf-8")
