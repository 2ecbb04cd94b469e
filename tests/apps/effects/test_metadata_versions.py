"""Files of device metadata that another version of the driver wrote, or left."""

import sharing_claims

from dra_driver.model import device_metadata

GPU = sharing_claims.GPU


def left(host):
    """What there is of it, whosever it is."""
    return sorted([*(host.root / "dra-device-metadata").glob("*"), *host.cdi.glob("*_metadata_*")])


def test_what_a_newer_driver_remembers_of_files_keeps_nothing_from_being_undone(host, users):
    ref = users.give(GPU)
    host.prepare(ref)
    record = host.record(ref)
    newer = record.described.model_copy(update={"version": device_metadata.VERSION + 1})
    host.store.records.write(record.model_copy(update={"described": newer}))
    host.unprepare(ref)
    assert (left(host), host.files()) == ([], [])


def test_what_an_older_driver_leaves_of_files_goes_with_the_next_look(host, new_host, users):
    ref = users.give(GPU)
    host.prepare(ref)
    # It removes the spec and the record, and knows of nothing else.
    (host.cdi / host.cdi_name(ref)).unlink()
    host.store.records.remove(ref.uid)
    users.delete(ref)
    after = new_host().start()
    assert (left(after), after.files()) == ([], [])
