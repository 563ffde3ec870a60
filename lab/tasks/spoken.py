"""Spoken words by who says them, and the network that learns them from all speakers but one."""

from __future__ import annotations

import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from microtrain.base.sound import LogMel, parse
from microtrain.samples.log_mel import log_mel
from microtrain.samples.sounds import placed, read_wav

FRONT = "log-mel:rate=8000,frame=256,hop=160,bands=40,fmin=60"
ROWS = 49  # a second
CHANNELS, BLOCKS = 32, 4
MEAN, STD = 0.35, 0.25  # of a row's values / 255, as the network takes them
NAME = re.compile(r"(\w+)_(\w+)_(\d+)\.wav")
VARIANTS, EPOCHS, BATCH = 4, 25, 32
SEED = 7


@dataclass(frozen=True)
class Recording:
    path: Path
    word: int
    speaker: str
    number: int


def unpacked(data: Path, work: Path) -> Path:
    """The folder of the set's recordings."""
    folder = work / "fsdd4"
    if not folder.is_dir():
        with tarfile.open(data / "sets/fsdd4.tar") as archive:
            archive.extractall(work, filter="data")
    return folder / "recordings"


def recordings(folder: Path) -> list[Recording]:
    """Files WORD_SPEAKER_NUMBER.wav, by speaker, word and number; words are counted in sorted order."""
    found = [(path, NAME.fullmatch(path.name)) for path in sorted(folder.glob("*.wav"))]
    parts = [(path, match[1], match[2], int(match[3])) for path, match in found if match]
    words = sorted({word for _, word, _, _ in parts})
    made = [Recording(path, words.index(word), who, n) for path, word, who, n in parts]
    return sorted(made, key=lambda r: (r.speaker, r.word, r.number))


def front_end() -> LogMel:
    return parse(FRONT)


def varied(samples: np.ndarray, rng: np.random.Generator, needed: int) -> np.ndarray:
    """The same word said faster or slower, higher or lower, louder, later, in other noise."""
    speed = rng.uniform(0.85, 1.18)
    said = np.interp(np.arange(0, len(samples) - 1, speed), np.arange(len(samples)), samples.astype(float))
    room = max(0, (needed - len(said)) // 2)
    later = int(rng.integers(-room, room + 1)) if room else 0
    loud = placed(np.clip(said, -32768, 32767).astype(np.int16), needed, later) * 10 ** rng.uniform(-0.5, 0.3)
    noise = rng.normal(0, 32768 * 10 ** rng.uniform(-3.6, -2.0), needed)
    made: np.ndarray = np.clip(np.rint(loud + noise), -32768, 32767).astype(np.int16)
    return made


def features(given: list[Recording], variants: int = 0) -> np.ndarray:
    """Rows of each recording, uint8 [recordings][variants, at least 1][ROWS][bands]; the first as it is."""
    sound = front_end()
    needed = sound.samples(ROWS)
    found = []
    for one in given:
        samples, rng = read_wav(one.path, sound.rate), np.random.default_rng((SEED, one.word, one.number))
        ways = [placed(samples, needed, 0), *(varied(samples, rng, needed) for _ in range(variants))]
        found.append([log_mel(sound, way) for way in ways])
    return np.array(found)


def block(c_in: int, c_out: int) -> list[nn.Module]:
    """Depthwise, then pointwise."""
    depthwise = nn.Conv2d(c_in, c_in, 3, 1, 1, groups=c_in, bias=False)
    pointwise = nn.Conv2d(c_in, c_out, 1, bias=False)
    return [depthwise, nn.BatchNorm2d(c_in), nn.ReLU(), pointwise, nn.BatchNorm2d(c_out), nn.ReLU()]


def network(words: int) -> nn.Sequential:
    """Like the keyword network of MLPerf Tiny, with half its channels: [n, 1, ROWS, bands] to words."""
    stem = [nn.Conv2d(1, CHANNELS, (10, 4), 2, (4, 1), bias=False), nn.BatchNorm2d(CHANNELS), nn.ReLU()]
    body = [layer for _ in range(BLOCKS) for layer in block(CHANNELS, CHANNELS)]
    return nn.Sequential(*stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, words))


def taken(rows: np.ndarray) -> torch.Tensor:
    """Rows as the network takes them: [n, 1, ROWS, bands]"""
    return torch.tensor((rows.astype(np.float32) / 255 - MEAN) / STD).reshape(-1, 1, *rows.shape[-2:])


def pretrained(given: list[Recording], rows: np.ndarray, epochs: int = EPOCHS) -> nn.Sequential:
    """The network after training. rows: features() of the recordings, with variants"""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    words = torch.tensor([one.word for one in given])
    net, ways = network(int(words.max()) + 1), rows.shape[1]
    best = torch.optim.AdamW(net.parameters(), 4e-3, weight_decay=0.02)
    steps = epochs * -(-len(given) // BATCH)
    falling = torch.optim.lr_scheduler.OneCycleLR(best, 4e-3, total_steps=steps)
    loss = nn.CrossEntropyLoss(label_smoothing=0.05)
    for _ in range(epochs):
        order = torch.randperm(len(given))
        way = torch.randint(ways, (len(given),))
        for some in order.split(BATCH):
            x = masked(taken(rows[some, way[some]]))
            best.zero_grad()
            loss(net(x), words[some]).backward()
            best.step()
            falling.step()
    return net.eval()


def masked(x: torch.Tensor) -> torch.Tensor:
    """With a few neighbouring bands and moments left out, as SpecAugment does."""
    for axis, most in ((2, 8), (3, 6)):
        width = int(torch.randint(most + 1, (1,)))
        start = int(torch.randint(x.shape[axis] - most, (1,)))
        x.narrow(axis, start, width).fill_(0.0)
    return x
