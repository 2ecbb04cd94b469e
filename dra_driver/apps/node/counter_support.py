"""Whether, and how, the API server takes the counters that partitions share.

Behind a feature gate that is on by default from Kubernetes 1.36 on; while it is off, the server
drops the fields without a word, and partitions would be given out on top of each other. So it is
asked first, with a write that it does not carry out.
"""

import dataclasses
import enum
import re
import time

from dra_driver import telemetry
from dra_driver.adapters.kube import kube
from dra_driver.logic.offering import publishing

ASK_AGAIN = 300.0
"""Seconds until a server that takes no counters is asked again: the gate may have been opened."""
_COMBINED_MINOR, _SPLIT_MINOR = 34, 35
_NUMBER = re.compile(r"\d+")


class Hindrance(enum.Enum):
    """Why a server takes no counters. DROPPED: the feature gate is off."""

    TOO_OLD = "too old"
    REFUSED = "refused"
    DROPPED = "dropped"


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """How counters are to be published.

    With a hindrance that is PLAIN; `detail` is then the server's minor version, or what it said.
    """

    layout: publishing.Layout
    hindrance: Hindrance | None = None
    detail: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Server:
    """What the API server says it is: its minor version, 0 if it does not tell, and its release."""

    minor: int
    git_version: str


class CounterSupport:
    """What the API server answered last."""

    def __init__(self, client: kube.Client) -> None:
        self._client = client
        self._log = telemetry.logger("counters")
        self._asked: float | None = None
        self._told = False
        self._layout = publishing.Layout.PLAIN

    def layout(self, owner: publishing.Owner, api_version: str) -> publishing.Layout:
        """How counters are to be published.

        Raises:
            kube.Unavailable: the server does not answer.
        """
        plain = self._layout is publishing.Layout.PLAIN
        if self._asked is None or (plain and time.monotonic() - self._asked > ASK_AGAIN):
            layout = self._ask(owner, api_version)
            self._asked = time.monotonic()
            self._layout = layout
        return self._layout

    def lost(self) -> None:
        """A write has shown that the server takes no counters any more."""
        self._layout = publishing.Layout.PLAIN
        self._asked = time.monotonic()

    def doubt(self) -> None:
        """Ask again: the server refused a write, so it may be another one by now."""
        self._asked = None

    def _ask(self, owner: publishing.Owner, api_version: str) -> publishing.Layout:
        answer = ask(self._client, owner, api_version)
        match answer.hindrance:
            case Hindrance.TOO_OLD:
                self._log.info("partitions need Kubernetes 1.34 or newer", minor=answer.detail)
            case Hindrance.REFUSED:
                self._log.warning(
                    "the API server refuses counters of partitions", reason=answer.detail
                )
                # It says nothing of the feature gate, and may pass: a role that is not read yet, a
                # webhook that is starting. What is published stays.
                return self._layout
            case Hindrance.DROPPED if not self._told:
                self._told = True
                self._log.warning(
                    "the API server drops the counters of partitions, so none are offered. Switch "
                    "on the feature gate DRAPartitionableDevices of API server and scheduler; it "
                    "is on by default from Kubernetes 1.36 on"
                )
            case None:
                self._told = False
        return answer.layout


def ask(client: kube.Client, owner: publishing.Owner, api_version: str) -> Answer:
    """Ask the server with a write that it does not carry out.

    Raises:
        kube.Unavailable: the server does not answer.
    """
    minor = about(client).minor
    if minor < _COMBINED_MINOR or api_version == "v1beta1":
        return Answer(publishing.Layout.PLAIN, Hindrance.TOO_OLD, str(minor))
    split = minor >= _SPLIT_MINOR
    layout = publishing.Layout.SPLIT if split else publishing.Layout.COMBINED
    probe = publishing.counter_probe(owner, layout)
    resource = dataclasses.replace(kube.SLICES, version=api_version)
    try:
        made = client.create(resource, publishing.to_version(probe, api_version), dry_run=True)
    except kube.Unavailable:
        raise
    except kube.ApiError as error:
        return Answer(publishing.Layout.PLAIN, Hindrance.REFUSED, str(error))
    if made["spec"].get("sharedCounters"):
        return Answer(layout)
    return Answer(publishing.Layout.PLAIN, Hindrance.DROPPED)


def about(client: kube.Client) -> Server:
    """What the server says it is.

    Raises:
        kube.Unavailable: the server does not answer.
    """
    told = client.get_path("/version")
    # Some providers write `34+`.
    found = _NUMBER.match(str(told.get("minor", "")))
    return Server(int(found[0]) if found else 0, str(told.get("gitVersion", "")))
