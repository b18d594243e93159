"""What the owner's records add up to, for one recipient and one sender, now.

The newest record about the two governs, on whatever host of the owner's it was drafted. If it is
revoked, expired or not to be verified, what holds is `ask`, with the reason: never an older, wider
record. What cannot be read may have been anything, so damage weakens every match that is older than
it, and a match from another chain also where nobody can say which of the two is older.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mbx.core.chains import (
    FIRST,
    Chain,
    Damage,
    Entry,
    Link,
    Next,
    OwnerKey,
    Terms,
    stamps,
    verified,
)
from mbx.core.limits import CLOCK_BACK_MAX_MS
from mbx.core.policy import (
    ASK,
    CLASSES,
    HOP_LIMITS,
    MANNERS,
    YOLO,
    Policy,
    Revocation,
    Sender,
    Source,
    Subject,
)


class Grant(NamedTuple):
    """What mail of a sender may make a recipient do: `classes`, under a `level`.

    `record`, `version` and `exp_ms` name the policy that governed, also where it grants nothing;
    `reason` says why nothing, or less, is granted ('' where all of the policy holds).
    """

    level: str = ASK
    classes: tuple[str, ...] = ()
    record: str | None = None
    version: int | None = None
    exp_ms: int | None = None
    projects: tuple[str, ...] = ()
    reason: str = ""

    @property
    def hop_limit(self) -> int | None:
        """How often mail under it may be passed on."""
        return HOP_LIMITS[self.level]


ONESELF: Final = "mail from oneself delegates nothing"
"""Why a policy for the sender itself grants nothing."""

PUT_BACK: Final = "the store was put back from a copy: what was signed before counts no more"
"""Why a policy grants nothing that the store has whole."""

NOTHING: Final = Grant()
"""What holds where no record is about the two."""


class Clock(NamedTuple):
    """The wall clock now, and the latest it ever was when something was recorded (ms UTC)."""

    now_ms: int
    high_ms: int = 0

    @property
    def is_behind(self) -> bool:
        """Whether the clock was set back by more than a correction: then no term is proved."""
        return self.now_ms < self.high_ms - CLOCK_BACK_MAX_MS


class Content(NamedTuple):
    """What a message brings with it that can only lower what its sender's policy grants."""

    is_external: bool = False
    hop: int = 0
    is_verified: bool = True


class Overlay(NamedTuple):
    """For mail of `sender` the newer `record` governs, whatever became of it."""

    sender: Source
    record: str


@dataclass(frozen=True, slots=True)
class Book:
    """The chains of policies and revocations, verified; `entries` of all of them, newest first.

    `version`, `next`, `head` and `void` are those of our own host's chain, `followed` the chains of
    other hosts of the same owner. `superseded`: (record id, recipient)
    -> the newer record that governs instead, whoever writes; '' for a policy about mail from
    oneself. `overlaid`: the same keys -> for whose mail newer records govern.
    """

    own_host: str
    entries: tuple[Entry, ...] = ()
    revocations: tuple[Revocation, ...] = field(default=())
    version: int = 0
    next: Next = FIRST
    superseded: Mapping[tuple[str, Subject], str] = field(default_factory=dict)
    overlaid: Mapping[tuple[str, Subject], tuple[Overlay, ...]] = field(default_factory=dict)
    head: str | None = None
    void: int | None = None
    followed: Mapping[str, Chain] = field(default_factory=dict)

    @property
    def damaged(self) -> tuple[Damage, ...]:
        """The places that could not be verified, newest first."""
        return tuple(entry for entry in self.entries if isinstance(entry, Damage))

    @property
    def latest_followed_ms(self) -> int:
        """When the newest record of another host's chain was signed, by that host (ms UTC)."""
        every = (entry for chain in self.followed.values() for entry in chain.entries)
        return max((one.iat_ms for one in every if not isinstance(one, Damage)), default=0)

    def policies(self) -> list[Policy]:
        """Every policy that can be read, newest first."""
        return [entry for entry in self.entries if isinstance(entry, Policy)]

    def grant(self, recipient: str, sender: Sender, clock: Clock) -> Grant:
        """What holds for mail from `sender` to `recipient`, the id of an identity of this host."""
        for entry in self.entries:
            if (
                isinstance(entry, Policy)
                and entry.concerns(recipient, self.own_host)
                and entry.covers(sender, self.own_host)
            ):
                return self._judged(entry, clock)
        damage = self.damaged[:1]
        return Grant(reason=self._damaged(damage[0])) if damage else NOTHING

    def standing(self, policy: Policy, clock: Clock, recipient: str | None = None) -> str:
        """Why a policy grants nothing now, whoever writes; '' if it does.

        `recipient`: to this identity; None: to any that it names.
        """
        return self._fault(policy, self._weakening(policy), clock) or self._superseding(
            policy, recipient
        )

    def parts(self, policy: Policy, recipient: str | None = None) -> list[tuple[Subject, Overlay]]:
        """For whom and whose mail newer records govern in place of this one.

        `recipient`: of this identity alone.
        """
        return [
            (to, overlay)
            for to in policy.to
            if recipient in (None, to.identity)
            for overlay in self.overlaid.get((policy.id, to), ())
        ]

    def label_of(self, chain: str) -> str:
        """What the host of a followed chain is called here, '' for our own."""
        return self.followed[chain].label if chain in self.followed else ""

    def _superseding(self, policy: Policy, recipient: str | None) -> str:
        to = [subject for subject in policy.to if recipient in (None, subject.identity)]
        newer = [self.superseded.get((policy.id, one)) for one in to]
        if None in newer:
            return ""
        record = next(filter(None, newer), None)
        return f"superseded by record {record}" if record else ONESELF

    def _judged(self, policy: Policy, clock: Clock) -> Grant:
        fault = self._fault(policy, self._weakening(policy), clock)
        if fault:
            return Grant(
                record=policy.id, version=policy.version, exp_ms=policy.exp_ms, reason=fault
            )
        return Grant(
            policy.level,
            policy.classes,
            policy.id,
            policy.version,
            policy.exp_ms,
            policy.projects,
        )

    def _weakening(self, policy: Policy) -> Damage | None:
        """The newest damage that may have been something newer about the same two."""
        return next((one for one in self.damaged if _may_be_newer(one, policy)), None)

    def _fault(self, policy: Policy, damage: Damage | None, clock: Clock) -> str:
        revoked = next((one for one in self.revocations if one.voids(policy)), None)
        if revoked is not None:
            return f"revoked by record {revoked.id}"
        if damage is not None:
            return self._damaged(damage)
        void, ended, label = self.void, 0, ""
        if policy.chain in self.followed:
            chain = self.followed[policy.chain]
            void, ended, label = chain.void, chain.ended, chain.label
        if policy.version <= ended:
            return f"signed on {label}, and the pairing with it has ended since"
        if void is not None and policy.version <= void:
            return PUT_BACK
        if clock.is_behind:
            return "the clock is behind what it was: no term can be proved"
        if clock.now_ms >= policy.exp_ms:
            return "the policy has expired"
        if policy.iat_ms > clock.now_ms + CLOCK_BACK_MAX_MS:
            return "the policy was signed at a time that has not come"
        return ""

    def _damaged(self, damage: Damage) -> str:
        label = self.label_of(damage.chain)
        where = f" on {label}" if label else ""
        return f"record {damage.version} of the owner's chain{where} {damage.reason}"


def _may_be_newer(damage: Damage, policy: Policy) -> bool:
    """Of one chain the places tell; of two only the times, and what has none may be the newest."""
    if damage.chain == policy.chain:
        return damage.version > policy.version
    return damage.before_ms is None or damage.before_ms >= policy.iat_ms


def lowered(grant: Grant, content: Content) -> Grant:
    """The minimum of a grant and what the message brings with it."""
    if not content.is_verified:
        return grant._replace(level=ASK, classes=(), reason="the sender could not be verified")
    if grant.level == ASK:
        return grant
    limit = grant.hop_limit
    if limit is not None and content.hop > limit:
        reason = f"passed on {content.hop} times, {limit} at most"
        return grant._replace(level=ASK, classes=(), reason=reason)
    if content.is_external:
        kept = tuple(one for one in grant.classes if one == "read")
        return grant._replace(classes=kept, reason="content from outside: no more than read")
    return grant


def manner(grant: Grant) -> str:
    """How the agent is to work under the grant, '' where there is nothing to say.

    The words of the strongest level tell of all its classes: fewer must not be told so.
    """
    is_less = grant.level == YOLO and grant.classes != CLASSES
    return MANNERS[grant.level] if grant.classes and not is_less else ""


# -- building it ----------------------------------------------------------------------------------


def build(
    links: Sequence[Link],
    owner_keys: Sequence[OwnerKey],
    own_host: str,
    floor: int = 0,
    void: int | None = None,
    followed: Sequence[Chain] = (),
) -> Book:
    """The book of our own host's chain, as it lies in the store, and of those that it follows.

    `floor` and `void` as in `Terms`. Never raises: what is wrong becomes a `Damage`.
    """
    own = verified(links, owner_keys, own_host, own_host, Terms(floor, void=void))
    chains = (own, *followed)
    entries = _merged(chains)
    superseded, overlaid = _superseded(entries, own_host)
    revocations = [one for chain in chains for one in chain.revocations]
    revocations.sort(key=lambda one: (-one.iat_ms, one.chain, -one.version))
    return Book(
        own_host,
        tuple(entries),
        tuple(revocations),
        own.version,
        own.next,
        superseded,
        overlaid,
        own.head,
        void,
        {chain.host: chain for chain in followed},
    )


def _merged(chains: Sequence[Chain]) -> list[Entry]:
    """The entries of all chains, newest first: by time, along each chain by place.

    At one time the order is that of the hosts' key ids, so that all hosts agree.
    """
    every = [
        (entry, stamp)
        for chain in sorted(chains, key=lambda one: one.host)
        for entry, stamp in zip(chain.entries, stamps(chain.entries), strict=True)
    ]
    every.sort(key=lambda one: (one[1] is not None, -(one[1] or 0)))
    return [entry for entry, _ in every]


def _superseded(
    entries: Sequence[Entry], own_host: str
) -> tuple[dict[tuple[str, Subject], str], dict[tuple[str, Subject], tuple[Overlay, ...]]]:
    """The policies of which newer ones leave nothing, and less, for each recipient.

    `entries` are newest first. The newest record about two governs whatever has become of it, so
    that an expired or revoked one supersedes too. Mail from oneself is nobody's matter.
    """
    governing: dict[tuple[str, str, str], dict[str, Overlay]] = {}
    found: dict[tuple[str, Subject], str] = {}
    overlaid: dict[tuple[str, Subject], tuple[Overlay, ...]] = {}
    for policy in (entry for entry in entries if isinstance(entry, Policy)):
        sources = [(source, *_senders(source, own_host)) for source in policy.sources]
        for to in dict.fromkeys(policy.to):
            home = to.host or policy.chain
            left = False
            parts: dict[Overlay, None] = {}
            for source, host, who in sources:
                if (host, who) == (home, to.identity):
                    continue
                newer = governing.get((home, to.identity, host), {})
                whole = next((one for other, one in newer.items() if other in ("", who)), None)
                left = left or whole is None
                if whole is not None:
                    parts[Overlay(source, whole.record)] = None
                elif who == "":
                    parts |= dict.fromkeys(_others(newer, to.identity if host == home else ""))
            if parts:
                overlaid[policy.id, to] = tuple(parts)
            if not left:
                found[policy.id, to] = next((one.record for one in parts), "")
            for source, host, who in sources:
                overlay = Overlay(source, policy.id)
                governing.setdefault((home, to.identity, host), {}).setdefault(who, overlay)
    return found, overlaid


def _others(newer: Mapping[str, Overlay], oneself: str) -> Iterator[Overlay]:
    return (one for other, one in newer.items() if other != oneself)


def _senders(source: Source, own_host: str) -> tuple[str, str]:
    """Whom a source means: (host, identity), or (host, '') for everybody there."""
    return (own_host, "") if source.kind == "local" else (source.host, source.identity)
