"""Same file, same answer: recordings imported, beside what perf says of them."""

from __future__ import annotations

import collections
import json
import re
import subprocess

import pytest

from perfdata_writer import CGROUP, DEFAULT_SAMPLE_TYPE, KERNEL, USER, Attr, PerfData
from places import BIN
from symbol_tables import addresses

SEPARATOR = "\x01"


def opctl(*arguments, check=True):
    """Run opctl without a daemon."""
    done = subprocess.run(
        [BIN / "opctl", "--format", "json", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def report(store, *arguments):
    """All rows of an offline report."""
    done = opctl("--session-dir", str(store), "report", "--top", "0", *arguments)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def recording(perf, busy, tmp_path_factory):
    """A real system-wide recording of a mixed load."""
    path = tmp_path_factory.mktemp("recording") / "perf.data"
    load = (
        f"{busy} thread 0.3 & {busy} clock 0.2; for i in 1 2 3 4 5; do ls -R /usr/lib; done; wait"
    )
    command = [perf, "record", "-a", "-g", "-F", "999", "-e", "cpu-clock", "-o", path, "--"]
    done = subprocess.run(
        [*command, "bash", "-c", load], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"perf record is refused here: {done.stderr.strip()[-300:]}")
    return path


def perf_rows(perf, path):
    """Perf report's samples by (comm, file name, symbol), spelled as opd does."""
    # With -v it would print whole paths, and parameters of functions too.
    command = [perf, "report", "-i", path, "--stdio", "--no-children", "-g", "none"]
    command += ["--no-inline", "-F", "sample,comm,dso,sym", "-t", SEPARATOR]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = collections.Counter()
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(SEPARATOR)]
        if len(cells) < 4 or line.startswith("#"):
            continue
        samples, comm, image, where = cells[:4]
        image = image.removesuffix(" (deleted)")
        symbol = re.sub(r"^\[.\]\s+", "", where)
        if image.startswith("[kernel.kallsyms]"):
            image = "[bpf]" if symbol.startswith("bpf_prog_") else "[kernel]"
        elif image == "//anon" or re.fullmatch(r"perf-\d+\.map", image):
            image = "[anon]"
        rows[comm, image, nameless(symbol)] += int(samples)
    return rows


def nameless(symbol):
    """One word for what one of the two cannot name, else the name without its version.

    perf prints an address where opd gives a range, and calls stubs of a
    procedure linkage table nothing, or by the function before them (_init).
    """
    if symbol.startswith("0x") or "!0x" in symbol or symbol in ("[unknown]", "_init"):
        return "?"
    return "?" if symbol.endswith("@plt") else symbol.split("@")[0]


def test_the_totals_are_equal(perf, recording, tmp_path):
    """Every sample of the file is in the answer."""
    done = json.loads(opctl("--session-dir", str(tmp_path / "s"), "import", str(recording)).stdout)
    answer = report(tmp_path / "s")
    stats = subprocess.run(
        [perf, "report", "-i", recording, "--stats"], capture_output=True, text=True, check=True
    )
    samples = int(re.search(r"SAMPLE events:\s+(\d+)", stats.stdout)[1])
    assert answer["total"] == samples == done["samples"]
    assert sum(row["samples"] for row in answer["rows"]) == samples


def test_each_row_equals_perf_reports(perf, recording, tmp_path):
    """By (comm, image, symbol) the samples are perf's, but for aliases and names perf lacks."""
    opctl("--session-dir", str(tmp_path / "s"), "import", str(recording))
    differences, paths = collections.Counter(), {}
    for row in report(tmp_path / "s", "--sort", "comm,image,symbol")["rows"]:
        image = row["image"].rsplit("/", 1)[-1]
        paths[image] = row["image"]
        differences[row["comm"], image, nameless(row["symbol"])] += row["samples"]
    differences.subtract(perf_rows(perf, recording))
    by_image = collections.defaultdict(dict)
    for (comm, image, symbol), count in differences.items():
        if count:
            by_image[comm, image][symbol] = count
    for (comm, image), counts in by_image.items():
        assert sum(counts.values()) == 0, (comm, image, counts)
        values = addresses(paths[image])
        for symbol, count in counts.items():
            if symbol == "?":
                continue
            # At one address several names are right; each tool has a rule of its own.
            aliases = [name for name in counts if name == "?" or values[name] & values[symbol]]
            others = sum(counts[name] for name in aliases if name != symbol)
            assert abs(count + others) <= abs(others), (comm, image, symbol, counts)


def test_two_imports_answer_to_the_byte(recording, tmp_path):
    """The same file gives the same JSON in two stores."""
    answers = []
    for name in ("one", "two"):
        opctl("--session-dir", str(tmp_path / name), "import", str(recording))
        keys = "comm,pid,image,symbol,event,mode"
        done = opctl("--session-dir", str(tmp_path / name), "report", "--sort", keys, "--top", "0")
        answers.append(done.stdout)
    assert answers[0] == answers[1]


def test_importing_again_counts_once(recording, tmp_path):
    """The same file twice into one store is there once."""
    for _ in range(2):
        opctl("--session-dir", str(tmp_path / "s"), "import", str(recording))
    total = report(tmp_path / "s")["total"]
    opctl("--session-dir", str(tmp_path / "t"), "import", str(recording))
    assert report(tmp_path / "t")["total"] == total


def test_a_daemon_and_a_replay_answer_the_same(start_daemon, recording, tmp_path):
    """`opctl import` to a daemon, `opd --replay` and an offline import agree."""
    opctl("--session-dir", str(tmp_path / "s"), "import", str(recording))
    offline = report(tmp_path / "s", "--sort", "comm,image,symbol")["rows"]
    replay = start_daemon("--replay", str(recording))
    answer = replay.ask("report", "--sort", "comm,image,symbol", "--top", "0")
    assert answer["rows"] == offline
    assert replay.opctl("stop", check=False).returncode == 1
    assert replay.stop() == 0
    live = start_daemon()
    live.ask("import", str(recording), "--name", "yesterday")
    assert live.stop() == 0


def test_a_truncated_file_keeps_what_came_before(recording, tmp_path):
    """A cut recording is imported up to the cut, and says where that was."""
    cut = tmp_path / "cut.data"
    cut.write_bytes(recording.read_bytes()[: recording.stat().st_size // 2])
    done = opctl("--session-dir", str(tmp_path / "s"), "import", str(cut), check=False)
    assert report(tmp_path / "s")["total"] > 0
    assert "byte" in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "perf.data"),
        (b"\x7fELF" + bytes(200), "perf.data"),
        (b"PERFILE2"[::-1] + bytes(200), "byte order"),
        (b"PERFILE2" + b"\xff" * 200, ""),
    ],
    ids=["empty", "elf", "swapped", "garbage"],
)
def test_a_foreign_file_is_refused_with_a_word(tmp_path, content, word):
    """What is no recording exits 1 offline, 78 as a replay, and says why."""
    path = tmp_path / "foreign"
    path.write_bytes(content)
    done = opctl("--session-dir", str(tmp_path / "s"), "import", str(path), check=False)
    assert done.returncode == 1
    assert word in done.stderr
    assert "Traceback" not in done.stderr
    command = [BIN / "opd", "--session-dir", str(tmp_path / "r"), "--replay", str(path)]
    done = subprocess.run(
        [*command, "--endpoint", f"ipc://{tmp_path}/r.sock"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 78
    assert "Traceback" not in done.stderr


def synthetic():
    """Two events, an idle sample, an unmapped one, a nameless task and a late record."""
    data = PerfData([Attr("cpu-clock", ids=(1,)), Attr("page-faults", config=2, ids=(2,))])
    data.comm(pid=7, comm="demo", time=1000, execs=True)
    data.mmap2(pid=7, start=0x400000, length=0x1000, path="/nonexistent/demo", time=1001)
    data.sample(event=0, pid=7, ip=0x400123, time=1002, chain=[USER, 0x400123, 0x400456])
    data.sample(event=1, pid=7, ip=0x400124, time=1003, chain=[USER, 0x400124])
    data.sample(event=0, pid=0, ip=0xFFFFFFFF81000000, time=1004, chain=[KERNEL], misc=1)
    data.sample(event=0, pid=7, ip=0x10, time=1005, chain=[USER, 0x10])
    data.sample(event=0, pid=99, ip=0x400123, time=1006, chain=[USER, 0x400123])
    return data


def test_odd_samples_are_all_kept(tmp_path):
    """Idle, unmapped and nameless samples are hits; events are told apart."""
    path = synthetic().write(tmp_path / "odd.data")
    opctl("--session-dir", str(tmp_path / "s"), "import", str(path or tmp_path / "odd.data"))
    answer = report(tmp_path / "s", "--sort", "comm,pid,image,symbol,event,mode")
    by_comm = {(row["comm"], row["event"], row["image"]): row for row in answer["rows"]}
    assert by_comm["swapper", "cpu-clock", "[kernel]"]["mode"] == "kernel"
    assert by_comm["demo", "cpu-clock", "[unknown]"]["symbol"] == "[unknown]"
    assert by_comm[":99", "cpu-clock", "[unknown]"]["pid"] == 99
    assert by_comm["demo", "cpu-clock", "/nonexistent/demo"]["samples"] == 1
    faults = report(tmp_path / "s", "-e", "page-faults")
    assert faults["total"] == 1
    assert faults["quality"]["frames"] == {"named": 0, "ranges": 0, "unknown": 1}
    assert faults["quality"]["degraded"]["no_mapping"] == 0
    assert faults["event"] == "page-faults"
    assert answer["quality"]["degraded"]["no_mapping"] == 2


def test_cgroups_of_a_recording_are_those_of_its_records(tmp_path):
    """An id counts to the path that a record told, before it or between; others are unknown."""
    container = "c0" * 32
    data = PerfData([Attr("cpu-clock", ids=(1,), sample_type=DEFAULT_SAMPLE_TYPE | CGROUP)])
    data.cgroup(id_=1, path="/")
    data.cgroup(id_=20, path=f"/docker/{container}")
    data.comm(pid=7, comm="demo", time=1000, execs=True)
    data.sample(pid=7, ip=0x400123, time=1001, cgroup=1)
    data.sample(pid=7, ip=0x400123, time=1002, cgroup=20)
    data.sample(pid=7, ip=0x400123, time=1003, cgroup=30)
    data.cgroup(id_=30, path="/system.slice/late.service", time=1004)
    data.sample(pid=8, ip=0x400123, time=1005, cgroup=30)
    data.write(tmp_path / "cgroups.data")
    opctl("--session-dir", str(tmp_path / "s"), "import", str(tmp_path / "cgroups.data"))
    answer = report(tmp_path / "s", "--sort", "pid,unit,container")
    found = {(row["pid"], row["unit"], row["container"]): row["samples"] for row in answer["rows"]}
    assert found == {
        (7, "[none]", "[none]"): 1,
        (7, "[none]", container): 1,
        (7, "[unknown]", "[unknown]"): 1,
        (8, "late.service", "[none]"): 1,
    }
    assert answer["quality"]["labels"] == {"exact": 3, "read": 0, "inherited": 0, "unknown": 1}


def test_an_event_without_hits_is_an_answer(tmp_path):
    """No hits: exit 0 and total 0. No such event: exit 2 and the valid ones."""
    data = PerfData([Attr("cpu-clock", ids=(1,)), Attr("page-faults", config=2, ids=(2,))])
    data.sample(event=0, pid=7, ip=0x400123, time=1002, chain=[USER, 0x400123])
    data.write(tmp_path / "one.data")
    opctl("--session-dir", str(tmp_path / "s"), "import", str(tmp_path / "one.data"))
    answer = report(tmp_path / "s", "-e", "page-faults")
    assert answer["total"] == 0
    assert answer["rows"] == []
    done = opctl("--session-dir", str(tmp_path / "s"), "report", "-e", "page-fault", check=False)
    assert done.returncode == 2
    assert "page-faults" in done.stderr
