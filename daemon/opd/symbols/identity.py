"""What makes an image the same image on every host and in every year."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opd.sampling.window import ImageInfo


def canonical(info: ImageInfo, build_id: str = "", kernel: str = "") -> str:
    """Give the string whose hash is the image's identity.

    ``build_id`` (hex) is what was read from the file when ``info`` has none;
    ``kernel`` is the kernel's build-id, else its release.
    """
    if info.kind == "kernel":
        return f"kernel:{kernel}"
    if info.kind == "bpf":
        return f"bpf:{info.symbol}"
    if info.kind == "feature":
        return f"feature:{info.path}:{info.symbol}"
    found = info.build_id or build_id
    if found:
        return f"build-id:{found}"
    if info.kind == "file":
        numbers = f"{info.dev_major}:{info.dev_minor}:{info.inode}:{info.inode_generation}"
        return f"inode:{numbers}:{info.path}"
    return info.path


def identity(text: str) -> bytes:
    """Give the 16-byte identity of a canonical string."""
    from opd_native.identity import identity_of

    return identity_of(os.fsencode(text))
