"""Builds C programs of the benchmarks over the core's sources."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wno-unused-parameter")


def build(program: str, target: Path, core: tuple[str, ...] = ("*",)) -> Path:
    """Compile ``tests/bench/PROGRAM*.c`` with those files of the core; its path.

    RuntimeError with the compiler's words when that fails.
    """
    places = [("native/src", f"{name}.c") for name in core] + [("tests/bench", f"{program}*.c")]
    sources = [str(path) for folder, glob in places for path in sorted((ROOT / folder).glob(glob))]
    command = ["cc", "-O2", "-g", "-std=gnu11", "-D_GNU_SOURCE", *WARNINGS]
    command += ["-Inative/include", "-Inative/src", *sources]
    done = subprocess.run(
        [*command, "-pthread", "-ldl", "-lm", "-o", str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{program}: cannot be compiled:\n{done.stderr}")
    return target


@contextlib.contextmanager
def built(program: str, *core: str) -> Iterator[Path]:
    """Give a program that is compiled for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="opd-bench-") as directory:
        yield build(program, Path(directory) / program, core or ("*",))
