"""The command line of ``make bench``."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import pkgutil
import shlex
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import bench.sections
from bench.harness import machine, report_json, report_text
from bench.harness.budgets import judge
from bench.harness.section import Context, Outcome, Section

_EPILOG = """\
examples:
  make bench                                   all sections but the long ones
  make bench ARGS="--quick --html bench.html"
  make bench ARGS="cost --rates 999,4999 --repeat 5 --json cost.json"
  make bench ARGS="soak --minutes 60 --json soak.json"
  make bench ARGS="--join soak.json --join cost.json --html bench.html"   nothing is run
"""


def find_sections() -> dict[str, Section]:
    """Give the SECTION of every module of bench.sections, by name."""
    found = {}
    for module in pkgutil.iter_modules(bench.sections.__path__):
        section = importlib.import_module(f"bench.sections.{module.name}").SECTION
        found[section.name] = section
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make bench",
        description="Measures opd, and its peers where they are installed, on this machine.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("sections", nargs="*", metavar="SECTION", help="which; --list shows them")
    add("--list", action="store_true", help="show the sections")
    add("--quick", action="store_true", help="short runs, few repeats: does it work at all")
    add("--rates", type=_numbers, metavar="HZ,…", help="sampling rates")
    add("--repeat", type=_positive, metavar="N", help="repeats of what is compared")
    add("--count", type=_positive, metavar="N", help="how many comparisons: verdicts, dto")
    add("--minutes", type=float, metavar="M", help="length of soak and fullsize")
    add("--loads", type=_words, metavar="NAME,…", help="loads of cost; default: all")
    add("--contenders", type=_words, metavar="NAME,…", help="who takes part; default: all here")
    add(
        "--join",
        type=Path,
        action="append",
        metavar="FILE",
        default=[],
        help="show and judge the sections of an earlier run's JSON too; repeatable",
    )
    add("--json", type=Path, metavar="FILE", help="write the run, again after every step")
    add("--html", type=Path, metavar="FILE", help="write a page with plots")
    return parser


def _numbers(text: str) -> list[int]:
    return [_positive(word) for word in text.split(",")]


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def main(arguments: list[str]) -> int:
    """Run the sections asked for; 1 when one of them failed, 2 for a wrong command line."""
    options = _parser().parse_intermixed_args(arguments)
    sections = find_sections()
    if options.list:
        width = max(map(len, sections))
        for section in sections.values():
            when = "" if section.by_default else "  (only when named)"
            print(f"{section.name:{width}}  {section.purpose}{when}")
        return 0
    unknown = [name for name in options.sections if name not in sections]
    if unknown:
        print(f"no section {unknown[0]!r}; there are: {' '.join(sections)}", file=sys.stderr)
        return 2
    asked = options.sections
    if not asked and not options.join:
        asked = [section.name for section in sections.values() if section.by_default]
    if options.html is not None and importlib.util.find_spec("matplotlib") is None:
        print("--html needs matplotlib: pip install --group bench", file=sys.stderr)
        return 2
    return Run(options, [sections[name] for name in asked], arguments).run()


class Run:
    """One call of ``make bench``."""

    def __init__(
        self, options: argparse.Namespace, sections: list[Section], arguments: list[str]
    ) -> None:
        self._options = options
        self._sections = sections
        self._outcomes: list[Outcome] = []
        for path in options.join:
            self._outcomes += report_json.read(path)
        self._head: dict[str, Any] = {
            "command": shlex.join(["make", "bench", f"ARGS={shlex.join(arguments)}"]),
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "opd": _commit(),
            "machine": machine.facts(),
        }

    def run(self) -> int:
        """Run them all, one after the other, and print the budgets."""
        print(report_text.machine_line(self._head["machine"]))
        print(f"opd {self._head['opd']}")
        # Ended from outside is as Ctrl-C: what runs under a section ends with it.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        status = 0
        try:
            for section in self._sections:
                status |= self._run_section(section)
        except KeyboardInterrupt:
            status = 130
        report_text.print_budgets(self._verdicts())
        self.save()
        if self._options.html is not None:
            from bench.harness import report_html  # needs matplotlib

            text = report_html.page(self._head, self._outcomes, self._verdicts())
            report_html.write(self._options.html, text)
            print(f"{self._options.html}: written")
        return status

    def _run_section(self, section: Section) -> int:
        print(f"\n== {section.name}: {section.purpose}", flush=True)
        context = Context(self._options, self.save)
        outcome = Outcome(section, context.findings)
        self._outcomes.append(outcome)
        before, began = machine.moment(), time.monotonic()
        try:
            section.run(context)
            outcome.state = "done"
        except KeyboardInterrupt:
            outcome.state = "aborted"
            raise
        except Exception as error:  # noqa: BLE001 - the other sections are worth their time all the same
            traceback.print_exc()
            outcome.state, outcome.problem = "failed", f"{type(error).__name__}: {error}"
        finally:
            outcome.seconds = time.monotonic() - began
            outcome.machine = machine.disturbance(before, context.cpu_of_ours())
            context.close()
            for figure in outcome.findings.figures:
                note = f"  ({figure.note})" if figure.note else ""
                print(f"  {figure.key}  {report_text.figure_text(figure)}{note}")
            print(f"  {report_text.disturbance_line(outcome.machine)}", flush=True)
            self.save()
        return int(outcome.state != "done")

    def _verdicts(self) -> list[Any]:
        return judge(figure for o in self._outcomes for figure in o.findings.figures)

    def save(self) -> None:
        """Write the files asked for."""
        values = report_json.document(self._head, self._outcomes, self._verdicts())
        if self._options.json is not None:
            report_json.write(self._options.json, values)


def _commit() -> str:
    """Name the version measured."""
    root = Path(__file__).parent
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    from opd import __version__

    return f"{__version__} {done.stdout.strip()}".strip()
