"""What tests of features share: importable by name."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).parent
for folder in (_HERE, _HERE.parent / "store"):  # windows are made by what tests the store
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
