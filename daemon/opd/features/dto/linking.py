"""Two builds in one library: their symbols renamed, their places drawn anew for each layout.

Where a function lies changes what it costs: two copies of the same object, put
elsewhere, differ by up to 1.5 % at 256 bytes, and a short loop by half. So they are
measured over several layouts: in each the builds change places and are moved by
paddings (opd.features.dto.alignment).
"""

from __future__ import annotations

import random
import shutil
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from opd.errors import OperationFailedError
from opd.features.dto.alignment import LINE, place_of
from opd.features.dto.libraries import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from opd.features.dto.libraries import Library

FUNCTIONS = ("memcpy", "memmove", "memset", "memcmp")
_SECONDS = 120.0
# Steps that loops and branch targets are sensitive to; pages beyond that do not matter.
_LINES = 256
_DATA_STEP, _DATA_STEPS = 64, 64


class Side(NamedTuple):
    """One of the builds: what its symbols begin with, and its objects."""

    prefix: str
    library: Library


def missing_tools() -> list[str]:
    """Programs that linking needs and that are not here."""
    missing = [name for name in ("objcopy", "as") if shutil.which(name) is None]
    if shutil.which("cc") is None and shutil.which("ld") is None:
        missing.append("ld")
    return missing


class Linker:
    """Makes layouts of the same one or two builds. ``directory`` is this process's alone."""

    def __init__(self, sides: Sequence[Side], directory: Path, link: Sequence[str] = ()) -> None:
        """``link``: further words for the linker, such as -lm. Raises OperationFailedError."""
        if missing := missing_tools():
            raise OperationFailedError(
                f"objects cannot be linked: {' and '.join(missing)} not installed",
                hint="install binutils, or give shared libraries",
            )
        self._sides = sides
        self._directory = directory
        self._link = list(link)
        self._objects = [self._renamed(side) for side in sides]

    def _renamed(self, side: Side) -> Path:
        """The build with all that it defines renamed, and what it uses of that."""
        names = self._directory / f"{side.prefix}names"
        lines = [f"{name} {side.prefix}{name}\n" for name in sorted(side.library.functions)]
        names.write_text("".join(lines), encoding="utf-8")
        suffix = "a" if side.library.kind is Kind.ARCHIVE else "o"
        target = self._directory / f"{side.prefix}build.{suffix}"
        self._run("objcopy", f"--redefine-syms={names}", side.library.path, str(target))
        return target

    def layout(self, seed: int) -> Path:
        """A shared library with all builds, laid out by ``seed``; ``table(prefix)`` in each."""
        draw = random.Random(seed)  # noqa: S311 - no secret
        parts: list[str] = []
        order = list(zip(self._sides, self._objects, strict=True))
        draw.shuffle(order)
        for number, (side, build) in enumerate(order):
            source = self._directory / f"{side.prefix}{seed}.s"
            source.write_text(_padding(draw, side, place_of(seed)), encoding="utf-8")
            padding = self._directory / f"pad{number}.o"
            self._run("as", "-o", str(padding), str(source))
            parts += [str(padding), "-Wl,--whole-archive", str(build), "-Wl,--no-whole-archive"]
        target = self._directory / f"layout{seed}.so"
        flags = ["-Bsymbolic", "-z now", "-z noexecstack", "--no-undefined", "--build-id=none"]
        compiler = shutil.which("cc")
        if compiler is not None:
            words = [compiler, "-shared", *(f"-Wl,{flag.replace(' ', ',')}" for flag in flags)]
        else:
            words = ["ld", "-shared", *" ".join(flags).split()]
            parts = [part.removeprefix("-Wl,") for part in parts]
        # Without a compiler nobody adds libc, in which all undefined names are.
        libraries = [*self._link, "-ldl", "-lpthread", "-lc"]
        self._run(*words, "-o", str(target), *parts, *libraries)
        return target

    def _run(self, *words: str) -> None:
        try:
            done = subprocess.run(
                words,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                text=True,
                errors="replace",
                check=False,
                timeout=_SECONDS,
                cwd=self._directory,
            )
        except subprocess.TimeoutExpired as error:
            raise OperationFailedError(f"{words[0]} took longer than {_SECONDS:g} s") from error
        if done.returncode:
            raise OperationFailedError(
                f"the builds cannot be linked into one library: {_words_of(done.stderr)}",
                hint=_hint(done.stderr),
            )


def table(prefix: str) -> str:
    """The name of the table of a build's four functions, in the order of FUNCTIONS."""
    return f"opd_{prefix}table"


def _padding(draw: random.Random, side: Side, place: int) -> str:
    """Assembler of what goes before a build: room in each section, and its table.

    ``place``: bytes into a line of the cache at which its code begins.
    """
    text = draw.randrange(_LINES) * LINE + place
    data, zero = (draw.randrange(_DATA_STEPS) * _DATA_STEP for _ in range(2))
    cells = [f"{side.prefix}{name}" for name in FUNCTIONS]
    return "\n".join(
        [
            ".text",
            f".balign {LINE}, 0xcc",
            f".skip {text}, 0xcc",
            ".data",
            f".skip {data}",
            ".bss",
            f".skip {zero}",
            '.section .data.rel.ro,"aw"',
            ".balign 8",
            f".globl {table(side.prefix)}",
            f"{table(side.prefix)}:",
            *(f".weak {cell}\n.quad {cell}" for cell in cells),
            '.section .note.GNU-stack,""',
            "",
        ]
    )


def _words_of(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "\n".join(["", *(f"  | {line}" for line in lines[-12:])]) if lines else "no reason given"


def _hint(text: str) -> str | None:
    if "undefined reference" in text or "undefined symbol" in text:
        return "name the libraries that it needs: link=-lNAME"
    if "-fPIC" in text or "relocation" in text:
        return "build the objects with -fPIC, or give a shared library as the artifact"
    return None
