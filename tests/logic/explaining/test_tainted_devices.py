"""What the taints of a device mean for a pod that has it, and for one that wants it."""

import pytest
from explain_scene import DRIVER, claim, explain, fallen, gpu, held, pod, pool, request

from dra_driver.logic.explaining import explaining

SINCE = "2026-11-28T10:00:00Z"


def taint(key, value="", effect="NoSchedule", since=SINCE):
    body = {"key": key, "effect": effect} | ({"value": value} if value else {})
    return body | ({"timeAdded": since} if since else {})


def own(key, value="", **fields):
    return taint(f"{DRIVER}/{key}", value, **fields)


def sick(name, *taints):
    return gpu(name, extra={"taints": list(taints)})


class TestAPodThatHasIt:
    @staticmethod
    def told(listed, *tolerations):
        """What is in the way of a pod that runs on the device, and what is only to be known."""
        body = held("mine", "a/x", pods=("train",))
        (result,) = body["status"]["allocation"]["devices"]["results"]
        result["tolerations"] = list(tolerations)
        about = explain(
            "pod/train",
            pool("a", sick("x", *listed)),
            body,
            pod("train", claims={"gpu": "mine"}, nodeName="a"),
        )
        stops = about.verdict == explaining.UNUSABLE
        return stops, [f"{one.problem}. {one.remedy}" for one in about.in_the_way]

    def test_keeps_one_that_is_only_withdrawn_and_others_have_to_wait(self):
        assert self.told([own("recovery", "reset")]) == (
            False,
            [
                (
                    f"it has the taint {DRIVER}/recovery=reset:NoSchedule since {SINCE}: the "
                    "driver wants the GPU reset. Pods that have the claim keep it; no other claim "
                    "gets it. Who wants it has to wait for the reset of the card"
                )
            ],
        )

    def test_is_told_when_it_is_ended(self):
        limited = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 90}
        stops, (one,) = self.told([own("xid", "79", effect="NoExecute")], limited)
        assert stops
        assert one == (
            f"it has the taint {DRIVER}/xid=79:NoExecute since {SINCE}, which the claim tolerates "
            "for 90 s, until 2026-11-28T10:01:30Z: Kubernetes ends its pods. A pod that is made "
            "anew gets another device; or tolerate it, with `effect: NoExecute`, in the request"
        )

    def test_keeps_one_that_it_tolerates_without_end(self):
        stays = {"operator": "Exists", "effect": "NoExecute"}
        limited = stays | {"tolerationSeconds": 90}
        stops, (one,) = self.told([own("xid", "79", effect="NoExecute")], limited, stays)
        assert not stops
        assert "Pods that have the claim keep it" in one

    def test_is_told_of_one_that_only_informs(self):
        stops, (one,) = self.told([own("xid", "31", effect="None")])
        assert not stops
        assert one.startswith(f"it has the taint {DRIVER}/xid=31:None since {SINCE}: XID 31: ")
        assert one.endswith(". It only informs: pods keep the device, and new ones get it")

    def test_is_told_of_each_of_several(self):
        _, found = self.told([own("recovery", "reset"), own("xid", "79"), taint("worn")])
        assert [text.partition(":")[0] for text in found] == [
            f"it has the taint {DRIVER}/recovery=reset",
            f"it has the taint {DRIVER}/xid=79",
            "it has the taint worn",
        ]


class TestAPodThatWantsIt:
    @pytest.mark.parametrize(
        ("found", "value"),
        [
            (
                [own("xid", "79")],
                f"since {SINCE}; tolerate it, or wait for a reboot of the node",
            ),
            (
                [own("recovery", "reboot")],
                f"since {SINCE}; tolerate it, or wait for a reboot of the node",
            ),
            ([taint("worn", since="")], "tolerate it, or wait until it is gone"),
            (
                [taint("worn", since=""), own("thermal", effect="None"), taint("old")],
                "tolerate it, or wait until it is gone; also tainted old:NoSchedule",
            ),
        ],
    )
    def test_is_told_since_when_it_is_there_and_what_to_wait_for(self, found, value):
        about = explain("claim/mine", pool("a", sick("x", *found)), claim("mine"))
        (report,) = about.reports
        ((_, hurdle, _),) = fallen(report)
        assert hurdle == "tainted"
        assert report.requests[0].groups[0].values == (value,)

    def test_is_told_of_what_it_does_not_tolerate_only(self):
        tolerated = request(tolerations=[{"key": f"{DRIVER}/xid", "operator": "Exists"}])
        about = explain(
            "claim/mine", pool("a", sick("x", own("xid", "79"), taint("worn"))),
            claim("mine", tolerated),
        )  # fmt: skip
        assert fallen(about.reports[0]) == [(1, "tainted", "worn:NoSchedule")]
        assert "also" not in about.reports[0].requests[0].groups[0].values[0]

    def test_is_told_once_of_nodes_that_are_alike_but_for_the_time(self):
        late = "2026-11-29T10:00:00Z"
        about = explain(
            "claim/mine",
            pool("a", sick("x", taint("worn"))),
            pool("b", sick("x", taint("worn", since=late))),
            claim("mine"),
        )
        (report,) = about.reports
        assert report.nodes == ("a", "b")
        assert [value.partition(";")[0] for value in report.requests[0].groups[0].values] == [
            f"since {SINCE}",
            f"since {late}",
        ]

    def test_is_shown_a_toleration_as_what_would_help(self):
        about = explain("claim/mine", pool("a", sick("x", own("xid", "79"))), claim("mine"))
        assert [miss.change for miss in about.nearest] == [
            f'tolerate the device taint {DRIVER}/xid=79:NoSchedule in request "gpu"'
        ]
