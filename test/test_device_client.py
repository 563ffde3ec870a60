"""The host client against an in-memory device that speaks docs/protocol.md, and its files against PyTorch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import plans
import pytest
from click.testing import CliRunner
from PIL import Image

from microtrain.base.plan import read_plan
from microtrain.device import cli, link, target
from microtrain.device.answers import REPLAY_MAX
from microtrain.device.client import Device
from microtrain.device.errors import AnswerError, DamagedError, DeviceError, FaultError
from microtrain.device.protocol import DATA, Frame, Line, Receiver, crc16, crc32, encode
from microtrain.device.testing import ARENA, CLASSES, MODEL_ID, SHAPE, FakeDevice
from microtrain.device.weights import pack, save_npz, unpack
from microtrain.samples.images import load_image


def image(value: int = 0) -> np.ndarray:
    return np.arange(value, value + 20, dtype=np.uint8).reshape(SHAPE)


def tiny(**changes: Any) -> dict[str, Any]:
    """A plan for the fake device: 6 weights with 4 fraction bits, 4 biases, 1 x 1 head."""
    source = {"weight": "conv.weight", "bias": None, "bn": None, "eps": None}
    rows = [("w", "weight", "s8", [2, 1, 1, 3], 0, 6), ("f", "fraction", "u4", [2, 1, 1, 3], 8, 3)]
    rows += [("b", "bias", "s16", [4], 12, 8), ("h", "head_weight", "f32", [1, 1], 20, 4)]
    tensors = [
        {"name": n, "layer": "conv", "kind": k, "dtype": d, "shape": s, "offset": o, "bytes": size,
         "channels": None, "scale": [0.1, 0.2], "base": None, "source": source, "dead": []}
        for n, k, d, s, o, size in rows
    ]  # fmt: skip
    return {"name": "tiny", "model_id": MODEL_ID, "trainables": {"bytes": 24, "tensors": tensors}, **changes}


def write_plan(folder: Path, **changes: Any) -> Path:
    return plans.write_plan(folder, **tiny(**changes))


def test_checksums_are_the_published_ones() -> None:
    assert crc16(b"123456789") == 0x29B1
    assert crc32(b"123456789") == 0xCBF43926


def test_receiver_finds_frames_between_lines_and_garbage() -> None:
    frame = Frame(DATA, 9, 512, bytes(range(256)))
    stream = (
        b"ok a\r\n\xa5\xa5\x5a\x00" + encode(frame) + b"\x80ok b\r\n" + b"\xa5" + encode(frame) + b"ok c\n"
    )
    for size in (1, 3, 7, len(stream)):
        receiver = Receiver()
        found = [x for i in range(0, len(stream), size) for x in receiver.feed(stream[i : i + size])]
        assert found == [Line("ok a"), frame, Line("ok b", intact=False), frame, Line("ok c")]


def test_a_frame_that_lost_bytes_does_not_take_the_next_one_along() -> None:
    """As many bytes of the next one as were lost lie within what looked like this one."""
    first, second = encode(Frame(DATA, 1, 0, bytes(range(64)))), Frame(DATA, 2, 64, b"efgh")
    for lost in (1, 8, 40):
        items = list(Receiver().feed(first[:20] + first[20 + lost :] + encode(second) + b"ok pull\r\n" * 9))
        assert second in items and isinstance(items[-1], Line) and items[-1].text.endswith("ok pull")


def test_receiver_marks_a_bad_payload_and_goes_on() -> None:
    data = bytearray(encode(Frame(DATA, 1, 0, b"abcd")))
    data[13] ^= 1
    items = list(Receiver().feed(bytes(data) + encode(Frame(DATA, 2, 4, b"efgh")) + b"ok pull\r\n"))
    frames = [x for x in items if isinstance(x, Frame)]
    assert [(f.sequence, f.intact) for f in frames] == [(1, False), (2, True)]
    assert items[-1] == Line("ok pull")


def test_infer_train_and_counters() -> None:
    fake = FakeDevice()
    with Device(fake) as device:
        assert device.info.shape == SHAPE and device.info.model_id == "0123abcd"
        result = device.infer(image(4))
        assert result.label == 1 and result.logits.tolist() == [0.0, 2.5, 0.0]
        before = device.sha()
        step = device.train(image(5), 1)
        assert (step.predicted, step.loss) == (2, 0.125)
        assert device.sha() != before
        device.reset()
        assert device.sha() == before
        assert device.evaluate(image(6), 2) == 0
        assert device.stats()["steps"] == "7"
        assert device.save() == 1
        device.autosave(5)
        assert device.stats()["saves"] == "1"
        device.forget()
        assert device.stats()["saves"] == "0"
    assert fake.closed


@pytest.mark.parametrize("at", [2, 12, 20])
def test_a_corrupt_row_is_sent_again(at: int) -> None:
    """A byte flipped in the sync, the header's CRC and the payload of one frame."""
    hit: list[int] = []

    def flip(data: bytes, count: int) -> bytes:
        if len(data) < 20 or hit:
            return data
        hit.append(count)
        index = at % len(data)
        return data[:index] + bytes([data[index] ^ 0x11]) + data[index + 1 :]

    fake = FakeDevice(flip)
    assert Device(fake).train(image(3), 1).predicted == 0
    assert hit and fake.trained == 1


def test_a_lost_byte_is_survived() -> None:
    hit: list[int] = []

    def lose(data: bytes, count: int) -> bytes:
        if len(data) < 20 or hit:
            return data
        hit.append(count)
        return data[:-2]

    fake = FakeDevice(lose)
    assert Device(fake).infer(image(3)).label == 0
    assert hit


def test_a_hopeless_line_is_given_up() -> None:
    fake = FakeDevice(lambda data, count: data if len(data) < 20 else data[:-1])
    with pytest.raises(DeviceError, match="image row 0 did not get through in 4 tries"):
        Device(fake).infer(image())
    assert fake.trained == 0


def test_pull_is_repeated_until_its_crc_holds() -> None:
    fake = FakeDevice()
    device = Device(fake)
    fake.corrupt_pulls = 2
    assert device.pull() == fake.block and fake.pulls == 3
    fake.corrupt_pulls = 99
    with pytest.raises(DeviceError, match="corrupt 4 times"):
        device.pull()


def test_push_goes_in_frames_of_512() -> None:
    fake = FakeDevice(size=1200)
    block = bytes(i * 7 & 255 for i in range(1200))
    device = Device(fake)
    device.push(block)
    assert fake.block == block
    with pytest.raises(DeviceError, match="1 bytes for a device with 1200"):
        device.push(b"x")


def test_an_answer_to_another_frame_is_none() -> None:
    """A frame is lost, and an answer to the one before it comes late."""

    class Late(FakeDevice):
        lost = 0

        def frame(self, frame: Frame) -> None:
            if self.lost:
                super().frame(frame)
            else:
                self.lost += 1
                self.say(f"ok weights {frame.position} {frame.sequence - 1 & 0xFF}")

    port = Late(size=1200)
    block = bytes(255 - i % 256 for i in range(1200))
    Device(port).push(block)
    assert port.lost and port.block == block


def test_steps_on_records_are_taken_in_as_many_commands_as_it_takes() -> None:
    port = FakeDevice()
    assert not Device(port).rehearse(2 * REPLAY_MAX + 3)
    counts = [c.split()[1] for c in port.commands if c.startswith("rehearse")]
    assert counts == [str(REPLAY_MAX), str(REPLAY_MAX), "3"]


@pytest.mark.parametrize("digit", range(4))
def test_an_update_that_arrives_damaged_is_not_taken(digit: int) -> None:
    update = bytes([0x12, 0x34])

    class Sharing(FakeDevice):
        damaged = False

        def do_share(self, room: str, momentum: str) -> None:
            digits = list(update.hex())
            digits[digit] = "f" if self.damaged else digits[digit]
            self.say("steps 3", "loss 0.5", f"update {''.join(digits)}", f"ok share {crc32(update)}")

    port = Sharing()
    device = Device(port)
    assert device.share(100, 230).body == update
    port.damaged = True
    with pytest.raises(DamagedError):
        device.share(100, 230)


def test_err_answers_tell_what_to_do() -> None:
    fake = FakeDevice()
    device = Device(fake)
    fake.do_rate = lambda factor: fake.say("err argument rate must be 0 to 1000")  # type: ignore[method-assign]
    with pytest.raises(
        AnswerError, match=r"refused `rate 2.00000000`: argument rate must be 0 to 1000\. Correct"
    ):
        device.rate(2)


def test_a_fault_shows_its_text() -> None:
    fake = FakeDevice()
    device = Device(fake)
    fake.do_train = lambda label: fake.say("fault bus error", "fault pc 0x08001234")  # type: ignore[method-assign]
    with pytest.raises(FaultError, match="fault bus error; fault pc 0x08001234"):
        device.train(image(), 0)


def test_a_restart_is_noticed() -> None:
    fake = FakeDevice()
    device = Device(fake)
    fake.do_sha = lambda: fake.say("microtrain fake tiny 0123abcd", "ready")  # type: ignore[method-assign]
    with pytest.raises(FaultError, match="the device restarted"):
        device.sha()


def test_images_are_cropped_and_resized(tmp_path: Path) -> None:
    wide = np.zeros((8, 40), np.uint8)
    wide[:, 16:24] = 200
    Image.fromarray(wide).save(tmp_path / "wide.png")
    assert (load_image(tmp_path / "wide.png", (4, 4, 1)) == 200).all()
    exact = np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8)
    Image.fromarray(exact).save(tmp_path / "exact.png")
    assert (load_image(tmp_path / "exact.png", (4, 5, 3)) == exact).all()
    Image.fromarray(np.full((4, 5), 51400, np.uint16)).save(tmp_path / "deep.png")
    assert (load_image(tmp_path / "deep.png", SHAPE) == 200).all()
    Image.fromarray(np.full((4, 5, 4), (10, 20, 30, 0), np.uint8)).save(tmp_path / "clear.png")
    assert (load_image(tmp_path / "clear.png", (4, 5, 3)) == 0).all()


def test_trainables_pack_and_unpack(tmp_path: Path) -> None:
    plan = read_plan(write_plan(tmp_path))
    block = bytearray(24)
    block[:6] = np.array([1, -2, 3, -127, 127, 0], np.int8).tobytes()
    block[8:11] = bytes([0x81, 0x7F, 0x20])
    block[12:20] = np.array([-(2**15), 77, 0, 1], "<i2").tobytes()
    block[20:24] = np.array([0.1], "<f4").tobytes()
    arrays = unpack(plan, bytes(block))
    assert arrays["w"].reshape(-1).tolist() == [1, -2, 3, -127, 127, 0]
    assert arrays["f"].reshape(-1).tolist() == [1, -8, -1, 7, 0, 2]
    assert arrays["b"].tolist() == [-(2**15), 77, 0, 1]
    assert pack(plan, arrays) == bytes(block)
    arrays["f"][0, 0, 0, 0] = 8
    with pytest.raises(DeviceError, match=r"f in the file leaves -8\.\.7"):
        pack(plan, arrays)


# ------------------------------------------------------------------------------------------ command line


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """The fake device behind every --port."""
    device = FakeDevice()
    monkeypatch.setattr(target, "SerialPort", lambda name: device)
    return device


def run(*arguments: object) -> Any:
    return CliRunner().invoke(cli.main, ["--port", "fake", *map(str, arguments)])


def fails(sentence: str, *arguments: object) -> None:
    """The command exits with 1 and one sentence that holds `sentence`; no traceback, no exception."""
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)
    assert sentence in result.output and "Traceback" not in result.output
    assert len([line for line in result.output.splitlines() if line.startswith("Error: ")]) == 1


def make_folder(root: Path, classes: int = CLASSES, images: int = 4) -> Path:
    for k in range(classes):
        (root / f"c{k}").mkdir(parents=True)
        for i in range(images):
            Image.fromarray(np.full(SHAPE[:2], k + 3 * i, np.uint8)).save(root / f"c{k}" / f"{i}.png")
    return root


def test_train_command(fake: FakeDevice, tmp_path: Path) -> None:
    folder, log = make_folder(tmp_path / "d"), tmp_path / "log.json"
    arguments = ("train", folder, "--eval", folder, "--eval-every", 9, "--epochs", 2, "--seed", 5)
    result = run(
        *arguments,
        "--lr-factor",
        0.5,
        "--schedule",
        "constant",
        "--log",
        log,
        "--curve",
        tmp_path / "curve.svg",
    )
    assert result.exit_code == 0, result.output
    document = json.loads(log.read_text())
    assert [e["step"] for e in document["evaluations"]] == [0, 9, 18, 24]
    assert document["evaluations"][-1]["accuracy"] == 1.0
    assert document["sha256"] == hashlib.sha256(fake.block).hexdigest()
    assert fake.commands.count("keep 0") == fake.commands.count("keep 1") == 1
    steps = document["steps"]
    assert (
        len(steps) == fake.trained == 24 and "rate 0.50000000" in fake.commands and "seed 5" in fake.commands
    )
    assert sorted(s["file"] for s in steps[:12]) == sorted(s["file"] for s in steps[12:])
    assert [s["file"] for s in steps[:12]] != [s["file"] for s in steps[12:]]
    assert all(s["file"].startswith(f"c{s['label']}/") for s in steps)
    assert (tmp_path / "curve.svg").read_text().startswith("<?xml") and (tmp_path / "curve.png").exists()
    run(*arguments, "--log", tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text())["steps"] == steps


def plan_with_rates(folder: Path, **rates: float) -> Path:
    """A plan of the fake device's model whose scheme has these learning rates."""
    scheme = {**plans.plan_document()["scheme"], "learning_rate": rates}
    return plans.write_plan(folder, **{**tiny(), "scheme": scheme})


def test_a_rate_is_a_learning_rate(fake: FakeDevice, tmp_path: Path) -> None:
    """As in the simulator: absolute; the device is told the factor that makes it of the scheme's largest."""
    folder, plan = (
        make_folder(tmp_path / "d"),
        plan_with_rates(tmp_path, weight=0.002, bias=0.002, head=0.004),
    )
    result = run("--plan", plan, "train", folder, "--lr", 0.01)
    assert result.exit_code == 0, result.output
    assert "rate 2.50000000" in fake.commands and fake.commands[-2] == "rate 1.00000000"
    assert "rate 0.005/0.005/0.01 (weights/biases/head), cosine to 0" in result.output
    falling = [float(c.split()[1]) for c in fake.commands if c.startswith("rate")][:-1]
    assert falling == sorted(falling, reverse=True) and len(set(falling)) == len(falling) > 1


def test_a_session_says_its_course(fake: FakeDevice, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "d")
    said = run("train", folder).output
    assert "rate 1 x the scheme's, cosine to 0; augmentation flip, crop, light (8 variants)" in said
    said = run("train", folder, "--schedule", "constant", "--augment", "none", "--rate", 3).output
    assert "rate 3 x the scheme's, constant; augmentation none" in said
    assert "--rate is called --lr-factor now" in said and "rate 3.00000000" in fake.commands


def test_rates_that_cannot_be_had(fake: FakeDevice, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "d")
    fails("--lr needs the plan of the model", "train", folder, "--lr", 0.01)
    fails("name one of them", "train", folder, "--lr", 0.01, "--lr-factor", 2)
    plan = plan_with_rates(tmp_path, weight=0, bias=0, head=0)
    fails("the scheme's are 0", "--plan", plan, "train", folder, "--lr", 0.01)
    result = run("train", folder, "--lr", 40)
    assert result.exit_code == 2 and "there is --lr-factor 40" in result.output
    assert not fake.trained


def test_a_plan_of_another_model_beside_the_firmware_is_told_of(
    fake: FakeDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The firmware that was built last is perhaps not on the board."""
    folder = make_folder(tmp_path / "d")
    plan = plans.write_plan(tmp_path)
    monkeypatch.setattr(target, "DEFAULT_PLAN", plan)
    said = run("train", folder).output
    assert f"note: fake runs model tiny 0123abcd, but {plan} describes null" in said
    assert len(said.split("note: ")) == 2 and fake.trained
    plans.write_plan(tmp_path, **tiny())
    assert "note: " not in run("train", folder).output


def test_folders_that_are_not_classes(fake: FakeDevice, tmp_path: Path) -> None:
    make_folder(tmp_path / "photos/train")
    (tmp_path / "photos/test").mkdir()
    fails(f"Is {tmp_path / 'photos/train'} meant?", "train", tmp_path / "photos")
    make_folder(tmp_path / "one", classes=1)
    fails("has 1 class folder (c0), but the model has 3 classes", "train", tmp_path / "one")


def test_images_vary_as_in_the_simulator(fake: FakeDevice, tmp_path: Path) -> None:
    """The first variant is the image as it is; the second one is another."""
    root = tmp_path / "d"
    for k in range(CLASSES):
        (root / f"c{k}").mkdir(parents=True)
        picture = np.random.default_rng(k).integers(0, 256, SHAPE[:2], np.uint8)
        Image.fromarray(picture).save(root / f"c{k}" / "0.png")
    seen: list[bytes] = []
    original = fake.do_train

    def note(label: str) -> None:
        seen.append(b"".join(fake.rows.values()))
        original(label)

    fake.do_train = note  # type: ignore[method-assign]
    run("train", root, "--epochs", 2)
    assert len(seen) == 6 and len(set(seen)) == 6
    seen.clear()
    run("train", root, "--epochs", 2, "--augment", "none")
    assert len(seen) == 6 and len(set(seen)) == 3


def test_an_interrupted_session_keeps_its_log(fake: FakeDevice, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "d")
    original = fake.do_train
    fake.do_train = lambda label: original(label) if fake.trained < 5 else fake.say("fault x")  # type: ignore[method-assign]
    fails("fault x", "train", folder, "--log", tmp_path / "log.json")
    assert len(json.loads((tmp_path / "log.json").read_text())["steps"]) == 5


def test_a_session_ends_where_the_device_goes_back(fake: FakeDevice, tmp_path: Path) -> None:
    fake.diverges_at = 7
    result = run("train", make_folder(tmp_path / "d"), "--log", tmp_path / "log.json")
    assert result.exit_code == 0, result.output
    assert "diverged at step 7: the device is back at its last checkpoint; use a lower --lr" in result.output
    document = json.loads((tmp_path / "log.json").read_text())
    assert document["diverged"] == len(document["steps"]) == 7


def test_infer_eval_info_stats_reset(fake: FakeDevice, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "d")
    assert "class 2" in run("infer", folder / "c2" / "1.png").output
    assert "accuracy 100.0% of 6 images" in run("eval", folder, "--limit", 6).output
    assert "4 x 5 x 1" in run("info").output
    assert "steps" in run("stats").output
    assert "checkpoint 1, 90 saves left" in run("save").output
    assert "no checkpoint left" in run("forget").output
    fake.block = bytes(24)
    assert hashlib.sha256(fake.initial).hexdigest() in run("reset").output


def test_a_push_that_fails_half_way_is_undone() -> None:
    """The device has no room to stage it: the client puts back what was there."""
    size = 2 * ARENA
    sent = [0]

    def noise(data: bytes, count: int) -> bytes:
        if data[:3] == b"\xa5\x5a\x02":
            sent[0] += 1
            if 2 <= sent[0] <= 5:
                return data[:-1] + bytes([data[-1] ^ 1])
        return data

    fake = FakeDevice(noise, size=size)
    before = fake.block
    device = Device(fake)
    with pytest.raises(DeviceError, match="weights at 512 did not get through"):
        device.push(bytes(size))
    assert fake.block == before


def test_pull_and_push_files(fake: FakeDevice, tmp_path: Path) -> None:
    plan, npz = write_plan(tmp_path), tmp_path / "t.npz"
    fake.initial = fake.block = bytes(range(6)) + b"\0\0" + b"\x12\x34\x56\0" + bytes(range(12, 24))
    assert run("--plan", plan, "pull", "-o", npz).exit_code == 0
    with np.load(npz) as file:
        assert str(file["model_id"]) == MODEL_ID and file["w"].shape == (2, 1, 1, 3)
    fake.block = bytes(24)
    result = run("--plan", plan, "push", npz)
    assert result.exit_code == 0, result.output
    assert fake.block == fake.initial
    other = read_plan(write_plan(tmp_path, model_id="f" * 64))
    save_npz(npz, other, unpack(other, bytes(24)))
    fails("holds the weights of model ffffffff, but", "--plan", write_plan(tmp_path), "push", npz)
    arrays = {**unpack(other, bytes(24)), "w": np.zeros((2, 1, 1, 4), np.int8)}
    save_npz(npz, read_plan(plan), arrays)
    fails(
        "w in the file is int8 (2, 1, 1, 4), the model needs int8 (2, 1, 1, 3)", "--plan", plan, "push", npz
    )
    del arrays["w"]
    save_npz(npz, read_plan(plan), arrays)
    fails("the file lacks w", "--plan", plan, "push", npz)
    assert fake.block == fake.initial


def test_the_wrong_model_is_named(fake: FakeDevice, tmp_path: Path) -> None:
    plan = write_plan(tmp_path, name="other", model_id="efbeadde" + "0" * 56)
    fails("fake runs model tiny 0123abcd, but", "--plan", plan, "info")
    fails("describes other deadbeef: convert, build and upload again", "--plan", plan, "reset")
    assert fake.closed and "reset" not in fake.commands


def test_folder_errors(fake: FakeDevice, tmp_path: Path) -> None:
    fails("no such folder", "train", tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    fails("holds no class folders", "train", tmp_path / "empty")
    fails("has 2 class folders (c0, c1), but the model has 3", "eval", make_folder(tmp_path / "two", 2))
    fails("no samples in", "train", make_folder(tmp_path / "bare", images=0))
    broken = make_folder(tmp_path / "broken", images=1)
    (broken / "c1" / "0.png").write_bytes(b"no image")
    fails("cannot be read as an image", "train", broken)
    fails("no such image", "infer", tmp_path / "none.png")
    other = make_folder(tmp_path / "other")
    (other / "c2").rename(other / "d2")
    fails("different class folders", "train", make_folder(tmp_path / "ok"), "--eval", other)


def test_file_errors(fake: FakeDevice, tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("{}")
    fails("is not a plan.json", "--plan", tmp_path / "bad", "info")
    fails("no such plan", "--plan", tmp_path / "none.json", "pull")
    fails("is not an .npz file", "--plan", write_plan(tmp_path), "push", tmp_path / "bad")
    fails("no such file", "--plan", write_plan(tmp_path), "push", tmp_path / "none.npz")
    for option in ("--state-dict", "--onnx", "--tflite"):
        fails(f"{option} needs --model", "pull", option, tmp_path / "x")
    for option, why in (("--onnx", "is no ONNX file"), ("--tflite", "is no TFLite model")):
        words = ("pull", "-o", tmp_path / "y.npz", option, tmp_path / "x", "--model", tmp_path / "bad")
        fails(why, "--plan", write_plan(tmp_path), *words)


def test_port_errors(tmp_path: Path) -> None:
    def message(*arguments: object) -> str:
        result = CliRunner().invoke(cli.main, [*map(str, arguments), "info"])
        assert result.exit_code == 1 and isinstance(result.exception, SystemExit)
        return str(result.output)

    assert "no such port: /dev/ttyNONE" in message("--port", "/dev/ttyNONE")
    assert "no board on" in message("--port", "/dev/null")
    assert "nothing answers at socket://" in message("--port", "socket://127.0.0.1:9")
    assert "no such ELF file" in message("--emulate", tmp_path / "x.elf")
    assert "no such program" in message("--native", tmp_path / "x")
    assert "has ended" in message("--native", "/bin/true")
    assert "is not a microtrain device (it says" in message("--native", "/bin/cat")
    assert "name one device" in message()
    assert "join its group" in link.open_failure("/dev/ttyACM0", PermissionError(13, "denied"))


def test_a_silent_port_is_no_device(fake: FakeDevice) -> None:
    fake.noise = lambda data, count: b""
    fake.out.clear()
    fails("no microtrain device answers on fake: check the cable", "info")


def test_monitor_shows_what_the_device_says(fake: FakeDevice) -> None:
    result = CliRunner().invoke(cli.main, ["--port", "fake", "monitor"], input="ping\nsha\n")
    assert "ok pong\n" in result.output and "ok sha " in result.output
