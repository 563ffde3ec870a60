"""What the sessions so far say of candidates that nobody has trained: a Gaussian process.

Contributions are measured one at a time, early, and the largest sum is also the luckiest. They rank whole
schemes well all the same: the process learns from real sessions what the sums are worth, and which layers
give more or less than their share (Rasmussen and Williams, Gaussian Processes for Machine Learning, chapter
2).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping

import numpy as np

from .space import FRACTIONS, Candidate

Parts = Callable[[Candidate], tuple[float, float]]  # what its biases and its weights are said to gain
BIASES = 2.0  # all biases are worth the distance of so many whole layers


class Surrogate:
    """Likelihoods to expect.

    parts     contributions of a candidate
    trained   likelihoods by candidate, in nats, one at least
    """

    def __init__(self, parts: Parts, trained: Mapping[Candidate, float]) -> None:
        self.parts = parts
        values = np.array(list(trained.values()))
        self.mean, self.unit = values.mean(), values.std() or 1.0
        spread = np.std([parts(candidate) for candidate in trained], axis=0)
        self.spread = np.where(spread > 0, spread, 1.0)
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel

        kernel = ConstantKernel() * DotProduct() + ConstantKernel() * RBF(2.0) + WhiteKernel()
        self.process = GaussianProcessRegressor(kernel, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # few sessions leave some parameters open
            self.process.fit([self.place(c) for c in trained], (values - self.mean) / self.unit)
        self.whitened = np.linalg.inv(self.process.L_)

    def place(self, candidate: Candidate) -> np.ndarray:
        """The candidate as numbers of like size."""
        levels = np.array(candidate.levels) / len(FRACTIONS)
        biases = BIASES * candidate.biases / len(levels)
        return np.array([*(self.parts(candidate) / self.spread), biases, candidate.bits / 4.0, *levels])

    def expected(self, candidate: Candidate) -> float:
        result: float = self.mean + self.unit * self.posterior(candidate)[0]
        return result

    def hoped(self, candidate: Candidate) -> float:
        """A standard deviation above what is expected: what is worth a try."""
        result: float = self.mean + self.unit * sum(self.posterior(candidate))
        return result

    def posterior(self, candidate: Candidate) -> tuple[float, float]:
        """Mean and standard deviation, in units of those trained: what the process's own predict() says of
        one candidate, and takes far longer to say (chapter 2, algorithm 2.1)."""
        place, known = self.place(candidate), self.process.X_train_
        kernel = self.process.kernel_  # as __init__ has it
        line, near, noise = kernel.k1.k1, kernel.k1.k2, kernel.k2.noise_level
        steep, offset = line.k1.constant_value, line.k2.sigma_0**2
        distances = np.square(known - place).sum(axis=1) / near.k2.length_scale**2
        shared = steep * (offset + known @ place) + near.k1.constant_value * np.exp(-0.5 * distances)
        alone = steep * (offset + place @ place) + near.k1.constant_value + noise
        told = self.whitened @ shared
        return float(shared @ self.process.alpha_), math.sqrt(max(0.0, alone - told @ told))
