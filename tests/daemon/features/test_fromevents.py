"""Events of features: what asking for one sets its feature to."""

import pytest

from opd.errors import ConfigError
from opd.events import Catalogue, parse_events
from opd.features.fromevents import pulled_in


def asked(*specs):
    """What these events ask, on a Zen."""
    catalogue = Catalogue(cpu_type="x86-64/family19")
    return pulled_in(parse_events(specs, catalogue=catalogue), "here")


def test_events_of_features_ask_and_others_do_not():
    """Feature, event, and the count where one was given."""
    assert asked("cycles", "cpu-clock", "CPU_CLK_UNHALTED:100000") == []
    one, two = asked("IBS_OP_LOAD", "IBS_FETCH_ALL:250000")
    assert (one.feature, one.event, one.count, one.options) == ("ibs_op", "IBS_OP_LOAD", 0, {})
    assert (two.feature, two.count, two.where) == ("ibs_fetch", 250000, "here")


@pytest.mark.parametrize(
    ("spec", "count", "options"),
    [
        ("IBS_OP_ALL:100000:0x0", 100000, {"cnt_ctl": "0", "memaccess": "0", "branch_target": "0"}),
        ("IBS_OP_ALL:100000:1", 100000, {}),
        ("IBS_OP_ALL:100000:3", 100000, {"cnt_ctl": "1", "memaccess": "1", "branch_target": "0"}),
        (
            "IBS_OP_ALL:100000:branch_target",
            100000,
            {"cnt_ctl": "0", "memaccess": "0", "branch_target": "1"},
        ),
        ("IBS_FETCH_ALL:1048575", 1048560, {}),
        ("IBS_FETCH_ALL:u", 0, {"kernel": "0"}),
        ("IBS_OP_ALL:100000:1:1:0", 100000, {"user": "0"}),
    ],
)
def test_what_counts_masks_and_levels_mean(spec, count, options):
    """Bits of the mask and levels are options of the feature; IBS counts in steps of 16."""
    (one,) = asked(spec)
    assert (one.count, one.options) == (count, options)


def test_one_feature_samples_one_choice_of_levels():
    """Two events that want other levels are refused; events of two features may differ."""
    with pytest.raises(ConfigError) as caught:
        asked("IBS_OP_ALL:u", "IBS_OP_LOAD")
    assert caught.value.message == (
        "here: IBS_OP_LOAD samples user and kernel, but IBS_OP_ALL:u users alone"
    )
    assert len(asked("IBS_OP_ALL:u", "IBS_FETCH_ALL:k")) == 2
