"""What a client adds to a probe's run: paths made whole, and files of its results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opd.cli import output
from opd.errors import ConfigError, UnknownNameError, UsageError
from opd.features.arguments import escape, parse_pairs, split, unescape

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = "results_dir"


def local_words(options: str) -> tuple[str, str]:
    """Options as the daemon is to have them, and the directory of ``results_dir``.

    A value or an item of a list that is ``.`` or begins with ``./`` or ``../`` is a
    path from where the client is. Raises UsageError.
    """
    directory = ""
    words = []
    try:
        for one in parse_pairs(options, "probe"):
            if one.key == RESULTS:
                directory = os.path.abspath(unescape(one.text))  # noqa: PTH100 - no links followed
                continue
            items = [_whole(item) for item in split(one.text, "+", one.where)]
            words.append(f"{one.key}={'+'.join(items)}")
    except ConfigError as error:
        # Of opd's settings it would be 78; these are words of a command.
        raise UsageError(error.message, hint=error.hint) from error
    return ",".join(words), directory


def _whole(item: str) -> str:
    text = unescape(item)
    if text in (".", "..") or text.startswith(("./", "../")):
        return escape(os.path.abspath(text))  # noqa: PTH100 - no links followed
    return item


def local_measure(text: str) -> str:
    """``PROBE:OPTIONS`` with paths made whole; a number of a run as it is."""
    probe, colon, options = text.partition(":")
    return f"{probe}:{local_words(options)[0]}" if colon else text


def own_pictures(one: dict[str, Any], columns: Sequence[dict[str, Any]]) -> list[Any]:
    """The pictures that the run's probe draws itself; none of a probe that is not here."""
    from opd.features.registry import Registry
    from opd.probes.plan import find_probe

    try:
        draw = find_probe(Registry(), one["probe"]).pictures
    except UnknownNameError:
        return []
    by_name = {(column["metric"], column["worker"]): column["values"] for column in columns}
    return draw(one, by_name) if draw is not None and not one["void"] else []


def make_place(name: str, directory: str) -> None:
    """Make the directory of files, before anything is measured. Raises UsageError: it cannot be."""
    from opd.features.registry import Registry
    from opd.probes.plan import find_probe

    if find_probe(Registry(), name).files is None:
        raise UsageError(f"{RESULTS}={directory}: probe {name} writes no files")
    try:
        os.makedirs(directory, exist_ok=True)  # noqa: PTH103 - no links followed
    except OSError as error:
        raise UsageError(f"{RESULTS}={directory}: {error.strerror}") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UsageError(f"{RESULTS}={directory}: this user may not write there")


def write(results: Sequence[dict[str, Any]], directory: str, source: Any) -> None:
    """Have the probe write its files, as this user. Raises OpdError."""
    from opd.features.registry import Registry
    from opd.probes.plan import find_probe

    if not results:
        return
    probe = find_probe(Registry(), results[0]["probe"])
    assert probe.files is not None  # noqa: S101 - make_place saw to it

    def samples(one: dict[str, Any]) -> dict[tuple[str, int], Sequence[float]]:
        from array import array

        answer = source.call("probe_show", {"id": one["id"], "samples": True})
        return {
            (column["metric"], column["worker"]): array("d", column["values"])
            for column in answer["samples"]
        }

    probe.files(
        list(results),
        samples,
        Path(directory),
        lambda words: output.complain(output.clean(words)),
    )
