"""The front end for sound in NumPy: the tables, and kernels/log_mel.h and kernels/mfcc.h bit for bit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from microtrain.base.errors import Error
from microtrain.base.sound import FULL, LogMel

ONE = 32767  # of a table that 2^15 is 1 in
SHIFT_MOST, POWER_SHIFT, OCTAVE, GAIN_SHIFT = 14, 26, 4096, 20
LEVEL_SHIFT, DCT_SHIFT, CEPSTRUM_SHIFT = 2, 15, 18
LOG_STEPS, LOG_BITS, LOG_REST = 64, 15, 9
LOGS = np.rint(OCTAVE * np.log2(1 + np.arange(LOG_STEPS + 1) / LOG_STEPS)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Tables:
    """What struct log_mel holds.

    window    int16 [frame]; order uint16 [fft / 2]
    twiddles  int16 [n][2], cos and -sin: of w, w^2 and w^3 of each stage, then of the split
    bounds    uint16 [bands][2]; weights uint16
    """

    in_shift: int
    gain: int
    base: int
    offset: int
    window: np.ndarray
    order: np.ndarray
    twiddles: np.ndarray
    bounds: np.ndarray
    weights: np.ndarray


@cache
def tables(p: LogMel) -> Tables:
    """Of a front end. Error where a band would hear nothing."""
    half = p.fft // 2
    log4, odd = divmod(half.bit_length() - 1, 2)
    in_shift = log4 + odd  # each stage of radix 4 doubles what is largest, and so does one of radix 2
    window = np.rint(ONE * (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(p.frame) / p.frame))).astype(np.int16)
    bounds, weights = mel_bands(p)
    tone = (ONE * float(window.sum()) / 2 * 2.0 ** (-in_shift - log4 - 1)) ** 2 / 2.0**POWER_SHIFT * ONE
    offset = max(1, round(tone * 10 ** (p.floor / 10)))
    gain = round(p.gain * 10 * np.log10(2) / OCTAVE * 2**GAIN_SHIFT)
    base = int(log2(np.array([offset], np.uint64))[0])
    return Tables(in_shift, gain, base, offset, window, places(half), all_twiddles(half), bounds, weights)


def places(n: int) -> np.ndarray:
    """Where the FFT wants each of n numbers: uint16 [n]."""
    if n <= 2:
        return np.arange(n, dtype=np.uint16)
    inner = places(n // 4)
    number = np.arange(n)
    made: np.ndarray = (number % 4 * (n // 4) + inner[number // 4]).astype(np.uint16)
    return made


def all_twiddles(n: int) -> np.ndarray:
    """Of an FFT of n numbers, and of the split of 2 n real ones."""
    found: list[np.ndarray] = []
    quarter = 2 if (n.bit_length() - 1) % 2 else 4
    while quarter < n:
        k = np.arange(quarter)[:, None] * np.arange(1, 4)
        found.append(_circle(k.reshape(-1), 4 * quarter))
        quarter *= 4
    return np.concatenate([*found, _circle(np.arange(1, n // 2 + 1), 2 * n)])


def _circle(k: np.ndarray, n: int) -> np.ndarray:
    angle = 2 * np.pi * k / n
    made: np.ndarray = np.rint(ONE * np.stack([np.cos(angle), -np.sin(angle)], -1)).astype(np.int16)
    return made


def mel_bands(p: LogMel) -> tuple[np.ndarray, np.ndarray]:
    """Triangles of equal width in mel, each 1 at its centre: first bin and number of bins of each, and their
    weights one behind the other."""
    edges = _hertz(np.linspace(_mel(p.fmin), _mel(p.fmax), p.bands + 2))
    bins = np.arange(1, p.fft // 2) * p.rate / p.fft
    bounds, weights = [], []
    for b in range(p.bands):
        low, centre, high = edges[b : b + 3]
        rise, fall = (bins - low) / (centre - low), (high - bins) / (high - centre)
        weight = np.rint(ONE * np.clip(np.minimum(rise, fall), 0, 1)).astype(np.uint16)
        heard = np.flatnonzero(weight)
        if not len(heard):
            raise Error(
                f"band {b + 1} of {p.bands}, {low:.0f} to {high:.0f} Hz, lies between two of the FFT's "
                "numbers: take fewer bands, a higher fmin, or a larger fft."
            )
        bounds.append((heard[0] + 1, heard[-1] - heard[0] + 1))
        weights.append(weight[heard[0] : heard[-1] + 1])
    return np.array(bounds, np.uint16), np.concatenate(weights)


def _mel(hertz: float) -> float:
    return float(2595 * np.log10(1 + hertz / 700))


def _hertz(mel: np.ndarray) -> np.ndarray:
    made: np.ndarray = 700 * (10 ** (mel / 2595) - 1)
    return made


def log_mel(p: LogMel, samples: np.ndarray) -> np.ndarray:
    """All rows that samples give, int16 [n]: uint8 [rows][bands], or [coefficients]."""
    rows = max(0, (len(samples) - p.frame) // p.hop + 1)
    if not rows:
        return np.zeros((0, p.width), np.uint8)
    starts = np.arange(rows)[:, None] * p.hop + np.arange(p.frame)
    return frames_to_rows(p, samples.astype(np.int64)[starts])


def frames_to_rows(p: LogMel, x: np.ndarray) -> np.ndarray:
    """x: int64 [rows][frame]"""
    t = tables(p)
    changes = np.bitwise_or.reduce((x ^ (x << 1)) & 0xFFFE, axis=1)
    shift = np.minimum(SHIFT_MOST, 15 - np.floor(np.log2(np.maximum(changes, 1))).astype(np.int64))
    real = np.zeros((len(x), p.fft), np.int64)
    real[:, : p.frame] = (x * t.window.astype(np.int64) << shift[:, None]) >> t.in_shift
    power = split(*transform(real, t), t.twiddles)
    value = np.stack([log2(e) for e in energies(power, shift, t)], -1)
    above = value - t.base - 2 * OCTAVE * shift[:, None]
    if p.coefficients is not None:
        return cepstra(p, t, above)
    made: np.ndarray = np.clip((above * t.gain + (1 << (GAIN_SHIFT - 1))) >> GAIN_SHIFT, 0, FULL)
    return made.astype(np.uint8)


def middle(p: LogMel) -> int:
    """Of the levels that coefficients are made of: half-way from the floor to full scale, in OCTAVEs."""
    return round(OCTAVE * -p.floor / 20 / math.log10(2))


def cosines(p: LogMel) -> np.ndarray:
    """An orthonormal DCT-II, int16 [coefficients][bands]."""
    c, b = np.arange(p.width)[:, None], np.arange(p.bands)
    factor = np.sqrt(np.where(c > 0, 2.0, 1.0) / p.bands)
    table = 2.0**DCT_SHIFT * factor * np.cos(np.pi * c * (b + 0.5) / p.bands)
    made: np.ndarray = np.clip(np.rint(table), -ONE, ONE).astype(np.int16)
    return made


def cepstra(p: LogMel, t: Tables, above: np.ndarray) -> np.ndarray:
    """Rows of coefficients of the bands' logarithms less base, int64 [rows][bands]."""
    levels = np.clip((above - middle(p)) >> LEVEL_SHIFT, -32768, 32767)
    sums = levels @ cosines(p).astype(np.int64).T >> DCT_SHIFT
    values = (sums * t.gain + (1 << (CEPSTRUM_SHIFT - 1)) >> CEPSTRUM_SHIFT) + (p.zero or 0)
    made: np.ndarray = np.clip(values, 0, FULL).astype(np.uint8)
    return made


def transform(real: np.ndarray, t: Tables) -> tuple[np.ndarray, np.ndarray]:
    """The DFT of pairs of real numbers as complex ones: real and imaginary part, int64 [rows][fft / 2]."""
    n = real.shape[1] // 2
    re, im = np.empty_like(real[:, :n]), np.empty_like(real[:, :n])
    re[:, t.order], im[:, t.order] = real[:, ::2], real[:, 1::2]
    if (n.bit_length() - 1) % 2:
        quarter = 2
        for part in (re, im):
            a, b = part[:, ::2].copy(), part[:, 1::2].copy()
            part[:, ::2], part[:, 1::2] = a + b, a - b
    else:
        quarter = 4
        _radix4(re, im, 1, None)
    used = 0
    while quarter < n:
        _radix4(re, im, quarter, t.twiddles[used : used + 3 * quarter].reshape(quarter, 3, 2))
        used += 3 * quarter
        quarter *= 4
    return re, im


def _radix4(re: np.ndarray, im: np.ndarray, quarter: int, w: np.ndarray | None) -> None:
    """One stage in place. w: int16 [quarter][3][2], None: all are 1"""
    shape = (len(re), -1, 4, quarter)
    r, i = re.reshape(shape), im.reshape(shape)
    ar, ai = r[:, :, 0] >> 1, i[:, :, 0] >> 1
    turned = []
    for n in (1, 2, 3):
        z = r[:, :, n], i[:, :, n]
        turned.append((z[0] >> 1, z[1] >> 1) if w is None else times(*z, w[:, n - 1]))
    (br, bi), (cr, ci), (dr, di) = turned
    s0r, s0i, s1r, s1i = ar + cr, ai + ci, ar - cr, ai - ci
    s2r, s2i, s3r, s3i = br + dr, bi + di, br - dr, bi - di
    for n, (x, y) in enumerate(
        ((s0r + s2r, s0i + s2i), (s1r + s3i, s1i - s3r), (s0r - s2r, s0i - s2i), (s1r - s3i, s1i + s3r))
    ):
        r[:, :, n], i[:, :, n] = x, y


def times(re: np.ndarray, im: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A product with twiddles int16 [..][2]: half of it, since 2^15 is 1."""
    cos, sin = w[..., 0].astype(np.int64), w[..., 1].astype(np.int64)
    return (re * cos >> 16) - (im * sin >> 16), (re * sin >> 16) + (im * cos >> 16)


def split(re: np.ndarray, im: np.ndarray, twiddles: np.ndarray) -> np.ndarray:
    """The power of the real spectrum, int64 [rows][fft / 2]; the first is not made and 0."""
    n = re.shape[1]
    k = np.arange(1, n // 2 + 1)
    ar, ai, br, bi = re[:, k] >> 1, im[:, k] >> 1, re[:, n - k] >> 1, im[:, n - k] >> 1
    er, ei = (ar + br) >> 1, (ai - bi) >> 1
    tr, ti = times(ai + bi, br - ar, twiddles[-len(k) :])
    power = np.zeros_like(re)
    power[:, n - k] = ((er - tr) ** 2 + (ei - ti) ** 2) >> POWER_SHIFT
    power[:, k] = ((er + tr) ** 2 + (ei + ti) ** 2) >> POWER_SHIFT
    return power


def energies(power: np.ndarray, shift: np.ndarray, t: Tables) -> list[np.ndarray]:
    """Of each band, uint64 [rows], the offset added."""
    offset = np.uint64(t.offset) << (2 * shift).astype(np.uint64)
    found, used = [], 0
    for first, count in t.bounds.astype(int):
        weight = t.weights[used : used + count].astype(np.uint64)
        found.append((power[:, first : first + count].astype(np.uint64) * weight).sum(axis=1) + offset)
        used += count
    return found


def log2(v: np.ndarray) -> np.ndarray:
    """OCTAVE times the logarithm of uint64 numbers above 0: int64."""
    bit = np.zeros(v.shape, np.uint64)
    rest = v.copy()
    for step in (32, 16, 8, 4, 2, 1):
        large = rest >= np.uint64(1) << np.uint64(step)
        bit[large] += np.uint64(step)
        rest[large] >>= np.uint64(step)
    down = np.where(bit >= LOG_BITS, bit - np.uint64(LOG_BITS), 0).astype(np.uint64)
    up = np.where(bit >= LOG_BITS, 0, np.uint64(LOG_BITS) - bit).astype(np.uint64)
    top = ((v >> down) << up).astype(np.int64)
    i, low = (top >> LOG_REST) & (LOG_STEPS - 1), top & ((1 << LOG_REST) - 1)
    made: np.ndarray = bit.astype(np.int64) * OCTAVE + LOGS[i] + ((LOGS[i + 1] - LOGS[i]) * low >> LOG_REST)
    return made
