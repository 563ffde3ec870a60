"""Markdown pages taken apart: their links, their headings, and the commands in their blocks."""

from __future__ import annotations

import configparser
import importlib
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import click
from conftest import ROOT

from microtrain import cli

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
C_FILE = re.compile(r"^```c\n(/\* (\w+\.c) \*/\n.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^    .*\n)+", re.MULTILINE)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
ASSIGNMENT = re.compile(r"\w+=\S+")
BETWEEN = {"&&", "||", "|", ";", "&"}
SHELL = {"sh", "shell", "bash", "console"}
OPTION = re.compile(r"--[a-z][a-z0-9-]*(?:=\S*)?")
OTHERS = {
    "pip",
    "gcc",
    "renode",
    "openssl",
    "ssh-keygen",
    "flwr",
    "flower-superlink",
    "flower-supernode",
}  # programs whose options are not ours


def c_files(text: str) -> dict[str, str]:
    """Name -> text of every file in C that a page shows."""
    return {name: block for block, name in C_FILE.findall(text)}


def pages() -> list[Path]:
    """Every page that people read."""
    top = [ROOT / f"{name}.md" for name in ("README", "DESIGN", "CONTRIBUTING", "SECURITY", "CHANGELOG")]
    return [*top, *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "lab/pages").glob("*.md"))]


def links(text: str) -> list[str]:
    """Targets of the links of a page which lead to files or headings of ours."""
    prose = CODE.sub("", INDENTED.sub("", FENCE.sub("", text)))
    return [
        target for target in LINK.findall(prose) if "://" not in target and not target.startswith("mailto:")
    ]


def anchors(text: str) -> set[str]:
    """What can stand behind # in a link to a page, as GitHub makes it of headings."""
    found: list[str] = []
    for heading in HEADING.findall(FENCE.sub("", text)):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return set(found)


def broken(page: Path, text: str) -> list[str]:
    """The links of a page that lead nowhere."""
    return [target for target in links(text) if not resolves(page, text, target)]


def resolves(page: Path, text: str, target: str) -> bool:
    name, _, anchor = target.partition("#")
    file = (page.parent / name).resolve() if name else page
    if not (file.exists() and file.is_relative_to(ROOT)):
        return False
    return not anchor or anchor in anchors(file.read_text(encoding="utf-8") if name else text)


def reachable(start: Path) -> set[Path]:
    """The pages that one comes to from a page by following links."""
    seen, waiting = {start}, [start]
    while waiting:
        page = waiting.pop()
        targets = {
            (page.parent / t.partition("#")[0]).resolve() for t in links(page.read_text(encoding="utf-8"))
        }
        new = {t for t in targets if t.suffix == ".md" and t.is_file()} - seen
        seen |= new
        waiting += new
    return seen


def commands(text: str) -> list[list[str]]:
    """The simple commands of a page's shell blocks and indented blocks, in words."""
    blocks = [body for language, body in FENCE.findall(text) if language in SHELL]
    blocks += [match.group() for match in INDENTED.finditer(FENCE.sub("", text))]
    return [words for block in blocks for line in block.splitlines() for words in simple(line)]


def simple(line: str) -> Iterator[list[str]]:
    """The commands of a line, without what is assigned, redirected or commented out."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # prose or C, no shell
        return
    part: list[str] = []
    for word in [*words, ";"]:
        if word not in BETWEEN:
            part.append(word)
            continue
        while part and ASSIGNMENT.fullmatch(part[0]):
            del part[0]
        if part:
            yield part
        part = []


def fault(words: list[str]) -> str | None:
    """What is wrong with a command of ours, or one of PlatformIO or make on our files; None if nothing is."""
    name, *rest = words
    if name == "microtrain":
        return click_fault(cli.main, rest)
    if re.fullmatch(r"(.*/)?python3?", name) and rest and rest[0].startswith(("tools/", "lab/")):
        folder = rest[0].rstrip("/")
        if not (ROOT / folder / "__main__.py").is_file():
            return f"no such tool: {folder}"
        room = folder.replace("tools/", "microtrain/").replace("/", ".")
        return click_fault(importlib.import_module(f"{room}.cli").main, rest[1:])
    if name == "make":
        return next((f"no such target: {t}" for t in rest if "=" not in t and t not in targets()), None)
    if words[:2] == ["pio", "run"]:
        return pio_fault(rest[1:])
    return None


def click_fault(command: click.Command, words: list[str]) -> str | None:
    """The first option or subcommand that a click command does not have."""
    context = click.Context(command)
    try:
        _, left, _ = command.make_parser(context).parse_args(list(words))
    except click.UsageError as error:
        return error.format_message()
    if not isinstance(command, click.Group) or not left:
        return None
    for name in left[0].split("|"):  # one of several
        found = command.get_command(context, name)
        if found is None:
            return f"no such command: {name}"
        if problem := click_fault(found, left[1:]):
            return problem
    return None


def pio_fault(words: list[str]) -> str | None:
    """An environment that platformio.ini does not have."""
    ini = configparser.ConfigParser()
    ini.read(ROOT / "platformio.ini")
    named = [b for a, b in pairwise(words) if a == "-e"]
    return next((f"no such environment: {n}" for n in named if f"env:{n}" not in ini), None)


def targets() -> set[str]:
    """Of the Makefile."""
    return set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def every_option() -> dict[str, set[str]]:
    """The options of each of our commands, those of its subcommands too, by the command's name."""
    return {name: options_of(cli.command(name)) for name in cli.TOOLS}


def options_of(command: click.Command) -> set[str]:
    found = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            under = command.get_command(click.Context(command), name)
            found |= options_of(under) if under is not None else set()
    return found | {"--help", "-h"}


def option_faults(text: str) -> list[str]:
    """Pieces of code in the prose that name an option which no command of ours has, or not the one named."""
    known = every_option()
    anywhere = set[str]().union(*known.values())
    found = []
    for code in CODE.findall(INDENTED.sub("", FENCE.sub("", text))):
        words = code.strip("`").split()
        if not words or words[0] in OTHERS:
            continue
        named = next((known[word.removeprefix("tools/")] for word in words[:2] if word in known), anywhere)
        if {word.partition("=")[0] for word in words if OPTION.fullmatch(word)} - named:
            found.append(code.strip("`"))
    return found
