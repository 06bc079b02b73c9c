"""The page-fault probe: its options, what it refuses, what it tells, its columns."""

from __future__ import annotations

import os
import time

import msgspec
import pytest

from measured import Measured, measured
from opd.errors import ConfigError, OperationFailedError, UsageError
from opd.features.arguments import parse_pairs
from opd.features.declared import Feature
from opd.features.options import read_options, texts
from opd.features.pft import machine, nodes, remarks
from opd.features.pft.hooks import METRICS, PFT
from opd.features.pft.kinds import IN_KERNEL, ONE_EACH
from opd.features.pft.measure import fault_test, quantile_of
from opd.features.pft.options import PftOptions
from opd.features.pft.original import HEADER, as_agr, as_pft
from opd.probes.measuring import Measuring, VoidRunError
from opd_native.pft import FaultRunError

PAGE = os.sysconf("SC_PAGESIZE")
SMALL = 2 << 20


def run(options: PftOptions) -> Measured:
    """Measure here; samples of the whole by metric, details and notes."""
    return measured(PFT, options)


def read(text: str) -> PftOptions:
    """Options from text, as the command line gives them."""
    feature = Feature(name="pft", summary="", options=PftOptions)
    pairs = {one.key: one for one in parse_pairs(text, "probe pft")}
    options = read_options(feature, texts(tuple(pairs.values())))
    assert isinstance(options, PftOptions)
    return options


def test_what_is_measured_is_told():
    """Rates by measured faults and by pages agree where a page is a fault."""
    values, details, notes = run(PftOptions(memory=SMALL, repeats=3))
    pages = SMALL // PAGE
    assert values["pages"] == [pages] * 3
    assert values["faults_measured"] == [pages] * 3
    assert values["faults_per_cpu_second"] == values["pages_per_cpu_second"]
    for rate, ns in zip(values["faults_per_cpu_second"], values["ns_per_fault"], strict=True):
        assert rate * ns == pytest.approx(1e9)
    assert len(details["repeats"]) == 3
    assert sum(details["latency"]["pages"]) == pages
    assert values["latency_p50_ns"][0] <= values["latency_p99_ns"][0]
    assert not [note for note in notes if "expected" in note or "kernel's" in note]
    if "fault_count" in details:
        assert details["fault_count"]["kernel_event"] == details["fault_count"]["measured"]


@pytest.mark.parametrize("kind", sorted(ONE_EACH))
def test_kinds_with_a_fault_for_each_page(kind, tmp_path):
    """Each kind that is said to take one fault a page takes one."""
    options = PftOptions(kind=kind, memory=SMALL, repeats=1, warmup=1, directory=str(tmp_path))
    try:
        values, _details, notes = run(options)
    except VoidRunError as error:
        # userfaultfd is not for everybody, nor is memory to be locked.
        assert kind.startswith(("userfaultfd", "mlock"))
        pytest.skip(error.message)
    assert values["faults_measured"] == [SMALL // PAGE]
    assert not [note for note in notes if "expected" in note]


@pytest.mark.parametrize("kind", ["file", "file_write", "fault_around"])
def test_kinds_with_several_pages_a_fault_have_both_rates(kind, tmp_path):
    """Fewer faults than pages are named as such, and never counted as pages."""
    values, _details, _notes = run(
        PftOptions(kind=kind, memory=SMALL, repeats=1, directory=str(tmp_path))
    )
    assert 0 < values["faults_measured"][0] <= SMALL // PAGE
    ratio = values["pages_per_cpu_second"][0] / values["faults_per_cpu_second"][0]
    assert ratio == pytest.approx(SMALL // PAGE / values["faults_measured"][0])


@pytest.mark.parametrize("kind", sorted(IN_KERNEL - {"collapse"}))
def test_kinds_that_are_one_call(kind):
    """Populating is one call: no latencies, and it says so."""
    try:
        values, _details, notes = run(PftOptions(kind=kind, memory=SMALL, repeats=1))
    except VoidRunError as error:
        pytest.skip(error.message)  # RLIMIT_MEMLOCK, or a kernel before 5.14
    assert values["faults_measured"] == [0 if kind == "dontneed" else SMALL // PAGE]
    assert "latency_p50_ns" not in values
    assert any("one call" in note for note in notes)


def test_workers_divide_the_memory():
    """Memory in total is rounded up to a page a worker; memory_each is each one's."""
    assert PftOptions(memory=PAGE, threads=3).pages_each(PAGE) == 1
    assert PftOptions(memory=10 * PAGE, threads=3).pages_each(PAGE) == 4
    assert PftOptions(memory_each=PAGE + 1, processes=3).pages_each(PAGE) == 2
    values, _details, _notes = run(PftOptions(memory_each=SMALL, processes=2, repeats=1))
    assert values["pages"] == [2 * SMALL // PAGE]


def test_usage_of_the_whole_process_counts_each_fault_once():
    """With RUSAGE_SELF the last worker's counts hold the others' too."""
    values, _details, _notes = run(
        PftOptions(memory=2 * SMALL, threads=2, rusage="self", repeats=1, latency=False)
    )
    assert values["faults_measured"][0] <= 2 * SMALL // PAGE * 1.1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("memory=0", "memory: expected a size"),
        ("memory=4kb2", "memory: expected a size"),
        ("memory=99999999999999999999g", "no machine has so much"),
        ("memory=1m,memory_each=1m", "give one of them"),
        ("memory=256m,memory_each=1m", "memory and memory_each: give one"),
        ("threads=2,processes=2", "one or the other"),
        ("threads=1,processes=2", "threads and processes: give one of them"),
        ("cachelines=1,clear=true", "cachelines=1 and clear=true"),
        ("node=0,nodes=0,policy=bind", "give one of them"),
        ("threads=100000", "from 1 to 16384"),
        ("cachelines=0", "from 1"),
        ("line=3", "no power of two"),
        ("clear=true,cachelines=2", "all its lines"),
        ("mlock=true,kind=file", "no write"),
        ("shm_lock=true", "needs kind=shm"),
        ("policy=bind", "needs nodes"),
        ("nodes=0", "not none"),
        ("policy=preferred,nodes=0+1", "takes one node"),
        ("policy=bind,nodes=9999", "0 to 1023"),
        ("noclear=true", "kernel patched"),
        ("repeats=100000", "at most 80659"),
        ("cpu_offset=99999999999999999999999", "more than 64 bits"),
        ("folio=64k", "folio needs kind=mthp"),
        ("policy=weighted_interleave", "needs nodes"),
        ("cpu_node=0,pin=false", "does not go with pin=false"),
        ("cpu_node=4096", "from -1 to 1023"),
        ("pause=-1", "from 0"),
        ("kind=anno", "kind: expected anon or"),
        ("thread=2", "did you mean threads"),
    ],
)
def test_wrong_options_are_refused(text, words):
    """With the wrong token and what would be right."""
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert words in caught.value.message


def test_what_the_machine_lacks_is_refused(tmp_path):
    """Before anything runs, with what is there instead."""
    with pytest.raises(UsageError, match="there are: 0"):
        PFT.needs(PftOptions(policy="bind", nodes=(1000,)))
    with pytest.raises(UsageError, match="64 lines"):
        PFT.needs(PftOptions(cachelines=65, line=64))
    with pytest.raises(UsageError, match="no such directory"):
        PFT.needs(PftOptions(kind="file", directory=str(tmp_path / "none")))
    place = tmp_path / "kernel/mm/hugepages/hugepages-2048kB"
    place.mkdir(parents=True)
    (place / "free_hugepages").write_text("3\n")
    (place / "nr_overcommit_hugepages").write_text("1\n")
    machine.check_huge(2048, 8 << 20, tmp_path)
    with pytest.raises(OperationFailedError, match="takes 5 hugetlb pages of 2048 KiB, and 3"):
        machine.check_huge(2048, (8 << 20) + 1, tmp_path)
    with pytest.raises(OperationFailedError, match="no hugetlb pages of 1048576 KiB"):
        machine.check_huge(1 << 20, 1, tmp_path)
    setting = tmp_path / "kernel/mm/transparent_hugepage"
    setting.mkdir()
    (setting / "enabled").write_text("always madvise [never]\n")
    with pytest.raises(OperationFailedError, match=r"off here \(never\)"):
        machine.check_thp(tmp_path)


def folios(sys, **enabled):
    """Lay out what sysfs says of large folios; the system itself by ``system``."""
    place = sys / "kernel/mm/transparent_hugepage"
    place.mkdir(parents=True, exist_ok=True)
    (place / "hpage_pmd_size").write_text("2097152\n")
    (place / "enabled").write_text(f"always [{enabled.pop('system', 'madvise')}] never\n")
    for kib, word in {"k64": "never", "k256": "never", "k2048": "inherit", **enabled}.items():
        folder = place / f"hugepages-{kib[1:]}kB"
        folder.mkdir(exist_ok=True)
        words = ["always", "inherit", "madvise", "never"]
        text = " ".join(f"[{one}]" if one == word else one for one in words)
        (folder / "enabled").write_text(text + "\n")


def test_large_folios_are_those_that_are_enabled(tmp_path):
    """The kernel takes the largest: what is off, hidden or unknown is refused with a remedy."""
    folios(tmp_path)
    with pytest.raises(OperationFailedError, match="large folios are off") as caught:
        machine.check_folio(0, tmp_path)
    assert "hugepages-64kB/enabled" in (caught.value.hint or "")
    folios(tmp_path, k64="madvise")
    assert machine.check_folio(0, tmp_path) == 64 << 10
    assert machine.check_folio(64 << 10, tmp_path) == 64 << 10
    with pytest.raises(OperationFailedError, match="256 KiB are off here; enabled: 64k"):
        machine.check_folio(256 << 10, tmp_path)
    with pytest.raises(UsageError, match="there are: 64k 256k"):
        machine.check_folio(100, tmp_path)
    folios(tmp_path, k64="always", k256="inherit")
    with pytest.raises(OperationFailedError, match="256 KiB are enabled too") as caught:
        machine.check_folio(64 << 10, tmp_path)
    assert "echo never" in (caught.value.hint or "")
    folios(tmp_path, k64="always", k256="inherit", system="never")
    assert machine.check_folio(0, tmp_path) == 64 << 10
    with pytest.raises(UsageError, match="there are: none"):
        machine.check_folio(64 << 10, tmp_path / "kernel")


def test_shared_huge_pages_need_the_systems_leave(tmp_path):
    """Shmem has a setting of its own."""
    folios(tmp_path)
    place = tmp_path / "kernel/mm/transparent_hugepage/shmem_enabled"
    place.write_text("always within_size [advise] never deny force\n")
    machine.check_shmem_thp(tmp_path)
    place.write_text("always within_size advise [never] deny force\n")
    with pytest.raises(OperationFailedError, match=r"shared memory here \(never\)"):
        machine.check_shmem_thp(tmp_path)


def test_large_folios_where_this_machine_has_them():
    """Far fewer faults than pages, and how much came so is told; else it is refused."""
    options = PftOptions(kind="mthp", memory=SMALL, repeats=1)
    try:
        PFT.needs(options)
    except OperationFailedError as error:
        assert "off here" in error.message  # noqa: PT017 - either way is right
        return
    values, details, _notes = run(options)
    assert values["faults_measured"][0] < SMALL // PAGE / 3
    assert details["folios"]["share_of_memory"] > 0.5


def nodes_at(sys, **cpus):
    """Lay out nodes with CPUs; each has memory."""
    for node, text in cpus.items():
        place = sys / "devices/system/node" / node
        place.mkdir(parents=True)
        (place / "cpulist").write_text(text + "\n")
        (place / "meminfo").write_text("Node 0 MemTotal:       1024 kB\n")


def test_cpus_of_a_node_are_those_that_are_allowed_too(tmp_path):
    """A node without any is refused, with those that have some."""
    nodes_at(tmp_path, node0="0-3", node1="4-7", node2="")
    assert nodes.cpus_on(1, [2, 3, 4, 5], tmp_path) == [4, 5]
    assert nodes.memory_nodes(tmp_path) == [0, 1, 2]
    nodes.check_cpu_node(-1, [9], tmp_path)
    for node in (2, 3):
        with pytest.raises(UsageError, match=f"cpu_node={node}") as caught:
            nodes.check_cpu_node(node, [1, 4], tmp_path)
        assert caught.value.hint == "there are: 0 1"
    assert nodes.cpus_on(0, [1, 2], tmp_path / "none") == [1, 2]


def test_where_pages_lie_is_kept_and_a_policy_that_failed_is_told():
    """The lines of numa_maps, pages by node; strict policies are checked."""
    values, details, notes = run(PftOptions(memory=SMALL, repeats=2, numa=True, latency=False))
    if "numa_maps" in details:
        assert sum(details["numa_maps"]["pages_by_node"].values()) == values["pages"][0]
    else:
        assert any("numa_maps" in note for note in notes)
    said: list[str] = []
    sent = Measuring(METRICS, (0,), lambda message: said.append(getattr(message, "text", "")))
    lines = ["7f00 bind:1 anon=5 N0=2 N1=3 kernelpagesize_kB=4"]
    remarks.remark_nodes(PftOptions(policy="bind", nodes=(1,)), lines, sent)
    assert "pages beyond the nodes of policy=bind: {0: 2}" in said


@pytest.mark.parametrize(
    ("fifo", "still", "told"), [(5, 0.05, True), (5, 0.001, False), (0, 0.05, False)]
)
def test_a_worker_at_fifo_that_stood_still_is_told(fifo, still, told):
    """The kernel throttles real-time tasks without a word; a wall rate has it in it."""
    said: list[str] = []
    sent = Measuring(METRICS, (0,), lambda message: said.append(getattr(message, "text", "")))
    rows = [{"still_seconds": 0.0}, {"still_seconds": still}]
    remarks.remark_still(PftOptions(fifo=fifo), rows, sent)
    assert any("in 1 of 2 repeats" in text and "50 ms" in text for text in said) == told


def test_memory_stays_for_somebody_to_look():
    """Pause holds the last repeat's memory, beside all times."""
    before = time.monotonic()
    values, _details, _notes = run(PftOptions(memory=SMALL, repeats=2, pause=0.3, latency=False))
    assert time.monotonic() - before >= 0.3
    assert all(2 * SMALL / PAGE / rate < 0.3 for rate in values["pages_per_wall_second"])


def test_stats_say_what_the_last_run_was():
    """Options that were changed, faults by pages: what opctl stats pft shows."""
    _values, details, _notes = run(PftOptions(memory=SMALL, repeats=2, threads=2, latency=False))
    own = details["stats"]
    assert own["last_options"] == f"memory={SMALL},threads=2,repeats=2,latency=false"
    assert own["last_faults"] == 2 * SMALL // PAGE
    assert own["last_faults_per_page"] == 1.0


def test_swap_that_is_not_there_is_refused(tmp_path):
    """None at all, or too little of it."""
    header = "Filename Type Size Used Priority\n"
    (tmp_path / "swaps").write_text(header)
    (tmp_path / "meminfo").write_text("SwapTotal: 100 kB\nSwapFree: 64 kB\n")
    with pytest.raises(OperationFailedError, match="no swap"):
        machine.check_swap(4096, tmp_path)
    (tmp_path / "swaps").write_text(header + "/swap file 100 36 -2\n")
    machine.check_swap(64 << 10, tmp_path)
    with pytest.raises(OperationFailedError, match="65537 bytes, and 65536 of swap are free"):
        machine.check_swap((64 << 10) + 1, tmp_path)


def test_processes_map_pages_of_hugetlb_themselves():
    """The kernel reserves them for who maps them: a child would find none."""
    for options, expected in (
        (PftOptions(kind="hugetlb_2m", processes=2), 0),
        (PftOptions(kind="hugetlb_2m", threads=2), None),
    ):
        try:
            repeat = fault_test(options, (0,), pages_each=512).repeat()
        except FaultRunError as error:
            assert "hugetlb" in str(error)  # noqa: PT017 - none are reserved here
            continue
        # Memory that workers map themselves is not unmapped in one piece.
        assert (repeat.unmap_ns == 0) == (expected == 0)


def test_needs_count_copies_and_locks():
    """A copied page takes two; locked memory is told."""
    assert PFT.needs(PftOptions(kind="fork_cow", memory=SMALL)).memory_bytes == 2 * SMALL
    need = PFT.needs(PftOptions(memory=SMALL, shm_lock=True, kind="shm", threads=2))
    assert (need.locked_bytes, need.threads) == (SMALL, 2)
    for kind, threads, locked in (("userfaultfd_wp", 2, 0), ("mlock_onfault", 1, SMALL)):
        try:
            need = PFT.needs(PftOptions(memory=SMALL, kind=kind))
        except OperationFailedError as error:
            pytest.skip(error.message)
        assert (need.threads, need.locked_bytes) == (threads, locked)


def test_what_fails_in_a_run_voids_it(tmp_path):
    """A run that cannot be finished has a reason and no rate."""
    with pytest.raises(VoidRunError, match="making a file"):
        run(PftOptions(kind="file", memory=SMALL, directory=str(tmp_path / "gone")))


def test_quantiles_lie_in_their_bins():
    """Half of the pages in one bin: the median is inside it."""
    bins = [0] * 1920
    bins[20], bins[64] = 1, 3
    assert 64 <= quantile_of(bins, 0.5) <= 66
    assert quantile_of(bins, 0.25) == 21


def result(**parameters: object) -> dict[str, object]:
    """A result as opctl has it."""
    names = {
        "faults_per_cpu_second": 600000.25,
        "faults_per_wall_second": 1200000.5,
        "pages": 65536,
    }
    rows = [{"user_seconds": 0.01, "system_seconds": 0.2, "wall_seconds": 0.11}] * 4
    return {
        "parameters": msgspec.to_builtins(PftOptions(**parameters)),
        "metrics": [{"name": name, "median": value} for name, value in names.items()],
        "details": {"repeats": rows},
        "void": None,
    }


def test_the_columns_are_pfts():
    """Header, marks once, a line a result; GiB with decimals; void ones are no rate."""
    void = result(threads=4, tag="x", title="T") | {"void": "worker 1 was killed"}
    text = as_pft([result(tag="x", title="T"), result(threads=2, tag="x", title="T"), void])
    lines = text.splitlines()
    assert lines[:3] == ["TITLE T", "TAG pft:anon-sys-default:x", HEADER]
    assert lines[3].split() == [
        "0.250", "4", "1", "1", "0.01s", "0.20s", "0.11s", "600000.250", "1200000.500"
    ]  # fmt: skip
    assert lines[4].split()[2] == "2"
    assert lines[5] == "# void: worker 1 was killed"
    assert len(lines) == 6
    two_lines = as_pft([result(tag="a\nb", title="c\r\nd")]).splitlines()
    assert two_lines[:2] == ["TITLE c d", "TAG pft:anon-sys-default:a b"]
    assert "TAG pft:anon-sys-default:?[31m" in as_pft([result(tag="\x1b[31m")])
    series = as_pft([result(legend="a"), result(legend="b", plotid="7")]).splitlines()
    assert series[:2] == ["LEGEND a", HEADER]
    assert series[3:6] == ["", "PLOTID 7", "LEGEND b"]
    cleared = as_pft([result(clear=True, line=64, mlock=False)]).splitlines()[1]
    assert cleared.split()[3] == str(PAGE // 64)


def test_sweeps_as_xmgrace_reads_them():
    """A set a kind of run, a point a number of workers."""
    text = as_agr([result(threads=2), result(threads=1), result(processes=2)])
    assert '@s0 legend "anon threads"' in text
    assert '@s1 legend "anon processes"' in text
    assert "@target G0.S0\n@type xy\n1 1200000.500\n2 1200000.500\n&\n" in text
