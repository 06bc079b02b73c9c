"""``make bench``: each section measures on this machine, in this minute, and prints.

``make bench ARGS="cost storm"`` runs some of them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import accuracy
import cost
import loss
import storm

SECTIONS = {
    "accuracy": accuracy.main,
    "storm": storm.main,
    "loss": loss.main,
    "cost": cost.main,
}


def main() -> int:
    """Run the sections asked for, all by default."""
    asked = sys.argv[1:] or list(SECTIONS)
    for name in asked:
        if name not in SECTIONS:
            print(f"no section {name!r}; there are: {' '.join(SECTIONS)}", file=sys.stderr)
            return 2
    print(f"{os.uname().release}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.2f}")
    for name in asked:
        SECTIONS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
