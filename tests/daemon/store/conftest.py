"""Makes the helpers of this folder importable, here and in worker processes."""

import os
import sys
from pathlib import Path

import pytest

_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)


@pytest.fixture(autouse=True)
def _importable_in_children(monkeypatch):
    """A worker process finds the helpers and what this process imports."""
    paths = [_HERE, *[path for path in sys.path if path], os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
