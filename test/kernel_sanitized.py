"""Random cases of all kernels in a library built with sanitizers: LIBRARY CASES [--raw].

The process must be started under the sanitizers' runtime or under valgrind. --raw leaves the memory that
kernels are given as it was allocated: valgrind then knows what was never written. Wrong values do not end
such a run, since another kernel may use what was not written.
"""

from __future__ import annotations

import sys
from pathlib import Path

import kernel_cases
from kernel_twins import Guarded, Twin

from microtrain.convert.ops.host import bound


def main(library: str, cases: str, *options: str) -> None:
    Guarded.margin, Guarded.filled = 0, "--raw" not in options
    twin = Twin(bound(Path(library)))
    for name in kernel_cases.CHECKS:
        try:
            kernel_cases.run(name, twin, int(cases), seed=7)
        except AssertionError:
            if Guarded.filled:
                raise
    print("all kernels ran")


if __name__ == "__main__":
    main(*sys.argv[1:])
