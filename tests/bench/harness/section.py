"""What a section is, and what it is given."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.harness.accounting import Account
from bench.harness.figures import Figure, Findings, Plot, Table, summary

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

PROGRESS_S = 20.0


@dataclass(frozen=True)
class Section:
    """A module of ``sections`` declares one as SECTION.

    ``by_default`` is false for what takes long: it runs only when named.
    """

    name: str
    purpose: str
    run: Callable[[Context], None]
    by_default: bool = True


class Context:
    """A section's hands: options, figures, and the accounts it opened."""

    def __init__(self, options: argparse.Namespace, save: Callable[[], None]) -> None:
        self.options = options
        self.findings = Findings()
        self._save = save
        self._accounts: list[Account] = []
        self._spoke = 0.0

    @property
    def quick(self) -> bool:
        """Whether short runs are asked for."""
        return bool(self.options.quick)

    def choose(self, usual: Any, quick: Any) -> Any:
        """Give one of two, by ``--quick``."""
        return quick if self.quick else usual

    def repeat(self, usual: int, quick: int = 1) -> int:
        """Give how often to repeat: as asked, else by ``--quick``."""
        return int(self.options.repeat or self.choose(usual, quick))

    def rates(self, usual: list[int], quick: list[int]) -> list[int]:
        """Give the rates in Hz: as asked, else by ``--quick``."""
        return list(self.options.rates or self.choose(usual, quick))

    def seconds(self, usual: float, quick: float) -> float:
        """Give a time in seconds: ``--minutes`` when asked, else by ``--quick``."""
        if self.options.minutes:
            return float(self.options.minutes) * 60
        return float(self.choose(usual, quick))

    def account(self, name: str) -> Account:
        """Open an account that is closed when the section ends."""
        account = Account(name)
        self._accounts.append(account)
        return account

    def cpu_of_ours(self) -> float:
        """Give the CPU seconds of all accounts so far."""
        return sum(account.cpu_seconds() for account in self._accounts) + self._closed

    _closed = 0.0

    def close_account(self, account: Account) -> None:
        """Close one before the section's end."""
        self._closed += account.cpu_seconds()
        self._accounts.remove(account)
        account.close()

    def close(self) -> None:
        """Close what is open."""
        for account in list(self._accounts):
            self.close_account(account)

    # ---- what is found

    def figure(self, key: str, value: float | None, unit: str, note: str = "") -> None:
        """Add one number."""
        self.findings.figures.append(Figure(key, value, unit, note=note))

    def median(self, key: str, values: list[float], unit: str, note: str = "") -> None:
        """Add the median of repeats."""
        self.findings.figures.append(summary(key, values, unit, note))

    def table(self, title: str, header: list[str], rows: list[list[str]]) -> None:
        """Add and print a table."""
        from bench.harness.report_text import print_table

        self.findings.tables.append(Table(title, header, rows))
        print_table(self.findings.tables[-1])

    def plot(self, plot: Plot) -> None:
        """Add a picture for the page."""
        self.findings.plots.append(plot)

    def note(self, text: str, *, quiet: bool = False) -> None:
        """Add and print a remark."""
        self.findings.notes.append(text)
        if not quiet:
            print(f"  {text}", flush=True)

    def save(self) -> None:
        """Write what there is: a run that is ended tells what it knew."""
        self._save()

    def progress(self, text: str) -> None:
        """Say on stderr what is being done; on a terminal at once, else now and then."""
        now = time.monotonic()
        if sys.stderr.isatty() or now - self._spoke > PROGRESS_S:
            self._spoke = now
            print(f"  … {text}", file=sys.stderr, flush=True)


@dataclass
class Outcome:
    """A section's run, as it is written."""

    section: Section
    findings: Findings
    state: str = "running"
    problem: str = ""
    seconds: float = 0.0
    machine: dict[str, Any] = field(default_factory=dict)
