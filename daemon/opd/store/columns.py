"""The sample-file columns of a window as arrays, and every column's length checked."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from opd.errors import StoreError

if TYPE_CHECKING:
    from opd.sampling.window import Window

COMM_BYTES = 16

# Column, bytes of a number, and what its count is.
_LENGTHS = (
    ("row_sfile", 4, "rows"),
    ("row_stack", 4, "rows"),
    ("row_hits", 8, "rows"),
    ("row_weight", 8, "rows"),
    ("sfile_event", 2, "sfiles"),
    ("sfile_mode", 1, "sfiles"),
    ("sfile_tgid", 4, "sfiles"),
    ("sfile_tid", 4, "sfiles"),
    ("sfile_cpu", 4, "sfiles"),
    ("sfile_image", 4, "sfiles"),
    ("sfile_comm", COMM_BYTES, "sfiles"),
    ("stack_flags", 1, "stacks"),
)


class SampleFiles(NamedTuple):
    """See opd.sampling.window.Window."""

    event: array[int]
    mode: array[int]
    tgid: array[int]
    tid: array[int]
    cpu: array[int]
    image: array[int]
    cgroup: array[int]


def read_sample_files(window: Window) -> SampleFiles:
    """The sample files of a window. StoreError names a column of the wrong length."""
    for name, size, counted in _LENGTHS:
        _check(window, name, size * getattr(window, counted))
    if window.sfile_cgroup:
        _check(window, "sfile_cgroup", 4 * window.sfiles)
    _check(window, "stack_start", 4 * (window.stacks + 1))
    _check(window, "frame_address", len(window.frame_image) * 2)
    return SampleFiles(
        event=array("H", window.sfile_event),
        mode=array("B", window.sfile_mode),
        tgid=array("i", window.sfile_tgid),
        tid=array("i", window.sfile_tid),
        cpu=array("i", window.sfile_cpu),
        image=array("I", window.sfile_image),
        cgroup=array("I", window.sfile_cgroup or bytes(4 * window.sfiles)),
    )


def _check(window: Window, name: str, expected: int) -> None:
    have = len(getattr(window, name))
    if have != expected:
        raise StoreError(f"invalid window: {name} has {have} bytes, not {expected}")
