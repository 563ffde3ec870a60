"""`python tools/search ...` runs this folder: put `tools/` on the path, then start the command line."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from search.cli import main

if __name__ == "__main__":
    main()
