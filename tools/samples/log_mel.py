"""The front ends in NumPy: the tables, and kernels/log_mel.h, mfcc.h and vibration.h bit for bit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from microtrain.base.errors import Error
from microtrain.base.sound import FULL, LogMel

ONE = 32767  # of a table that 2^15 is 1 in
HALF_ROOT = 23170  # sqrt(1/2) of these
ORDER = {4: (1, 2, 3), 8: (2, 4, 6, 1, 3, 5, 7)}  # of a transform's twiddles
ENERGY_BITS, SHIFT_MOST, WINDOW_SHIFT = 30, 14, 16
OCTAVE, GAIN_SHIFT, DCT_SHIFT, CEPSTRUM_SHIFT = 1024, 18, 15, 18
LOG_BITS = 7
LOGS = np.rint(OCTAVE * np.log2(1 + (np.arange(1 << LOG_BITS) + 0.5) / (1 << LOG_BITS))).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Tables:
    """What struct log_mel holds.

    opening, twiddles, weights  uint32: pairs of int16
    order   uint16 [fft / 16][2]; circle int32 [fft / 16][4][2]; counts uint16 [bands + 1]
    """

    gain: int
    lowest: int
    shift_most: int
    base: int
    offset: int
    opening: np.ndarray
    twiddles: np.ndarray
    order: np.ndarray
    circle: np.ndarray
    counts: np.ndarray
    weights: np.ndarray


@cache
def tables(p: LogMel) -> Tables:
    """Of a front end. Error where a band would hear nothing."""
    half = p.fft // 2
    window = hann(p)
    stages = len(radices(half))
    tone = ONE * float(window.sum()) / 2.0 ** (WINDOW_SHIFT + stages)  # amplitude of the loudest
    floor = tone**2 / 4 * 10 ** (p.floor / 10)
    shift_most = min(SHIFT_MOST, math.floor((ENERGY_BITS - math.log2(floor)) / 2))
    offset = round(floor * 4.0**shift_most)
    base = int(log2(np.array([offset + 1]))[0]) - 2 * OCTAVE * shift_most
    lowest, counts, weights = segments(p)
    return Tables(
        gain=round(p.gain * 10 * np.log10(2) / OCTAVE * 2**GAIN_SHIFT),
        lowest=lowest,
        shift_most=shift_most,
        base=base,
        offset=offset,
        opening=opening(window, half),
        twiddles=twiddles(half),
        order=last_transforms(half),
        circle=quarters(half),
        counts=counts,
        weights=words(weights),
    )


def hann(p: LogMel) -> np.ndarray:
    """The frame's window: int16 [frame]."""
    made: np.ndarray = np.rint(ONE * (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(p.frame) / p.frame))).astype(
        np.int16
    )
    return made


def words(pairs: np.ndarray) -> np.ndarray:
    """int16 [..][2] as uint32, the first below."""
    made: np.ndarray = np.ascontiguousarray(pairs).astype("<i2").view("<u4").astype(np.uint32)
    return made.reshape(pairs.shape[:-1])


def opening(window: np.ndarray, n: int) -> np.ndarray:
    """What each of the first stage's transforms takes: its window, from pair 1 to 0, and its twiddles."""
    radix = radices(n)[0]
    whole = np.zeros((radix, n // radix, 2), np.int16)
    whole.reshape(-1)[: len(window)] = window
    pairs = np.roll(whole, -1, axis=0).transpose(1, 0, 2)
    turns = turned(np.arange(n // radix)[:, None] * np.array(ORDER[radix]), n)
    return np.hstack([words(pairs), words(turns)]).reshape(-1)


def turned(k: np.ndarray, n: int) -> np.ndarray:
    """exp(-2 pi i k / n): int16 [..][2]"""
    angle = 2 * np.pi * k / n
    made: np.ndarray = np.rint(ONE * np.stack([np.cos(angle), -np.sin(angle)], -1)).astype(np.int16)
    return made


def radices(n: int) -> list[int]:
    """Of the stages of an FFT of n numbers."""
    log4, odd = divmod(n.bit_length() - 1, 2)
    return [8] * odd + [4] * (log4 - odd)


def places(n: int) -> np.ndarray:
    """Which of n numbers the FFT leaves at each place: int64 [n]."""
    made = np.zeros(1, np.int64)
    for radix in reversed(radices(n)):
        made = np.concatenate([k + radix * made for k in range(radix)])
    return made


def twiddles(n: int) -> np.ndarray:
    """Of the stages between the first and the last, without those of 1: uint32"""
    found, whole = [np.zeros(0, np.uint32)], n // radices(n)[0]
    while whole > 4:
        k = np.arange(1, whole // 4)[:, None] * np.array(ORDER[4])
        found.append(words(turned(k, whole)).reshape(-1))
        whole //= 4
    return np.concatenate(found)


def last_transforms(n: int) -> np.ndarray:
    """Bytes before the last stage's transforms m and n / 4 - m, m from 1: uint16 [n / 8][2]"""
    begin = 4 * np.argsort(places(n))[: n // 4]
    m = np.arange(1, n // 8 + 1)
    return np.stack([begin[m], begin[n // 4 - m]], -1).astype(np.uint16)


def quarters(n: int) -> np.ndarray:
    """cos and half of sin of the k of each of these transforms: int32 [n / 8][4][2]"""
    k = np.arange(1, n // 8 + 1)[:, None] + n // 4 * np.arange(4)
    return circle(k, n)


def circle(k: np.ndarray, n: int) -> np.ndarray:
    angle = np.pi * k / n
    ends = np.stack([np.cos(angle), np.sin(angle) / 2], -1)
    made: np.ndarray = np.rint(2.0**31 * ends).astype(np.int32)
    return made


def edges_of(p: LogMel) -> np.ndarray:
    """Where bands begin, have their centres and end: float64 [bands + 2], Hz"""
    if p.linear:
        return np.linspace(p.fmin, p.fmax, p.bands + 2)
    return _hertz(np.linspace(_mel(p.fmin), _mel(p.fmax), p.bands + 2))


def band_weights(p: LogMel) -> np.ndarray:
    """Triangles of equal width in mel or in Hz, each 1 at its centre: int64 [bands][fft / 2]"""
    edges = edges_of(p)
    bins = np.arange(p.fft // 2) * p.rate / p.fft
    made = np.zeros((p.bands, len(bins)), np.int64)
    for b, weights in enumerate(made):
        low, centre, high = edges[b : b + 3]
        rise, fall = (bins - low) / (centre - low), (high - bins) / (high - centre)
        weights[1:] = np.rint(ONE * np.clip(np.minimum(rise, fall), 0, 1))[1:]
        if not weights.any():
            raise Error(
                f"band {b + 1} of {p.bands}, {low:.0f} to {high:.0f} Hz, lies between two of the FFT's "
                "numbers: take fewer bands, a higher fmin, or a larger fft."
            )
    return made


def segments(p: LogMel) -> tuple[int, np.ndarray, np.ndarray]:
    """The same by the k between centres: the first k; how many below the first centre, between two, and above
    the last, uint16 [bands + 1]; of each k its weights in the bands above and below, int16 [..][2]."""
    edges = edges_of(p)
    bins = np.arange(p.fft // 2) * p.rate / p.fft
    heard = np.flatnonzero((bins > edges[0]) & (bins < edges[-1]))
    segment = np.searchsorted(edges[1:-1], bins[heard])
    rows = np.pad(band_weights(p), ((1, 1), (0, 0)))
    weights = np.stack([rows[segment + 1, heard], rows[segment, heard]], -1)
    return (
        int(heard[0]),
        np.bincount(segment, minlength=p.bands + 1).astype(np.uint16),
        weights.astype(np.int16),
    )


def _mel(hertz: float) -> float:
    return float(2595 * np.log10(1 + hertz / 700))


def _hertz(mel: np.ndarray) -> np.ndarray:
    made: np.ndarray = 700 * (10 ** (mel / 2595) - 1)
    return made


def log_mel(p: LogMel, samples: np.ndarray) -> np.ndarray:
    """All rows that samples give, int16 [n]: uint8 [rows][width]."""
    rows = max(0, (len(samples) - p.frame) // p.hop + 1)
    if not rows:
        return np.zeros((0, p.width), np.uint8)
    starts = np.arange(rows)[:, None] * p.hop + np.arange(p.frame)
    return frames_to_rows(p, samples.astype(np.int64)[starts])


def frames_to_rows(p: LogMel, x: np.ndarray) -> np.ndarray:
    """x: int64 [rows][frame]"""
    t = tables(p)
    shift = np.minimum(t.shift_most, (ENERGY_BITS - bit_lengths((x * x).sum(axis=1))) >> 1)
    real = np.zeros((len(x), p.fft), np.int64)
    real[:, : p.frame] = x * hann(p).astype(np.int64) >> (WINDOW_SHIFT - shift)[:, None]
    energy = energies(powers(*transform(real[:, ::2], real[:, 1::2])), shift, t)
    above = log2(energy) - t.base - 2 * OCTAVE * shift[:, None]
    if p.coefficients is not None:
        return cepstra(p, t, above)
    if p.linear:
        above = np.hstack([deviations(p, x)[:, None], above])
    made: np.ndarray = np.clip((above * t.gain + (1 << (GAIN_SHIFT - 1))) >> GAIN_SHIFT, 0, FULL)
    return made.astype(np.uint8)


def quietest(p: LogMel) -> int:
    """What is added to the square of a frame's deviation: that of a tone at the floor."""
    return round((p.frame * ONE) ** 2 / 2 * 10 ** (p.floor / 10))


def deviations(p: LogMel, x: np.ndarray) -> np.ndarray:
    """RMS of frames about their means, above the floor in OCTAVEs. x: int64 [rows][frame]"""
    square = p.frame * (x * x).sum(axis=1) - x.sum(axis=1) ** 2
    made: np.ndarray = log2(square + quietest(p)) - log2(np.array([quietest(p)]))
    return made


def bit_lengths(v: np.ndarray) -> np.ndarray:
    """Of int64 numbers from 0 on below 2^53."""
    made: np.ndarray = np.frexp(v.astype(float))[1].astype(np.int64)
    return made


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
    levels = np.clip(above - middle(p), -32768, 32767)
    sums = levels @ cosines(p).astype(np.int64).T >> DCT_SHIFT
    values = (sums * t.gain + (1 << (CEPSTRUM_SHIFT - 1)) >> CEPSTRUM_SHIFT) + (p.zero or 0)
    made: np.ndarray = np.clip(values, 0, FULL).astype(np.uint8)
    return made


Complex = tuple[np.ndarray, np.ndarray]  # real and imaginary part, int64


def transform(re: np.ndarray, im: np.ndarray) -> Complex:
    """The DFT of numbers [rows][n], halved by all stages but the last."""
    rows, n = re.shape
    found, whole = radices(n), n
    for stage, radix in enumerate(found):
        part = whole // radix
        shape = (rows, -1, radix, part)
        r, i = re.reshape(shape), im.reshape(shape)
        parts = [(r[:, :, k], i[:, :, k]) for k in range(radix)]
        done = radix8(parts) if radix == 8 else radix4(parts)
        if part > 1:
            done = [halved(z, k, whole, part, stage) for k, z in enumerate(done)]
        re, im = (np.stack([z[axis] for z in done], 2).reshape(rows, n) for axis in (0, 1))
        whole = part
    order = np.argsort(places(n))
    return re[:, order], im[:, order]


def halved(z: Complex, k: int, whole: int, part: int, stage: int) -> Complex:
    """Half of a stage's k-th numbers, turned by their twiddles: [rows][n / whole][part]"""
    w = turned(k * np.arange(part), whole).astype(np.int64)
    done = times(z, w[:, 0], w[:, 1])
    alone = slice(None) if k == 0 else slice(0, min(stage, 1))
    for made, given in zip(done, z, strict=True):
        made[..., alone] = given[..., alone] >> 1
    return done


def times(z: Complex, re: np.ndarray | int, im: np.ndarray | int) -> Complex:
    """Half of a product with twiddles, rounded: 2^15 is 1 in them."""
    return (z[0] * re - z[1] * im + (1 << 15)) >> 16, (z[0] * im + z[1] * re + (1 << 15)) >> 16


def plus(a: Complex, b: Complex) -> Complex:
    return a[0] + b[0], a[1] + b[1]


def minus(a: Complex, b: Complex) -> Complex:
    return a[0] - b[0], a[1] - b[1]


def turned_back(z: Complex) -> Complex:
    """-i z"""
    return z[1], -z[0]


def radix4(z: list[Complex]) -> list[Complex]:
    s0, s1, s2 = plus(z[0], z[2]), minus(z[0], z[2]), plus(z[1], z[3])
    s3 = turned_back(minus(z[1], z[3]))
    return [plus(s0, s2), plus(s1, s3), minus(s0, s2), minus(s1, s3)]


def radix8(z: list[Complex]) -> list[Complex]:
    even = radix4([plus(z[k], z[k + 4]) for k in range(4)])
    odd = [minus(z[k], z[k + 4]) for k in range(4)]
    odd[1] = times(plus(odd[1], odd[1]), HALF_ROOT, -HALF_ROOT)
    odd[2] = turned_back(odd[2])
    odd[3] = times(plus(odd[3], odd[3]), -HALF_ROOT, -HALF_ROOT)
    return [x for pair in zip(even, radix4(odd), strict=True) for x in pair]


def powers(re: np.ndarray, im: np.ndarray) -> np.ndarray:
    """Half of the real spectrum's power, int64 [rows][n]; the first is not made and 0."""
    n = re.shape[1]
    k, quarter = np.arange(1, n), n // 4
    m = k % quarter
    middle = (2 * m == quarter) & (k > n // 2)
    k = k[(m > 0) & (2 * m < quarter) | middle | (k == quarter) | (k == n // 2)]  # each for itself and n - k
    own, other = re[:, k] ** 2 + im[:, k] ** 2, re[:, n - k] ** 2 + im[:, n - k] ** 2
    cos, sin = circle(k, n).astype(np.int64).T
    across = re[:, k] * im[:, n - k] + im[:, k] * re[:, n - k]
    apart = (across * cos >> 32) + ((other - own) * sin >> 32)
    power = np.zeros_like(re)
    power[:, n - k] = ((own + other) >> 2) - apart
    power[:, k] = ((own + other) >> 2) + apart
    return power


def energies(power: np.ndarray, shift: np.ndarray, t: Tables) -> np.ndarray:
    """Of each band, int64 [rows][bands]; the offset and 1 are added."""
    heard, pairs = power[:, t.lowest : t.lowest + len(t.weights)], t.weights.view("<i2").reshape(-1, 2)
    above, below = (heard * pairs[:, side].astype(np.int64) >> 16 for side in (0, 1))
    bands = len(t.counts) - 1
    found = np.repeat((t.offset >> 2 * (t.shift_most - shift))[:, None], bands, axis=1)
    segment = np.repeat(np.arange(bands + 1), t.counts)
    for k, b in enumerate(segment):
        if b < bands:
            found[:, b] += above[:, k]
        if b > 0:
            found[:, b - 1] += below[:, k]
    return np.maximum(found, 0) + 1


def log2(v: np.ndarray) -> np.ndarray:
    """OCTAVE times the logarithm of int64 numbers from 1 on, below 2^53."""
    bits = bit_lengths(v)
    down = bits - LOG_BITS - 1
    step = np.where(down > 0, v >> np.maximum(down, 0), v << np.maximum(-down, 0))
    made: np.ndarray = (bits - 1) * OCTAVE + LOGS[step - (1 << LOG_BITS)]
    return made
