"""IBS PMUs as sysfs shows them on different machines."""

from __future__ import annotations

_FETCH = {"maxcnt": "config:0-15", "rand_en": "config:57"}
_OP = {"maxcnt": "config:0-15,20-26", "cnt_ctl": "config:19"}
_SWFILT = {"swfilt": "config2:0"}

# By machine: format files and caps of ibs_fetch and ibs_op.
MACHINES = {
    "family10h": ((_FETCH, {}), ({"maxcnt": "config:0-15"}, {})),
    "zen3": ((_FETCH, {}), (_OP, {})),
    "zen4": (
        (_FETCH | {"l3missonly": "config:59"}, {"zen4_ibs_extensions": "1"}),
        (_OP | {"l3missonly": "config:16"}, {"zen4_ibs_extensions": "1"}),
    ),
    "zen5": (
        (_FETCH | {"l3missonly": "config:59"} | _SWFILT, {"zen4_ibs_extensions": "1"}),
        (
            _OP | {"l3missonly": "config:16", "ldlat": "config1:0-11"} | _SWFILT,
            {"zen4_ibs_extensions": "1", "ldlat": "1", "dtlb_pgsize": "1"},
        ),
    ),
    "zen6": (
        (_FETCH | {"l3missonly": "config:59", "fetchlat": "config1:0-10"} | _SWFILT, {}),
        (_OP | {"l3missonly": "config:16", "ldlat": "config1:0-11"} | _SWFILT, {}),
    ),
}


def make_devices(folder, machine, *, types=(10, 11)):
    """A folder like /sys/bus/event_source/devices; its path."""
    for name, type_, (fields, caps) in zip(
        ("ibs_fetch", "ibs_op"), types, MACHINES[machine], strict=True
    ):
        (folder / name / "format").mkdir(parents=True)
        (folder / name / "caps").mkdir()
        (folder / name / "type").write_text(f"{type_}\n")
        for field, text in fields.items():
            (folder / name / "format" / field).write_text(f"{text}\n")
        for cap, text in caps.items():
            (folder / name / "caps" / cap).write_text(f"{text}\n")
    return str(folder)
