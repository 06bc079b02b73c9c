"""The named benchmarks and suites: which there are, how they are chosen, what never gates."""

from __future__ import annotations

import pytest

from opd.errors import UsageError
from opd.features.dto.hooks import DTO
from opd.features.dto.suite import BENCHMARKS, MODES, SANITY, benchmark_of
from opd.probes.plan import as_parameters, read_all

# Name, and whether it is for reference only, as the suite that is followed has them.
NAMES = {
    **dict.fromkeys(("memcpy_4k", "memcpy_8k"), True),
    **dict.fromkeys((f"memcpy_{size}k" for size in (16, 32, 64, 128, 256, 512)), False),
    **dict.fromkeys(("memcpy_1m", "memcpy_1m_pf50"), False),
    **dict.fromkeys(("memset_64k", "memset_128k", "memset_256k", "memset_1m"), False),
    **dict.fromkeys(("memcmp_64k", "memcmp_128k", "memcmp_1m"), False),
}


def cells(text):
    """Plan a text; what each measurement is called, its mode, pages and whether it gates."""
    found = []
    for options in read_all(DTO, text):
        parameters = as_parameters(options)
        found.append(
            (
                benchmark_of(parameters),
                parameters["mode"],
                parameters["page"],
                not parameters["reference"],
            )
        )
    return found


def test_the_benchmarks_are_the_seventeen():
    """By name, order and what is for reference only."""
    assert {one.name: one.reference for one in BENCHMARKS} == NAMES
    assert [one.name for one in BENCHMARKS] == list(NAMES)


def test_the_whole_suite():
    """Each benchmark in four modes with both pages, cold; cpu never gates."""
    found = cells("suite=perf")
    assert len(found) == len(set(found)) == 17 * 4 * 2
    for test, mode, _page, gates in found:
        assert gates == (mode != "cpu" and not NAMES[test])
    assert sum(gates for *_, gates in found) == 15 * 3 * 2
    assert all(options.is_cold for options in read_all(DTO, "suite=perf"))
    assert not any(options.is_cold for options in read_all(DTO, "suite=perf,perf_cold_cache=0"))


def test_sanity_is_four_of_them():
    """Few iterations; perf_short is the same four, and of the exact amount of old."""
    assert {name for name, *_ in cells("suite=sanity")} == set(SANITY)
    assert {name for name, *_ in cells("suite=perf,perf_short=1")} == set(SANITY)
    assert {options.iterations for options in read_all(DTO, "suite=sanity")} == {100}
    assert all(options.perf_short for options in read_all(DTO, "suite=perf,perf_short=1"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("suite=perf,select=memcmp_*", {"memcmp_64k", "memcmp_128k", "memcmp_1m"}),
        ("suite=perf,select=*_pf50+memset_1m", {"memcpy_1m_pf50", "memset_1m"}),
        ("label=sanity", set(SANITY)),
        ("label=perf", set(NAMES)),
        ("label=perf,select=memcpy_4k", {"memcpy_4k"}),
        ("suite=perf,op=memset,size=64k", {"memset_64k"}),
        ("suite=perf,size=1MiB+128K,op=memcmp", {"memcmp_128k", "memcmp_1m"}),
        ("suite=perf,pf=50", {"memcpy_1m_pf50"}),
    ],
)
def test_members_are_chosen(text, names):
    """By label, by pattern, by what they measure."""
    assert {name for name, *_ in cells(text)} == names


def test_modes_and_pages_are_chosen():
    """Given, they are those of the suite."""
    found = cells("suite=perf,mode=stdc+cpu,page=4k,select=memcpy_64k")
    assert found == [("memcpy_64k", "cpu", "4k", False), ("memcpy_64k", "stdc", "4k", True)]


def test_the_cpu_s_rows_are_libc_alone():
    """Whatever is compared, speed-ups are relative to libc without anything added."""
    text = "suite=perf,baseline=sse2,current=nt,inject=5,select=memcpy_64k,page=4k,perf_ab_rounds=3"
    for options in read_all(DTO, text):
        sides = (options.baseline, options.current, options.inject)
        assert sides == (("libc", "libc", 0) if options.mode == "cpu" else ("sse2", "nt", 5))
        assert options.perf_ab_rounds == 3


def test_a_sweep_of_suites_is_bounded():
    """Another list makes each member several, at most 512 in all."""
    text = "suite=perf,select=memcpy_64k,mode=stdc,page=4k,seed=1+2+3"
    assert [options.seed for options in read_all(DTO, text)] == [1, 2, 3]
    many = "+".join(map(str, range(1, 5)))
    with pytest.raises(UsageError, match="more than 512"):
        read_all(DTO, f"suite=perf,seed={many}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("suite=perv", "no suite 'perv'; there are: functional perf sanity"),
        ("label=slow", "no label 'slow'; there are: .*perf"),
        ("suite=perf,select=memcpy_5k", "nothing is selected"),
        ("suite=perf,mode=gpu", "mode=gpu: expected cpu or stdc"),
        ("suite=perf,page=1g", "page=1g"),
        ("suite=perf,size=5k", "nothing is selected"),
    ],
)
def test_what_is_not_there_is_told(text, said):
    """With what there is."""
    with pytest.raises(UsageError, match=said):
        read_all(DTO, text)


def test_modes_are_those_of_the_options():
    """None is left out."""
    assert {options.mode for options in read_all(DTO, "suite=perf")} == set(MODES)
