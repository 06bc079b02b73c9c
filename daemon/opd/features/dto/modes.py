"""The four modes: what a library that offloads is told. libc and our own kernels: dsa.py."""

from __future__ import annotations

# Sizes are measured from 4 KiB on, so offload begins there.
_OFFLOAD = {"DTO_USESTDC_CALLS": "0", "DTO_MIN_BYTES": "4096", "DTO_CPU_SIZE_FRACTION": "0"}
ENVIRONMENT = {
    "cpu": {},
    "stdc": {"DTO_USESTDC_CALLS": "1"},
    "dsa": {**_OFFLOAD, "DTO_AUTO_ADJUST_KNOBS": "0"},
    "dsa_auto": {**_OFFLOAD, "DTO_AUTO_ADJUST_KNOBS": "1"},
}
