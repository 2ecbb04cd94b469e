"""Which pods are ended because of taints, and when."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.scheduling import emulation, evicting, taint_rules
from dra_driver.model import claims, slices, taints

DRIVER, POOL = "gpu.example.com", "node-a"
ADDED = "2026-11-28T10:00:00Z"
BEGIN = dt.datetime(2026, 11, 28, 10, tzinfo=dt.UTC)
ILL = taints.Taint("ill", "yes", "NoExecute", ADDED)
WIRE = {"key": "ill", "value": "yes", "effect": "NoExecute", "timeAdded": ADDED}
FOR_EVER = {"key": "ill", "operator": "Exists", "effect": "NoExecute"}


def named(name):
    return slices.DeviceId(DRIVER, POOL, name)


def tainted(**by_device):
    return {named(name.replace("_", "-")): tuple(found) for name, found in by_device.items()}


def result(device="gpu-0", *tolerations):
    return {
        "request": "gpu",
        "driver": DRIVER,
        "pool": POOL,
        "device": device,
        "tolerations": list(tolerations),
    }


def allocation(*results):
    return claims.parse_allocation({"devices": {"results": list(results)}})


def for_seconds(seconds, **fields):
    return FOR_EVER | {"tolerationSeconds": seconds} | fields


def slice_with(*devices, name="s", generation=1):
    pool = {"name": POOL, "generation": generation, "resourceSliceCount": 1}
    listed = [{"name": key, "taints": list(found)} for key, found in devices]
    return {"metadata": {"name": name}, "spec": {"driver": DRIVER, "pool": pool, "devices": listed}}


class TestHowLongAPodMayStay:
    @pytest.mark.parametrize(
        ("tolerations", "seconds"),
        [
            ([], 0),
            ([FOR_EVER], None),
            ([{"operator": "Exists", "effect": "NoExecute"}], None),
            ([{"key": "ill", "value": "yes", "effect": "NoExecute"}], None),
            ([{"key": "ill", "value": "no", "effect": "NoExecute"}], 0),
            ([{"key": "other", "operator": "Exists", "effect": "NoExecute"}], 0),
            ([for_seconds(30)], 30),
            ([for_seconds(30), for_seconds(20)], 20),
            ([for_seconds(30), FOR_EVER], None),
            ([for_seconds(0)], 0),
            ([for_seconds(-5)], 0),
            ([for_seconds(30), for_seconds(10, key="other")], 30),
        ],
    )
    def test_is_what_tolerations_of_the_taint_say_and_the_shortest_of_several(
        self, tolerations, seconds
    ):
        assert evicting.stays_for(tolerations, ILL) == seconds

    @pytest.mark.parametrize("effect", ["", "NoSchedule", None])
    def test_is_no_time_where_the_effect_is_not_written_out(self, effect):
        assert evicting.stays_for([FOR_EVER | {"effect": effect}], ILL) == 0


class TestAnAllocation:
    def test_ends_pods_from_the_beginning_of_the_taint(self):
        found = evicting.of_allocation(allocation(result()), evicting.Sight(tainted(gpu_0=[ILL])))
        assert found == evicting.Eviction(
            BEGIN, (evicting.Cause("", named("gpu-0"), "ill=yes:NoExecute"),)
        )
        assert f"{found.causes[0]}" == f"device {DRIVER}/{POOL}/gpu-0: ill=yes:NoExecute"

    def test_ends_them_at_the_end_of_the_time_for_which_it_is_tolerated(self):
        sight = evicting.Sight(tainted(gpu_0=[ILL]))
        found = evicting.of_allocation(allocation(result("gpu-0", for_seconds(90))), sight)
        assert found.when == BEGIN + dt.timedelta(seconds=90)

    def test_ends_them_when_the_first_of_its_devices_does(self):
        late = taints.Taint("ill", "", "NoExecute", "2026-11-28T11:00:00Z")
        sight = evicting.Sight(tainted(gpu_0=[late], gpu_1=[ILL], gpu_2=[ILL]))
        found = evicting.of_allocation(
            allocation(result("gpu-0"), result("gpu-1", for_seconds(60)), result("gpu-3")), sight
        )
        assert found.when == BEGIN + dt.timedelta(seconds=60)
        assert [cause.device.device for cause in found.causes] == ["gpu-0", "gpu-1"]

    def test_ends_none_that_tolerate_every_taint(self):
        sight = evicting.Sight(tainted(gpu_0=[ILL, ILL]))
        assert evicting.of_allocation(allocation(result("gpu-0", FOR_EVER)), sight) is None
        assert evicting.of_allocation(allocation(result("gpu-1")), sight) is None

    def test_does_not_count_the_tolerations_of_another_device(self):
        sight = evicting.Sight(tainted(gpu_1=[ILL]))
        both = allocation(result("gpu-0", FOR_EVER), result("gpu-1"))
        assert evicting.of_allocation(both, sight).when == BEGIN

    def test_meets_a_rule_also_where_no_slice_lists_the_device(self):
        rule = taint_rules.Rule(
            "mine", {"device": "gpu-0"}, {"key": "ill", "effect": "NoExecute", "timeAdded": ADDED}
        )
        sight = evicting.Sight(rules=(rule,))
        found = evicting.of_allocation(allocation(result("gpu-0")), sight)
        assert found.when == BEGIN
        assert found.rules == {"mine"}
        assert f"{found.causes[0]}" == "DeviceTaintRule mine: ill:NoExecute"
        assert evicting.of_allocation(allocation(result("gpu-1")), sight) is None

    def test_ends_pods_long_ago_where_the_taint_does_not_say_since_when(self):
        sight = evicting.Sight(tainted(gpu_0=[taints.Taint("ill", effect="NoExecute")]))
        assert evicting.of_allocation(allocation(result()), sight).when.year == 1970


class TestTheTaintsOfAPool:
    def test_are_those_that_end_pods(self):
        others = [{"key": "worn", "effect": effect} for effect in ("NoSchedule", "None", "Odd")]
        found = evicting.tainted([slice_with(("gpu-0", [*others, WIRE]), ("gpu-1", others))])
        assert found == tainted(gpu_0=[ILL])
        assert found[named("gpu-0")][0].added == ADDED

    def test_are_those_of_the_newest_generation_complete_or_not(self):
        old = slice_with(("gpu-0", [WIRE]), ("gpu-1", [WIRE]), name="old")
        new = slice_with(("gpu-1", [WIRE]), name="new", generation=2)
        new["spec"]["pool"]["resourceSliceCount"] = 5
        assert evicting.tainted([old, new]) == tainted(gpu_1=[ILL])
        assert evicting.tainted([old]) == tainted(gpu_0=[ILL], gpu_1=[ILL])
        assert evicting.tainted([]) == {}


def pod(**fields):
    body = {
        "metadata": {"namespace": "default", "name": "pod", "uid": "pod-uid"},
        "spec": {
            "nodeName": "node-a",
            "containers": [],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}],
        },
    }
    return body | {key: body.get(key, {}) | value for key, value in fields.items()}


def claim(*results, users=("pod-uid",), owner=None):
    owners = [{"uid": owner, "kind": "Pod", "name": "pod", "apiVersion": "v1"}] if owner else []
    return {
        "metadata": {
            "namespace": "default",
            "name": "mine",
            "uid": "claim-uid",
            "ownerReferences": owners,
        },
        "spec": {"devices": {"requests": []}},
        "status": {
            "allocation": {"devices": {"results": list(results)}},
            "reservedFor": [{"resource": "pods", "name": "pod", "uid": uid} for uid in users],
        },
    }


SIGHT = evicting.Sight(tainted(gpu_0=[ILL], gpu_1=[taints.Taint("worn", effect="NoExecute")]))
FROM_TEMPLATE = pod(
    spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]},
    status={"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "mine"}]},
)
EXTENDED = pod(
    spec={"resourceClaims": []},
    status={"extendedResourceClaimStatus": {"resourceClaimName": "mine", "requestMappings": []}},
)


class TestAPod:
    def test_is_ended_for_a_claim_that_is_reserved_for_it(self):
        found = evicting.of_pod(pod(), {"mine": claim(result())}.get, SIGHT)
        assert found.when == BEGIN

    @pytest.mark.parametrize(
        ("body", "found"),
        [
            (pod(), claim(result("gpu-0", FOR_EVER))),
            (pod(), claim(result("gpu-9"))),
            (pod(), claim(result(), users=["another"])),
            (pod(), None),
            (pod(), {**claim(), "status": {"reservedFor": [{"uid": "pod-uid"}]}}),
            (pod(spec={"nodeName": ""}), claim(result())),
            (FROM_TEMPLATE, claim(result(), owner="another")),
            (pod(status={}, spec=FROM_TEMPLATE["spec"]), claim(result(), owner="pod-uid")),
        ],
        ids=["tolerated", "well", "of-another", "unknown", "unallocated", "unbound", "not-own",
             "not-made"],
    )  # fmt: skip
    def test_is_not_ended_for_any_other(self, body, found):
        assert evicting.of_pod(body, {"mine": found}.get, SIGHT) is None

    def test_is_ended_for_its_own_claim_of_a_template(self):
        found = evicting.of_pod(
            FROM_TEMPLATE, {"mine": claim(result(), owner="pod-uid")}.get, SIGHT
        )
        assert found.when == BEGIN

    def test_is_ended_at_the_first_time_and_for_all_causes_of_its_claims(self):
        body = pod(
            spec={
                "resourceClaims": [
                    {"name": name, "resourceClaimName": name} for name in ("a", "b", "c")
                ]
            }
        )
        known = {
            "a": claim(result("gpu-0", for_seconds(60))),
            "b": claim(result("gpu-1", FOR_EVER)),
            "c": claim(result("gpu-0", for_seconds(30))),
        }
        found = evicting.of_pod(body, known.get, SIGHT)
        assert found.when.year == 1970
        assert [cause.device.device for cause in found.causes] == ["gpu-0", "gpu-1"]

    @pytest.mark.parametrize(
        ("release", "ends"),
        [(None, True), ("1.36.2", False), ("1.37", False), ("1.38", True)],
    )
    def test_is_ended_for_extended_resources_from_1_38_on(self, release, ends):
        sight = evicting.Sight(SIGHT.tainted, (), emulation.of_release(release))
        known = {"mine": claim(result(), owner="pod-uid")}
        assert (evicting.of_pod(EXTENDED, known.get, sight) is not None) is ends


TOLERATIONS = st.lists(
    st.fixed_dictionaries(
        {
            "operator": st.sampled_from(["Exists", "Equal"]),
            "effect": st.sampled_from(["", "NoExecute", "NoSchedule"]),
        },
        optional={
            "key": st.sampled_from(["", "ill", "worn"]),
            "value": st.sampled_from(["", "yes"]),
            "tolerationSeconds": st.integers(-1, 60),
        },
    ),
    max_size=4,
)


@given(TOLERATIONS)
def test_a_pod_is_ended_just_when_no_toleration_without_end_is_there(tolerations):
    found = evicting.of_allocation(
        allocation(result("gpu-0", *tolerations)), evicting.Sight(tainted(gpu_0=[ILL]))
    )
    covering = [
        one
        for one in tolerations
        if one["effect"] == "NoExecute" and taints.parse_toleration(one).covers(ILL)
    ]
    if any("tolerationSeconds" not in one for one in covering):
        assert found is None
    else:
        seconds = [max(0, one["tolerationSeconds"]) for one in covering]
        assert found.when == BEGIN + dt.timedelta(seconds=min(seconds, default=0))
