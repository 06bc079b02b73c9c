"""The four modes: what a library that offloads is told, and what offloading needs."""

from __future__ import annotations

from pathlib import Path

from opd.errors import OperationFailedError

# Sizes are measured from 4 KiB on, so offload begins there.
_OFFLOAD = {"DTO_USESTDC_CALLS": "0", "DTO_MIN_BYTES": "4096", "DTO_CPU_SIZE_FRACTION": "0"}
ENVIRONMENT = {
    "cpu": {},
    "stdc": {"DTO_USESTDC_CALLS": "1"},
    "dsa": {**_OFFLOAD, "DTO_AUTO_ADJUST_KNOBS": "0"},
    "dsa_auto": {**_OFFLOAD, "DTO_AUTO_ADJUST_KNOBS": "1"},
}
_BUS = Path("/sys/bus/dsa/devices")


def check_mode(mode: str, bus: Path = _BUS) -> None:
    """OperationFailedError says what offloading lacks here."""
    if mode in ("dsa", "dsa_auto") and not bus.is_dir():
        raise OperationFailedError(
            f"mode={mode}: unavailable: {bus} is not there",
            hint="needs a DSA device and the kernel's module idxd",
        )
