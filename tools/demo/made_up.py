"""Signals that nobody measured: an accelerometer on a person, and one on a fan, by a seeded simulator.

They have the physics of the real thing, gravity, gait, orders of rotation, resonances, and not its surprises.
What is learned from them says that the chain works, not how well it does on a real sensor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ACTIVITIES = ("cycling", "resting", "running", "stairs", "walking")
STEPS, RATE = 64, 32.0  # moments of a sample, and of a second
LSB_PER_G = 16.0
BANDS = 64  # of a spectrum
LOW_HZ, HIGH_HZ = 10.0, 4000.0
DB_PER_LSB, DB_MIDDLE = 0.5, -30.0
Rng = np.random.Generator


@dataclass(frozen=True)
class Person:
    """Who wears the sensor, and how.

    pace    factor on the frequency of steps, force: on how hard they are
    turned  rotation of the sensor, 3x3
    """

    pace: float
    force: float
    turned: np.ndarray


def rotation(rng: Rng, degrees: float) -> np.ndarray:
    """By so much about an axis that is drawn."""
    axis = rng.normal(0, 1, 3)
    x, y, z = axis / np.linalg.norm(axis)
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    angle = np.deg2rad(degrees)
    made: np.ndarray = np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
    return made


def anybody(rng: Rng) -> Person:
    """Somebody who wears the sensor as it should be."""
    return Person(rng.uniform(0.85, 1.15), rng.uniform(0.8, 1.25), rotation(rng, rng.uniform(0, 15)))


def somebody_else(rng: Rng) -> Person:
    """Somebody whose sensor sits on its side, and who goes softly."""
    return Person(0.9, 0.6, rotation(rng, 100.0))


def motion(rng: Rng, person: Person, activity: str) -> np.ndarray:
    """Two seconds of acceleration, int8 [STEPS][3], LSB_PER_G a g: ahead, to the left, up."""
    t = np.arange(STEPS) / RATE
    phase, wobble = rng.uniform(0, 2 * np.pi), rng.normal(1, 0.05)
    ahead, left, up = (np.zeros(STEPS) for _ in range(3))
    pace = 2 * np.pi * person.pace * wobble * t
    if activity == "walking":
        ahead, left, up = _gait(pace * 1.8 + phase, 0.15, 0.10, 0.30, 0.25)
    elif activity == "running":
        ahead, left, up = _gait(pace * 2.7 + phase, 0.40, 0.25, 1.10, 0.80)
    elif activity == "stairs":
        ahead, left, up = _gait(pace * 1.4 + phase, 0.25, 0.22, 0.22, 0.10)
    elif activity == "cycling":
        turn = pace * 1.2 + phase
        ahead, left, up = 0.12 * np.sin(turn), 0.20 * np.sin(turn / 2), 0.05 * np.sin(2 * turn)
        up = up + rng.normal(0, 0.12, STEPS)  # the road
    tilt = rotation(rng, abs(rng.normal(0, 4)))
    acceleration = person.force * np.stack([ahead, left, up], 1) + tilt @ np.array([0.0, 0.0, 1.0])
    felt = acceleration @ person.turned.T + rng.normal(0, 0.03, (STEPS, 3))
    made: np.ndarray = np.clip(np.rint(felt * LSB_PER_G), -128, 127).astype(np.int8)
    return made


def _gait(
    phase: np.ndarray, ahead: float, sway: float, bounce: float, strike: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps: a push ahead, a sway from foot to foot, a bounce, and the strike of the heel."""
    heel = np.exp(8.0 * (np.cos(phase) - 1.0))
    up = bounce * np.sin(phase) + strike * heel
    return ahead * np.cos(phase) - 0.3 * strike * heel, sway * np.sin(phase / 2), up


@dataclass(frozen=True)
class Fan:
    """turns: a second; blades; modes: resonances in Hz; loud: of its air, in dB"""

    turns: float
    blades: int
    modes: tuple[float, ...]
    loud: float


KNOWN = Fan(24.0, 7, (180.0, 950.0, 2600.0), 0.0)
OTHER = Fan(38.0, 5, (320.0, 1400.0, 3300.0), 6.0)
FAULTS = ("imbalance", "bearing", "rubbing")


def spectrum(rng: Rng, fan: Fan, fault: str | None = None) -> np.ndarray:
    """Power in BANDS of equal ratio, int8 [BANDS], DB_PER_LSB a unit: an average over a second."""
    edges = np.geomspace(LOW_HZ, HIGH_HZ, BANDS + 1)
    centres = np.sqrt(edges[1:] * edges[:-1])
    turns = fan.turns * rng.normal(1, 0.01)
    power = 10 ** ((fan.loud - 45.0 + rng.normal(0, 1)) / 10) * (centres / 100.0) ** -0.5
    for order in range(1, 6):
        _line(power, edges, order * turns, 2.0 * rng.uniform(0.7, 1.4) / order**2 / 100)
        _line(power, edges, order * turns * fan.blades, rng.uniform(0.7, 1.4) / order**2 / 30)
    if fault == "imbalance":
        _line(power, edges, turns, 0.25)
    if fault == "bearing":
        for order in range(1, 12):
            _line(power, edges, 3.57 * order * turns, 0.004)
        power = power + 3e-4 * np.exp(-(((centres - 2200.0) / 500.0) ** 2))
    if fault == "rubbing":
        power = power + 1.2e-4 * (centres > 500.0)
    for mode in fan.modes:
        power = power * (1.0 + 8.0 / (1.0 + ((centres - mode) / (0.06 * mode)) ** 2))
    seen = power * rng.gamma(16.0, 1 / 16.0, BANDS)  # sixteen windows in a second
    stored = np.rint((10 * np.log10(seen) - DB_MIDDLE) / DB_PER_LSB)
    made: np.ndarray = np.clip(stored, -128, 127).astype(np.int8)
    return made


def _line(power: np.ndarray, edges: np.ndarray, hertz: float, height: float) -> None:
    """A tone, in the band where it lies."""
    place = int(np.searchsorted(edges, hertz)) - 1
    if 0 <= place < BANDS:
        power[place] += height
