"""``make bench``: each section measures on this machine, in this minute, and says what it saw."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.harness.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
