"""A mixed load for SECONDS: an interpreter with deep stacks, and programs that live a moment."""

from __future__ import annotations

import os
import subprocess
import sys
import time


def deep(depth: int) -> int:
    """Recurse, then compute: a chain of interpreter frames on every sample."""
    if depth:
        return deep(depth - 1)
    return sum(i * i % 7 for i in range(300))


def interpret(until: float) -> None:
    """Compute at changing depths until then."""
    turn = 0
    while time.monotonic() < until:
        deep(turn % 20)
        sorted(str(i) for i in range(200))
        turn += 1


def spawn(until: float) -> None:
    """Run short programs until then."""
    while time.monotonic() < until:
        subprocess.run(["/bin/sh", "-c", "true; ls /usr/bin >/dev/null"], check=False)
        interpret(time.monotonic() + 0.05)


def main() -> None:
    """Keep two processes busy, one on each of two CPUs where there are two."""
    until = time.monotonic() + float(sys.argv[1])
    child = os.fork()
    (interpret if child else spawn)(until)
    if child:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
