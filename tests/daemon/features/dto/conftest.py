"""What the tests of dto share."""

from __future__ import annotations

import pytest


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Give what is built a place of the test's own; where that is."""
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dto"
