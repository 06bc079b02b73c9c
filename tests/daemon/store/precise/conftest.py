"""The helpers of the store's tests."""

from __future__ import annotations

import sys
from pathlib import Path

for _path in (str(Path(__file__).parent), str(Path(__file__).parent.parent)):
    if _path not in sys.path:
        sys.path.insert(0, _path)
