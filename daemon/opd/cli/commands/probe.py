"""opctl probe: measure, list, show, end and compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opd.cli import asking, output, ownplace, proberesults
from opd.cli.commands.record import interrupts
from opd.cli.progress import ProgressLine
from opd.errors import OperationFailedError, UsageError

if TYPE_CHECKING:
    import argparse
    import threading
    from collections.abc import Mapping

EXAMPLE = """opctl probe run calibrate what=loop+syscall,repeats=20
  opctl probe run calibrate what=syscall,every=1h,when=idle
  opctl probe run dto suite=sanity,results_dir=./out --format dto
  opctl probe run dto baseline=git:v1,current=worktree,tree=.,build=make,artifact=libx.a
  opctl probe list
  opctl probe show 12 --format json
  opctl probe show 12 13 14 --plot page.html
  opctl probe compare 12 15
  opctl probe compare calibrate:work=100 calibrate:work=105
  opctl probe compare pft:memory=16m,repeats=1 pft:memory=16m,repeats=1,threads=2
  opctl probe cancel"""

_ACTIONS = ("run", "list", "show", "cancel", "compare")
_TAKES = {"run": (1, 2), "list": (0, 1), "show": (1, 64), "cancel": (0, 1), "compare": (2, 2)}
_POLL_SECONDS = 0.3
_VOID = 1
_CHANGED = ("id", "probe", "metric", "before", "after", "change_percent", "p", "time")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument("action", choices=_ACTIONS, metavar="ACTION", help=" | ".join(_ACTIONS))
    parser.add_argument(
        "words",
        nargs="*",
        metavar="WORD",
        help="run: PROBE [OPTION=VALUE,…] (a value with + sweeps); list: [PROBE]; show: NUMBER…;"
        " cancel: [NUMBER of the job or schedule]; compare: A B, two numbers of runs, or two of"
        " PROBE[:OPTIONS], which are measured in turn. It judges B by A: OK, also when B is"
        " faster (exit status 0), REGRESSED (3), UNDECIDED: needs more rounds (4), INVALID: A"
        " differs from itself (5); a void run is 1",
    )
    parser.add_argument("--top", type=int, metavar="N", help="list: only the last N (default: 50)")
    parser.add_argument("--changes", action="store_true", help="list: where levels changed")
    parser.add_argument("--samples", action="store_true", help="show: the raw samples too")
    parser.add_argument(
        "--plot",
        metavar="FILE",
        help="show: histograms, curves, and of several runs lines, into FILE.html, FILE.svg or"
        " FILE.png (which needs matplotlib: pip install 'opd[plots]')",
    )
    parser.add_argument("--metric", metavar="NAME", help="compare: what to judge by")
    parser.add_argument("--rounds", type=int, metavar="N", help="compare: turns a process (15)")
    parser.add_argument("--processes", type=int, metavar="N", help="compare: processes (4)")


def run(arguments: argparse.Namespace) -> int:
    """Do the action."""
    least, most = _TAKES[arguments.action]
    if not least <= len(arguments.words) <= most:
        how_many = f"{least}" if least == most else f"{least} to {most}"
        raise UsageError(
            f"probe {arguments.action} takes {how_many} words, got {len(arguments.words)}",
            hint="see opctl probe --help",
        )
    _check_words(arguments)
    for name in ("top", "rounds", "processes"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            raise UsageError(f"--{name}: expected 1 or more, got {value}")
    if arguments.action in ("list", "cancel") and arguments.format not in proberesults.FORMS:
        raise UsageError(
            f"--format {arguments.format!r}: there are: {' '.join(proberesults.FORMS)}"
        )
    return int(_DO[arguments.action](arguments))


def _check_words(arguments: argparse.Namespace) -> None:
    """UsageError: bytes of the command line that are no text, before anybody else meets them."""
    from opd.errors import ConfigError
    from opd.features.arguments import require_utf8

    try:
        for word in (*arguments.words, arguments.metric or ""):
            require_utf8(word, f"probe {arguments.action}")
    except ConfigError as error:
        # Of opd's settings it would be 78; these are words of a command.
        raise UsageError(error.message, hint=error.hint) from error


def _run(arguments: argparse.Namespace) -> int:
    from opd.cli import probefiles

    probe, options = [*arguments.words, ""][:2]
    options, directory = probefiles.local_words(options)
    if directory:
        probefiles.make_place(probe, directory)
    if arguments.session_dir is not None:
        results = _here(arguments, probe, options)
    else:
        params = {"probe": probe, "options": ownplace.with_own_cpus(options)}
        view = _there(arguments, "probe_run", params)
        if "schedule" in view:
            text = f"schedule {view['schedule']}: {view['text']}, first in {view['due_seconds']} s"
            output.print_result(view, proberesults.form_of(arguments), output.clean(text))
            return 0
        results = view["results"]
    from opd.probes.results import status_of

    proberesults.print_results(results, arguments)
    if directory:
        with asking.open_source(arguments) as source:
            probefiles.write(results, directory, source)
    return status_of(results)


def _compare(arguments: argparse.Namespace) -> int:
    from opd.cli import probefiles
    from opd.probes.results import status_of
    from opd.query.probes import number_of

    a, b = map(probefiles.local_measure, arguments.words)
    params = {"a": a, "b": b}
    for name in ("metric", "rounds", "processes"):
        if (value := getattr(arguments, name)) is not None:
            params[name] = value
    kept = number_of(a) is not None and number_of(b) is not None
    if kept:
        with asking.open_source(arguments) as source:
            result = source.call("probe_compare", params)["result"]
    elif arguments.session_dir is not None:
        result = _compare_here(arguments, params)
    else:
        params |= {side: ownplace.measure_with_own_cpus(params[side]) for side in "ab"}
        result = _there(arguments, "probe_compare", params)["results"][-1]
    proberesults.print_results([result], arguments)
    return _VOID if result["verdict"] is None else status_of([result])


def _list(arguments: argparse.Namespace) -> int:
    given = {"since": arguments.since, "until": arguments.until, "top": arguments.top}
    params = {name: value for name, value in given.items() if value is not None}
    if arguments.words:
        params["probe"] = arguments.words[0]
    if arguments.changes:
        params["changes"] = True
    with asking.open_source(arguments) as source:
        answer = source.call("probe_list", params)
    if arguments.words and not answer["runs"]:
        from opd.features.registry import Registry
        from opd.probes.plan import find_probe

        find_probe(Registry(), arguments.words[0])  # a name that is none is told
    if arguments.format == "json":
        output.print_json(answer)
        return 0
    if arguments.changes:
        names: tuple[str, ...] = _CHANGED
        rows = [{**one, "time": output.moment_text(one["started_ns"])} for one in answer["changes"]]
    else:
        names = ("id", "time", "probe", "parameters", "metric", "median", "cv", "n", "state")
        shown = proberesults.differing(answer["runs"]) if arguments.format == "table" else None
        rows = [row for one in answer["runs"] for row in proberesults.rows_of(one, shown)]
    if arguments.format == "csv":
        output.print_csv(names, rows)
        return 0
    output.print_table(names, rows, right=("id", "median", "cv", "n", "before", "after"))
    for one in answer.get("schedules", ()):
        last = f", last: {one['last_error']}" if one["last_error"] else ""
        words = f"schedule {one['schedule']}: {one['text']}, next in {one['due_seconds']:.0f} s"
        output.write(output.clean(f"{words}, {one['runs']} runs, {one['skipped']} skipped{last}"))
    if running := answer.get("running"):
        output.write(output.clean(f"running: job {running['job']}: {running['what']}"))
    return 0


def _show(arguments: argparse.Namespace) -> int:
    if arguments.plot is not None:
        return _plot(arguments)
    if len(arguments.words) != 1:
        raise UsageError("probe show takes 1 number, and several only with --plot FILE")
    params: dict[str, Any] = {"id": _number(arguments.words[0])}
    if arguments.samples:
        params["samples"] = True
    with asking.open_source(arguments) as source:
        answer = source.call("probe_show", params)
    columns = _columns(answer.pop("samples", ()))
    if arguments.format == "json":
        output.print_json({**answer, "samples": columns} if arguments.samples else answer)
        return 1 if answer["void"] else 0
    if arguments.samples:
        rows = [
            {"metric": one["metric"], "worker": one["worker"], "repeat": repeat, "value": value}
            for one in columns
            for repeat, value in zip(one["repeats"], one["values"], strict=True)
        ]
        output.print_csv(("metric", "worker", "repeat", "value"), rows)
        return 1 if answer["void"] else 0
    proberesults.print_results([answer], arguments)
    if arguments.format == "table":
        for one in answer["distributions"]:
            shown = {name: one[name] for name in _DISTRIBUTION if name in one}
            output.print_fields({"metric": one["name"], **shown})
        output.print_fields(_flat(answer["machine"]))
    return 1 if answer["void"] else 0


def _plot(arguments: argparse.Namespace) -> int:
    """Draw runs into a file. UsageError for one of another kind, or nothing to draw."""
    from pathlib import Path

    from opd.probes.plots import PNG_MOST, page, pictures_of, png, svg_of_all

    target = Path(arguments.plot)
    if target.suffix not in (".html", ".svg", ".png"):
        raise UsageError(
            f"--plot {arguments.plot}: expected a name that ends in .html, .svg or .png"
        )
    from opd.cli import probefiles

    results, samples, own = [], [], []
    with asking.open_source(arguments) as source:
        for word in arguments.words:
            answer = source.call("probe_show", {"id": _number(word), "samples": True})
            columns = _columns(answer["samples"])
            samples.append({c["metric"]: c["values"] for c in columns if c["worker"] == -1})
            results.append(answer)
            own += probefiles.own_pictures(answer, columns)
    # A probe's own first: PNG has room for so many.
    pictures = [*own, *pictures_of(results, samples)]
    if not pictures:
        raise UsageError("there is nothing to draw: these runs have too few samples")
    title = f"{results[0]['probe']} on {results[0]['machine'].get('host', 'this machine')}"
    of = ""
    if target.suffix == ".png":
        if len(pictures) > PNG_MOST:
            of = f" of {len(pictures)} (FILE.html has room for all)"
            pictures = pictures[:PNG_MOST]
        png(pictures, target)
    else:
        text = page(pictures, title) if target.suffix == ".html" else svg_of_all(pictures)
        try:
            target.write_text(text, encoding="utf-8")
        except OSError as error:
            raise OperationFailedError(f"{target}: {error.strerror}") from error
    result = {"file": str(target), "pictures": len(pictures)}
    words = output.clean(f"{target}: {len(pictures)} pictures{of}")
    output.print_result(result, proberesults.form_of(arguments), words)
    return 0


def _flat(fields: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """A field for each leaf, named by the way to it; lists as words."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{before}{name}.")
        else:
            flat[before + name] = " ".join(map(str, value)) if isinstance(value, list) else value
    return flat


_DISTRIBUTION = ("least", "p5", "p25", "median", "p75", "p95", "p99", "greatest", "mad", "outliers")


def _columns(samples: Any) -> list[dict[str, Any]]:
    from array import array

    return [
        {
            **one,
            "repeats": array("I", one["repeats"]).tolist(),
            "values": array("d", one["values"]).tolist(),
        }
        for one in samples
    ]


def _cancel(arguments: argparse.Namespace) -> int:
    params = {"job": _number(arguments.words[0])} if arguments.words else {}
    with asking.connect(arguments) as client:
        answer = client.call("probe_cancel", params)
    output.print_result(answer, arguments.format, output.clean(f"ending {answer['cancelled']}"))
    return 0


_DO = {"run": _run, "list": _list, "show": _show, "cancel": _cancel, "compare": _compare}


def _number(word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < 10):
        raise UsageError(f"expected a number, got {word[:60]!r}", hint="opctl probe list has them")
    return int(word)


def _there(arguments: argparse.Namespace, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Have the daemon do it, and stay with it; Ctrl-C ends it."""
    progress = ProgressLine()
    with asking.connect(arguments) as client:
        view: dict[str, Any] = client.call(method, params)
        if "job" not in view:
            return view
        try:
            with interrupts() as interrupted:
                while view["running"]:
                    _tell(progress, view["progress"])
                    if interrupted.wait(_POLL_SECONDS):
                        client.call("probe_cancel", {"job": view["job"]})
                        interrupted.clear()
                    view = client.call("probe_poll", {"job": view["job"]})
        finally:
            progress.clear()
    if "results" not in view:
        with asking.connect(arguments) as client:
            view = client.call("probe_poll", {"job": view["job"]})
    return view


def _tell(progress: ProgressLine, done: Mapping[str, Any]) -> None:
    if done:
        words = f" {done['words']}" if done["words"] else ""
        progress.show(f"measuring: {done['done']:.1f} of {done['of']:g}{words} (Ctrl-C ends it)")


def _here(arguments: argparse.Namespace, probe: str, options: str) -> list[dict[str, Any]]:
    from opd.probes.alone import alone
    from opd.probes.jobs import measure_all
    from opd.probes.local import LocalKeeper
    from opd.probes.running import plan

    planned = plan(probe, options)
    keeper = LocalKeeper(arguments.session_dir)
    progress = ProgressLine()
    try:
        with alone(arguments.session_dir), interrupts() as interrupted:
            measure_all(planned, "asked", keeper, _control(interrupted, progress))
    finally:
        progress.clear()
        keeper.close()
    return _kept(arguments, keeper.runs)


def _compare_here(arguments: argparse.Namespace, params: dict[str, Any]) -> dict[str, Any]:
    from opd.probes.alone import alone
    from opd.probes.jobs import Comparison, compare_now
    from opd.probes.local import LocalKeeper
    from opd.probes.running import plan
    from opd.query.probes import check_both_measured, measure_of

    check_both_measured(params["a"], params["b"])
    a, b = (plan(*measure_of(params.pop(side))) for side in "ab")
    keeper = LocalKeeper(arguments.session_dir)
    progress = ProgressLine()
    try:
        with alone(arguments.session_dir), interrupts() as interrupted:
            compare_now(a, b, Comparison(**params), keeper, _control(interrupted, progress))
    finally:
        progress.clear()
        keeper.close()
    return _kept(arguments, keeper.runs)[-1]


def _control(interrupted: threading.Event, progress: ProgressLine) -> Any:
    from opd.probes.jobs import Control

    def tell(done: float, of: float, words: str) -> None:
        _tell(progress, {"done": done, "of": of, "words": words})

    return Control(lambda: "cancelled" if interrupted.is_set() else "", tell)


def _kept(arguments: argparse.Namespace, runs: list[int]) -> list[dict[str, Any]]:
    with asking.open_source(arguments) as source:
        return [_result(source.call("probe_show", {"id": run})) for run in runs]


def _result(answer: dict[str, Any]) -> dict[str, Any]:
    answer.pop("distributions", None)
    return answer
