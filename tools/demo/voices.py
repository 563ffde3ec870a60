"""Words that nobody said: a pulse of harmonics through three resonances, by a seeded simulator.

It has the physics of a voice, pitch, the length of a throat, vowels that glide into each other, a hiss, and
not its surprises. What is learned from it says that the chain works, not how well it does on people.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RATE = 8000
ROWS = 33
FRONT = f"log-mel:rate={RATE},frame=256,hop=160,bands=20,fmin=80"
NEEDED = 256 + (ROWS - 1) * 160  # samples of a word with the silence around it
WORDS = ("aya", "iyu", "sao", "eiyo", "usu", "oei")
VOWELS = {  # the middles of the resonances of a grown-up's throat, Hz
    "a": (750.0, 1250.0, 2500.0),
    "e": (480.0, 1850.0, 2550.0),
    "i": (290.0, 2250.0, 2950.0),
    "y": (290.0, 2250.0, 2950.0),
    "o": (460.0, 850.0, 2450.0),
    "u": (320.0, 750.0, 2300.0),
}
WIDTHS = (90.0, 110.0, 160.0)
HISS = "s"
Rng = np.random.Generator


@dataclass(frozen=True)
class Voice:
    """pitch    in Hz
    short    factor on all resonances, of a shorter throat
    slow     factor on how long a word is
    """

    pitch: float
    short: float
    slow: float


def anybody(rng: Rng) -> Voice:
    """A grown-up."""
    return Voice(rng.uniform(90.0, 200.0), rng.uniform(0.9, 1.12), rng.uniform(0.85, 1.15))


CHILD = Voice(310.0, 1.42, 1.1)


def word(rng: Rng, voice: Voice, text: str) -> np.ndarray:
    """A word in a quiet room, int16 [NEEDED]."""
    length = int(min(NEEDED - 400, RATE * 0.42 * voice.slow * rng.uniform(0.92, 1.08)))
    t = np.linspace(0.0, len(text), length, endpoint=False)
    hissing = np.interp(t - 0.5, np.arange(len(text)), [float(letter == HISS) for letter in text])
    said = voiced(rng, voice, text, t) * (1.0 - hissing) + 0.5 * hiss(rng, length) * hissing
    said *= np.minimum(1.0, 8.0 * np.minimum(t, len(text) - t) / len(text))  # it swells and dies away
    loud = 10 ** rng.uniform(-1.4, -0.7)
    heard = rng.normal(0, 10 ** rng.uniform(-3.4, -2.8), NEEDED)
    start = (NEEDED - length) // 2 + int(rng.integers(-180, 181))
    heard[start : start + length] += loud * loudest_one(said)
    made: np.ndarray = np.clip(np.rint(heard * 32767), -32768, 32767).astype(np.int16)
    return made


def voiced(rng: Rng, voice: Voice, text: str, t: np.ndarray) -> np.ndarray:
    """Harmonics of the pitch, each as loud as the resonances of the moment make it."""
    vowels = [letter if letter in VOWELS else text[text.index(letter) - 1] for letter in text]
    vowels = [letter if letter in VOWELS else "a" for letter in vowels]  # a hiss begins the word
    own = voice.short * rng.normal(1.0, 0.03, 3)
    middles = [
        np.interp(t - 0.5, np.arange(len(text)), [VOWELS[letter][k] * own[k] for letter in vowels])
        for k in range(3)
    ]
    falling = voice.pitch * rng.normal(1.0, 0.04) * (1.06 - 0.12 * t / len(text))
    phase = 2 * np.pi * np.cumsum(falling) / RATE
    made = np.zeros(len(t))
    for order in range(1, int(0.48 * RATE / falling.max()) + 1):
        hertz = order * falling
        resonance = sum(
            (0.6**k) / (1.0 + ((hertz - middle) / width) ** 2)
            for k, (middle, width) in enumerate(zip(middles, WIDTHS, strict=True))
        )
        made += (resonance + 0.002) * np.sin(order * phase) / np.sqrt(order)
    return loudest_one(made)


def hiss(rng: Rng, count: int) -> np.ndarray:
    """Noise above 2.5 kHz."""
    spectrum = np.fft.rfft(rng.normal(0, 1, count))
    hertz = np.fft.rfftfreq(count, 1 / RATE)
    return loudest_one(np.fft.irfft(spectrum / (1.0 + (2500.0 / np.maximum(hertz, 1.0)) ** 8), count))


def loudest_one(x: np.ndarray) -> np.ndarray:
    """As loud as the numbers from -1 to 1 hold."""
    made: np.ndarray = x / np.abs(x).max()
    return made
