"""The commands that pages show: which of them a test runs, and why the others are not run.

A page's commands are run in order in a fresh copy of this repository, as somebody without a board would type
them: WALKS says what is changed, since there is no board and little time. What cannot be run at all stands in
NOT_RUN, with the reason. Blocks that hold no commands stand in NO_COMMANDS, with the test that reads them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from conftest import ROOT
from pages import FENCE, INDENTED, SHELL, c_files
from PIL import Image
from torch import nn
from torch_networks import write

from microtrain.base.pio import with_ccache

SIDE, CLASSES = 16, 5
COMMENT = re.compile(r"\s+#.*$")
COMMAND = re.compile(
    r"(?:[A-Z_]+=\S+ )?(?:make|microtrain|python3?|pio|pip|renode|sudo|mkdir|printf|chmod|source)\b"
)
GUIDE = "docs/own-model.md"  # test_own_model.py runs all of it
UPLOAD, BOARD = "pio run -t upload", "--port /dev/ttyACM0"
EMULATED = "--emulate .pio/build/disco_f746ng/firmware.elf"
CONVERTED = ("microtrain convert model.pt2 --calibration photos --classes 5",)


@dataclass(frozen=True)
class Walk:
    """How the commands of a page are run.

    changes  words of the page -> words that are run
    before   what is typed first
    """

    page: str
    changes: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()


WALKS = (
    Walk(
        "README.md",
        {
            "MODEL.pt2": "../model.pt2",
            "--calibration photos/": "--calibration ../photos/",
            "train photos/": "train ../photos/train",
            UPLOAD: "pio run",
            BOARD: EMULATED,
        },
    ),
    Walk(
        "docs/README.md",
        {
            "--budget-sram 128": "--budget-sram 128 --lr 0.1 --epochs 1 --measured 0.1 --rounds 1 "
            "--finalists 1 --evaluations 50 "
            "--final-epochs 1 --final-seeds 1",
            "--epochs 10": "--epochs 1",
            UPLOAD: "pio run",
            BOARD: EMULATED,
            "python tools/emulator .pio": "python tools/emulator --seconds 1 .pio",
        },
    ),
    Walk("docs/simulate.md", {"--epochs 10": "--epochs 1"}, CONVERTED),
    Walk("docs/imprint.md", before=CONVERTED),
    Walk(
        "docs/fleet.md",
        {"--plan generated": "--plan firmware/generated"},
        CONVERTED,
    ),
    Walk("docs/embed.md"),
    Walk("docs/troubleshooting.md", {"--epochs 4": "--epochs 1"}),
)
DEMO = "five minutes: the workflow and `make claims` run it, test_demo.py in small"
NETWORK = "needs a network of servers and nodes: test_fleet_network.py builds one with these commands"
SILICON = "needs a board on the cable; test_firmware_build.py looks at what it would upload"
NOT_RUN = {
    "make demo": DEMO,
    "TORCH_INDEX=ADDRESS make demo": DEMO,
    "make test": "it would run this test",
    "make setup": "it is what installs the packages of this test; test_own_model.py runs it",
    "microtrain fleet demo": "minutes; test_fleet_demo.py in small",
    "microtrain fleet watch": "goes on until Ctrl-C; test_fleet_flower.py",
    'pip install ".[fleet,demo]"': "packages of this test are those that are installed",
    **dict.fromkeys(("openssl", "echo subjectAltName", "ssh-keygen", "flower-superlink"), NETWORK),
    **dict.fromkeys(("flower-supernode", "flwr"), NETWORK),
    "pip install .": "test_package.py builds the wheel and runs what is in it",
    'pip install "microtrain[onnx]"': "the tests have it: test_onnx.py",
    'pip install "microtrain[tflite]"': "the tests have it: test_tflite.py",
    "microtrain convert model.tflite --classes 5": "test_tflite.py converts and trains one",
    "microtrain convert MODEL.pt2 --calibration photos/ --classes 5 --external-flash qspi": (
        "test_external_flash.py, with models of its own"
    ),
    "microtrain convert model.onnx": "test_onnx.py reads such files",
    "microtrain device --port /dev/ttyACM0 pull --tflite": "test_model_copy.py, with files of its own",
    "microtrain device --port /dev/ttyACM0 pull --onnx": "test_model_copy.py, with files of its own",
    "microtrain simulate firmware/generated --data samples/": "test_tflite.py, on samples of its own",
    "microtrain convert words.pt2": "test_sound.py, with recordings of its own",
    "microtrain simulate firmware/generated --data words/": "test_sound.py",
    "microtrain device --port /dev/ttyACM0 train words/": "test_sound.py trains the firmware with sound",
    "microtrain demo --task sound": "test_signals.py in small",
    "microtrain demo --task motion": "test_signals.py in small",
    "microtrain demo --task anomaly": "test_signals.py in small",
    "microtrain convert meter.pt2 --task regression": "test_measured.py",
    "microtrain convert tags.pt2 --task multilabel": "test_measured.py",
    "microtrain convert autoencoder.tflite": "test_anomaly.py",
    "microtrain convert bearing.pt2": "test_sound.py, with recordings of its own",
    "microtrain convert voices.pt2": "test_open_set.py, with samples of its own",
    "microtrain simulate firmware/generated --data voices/": "test_open_set.py",
    "microtrain device --port /dev/ttyACM0 train voices/": "test_open_set.py, on a host's board",
    "microtrain convert mcunet-5fps.pkl": "a slow test of test_no_checkpoints.py",
    "pio run -e camera -t upload": SILICON,
    "microtrain check-board": "test_check_board.py, on emulated boards",
    "pio run -e nucleo_f446re -t upload": SILICON,
    "pio device monitor": SILICON,
    "make renode": "minutes; the workflow runs it, and test_renode_suites.py in small",
    "python renode/run.py renode/checkpoint.robot": "test_renode_suites.py",
    "python renode/run.py --example nucleo_f446re": "test_renode_suites.py, with the slow tests",
    "renode renode/stm32f746.resc": "needs Renode, which the workflow has",
    "sudo apt-get install gcc libc6-dev python3-dev python3-venv": "Renode; the workflow does it",
    "mkdir -p ~/renode ~/.local/bin && tar": "Renode; the workflow does it",
    "python3 -m venv ~/renode/python": "Renode; the workflow does it",
    "printf": "Renode; the workflow does it",
    "chmod +x ~/.local/bin/renode-test": "Renode; the workflow does it",
}
NO_COMMANDS = {
    ("docs/hardware.md", "> ping"): "test_camera_session.py asks the board these",
    (
        "docs/imprint.md",
        "imprint 3          after the rows of an image: look at it once, of class 3",
    ): "test_imprint.py sends these to the board",
    ("docs/fleet.md", '{"plan": "generated/plan.json",'): "test_fleet_demo.py reads it",
    (
        "docs/fleet.md",
        "round 5 of 5: 4 boards, accuracy 87.8%, 57,116 B up, 42,592 B down, 16 s, sha256 4844feb1e47241ec",
    ): "what the demo says",
    ("docs/fleet.md", "[superlink]"): "test_fleet_network.py writes such a file",
    **{
        ("docs/embed.md", f"/* {name} */"): "test_embed.py compiles it"
        for name in c_files((ROOT / "docs/embed.md").read_text(encoding="utf-8"))
    },
    ("docs/embed.md", "add_subdirectory(garden)"): "test_packages.py builds so",
    ("docs/inputs.md", "file,temperature,humidity"): "test_measured.py writes such tables",
    ("docs/inputs.md", "from microtrain.base.sound import parse"): "test_sound.py runs it",
    ("docs/embed.md", "from array import array"): "test_packages.py looks its names up in the module",
    ("docs/plan.md", "{"): "test_plan_file.py",
    ("docs/schemes.md", "name: digits-sparse"): "test_walk.py reads it as a scheme",
    ("docs/schemes.md", "biases: 20"): "of an own network; test_lite_residuals.py reads such keys",
    **{
        ("docs/schemes.md", line): "test_lite_residuals.py runs it"
        for line in (
            "class LiteResidual(nn.Module):",
            "    def forward(self, x):",
            "def put_beside(block, *sizes, **more):",
        )
    },
}


def pages() -> list[str]:
    """The pages whose commands somebody may type."""
    return ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """(language, body) of fenced and indented blocks."""
    yield from FENCE.findall(text)
    for match in INDENTED.finditer(FENCE.sub("", text)):
        yield "", re.sub("^    ", "", match.group(), flags=re.MULTILINE)


def typed(text: str) -> list[str]:
    """The command lines of a page, without comments."""
    bodies = [body for language, body in blocks(text) if language in SHELL or COMMAND.match(body)]
    return [COMMENT.sub("", line) for body in bodies for line in body.splitlines() if line.strip()]


def unknown_blocks(page: str, text: str) -> list[str]:
    """First lines of blocks that are neither commands nor accounted for."""
    first = [
        b.splitlines()[0] for language, b in blocks(text) if language not in SHELL and not COMMAND.match(b)
    ]
    return [line for line in first if (page, line) not in NO_COMMANDS]


def reason(line: str) -> str | None:
    """Why a command line is not run; None where it is to be run."""
    return next(
        (why for start, why in NOT_RUN.items() if line == start or line.startswith(f"{start} ")), None
    )


def changed(walk: Walk, text: str) -> tuple[list[str], set[str]]:
    """The lines of a page that are run, and the changes that did not apply to any."""
    lines = [line for line in typed(text) if reason(line) is None]
    unused = {old for old in walk.changes if not any(old in line for line in lines)}
    for old, new in walk.changes.items():
        lines = [line.replace(old, new) for line in lines]
    return [*walk.before, *lines], unused


class Small(nn.Module):
    """A network that converts in seconds."""

    shape = (3, SIDE, SIDE)

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.second(self.first(x)).mean((2, 3)))
        return result


def furnish(folder: Path) -> None:
    """What the pages take for granted: a model, a scheme, and photos, a colour for each class."""
    torch.manual_seed(0)
    write(Small().eval(), folder / "model.pt2", "exported")
    (folder / "my.yaml").write_text("name: mine\nbiases: 1\nweights: {}\n")
    rng = np.random.default_rng(0)
    for part, count in (("train", 6), ("test", 2)):
        for label in range(CLASSES):
            colour = np.array((label & 1, label >> 1 & 1, label >> 2)) * 200
            (folder / "photos" / part / f"class{label}").mkdir(parents=True)
            for i in range(count):
                pixels = np.clip(rng.normal(colour, 20, (SIDE, SIDE, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / "photos" / part / f"class{label}" / f"{i}.png")


def shell(lines: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Type the lines one after the other in a folder, where `microtrain` is that of the folder."""
    (folder / "bin").mkdir(exist_ok=True)
    command = folder / "bin/microtrain"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m microtrain "$@"\n')
    command.chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MICROTRAIN_", "PLATFORMIO_"))}
    environment["PYTHONPATH"] = str(folder)
    environment |= with_ccache() | {"CCACHE_BASEDIR": str(folder)}  # the copy's folder is in no name
    environment["PATH"] = f"{folder / 'bin'}:{Path(sys.executable).parent}:{environment['PATH']}"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
