"""What binutils and the kernel say of symbols: the judge of which names are aliases."""

from __future__ import annotations

import collections
import re
import subprocess
from pathlib import Path


def addresses(path):
    """Every value of each name in the symbol tables of a file, or of the kernel."""
    values = collections.defaultdict(set)
    if path == "[kernel]":
        for line in Path("/proc/kallsyms").read_text().splitlines():
            address, _, name = line.split()[:3]
            values[name].add(int(address, 16))
        return values
    files = [path]
    notes = subprocess.run(["readelf", "-n", path], capture_output=True, text=True, check=False)
    if found := re.search(r"Build ID: ([0-9a-f]+)", notes.stdout):
        files.append(f"/usr/lib/debug/.build-id/{found[1][:2]}/{found[1][2:]}.debug")
    for file in files:
        table = subprocess.run(
            ["readelf", "-Ws", file], capture_output=True, text=True, check=False
        ).stdout
        for line in table.splitlines():
            cells = line.split()
            if len(cells) == 8 and cells[3] in ("FUNC", "NOTYPE", "IFUNC"):
                values[cells[7].split("@")[0]].add(int(cells[1], 16))
    return values
