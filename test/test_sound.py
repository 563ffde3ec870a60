"""Sound in: front ends as text, recordings as rows, and a firmware that makes the rows itself."""

from __future__ import annotations

import ctypes
import json
import warnings
import wave
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from conftest import ROOT
from library import ARGUMENT, OK, ORDER, Learner, shared
from pio_build import host_program
from scipy.fft import dct
from torch import nn
from walk import blocks

from microtrain.base.errors import Error
from microtrain.base.plan import read_plan
from microtrain.base.sound import LogMel, parse
from microtrain.convert.cli import main
from microtrain.convert.export.write import export
from microtrain.convert.memory.replay import FEW
from microtrain.convert.ops.log_mel import NAME
from microtrain.device.client import Device
from microtrain.device.errors import AnswerError
from microtrain.device.link import ProgramPort
from microtrain.device.protocol import SOUND, Frame, encode
from microtrain.samples.kind import told
from microtrain.samples.log_mel import band_weights, edges_of, hann, log_mel, tables
from microtrain.samples.sounds import changes, load_sound, placed, read_wav
from microtrain.samples.source import load, vary
from microtrain.simulate.blueprint import load_blueprint
from microtrain.simulate.cli import main as simulate_main
from microtrain.simulate.machine import Machine, library
from microtrain.simulate.replay import Rehearsing

TEXT = "log-mel:rate=8000,frame=128,hop=64,bands=12,fmin=100"
VIBRATION = "spectrum:rate=3200,frame=128,hop=64,bands=11"
CEPSTRUM = f"mfcc{TEXT.removeprefix('log-mel')},coefficients=12"
ROWS = 10
SHAPE = told((ROWS, 12, 1), parse(TEXT))


def write_wav(path: Path, samples: np.ndarray, rate: int = 8000, bits: int = 16, channels: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(bits // 8)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return path


def tone(hertz: float, count: int, loud: float = 0.1) -> np.ndarray:
    made: np.ndarray = np.rint(32767 * loud * np.sin(2 * np.pi * hertz / 8000 * np.arange(count)))
    return made.astype("<i2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mel:rate=8000", "no front end"),
        ("log-mel:rate=8000,frame=256", "not told hop, bands"),
        ("log-mel:rate=8000,frame=256,hop=128,bands=40,tone=3", "none of what"),
        ("log-mel:rate=8000,rate=8000,frame=256,hop=128,bands=40", "once each"),
        ("log-mel:rate=8000,frame=inf,hop=128,bands=40", "is no number"),
        ("log-mel:rate=8000,frame=25.5,hop=128,bands=40", "whole number"),
        ("log-mel:rate=8000,frame=1e30,hop=128,bands=40", "power of two"),
        ("log-mel:rate=8000,frame=256,hop=300,bands=40", "never be heard"),
        ("log-mel:rate=8000,frame=256,hop=128,bands=40,fft=300", "power of two"),
        ("log-mel:rate=8000,frame=256,hop=128,bands=40,fmax=5000", "rate / 2"),
        ("log-mel:rate=8000,frame=256,hop=128,bands=40,floor=3", "floor=3 must"),
    ],
)
def test_what_is_no_front_end_is_a_sentence(text: str, words: str) -> None:
    with pytest.raises(Error, match=words):
        parse(text)


def test_a_front_end_is_the_same_after_its_text() -> None:
    for more in ("", ",floor=-70", ",gain=2.7,fft=256,fmax=3999.5"):
        again = parse(CEPSTRUM + more)
        assert parse(again.text()) == again
        other = parse(VIBRATION + more.replace("3999.5", "1599.5"))
        assert parse(other.text()) == other and other.kind == "spectrum"
        one = parse(TEXT + more)
        assert parse(one.text()) == one
    with pytest.raises(Error, match="lies between two of the FFT's numbers"):
        tables(parse("log-mel:rate=16000,frame=128,hop=64,bands=60"))


def decibels(sound: LogMel, x: np.ndarray) -> np.ndarray:
    """Of a frame's bands above the floor, by NumPy's own FFT, in floats."""
    window = hann(sound).astype(float) / 32767
    power = np.abs(np.fft.rfft(x * window, sound.fft)) ** 2 / (32767 * window.sum() / 2) ** 2
    matrix = np.pad(band_weights(sound) / 32767, ((0, 0), (0, 1)))
    made: np.ndarray = 10 * np.log10(matrix @ power + 10 ** (sound.floor / 10)) - sound.floor
    return made


def test_rows_are_decibels_of_a_mel_spectrum() -> None:
    """Against NumPy's own FFT, in floats."""
    rng = np.random.default_rng(0)
    for text in (TEXT, "log-mel:rate=16000,frame=480,hop=160,bands=40", f"{TEXT},floor=-100,gain=1.5"):
        sound = parse(text)
        x = np.rint(rng.normal(0, 2000, sound.frame)).astype(np.int16)
        above = decibels(sound, x)
        found = log_mel(sound, x)[0].astype(float)
        assert np.abs(found - np.clip(above * sound.gain, 0, 255)).max() < 1.0
    rows = log_mel(parse(TEXT), tone(1000.0, 128))
    assert abs(rows.max() - 60 * 255 / 80) < 4, "20 dB below full scale"
    assert (log_mel(parse(TEXT), np.zeros(128, np.int16)) == 0).all()


def test_coefficients_are_an_orthonormal_dct_of_decibels() -> None:
    """Against SciPy's DCT of NumPy's FFT, in floats: as librosa.feature.mfcc and tf.signal have them."""
    rng, errors = np.random.default_rng(0), []
    for text in (f"{CEPSTRUM},gain=1", "mfcc:rate=16000,frame=480,hop=160,bands=40,coefficients=13"):
        sound = parse(text)
        for loud in (20, 600, 9000):
            x = np.clip(np.rint(rng.normal(0, loud, sound.frame)), -32768, 32767).astype(np.int16)
            above = decibels(sound, x) + sound.floor / 2
            wanted = dct(above, norm="ortho")[: sound.width] * sound.gain + 128
            errors.append(np.abs(log_mel(sound, x)[0] - np.clip(wanted, 0, 255)).max())
    assert max(errors) < 1.0, errors


@pytest.mark.parametrize("mean", [0, 9000])
def test_a_row_of_vibration_is_its_rms_and_bands_of_one_width(mean: int) -> None:
    """Against NumPy, in floats. What a sensor says at rest, gravity for example, is no vibration."""
    rng = np.random.default_rng(0)
    for text in (VIBRATION, "spectrum:rate=25600,frame=1024,hop=512,bands=64,floor=-100"):
        sound = parse(text)
        edges = edges_of(sound)
        assert np.allclose(np.diff(edges), edges[1] - edges[0]) and edges[-1] == sound.rate / 2
        for loud in (3, 600, 6000):
            x = np.clip(np.rint(rng.normal(mean, loud, sound.frame)), -32768, 32767).astype(np.int16)
            row = log_mel(sound, x)[0].astype(float)
            assert len(row) == sound.width == sound.bands + 1
            power = np.var(x.astype(float)) / (32767**2 / 2) + 10 ** (sound.floor / 10)
            level = (10 * np.log10(power) - sound.floor) * sound.gain
            assert abs(row[0] - np.clip(level, 0, 255)) < 0.6
            above = decibels(sound, x)[2:]  # what a mean leaves in the first bands is not of interest
            assert mean or np.abs(row[3:] - np.clip(above * sound.gain, 0, 255)).max() < 1.0
    quiet = log_mel(parse(VIBRATION), np.full(128, mean, np.int16))
    assert quiet[0, 0] == 0


def test_a_number_of_the_fft_can_be_a_band() -> None:
    """As many bands as there are numbers between fmin and fmax: each has one alone."""
    sound = parse("spectrum:rate=3200,frame=128,hop=128,bands=62,fmin=0,fmax=1575")
    weights = band_weights(sound)
    assert (np.count_nonzero(weights, axis=1) == 1).all()
    np.testing.assert_array_equal(np.argmax(weights, axis=1), np.arange(1, 63))
    x = np.rint(9000 * np.sin(2 * np.pi * 10 / 128 * np.arange(128))).astype(np.int16)
    row = log_mel(sound, x)[0]
    assert np.argmax(row[1:]) == 9, "the tenth number, of which the first is left out"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{VIBRATION},coefficients=3", "none of what spectrum takes"),
        ("spectrum:rate=9,frame=128,hop=64,bands=11", "rate=9 must be 10"),
        (f"{VIBRATION},scale=1", "none of what spectrum takes"),
        ("log-mel:rate=800,frame=128,hop=64,bands=11", "rate=800 must be 1000"),
    ],
)
def test_what_is_no_spectrum_is_a_sentence(text: str, words: str) -> None:
    with pytest.raises(Error, match=words):
        parse(text)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("", "mfcc is not told coefficients"),
        (",coefficients=13", "coefficients=13 must be 1..12, the bands"),
        (",coefficients=3.5", "whole number"),
        (",coefficients=5,zero=256", "zero=256 must be 0..255"),
    ],
)
def test_what_are_no_coefficients_is_a_sentence(more: str, words: str) -> None:
    with pytest.raises(Error, match=words):
        parse(f"mfcc{TEXT.removeprefix('log-mel')}{more}")
    with pytest.raises(Error, match="none of what log-mel takes"):
        parse(f"{TEXT},coefficients=5")


def test_recordings_are_samples(tmp_path: Path) -> None:
    needed = SHAPE.sound.samples(ROWS)  # type: ignore[attr-defined]
    sound = tone(700.0, needed)
    rows = load(write_wav(tmp_path / "a.wav", sound), SHAPE)
    assert rows.shape == (ROWS, 12, 1) and rows.dtype == np.uint8
    np.testing.assert_array_equal(rows[:, :, 0], log_mel(parse(TEXT), sound))
    coarse = write_wav(tmp_path / "b.wav", ((sound >> 8) + 128).astype(np.uint8), bits=8)
    np.testing.assert_array_equal(read_wav(coarse, 8000), sound >> 8 << 8)
    longer = write_wav(tmp_path / "c.wav", np.concatenate([tone(90.0, 40), sound, tone(90.0, 40)]))
    np.testing.assert_array_equal(load(longer, SHAPE), rows)
    shorter = write_wav(tmp_path / "d.wav", sound[:200])
    assert (load(shorter, SHAPE)[[0, -1]] == 0).all() and changes(shorter, SHAPE) == ("put between silence",)
    assert changes(longer, SHAPE) == ("cut to their middle",) and changes(tmp_path / "a.wav", SHAPE) == ()
    once, again, plain = (vary(shorter, SHAPE, ways, 3) for ways in (("crop",), ("crop",), ()))
    np.testing.assert_array_equal(once, again)
    assert (once != plain).any() and (plain == load(shorter, SHAPE)).all()


def test_other_recordings_are_refused_in_a_sentence(tmp_path: Path) -> None:
    good = write_wav(tmp_path / "a.wav", tone(700.0, 900))
    with pytest.raises(Error, match="convert it with --frontend log-mel:rate=8000"):
        load(good, (ROWS, 12, 1))
    cases = {
        "rate": write_wav(tmp_path / "b.wav", tone(700.0, 900), rate=16000),
        "two": write_wav(tmp_path / "c.wav", tone(700.0, 900), channels=2),
        "deep": write_wav(tmp_path / "d.wav", np.zeros(300, np.int32), bits=32),
    }
    for path in cases.values():
        with pytest.raises(Error, match=r"takes one of 8 or 16 bits at 8000 Hz, as `sox .* -r 8000"):
            load_sound(path, SHAPE)
    data = good.read_bytes()
    for n in (0, 3, 20, 43):
        (tmp_path / "cut.wav").write_bytes(data[:n])
        with pytest.raises(Error, match="cannot be read as a sound"):
            load_sound(tmp_path / "cut.wav", SHAPE)
    with pytest.raises(Error, match="cannot be read as a sound"):
        load_sound(tmp_path / "gone.wav", SHAPE)


def network(folder: Path, *shape: int) -> Path:
    torch.manual_seed(0)
    channels, seen = shape[0], 8 * -(-shape[1] // 2) * -(-shape[2] // 2)
    layers = nn.Sequential(
        *(nn.Conv2d(channels, 6, 3, 2, 1), nn.ReLU()),
        *(nn.Conv2d(6, 8, 1), nn.ReLU(), nn.Flatten(), nn.Linear(seen, 4)),
    ).eval()
    path = folder / "words.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(layers, (torch.zeros(1, *shape),)), path)
    return path


def recordings(folder: Path) -> Path:
    rng = np.random.default_rng(1)
    for label in range(4):
        for n in range(5):
            said = tone(300 * (label + 1), 600) + np.rint(rng.normal(0, 40, 600)).astype("<i2")
            write_wav(folder / f"word{label}" / f"{n}.wav", said.astype("<i2"))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a front end, converted from recordings and built for this machine."""
    folder = tmp_path_factory.mktemp("sound")
    words = [network(folder, 1, ROWS, 12), "--frontend", TEXT, "--calibration", recordings(folder / "data")]
    result = CliRunner().invoke(main, [*map(str, words), "--classes", "4", "-o", str(folder / "generated")])
    assert result.exit_code == 0, result.output
    assert "20 put between silence" in result.output
    assert "sound       quieter than 80 dB below a full-scale tone is nearly all alike" in result.output
    host_program(folder / "generated", folder)
    return folder


def test_the_plan_knows_the_front_end(made: Path) -> None:
    plan = read_plan(made / "generated/plan.json")
    assert plan.input.sound == parse(TEXT)
    found = next(t for t in plan.tensors if t.name == NAME)
    assert found.alive(0) and found.bytes >= 128 * 2 + 4 * 128
    beside = [t for t in plan.alive(0) if t is not found]
    assert all(t.end <= found.offset or found.end <= t.offset for t in beside)


def test_the_device_makes_the_rows_itself(made: Path) -> None:
    """The bits of sound are those of its rows, in blocks of any size, and training goes on from them."""
    path = made / "data/word1/2.wav"
    with Device(ProgramPort(made / "program")) as device:
        shape = device.info.shape
        assert shape == (ROWS, 12, 1)
        needed = shape.sound.samples(ROWS)  # type: ignore[attr-defined]
        sound = placed(read_wav(path, 8000), needed, 0)
        wanted, whole = device.infer(load(path, shape)).logits, device.infer(sound).logits
        np.testing.assert_array_equal(whole, wanted)
        rng, start = np.random.default_rng(0), 0
        while start < needed:
            block = sound[start : start + int(rng.integers(1, 257))]
            device._frames.send_frame(SOUND, start, block.tobytes(), f"ok sound {start}", "sound")
            if start:
                device._frames.send_frame(SOUND, start, block.tobytes(), f"ok sound {start}", "sound again")
            start += len(block)
        answer = device._talk.command("infer", "ok infer")
        assert f"{answer.lines[0].split()[1]}" == f"{wanted.view(np.uint32)[0]:08x}"
        device.train(sound, 1)
        learned = device.sha()
        device.reset()
        device.train(load(path, shape), 1)
        assert device.sha() == learned


def test_sound_that_cannot_be_is_answered(made: Path) -> None:
    with Device(ProgramPort(made / "program")) as device:
        needed = device.info.shape.sound.samples(ROWS)  # type: ignore[attr-defined]

        def said(start: int, size: int) -> str:
            device._talk.send(encode(Frame(SOUND, 1, start, bytes(size))))
            with pytest.raises(AnswerError) as found:
                device._talk.answer("sound", "ok sound")
            return str(found.value)

        assert "follow what was heard" in said(64, 64)
        assert "two bytes" in said(0, 63) and "two bytes" in said(0, 0)
        device._frames.send_frame(SOUND, 0, bytes(100), "ok sound 0", "sound")
        assert "follow what was heard" in said(51, 64)
        assert "follow what was heard" in said(0xFFFFFFF0, 64)
        with pytest.raises(Error, match=f"int16 of {needed} samples"):
            device.infer(np.zeros(needed + 1, np.int16))
        start = 0
        while start < needed:
            count = min(256, needed - start)
            device._frames.send_frame(SOUND, start, bytes(2 * count), f"ok sound {start}", "sound")
            start += count
        assert "behind the last row" in said(needed, 2)
        bad = int(device.stats()["frames_bad"])
        block = device.pull()
        device._talk.command(f"push {len(block)} {crc32(block):08x} {device.info.model_id}", "ok push")
        assert "a push is under way" in said(0, 64)
        assert device.stats()["frames_bad"] == str(bad + 1)


def test_recordings_are_learned_by_the_simulator(made: Path, tmp_path: Path) -> None:
    words = [made / "generated", "--data", made / "data", "--epochs", "12", "--jobs", "1", "-o", tmp_path]
    result = CliRunner().invoke(simulate_main, list(map(str, words)))
    assert result.exit_code == 0, result.output
    accuracy = json.loads((tmp_path / "results.json").read_text())["runs"][0]["accuracy"]
    assert accuracy["after"] == 1.0


@pytest.mark.parametrize("scheme", ["bias-only", "head-only"])
def test_recordings_become_records(made: Path, tmp_path: Path, scheme: str) -> None:
    """Of sound or of rows; a record is the rows, or what frozen layers made of them. Steps on records
    have the same bits."""
    words = [made / "words.pt2", "--frontend", TEXT, "--calibration", made / "data", "--scheme", scheme]
    words += ["--classes", "4", "--replay", "12", "-o", tmp_path / "generated"]
    result = CliRunner().invoke(main, list(map(str, words)))
    assert result.exit_code == 0, result.output
    host_program(tmp_path / "generated", tmp_path)
    plan = load_blueprint(tmp_path / "generated")
    host = Rehearsing(Machine(plan, library(plan, tmp_path)), plan.records)
    needed = plan.shape.sound.samples(ROWS)  # type: ignore[attr-defined]
    with Device(ProgramPort(tmp_path / "program")) as device:
        for path in sorted((made / "data").glob("*/[0-3].wav")):
            label, rows = int(path.parent.name[-1]), load(path, plan.shape)
            device.imprint(placed(read_wav(path, 8000), needed, 0), label)
            host.imprint(host._machine.look(rows), label)
        for each in (device, host):
            each.imprint_head()
            each.rehearse(30)
        assert device.stats()["records_held"] == "12" and device.sha() == host.sha()


def test_a_buffer_is_made_where_nobody_asks(made: Path) -> None:
    assert load_blueprint(made / "generated").records >= 4 * FEW


def test_the_page_shows_how_rows_are_made() -> None:
    page = (ROOT / "docs/inputs.md").read_text(encoding="utf-8")
    (code,) = [body for language, body in blocks(page) if language == "python" and "log_mel" in body]
    found: dict[str, Any] = {"samples": tone(440.0, 256 + 160)}
    exec(code, found)
    assert np.shape(found["rows"]) == (2, 40)


@pytest.mark.parametrize(("shape", "fits"), [((12, ROWS, 1), True), ((1, 12, ROWS), False)])
def test_rows_are_moments(shape: tuple[int, ...], fits: bool, tmp_path: Path) -> None:
    """A series of bands is taken; a spectrogram on its side is refused."""
    words = [str(network(tmp_path, *shape)), "--check", "--classes", "4", "--frontend", TEXT]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code == 0) == fits, result.output
    if not fits:
        assert "takes 12 rows of 10 numbers, and the front end makes rows of 12" in result.output
        assert "Traceback" not in result.output


def test_the_library_hears_as_the_firmware_does(made: Path, tmp_path: Path) -> None:
    export(tmp_path, made / "generated", "words")
    assert_heard(Learner(shared(tmp_path), "words"), made / "data/word3/0.wav", SHAPE)


@pytest.mark.parametrize(
    ("text", "width"), [(f"{CEPSTRUM[:-2]}8", 8), (VIBRATION.replace("3200", "8000"), 12)]
)
def test_other_rows_are_heard_on_the_device(made: Path, tmp_path: Path, text: str, width: int) -> None:
    """A whole conversion with coefficients, or with RMS and bands, through the library."""
    model, out, data = network(tmp_path, 1, ROWS, width), tmp_path / "generated", made / "data"
    words = [model, "-o", out, "--calibration", data, "--classes", "4", "--frontend", text]
    done = CliRunner().invoke(main, [*map(str, words), "--board", "native", "--scheme", "head-only"])
    assert done.exit_code == 0, done.output
    assert read_plan(out / "plan.json").input.sound == parse(text)
    export(tmp_path / "library", out, "words")
    shape = told((ROWS, width, 1), parse(text))
    assert_heard(Learner(shared(tmp_path / "library"), "words"), data / "word3/0.wav", shape)


def test_what_a_machine_normally_sounds_like_is_learned(made: Path, tmp_path: Path) -> None:
    """An autoencoder of rows of vibration, simulated."""
    layers = nn.Sequential(nn.Flatten(), nn.Linear(120, 8), nn.ReLU(), nn.Linear(8, 120)).eval()
    path, out = tmp_path / "bearing.pt2", tmp_path / "generated"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(layers, (torch.zeros(1, 1, ROWS, 12),)), path)
    normal, text = tmp_path / "data/normal", VIBRATION.replace("3200", "8000")
    for i in range(12):
        write_wav(normal / f"{i}.wav", tone(300.0 + i, parse(text).samples(ROWS)))
    words = [path, "-o", out, "--task", "anomaly", "--calibration", normal, "--frontend", text]
    done = CliRunner().invoke(main, [*map(str, words), "--board", "native"])
    assert done.exit_code == 0, done.output
    run = ["--data", tmp_path / "data", "--epochs", "1", "--output", tmp_path / "runs"]
    done = CliRunner().invoke(simulate_main, [str(out), *map(str, run)])
    assert done.exit_code == 0 and "held-out sounds" in done.output, done.output


def assert_heard(learner: Learner, path: Path, shape: Any) -> None:
    """Sound in blocks gives the scores of the rows that NumPy makes of it."""
    needed = shape.sound.samples(ROWS)
    assert learner.sizes.sound_samples == needed
    sound = np.ascontiguousarray(placed(read_wav(path, 8000), needed, 0))

    def feed(at: int, count: int) -> int:
        return learner.call("feed_sound", at, ctypes.c_void_p(sound[at:].ctypes.data), count)

    assert feed(5, 10) == ORDER and feed(0, needed + 1) == ARGUMENT
    assert learner.call("feed_sound", 0, None, 10) == ARGUMENT
    for at in range(0, needed, 100):
        assert feed(at, min(100, needed - at)) == OK
    scores = np.zeros(4, np.float32)
    assert learner.call("predict", scores.ctypes.data_as(ctypes.c_void_p), None) == OK
    np.testing.assert_array_equal(scores, learner.scores(load(path, shape)))
