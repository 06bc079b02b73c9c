"""The helpers of the store's tests, and stores with hours of history."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

_HELPERS = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
sys.path[:0] = [path for path in _HELPERS if path not in sys.path]


@pytest.fixture(autouse=True)
def _importable_in_children(monkeypatch):
    """A child finds the helpers and what this process imports."""
    paths = [*_HELPERS, *[path for path in sys.path if path], os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
