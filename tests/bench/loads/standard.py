"""The standard load: short programs at a steady rate, and an interpreter at half a CPU.

usage: standard.py EXECS_PER_SECOND [COUNT_FILE]

Runs until it is killed. COUNT_FILE gets the number of programs started so far.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from mixed import deep

PROGRAMS = (
    ["/bin/true"],
    ["/bin/ls", "/usr/bin"],
    ["/bin/sh", "-c", "true; test -d /usr"],
    ["/bin/grep", "-c", "e", "/etc/services"],
    ["/usr/bin/sort", "/etc/services"],
    ["/usr/bin/awk", "{ n += length($0) } END { print n }", "/etc/services"],
)
SLICE_S = 0.02


def interpret() -> None:
    """Compute for half of the time, in slices."""
    turn = 0
    while True:
        busy = time.monotonic() + SLICE_S
        while time.monotonic() < busy:
            deep(turn % 20)
            sorted(str(i) for i in range(200))
            turn += 1
        time.sleep(SLICE_S)


def spawn(rate: float, count: Path | None) -> None:
    """Start programs at the rate; what the machine could not do is not made up for."""
    programs = [words for words in PROGRAMS if Path(words[0]).exists()]
    nothing = os.open(os.devnull, os.O_WRONLY)
    to_nothing = [(os.POSIX_SPAWN_DUP2, nothing, 1), (os.POSIX_SPAWN_DUP2, nothing, 2)]
    due = time.monotonic()
    turn = 0
    while True:
        words = programs[turn % len(programs)]
        pid = os.posix_spawn(words[0], words, os.environ, file_actions=to_nothing)
        os.waitpid(pid, 0)
        turn += 1
        if count is not None and turn % int(rate) == 0:
            count.write_text(str(turn), encoding="ascii")
        due = max(due + 1 / rate, time.monotonic() - 1)
        time.sleep(max(0.0, due - time.monotonic()))


def main() -> None:
    """Two processes for ever."""
    rate = float(sys.argv[1])
    count = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    if os.fork():
        interpret()
    else:
        spawn(rate, count)


if __name__ == "__main__":
    main()
