"""A person teaches the camera demo two classes, 20 shots each by button; and the Robot suite of the demo."""

from __future__ import annotations

import os
import re
import sys
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest
from camera_demo import Demo
from conftest import EXAMPLE, ROOT, Built, run
from PIL import Image
from pio_build import build as build_firmware

from microtrain.base.files import unpacked
from microtrain.device.recipe import TIMES

sys.path.insert(0, str(ROOT / "examples/digits"))
import dataset

SHOTS, UNSEEN = 20, 20  # of each class
PAIRS = [(3, 8), (4, 9)]
GARMENTS = ("dress", "shoes")


@pytest.fixture(scope="module")
def elf(example: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The camera firmware of the example."""
    return build(example.folder, tmp_path_factory.mktemp("camera"))


def build(model: Path, folder: Path) -> Path:
    return build_firmware(folder, "camera", model)


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The camera firmware of the example with statistics of features and a buffer of records."""
    folder = tmp_path_factory.mktemp("remembering")
    model = [str(EXAMPLE / "model.pt"), "--scheme", str(EXAMPLE / "scheme.yaml"), "--classes", "10"]
    run(["python", "tools/convert", *model, "--replay", "24", "-o", str(folder / "generated")])
    return build(folder / "generated", folder / "pio")


def pictures(images: np.ndarray, labels: np.ndarray, digit: int, count: int) -> list[Image.Image]:
    """The first so many pictures of a digit."""
    return [Image.fromarray(image[:, :, 0]) for image in images[labels == digit][:count]]


def show(demo: Demo, scenes: list[list[Image.Image]]) -> list[str]:
    """Hold up the classes in turn, each time with a press of its button. Returns what was said.

    A board that has more to compute is waited for: it does not see a press while it works on the last one.
    """
    said = []
    for pair in zip(*scenes, strict=True):
        for button, scene in enumerate(pair):
            demo.camera.show(scene)
            said.append(demo.press(button, rest=0.25).strip() or demo.lines(("shot",))[-1])
    return said


def accuracy(demo: Demo, scenes: list[list[Image.Image]]) -> float:
    demo.ask("mode evaluate")
    demo.ask("stats clear")
    correct, total = show(demo, scenes)[-1].split()[-2:]
    assert int(total) == sum(len(scene) for scene in scenes)
    return int(correct) / int(total)


def learn(demo: Demo, shots: list[list[Image.Image]], unseen: list[list[Image.Image]]) -> tuple[float, float]:
    """Accuracy on the unseen pictures before the shots, and behind them and a rehearsal, if there is one."""
    demo.boot()
    before = accuracy(demo, unseen)
    demo.ask("mode train")
    assert all(line.startswith(("shot train", "shot look")) for line in show(demo, shots))
    demo.ask("mode infer")
    while int(counts(demo).get("idle", "0")):
        demo.wait(10.0)
    return before, accuracy(demo, unseen)


def counts(demo: Demo) -> dict[str, str]:
    return dict(line.split() for line in demo.ask("stats")[:-1])


@pytest.mark.parametrize("pair", [PAIRS[0], *(pytest.param(p, marks=pytest.mark.slow) for p in PAIRS[1:])])
def test_two_classes_are_learned_from_twenty_shots_each(elf: Path, pair: tuple[int, int]) -> None:
    train_images, train_labels, test_images, test_labels = dataset.device_split()
    shots = [pictures(train_images, train_labels, digit, SHOTS) for digit in pair]
    unseen = [pictures(test_images, test_labels, digit, UNSEEN) for digit in pair]
    before, after = learn(Demo(elf), shots, unseen)
    print(f"digits {pair}: {before:.3f} > {after:.3f}")
    assert abs(before - 0.5) <= 0.1
    assert after > 0.85


@pytest.mark.slow
def test_mcunet_learns_two_garments(tmp_path: Path) -> None:
    """The published network and photos: MICROTRAIN_DATA."""
    data = os.environ.get("MICROTRAIN_DATA")
    if not data:
        pytest.skip("MICROTRAIN_DATA is not set: it names the folder with models/ and sets/")
    images = unpacked(Path(data) / "sets/clothing10_144.tar", tmp_path / "images")
    photos = [sorted((images / name).glob("*.jpg")) for name in GARMENTS]
    shots = [[Image.open(p).convert("RGB") for p in files[:SHOTS]] for files in photos]
    unseen = [[Image.open(p).convert("RGB") for p in files[SHOTS : SHOTS + UNSEEN]] for files in photos]
    model = ["--scheme", "mcunet-49kb", "--classes", "10", "-o", str(tmp_path / "generated")]
    run(["python", "tools/convert", str(Path(data) / "models/mcunet-5fps.pkl"), *model])
    demo = Demo(build(tmp_path / "generated", tmp_path / "pio"))
    before, after = learn(demo, shots, unseen)
    print(f"{GARMENTS}: {before:.3f} > {after:.3f}")
    assert abs(before - 0.5) <= 0.1
    assert after > 0.85


def scenes(shots: int) -> list[list[Image.Image]]:
    """So many pictures of each of two digits."""
    images, labels, _, _ = dataset.device_split()
    return [pictures(images, labels, digit, shots) for digit in PAIRS[0]]


def test_buttons_teach_as_the_line_does(remembering: Path) -> None:
    """Looks first, a rehearsal when train mode is left, then training steps: the same bits by either way."""
    person, host = Demo(remembering), Demo(remembering)
    person.boot()
    host.boot()
    host.ask("rate 1.5")
    person.ask("mode train")
    assert [line.split()[1] for line in show(person, scenes(2))] == ["look"] * 4
    for pair in zip(*scenes(2), strict=True):
        for label, scene in enumerate(pair):
            host.camera.show(scene)
            host.ask("capture")
            host.ask(f"imprint {label}")
            host.ask("imprint head")
    steps = TIMES * 4
    said = (person.press(0, 1.5) + person.wait(1.0)).splitlines()
    assert said == [
        f"rehearsal of {steps} steps, while no button is pressed",
        "mode evaluate",
        "rehearsal over",
    ]
    host.ask(f"idle {steps}")
    while counts(host)["idle"] != "0":
        host.wait(0.5)
    assert counts(person)["steps"] == counts(host)["steps"] == str(4 + steps)
    assert person.answer("sha") == host.answer("sha")
    person.ask("mode train")
    assert person.press(0).startswith("shot train 0 ")
    host.ask("capture")
    host.ask("train 0")
    assert person.answer("sha") == host.answer("sha")


def test_a_pressed_button_holds_the_rehearsal(remembering: Path) -> None:
    demo = Demo(remembering)
    demo.boot()
    demo.ask("mode train")
    show(demo, scenes(2))
    demo.ask("mode infer")
    before = counts(demo)["idle"]
    demo.board.label_button(True)
    demo.wait(2.0)
    assert counts(demo)["idle"] == before == str(TIMES * 4)
    demo.board.label_button(False)
    demo.wait(0.6)
    assert 0 < int(counts(demo)["idle"]) < TIMES * 4
    assert demo.press(1, 0.3).startswith("shot train 1 ")


def test_nothing_new_is_not_rehearsed(remembering: Path) -> None:
    demo = Demo(remembering)
    demo.boot()
    demo.ask("mode train")
    assert demo.ask("mode infer") == ["ok mode infer"]
    demo.ask("mode train")
    assert demo.answer("shoot 1").startswith("ok shoot look 1 ")
    demo.ask("reset")
    assert demo.ask("mode infer") == ["ok mode infer"]  # no record is left
    demo.ask("mode train")
    assert demo.answer("shoot 1").startswith("ok shoot look 1 ")


def checklist() -> list[tuple[str, list[str]]]:
    """Commands of docs/hardware.md and the answers it promises."""
    text = (ROOT / "docs/hardware.md").read_text()
    block = text.split("<!-- test/test_camera_session.py asks these -->\n```\n")[1].split("```")[0]
    parts = [part.splitlines() for part in block.split("> ")[1:]]
    return [(command, answer) for command, *answer in parts]


def test_the_checklist_is_what_the_firmware_answers(elf: Path) -> None:
    demo = Demo(elf)
    demo.boot()
    assert len(checklist()) == 8
    for command, answer in checklist():
        said = demo.ask(command)
        assert len(said) == len(answer), said
        assert all(map(fnmatch, said, answer)), said


def test_all_commands_are_documented(elf: Path) -> None:
    demo = Demo(elf)
    demo.boot()
    tables = (ROOT / "docs/protocol.md").read_text() + (ROOT / "docs/hardware.md").read_text()
    documented = set(re.findall(r"^\| `([a-z]+)[` ]", tables, re.MULTILINE))
    assert {re.split(r"[ :]", line)[0] for line in demo.ask("help")[:-1]} <= documented


def test_the_suite_passes_on_the_board_model(elf: Path) -> None:
    command = ["python", "renode/run.py", "--elf", str(elf), "renode/camera.robot"]
    said = run(command)
    assert "board model: passed" in said


def test_a_failing_suite_fails_the_run(elf: Path, tmp_path: Path) -> None:
    suite = tmp_path / "wrong.robot"
    text = (ROOT / "renode/camera.robot").read_text()
    text = text[: text.index("\n\n", text.index("*** Test Cases ***")) + 1]  # the first one alone
    assert "^ok capture$" in text
    suite.write_text(text.replace("^ok capture$", "^ok nothing$").replace("timeout=60", "timeout=1"))
    with pytest.raises(AssertionError):
        run(["python", "renode/run.py", "--elf", str(elf), str(suite)])
