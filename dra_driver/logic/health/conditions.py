"""When what was found begins to count, and when it does so no more.

A condition ends when its cause is gone and has stayed away for its hold. One that comes back before
that, or soon after, is held twice as long, up to an hour. Seconds are of the monotonic clock, which
knows of no change of the date; it begins anew with each boot, and so does what is measured by it.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from dra_driver.logic.health import meaning
from dra_driver.model import devices, health, mig, taints

LONGEST_HOLD = 3600.0
"""Seconds."""
REMEMBERED = 3600.0
"""Seconds for which it counts as coming back what has ended."""
MOST_REMEMBERED = 256
"""Things that have ended, of one GPU."""
MOST = 64
"""Conditions of one GPU: of more the least grave are not kept."""

Identity = tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Left:
    """Something that has ended: when, and how often it had come back until then."""

    at: float
    returns: int


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """What counts of one GPU, in the order in which it was found, and what has ended."""

    conditions: tuple[health.Condition, ...] = ()
    left: Mapping[Identity, Left] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Now:
    """The time: seconds of the monotonic clock, and what is told (RFC 3339, UTC, seconds)."""

    seconds: float
    text: str


def found(
    state: State, finding: health.Finding, now: Now, hold: float, claims: Iterable[str] = ()
) -> State:
    """It is there, whether it was before or not. `claims` have the device, by UID."""
    known = next((one for one in state.conditions if _is(one, finding)), None)
    if known is not None:
        again = _again(known, finding, hold, claims)
        rest = tuple(again if one is known else one for one in state.conditions)
        return dataclasses.replace(state, conditions=rest)
    before = state.left.get(finding.identity)
    returns = 0
    if before is not None and now.seconds - before.at < REMEMBERED:
        returns = before.returns + 1
    new = health.Condition(
        finding,
        now.text,
        tuple(sorted(set(claims))),
        hold=held(hold, returns),
        returns=returns,
    )
    left = {key: value for key, value in state.left.items() if key != finding.identity}
    return State(_fewest((*state.conditions, new)), left)


def held(hold: float, returns: int) -> float:
    """For how many seconds a cause has to stay away that has come back so often."""
    return min(hold * 2.0 ** min(returns, 32), max(LONGEST_HOLD, hold))


def looked(state: State, seen: meaning.Seen, now: Now, hold: float) -> State:
    """What a look at the GPU says of its conditions."""
    for finding in seen.findings:
        state = found(state, finding, now, hold)
    there = {finding.identity for finding in seen.findings}
    return dataclasses.replace(
        state,
        conditions=tuple(
            one if one.finding.identity in there else _after_look(one, seen, now)
            for one in state.conditions
        ),
    )


def gone(state: State, key: health.Key, now: Now) -> State:
    """The causes of everything with this key are known to be gone."""
    return _all_away(state, lambda one: one.finding.key is key, now)


def recovered(state: State, now: Now) -> State:
    """The GPU was reset, or its driver loaded anew: what was to last until then is gone."""
    return _all_away(state, lambda one: one.finding.lasts is health.Lasts.UNTIL_RECOVERED, now)


def _all_away(state: State, which: Callable[[health.Condition], bool], now: Now) -> State:
    listed = tuple(_away(one, now) if which(one) else one for one in state.conditions)
    return dataclasses.replace(state, conditions=listed)


def ended(state: State, live: Collection[str], now: Now) -> State:
    """Claims have ended: all but those that are live, by UID."""
    left = []
    for one in state.conditions:
        if one.finding.lasts is not health.Lasts.UNTIL_CLAIMS_END:
            left.append(one)
        elif not one.claims:
            left.append(_away(one, now))
        elif not live_claims(one, live):
            continue
        else:
            left.append(dataclasses.replace(one, claims=live_claims(one, live)))
    return dataclasses.replace(state, conditions=tuple(left))


def live_claims(condition: health.Condition, live: Collection[str]) -> tuple[str, ...]:
    """The claims of a condition that have not ended."""
    return tuple(uid for uid in condition.claims if uid in live)


def lapsed(state: State, now: Now, *, looked: bool) -> State:
    """Without what has stayed away for long enough.

    `looked`: the GPU was looked at just now. What a look has to confirm ends by a look alone.
    """
    over = [one for one in state.conditions if _is_over(one, now, looked=looked)]
    fresh = {key: value for key, value in state.left.items() if now.seconds - value.at < REMEMBERED}
    if not over and len(fresh) == len(state.left):
        return state
    fresh |= {
        one.finding.identity: Left(now.seconds, one.returns)
        for one in over
        if one.hold and one.finding.lasts is not health.Lasts.UNTIL_CLAIMS_END
    }
    newest = sorted(fresh.items(), key=lambda item: item[1].at)[-MOST_REMEMBERED:]
    return State(tuple(one for one in state.conditions if one not in over), dict(newest))


def rebooted(state: State) -> State:
    """What is left after a boot of the node: what a look may find again, and nothing else.

    The first look that does not find it ends it; its time stays if it does.
    """
    kept = (
        dataclasses.replace(one, away=None, hold=0.0, returns=0, before_boot=True)
        for one in state.conditions
        if one.finding.lasts is health.Lasts.WHILE_SEEN
    )
    return State(tuple(kept))


def replaced(state: State) -> State:
    """The GPU has not come back with a boot of the node: what was found before says nothing."""
    kept = tuple(one for one in state.conditions if not one.before_boot)
    return dataclasses.replace(state, conditions=kept)


def next_end(state: State, after: float) -> float | None:
    """When the next condition may end, in seconds of the monotonic clock; None: nobody knows.

    What might have ended until `after`, and did not, waits for a look that tells of its GPU.
    """
    ends = (one.away + one.hold for one in state.conditions if one.away is not None)
    return min((end for end in ends if end > after), default=None)


def grave_first(listed: Iterable[health.Condition]) -> list[health.Condition]:
    """The gravest first: by effect, then by what is wrong, then the oldest."""
    return sorted(listed, key=_gravity)


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """What counts on a node at one moment."""

    conditions: tuple[health.Condition, ...] = ()

    def of(self, offered: devices.Offer) -> tuple[health.Condition, ...]:
        """What is wrong with a device, the gravest first."""
        return self.at(offered.gpu.uuid, offered.spot)

    def at(self, gpu: str, spot: mig.Spot | None) -> tuple[health.Condition, ...]:
        """What is wrong with a place of a GPU, None: the whole, the gravest first."""
        return tuple(
            grave_first(
                one
                for one in self.conditions
                if not one.finding.only_claims
                and one.finding.gpu == gpu
                and one.finding.spot in {None, spot}
            )
        )

    def of_gpu(self, gpu: str) -> tuple[health.Condition, ...]:
        """What is wrong with a GPU or any part of it, the gravest first."""
        return tuple(grave_first(one for one in self.conditions if one.finding.gpu == gpu))

    def of_claim(self, uid: str) -> tuple[health.Condition, ...]:
        """What has hit a claim and none of its devices."""
        return tuple(
            one for one in self.conditions if one.finding.only_claims and uid in one.claims
        )


def withdraws(listed: Iterable[health.Condition]) -> bool:
    """Whether nobody new is to get the device."""
    return any(one.finding.effect != taints.NONE for one in listed)


def told(listed: Sequence[health.Condition]) -> str:
    """What is wrong with a device, for its users: the gravest first."""
    return "; ".join(dict.fromkeys(_said(one) for one in listed))


def _said(one: health.Condition) -> str:
    if not one.returns:
        return one.finding.message
    times = "once" if one.returns == 1 else f"{one.returns} times"
    return f"{one.finding.message} (it has come back {times}, and has to stay away {one.hold:g} s)"


_EFFECTS = (taints.NO_EXECUTE, taints.NO_SCHEDULE, taints.NONE)
_KEYS = list(health.Key)


def _gravity(one: health.Condition) -> tuple[int, int, str, str]:
    finding = one.finding
    return (_EFFECTS.index(finding.effect), _KEYS.index(finding.key), one.since, finding.value)


def _fewest(listed: tuple[health.Condition, ...]) -> tuple[health.Condition, ...]:
    if len(listed) <= MOST:
        return listed
    kept = grave_first(listed)[:MOST]
    return tuple(one for one in listed if one in kept)


def _is(one: health.Condition, finding: health.Finding) -> bool:
    return one.finding.identity == finding.identity


def _again(
    known: health.Condition, finding: health.Finding, hold: float, claims: Iterable[str]
) -> health.Condition:
    returns = known.returns + (known.away is not None)
    lasts_by_claims = finding.lasts is health.Lasts.UNTIL_CLAIMS_END
    if lasts_by_claims:
        returns = 0
    return dataclasses.replace(
        known,
        finding=finding,
        claims=tuple(sorted({*known.claims, *claims})),
        away=None,
        hold=held(hold, returns),
        returns=returns,
        before_boot=False,
    )


def _after_look(one: health.Condition, seen: meaning.Seen, now: Now) -> health.Condition:
    match one.finding.lasts:
        case health.Lasts.WHILE_SEEN if one.finding.key in seen.unknown:
            # That it was away for a moment counts for nothing while nobody can see it.
            return one if one.finding.key in meaning.UNSEEN else _unknown(one)
        case health.Lasts.WHILE_SEEN:
            return _away(one, now)
        case health.Lasts.UNTIL_RECOVERED if seen.is_recovered:
            return _away(one, now)
        case health.Lasts.UNTIL_RECOVERED if seen.is_recovered is False:
            return _unknown(one)
    return one


def _unknown(one: health.Condition) -> health.Condition:
    return dataclasses.replace(one, away=None)


def _away(one: health.Condition, now: Now) -> health.Condition:
    return one if one.away is not None else dataclasses.replace(one, away=now.seconds)


def _is_over(one: health.Condition, now: Now, *, looked: bool) -> bool:
    by_itself = (
        one.finding.lasts is health.Lasts.UNTIL_CLAIMS_END or one.finding.key in meaning.UNSEEN
    )
    is_away = one.away is not None and now.seconds - one.away >= one.hold
    return is_away and (looked or by_itself)
