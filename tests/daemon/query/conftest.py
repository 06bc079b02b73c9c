"""Servers on sockets of their own."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from opd.query.server import Server

_PATH = Path(__file__).with_name("backend_for_tests.py")
_SPEC = importlib.util.spec_from_file_location("opd_backend_for_tests", _PATH)
backend_for_tests = importlib.util.module_from_spec(_SPEC)
sys.modules["opd_backend_for_tests"] = backend_for_tests
_SPEC.loader.exec_module(backend_for_tests)


@pytest.fixture
def backend():
    """The back end of the server fixture."""
    made = backend_for_tests.TestBackend()
    yield made
    made.release.set()


@pytest.fixture
def server(tmp_path, backend):
    """A server in this process."""
    broken = []
    made = Server(
        f"ipc://{tmp_path}/run/opd.sock",
        backend,
        state_dir=tmp_path,
        failed=lambda method, error: broken.append((method, error)),
    )
    made.broken = broken
    made.start()
    yield made
    backend.release.set()
    made.stop()
