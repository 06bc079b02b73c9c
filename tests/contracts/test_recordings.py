"""Same file, same answer: every kind of recording that perf makes, beside what perf says of it."""

from __future__ import annotations

import collections
import contextlib
import json
import re
import subprocess

import pytest

from places import BIN
from symbol_tables import addresses

SEPARATOR = "\x01"
TRIES = 2  # perf 6.1 aborts now and then, recording and reading

# Of the whole machine where that is possible: beside a running opd, kernels up to 6.18 at
# least put opd's MMAP2 flag for build-ids into the records of perf's events on one task, where
# an inode stands, and perf aborts.
KINDS = {
    "several-events": ["-a", "-g", "-F", "499", "-e", "cpu-clock,page-faults"],
    "no-chains": ["-a", "-F", "499", "-e", "cpu-clock"],
    "dwarf-stacks": ["-a", "--call-graph", "dwarf,4096", "-F", "199", "-e", "cpu-clock"],
    "fixed-period-monotonic": [
        *("-a", "-g", "-k", "CLOCK_MONOTONIC", "-c", "2000000", "-e", "cpu-clock"),
    ],
    "mixed-periods": [
        *("-a", "-e"),
        "cpu-clock/freq=499/,page-faults/period=30/,task-clock/period=3000000/",
    ],
    "own-children": ["-g", "-F", "999", "-e", "cpu-clock"],
    "per-thread-without-times": ["--per-thread", "-F", "999", "-e", "cpu-clock"],
    "everything-beside": [
        *("-a", "-d", "-W", "--sample-cpu", "--switch-events", "--namespaces", "-F", "499"),
        *("-e", "cpu-clock"),
    ],
    "build-ids-in-mappings": ["-a", "--buildid-mmap", "-g", "-F", "499", "-e", "cpu-clock"],
    "compressed": ["-a", "-z", "-g", "-F", "499", "-e", "cpu-clock:u"],
    "pipe": ["-a", "-g", "-F", "499", "-e", "cpu-clock:u", "-o", "-"],
}


def opctl(*arguments):
    """The JSON that a successful opctl prints."""
    done = subprocess.run(
        [BIN / "opctl", "--format", "json", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def judged(*command, **settings):
    """What perf prints, in spite of its aborts; None when it never gets there."""
    for _ in range(TRIES):
        done = subprocess.run(command, capture_output=True, check=False, timeout=60, **settings)
        if done.returncode == 0:
            return done.stdout
    return None


@pytest.fixture(scope="module")
def load(busy, tmp_path_factory):
    """A script with forks, renamed threads, an exec, the clock and code without a file."""
    script = tmp_path_factory.mktemp("load") / "load.sh"
    modes = [f"{busy} {mode} 0.08 &" for mode in ("fork", "thread", "exec", "clock", "anonymous")]
    script.write_text("\n".join([*modes, "ls -R /usr/lib/python3 >/dev/null", "wait"]))
    return script


@pytest.fixture(scope="module")
def recorded(perf, load, busy, tmp_path_factory):
    """Give a function that makes a recording of a kind, once."""
    made = {}

    def record(kind):
        if kind not in made:
            path = tmp_path_factory.mktemp("recorded") / f"{kind}.data"
            options = KINDS[kind]
            program = ["bash", str(load)]
            if "--per-thread" in options:  # perf then follows one thread and no child
                program = [str(busy), "plain", "0.2"]
            if "-o" in options:
                out = judged(perf, "record", *options, "--", *program)
                path.write_bytes(out or b"")
            else:
                out = judged(perf, "record", *options, "-o", str(path), "--", *program)
            made[kind] = path if out is not None else None
        if made[kind] is None:
            pytest.skip(f"perf cannot record {kind} here")
        return made[kind]

    return record


def perf_samples(perf, path):
    """How many samples perf counts in the file."""
    text = judged(perf, "report", "-i", str(path), "--stats")
    if text is None:
        pytest.skip("perf cannot read its own recording")
    return int(re.search(rb"SAMPLE events:\s+(\d+)", text)[1])


def perf_rows(perf, path):
    """Perf's samples by event and (comm, file name, symbol), and its weight by event."""
    # -w: it would cut a comm to a width that it computed before an exec renamed it.
    command = [perf, "report", "-i", str(path), "--stdio", "--no-children", "-g", "none"]
    command += ["--no-inline", "--no-group", "-w", "0,0,40,0,0"]
    text = judged(*command, "-F", "sample,period,comm,dso,sym", "-t", SEPARATOR)
    if text is None:
        pytest.skip("perf cannot read its own recording")
    rows, weight, event = collections.defaultdict(collections.Counter), collections.Counter(), ""
    for line in text.decode(errors="surrogateescape").splitlines():
        if found := re.match(r"# Samples: .* of events? '(.*)'", line):
            event = found[1]
        cells = [cell.strip() for cell in line.split(SEPARATOR)]
        if line.startswith("#") or len(cells) < 5:
            continue
        samples, period, comm, image, where = cells[:5]
        image, symbol = image.removesuffix(" (deleted)"), re.sub(r"^\[.\]\s+", "", where)
        if image.startswith("[kernel.kallsyms]"):
            image = "[bpf]" if symbol.startswith("bpf_prog_") else "[kernel]"
        elif re.fullmatch(r"//anon|perf-\d+\.map|\[JIT\] tid \d+", image):
            image = "[anon]"
        rows[event][comm, image, nameless(symbol)] += int(samples)
        weight[event] += int(period)
    return rows, weight


def nameless(symbol):
    """One word for what one of the two cannot name, else the name without its version."""
    if symbol.startswith("0x") or "!0x" in symbol or symbol in ("[unknown]", "_init"):
        return "?"
    return "?" if symbol.endswith("@plt") else symbol.split("@")[0]


def assert_equal_but_for_aliases(rows, theirs):
    """Per comm and image the samples are equal; names differ only at the same address."""
    mine, paths = collections.Counter(), {}
    for row in rows:
        image = row["image"].rsplit("/", 1)[-1]
        paths[image] = row["image"]
        mine[row["comm"], image, nameless(row["symbol"])] += row["samples"]
    mine.subtract(theirs)
    by_image = collections.defaultdict(dict)
    for (comm, image, symbol), count in mine.items():
        if count:
            by_image[comm, image][symbol] = count
    for (comm, image), counts in by_image.items():
        assert sum(counts.values()) == 0, (comm, image, counts)
        values = addresses(paths.get(image, image))
        for symbol, count in counts.items():
            if symbol == "?":
                continue
            aliases = [name for name in counts if name == "?" or values[name] & values[symbol]]
            others = sum(counts[name] for name in aliases if name != symbol)
            assert abs(count + others) <= abs(others), (comm, image, symbol, counts)


@pytest.mark.parametrize("kind", KINDS)
def test_a_recording_of_any_kind_gives_perfs_answer(perf, recorded, tmp_path, kind):
    """Totals are those of `perf report --stats`, weights its periods, rows its rows."""
    path, store = recorded(kind), str(tmp_path / "s")
    done = opctl("--session-dir", store, "import", str(path))
    assert done["samples"] == perf_samples(perf, path)
    without_ids = kind in ("compressed", "pipe")  # then kernel and vdso stay nameless, by contract
    assert done["complete"] is True
    said = ("", "no build-id of the kernel: its names are left out")
    assert done["detail"] in said[: 1 + without_ids]  # only where the kernel was seen
    rows, weights = perf_rows(perf, path)
    for event in done["events"]:
        answer = opctl("--session-dir", store, "report", "--top", "0", "-e", event)
        theirs = rows[event]
        assert (answer["event"], answer["total"]) == (event, sum(theirs.values()))
        assert answer["weight_total"] == weights[event]
        assert answer["weight_total"] == sum(row["weight"] for row in answer["rows"])
        mine = answer["rows"]
        if without_ids:
            mine = [row for row in mine if row["image"] not in ("[kernel]", "[vdso]")]
            theirs = {key: n for key, n in theirs.items() if key[1] not in ("[kernel]", "[vdso]")}
        assert_equal_but_for_aliases(mine, theirs)


def test_images_and_names_are_spelled_as_the_contract_says(recorded, tmp_path):
    """Images are full paths or words in brackets, symbols and comms text, modes one of two."""
    opctl("--session-dir", str(tmp_path / "s"), "import", str(recorded("no-chains")))
    keys = "comm,pid,image,symbol,event,mode"
    answer = opctl("--session-dir", str(tmp_path / "s"), "report", "--sort", keys, "--top", "0")
    for row in answer["rows"]:
        assert re.fullmatch(r"/.*|\[[a-z0-9_]+\]", row["image"]), row
        assert not row["image"].endswith(" (deleted)")
        assert isinstance(row["symbol"], str)
        assert row["symbol"]
        assert row["mode"] in ("user", "kernel")
        assert (row["comm"] == "swapper") == (row["pid"] == 0)
        assert row["comm"]
        if row["image"] == "[kernel]":
            assert row["mode"] == "kernel"
    images = {row["image"] for row in answer["rows"]}
    assert images >= {"[kernel]", "[anon]", "[vdso]"}


def test_processes_have_the_names_they_gave_themselves(recorded, tmp_path):
    """After prctl, pthread_setname and exec, samples are the new name's, those before the old's."""
    opctl("--session-dir", str(tmp_path / "s"), "import", str(recorded("no-chains")))
    rows = opctl(
        "--session-dir", str(tmp_path / "s"), "report", "--sort", "comm,symbol", "--top", "0"
    )["rows"]
    named = collections.Counter()
    for row in rows:
        named[row["comm"], row["symbol"]] += row["samples"]
    assert named["renamed", "child_work"] > 15
    assert named["lonely", "thread_work"] > 15
    assert named["busy", "before_exec_work"] > 15
    assert named["busy", "child_work"] == named["busy", "thread_work"] == 0


def test_two_stores_answer_to_the_byte(recorded, tmp_path):
    """All events by all keys, imported into two stores and asked twice: the same bytes."""
    words = ["report", "--sort", "comm,pid,image,symbol,event,mode", "--top", "0"]
    answers = set()
    for name in ("one", "two"):
        store = ["--session-dir", str(tmp_path / name)]
        opctl(*store, "import", str(recorded("several-events")))
        command = [BIN / "opctl", "--format", "json", *store, *words]
        for _ in range(2):
            answers.add(subprocess.run(command, capture_output=True, check=True).stdout)
    assert len(answers) == 1
    assert json.loads(answers.pop())["event"] == "cpu-clock,page-faults"


def test_a_directory_of_perf_is_refused_with_a_word(perf, busy, tmp_path):
    """What `perf record --threads` writes is no file: status 1 and its name."""
    folder = tmp_path / "threads.data"
    command = [perf, "record", "--threads", "-a", "-e", "cpu-clock", "-o", str(folder)]
    judged(*command, "--", str(busy), "plain", "0.05")
    folder.mkdir(exist_ok=True)
    if folder.is_file():
        pytest.skip("this perf writes one file")
    command = [BIN / "opctl", "--session-dir", str(tmp_path / "s"), "import", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert str(folder) in done.stderr
    assert "Traceback" not in done.stderr
    with contextlib.suppress(OSError):
        (tmp_path / "s").rmdir()
