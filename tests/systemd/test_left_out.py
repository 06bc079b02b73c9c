"""What the unit leaves out of systemd's hardening, tried: each directive would cost names."""

import json

import pytest

DROP_INS = "/run/systemd/system/opd.service.d"
# Many programs that live a few milliseconds each: only their paths are left to open.
SHORT = (
    "mkdir -p {place}; for i in $(seq 30); do cp /srv/busy {place}/p$i; done; sleep 1;"
    "for i in $(seq 30); do {place}/p$i plain 0.005; done >/dev/null"
)


@pytest.fixture
def rows_with(machine):
    """Give a function: the rows of short programs and the kernel, with a directive more."""

    def clean():
        machine.run("systemctl", "stop", "opd")
        machine.run(
            "sh", "-c", f"rm -rf {DROP_INS} /var/lib/opd/* /var/cache/opd/* /tmp/p* /home/alice"
        )
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "reset-failed", "opd")

    def run(directive, place):
        clean()
        lines = f"[Service]\\n{directive}\\n"
        script = f"mkdir -p {DROP_INS} && printf '{lines}' >{DROP_INS}/x.conf"
        assert machine.run("sh", "-c", f"{script} && systemctl daemon-reload")[0]
        done, text = machine.run("systemctl", "start", "opd")
        assert done, text + machine.run("journalctl", "-u", "opd", "-n", "20", "--no-pager")[1]
        done, text = machine.run("sh", "-c", SHORT.format(place=place))
        assert done, text
        assert machine.run("opctl", "dump")[0]
        arguments = ("report", "--sort", "image,symbol", "--top", "0")
        return json.loads(machine.run("opctl", "--format", "json", *arguments)[1])["rows"]

    yield run
    clean()


def share_named(rows, prefix):
    """How much of the samples in images whose paths begin so has a symbol."""
    mine = [row for row in rows if row["image"].startswith(prefix)]
    assert mine
    named = sum(row["samples"] for row in mine if row["symbol"] != "[unknown]")
    return named / sum(row["samples"] for row in mine)


@pytest.mark.parametrize(
    ("directive", "place", "prefix"),
    [
        ("PrivateTmp=yes", "/tmp", "/tmp/p"),
        # As ProtectHome=yes does, which would hide the tests' interpreter too.
        ("InaccessiblePaths=/home", "/home/alice", "/home/alice/p"),
        ("ProtectKernelTunables=yes", "/tmp", "[kernel]"),
        ("ProtectKernelLogs=yes", "/tmp", "[kernel]"),
    ],
)
def test_it_would_cost_names(rows_with, directive, place, prefix):
    """Most of the samples concerned have a name without the directive, and few with it.

    Few, not none: where the machine is busy, some live long enough to be opened.
    """
    as_it_is = share_named(rows_with("RestartSec=1", place), prefix)
    with_it = share_named(rows_with(directive, place), prefix)
    assert as_it_is > 0.7
    assert with_it < 0.6 * as_it_is
