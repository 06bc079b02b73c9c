"""opd: a continuous, system-wide profiling daemon for Linux."""

from opd._version import __version__

__all__ = ["__version__"]
