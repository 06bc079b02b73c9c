"""``opd``, the daemon: reads its command line and settings, then runs or says what is wrong."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from opd import __version__
from opd.cli import output
from opd.config.layers import FEATURE_TABLE, Override, load
from opd.config.nearest import did_you_mean
from opd.config.problems import Problem, raise_problems
from opd.config.settings import Config, Features, Origin, SamplingSettings
from opd.errors import ConfigError, OpdError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.events import EventRequest
    from opd.features.registry import Registry

EXIT_CONFIG = 78

_EPILOG = """\
examples:
  opd                                        sample every CPU, 99 times a second
  opd -e cpu-clock:999hz -e page-faults      two events
  opd --session-dir /tmp/s --endpoint ipc:///tmp/s/opd.sock --log-format console
  opd -x skeleton:scale=10                 with an extended feature
  opd --config /etc/opd/opd.toml --check-config
  opd --check-events CPU_CLK_UNHALTED:100000 IBS_OP_ALL:100000

Settings come from /etc/opd/opd.toml and conf.d/*.toml beside it; flags win.
Runs in the foreground. SIGTERM ends it, SIGHUP reloads, SIGUSR1 logs statistics.
"""

# Where each flag's value belongs in the settings.
_SETTINGS = {
    "session_dir": ("--session-dir", "daemon.session_dir"),
    "endpoint": ("--endpoint", "daemon.endpoint"),
    "interval": ("--interval", "daemon.interval"),
    "log_format": ("--log-format", "daemon.log_format"),
    "verbose": ("--verbose", "daemon.verbose"),
    "event": ("--event", "sampling.events"),
    "separate": ("--separate", "sampling.separate"),
    "callgraph": ("--callgraph", "sampling.callgraph"),
    "cpus": ("--cpus", "sampling.cpus"),
    "cpu_type": ("--cpu-type", "sampling.cpu_type"),
}


class _Parser(argparse.ArgumentParser):
    """argparse, with every mistake as a ConfigError: opd exits 78, not 2."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message, hint=f"{self.prog} --help shows the options")

    def _print_message(self, message: str, file: object = None) -> None:
        del file
        output.require_stdout()
        output.write(message, end="")


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``opd``; returns its exit status: 0, 1, 77 or 78."""
    if sys.stderr is None:  # closed: the log goes nowhere, but opd runs
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - for good
    try:
        status = _run(sys.argv[1:] if argv is None else argv)
        if sys.stdout is not None:
            output.flush()
    except OpdError as error:
        _complain(error)
        status = error.exit_status
    except BrokenPipeError:
        status = 0  # whoever read the listing has seen enough
    output.settle()
    return status


def _run(argv: Sequence[str]) -> int:
    parser = _parser()
    try:
        options, rest = parser.parse_known_args(_spread(argv))
    except SystemExit as done:  # --help, --version
        return int(done.code or 0)
    specs = [word for word in rest if options.check_events and not word.startswith("-")]
    if rest := [word for word in rest if word not in specs and word != "--"]:
        _refuse(parser, rest)
    if options.list_events or options.check_events:
        from opd.cli import eventlists

        sampling = load(_overrides(options), options.config).sampling
        if options.check_events:
            specs += options.event or []
            eventlists.print_checked(specs, sampling, options.format)
        else:
            eventlists.print_events(sampling, options.format)
        return 0
    if options.list_features:
        from opd.cli.features import print_features

        print_features(options.format)
        return 0
    config, registry = _settle(options)
    if options.check_config:
        return 0
    from opd.service.daemon import run

    status: int = run(config, replay=options.replay, strict=options.strict, registry=registry)
    return status


def _spread(argv: Sequence[str]) -> list[str]:
    """``--check-events=SPEC`` as two words: it is a flag, its events are what is left over."""
    words: list[str] = []
    for word in argv:
        flag, equals, spec = word.partition("=")
        words += [flag, spec] if flag == "--check-events" and equals else [word]
    return words


def _parser() -> _Parser:
    parser = _Parser(
        prog="opd",
        description="A continuous, system-wide profiler. Ask it questions with opctl.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--config", metavar="FILE", help="settings; default /etc/opd/opd.toml where it exists")
    add("--session-dir", metavar="DIR", help="where the history is kept; created when missing")
    add("--endpoint", metavar="URL", help="where to listen: ipc:///PATH")
    add(
        "--event",
        "-e",
        metavar="SPEC",
        action="append",
        help="what to sample: NAME[:mods][:COUNT[:UNITMASK]], pmu/term=value/, sys:name or"
        " uprobe:/path:symbol; COUNT a period or 999hz; repeatable",
    )
    add(
        "--ext-feature",
        "-x",
        metavar="NAME[:ARGS]",
        action="append",
        help="run an extended feature; ARGS is KEY=VALUE,…, a list's items by +; repeatable",
    )
    add(
        "--separate",
        metavar="LIST",
        help="keep apart: thread, cpu, cgroup (always kept) or all, by commas",
    )
    add("--callgraph", metavar="KIND", help="call chains: fp or off")
    add("--interval", metavar="SECONDS", help="length of a window (default: 10)")
    add("--cpus", metavar="LIST", help="which CPUs, such as 0-3,8")
    add("--replay", metavar="FILE", help="import a perf.data file, then serve")
    add(
        "--strict",
        action="store_true",
        help="refuse to start where a feature cannot run (concerns features only)",
    )
    add("--check-config", action="store_true", help="read all settings and flags; exit 0 or 78")
    add(
        "--check-events",
        action="store_true",
        help="print the counter of each SPEC (every word that is no option), its ext word, timer"
        " or N/A; exit 0, or 78 where one is wrong or counters are too few",
    )
    add("--list-events", action="store_true", help="show the events of this machine")
    add(
        "--list-features",
        action="store_true",
        help="show the extended features: options, events, whether they can run here",
    )
    add(
        "--cpu-type",
        metavar="TYPE",
        help="take the events of this CPU type, such as x86-64/family19 (default: this machine's)",
    )
    add(
        "--format",
        choices=("table", "json"),
        default="table",
        help="of a listing and of --check-events",
    )
    add("--log-format", metavar="KIND", help="log lines: auto, console or json")
    add("--verbose", action="store_true", default=None, help="log debug lines too")
    add("--version", action="version", version=f"opd {__version__}")
    return parser


def _refuse(parser: _Parser, rest: Sequence[str]) -> NoReturn:
    known = [word for action in parser._actions for word in action.option_strings]  # noqa: SLF001
    lines = []
    for token in rest:
        word = token.split("=")[0]
        if word.startswith("-") and word != "--":
            lines.append(f"unknown option {word!r}{did_you_mean(word, known)}")
        else:
            lines.append(f"unexpected argument {token!r}")
    parser.error("\n".join(lines))


def _overrides(options: argparse.Namespace) -> dict[str, Override]:
    overrides = {}
    for name, (flag, key) in _SETTINGS.items():
        value: Any = getattr(options, name)
        if value is None:
            continue
        if name == "separate" and value:
            value = [word.strip() for word in value.split(",")]
        overrides[key] = Override(flag, value)
    if options.ext_feature:
        overrides[FEATURE_TABLE] = Override("--ext-feature", options.ext_feature)
    return overrides


def _settle(options: argparse.Namespace) -> tuple[Config, Registry | None]:
    """Settings and flags as one, and asked of this machine: events, CPUs, files, plugins."""
    problems: list[Problem] = []
    config: Config | None = None
    try:
        config = load(_overrides(options), options.config)
    except ConfigError as error:
        problems += _problems_of(error)
    # Of settings that cannot be read, what the flags say is checked all the same.
    wrong, requests = _machine_problems(config or _flags_alone(options))
    problems += wrong
    if options.replay is not None:
        problems += _replay_problems(options.replay)
    registry, wrong = _feature_problems(config or _flags_alone(options), requests)
    problems += wrong
    raise_problems(problems)
    if config is None:
        raise ConfigError("the settings cannot be read")
    return config, registry


def _flags_alone(options: argparse.Namespace) -> Config:
    sampling = SamplingSettings(
        events=tuple(options.event or ("cpu-clock",)),
        cpus=options.cpus or "",
        cpu_type=options.cpu_type or "",
    )
    sources = {"sampling.events": "--event", "sampling.cpus": "--cpus"}
    features = Features(flags=tuple(options.ext_feature or ()))
    return Config(sampling=sampling, features=features, origin=Origin(sources=sources))


def _problems_of(error: ConfigError) -> list[Problem]:
    return [Problem("", "", error.message, error.hint)]


def _machine_problems(config: Config) -> tuple[list[Problem], Sequence[EventRequest]]:
    """What this machine says to events and CPUs, and the events as far as they are right."""
    from opd.events import catalogue_of, requests_of, select_cpus

    def source(key: str) -> str:
        name = config.origin.sources.get(key, "")
        return f"{name}: {key}" if name.startswith("/") else name

    problems = []
    requests: Sequence[EventRequest] = ()
    try:
        catalogue_of(config.sampling).check()
        requests = requests_of(config.sampling, source=source("sampling.events"))
    except ConfigError as error:
        problems += _problems_of(error)
    try:
        select_cpus(config.sampling.cpus)
    except ConfigError as error:
        problems.append(Problem(source("sampling.cpus"), "", error.message, error.hint))
    return problems, requests


def _feature_problems(
    config: Config, requests: Sequence[EventRequest]
) -> tuple[Registry | None, list[Problem]]:
    """The plugins, asked what the features' options mean; None where no feature is asked for."""
    theirs = [request for request in requests if request.feature]
    if not (config.features.flags or config.features.tables or theirs):
        return None, []
    from opd.features.asked import resolve
    from opd.features.fromevents import pulled_in
    from opd.features.registry import Registry

    registry = Registry()
    try:
        resolve(config.features, registry, pulled_in(theirs))
    except ConfigError as error:
        return registry, _problems_of(error)
    return registry, []


def _replay_problems(replay: str) -> list[Problem]:
    if not replay:
        return [Problem("--replay", "", "expected a file, got nothing")]
    file = Path(replay)
    try:
        # Opened only when it is a file: a FIFO would wait for its writer.
        if file.stat() and not file.is_file():
            return [Problem("--replay", "", f"{replay}: expected a perf.data file, it is no file")]
        file.open("rb").close()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return [Problem("--replay", "", f"{replay}: cannot read it: {reason}")]
    return []


def _complain(error: OpdError) -> None:
    for line in error.message.splitlines() or [""]:
        output.complain(f"opd: error: {output.clean(line)}")
    for line in (error.hint or "").splitlines():
        output.complain(f"opd: hint: {output.clean(line)}")


if __name__ == "__main__":
    sys.exit(main())
