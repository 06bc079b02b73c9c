"""The examples of probes, which a benchmark runs: every option is among them."""

import pytest

from opd.errors import UsageError
from opd.features.options import fields_of
from opd.features.registry import Registry
from opd.probes.plan import read_all

PROBES = {
    probe.name: probe
    for plugin in Registry().plugins()
    for feature in plugin.features
    for probe in feature.probes
    if probe.examples
}


def test_the_probes_of_memory_have_some():
    """Those that come with opd and measure the machine."""
    assert {"pft", "pchase"} <= set(PROBES)


@pytest.mark.parametrize("name", sorted(PROBES))
def test_examples_name_every_option_and_are_read_or_refused_in_words(name):
    """A new option without an example is seen here."""
    probe = PROBES[name]
    named = {pair.partition("=")[0] for text in probe.examples for pair in text.split(",")}
    assert set(fields_of(probe.options)) <= named
    refused = 0
    for text in probe.examples:
        try:
            assert read_all(probe, text)
        except UsageError:
            refused += 1
    assert refused < len(probe.examples) / 4


def test_what_is_listed_of_features_is_json():
    """Suites of any kind too: the daemon asks a child for it."""
    import json

    from opd.features.installed import QUIET
    from opd.features.listing import list_features

    listed = json.loads(json.dumps(list_features(Registry(), QUIET)))
    probes = [probe for feature in listed for probe in feature.get("probes", ())]
    assert {"pft", "pchase", "calibrate"} <= {probe["name"] for probe in probes}
    for probe in probes:
        assert all(isinstance(text, str) and text for text in probe["suites"].values())
        assert probe["options"]
