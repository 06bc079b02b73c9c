"""Every hook of a plugin: typed, its contract written, in the manual, and tested."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

from opd.features import hookspecs
from opd.features.plugins import Plugin

ROOT = Path(__file__).parents[2]
MANUAL = (ROOT / "docs" / "plugins.md").read_text()
SKELETON = ROOT / "plugins" / "opd_plugins" / "skeleton" / "__init__.py"
PARTS = ("When:", "Arguments:", "Returns:", "Thread:", "May block:", "If it raises:")
TESTS = [
    ROOT / "tests" / "daemon" / "features" / "inline_plugin.py",
    ROOT / "tests" / "integration" / "plugins" / "misbehaving.py",
]


def specs():
    """The functions with pluggy's mark, by name."""
    return {
        name: value
        for name, value in vars(hookspecs).items()
        if inspect.isfunction(value) and hasattr(value, f"{hookspecs.PROJECT}_spec")
    }


def test_the_list_of_hooks_is_complete():
    """Nothing is specified that HOOKS does not have."""
    assert tuple(specs()) == hookspecs.HOOKS


@pytest.mark.parametrize("hook", hookspecs.HOOKS)
def test_a_hook_says_its_whole_contract(hook):
    """When, arguments, result, thread, may it block, what if it raises; all of it typed."""
    spec = specs()[hook]
    text = inspect.getdoc(spec)
    assert [part for part in PARTS if part not in text] == []
    signature = inspect.signature(spec)
    assert signature.return_annotation is not inspect.Signature.empty
    for parameter in signature.parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty, parameter


@pytest.mark.parametrize("hook", hookspecs.HOOKS)
def test_a_hook_is_in_the_manual_with_its_arguments(hook):
    """The table has the call as it is."""
    arguments = ", ".join(inspect.signature(specs()[hook]).parameters)
    assert f"| `{hook}({arguments})` |" in MANUAL


@pytest.mark.parametrize("hook", hookspecs.HOOKS)
def test_a_hook_is_called_and_tested(hook):
    """By the facade; in the tests of order and of bad plugins; in the skeleton."""
    method = hook.removeprefix("opd_").removeprefix("ext_")
    assert hasattr(Plugin, "load" if method == "features" else method)
    for file in (*TESTS, SKELETON):
        defined = {
            node.name for node in ast.walk(ast.parse(file.read_text())) if hasattr(node, "name")
        }
        assert hook in defined, file


def test_every_setting_that_the_manual_names_is_one():
    """What it says of budgets stays true."""
    from opd.config.settings import DaemonSettings

    for key in re.findall(r"`daemon\.(\w+)`", MANUAL):
        assert key in DaemonSettings.__struct_fields__


def test_the_manual_shows_the_skeleton_as_it_is():
    """All of its code, in its order: what a reader copies is what is run."""
    blocks = re.findall(r"```python\n(.*?)```", MANUAL, re.DOTALL)
    shown = [line for block in blocks for line in block.splitlines() if line.strip()]
    real = [line for line in SKELETON.read_text().splitlines() if line.strip()]
    assert shown == real
