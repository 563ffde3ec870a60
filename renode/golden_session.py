"""What the host simulator says to the images that training.robot sends: the file of its variable ${GOLDEN}.

The host simulator is the firmware built for this machine (`pio run -e native`); it speaks the device's
protocol.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples/digits")]

import dataset  # noqa: E402

from microtrain.device.conversation import COMPUTE_S, Conversation  # noqa: E402
from microtrain.device.link import ProgramPort  # noqa: E402

PROBES, STEPS, UNSEEN = 5, 90, 30  # images: inferred, trained on, held out
PART_BYTES = 512  # of rows on their way without an answer: half the device's receive ring
EXAMPLE = {"input": "32x32x1", "classes": "10"}

Image = dict[str, Any]


class OtherModelError(Exception):
    """The firmware is not the example's, so its images do not fit."""


def write_golden(program: Path, path: Path) -> None:
    """Run the session on the host simulator and write images and answers as JSON.

    Errors   OtherModelError
    """
    port = ProgramPort(program)
    try:
        golden = _session(Conversation(port), _banner(port))
    finally:
        port.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


def _banner(port: ProgramPort) -> str:
    """Name and id of the model, from the first line that the firmware says."""
    said = b""
    while not said.endswith(b"ready\r\n"):
        said += port.read(1, COMPUTE_S)
    return " ".join(said.decode("ascii").split()[2:4])


def _session(talk: Conversation, model: str) -> dict[str, Any]:
    said = dict(line.split(" ", 1) for line in talk.command("info").lines)
    for name, value in EXAMPLE.items():
        if said[name] != value:
            raise OtherModelError(f"the firmware's {name} {said[name]} is not the example's {value}")
    train, train_labels, unseen, unseen_labels = dataset.device_split()
    held_out = list(zip(unseen[:UNSEEN], unseen_labels[:UNSEEN], strict=True))
    lessons = list(zip(train[:STEPS], train_labels[:STEPS], strict=True))
    probes = [_ask(talk, image, "infer") for image in unseen[:PROBES]]
    before = [_ask(talk, image, f"eval {label}") for image, label in held_out]
    session = [_ask(talk, image, f"train {label}") for image, label in lessons]
    talk.command("stats clear")
    after = [_ask(talk, image, f"eval {label}") for image, label in held_out]
    return {
        "MODEL": model,
        "PROBES": probes,
        "UNSEEN_BEFORE": before,
        "SESSION": session,
        "UNSEEN_AFTER": after,
        "TRAINED": talk.command("sha").final.split()[2],
    }


def _ask(talk: Conversation, image: np.ndarray, command: str) -> Image:
    """Send an image and a command; returns both, and the answer that counts."""
    parts = _parts(image)
    for part in parts:
        for row in part["rows"].splitlines():
            last = talk.command(row).final
        assert last == part["last"], f"the simulator answered {last!r}"
    answer = talk.command(command, timeout_s=COMPUTE_S)
    said = answer.lines[0] if command == "infer" else answer.final
    return {"parts": parts, "command": command, "answer": said}


def _parts(image: np.ndarray) -> list[dict[str, str]]:
    """uint8 [H, W, 1] as `row` lines, in parts that the receive ring holds, each with its last answer."""
    lines = [f"row {y} 0 {row.tobytes().hex()}\n" for y, row in enumerate(image)]
    together = PART_BYTES // max(map(len, lines))
    ends = range(together, len(lines) + together, together)
    return [
        {"rows": "".join(lines[end - together : end]), "last": f"ok row {min(end, len(lines)) - 1}"}
        for end in ends
    ]
