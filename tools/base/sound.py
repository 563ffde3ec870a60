"""What a front end for sound or vibration is told: a spectrogram or its cepstrum, as text and in a plan."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field

from .errors import Error, short
from .schema import OPTIONAL

KIND, CEPSTRUM, SPECTRUM = "log-mel", "mfcc", "spectrum"
HERTZ = "hertz"
CENTRE = 128  # what a coefficient of 0 gives, where nobody says
FULL = 255  # of a value of the spectrogram
LOWEST_FLOOR = -110  # dB
EXAMPLE = f"{KIND}:rate=8000,frame=256,hop=128,bands=40"


@dataclass(frozen=True)
class LogMel:
    """A spectrogram that firmware/include/kernels/log_mel.h makes of int16 samples.

    rate   samples a second
    frame  samples that are looked at together, hop: how many later the next frame begins
    fft    numbers of the FFT, a power of two from the frame on; what the frame leaves of it is 0
    bands  of equal width in mel, or in Hz, from fmin to fmax Hz
    floor  dB below a full-scale tone that are added to each band's power, and give 0
    gain   units of a value for each dB above that, or of a coefficient

    coefficients  of the bands' cepstrum, an orthonormal DCT-II (kernels/mfcc.h), in the place of the bands
    zero          what a coefficient of 0 gives
    scale         HERTZ: bands are of equal width in Hz, and behind the RMS of a frame (kernels/vibration.h)
    """

    rate: int
    frame: int
    hop: int
    fft: int
    bands: int
    fmin: float
    fmax: float
    floor: float
    gain: float
    coefficients: int | None = field(default=None, metadata=OPTIONAL)
    zero: int | None = field(default=None, metadata=OPTIONAL)
    scale: str | None = field(default=None, metadata=OPTIONAL)

    @property
    def linear(self) -> bool:
        """Whether it is for vibration."""
        return self.scale == HERTZ

    @property
    def kind(self) -> str:
        if self.linear:
            return SPECTRUM
        return KIND if self.coefficients is None else CEPSTRUM

    @property
    def width(self) -> int:
        """Values of a row."""
        return self.coefficients or self.bands + self.linear

    def text(self) -> str:
        """As the option says it, every parameter named."""
        said = {name: value for name, value in vars(self).items() if value is not None and name != "scale"}
        values = (f"{name}={repr(value).removesuffix('.0')}" for name, value in said.items())
        return f"{self.kind}:" + ",".join(values)

    def limits(self) -> str:
        """What of a sound its rows do not tell, as a sentence."""
        lowest = (
            "" if self.floor <= LOWEST_FLOOR else f"; floor={LOWEST_FLOOR} in --frontend tells most apart"
        )
        return f"quieter than {-self.floor:g} dB below a full-scale tone is nearly all alike{lowest}"

    def samples(self, rows: int) -> int:
        """Samples of which so many rows are made."""
        return self.frame + (rows - 1) * self.hop


def parse(text: str) -> LogMel:
    """What `log-mel:rate=8000,...`, `mfcc:...` or `spectrum:...` says; Error, one sentence, where that is no
    front end."""
    kind, _, rest = text.partition(":")
    if kind not in (KIND, CEPSTRUM, SPECTRUM):
        raise Error(
            f"{short(kind)} is no front end: there is {EXAMPLE}, {CEPSTRUM} with coefficients=13, and "
            f"{SPECTRUM} for vibration."
        )
    said: dict[str, float] = {}
    own = {"coefficients", "zero"}
    names = {f.name for f in dataclasses.fields(LogMel)} - {"scale"} - (set() if kind == CEPSTRUM else own)
    for part in filter(None, rest.split(",")):
        name, _, value = part.partition("=")
        if name not in names or name in said:
            raise Error(f"{short(part)} is none of what {kind} takes once each: {', '.join(sorted(names))}.")
        said[name] = _number(name, value)
    needed = ("rate", "frame", "hop", "bands", *(("coefficients",) if kind == CEPSTRUM else ()))
    missing = [name for name in needed if name not in said]
    if missing:
        raise Error(f"{kind} is not told {', '.join(missing)}, as in {EXAMPLE}.")
    return checked(said, linear=kind == SPECTRUM)


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Error(f"{name}={short(text)} is no number.")
    return value


def checked(said: dict[str, float], linear: bool = False) -> LogMel:
    """With what was left out. Error where the parameters do not go together."""
    wholes = {}
    for name in ("rate", "frame", "hop", "bands", "fft"):
        value = said.get(name, 1 << max(6, math.ceil(math.log2(max(said["frame"], 1)))))
        if value != int(value):
            raise Error(f"{name}={value:g} must be a whole number.")
        wholes[name] = int(value)
    cepstrum = _cepstrum(said)
    floor = said.get("floor", -80.0)
    full = (FULL - CENTRE) * 2 / math.sqrt(max(wholes["bands"], 1)) if cepstrum else FULL
    made = LogMel(
        **wholes,
        fmin=said.get("fmin", 0.0 if linear else 20.0),
        fmax=said.get("fmax", wholes["rate"] / 2),
        floor=floor,
        gain=said.get("gain", round(full / -floor, 3) if floor < 0 else 1.0),
        **cepstrum,
        scale=HERTZ if linear else None,
    )
    for right, why in _rules(made):
        if not right:
            raise Error(f"{made.kind} cannot be made: {why}.")
    return made


def _cepstrum(said: dict[str, float]) -> dict[str, int]:
    """What only coefficients are told, if there are some."""
    if "coefficients" not in said:
        return {}
    own = {"coefficients": said["coefficients"], "zero": said.get("zero", CENTRE)}
    for name, value in own.items():
        if value != int(value):
            raise Error(f"{name}={value:g} must be a whole number.")
    return {name: int(value) for name, value in own.items()}


def _rules(p: LogMel) -> tuple[tuple[bool, str], ...]:
    power, slowest = p.fft & (p.fft - 1) == 0, 10 if p.linear else 1000
    return (
        (slowest <= p.rate <= 65535, f"rate={p.rate} must be {slowest}..65535 samples a second"),
        (64 <= p.fft <= 2048 and power, f"fft={p.fft} must be a power of two, 64..2048"),
        (32 <= p.frame <= p.fft, f"frame={p.frame} must be 32..{p.fft}, the size of the FFT"),
        (p.frame % 2 == 0 and p.hop % 2 == 0, "frame and hop must be even"),
        (2 <= p.hop <= p.frame, f"hop={p.hop} must be 2..{p.frame}, or samples would never be heard"),
        (1 <= p.bands <= 256, f"bands={p.bands} must be 1..256"),
        (0 <= p.fmin < p.fmax <= p.rate / 2, f"0 <= fmin={p.fmin:g} < fmax={p.fmax:g} <= rate / 2 must hold"),
        (
            LOWEST_FLOOR <= p.floor <= -40,
            f"floor={p.floor:g} must be {LOWEST_FLOOR}..-40 dB",
        ),
        (
            p.coefficients is None or 1 <= p.coefficients <= p.bands,
            f"coefficients={p.coefficients} must be 1..{p.bands}, the bands",
        ),
        (0 <= (p.zero or 0) <= FULL, f"zero={p.zero} must be 0..{FULL}"),
        (0.1 <= p.gain <= 50, f"gain={p.gain:g} must be 0.1..50 units a dB"),
    )
