"""Events files of a CPU type that tests make up."""

EVENTS = """\
# A CPU with two counters.
event:0x76 counters:0,1 um:zero minimum:50000 name:CYCLES_RUN : Cycles
event:0x40 counters:1 um:zero minimum:500 name:ONLY_ONE : On the second counter alone
event:0x42 counters:0,1 um:parts minimum:500 name:PARTS : What has parts : also a colon
event:0x43 counters:0,1 um:ways minimum:500 name:WAYS : What goes one way of several
event:0xf000 ext:ibs_fetch um:zero minimum:50000 name:EXTRA_FETCH : Of a feature
event:0x99 um:zero minimum:1 name:NEITHER : Neither a counter nor a feature
"""
MASKS = """\
name:parts type:bitmask default:0x03
\t0x01 extra: left the left
\t0x02 extra: right the right
\t0x04 extra:inv,cmask=0x02 idle cycles without
name:ways type:exclusive default:quick
\t0x00 extra: slow slowly
\t0x10 extra:edge quick quickly
\t0x10 extra: steady steadily
"""


def write_type(folder, name="made/up", events=EVENTS, masks=MASKS):
    """Write the files of one CPU type below ``folder``; the folder of all, as a setting."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    if events is not None:
        (place / "events").write_text(events)
    if masks is not None:
        (place / "unit_masks").write_text(masks)
    return str(folder)
