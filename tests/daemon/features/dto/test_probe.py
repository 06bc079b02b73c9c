"""The probe dto: options, what is refused, margins and amounts, results with verdicts."""

import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dto_libraries import compiled, source
from opd.errors import OperationFailedError, UsageError
from opd.features.dto import cells, frequency, modes
from opd.features.dto.implementations import open_pair, sources_of
from opd.features.dto.options import DtoOptions
from opd.probes import running
from opd.probes.jobs import Control, measure_all
from opd.probes.local import LocalKeeper
from opd.probes.running import Limits
from opd.store.queries import open_reader
from opd_native.dto import Pages, Round

QUICK = "rounds=3,iterations=250,looks=1,warmup=5"


def measured(text, tmp_path):
    """Give the kept runs of a text of options."""
    keeper = LocalKeeper(str(tmp_path))
    measure_all(running.plan("dto", text), "asked", keeper, Control(lambda: "", lambda *_: None))
    keeper.close()
    with open_reader(tmp_path) as reader:
        return reader.probe_runs(), {
            run.id: reader.probe_samples(run.id) for run in reader.probe_runs()
        }


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("op=memfill", UsageError, "memcpy or memmove"),
        ("op=memcp", UsageError, "memcpy or memmove"),
        ("size=0", UsageError, "size"),
        ("size=big", UsageError, "size"),
        ("size=900g", OperationFailedError, "leaves"),
        ("mode=gpu", UsageError, "cpu or stdc"),
        ("current=avx3", UsageError, "there are: libc avx512"),
        ("current=/no/such/lib.so", UsageError, "/no/such/lib.so"),
        ("current=nt,op=memcmp", UsageError, "nt has no memcmp"),
        ("overlap=64", UsageError, "only memmove"),
        ("op=memmove,overlap=64,source_offset=1", UsageError, "overlap and offsets"),
        ("perf_cpu=4000", UsageError, "CPU 4000 is not there or not allowed"),
        ("cpus=0,perf_cpu=1", UsageError, "allowed: 0"),
        ("pf=101", UsageError, "pf"),
        ("perf_iters=-1", UsageError, "perf_iters"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_measured(text, kind, words):
    """Unknown words, sizes, CPUs and functions are told with what there is."""
    with pytest.raises(kind, match=words):
        running.plan("dto", text)


def test_options_left_out_have_the_defaults_of_the_contract():
    """mode=cpu,page=4k,cold=0,pf=0, libc against libc."""
    (parameters,) = running.plan("dto", "").parameters
    fixed = {"op": "memcpy", "size": 65536, "mode": "cpu", "page": "4k", "cold": False, "pf": 0}
    both = {"baseline": "libc", "current": "libc", "inject": 0.0}
    assert {**parameters, **fixed, **both} == parameters
    assert len(running.plan("dto", "op=memcpy+memset,size=4k+64k,cold=0+1").parameters) == 8


def test_a_cell_is_measured_and_judged(tmp_path):
    """Contract metrics, raw samples with order and fork, facts, gate and verdict are kept."""
    (run,), samples = measured(f"size=16k,cold=1,{QUICK}", tmp_path)
    assert run.void is None
    names = [metric["name"] for metric in run.metrics]
    assert names == ["baseline_ns", "current_ns", "change_percent", "ratio"]
    assert run.verdict["result"] in ("OK", "UNDECIDED", "INVALID", "REGRESSED")
    assert (run.verdict["metric"], run.verdict["gating"]) == ("ratio", True)
    assert (run.verdict["n"], run.verdict["processes"]) == (3, 3)
    assert run.verdict["null_low"] is not None
    kept = {(one.metric, one.worker): one for one in samples[run.id]}
    for key in (("baseline_ns", -1), ("baseline_ns", 1), ("current_ns", -1), ("current_ns", 1)):
        assert list(kept[key].repeats) == [r for r in range(3) for _ in range(250)]
        assert min(kept[key].values) > 0
    orders = kept["order", 0].values
    assert len(orders) == 750
    assert set(orders) <= set(range(24))
    assert len(set(orders)) == 24
    cell = run.details["cell"]
    assert (cell["rounds"], cell["iterations"], cell["block"]) == (3, 250, 250)
    assert cell["iterations_in_all"] == 750
    gate = run.details["gate"]
    assert gate["result"] == ("FAIL" if gate["change_percent"] > 2 else "PASS")
    assert run.details["implementations"]["current"]["name"] == "libc"
    assert run.details["stats"]["verdict"] == run.verdict["result"]


def test_work_that_is_injected_is_found_and_its_true_size_told(tmp_path):
    """inject=60: REGRESSED, by about what was added; the wrong way round it is OK."""
    (run,), _samples = measured("size=16k,inject=60,rounds=10,iterations=500", tmp_path)
    assert run.verdict["result"] == "REGRESSED"
    told = run.details["inject"]
    assert told["asked_percent"] == 60
    assert 30 < told["added_percent"] < 120
    assert run.verdict["change_percent"] == pytest.approx(told["added_percent"], rel=0.5)
    assert any("longer" in note for note in run.notes)


def test_a_sweep_of_everything_small(tmp_path):
    """Each operation and kind of memory comes to a verdict; pf takes its faults."""
    text = f"op=memcpy+memmove+memset+memcmp,size=64+70000,pf=0+50,{QUICK}"
    runs, _samples = measured(text, tmp_path)
    assert len(runs) == 16
    assert [run.void for run in runs] == [None] * 16
    for run in runs:
        cell = run.details["cell"]
        assert (cell["drops"] > 0) == (run.parameters["pf"] == 50)
        assert cell["faults"] >= cell["drops"]
        assert run.verdict["family"] <= 16


def test_overlap_and_offsets(tmp_path):
    """A move within one buffer, either way, and buffers that begin anywhere."""
    runs, _ = measured(f"op=memmove,size=5000,overlap=100+-100,current=sse2,{QUICK}", tmp_path)
    assert [run.void for run in runs] == [None, None]
    more = f"source_offset=4095,destination_offset=1,size=5000,current=rep-movsb,{QUICK}"
    runs, _ = measured(more, tmp_path)
    assert runs[-1].void is None


def test_margins_go_with_size_effect_and_layouts():
    """1.5 % for small, 0.5 % for large operations; 8 layouts are as good as size."""
    assert cells.margins_of(64, 2.0).low == pytest.approx(0.015)
    assert cells.margins_of(1 << 20, 2.0).low == pytest.approx(0.005)
    assert cells.margins_of(64, 2.0, layouts=8).low == pytest.approx(0.005)
    relaxed = cells.margins_of(1 << 20, 5.0)
    assert (relaxed.low, relaxed.high) == (pytest.approx(0.0125), 0.05)


def pilot(each_ns, ticks=10_000):
    """Give a pilot round whose iterations take so long."""
    from array import array

    filled = array("Q", range(ticks, ticks + 80) if ticks else [10_000, 10_024] * 40)
    return Round(filled, b"", 20, 1, 0, 0, 0, 0, 0, int(20 * each_ns), 0.0)


def amount(text, each_ns=80_000, quantum=1, layouts=1, ticks=10_000):
    """Give what is measured for these options."""
    (parameters,) = running.plan("dto", text).parameters
    options = DtoOptions(**{k: tuple(v) if k == "cpus" else v for k, v in parameters.items()})
    return cells.amount_of(options, pilot(each_ns, ticks), quantum, layouts)


def test_how_much_is_measured():
    """Rounds of 25 ms in whole blocks; the seed's own variables are exact; long ones are short."""
    assert amount("") == (10, 250, 4, 250, False)
    assert amount("", each_ns=20_000).iterations == 1250
    assert amount("", each_ns=10).iterations == 10_000
    assert amount("", each_ns=40_000_000)[1:4:2] == (12, 12)
    assert amount("perf_ab_rounds=3,perf_iters=20000")[:3] == (3, 10_000, 1)
    assert amount("perf_short=1")[:3] == (1, 100, 1)
    assert amount("", layouts=8).rounds == 16
    assert amount("", quantum=34).mean
    assert amount("", ticks=0).mean  # few values that repeat
    assert amount("pf=50").mean
    assert not amount("pf=100").mean
    assert amount("rounds=2,iterations=250").mean  # medians of two blocks may be equal
    assert not amount("rounds=2,iterations=1000").mean


def test_the_seeds_cold_cache_variable_goes_before_cold():
    """perf_cold_cache says, where it is given."""
    assert DtoOptions(cold=True).is_cold
    assert not DtoOptions(cold=True, perf_cold_cache=0).is_cold
    assert DtoOptions(perf_cold_cache=1).is_cold


def test_the_cpu_is_1_else_the_first_allowed():
    """As the seed has it, and within what is allowed."""
    assert cells.cpu_of(DtoOptions(), (0, 1, 2)) == 1
    assert cells.cpu_of(DtoOptions(), (4, 5)) == 4
    assert cells.cpu_of(DtoOptions(perf_cpu=5), (4, 5)) == 5
    with pytest.raises(UsageError, match="allowed: 4-5"):
        cells.cpu_of(DtoOptions(perf_cpu=1), (4, 5))


def test_pages_of_2_mib_are_those_there_are(monkeypatch):
    """Reserved pages where there are, else transparent ones, else a refusal with both remedies."""
    from opd.features.pft import machine

    options = DtoOptions(page="2m")
    monkeypatch.setattr(machine, "check_huge", lambda *_: None)
    assert cells.pages_of(options) is Pages.HUGETLB_2M
    assert cells.pages_of(DtoOptions()) is Pages.BASE

    def none(*_):
        raise OperationFailedError("it takes 2, and 0 are free", hint="reserve them")

    monkeypatch.setattr(machine, "check_huge", none)
    monkeypatch.setattr(cells, "_shmem_setting", lambda: "advise")
    assert cells.pages_of(options) is Pages.THP
    monkeypatch.setattr(cells, "_shmem_setting", lambda: "never")
    with pytest.raises(OperationFailedError, match=r"0 are free.*shared memory are off"):
        cells.pages_of(options)


def test_a_library_is_told_its_mode():
    """By the variables that it reads."""
    assert modes.ENVIRONMENT["stdc"] == {"DTO_USESTDC_CALLS": "1"}
    assert modes.ENVIRONMENT["dsa"]["DTO_AUTO_ADJUST_KNOBS"] == "0"


def test_implementations_by_name():
    """By name: the C library, and the kernels that this CPU has."""
    pair = open_pair(sources_of(DtoOptions(current="sse2")), ["memcpy"])
    first, second = pair.functions(0)
    assert first.addresses[0] != second.addresses[0]
    assert pair.details()["current"]["name"] == "sse2"
    pair.close()


def sysfs(root):
    """Make a CPU whose frequency can be held still."""
    cpu = root / "devices/system/cpu/cpu1"
    for place, values in {
        cpu / "cpufreq": {
            "scaling_min_freq": 800_000,
            "scaling_max_freq": 3_500_000,
            "cpuinfo_min_freq": 800_000,
            "cpuinfo_max_freq": 3_500_000,
        },
        cpu / "topology": {"physical_package_id": 0},
        cpu.parent / "intel_uncore_frequency/package_00_die_00": {
            "min_freq_khz": 800_000,
            "max_freq_khz": 2_400_000,
            "initial_min_freq_khz": 800_000,
            "initial_max_freq_khz": 2_400_000,
        },
    }.items():
        place.mkdir(parents=True)
        for name, value in values.items():
            (place / name).write_text(f"{value}\n")
    return cpu


def test_frequencies_are_held_and_put_back(tmp_path):
    """Both files of the core and of the uncore, within their limits; said what was done."""
    cpu = sysfs(tmp_path)
    asked = frequency.wanted(1, 2000, 3000, tmp_path)
    assert [Path(path).name for path, _value in asked.settings] == [
        *("scaling_max_freq", "scaling_min_freq", "max_freq_khz", "min_freq_khz"),
    ]
    assert asked.notes == [
        "uncore frequency pinned at 2400 MHz: 3000 MHz is beyond 800 to 2400",
    ]
    notes = []
    held = frequency.hold(asked, notes.append)
    place = cpu / "cpufreq"
    assert [(place / f"scaling_{n}_freq").read_text() for n in ("min", "max")] == ["2000000"] * 2
    held.release()
    held.release()
    assert (place / "scaling_min_freq").read_text().strip() == "800000"
    assert (place / "scaling_max_freq").read_text().strip() == "3500000"
    assert notes[-1].startswith("pinned: scaling_max_freq=2000000")


def test_frequencies_that_cannot_be_held_are_said(tmp_path):
    """No cpufreq, no uncore driver: a note each, nothing to put back."""
    asked = frequency.wanted(0, 2000, 2000, tmp_path)
    notes = []
    assert frequency.hold(asked, notes.append) is None
    assert notes == [
        "core frequency not pinned: CPU 0 has no cpufreq here",
        "uncore frequency not pinned: no driver for it here",
    ]
    assert frequency.wanted(0, 0, 0, tmp_path) == ([], [])


def test_the_frequency_is_put_back_when_the_probe_is_killed(tmp_path):
    """SIGKILL to its whole group: the guard is outside of it."""
    cpu = sysfs(tmp_path)
    place = cpu / "cpufreq/scaling_max_freq"
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from opd.features.dto import frequency\n"
        "asked = frequency.wanted(1, 2000, 0, Path(sys.argv[1]))\n"
        "frequency.hold(asked, print)\n"
        "print(Path(sys.argv[2]).read_text(), flush=True)\n"
        "os.killpg(0, signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), str(place)],
        capture_output=True,
        text=True,
        process_group=0,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert "2000000" in done.stdout
    until = time.monotonic() + 30
    while place.read_text().strip() != "3500000":
        assert time.monotonic() < until
        time.sleep(0.02)


def is_orphan(stat):
    """Tell whether it is a probe's process that nobody waits for."""
    try:
        text = stat.read_text()
    except OSError:
        return False
    return "(opd-probe)" in text and text.rpartition(")")[2].split()[1] == "1"


def test_a_library_that_goes_wrong_after_many_calls_is_void(tmp_path):
    """The end of a round sees it, and the byte is told."""
    text = source(before="static int calls;", in_copy="if (++calls > 200 && n) n--;")
    library = compiled(tmp_path, "libx", text)
    (parameters,) = running.plan("dto", f"size=4k,current={library},{QUICK}").parameters
    outcome = running.measure("dto", [parameters], limits=Limits(seconds=60.0))
    assert "current: byte 4095 of 4096 after memcpy is" in outcome.void


def test_a_probe_that_hangs_or_is_killed_is_void():
    """The time limit ends it with its round's process."""
    (parameters,) = running.plan("dto", "rounds=1000,iterations=10000,size=1m").parameters
    outcome = running.measure("dto", [parameters], limits=Limits(seconds=2.0))
    assert "time limit, 2 s" in outcome.void
    assert math.isfinite(outcome.ended_ns)
    until = time.monotonic() + 20
    while any(map(is_orphan, Path("/proc").glob("[0-9]*/stat"))):  # killed, and not reaped yet
        assert time.monotonic() < until
        time.sleep(0.05)


def test_the_exit_status_is_the_verdicts(tmp_path, capfd):
    """Of opctl probe run dto: 3 when it is REGRESSED, and the verdict in the JSON."""
    from opd.cli.opctl import main

    words = ["--session-dir", str(tmp_path), "--format", "json", "probe", "run", "dto"]
    assert main([*words, "size=16k,inject=60,rounds=10,iterations=500"]) == 3
    assert json.loads(capfd.readouterr().out)["verdict"]["result"] == "REGRESSED"
    assert main([*words, f"size=16k,inject=60,reference=1,{QUICK}"]) == 0
    assert main([*words, "size=16k,size=64k"]) == 2
    assert "size is given twice" in capfd.readouterr().err


def test_files_that_cannot_be_written_are_refused_before_anything_runs(tmp_path, capfd):
    """A place that is none, and a probe that writes none."""
    from opd.cli.opctl import main

    (tmp_path / "file").touch()
    words = ["--session-dir", str(tmp_path / "s"), "probe", "run"]
    assert main([*words, "dto", f"results_dir={tmp_path}/file"]) == 2
    assert f"{tmp_path}/file: File exists" in capfd.readouterr().err
    assert main([*words, "calibrate", f"results_dir={tmp_path}/out"]) == 2
    assert "probe calibrate writes no files" in capfd.readouterr().err
    assert not (tmp_path / "s").exists()
