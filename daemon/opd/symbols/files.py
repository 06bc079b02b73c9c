"""Files of images: kept open, and never another file than the one that ran."""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from typing import TYPE_CHECKING

from opd_native.elf import Elf
from opd_native.errors import NativeError

if TYPE_CHECKING:
    from opd.sampling.window import ImageInfo

OPEN_FILES = 512


class ImageFileError(Exception):
    """The file that ran cannot be had any more; ``reason`` is the counter's name."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ImageFiles:
    """Open files by image number, the least recently used closed first.

    ``trust_inodes`` is false when the images were seen on another machine,
    where a device and an inode number say nothing about our files.
    """

    def __init__(self, *, limit: int = OPEN_FILES, trust_inodes: bool = True) -> None:
        self._limit = limit
        self._trust_inodes = trust_inodes
        self._fds: OrderedDict[int, int] = OrderedDict()

    def close(self) -> None:
        """Close all."""
        while self._fds:
            os.close(self._fds.popitem()[1])

    def give(self, uid: int, fd: int) -> None:
        """Take over an open file."""
        old = self._fds.pop(uid, None)
        if old is not None:
            os.close(old)
        self._fds[uid] = fd
        while len(self._fds) > self._limit:
            os.close(self._fds.popitem(last=False)[1])

    def open_elf(self, info: ImageInfo) -> Elf:
        """Open the image's file and make sure that it is the one that was mapped.

        Raises ImageFileError: ``image_gone``, ``image_replaced`` or ``image_not_elf``.
        """
        fd = self._fds.get(info.uid)
        if fd is not None:
            self._fds.move_to_end(info.uid)
            return self._verified(info, fd, given=True)
        try:
            # Whatever lies at the path now: do not wait for a FIFO's writer.
            fd = os.open(info.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except (OSError, ValueError):
            raise ImageFileError("image_gone") from None
        try:
            return self._verified(info, fd, given=False)
        finally:
            os.close(fd)

    def _verified(self, info: ImageInfo, fd: int, *, given: bool) -> Elf:
        try:
            elf = Elf(fd)
        except NativeError as error:
            if error.errno in (errno.ENOEXEC, errno.ENOTSUP, errno.E2BIG):
                raise ImageFileError("image_not_elf") from None
            raise ImageFileError("image_gone") from None
        if not self._same(info, fd, elf, given=given):
            elf.close()
            raise ImageFileError("image_replaced")
        return elf

    def _same(self, info: ImageInfo, fd: int, elf: Elf, *, given: bool) -> bool:
        if info.build_id:
            return _same_build_id(info.build_id, elf.build_id)
        status = os.fstat(fd)
        if given:
            # Opened by who saw the mapping. Overlay and btrfs mappings carry
            # another device number than stat does, so only the inode counts.
            return info.inode in (0, status.st_ino)
        device = (os.major(status.st_dev), os.minor(status.st_dev))
        return (
            self._trust_inodes
            and info.inode != 0
            and info.inode == status.st_ino
            and (info.dev_major, info.dev_minor) == device
        )


def _same_build_id(told: str, found: str) -> bool:
    """The kernel tells at most 20 bytes, and pads shorter ids with zeros in old files."""
    if not found:
        return False
    found = found[:40]
    return told == found or (len(told) == 40 and told == found.ljust(40, "0"))


def open_debug_file(root: str, build_id: str) -> Elf | None:
    """Open the build-id's debug file under ``root``; None when there is none that fits."""
    if len(build_id) < 4:
        return None
    path = f"{root}/.build-id/{build_id[:2]}/{build_id[2:]}.debug"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return None
    try:
        elf = Elf(fd)
    except NativeError:
        return None
    finally:
        os.close(fd)
    if elf.build_id == build_id:
        return elf
    elf.close()
    return None
