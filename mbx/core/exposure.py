"""What a conversation read lately, and what that makes of what it writes: taint and relay depth.

For one hour after reading, what came from outside sticks to everything the conversation writes,
with the time of the first exposure (the root): two agents who answer each other never start the
hour again. And what it read from one and writes to others is passed on: the hops are counted. Both
are kept for the conversation, not for the identity: release, claim and rename wash nothing off.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from mbx.core.limits import EXPOSURE_MS, HOPS_MAX

FIRST_HAND: Final = "external"
"""The `origin` by which a sender says that it passes on what came from outside."""


class Exposure(NamedTuple):
    """What one conversation read of one sender, the newest: `source_no` is the sender's key.

    `root_ms`: when what came from outside was first read by anybody, None for none; `hop`: how
    often what was read had been passed on; `hop_limit`: how often it may be; `read_ms`: when. All
    ms UTC.
    """

    source_no: int
    root_ms: int | None
    hop: int
    hop_limit: int | None
    read_ms: int


def root_at_reading(origin: object, external_since: object, now_ms: int) -> int | None:
    """The root of what is read now: None when nothing of it came from outside.

    A root that is garbled or lies in the future says nothing: then it is first-hand, as of now.
    """
    if external_since is None:
        return now_ms if origin is not None else None
    if type(external_since) is not int or not 0 <= external_since <= now_ms:
        return now_ms
    return now_ms if origin == FIRST_HAND else external_since


def joined(known: Exposure | None, fresh: Exposure) -> Exposure:
    """One exposure for what was read before and now of the same sender: the worse of both."""
    if known is None or known.read_ms <= fresh.read_ms - EXPOSURE_MS:
        return fresh
    roots = [root for root in (known.root_ms, fresh.root_ms) if root is not None]
    limits = [limit for limit in (known.hop_limit, fresh.hop_limit) if limit is not None]
    return Exposure(
        fresh.source_no,
        max(roots, default=None),
        max(known.hop, fresh.hop),
        min(limits, default=None),
        max(known.read_ms, fresh.read_ms),
    )


def external_since(
    exposures: Iterable[Exposure], quoted_root_ms: int | None, now_ms: int
) -> int | None:
    """The root to sign into what is written now, None when it is the writer's own.

    `quoted_root_ms`: of the message that is answered or passed on, for which no hour counts.
    """
    roots = [
        one.root_ms
        for one in exposures
        if one.root_ms is not None and now_ms - one.root_ms < EXPOSURE_MS
    ]
    if quoted_root_ms is not None:
        roots.append(quoted_root_ms)
    return max(roots, default=None)


class Relay(NamedTuple):
    """How often the content of a message was passed on, and the limit that forbids it (or None)."""

    hop: int
    over_limit: int | None = None


def relay(
    exposures: Iterable[Exposure],
    recipients: Collection[int],
    own_no: int,
    quoted_hop: int,
    now_ms: int,
    reached: Callable[[int], Collection[int]] = lambda source_no: (),
    overheard: Iterable[Exposure] = (),
) -> Relay:
    """The depth of a message of `own_no` to `recipients` (keys of identities).

    What was read within the hour from one and now reaches another is passed on, also when the one
    gets a copy. It goes a hop deeper when that other is new to it: who wrote to this conversation
    within the hour is not, nor whom the source has `reached` itself. So a circle that talks for
    long goes no deeper, while a text that copies itself from agent to agent soon meets a limit. A
    note to oneself goes no deeper, and loses nothing.

    `overheard`: what its kin read. That counts as well, but makes nobody known who has not written
    to `own_no` within the hour: what the many tell each other must not stay young.
    """
    recent = [one for one in exposures if now_ms - one.read_ms < EXPOSURE_MS]
    around = [one for one in overheard if now_ms - one.read_ms < EXPOSURE_MS]
    known = {one.source_no for one in recent} | {own_no}
    strangers = set(recipients) - known
    for source_no in strangers & {one.source_no for one in around}:
        if own_no in reached(source_no):
            strangers.discard(source_no)
    hop, over_limit = quoted_hop, None
    for one in (*recent, *around):
        is_own = one.source_no == own_no
        if not is_own and {one.source_no}.issuperset(recipients):
            continue  # it goes back to where it came from, and nowhere else
        is_new = bool(strangers) and not is_own and not strangers.issubset(reached(one.source_no))
        passed = one.hop + is_new
        if one.hop_limit is not None and passed > one.hop_limit:
            over_limit = one.hop_limit
        hop = max(hop, passed)
    return Relay(min(hop, HOPS_MAX), over_limit)
