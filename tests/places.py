"""Where the tests find what was installed."""

from __future__ import annotations

import sys
from pathlib import Path

BIN = Path(sys.executable).parent
PROGRAMS = Path(__file__).parent / "integration" / "programs"
DATA = Path(__file__).parent / "data"
