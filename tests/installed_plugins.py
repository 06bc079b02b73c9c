"""Plugins as pip leaves them: a module and its entry points in a folder on PYTHONPATH."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

PLUGINS = Path(__file__).parent / "integration" / "plugins"


def lay_out(folder, package, points, module=None):
    """Make ``folder`` what an installed ``package`` looks like; the environment to find it.

    ``points``: value by name of the entry point. ``module``: a file to copy.
    """
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[opd.plugins]", *lines, ""]))
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    if module is not None:
        shutil.copy(module, folder)
    return {**os.environ, "PYTHONPATH": str(folder)}
