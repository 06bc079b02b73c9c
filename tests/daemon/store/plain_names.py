"""A small NameSource for tests: it names addresses by their image and page."""

from __future__ import annotations

import os
from array import array
from typing import NamedTuple

from opd_native.identity import identity_of


class PlainName(NamedTuple):
    """What a name source answers."""

    text: str
    raw: str
    kind: str


class PlainNames:
    """Symbols are 64 bytes long and called after their image; [anon] has none."""

    def __init__(self, run):
        self.run = run
        self.images = {}
        self.files = {}

    def add_image(self, info, fd):
        """Keep the image; read the file, whose first bytes tell it from another."""
        self.images[info.uid] = info
        if fd is not None:
            self.files[info.uid] = os.pread(fd, 64, 0)
            os.close(fd)

    def image_identity(self, uid):
        """By build-id, else path."""
        info = self.images[uid]
        return identity_of(f"build-id:{info.build_id or info.path}".encode(errors="replace"))

    def elf_addresses(self, uid, offsets):
        """A file's addresses begin a page later than its offsets."""
        more = 0x1000 if self.images[uid].kind == "file" else 0
        return array("Q", [offset + more for offset in offsets])

    def name_runs(self, uid, elf_addresses, *, caller):
        """One name for each 64 bytes; the last byte of one belongs to a call before it."""
        info = self.images[uid]
        answers = []
        for address in elf_addresses:
            slot = (address - caller) >> 6
            if info.kind == "anon":
                answers.append(PlainName("[unknown]", "[unknown]", "unknown"))
            elif slot % 7 == 3:
                text = f"{info.path}!0x{slot << 6:x}"
                answers.append(PlainName(text, text, "range"))
            else:
                base = info.path.rsplit("/", 1)[-1]
                answers.append(PlainName(f"{base}::f{slot}", f"_Z{base}f{slot}", "symbol"))
        return answers, range(len(answers))


class BrokenNames(PlainNames):
    """Fails as a reader of a hostile file would."""

    def name_runs(self, uid, elf_addresses, *, caller):  # noqa: ARG002
        """Always raises."""
        raise ValueError("hostile")


class CrashingNames(PlainNames):
    """Kills its process when it names an image called /crash."""

    def name_runs(self, uid, elf_addresses, *, caller):
        """Abort, or answer."""
        if self.images[uid].path == "/crash":
            os.abort()
        return super().name_runs(uid, elf_addresses, caller=caller)
