"""What waits for the worker: cgroups are told again as long as a window may mention them."""

from synthetic import make_run, make_window, random_hits

from opd.sampling.window import CgroupInfo
from opd.store import messages
from opd.store.outbox import Outbox


def opened():
    """An outbox with a run."""
    outbox = Outbox(1 << 20)
    outbox.open_run(make_run())
    return outbox


def add_window(outbox, sequence):
    """Hand over a window."""
    outbox.add_window(outbox.run, make_window(sequence, random_hits(sequence, rows=3)))


def sent(outbox):
    """Take all there is to send; a word for each message, cgroups with their numbers."""
    words = []
    while parcels := outbox.take():
        for parcel in parcels:
            if isinstance(parcel.message, messages.Cgroups):
                words.append(
                    [wire.uid * (-1 if wire.gone else 1) for wire in parcel.message.cgroups]
                )
            else:
                words.append(type(parcel.message).__name__)
    return words


def stored(outbox, sequence):
    """The worker has it."""
    outbox.stored(outbox.run.run, sequence, new=True, samples=1, size=1)


def told_again(outbox):
    """The cgroups that the next worker is told."""
    outbox.worker_died(crashed=False)
    add_window(outbox, 1000 + outbox.counters["windows"])
    return sorted(number for word in sent(outbox) if isinstance(word, list) for number in word)


def test_cgroups_go_before_the_windows_that_mention_them():
    """In the order in which they were given."""
    outbox = opened()
    outbox.add_cgroups(outbox.run, [CgroupInfo(1, "/"), CgroupInfo(2, "/a")])
    add_window(outbox, 0)
    outbox.add_cgroups(outbox.run, [CgroupInfo(2, "", gone=True)])
    add_window(outbox, 1)
    assert sent(outbox) == ["Run", [1, 2], "Append", [-2], "Append"]


def test_a_new_worker_is_told_the_cgroups_again():
    """Also those that only a window sent and not stored mentions."""
    outbox = opened()
    outbox.add_cgroups(outbox.run, [CgroupInfo(1, "/"), CgroupInfo(2, "/a"), CgroupInfo(3, "/b")])
    add_window(outbox, 0)
    add_window(outbox, 1)
    outbox.add_cgroups(outbox.run, [CgroupInfo(2, "", gone=True)])
    sent(outbox)
    stored(outbox, 0)
    assert told_again(outbox) == [1, 2, 3]
    stored(outbox, 1)
    assert told_again(outbox) == [1, 3]


def test_cgroups_of_a_window_that_was_refused_are_forgotten_too():
    """What becomes of the window does not matter."""
    outbox = opened()
    outbox.add_cgroups(outbox.run, [CgroupInfo(1, "/"), CgroupInfo(2, "/a")])
    add_window(outbox, 0)
    outbox.add_cgroups(outbox.run, [CgroupInfo(2, "", gone=True)])
    sent(outbox)
    outbox.refuse(outbox.run.run, 0, "invalid")
    assert told_again(outbox) == [1]


def test_a_path_that_is_not_utf_8_arrives():
    """Names of cgroups are bytes."""
    info = CgroupInfo(7, "/\udcff.service")
    wire = messages.Splitter(messages.ToWorker).feed(
        messages.frame(messages.Cgroups([messages.wire_cgroup(info)]))
    )
    assert messages.cgroup_of(wire[0].cgroups[0]) == info
