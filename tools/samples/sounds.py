"""Sounds: .wav files, which the model's front end turns into the rows that it takes."""

from __future__ import annotations

import wave
import zlib
from pathlib import Path

import numpy as np

from microtrain.base.errors import Error
from microtrain.base.reading import reading
from microtrain.base.sound import EXAMPLE, LogMel

from .kind import Kind, Shape, sound_of
from .log_mel import log_mel

SUFFIXES = frozenset({".wav"})
MOST_BYTES = 64 << 20
LATER, LOUDER = 0.1, 6.0  # most deviation: of a sample's length, and in dB


def load_sound(path: Path, shape: Shape) -> np.ndarray:
    """A recording as the rows of its spectrogram, uint8 [h][w][c].

    A shorter one has silence on both sides, of a longer one the middle is taken.

    Errors   Error where it cannot be read, has another rate or several channels, or there is no front end
    """
    sound = front_end(path, shape)
    return spectrogram(placed(read_wav(path, sound.rate), sound.samples(shape[0]), 0), shape)


def spectrogram(samples: np.ndarray, shape: Shape) -> np.ndarray:
    """What a front end makes of int16 samples, as many as it needs: uint8 [h][w][c]"""
    sound = sound_of(shape)
    assert sound is not None
    return log_mel(sound, samples).reshape(shape)


def front_end(path: Path, shape: Shape) -> LogMel:
    """That of the model. Error where it has none."""
    sound = sound_of(shape)
    if sound is None:
        raise Error(
            f"{path} is a sound, and the model has no front end: convert it with --frontend {EXAMPLE}."
        )
    return sound


def read_wav(path: Path, rate: int) -> np.ndarray:
    """The samples of a recording, int16 [n]. Error where it cannot be read, or has another rate."""
    wrong = f"{path} cannot be read as a sound, .wav with 8 or 16 bits"
    with reading(Error, lambda why: f"{wrong} ({why}): remove or replace it."):
        if path.stat().st_size > MOST_BYTES:
            raise Error(
                f"{path} has more than {MOST_BYTES >> 20} MB: cut the moments out that are to be heard."
            )
        with wave.open(str(path), "rb") as file:
            bits, channels, own = 8 * file.getsampwidth(), file.getnchannels(), file.getframerate()
            data = file.readframes(file.getnframes())
    if bits not in (8, 16) or channels != 1 or own != rate:
        raise Error(
            f"{path} has {channels} channel{'s' * (channels > 1)} of {bits} bits at {own} Hz, and the "
            f"front end takes one of 8 or 16 bits at {rate} Hz, as "
            f"`sox {path.name} -c 1 -b 16 -r {rate} OTHER.wav` makes."
        )
    if bits == 8:
        return ((np.frombuffer(data, np.uint8).astype(np.int16) - 128) << 8).astype(np.int16)
    return np.frombuffer(data[: len(data) // 2 * 2], "<i2").astype(np.int16)


def placed(samples: np.ndarray, needed: int, later: int) -> np.ndarray:
    """As many samples as are needed, the recording in their middle, or so many later."""
    made = np.zeros(needed, np.int16)
    start = (needed - len(samples)) // 2 + later
    first, last = max(start, 0), min(start + len(samples), needed)
    if first < last:
        made[first:last] = samples[first - start : last - start]
    return made


def vary(path: Path, shape: Shape, ways: tuple[str, ...], variant: int) -> np.ndarray:
    """A recording at another moment and in another loudness; the same for the same class, file name and
    variant. ways: none, and it is as it is. Errors as load_sound()"""
    if variant == 0 or not ways:
        return load_sound(path, shape)
    sound = front_end(path, shape)
    name = zlib.crc32(f"{path.parent.name}/{path.name}".encode())
    later, louder = np.random.default_rng((name, variant)).uniform(-1.0, 1.0, 2)
    needed = sound.samples(shape[0])
    samples = placed(read_wav(path, sound.rate), needed, round(LATER * later * needed))
    factor = 10 ** (LOUDER * louder / 20)
    return spectrogram(np.clip(np.rint(samples * factor), -32768, 32767).astype(np.int16), shape)


def changes(path: Path, shape: Shape) -> tuple[str, ...]:
    """What load_sound() does to a recording beside hearing it."""
    sound = front_end(path, shape)
    more = len(read_wav(path, sound.rate)) - sound.samples(shape[0])
    return ("cut to their middle",) if more > 0 else ("put between silence",) if more < 0 else ()


KIND = Kind("sound", SUFFIXES, load_sound, vary, changes, lambda ways: "time, loudness" if ways else "")
