"""How slices are to be written for the cluster that the node is in.

What the API server takes is asked, with writes that it does not carry out; what its schedulers fail
on follows from its release.
"""

import dataclasses
import time

from dra_driver import telemetry
from dra_driver.adapters.kube import kube
from dra_driver.apps.node import counter_support
from dra_driver.logic.offering import attributes, hazards, publishing
from dra_driver.model import slices

_LISTS_SINCE = 37
"""The minor version from which on schedulers cope with lists, whatever their feature gates; an
older one fails at every selector that meets a device with one (kubernetes/kubernetes#139395)."""

ASK_AGAIN = 300.0
"""Seconds until a server whose schedulers fail on something is asked again: it may have been
upgraded, and the watch of slices have gone on at another one without an error."""


class SliceForm:
    """What was found out last; it stays until there is doubt, defects for `ASK_AGAIN` at most."""

    def __init__(
        self,
        client: kube.Client,
        *,
        avoids: bool,
        shared: bool,
        cut: bool = True,
        passed: bool = False,
    ) -> None:
        """`avoids`: nothing is published that schedulers of the release fail on.

        `shared`: the settings let many claims consume a device; `cut`: they let a GPU be had in
        ways that exclude each other; `passed`: virtual machines are among those.
        """
        self._client = client
        self._avoids = avoids
        self._shared = shared
        self._cut = cut
        self._kinds = "partitions and VFIO devices" if passed else "partitions"
        self._counters = counter_support.CounterSupport(client)
        self._found: tuple[str, bool] | None = None
        self._asked = 0.0
        self._told: set[str] = set()
        self._log = telemetry.logger("slice-form")

    def get(self, owner: publishing.Owner, api_version: str) -> publishing.Form:
        """How slices are to be written.

        Raises:
            kube.Unavailable: the server does not answer.
        """
        layout = self._counters.layout(owner, api_version)
        if self._found is None or self._is_dated(*self._found):
            server = counter_support.about(self._client)
            lists = server.minor >= _LISTS_SINCE and _takes_lists(self._client, owner, api_version)
            self._found = (server.git_version, lists)
            self._asked = time.monotonic()
        release, lists = self._found
        if layout is publishing.Layout.PLAIN or not self._cut:
            return publishing.Form(layout, lists=lists)
        return self._without_hazards(release, publishing.Form(layout, lists=lists))

    def counters_dropped(self) -> None:
        """A write has shown that the server takes no counters any more."""
        self._counters.lost()

    def doubt(self) -> None:
        """Ask again: the server refused a write, so it may be another one by now."""
        self._counters.doubt()
        self._found = None

    def _is_dated(self, release: str, _lists: bool) -> bool:
        is_late = time.monotonic() - self._asked > ASK_AGAIN
        return is_late and hazards.of(release) != hazards.NONE

    def _without_hazards(self, release: str, form: publishing.Form) -> publishing.Form:
        found = hazards.of(release)
        if found.counters is not None:
            what = f"{self._kinds} are not offered"
            self._tell(release, found.counters, hazards.PANICS, what)
            if self._avoids:
                reason = f"kube-scheduler {release} {hazards.PANICS}"
                return dataclasses.replace(form, layout=publishing.Layout.PLAIN, reason=reason)
        if found.shares_beside is not None and self._shared:
            what = f"{self._kinds} of cards with shares are not offered"
            self._tell(release, found.shares_beside, hazards.TWICE, what)
            if self._avoids:
                return dataclasses.replace(form, beside_shares=False)
        return form

    def _tell(self, release: str, least: str, fails: str, left_out: str) -> None:
        """Once for a release and a defect, in whatever order they come."""
        key = f"{release} {fails}"
        if key in self._told:
            return
        self._told.add(key)
        what = left_out if self._avoids else "it is published all the same (--scheduler-defects)"
        self._log.warning(f"kube-scheduler {release} {fails}: {what}", least_safe_release=least)


def _takes_lists(client: kube.Client, owner: publishing.Owner, api_version: str) -> bool:
    """Whether the server keeps attributes that are lists; without its gate it drops them."""
    probe = publishing.Content((slices.Device("probe", {attributes.NUMA_NODE: (0, 1)}, {}),))
    [body] = publishing.reconcile(owner, publishing.contents((probe,)), ()).create
    resource = dataclasses.replace(kube.SLICES, version=api_version)
    try:
        made = client.create(resource, publishing.to_version(body, api_version), dry_run=True)
    except kube.Unavailable:
        raise
    except kube.ApiError:
        return False
    return not publishing.dropped(body["spec"], publishing.from_version(made, api_version)["spec"])
