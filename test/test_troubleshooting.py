"""docs/troubleshooting.md quotes what the tools print: each sentence is heard, or found in its source."""

from __future__ import annotations

import ast
import errno
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import walk
from click.testing import CliRunner
from conftest import ROOT, Built
from test_device_line import FAULT, Script, greeted
from test_normalisation import MEAN, STD, converted, photos, trained
from test_obstacles import Net, small
from torch import nn
from torch_networks import write

from microtrain.base.errors import Error
from microtrain.convert import boards
from microtrain.convert.cli import main as convert
from microtrain.device.cli import main as device
from microtrain.device.conversation import Conversation
from microtrain.device.errors import DamagedError
from microtrain.device.link import open_failure
from microtrain.memory_report.cli import main as report
from microtrain.samples.source import scan

PAGE = ROOT / "docs/troubleshooting.md"
Heard = Callable[[Path], str]
SHORT = 12  # letters of a part that says nothing

# Of what no test can be made to say here: where the sentence stands.
IN_SOURCE = {
    "setup: pip finds no CPU build": "scripts/setup.sh",
    "Error: upload failed.": "platform/builder/stm32.py",
    "PATH has no ...": "platform/platform.py",
    "diverged: back to step": "firmware/src/serial/commands_step.c",
    "training diverged, or knew less than the look: the rate": "tools/device/session.py",
    "training knew what it learned from worse than the look did": "tools/device/session.py",
}


def said(command: object, *words: object) -> str:
    result = CliRunner().invoke(command, list(map(str, words)))  # type: ignore[arg-type]
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.output


def sentence(action: Callable[[], object]) -> str:
    with pytest.raises(Error) as caught:
        action()
    return str(caught.value)


def exported(net: nn.Module, folder: Path, *options: object) -> str:
    return said(convert, write(net, folder / "model.pt2", "exported"), "-o", folder / "out", *options)


def keras(folder: Path) -> str:
    (folder / "net.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    return said(convert, folder / "net.h5")


def state_dict(folder: Path) -> str:
    torch.save(small().state_dict(), folder / "net.pth")
    return said(convert, folder / "net.pth")


def pickled(folder: Path) -> str:
    return said(convert, write(small(), folder / "net.pt", "module"))


def scripted(folder: Path) -> str:
    return said(convert, write(small(), folder / "net.pt", "scripted"))


def of_any_size(folder: Path) -> str:
    side = torch.export.Dim("side", min=8, max=64)
    program = torch.export.export(small(), (torch.zeros(1, 3, 16, 16),), dynamic_shapes=({2: side, 3: side},))
    torch.export.save(program, folder / "net.pt2")
    return said(convert, folder / "net.pt2")


def with_shrinking(folder: Path) -> str:
    return exported(Net(nn.Conv2d(3, 8, 3), nn.RReLU(), features=8).eval(), folder)


def heavy(folder: Path) -> str:
    wide = Net(nn.Conv2d(3, 600, 3), nn.Conv2d(600, 1024, 1), features=1024, classes=1000).eval()
    return exported(wide, folder)


def out_of_sram(folder: Path) -> str:
    net = Net(nn.Conv2d(3, 64, 3), nn.MaxPool2d(2), nn.Conv2d(64, 64, 3), features=64).eval()
    net.shape = (3, 224, 224)
    return exported(net, folder, "--check", "--whole")


def wide(folder: Path) -> str:
    net = Net(nn.Conv2d(3, 8, 3, 4, 1), features=8).eval()
    net.shape = (3, 16, 400)
    return exported(net, folder, "--check")


def normalised(folder: Path) -> str:
    images = photos(folder)
    model = write(trained(images, MEAN, STD), folder / "net.pt2", "exported")
    return converted(model, images / "class0")


def too_few_folders(folder: Path) -> str:
    walk.furnish(folder)
    shutil.rmtree(folder / "photos/train/class0")
    return sentence(lambda: scan(folder / "photos/train", walk.CLASSES))


def failing(number: int) -> Heard:
    return lambda folder: open_failure("/dev/ttyACM9", OSError(number, "why"))


def other_plan(folder: Path, example: Built) -> Path:
    """The plan of another model."""
    write(small(), folder / "model.pt2", "exported")
    images = photos(folder)
    done = said(
        convert, folder / "model.pt2", "--calibration", images, "-o", folder / "other", "--board", "native"
    )
    assert (folder / "other/plan.json").is_file(), done
    return folder / "other/plan.json"


def crashed(folder: Path) -> str:
    return sentence(lambda: Conversation(Script(FAULT, b"")).next(1))


def without_numpy(folder: Path) -> str:
    venv.create(folder / "bare", with_pip=False)
    python = folder / "bare/bin/python"
    command = [str(python), str(ROOT / "tools/convert"), "x"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def too_much_to_save(folder: Path) -> str:
    board = boards.find()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boards, "find", lambda name: replace(board, slot=32_768))
        return said(convert, ROOT / "examples/digits/model.pt", "-o", folder / "out")


def no_project(folder: Path) -> str:
    """As from an installed package: in a checkout the project is the checkout."""
    code = (
        "from microtrain.base import paths; paths.CHECKOUT = False; from microtrain.convert.cli import main; "
        "main(['net.pt2'])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    return re.sub(r"[│╭╮╰╯─]", " ", done.stderr)


HEARD: dict[str, Heard] = {
    "... is a Keras model": keras,
    "... holds weights at most": state_dict,
    "... is a pickle": pickled,
    "... is TorchScript": scripted,
    "... was exported with an image size": of_any_size,
    "... the op rrelu": with_shrinking,
    "... it has one output": lambda folder: exported(small(classes=1), folder),
    "... weights take": heavy,
    "... its head of 1,000 classes": heavy,
    "... B of SRAM with scheme": out_of_sram,
    "... a row of its image": wide,
    "--budget-sram 400": lambda folder: exported(small(), folder, "--budget-sram", 400),
    "--external-flash 'qspi'": lambda folder: exported(
        small(), folder, "--board", "nucleo_f446re", "--external-flash", "qspi"
    ),
    "input pixels as 0..1": normalised,
    "the samples fit another normalisation": normalised,
    "... carries no calibration samples": lambda folder: exported(small(), folder),
    "... class folders ...": too_few_folders,
    "no such port": failing(errno.ENOENT),
    "no permission to open": failing(errno.EACCES),
    "... is in use": failing(errno.EBUSY),
    "... is not a microtrain device": lambda folder: sentence(lambda: greeted(Script(b"login:\r\n", b""))),
    "no microtrain device answers": lambda folder: sentence(lambda: greeted(Script())),
    "the answer ...": lambda folder: str(DamagedError("ok \x01")),
    "the firmware crashed": crashed,
    "convert: ... has no package": without_numpy,
    "there is no PlatformIO project": no_project,
    "saved never": too_much_to_save,
}


def of_the_board(folder: Path, example: Built) -> dict[str, str]:
    """What is said of an emulated board, of the native program, and of a plan that is not theirs."""
    elf, plan = folder / "firmware.elf", other_plan(folder, example)
    shutil.copy(example.elf, elf)
    said(device, "--emulate", elf, "info")
    return {
        "emulated board: still on": said(device, "--emulate", elf, "info"),
        "... runs model": said(device, "--emulate", elf, "--plan", plan, "info"),
        "... forgets all": said(device, "--native", example.program, "info"),
        "... holds model": said(report, "--elf", elf, "--plan", plan),
    }


def quotes(text: str) -> list[str]:
    """The sentences of a page that stand in quotations."""
    return [line.removeprefix("> ") for line in text.splitlines() if line.startswith("> ")]


def holds(heard: str, quote: str) -> bool:
    """Whether a quotation was said; ... is anything, white space is as wide as it likes."""
    parts = [re.escape(" ".join(part.split())) for part in quote.split("...")]
    return re.search(".*?".join(parts), " ".join(heard.split())) is not None


def source_words(path: Path) -> str:
    """The text of a source in one line; of Python its strings, with ... for what is put into them."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return re.sub(r'" *\\?\n *"|\\\n|["\']', " ", re.sub(r'" >&2\n *echo "', " ", text))
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            parts = [str(p.value) if isinstance(p, ast.Constant) else "..." for p in node.values]
            found.append("".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return "\n".join(found)


def stands_in(words: str, quote: str) -> bool:
    """Whether the fixed parts of a quotation stand in a source, in whatever order."""
    flat = " ".join(words.split())
    parts = [" ".join(part.split()) for part in re.split(r"\.\.\.|[()`.,]", quote)]
    return all(part in flat for part in parts if len(part) > SHORT)


PAGE_QUOTES = quotes(PAGE.read_text(encoding="utf-8"))


def test_every_quotation_is_heard_or_has_its_source() -> None:
    board = ("emulated board: still on", "... runs model", "... forgets all", "... holds model")
    known = (*HEARD, *IN_SOURCE, *board)
    assert [q for q in PAGE_QUOTES if sum(q.startswith(start) for start in known) != 1] == []
    assert [start for start in known if not any(q.startswith(start) for q in PAGE_QUOTES)] == []


@pytest.mark.parametrize("start", HEARD)
def test_the_tools_say_it(start: str, tmp_path: Path) -> None:
    (quote,) = [q for q in PAGE_QUOTES if q.startswith(start)]
    heard = HEARD[start](tmp_path)
    assert holds(heard, quote), heard
    assert not holds(heard, quote + " and more"), "the test can fail"


def test_the_board_says_it(tmp_path: Path, example: Built) -> None:
    for start, heard in of_the_board(tmp_path, example).items():
        (quote,) = [q for q in PAGE_QUOTES if q.startswith(start)]
        assert holds(heard, quote), heard


@pytest.mark.parametrize("start", IN_SOURCE)
def test_the_source_says_it(start: str) -> None:
    (quote,) = [q for q in PAGE_QUOTES if q.startswith(start)]
    words = source_words(ROOT / IN_SOURCE[start])
    assert stands_in(words, quote), quote
    assert not stands_in(words, quote.replace(" ", " never ", 1))


def test_a_sentence_that_nobody_says_is_noticed() -> None:
    assert not holds("the tool says this", "the tool says ... that")
    assert holds("the tool\n   says this", "the tool ... this")
