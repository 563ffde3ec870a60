"""Pages as a reader uses them: links lead somewhere, pages can be found, commands exist as written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import ROOT
from pages import anchors, broken, commands, fault, links, pages, reachable

README = ROOT / "README.md"


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


@pytest.mark.parametrize("page", pages(), ids=names(pages()))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken(page, page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", pages(), ids=names(pages()))
def test_every_command_exists_as_it_is_written(page: Path) -> None:
    found = {" ".join(words): fault(words) for words in commands(page.read_text(encoding="utf-8"))}
    assert {command: problem for command, problem in found.items() if problem} == {}


def test_every_page_can_be_reached_from_readme() -> None:
    assert names(sorted(set(pages()) - reachable(README))) == []


SOUGHT = (  # what people type who look for help
    *("accuracy is low", "does not fit", "out of memory", "no answer from the board", "normalization"),
    *("mean and std", "ONNX", "TensorFlow", "loss is nan", "does not fall", "learning rate", "fine-tuning"),
    *(
        "transfer learning",
        "permission denied",
        "int8",
        "quantization",
        "state dict",
        "checkpoints",
        "upload",
    ),
    *(
        "catastrophic forgetting",
        "MobileNet",
        "camera",
        "Renode",
        "baud rate",
        "ResNet",
        "PlatformIO",
        "torch",
    ),
)


def test_the_index_has_the_words_that_people_type() -> None:
    text = (ROOT / "docs/README.md").read_text(encoding="utf-8").partition("## Index\n")[2]
    entries = [re.sub(r"\]\([^)]*\)|[*\[]", "", entry) for entry in text.split("\n- ")[1:]]
    plain = [re.sub(r"[:,\s]+", " ", entry).lower() for entry in entries]
    assert [words for words in SOUGHT if not any(words.lower() in entry for entry in plain)] == []
    assert entries == sorted(entries, key=lambda entry: re.sub(r"^\W*", "", entry).lower())
    assert all(links(entry) for entry in text.split("\n- ")[1:])


def test_a_page_without_a_link_to_it_is_noticed(tmp_path: Path) -> None:
    first, second, third = (tmp_path / f"{name}.md" for name in "abc")
    first.write_text("[b](b.md#top) and `[c](c.md)`")
    second.write_text("[a](a.md)")
    third.write_text("nobody links here")
    assert reachable(first) == {first, second}


@pytest.mark.parametrize(
    "target",
    ["nowhere.md", "DESIGN.md#no-such-heading", "#no-such-heading", "docs/nowhere.svg", "../outside.md"],
)
def test_a_broken_link_is_noticed(target: str) -> None:
    assert broken(README, f"# Here\n[good](DESIGN.md#compiler) [this](#here) [bad]({target})") == [target]


def test_links_in_code_are_no_links() -> None:
    assert links("`[a](b)` [c](d.md)\n\n    [e](f)\n\n```sh\n[g](h)\n```\n[web](https://example.org/x)") == [
        "d.md"
    ]


def test_anchors_are_those_that_github_makes() -> None:
    text = "# Bring-up, for the first\n## The head's start\n## [Linked](x.md) `code`\n## Twice\n## Twice\n"
    expected = {"bring-up-for-the-first", "the-heads-start", "linked-code", "twice", "twice-1"}
    assert anchors(text) == expected


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("python tools/convert model.pt --calibratoin photos/", "No such option"),
        ("python tools/nowhere model.pt", "no such tool"),
        ("python lab/results vrify 3", "no such command"),
        ("python lab/soak power|nothing", "no such command"),
        ("python tools/device --port /dev/ttyACM0 train x --nope", "No such option"),
        ("python tools/device --port /dev/ttyACM0 teach x", "no such command"),
        ("microtrain convrt MODEL.pt", "no such command"),
        ("microtrain new x && microtrain report --elff y", "No such option"),
        ("microtrain device --port", "requires an argument"),
        ("TORCH_INDEX=x make dmo", "no such target"),
        ("pio run -e disco_f764ng -t upload  # a comment", "no such environment"),
    ],
)
def test_a_wrong_command_is_noticed(line: str, said: str) -> None:
    """Each in an indented block and in a fenced one."""
    for text in (f"Do this:\n\n    {line}\n", f"```sh\n{line}\n```\n"):
        problems = [problem for words in commands(text) if (problem := fault(words))]
        assert len(problems) == 1 and said in problems[0]


def test_right_commands_are_left_alone() -> None:
    text = (
        "    microtrain new x && cd x && microtrain convert M.pt --classes 5 && pio run -t upload   # note\n"
    )
    text += (
        "```sh\npython tools/emulator --pty firmware.elf > board.txt 2>&1 &\nmake verify-results ROW=3\n```\n"
    )
    found = commands(text)
    assert [words[0] for words in found] == ["python", "make", "microtrain", "cd", "microtrain", "pio"]
    assert [fault(words) for words in found] == [None] * 6
