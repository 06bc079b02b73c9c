"""What is asked of perf_event_open on different machines, and what next."""

import pytest
from fake_pmus import MACHINES, make_devices

from opd.features.ibs.options import FetchOptions, OpOptions
from opd.features.ibs.pmu import read_pmu
from opd.features.ibs.requests import RAW_MEMORY, RAW_RECORD, LackingError, plan
from opd_native.ibs import Flavour


def planned(tmp_path, machine, options):
    """The plan of these options there."""
    name = "ibs_op" if isinstance(options, OpOptions) else "ibs_fetch"
    return plan(read_pmu(name, make_devices(tmp_path, machine)), options)


@pytest.mark.parametrize("machine", MACHINES)
def test_every_machine_is_asked_for_records_with_addresses_first(tmp_path, machine):
    """Then for records alone; exclude_idle never, and the period is a multiple of 16."""
    for options in (FetchOptions(count=123457), OpOptions(count=123457)):
        request, remarks = planned(tmp_path / type(options).__name__, machine, options)
        assert request.period == 123456
        assert "count 123457 is 123456: it goes in steps of 16" in remarks
        rungs = [request, *request.fallbacks]
        assert [rung.raw for rung in rungs] == [RAW_MEMORY, RAW_RECORD]
        assert not any(rung.exclude_idle or rung.exclude_user for rung in rungs)
        assert {rung.precise_ip for rung in rungs} == {0}


@pytest.mark.parametrize(
    ("machine", "options", "words"),
    [
        ("zen3", FetchOptions(), (1 << 57, 0, 0)),
        ("zen3", FetchOptions(rand=False), (0, 0, 0)),
        ("zen4", FetchOptions(l3missonly=True), (1 << 57 | 1 << 59, 0, 0)),
        ("zen6", FetchOptions(fetchlat=1920), (1 << 57, 1920, 0)),
        ("zen3", OpOptions(), (1 << 19, 0, 0)),
        ("zen3", OpOptions(cnt_ctl=0), (0, 0, 0)),
        ("zen4", OpOptions(l3missonly=True), (1 << 19 | 1 << 16, 0, 0)),
        ("zen5", OpOptions(ldlat=2048), (1 << 19, 2048, 0)),
    ],
)
def test_options_go_where_the_format_says(tmp_path, machine, options, words):
    """Into config, config1 and config2."""
    request, _remarks = planned(tmp_path, machine, options)
    assert (request.config, request.config1, request.config2) == words


@pytest.mark.parametrize(
    ("machine", "options", "what"),
    [
        ("zen3", OpOptions(l3missonly=True), "no l3missonly .it needs Zen4 on"),
        ("zen3", FetchOptions(l3missonly=True), "ibs_fetch here has no l3missonly"),
        ("zen4", OpOptions(ldlat=128), "no ldlat .it needs Zen5 on"),
        ("zen5", FetchOptions(fetchlat=128), "no fetchlat .it needs Zen6 on"),
    ],
)
def test_what_a_machine_lacks_is_said(tmp_path, machine, options, what):
    """A filter that is not there would make other samples than asked for."""
    with pytest.raises(LackingError, match=what):
        planned(tmp_path, machine, options)


def test_without_a_counter_of_ops_cycles_are_counted(tmp_path):
    """And it is said."""
    request, remarks = planned(tmp_path, "family10h", OpOptions())
    assert request.config == 0
    assert remarks == ("this CPU counts no dispatched ops: count is in clock cycles",)


def test_one_mode_is_filtered_by_the_kernel_where_it_can(tmp_path):
    """Else all samples come, and opd drops those of the other mode."""
    request, _remarks = planned(tmp_path / "5", "zen5", OpOptions(user=False))
    rungs = [request, *request.fallbacks]
    assert [(rung.exclude_user, rung.config2, rung.raw) for rung in rungs] == [
        *((True, 1, RAW_MEMORY), (False, 0, RAW_MEMORY), (False, 0, RAW_RECORD))
    ]
    request, _remarks = planned(tmp_path / "4", "zen4", OpOptions(kernel=False))
    rungs = [request, *request.fallbacks]
    assert [(rung.exclude_kernel, rung.config2) for rung in rungs] == [
        *((True, 0), (False, 0), (False, 0))
    ]
    request, _remarks = planned(tmp_path / "off", "zen5", OpOptions(user=False, swfilt=False))
    assert not any(rung.exclude_user for rung in (request, *request.fallbacks))


def test_rungs_are_told_apart_by_name(tmp_path):
    """The first is called as the event is; a log line tells the others."""
    request, _remarks = planned(tmp_path, "zen5", OpOptions(user=False))
    names = [request.name, *(rung.name for rung in request.fallbacks)]
    assert names == [
        "ibs_op",
        "ibs_op/config=0x80000/",
        "ibs_op/config=0x80000,raw record only/",
    ]


@pytest.mark.parametrize(
    ("struct", "options", "what"),
    [
        (
            FetchOptions,
            {"events": ("IBS_OP_ALL",)},
            "IBS_OP_ALL is an event of ibs_op, not of ibs_f",
        ),
        (OpOptions, {"events": ("IBS_FETCH_ALL",)}, "IBS_FETCH_ALL is an event of ibs_fetch, not"),
        (
            OpOptions,
            {"events": ("IBS_OP_LAOD",)},
            "no event 'IBS_OP_LAOD'; did you mean IBS_OP",
        ),
        (OpOptions, {"ldlat": 200}, "ldlat: 200 is no multiple of 128; near it: 128 or 256"),
        (FetchOptions, {"fetchlat": 1}, "fetchlat: 1 is no multiple of 128; near it: 128"),
        (OpOptions, {"user": False, "kernel": False}, "leaves nothing to sample"),
    ],
)
def test_wrong_options_name_the_token(struct, options, what):
    """And what is valid."""
    with pytest.raises(ValueError, match=what):
        struct(**options)


def test_periods_are_within_what_the_kernel_takes():
    """The least and greatest count of both, as opd's own rule of periods has them."""
    from opd.features.ibs.options import FETCH_MOST, OP_MOST
    from opd_native._core import lib
    from opd_native.ibs import MINIMUM_COUNT

    for flavour, most in ((Flavour.FETCH, FETCH_MOST), (Flavour.OP, OP_MOST)):
        for count in (MINIMUM_COUNT, most):
            assert lib.opd_ibs_period(flavour, 0, count) == count & ~15
        assert lib.opd_ibs_period_max(flavour, 0x81BFF) == most
