"""What the taints of a device mean for the pods that have it: do they stay, and until when."""

import dataclasses
import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any

from dra_driver.logic.health import prospects
from dra_driver.logic.scheduling import candidacy, evicting
from dra_driver.model import claims, health, taints

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Consequence:
    """What is wrong and the next step; with `stops` False pods go on."""

    problem: str
    remedy: str
    stops: bool = True


def of(
    result: claims.Result, candidate: candidacy.Candidate, *, ending: str
) -> Iterator[Consequence]:
    """What each taint of an allocated device means; `ending` says what Kubernetes does."""
    tolerations = result.extra.get("tolerations") or ()
    driver = candidate.id.driver
    for taint in candidate.taints:
        stays = evicting.stays_for(tolerations, taint)
        if taint.key == f"{driver}/{health.Key.GPU_LOST}":
            yield _lost(taint)
        elif taint.effect == taints.NO_EXECUTE and stays is not None:
            yield _ends(taint, stays, tolerations, ending)
        elif taint.blocks:
            yield _kept(taint, driver)
        elif prospects.is_own(taint.key, driver):
            yield Consequence(
                f"it has the taint {prospects.told(taint, driver)}",
                "It only informs: pods keep the device, and new ones get it",
                stops=False,
            )


def _lost(taint: taints.Taint) -> Consequence:
    return Consequence(
        f"its GPU is not there any more (taint {taint}{prospects.since(taint)})",
        "Look at the node's kernel log (dmesg | grep -i xid). Delete the pods that have the claim, "
        "and it is allocated anew",
    )


def _ends(taint: taints.Taint, stays: int, tolerations: Sequence[Json], ending: str) -> Consequence:
    told = "does not tolerate"
    if stays:
        told = f"tolerates for {stays} s{_until(taint, stays)}"
    elif any(taints.parse_toleration(body).covers(taint) for body in tolerations):
        told = "tolerates only for the start of pods, without `effect: NoExecute`"
    return Consequence(
        f"it has the taint {taint}{prospects.since(taint)}, which the claim {told}: {ending}",
        "A pod that is made anew gets another device; or tolerate it, with `effect: NoExecute`, in "
        "the request",
    )


def _until(taint: taints.Taint, seconds: int) -> str:
    if not taint.added:
        return ""
    end = dt.datetime.fromisoformat(taint.added) + dt.timedelta(seconds=seconds)
    return f", until {end.strftime('%Y-%m-%dT%H:%M:%SZ')}"


def _kept(taint: taints.Taint, driver: str) -> Consequence:
    remedy = "Pods that have the claim keep it; no other claim gets it"
    if prospects.is_own(taint.key, driver):
        remedy += f". Who wants it has to {prospects.awaited(taint, driver)}"
    return Consequence(f"it has the taint {prospects.told(taint, driver)}", remedy, stops=False)
