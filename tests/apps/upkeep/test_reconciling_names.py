"""The list of all claims that the reconciler takes for names of cards that are gone."""

import mig_node
import pytest
from names_desk import HOUR, Desk, gpu

from dra_driver.apps.upkeep import reconciling
from dra_driver.logic.preparing import planning

A, B = gpu("a", 0), gpu("b", 1)


class NoOrphans:
    """See `reconciling.Orphans`: nothing is left over."""

    def settle(self):
        pass

    def needs_view(self):
        return False

    def rebuild(self, _everywhere):
        pass

    def remove(self, _allocated):
        pass


@pytest.fixture
def desk(tmp_path):
    made = Desk(tmp_path)
    yield made
    made.held.close()


def test_the_reconciler_takes_the_list_that_names_need(desk):
    desk.see(A, B)
    desk.see(B)
    api = mig_node.Claims()
    meant = api.make("gpu-0")
    listed = []
    whole = api.everywhere
    api.everywhere = lambda: listed.append(1) or whole()
    other = reconciling.Several(NoOrphans(), desk.names)
    made = reconciling.Reconciler(
        planning.Node(mig_node.DRIVER, mig_node.POOL),
        *(desk.known, api, None, other, None),
        boot_id="b",
    )
    made.look()
    assert listed == []
    desk.time += HOUR
    made.look()
    assert (listed, "a" in desk.on_disk()) == ([1], True)
    api.delete(meant)
    made.look()
    assert listed == [1]
    desk.time += HOUR
    made.look()
    assert (listed, "a" in desk.on_disk()) == ([1, 1], False)
    made.look()
    assert listed == [1, 1]
