"""`python tools/memory_report`: puts tools/ on the path and starts the command."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from base.launch import launch

if __name__ == "__main__":
    launch("memory_report")
