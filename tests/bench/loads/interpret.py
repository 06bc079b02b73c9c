"""An interpreter with deep stacks, CPU-bound, until it is killed."""

from __future__ import annotations

from mixed import interpret

if __name__ == "__main__":
    interpret(float("inf"))
