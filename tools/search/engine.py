"""Independent tasks on many cores or machines, by joblib."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import joblib

from microtrain.base.errors import Error

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Engine:
    """jobs: processes; backend: "loky", this machine, or "ray", all machines of a Ray cluster."""

    jobs: int = os.cpu_count() or 1
    backend: str = "loky"

    def each(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Results as they come."""
        with joblib.parallel_config(backend=self.backend, n_jobs=self.jobs):
            work = joblib.Parallel(return_as="generator_unordered")
            yield from work(joblib.delayed(function)(task) for task in tasks)


def engine(jobs: int, backend: str) -> Engine:
    """Errors   Error where Ray is asked for and not installed"""
    if backend == "ray":
        try:
            from ray.util.joblib import register_ray
        except ImportError as error:
            raise Error("Ray is not installed: `pip install ray`, or leave --engine out.") from error
        register_ray()
    return Engine(jobs, backend)
