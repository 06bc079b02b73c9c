"""Renders etc/opd/opd.toml from the structs: ``python -m opd.config.reference``."""

from __future__ import annotations

import json
import sys
import textwrap
from typing import Any, get_args, get_type_hints

from msgspec.structs import fields

from opd.config.settings import SECTIONS

_HEAD = """\
# Settings of opd. Every option stands here at its default, commented out.
# Files in conf.d/ beside this one are read after it, in the order of their names;
# later wins, key by key, and flags win over files. Check with: opd --check-config
"""
_TAIL = """
# Extended features that run have a table each, as with --ext-feature. What there is, and
# the options of each: opd --list-features.
# [feature.NAME]
"""


def render() -> str:
    """The whole file, as it is shipped."""
    parts = [_HEAD]
    for section, struct in SECTIONS.items():
        title = (struct.__doc__ or "").splitlines()[0]
        parts.append(f"\n# {title}\n[{section}]\n")
        hints = get_type_hints(struct, include_extras=True)
        for field in fields(struct):
            meta = get_args(hints[field.name])[1]
            words = textwrap.wrap(
                meta.description, width=94, break_long_words=False, break_on_hyphens=False
            )
            parts += [f"\n# {line}\n" for line in words[:1]]
            parts += [f"# {line}\n" for line in words[1:]]
            parts.append(f"#{field.name} = {_toml(field.default)}\n")
    return "".join([*parts, _TAIL])


def _toml(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value)


if __name__ == "__main__":
    sys.stdout.write(render())
