"""The lines of events files, and what is wrong with them: file, line, reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opd.config.nearest import did_you_mean
from opd.config.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

FILE_BYTES_MOST = 1 << 20
LINE_MOST = 4096
PROBLEMS_MOST = 50
INCLUDE = "include:"


class Problems:
    """What is wrong in events files, each once; told together."""

    def __init__(self) -> None:
        self.found: list[Problem] = []
        self.left_out = 0

    def add(self, place: str, reason: str) -> None:
        """``place`` is FILE or FILE:LINE."""
        if len(self.found) >= PROBLEMS_MOST:
            self.left_out += 1
        else:
            self.found.append(Problem(place, "", reason))

    def all(self) -> list[Problem]:
        """All that are told."""
        if not self.left_out:
            return self.found
        return [*self.found, Problem("", "", f"and {self.left_out} more mistakes in events files")]


class Line:
    """One line that says something."""

    def __init__(self, file: str, number: int, text: str, problems: Problems) -> None:
        self.file, self.number, self.text = file, number, text
        self._problems = problems

    @property
    def place(self) -> str:
        """FILE:LINE."""
        return f"{self.file}:{self.number}"

    @property
    def indented(self) -> bool:
        """Whether it belongs to a line above."""
        return self.text[0] in " \t"

    def refuse(self, reason: str) -> None:
        """Say what is wrong here."""
        self._problems.add(self.place, reason)

    def tags(self, known: Collection[str], *, described: bool) -> dict[str, str] | None:
        """``tag:value`` pairs; with ``described``, the text behind `` : `` is the tag "".

        None when the line is no such list: then it has been refused.
        """
        tags: dict[str, str] = {}
        rest = self.text.strip()
        while rest:
            if rest[0] == ":" and described:
                tags[""] = rest[1:].strip()
                break
            word, *behind = rest.split(None, 1)
            reason = _wrong_tag(word, tags, known)
            if reason:
                self.refuse(reason)
                return None
            tag, _, tags[tag] = word.partition(":")
            rest = behind[0] if behind else ""
        return tags


def _wrong_tag(word: str, tags: dict[str, str], known: Collection[str]) -> str:
    """Why a word is no tag with its value, or ""."""
    tag, colon, value = word.partition(":")
    if not colon:
        return f"expected tag:value, {word[:40]!r} has no colon"
    if not tag:
        return f"trailing text {word[:40]!r}"
    if tag not in known:
        near = did_you_mean(tag, known)
        return f"unknown tag {tag[:40]!r}{near}; expected {', '.join(sorted(known))}"
    if tag in tags:
        return f"tag {tag!r} is there twice"
    return "" if value else f"{tag}: nothing behind it"


def read_lines(path: Path, problems: Problems) -> list[Line]:
    """The lines of a file but for comments and blank ones; a file that cannot be read has none."""
    try:
        if not path.is_file():
            problems.add(f"{path}", "there is no such file" if not path.exists() else "is no file")
            return []
        with path.open("rb") as stream:
            content = stream.read(FILE_BYTES_MOST + 1)
        if len(content) > FILE_BYTES_MOST:
            problems.add(f"{path}", "larger than 1 MiB")
            return []
        text = content.decode()
    except OSError as error:
        problems.add(f"{path}", f"cannot read it: {error.strerror}")
        return []
    except UnicodeDecodeError as error:
        problems.add(f"{path}", f"expected UTF-8, byte {error.start} is not")
        return []
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip()[0] == "#":
            continue
        if len(line) > LINE_MOST:
            problems.add(f"{path}:{number}", f"longer than {LINE_MOST} characters")
            continue
        lines.append(Line(f"{path}", number, line, problems))
    return lines


def split_includes(lines: Sequence[Line]) -> tuple[list[tuple[Line, str]], list[Line]]:
    """``(includes, the rest)``: the CPU type that each ``include:`` names, and other lines.

    An include stands alone on its line, but for a comment.
    """
    includes: list[tuple[Line, str]] = []
    rest: list[Line] = []
    for line in lines:
        stripped = line.text.strip()
        if INCLUDE not in stripped.partition("#")[0].partition(" : ")[0]:
            rest.append(line)
            continue
        if not stripped.startswith(INCLUDE):
            line.refuse(f"include: stands alone on its line, {stripped[:40]!r} is before it")
            continue
        name, _, behind = stripped.removeprefix(INCLUDE).strip().partition(" ")
        if behind.strip() and behind.strip()[0] != "#":
            line.refuse(f"include: stands alone on its line, {behind.strip()[:40]!r} is behind it")
        elif not name:
            line.refuse("include: expected a CPU type behind it")
        else:
            includes.append((line, name))
    return includes, rest
