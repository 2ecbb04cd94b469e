"""A reconciler with a clock that is set by hand, records on disk, and an API server."""

import threading

import api_cluster

from dra_driver.adapters.disk import records
from dra_driver.apps.preparing import fetching
from dra_driver.apps.upkeep import reconciling
from dra_driver.logic.preparing import planning
from dra_driver.model import prepared
from dra_driver.sim.api.serving import options

GRACE, INTERVAL = 60.0, 600.0
AWAY = options.Fault(status=503, reason="ServiceUnavailable")
FORBIDDEN = options.Fault(status=403, reason="Forbidden", message="cannot get resourceclaims")


class Leftovers:
    """What `orphans.Orphans` is told, with an answer that is set by hand."""

    def __init__(self):
        self.needs = False
        self.told = []
        self.on_remove = lambda: None

    def settle(self):
        self.told.append("settle")

    def needs_view(self):
        return self.needs

    def rebuild(self, everywhere):
        self.told.append(f"rebuild with {len(everywhere)}")

    def remove(self, allocated):
        self.told.append(sorted(allocated))
        self.on_remove()


class Users:
    """Who uses devices: what is set by hand, by claim UID."""

    def __init__(self):
        self.known = {}
        self.asked = []
        self.problem = None

    def of_claim(self, record, others):
        self.asked.append((record.uid, sorted(other.uid for other in others)))
        if self.problem is not None:
            raise self.problem
        return self.known.get(record.uid)


class Scene:
    """What a test sets, and what came of it; `make` makes the reconciler of another node too."""

    def __init__(self, cluster, directory):
        self.cluster = cluster
        self.known = records.Records(directory / "claims")
        self.time = 1000.0
        self.unprepared = []
        self.before_check = []
        self.refusals = []
        self.leftovers = Leftovers()
        self.users = Users()
        self.reconciler = self.make()

    def make(self, *, node=api_cluster.NODE, **changes):
        stopping = threading.Event()
        stopping.set()
        settings = {
            "boot_id": "boot-1",
            "pace": reconciling.Pace(INTERVAL, GRACE, lambda: self.time),
        }
        return reconciling.Reconciler(
            planning.Node(api_cluster.DRIVER, pool=node),
            self.known,
            fetching.ApiClaims(self.cluster.client, stopping),
            self.unprepare,
            self.leftovers,
            self.users,
            **settings | changes,
        )

    def unprepare(self, ref, only_if):
        """As the preparer does it."""
        if self.before_check:
            self.before_check.pop(0)()
        if self.refusals:
            raise self.refusals.pop(0)
        if only_if():
            self.unprepared.append(ref.uid)
            self.known.remove(ref.uid)

    def prepared(self, *devices, ref=None, **changes):
        """A claim with the devices, and the record of it."""
        ref = ref or self.cluster.claim(*devices)
        record = prepared.Record(
            uid=ref.uid,
            namespace=ref.namespace,
            name=ref.name,
            phase=prepared.Phase.COMPLETED,
            boot_id="boot-1",
            devices=tuple(
                prepared.PreparedDevice(
                    requests=("gpu",), pool=api_cluster.NODE, device=device, cdi_ids=("x/y=z",)
                )
                for device in devices
            ),
        )
        self.known.write(record.model_copy(update=changes))
        return ref

    def look_after(self, seconds):
        """Look that much later; what has been unprepared by then."""
        self.time += seconds
        self.reconciler.look()
        return self.unprepared

    def reads_after(self, seconds):
        """Look that much later; what the API was asked of claims, as verb and name."""
        before = len(self.cluster.faults.calls)
        self.look_after(seconds)
        return sorted(
            f"{call.verb} {call.name}".strip()
            for call in self.cluster.faults.calls[before:]
            if call.resource == "resourceclaims"
        )

    def reading(self, *faults, verb="get"):
        """Inside the block the next reads of claims meet these faults, one each."""
        left = list(faults)

        def rule(call):
            hit = call.resource == "resourceclaims" and call.verb == verb
            return left.pop(0) if left and hit else None

        return self.cluster.faults.where(rule)

    def remembered(self):
        return set(self.known.contents().records)
