"""`python tools/soak`"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from soak.cli import main

if __name__ == "__main__":
    main(prog_name="soak")
