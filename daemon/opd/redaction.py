"""Takes out of paths and text what says who somebody is, and keeps what a profile needs."""

from __future__ import annotations

import re
from typing import Literal

Redact = Literal["none", "home", "paths"]
REDACTED = "[redacted]"

# NAME in a directory called home: /home/NAME, /var/home/NAME, /export/home/NAME.
_HOME = re.compile(r"(/(?:[\w.+-]+/)*home/)([^/\s\"'\\:,;)\]}]+)")
# Where systems keep programs: their paths say what runs, not whose it is.
_SYSTEM = (
    *("/bin/", "/sbin/", "/lib/", "/lib32/", "/lib64/", "/libx32/", "/usr/", "/opt/"),
    *("/nix/store/", "/gnu/store/", "/snap/", "/var/lib/", "/run/current-system/"),
)


def redact_path(path: str, how: Redact) -> str:
    """The path of an image as it may be kept; names such as ``[kernel]`` stay.

    ``home``: the name of whose home it lies in is taken out. ``paths``: of
    what lies outside of the system's directories only the file's name stays.
    """
    if how == "none" or not path.startswith("/"):
        return path
    if how == "home" or path.startswith(_SYSTEM):
        return redact_homes(path)
    name = path.rstrip("/").rpartition("/")[2]
    return f"/{REDACTED}/{name}"


def redact_homes(text: str) -> str:
    """Text without the names of those in whose homes something lies."""
    return _HOME.sub(rf"\1{REDACTED}", text)


def redact_host(text: str, host: str) -> str:
    """Text without the name of this host, also where it stands without its domain."""
    for name in dict.fromkeys((host, host.partition(".")[0])):
        # A name of a letter or two is in every other word.
        if len(name) > 2 and name != "localhost":
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "[host]", text)
    return text
