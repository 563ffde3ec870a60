"""`python lab/trellis` in a checkout."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from microtrain.base.launch import launch

if __name__ == "__main__":
    launch("lab.trellis", "python lab/trellis")
