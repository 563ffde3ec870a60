"""`python renode/run.py [SUITE ...]`: suites on the board model and, where it is installed, on Renode."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tools"))

from emulator.robotrun import main  # noqa: E402

if __name__ == "__main__":
    arguments = sys.argv[1:]
    given = [
        argument for argument in arguments if argument.endswith(".robot") or argument in ("-h", "--help")
    ]
    main(arguments if given else [*arguments, str(HERE / "microtrain.robot")])
