"""Probes without a daemon: measured by this process's children, kept in a session directory."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from opd.errors import StoreError
from opd.store.database import open_writer, transaction
from opd.store.requests import Place, carry_out


class LocalKeeper:
    """Stores runs in a directory's store, which a worker may write too: each takes its turn."""

    def __init__(self, directory: str) -> None:
        """Open the store, made when missing. Raises StoreError."""
        self._path = Path(directory)
        self._connection = open_writer(self._path)
        self.runs: list[int] = []

    def begin(self, params: dict[str, Any]) -> int:
        """See opd.probes.jobs.Keeper. Raises StoreError, as the others do."""
        number = int(self._do("probe_begin", params)["id"])
        self.runs.append(number)
        return number

    def end(self, params: dict[str, Any]) -> None:
        """See opd.probes.jobs.Keeper."""
        self._do("probe_end", params)

    def judge(self, params: dict[str, Any]) -> None:
        """See opd.probes.jobs.Keeper."""
        self._do("probe_judge", params)

    def close(self) -> None:
        """Close the store."""
        self._connection.close()

    def _do(self, what: str, params: dict[str, Any]) -> dict[str, Any]:
        try:
            with transaction(self._connection):
                return carry_out(Place(self._connection, 0), os.urandom(8).hex(), what, params)
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: the run is not kept: {error}") from error
