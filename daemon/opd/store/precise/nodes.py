"""Which NUMA node a physical address is of: /sys/devices/system/node and .../memory."""

from __future__ import annotations

from pathlib import Path
from typing import Self

SYSFS = "/sys/devices/system"
UNKNOWN = -1


class Nodes:
    """The nodes of this machine, as they are now."""

    def __init__(self, blocks: dict[int, int], block_bytes: int) -> None:
        """``blocks``: node by number of the memory block."""
        self._blocks = blocks
        self._block_bytes = block_bytes

    @classmethod
    def read(cls, root: str = SYSFS) -> Self:
        """Read them; without blocks of memory (none may be removed here) one node has it all."""
        nodes = sorted(Path(root, "node").glob("node[0-9]*"))
        try:
            size = int(Path(root, "memory/block_size_bytes").read_text(encoding="ascii"), 16)
        except (OSError, ValueError):
            size = 0
        blocks = {
            int(block.name.removeprefix("memory")): int(node.name.removeprefix("node"))
            for node in nodes
            for block in node.glob("memory[0-9]*")
        }
        if blocks and size > 0:
            return cls(blocks, size)
        if len(nodes) == 1:
            return cls({0: int(nodes[0].name.removeprefix("node"))}, 1 << 64)
        return cls({}, 1)

    def of(self, physical: int) -> int:
        """The node of an address, UNKNOWN where none of its memory is there."""
        return self._blocks.get(physical // self._block_bytes, UNKNOWN)
