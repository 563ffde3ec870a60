"""Integers that replace float32: proven where they are used, refused where they differ in one sum."""

from __future__ import annotations

import numpy as np
import pytest

from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference import proofs
from microtrain.convert.reference.numeric import integer_outputs, requantize

ZEROS = (-128, -6, 0, 127)
INT32 = np.iinfo(np.int32)


def multipliers(seed: int, count: int = 60) -> np.ndarray:
    exponents = np.random.default_rng(seed).uniform(-13, -3, count)
    return np.exp2(exponents).astype(np.float32)


def wide(sums: np.ndarray, m: np.ndarray, zero: int) -> np.ndarray:
    """The contract before saturation, and one beyond it: what saturates is -129 or 128."""
    result: np.ndarray = np.clip(requantize(sums, m) + zero, -129, 128)
    return result


def first_sums(m: np.ndarray, zero: int) -> np.ndarray:
    """The least int32 [257][c] at which the contract reaches each step, by bisection over all of them."""
    steps = proofs.STEPS[:, None]
    low = np.full((257, len(m)), INT32.min, np.int64)
    high = np.full((257, len(m)), INT32.max + 1, np.int64)
    while (low < high).any():
        middle = (low + high) >> 1
        reached = wide(middle, m, zero) >= steps
        low, high = np.where(reached, low, middle + 1), np.where(reached, middle, high)
    return low


@pytest.mark.parametrize("zero", ZEROS)
def test_proven_words_step_where_the_contract_steps(zero: int) -> None:
    """Both only grow with the sum: all 2^32 sums are alike if these are and those in front of them."""
    m = multipliers(zero & 255)
    words = proofs.multiplier_words(m, zero)
    proven = words < 0
    assert proven.mean() > 0.5
    at = first_sums(m, zero)
    for sums in (at, at - 1, np.full_like(at, INT32.min), np.full_like(at, INT32.max)):
        inside = np.clip(sums, INT32.min, INT32.max)
        found = np.clip(integer_outputs(inside, -words.astype(np.int64), zero), -129, 128)
        np.testing.assert_array_equal(found[:, proven], wide(inside, m, zero)[:, proven])


@pytest.mark.parametrize("zero", ZEROS)
def test_words_hold_the_multipliers(zero: int) -> None:
    m = np.concatenate([multipliers(1), np.array([1e-30, 2.0**-14, 2.0**-4, 3.0, 1e30], np.float32)])
    np.testing.assert_array_equal(proofs.multipliers_of(proofs.multiplier_words(m, zero)), m)


def test_an_integer_that_is_off_by_one_somewhere_is_refused() -> None:
    """The proof's interval is exact: its ends step as the contract does, the integers beside them do not."""
    m, zero = multipliers(7), -128
    first, certain = proofs._first_sums(m, zero)
    low, high = proofs._interval(first, zero)
    proven = certain & (low <= high)
    for integers, alike in ((low, True), (high, True), (low - 1, False), (high + 1, False)):
        sums = np.concatenate([first.T, first.T - 1])
        found = np.clip(integer_outputs(sums, integers, zero), -129, 128)
        same = (found == wide(sums, m, zero)).all(axis=0)
        assert (same[proven] == alike).all()


def test_a_multiplier_without_an_integer_stays_a_float() -> None:
    """2^-10 makes ties of whole sums: half to even rounds every second one down, an integer rounds all up."""
    m = np.array([2.0**-10, 2.0**-30, 0.5], np.float32)
    np.testing.assert_array_equal(proofs.multiplier_words(m, 0), m.view(np.int32))


def integer_sums(words: tuple[int, int, int]) -> np.ndarray:
    values = np.arange(-128, 128, dtype=np.int64)
    return (-words[0] * values[:, None] + words[1] * values + words[2]) >> proofs.ADD_FRACTION


def float_sums(p: reference.Add) -> np.ndarray:
    values = np.arange(-128, 128, dtype=np.int8)
    return np.clip(reference.add_wide(p, values[:, None], values), -129, 128)


def test_proven_adds_are_the_contract_for_all_pairs() -> None:
    rng, proven = np.random.default_rng(3), 0
    for _ in range(20):
        scales = [float(np.float32(v)) for v in rng.uniform(0.4, 1.0, 3)]
        zeros = [int(v) for v in rng.integers(-128, 128, 3)]
        p = reference.Add(*zeros, *scales)
        words = proofs.add_words(p)
        if words[0] < 0:
            proven += 1
            np.testing.assert_array_equal(np.clip(integer_sums(words), -129, 128), float_sums(p))
            beside = words[0], words[1], words[2] + (1 << proofs.ADD_FRACTION - 6)
            assert (np.clip(integer_sums(beside), -129, 128) != float_sums(p)).any()
    assert proven > 10


def test_an_add_without_integers_keeps_its_scales() -> None:
    """Equal scales make ties, of which float32 rounds every second one down."""
    p = reference.Add(0, 0, 0, 0.5, 0.5, 1.0)
    assert proofs.add_words(p) == tuple(np.array([0.5, 0.5, 1.0], np.float32).view(np.int32).tolist())
