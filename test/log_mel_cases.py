"""Random sounds through random front ends: the C of kernels/log_mel.h against its NumPy twin."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from kernel_twins import Guarded, Twin

from microtrain.base.errors import Error
from microtrain.base.sound import LogMel, checked
from microtrain.convert.ops.log_mel import cepstrum, parameters, vibration
from microtrain.samples.log_mel import log_mel


def draw_front_end(rng: np.random.Generator, coefficients: bool = False, linear: bool = False) -> LogMel:
    """One whose bands all hear something."""
    while True:
        fft = 1 << int(rng.integers(6, 10))
        frame = 2 * int(rng.integers(max(16, fft // 4), fft // 2 + 1))
        said = {
            "rate": float(rng.choice([8000, 16000])),
            "frame": frame,
            "hop": 2 * int(rng.integers(1, frame // 2 + 1)),
            "fft": fft,
            "bands": int(rng.integers(1, fft // 8)),
            "fmin": float(rng.integers(0, 400)),
            "floor": -float(rng.integers(40, 111)),
        }
        if coefficients:
            count, zero = int(rng.integers(1, int(said["bands"]) + 1)), int(rng.integers(0, 256))
            said |= {"coefficients": count, "zero": zero, "gain": float(rng.uniform(0.1, 3))}
        try:
            found = checked(said, linear)
            parameters(found)
            return found
        except Error:
            continue


def draw_sound(rng: np.random.Generator, count: int) -> np.ndarray:
    """Silence, steps, the loudest there is, a single sample, a tone, noise of any loudness."""
    kind = int(rng.integers(7))
    if kind == 0:
        return np.full(count, rng.choice([-32768, -1, 0, 1, 32767]), np.int16)
    if kind == 1:
        return rng.choice(np.array([-32768, 32767], np.int16), count)
    if kind == 2:
        return np.where(np.arange(count) == rng.integers(count), 32767 >> rng.integers(16), 0).astype(
            np.int16
        )
    if kind == 3:
        turns = np.arange(count) * np.pi * rng.uniform(0, 1) + rng.uniform(0, 7)
        return np.asarray(np.rint(32767 * np.sin(turns) / (1 << rng.integers(15))), np.int16)
    loud = np.clip(rng.normal(0, 10 ** rng.uniform(0, 4.5), count), -32768, 32767)
    return np.asarray(np.rint(loud), np.int16)


def check_log_mel(twin: Twin, rng: np.random.Generator) -> None:
    sound = draw_front_end(rng)
    p = parameters(sound)
    hear(twin, rng, sound, twin.lib.log_mel_bytes(p), lambda *ends: twin.lib.log_mel_row_u8(p, *ends))


def check_mfcc(twin: Twin, rng: np.random.Generator) -> None:
    sound = draw_front_end(rng, coefficients=True)
    p, more = parameters(sound), cepstrum(sound)
    hear(twin, rng, sound, twin.lib.mfcc_bytes(p), lambda *ends: twin.lib.mfcc_row_u8(p, more, *ends))


def check_vibration(twin: Twin, rng: np.random.Generator) -> None:
    sound = draw_front_end(rng, linear=True)
    p, more = parameters(sound), vibration(sound)
    hear(twin, rng, sound, twin.lib.log_mel_bytes(p), lambda *ends: twin.lib.vibration_row_u8(p, more, *ends))


def hear(
    twin: Twin, rng: np.random.Generator, sound: LogMel, size: int, make_row: Callable[..., int]
) -> None:
    """Sounds in blocks of any size, through C and NumPy. size: of the memory; make_row: from it to a row"""
    rows, p, guard = int(rng.integers(1, 4)), parameters(sound), Guarded()
    samples = draw_sound(rng, sound.samples(rows) + int(rng.integers(0, sound.hop)))
    memory = guard.array((size // 8,), np.uint64)
    # Whatever it holds: what lies behind a frame is multiplied by a window of 0.
    memory[...] = rng.integers(0, 2**64, memory.shape, dtype=np.uint64)
    twin.lib.log_mel_begin(memory)
    left, made = samples, []
    while len(left):
        block = left[: int(rng.integers(1, sound.frame + 40))]
        taken = twin.lib.log_mel_hear_s16(p, memory, block.astype("<i2").view(np.uint8), len(block))
        assert 0 < taken <= len(block)
        left = left[taken:]
        row = guard.array((sound.width,), np.uint8)
        if make_row(memory, row):
            made.append(row)
    guard.check()
    np.testing.assert_array_equal(np.array(made), log_mel(sound, samples))
