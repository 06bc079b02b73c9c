"""opctl, the client: asks a running opd, or a session directory."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from opd import __version__
from opd.cli import output
from opd.errors import OpdError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

COMMANDS = {
    "status": "show how the daemon does: events, samples, losses, its own cost",
    "stats": "show what the extended features count, and what their hooks cost",
    "features": "show the extended features: options, events, how they do",
    "events": "list the events that the session has samples of, and what really ran for each",
    "report": "show where the samples of a range of time are",
    "mem": "show what accesses to memory did: source, latency, cache lines, pages, nodes",
    "branches": "show retired branches from where to where, and how well they were predicted",
    "derive": "count a derived event that was not asked for, from the raw records kept",
    "top": "show what the machine does now, refreshed until Ctrl-C",
    "watch": "show what the daemon publishes, as it happens: windows, its statistics, trouble",
    "readprofile": "show the profile buffer of profile-hash, as readprofile(8) shows /proc/profile",
    "sql": "ask the history in SQL, or list its tables",
    "start": "go on sampling after a stop",
    "stop": "stop sampling; the daemon goes on answering",
    "dump": "return when every sample taken so far is stored and seen by the next query",
    "sessions": "list the sessions of a store: the running one, saved ones, imports",
    "save": "keep what was sampled so far under a name, and begin the running session anew",
    "reset": "begin the running session anew; what it had stays under the time of its start",
    "mark": "give a moment a word for later reports, or list those that have one",
    "import": "import a perf.data file as a session of its own",
    "record": "take a burst at a high rate beside the running profile, as a session of its own",
    "probe": "measure what this machine does: run, list, show, cancel or compare probes",
    "doctor": "say what this machine or user does not allow, and what to change",
    "bundle": "gather all that a bug report needs in one file, redacted",
    "shutdown": "end the daemon after it stored what it has; returns when it is gone",
}
FORMATS = ("table", "json", "csv")

_DESCRIPTION = "Ask a running opd, or a session directory, what this machine does and did."
_EXAMPLE = "opctl report --since 10m --sort comm,symbol --top 10"
_TIMED = ("--since", "--until", "--at")
_INTERRUPTED = 130


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Knows the width: argparse makes a formatter for every argument, and imports shutil to ask."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=max(40, (output.terminal_width() or 100) - 2))


class Parser(argparse.ArgumentParser):
    """Raises UsageError, with the closest valid names, instead of exiting."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", _Formatter)
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """Report a wrong command line."""
        raise UsageError(message, hint=f"see {self.prog} --help")

    def _print_message(self, message: str, file: object = None) -> None:
        """Print --help and --version, failures included."""
        del file
        output.write(message, end="")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what = "subcommand " if action.dest == "command" else ""
            valid = list(COMMANDS) if what else [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(
                None if what else action,
                f"there is no {what}{value!r}{did_you_mean(str(value), valid)};"
                f" valid: {' '.join(valid)}",
            )


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    """``", did you mean X?"``, or nothing when no word is close."""
    from difflib import get_close_matches

    close = get_close_matches(word[:100], list(valid), n=2, cutoff=0.55)
    return f", did you mean {' or '.join(close)}?" if close else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; its exit status."""
    try:
        output.require_stdout()
        status = _run(list(sys.argv[1:] if argv is None else argv))
        output.flush()
    except OpdError as error:
        output.complain(f"opctl: {_plain(error)}")
        status = error.exit_status
    except BrokenPipeError:
        status = 0  # whoever read the output has seen enough
    except OSError as error:
        output.complain(f"opctl: {output.clean(_os_text(error))}")
        status = 1
    except KeyboardInterrupt:
        status = _INTERRUPTED
    output.settle()
    return status


def _plain(error: OpdError) -> str:
    return "\n".join(map(output.clean, str(error).split("\n")))


def _os_text(error: OSError) -> str:
    """What and where, without the number."""
    if error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def _run(argv: list[str]) -> int:
    argv = join_times(argv)
    parser, subparsers = build_parser(argv)
    _refuse_unknown_options(argv, parser, subparsers)
    try:
        arguments, rest = parser.parse_known_args(argv)
    except SystemExit as done:  # --help, --version
        return int(done.code or 0)
    if rest:
        _refuse_rest(rest, subparsers[arguments.command])
    for name, value in (("endpoint", None), ("session_dir", None), ("format", "table")):
        if getattr(arguments, name, None) is None:
            setattr(arguments, name, value)
    for name in ("since", "until"):
        if not hasattr(arguments, name):
            setattr(arguments, name, None)
    run = _command(arguments.command).run
    return int(run(arguments))


def build_parser(argv: Sequence[str]) -> tuple[Parser, dict[str, Parser]]:
    """The parser and those of its subcommands by name.

    Only the subcommands that ``argv`` mentions, if any: each costs its import.
    """
    shared = Parser(add_help=False)
    # Probes have forms of output of their own, which only they know.
    _add_globals(shared, forms=None if "probe" in argv else FORMATS)
    parser = Parser(
        prog="opctl",
        description=_DESCRIPTION,
        parents=[shared],
        epilog=f"example:\n  {_EXAMPLE}",
    )
    parser.add_argument("--version", action="version", version=f"opctl {__version__}")
    added = parser.add_subparsers(
        dest="command", metavar="SUBCOMMAND", required=True, parser_class=Parser, prog="opctl"
    )
    mentioned = [name for name in COMMANDS if name in argv]
    if not mentioned or argv[0] in ("-h", "--help"):
        mentioned = list(COMMANDS)
    subparsers: dict[str, Parser] = {}
    for name in mentioned:
        command, summary = _command(name), COMMANDS[name]
        sub = added.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=f"example:\n  {command.EXAMPLE}",
            parents=[shared],
        )
        command.add_arguments(sub)
        subparsers[name] = sub
    return parser, subparsers


def join_times(argv: list[str]) -> list[str]:
    """Put ``--since -10m`` into one word, as argparse would take -10m for an option."""
    joined: list[str] = []
    for word in argv:
        if joined and joined[-1] in _TIMED and re.match(r"-[0-9]", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _add_globals(parser: Parser, *, forms: Sequence[str] | None) -> None:
    """Options that may stand on either side of the subcommand.

    SUPPRESS keeps a subcommand's parser from overwriting with a default what
    was said before the subcommand.
    """
    group = parser.add_argument_group("global options")
    group.add_argument(
        "--endpoint",
        metavar="URL",
        default=argparse.SUPPRESS,
        help="where opd listens, ipc://PATH (default: $OPD_ENDPOINT, else ipc:///run/opd/opd.sock,"
        " else $XDG_RUNTIME_DIR/opd/opd.sock)",
    )
    group.add_argument(
        "--session-dir",
        metavar="DIR",
        default=argparse.SUPPRESS,
        help="answer from this store, without a daemon",
    )
    group.add_argument(
        "--format",
        choices=forms,
        default=argparse.SUPPRESS,
        metavar=f"{{{','.join(FORMATS)}}}",
        help="default: table; probes may have others of their own",
    )
    group.add_argument(
        "--since",
        metavar="TIME",
        default=argparse.SUPPRESS,
        help="start of the range: 10m, '10m ago', -10m, 03:12, ISO 8601, mark:TEXT",
    )
    group.add_argument(
        "--until", metavar="TIME", default=argparse.SUPPRESS, help="end of the range"
    )


def _command(name: str) -> Any:
    return importlib.import_module(f"opd.cli.commands.{name.replace('import', 'import_')}")


def _refuse_unknown_options(argv: list[str], parser: Parser, subparsers: dict[str, Parser]) -> None:
    """Name an unknown option itself, before argparse takes its value for a subcommand."""
    known = set(parser._option_string_actions)  # noqa: SLF001 - argparse has no public list
    for sub in subparsers.values():
        known.update(sub._option_string_actions)  # noqa: SLF001
    for word in argv:
        if word == "--":
            return
        name = word.partition("=")[0]
        if name.startswith("--") and name not in known:
            chosen = next((sub for sub in argv if sub in subparsers), None)
            _refuse_rest([word], subparsers[chosen] if chosen else parser)


def _refuse_rest(rest: list[str], parser: Parser) -> NoReturn:
    word = next((word for word in rest if word.startswith("-")), rest[0]).partition("=")[0]
    if not word.startswith("-"):
        parser.error(f"unexpected argument {word!r}")
    valid = [name for name in parser._option_string_actions if name.startswith("--")]  # noqa: SLF001
    parser.error(
        f"{parser.prog} has no option {word!r}{did_you_mean(word, valid)}; valid: {' '.join(valid)}"
    )


if __name__ == "__main__":
    sys.exit(main())
