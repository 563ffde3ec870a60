"""Training sessions of the demo: one on the emulated board, several on this machine beside it."""

from __future__ import annotations

from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from microtrain.device.client import Device
from microtrain.device.learning import train
from microtrain.device.link import Port, ProgramPort
from microtrain.device.session import Log, Settings, Silent, Watcher, new_log
from microtrain.samples.source import Dataset


@dataclass(frozen=True)
class Result:
    """Accuracy on the held-out images before and after a session, in 0..1, and its log."""

    before: float
    after: float
    log: Log


def session(
    port: Port, title: str, training: Dataset, testing: Dataset, settings: Settings, watcher: Watcher
) -> Result:
    """One whole session on one device."""
    with Device(port, title) as device:
        log = new_log(device, training, settings)
        train(device, training, testing, log, watcher)
    return Result(log.evaluations[0].accuracy, log.evaluations[-1].accuracy, log)


def host_session(program: Path, training: Dataset, testing: Dataset, settings: Settings) -> Result:
    """A session on the firmware that was built for this machine; runs in a process of its own."""
    return session(ProgramPort(program), str(program), training, testing, settings, Silent())


def start_host_sessions(
    pool: ProcessPoolExecutor,
    programs: dict[str, Path],
    training: Dataset,
    testing: Dataset,
    settings: Settings,
) -> dict[str, Future[Result]]:
    """Begin a session of each program; they run one after the other beside what the caller does."""
    return {
        name: pool.submit(host_session, program, training, testing, settings)
        for name, program in programs.items()
    }
