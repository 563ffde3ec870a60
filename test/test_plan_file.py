"""plan.json: one schema for its writer and its readers, checked value by value, as docs/plan.md has it."""

from __future__ import annotations

import copy
import json
import re
import typing
from collections.abc import Callable
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import Built
from plans import plan_document

from microtrain.base.errors import FileError
from microtrain.base.paths import ROOT
from microtrain.base.plan import Budget, Plan, read_plan, short_id, text
from microtrain.base.schema import SchemaError, keys
from microtrain.device import cli as device
from microtrain.memory_report import cli as memory_report
from microtrain.simulate import cli as simulate
from microtrain.simulate.blueprint import load_blueprint

Change = Callable[[dict[str, Any]], Any]

WRONG: list[tuple[Change, str]] = [
    (lambda d: d.pop("front"), "front is missing"),
    (lambda d: d["trainables"]["tensors"][0].pop("bytes"), "trainables.tensors[0].bytes is missing"),
    (lambda d: d["arena"].update(bytes="128"), "arena.bytes is '128', not a whole number"),
    (lambda d: d["arena"].update(bytes=1.5), "arena.bytes is 1.5, not a whole number"),
    (lambda d: d.update(classes=True), "classes is True, not a whole number"),
    (lambda d: d["sram"].update(arena=-8), "sram.arena is -8, not 0 or more"),
    (lambda d: d["input"].update(gain=[float("nan")]), "input.gain[0] is nan, not a number"),
    (lambda d: d["input"].update(shape=[8, 8]), "input.shape has 2 entries, not 3"),
    (lambda d: d.update(model_id="f" * 63), "model_id is 'f"),
    (lambda d: d.update(budget=[1, 2]), "budget is [1, 2], not an object or null"),
    (lambda d: d.update(tensors={}), "tensors is {}, not a list"),
    (lambda d: d["tensors"][1].update(name=None), "tensors[1].name is None, not text"),
    (lambda d: d["steps"][0].update(phase="sideways"), "steps[0].phase is 'sideways', not one of forward"),
    (
        lambda d: d["trainables"]["tensors"][0].update(dtype="s7"),
        "dtype is 's7', not one of s8, u4, s16, f32",
    ),
    (lambda d: d["scheme"]["weights"].update(conv="most"), "scheme.weights.conv is 'most', not a number or"),
    (lambda d: d.update(replay={}), "replay.records is missing"),
    (lambda d: d.pop("format"), "format is missing"),
]


@pytest.mark.parametrize(("change", "said"), WRONG)
def test_a_wrong_value_is_named(change: Change, said: str, tmp_path: Path) -> None:
    document = copy.deepcopy(plan_document())
    change(document)
    (tmp_path / "plan.json").write_text(json.dumps(document))
    for read in (read_plan, load_blueprint):
        with pytest.raises(FileError) as caught:
            read(tmp_path / "plan.json")
        sentence = str(caught.value)
        assert said in sentence and sentence.endswith("convert again.") and "\n" not in sentence


@pytest.mark.parametrize(
    "content", ["[]", "null", "7", "{", '{"format": {}}', '{"format": 2}', "[" * 99_999, "\0"]
)
def test_what_is_no_plan_is_one_sentence(content: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(FileError, match=r"plan\.json (is not a plan|has plan format).*convert again\.$"):
        read_plan(tmp_path / "plan.json")


def test_every_command_says_which_key_is_wrong(example: Built, tmp_path: Path) -> None:
    document = example.plan | {"classes": "10"}
    (tmp_path / "plan.json").write_text(json.dumps(document))
    plan = tmp_path / "plan.json"
    for command, words in (
        (device.main, ["--native", example.program, "--plan", plan, "info"]),
        (memory_report.main, ["--elf", example.elf, "--plan", plan]),
        (simulate.main, [tmp_path, "--data", tmp_path]),
    ):
        done = CliRunner().invoke(command, [str(word) for word in words])
        assert done.exit_code == 1 and isinstance(done.exception, SystemExit)
        assert "classes is '10', not a whole number" in done.output


def test_what_is_written_is_read_back(example: Built) -> None:
    """The file of a conversion, byte for byte; and nothing that readers refuse is written."""
    path = example.folder / "plan.json"
    plan = read_plan(path)
    assert text(plan) == path.read_text() and plan.path == path
    assert plan.id == int(short_id(plan.model_id), 16)
    assert text(replace(plan, budget=None)) != text(plan)
    with pytest.raises(SchemaError, match=r"budget\.sram is -1"):
        text(replace(plan, budget=Budget(-1, 0)))


def test_the_page_names_the_keys_of_the_schema() -> None:
    page = (ROOT / "docs/plan.md").read_text(encoding="utf-8")
    block = page.split("```")[1]
    assert documented(block) == set(schema_keys(Plan))
    assert documented(block.replace('"front"', '"back"')) != set(schema_keys(Plan))


def documented(block: str) -> set[str]:
    return set(re.findall(r'"(\w+)":', block))


def schema_keys(kind: Any) -> list[str]:
    """Keys of a dataclass and of all that it is made of."""
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return [name for part in typing.get_args(kind) for name in schema_keys(part)]
    inner = [name for hint in keys(kind).values() for name in schema_keys(hint)]
    return [*keys(kind), *inner]
