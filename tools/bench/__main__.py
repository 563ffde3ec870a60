"""`python tools/bench`"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.cli import main

if __name__ == "__main__":
    main(prog_name="bench")
