"""The strings that make an image the same image everywhere."""

import pytest

from opd.sampling.window import ImageInfo
from opd.symbols.identity import canonical, identity


@pytest.mark.parametrize(
    ("info", "build_id", "kernel", "expected"),
    [
        ({"kind": "file", "path": "/a", "build_id": "aabb"}, "", "", "build-id:aabb"),
        ({"kind": "file", "path": "/a"}, "ccdd", "", "build-id:ccdd"),
        (
            {"kind": "file", "path": "/a b", "dev_major": 8, "dev_minor": 1, "inode": 42,
             "inode_generation": 3}, "", "", "inode:8:1:42:3:/a b",
        ),
        ({"kind": "kernel", "path": "[kernel]"}, "", "6.1.0", "kernel:6.1.0"),
        ({"kind": "bpf", "path": "[bpf]", "symbol": "prog"}, "", "", "bpf:prog"),
        ({"kind": "module", "path": "[nf_tables]"}, "", "", "[nf_tables]"),
        ({"kind": "anon", "path": "[anon]"}, "", "", "[anon]"),
    ],
)  # fmt: skip
def test_canonical(info, build_id, kernel, expected):
    """Each kind of image has its own spelling."""
    assert canonical(ImageInfo(uid=1, **info), build_id, kernel) == expected


def test_identity_is_stable():
    """Sixteen bytes, equal for equal strings, also for names that are not UTF-8."""
    assert identity("[anon]") == identity("[anon]") != identity("[unknown]")
    assert len(identity("inode:0:0:0:0:/\udcff")) == 16
