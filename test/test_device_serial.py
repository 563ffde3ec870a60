"""The client on a serial line whose two ends have rates, and a device that forgets or answers amiss."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from microtrain.device.client import DEFAULT_BAUD, Device
from microtrain.device.errors import AnswerError, DamagedError, DeviceError, LinkError
from microtrain.device.link import SerialPort
from microtrain.device.rate import BAUDS
from microtrain.device.testing import CLASSES, SHAPE, FakeDevice

FAST = 921600
IMAGE = np.zeros(SHAPE, np.uint8)


class FastDevice(FakeDevice):
    """Changes its rate when it is told to, and goes back where nothing is heard for 2 s."""

    rate = kept = DEFAULT_BAUD

    def do_baud(self, rate: str) -> None:
        self.say(f"ok baud {rate}")
        self.kept, self.rate = self.rate, int(rate)


class RatePort(SerialPort):
    """A line between both: at different rates, or at one that the cable does not bear, nothing arrives."""

    def __init__(self, device: FastDevice, best: int = FAST) -> None:
        self.name, self.device, self.best = "/dev/line", device, best
        self.rate = DEFAULT_BAUD
        self.gone = False

    def set_baud(self, baud: int) -> None:
        self.rate = baud

    def write(self, data: bytes) -> None:
        if self.gone:
            raise LinkError("the line broke")
        if self.hears:
            self.device.write(data)

    def read(self, size: int, timeout_s: float) -> bytes:
        if self.hears or self.device.out[:8] == b"ok baud ":  # said before the rate changed
            return self.device.read(size, timeout_s)
        if timeout_s > 2:
            self.device.rate = self.device.kept
        return b""

    @property
    def hears(self) -> bool:
        return self.rate == self.device.rate <= self.best

    def close(self) -> None:
        self.device.close()


def test_a_faster_line_is_left_as_it_was_found() -> None:
    fake = FastDevice()
    with Device(RatePort(fake), baud=FAST) as device:
        assert fake.rate == FAST
        device.train(IMAGE, 1)
    assert fake.rate == DEFAULT_BAUD and fake.closed and fake.trained == 1


def test_a_cable_that_does_not_bear_the_rate_is_named_and_works_again() -> None:
    port = RatePort(FastDevice(), best=DEFAULT_BAUD)
    with pytest.raises(DeviceError, match=f"does not work at {FAST} baud: choose a lower --baud"):
        Device(port, baud=FAST)
    assert port.rate == port.device.rate == DEFAULT_BAUD
    assert Device(port).sha()


@pytest.mark.parametrize("rate", [baud for baud in BAUDS if baud != DEFAULT_BAUD])
def test_a_device_that_was_left_at_another_rate_is_found(rate: int) -> None:
    fake = FastDevice()
    fake.rate = rate
    with Device(RatePort(fake, best=max(BAUDS))) as device:
        assert device.info.model == "tiny"
    assert fake.rate == DEFAULT_BAUD


def test_a_device_at_no_rate_is_said_once() -> None:
    with pytest.raises(DeviceError, match="no microtrain device answers on /dev/line"):
        Device(RatePort(FastDevice(), best=0), "/dev/line")


def test_a_line_that_is_gone_is_closed_all_the_same() -> None:
    port = RatePort(FastDevice())
    device = Device(port, baud=FAST)
    port.gone = True
    device.close()
    assert port.device.closed


class Forgetful(FakeDevice):
    """Loses the image so many times when it shall be used."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def line(self, words: list[str]) -> None:
        if words[0] in ("infer", "train", "eval") and self.times:
            self.times -= 1
            self.rows = {}
        super().line(words)


def test_an_image_that_was_lost_is_sent_once_more_and_not_for_ever() -> None:
    fake = Forgetful(1)
    assert Device(fake).infer(IMAGE).label == 0
    assert fake.commands.count("image") == 2
    with pytest.raises(AnswerError):
        Device(Forgetful(2)).infer(IMAGE)


@pytest.mark.parametrize("image", [IMAGE.astype(np.float32), IMAGE[1:], IMAGE[..., 0]])
def test_an_image_of_another_kind_is_not_sent(image: np.ndarray) -> None:
    fake = FakeDevice()
    with pytest.raises(DeviceError, match=r"a sample must be uint8 \(4, 5, 1\), not "):
        Device(fake).train(image, 0)
    assert "image" not in fake.commands


def test_logits_of_another_model_are_not_taken() -> None:
    class Short(FakeDevice):
        def say(self, *lines: str) -> None:
            super().say(*(line.rpartition(" ")[0] if line.startswith("logits ") else line for line in lines))

    with pytest.raises(DeviceError, match=f"the device sent {CLASSES - 1} logits, not {CLASSES}"):
        Device(Short()).infer(IMAGE)


class Garbled(FakeDevice):
    """Says one thing in place of another, the first times."""

    def __init__(self, said: str, instead: str, times: int = 1) -> None:
        super().__init__()
        self.said, self.instead, self.times = said, instead, times

    def say(self, *lines: str) -> None:
        for line in lines:
            garbled = self.times > 0 and line.startswith(self.said)
            self.times -= garbled
            super().say(self.instead if garbled else line)


@pytest.mark.parametrize(
    "instead", ["ok pull", "ok pull 24", "ok pull 24deadbeef", "ok pull x 0", "ok pull 24 y"]
)
def test_a_pull_whose_last_line_is_damaged_is_repeated(instead: str) -> None:
    fake = Garbled("ok pull", instead)
    assert Device(fake).pull() == fake.block and fake.pulls == 2


@pytest.mark.parametrize(
    ("said", "instead", "ask"),
    [
        ("ok infer", "ok infer", lambda device: device.infer(IMAGE)),
        ("ok infer", "ok infer x", lambda device: device.infer(IMAGE)),
        ("logits", "logits 4020000 00000000 00000000", lambda device: device.infer(IMAGE)),
        ("logits", "logits 402000 00000000 00000000", lambda device: device.infer(IMAGE)),
        ("ok train", "ok train 1 0", lambda device: device.train(IMAGE, 1)),
        ("ok train", "ok train 1 0 0.1.5", lambda device: device.train(IMAGE, 1)),
        ("ok eval", "ok eval 1", lambda device: device.evaluate(IMAGE, 1)),
        ("ok save", "ok save", lambda device: device.save()),
        ("ok sha", "ok sha", lambda device: device.sha()),
    ],
)
def test_an_answer_that_is_damaged_is_a_sentence(
    said: str, instead: str, ask: Callable[[Device], object]
) -> None:
    with pytest.raises(DamagedError, match=r"arrived damaged: check the cable or use a lower --baud"):
        ask(Device(Garbled(said, instead)))


def test_a_row_that_is_refused_for_good_is_not_sent_again() -> None:
    class Refusing(FakeDevice):
        def frame(self, frame: object) -> None:
            self.say("err image too large")

    fake = Refusing()
    with pytest.raises(AnswerError, match="too large"):
        Device(fake).send_image(IMAGE)
    assert fake.commands.count("image") == 1
