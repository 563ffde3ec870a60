"""Votes of windows that come one after the other: in C, in Python and on the command line."""

from __future__ import annotations

import ctypes
import random
import subprocess

import click
import pytest
from conftest import ROOT

from microtrain.device.votes import MOST, NeedOf, Votes

SOURCE = """
#include "microtrain_votes.h"
void votes(unsigned of, unsigned need, const int *labels, int count, int *winners)
{
    struct microtrain_votes v = {(uint8_t)of, (uint8_t)need, 0, 0, {0}};
    for (int i = 0; i < count; i++) {
        winners[i] = microtrain_vote(&v, (uint32_t)labels[i]);
    }
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("votes")
    (folder / "votes.c").write_text(SOURCE)
    words = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-shared", "-fPIC"]
    include, out = ROOT / "firmware/include", folder / "votes.so"
    subprocess.run(["gcc", *words, f"-I{include}", folder / "votes.c", "-o", out], check=True)
    return ctypes.CDLL(str(out))


@pytest.mark.parametrize(("need", "of"), [(1, 1), (2, 3), (3, 5), (5, 5), (17, 32)])
def test_c_and_python_count_the_same(library: ctypes.CDLL, need: int, of: int) -> None:
    draw = random.Random(of)
    labels = [draw.choice([0, 0, 0, 1, 2, 65535]) for _ in range(300)]
    found = (ctypes.c_int * 300)()
    library.votes(of, need, (ctypes.c_int * 300)(*labels), 300, found)
    votes = Votes(need, of)
    expected = [votes.count(label) for label in labels]
    assert [None if winner < 0 else winner for winner in found] == expected
    by_hand = [max(set(last := labels[max(0, i - of + 1) : i + 1]), key=last.count) for i in range(300)]
    held = [labels[max(0, i - of + 1) : i + 1].count(by_hand[i]) >= need for i in range(300)]
    assert expected == [label if wins else None for label, wins in zip(by_hand, held, strict=True)]


def test_one_odd_window_is_no_alarm() -> None:
    votes = Votes(3, 5)
    assert [votes.count(label) for label in (0, 0, 0, 1, 0, 1, 1)] == [None, None, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("wrong", ["3", "2/4", "4/3", "0/1", f"33/{MOST + 2}", "a/b", "3/5/7"])
def test_what_is_no_majority_is_refused(wrong: str) -> None:
    with pytest.raises(click.BadParameter, match="more than half of the last windows, 32 at most"):
        NeedOf().convert(wrong, None, None)
