"""Builds C programs of the benchmarks over the core's sources."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
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
    sources = [path for folder, glob in places for path in sorted((ROOT / folder).glob(glob))]
    with tempfile.TemporaryDirectory(prefix="opd-bench-") as folder, ThreadPoolExecutor() as pool:
        objects = [str(Path(folder) / f"{path.stem}.o") for path in sources]
        compile_ = ["-O2", "-g", "-std=gnu11", "-D_GNU_SOURCE", *WARNINGS]
        compile_ += ["-Inative/include", "-Inative/src", "-c"]
        commands = [
            [*compile_, str(source), "-o", made]
            for source, made in zip(sources, objects, strict=True)
        ]
        list(pool.map(lambda command: _cc(program, command), commands))
        _cc(program, [*objects, "-pthread", "-ldl", "-lm", "-o", str(target)])
    return target


def _cc(program: str, arguments: list[str]) -> None:
    done = subprocess.run(["cc", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{program}: cannot be compiled:\n{done.stderr}")


@contextlib.contextmanager
def built(program: str, *core: str) -> Iterator[Path]:
    """Give a program that is compiled for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="opd-bench-") as directory:
        yield build(program, Path(directory) / program, core or ("*",))
