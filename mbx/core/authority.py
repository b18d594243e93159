"""What the owner's records add up to, for one recipient and one sender, now.

The newest record about the two governs. If it is revoked, expired or not to be verified, what holds
is `ask`, with the reason: never an older, wider record. What cannot be read may have been anything,
so damage weakens every match that is older than it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from mbx.core.errors import MbxError
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
    read_policy,
    read_revocation,
)
from mbx.core.record import Record, RecordError, verify


class OwnerKey(NamedTuple):
    """A key of the owner; a former one verifies records up to `until_version` of the chain.

    `until_digest`: of the record that stands there, as the owner signed it with the successor; None
    where no word of the owner's tells it.
    """

    key_id: str
    public: bytes
    until_version: int | None = None
    until_digest: str | None = None


class Damage(NamedTuple):
    """A place of the chain where nothing that can be believed stands."""

    version: int
    reason: str


Entry = Policy | Revocation | Damage
"""What stands at one place of the chain."""


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


class Next(NamedTuple):
    """Where the chain goes on: the next record's `version`, and the predecessor it must name."""

    version: int = 1
    previous: str | None = None


FIRST: Final = Next()
"""Of a chain that has no record yet."""


class Overlay(NamedTuple):
    """For mail of `sender` (words for people) the newer `record` governs, whatever became of it."""

    sender: str
    record: str


@dataclass(frozen=True, slots=True)
class Book:
    """The chain of policies and revocations, verified; `entries` newest first.

    `version` is the newest place that was ever taken, as far as that can be known, and `head` the
    digest of what stands there: `NO_RECORD` for nothing, None for no place. Nothing up to `void`
    counts, since the store was put back from a copy (None: it was not). `superseded`:
    (version, recipient) -> the newer record that governs instead, whoever writes; '' for a policy
    about mail from oneself. `overlaid`: the same keys -> for whose mail newer records govern.
    """

    own_host: str
    entries: tuple[Entry, ...] = ()
    revocations: tuple[Revocation, ...] = field(default=())
    version: int = 0
    next: Next = FIRST
    superseded: Mapping[tuple[int, str], str] = field(default_factory=dict)
    overlaid: Mapping[tuple[int, str], tuple[Overlay, ...]] = field(default_factory=dict)
    head: str | None = None
    void: int | None = None

    @property
    def damaged(self) -> tuple[Damage, ...]:
        """The places that could not be verified, newest first."""
        return tuple(entry for entry in self.entries if isinstance(entry, Damage))

    def policies(self) -> list[Policy]:
        """Every policy that can be read, newest first."""
        return [entry for entry in self.entries if isinstance(entry, Policy)]

    def grant(self, recipient: str, sender: Sender, clock: Clock) -> Grant:
        """What holds for mail from `sender` to the identity `recipient`."""
        damage: Damage | None = None
        for entry in self.entries:
            if isinstance(entry, Damage):
                damage = damage or entry
            elif (
                isinstance(entry, Policy)
                and entry.concerns(recipient)
                and entry.covers(sender, self.own_host)
            ):
                return self._judged(entry, damage, clock)
        return Grant(reason=_damaged(damage)) if damage else NOTHING

    def standing(self, policy: Policy, clock: Clock, recipient: str | None = None) -> str:
        """Why a policy grants nothing now, whoever writes; '' if it does.

        `recipient`: to this identity; None: to any that it names.
        """
        damage = next((one for one in self.damaged if one.version > policy.version), None)
        return self._fault(policy, damage, clock) or self._superseding(policy, recipient)

    def parts(self, policy: Policy, recipient: str | None = None) -> list[tuple[str, Overlay]]:
        """For whom and whose mail newer records govern in place of this one: (identity id, what).

        `recipient`: of this identity alone.
        """
        return [
            (to.identity, overlay)
            for to in policy.to
            if recipient in (None, to.identity)
            for overlay in self.overlaid.get((policy.version, to.identity), ())
        ]

    def _superseding(self, policy: Policy, recipient: str | None) -> str:
        to = [subject.identity for subject in policy.to] if recipient is None else [recipient]
        newer = [self.superseded.get((policy.version, one)) for one in to]
        if None in newer:
            return ""
        record = next(filter(None, newer), None)
        return f"superseded by record {record}" if record else ONESELF

    def _judged(self, policy: Policy, damage: Damage | None, clock: Clock) -> Grant:
        fault = self._fault(policy, damage, clock)
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

    def _fault(self, policy: Policy, damage: Damage | None, clock: Clock) -> str:
        revoked = next((one for one in self.revocations if one.voids(policy)), None)
        if revoked is not None:
            return f"revoked by record {revoked.id}"
        if damage is not None:
            return _damaged(damage)
        if self.void is not None and policy.version <= self.void:
            return PUT_BACK
        if clock.is_behind:
            return "the clock is behind what it was: no term can be proved"
        if clock.now_ms >= policy.exp_ms:
            return "the policy has expired"
        if policy.iat_ms > clock.now_ms + CLOCK_BACK_MAX_MS:
            return "the policy was signed at a time that has not come"
        return ""


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


def _damaged(damage: Damage) -> str:
    return f"record {damage.version} of the owner's chain {damage.reason}"


# -- building it ----------------------------------------------------------------------------------


ROTATE_FIELDS: Final = frozenset(
    "v type iat nonce aud owner public_key previous until_version head".split()
)
"""Of the record by which the owner's key is changed: at `until_version`, where `head` stood."""


def with_ends(
    owner_keys: Sequence[OwnerKey], rotations: Sequence[Record], own_host: str
) -> list[OwnerKey]:
    """The owner's keys, newest first, each former one with its end as both keys signed it.

    `rotations` are the stored records, in any order. A former key without one keeps what the row
    says of it, and no digest. Never raises.
    """
    found = [key._replace(until_version=None) for key in owner_keys[:1]]
    for successor, key in pairwise(owner_keys):
        end = next(
            (one for record in rotations if (one := _end_of(key, successor, record, own_host))),
            None,
        )
        found.append(end or key._replace(until_version=key.until_version or 0))
    return found


def _end_of(key: OwnerKey, successor: OwnerKey, record: Record, own_host: str) -> OwnerKey | None:
    """The key with its end, if this record tells it; None for any other record."""
    signers = {key.key_id: key.public, successor.key_id: successor.public}
    try:
        payload = verify(record, kind="rotate", signers=signers, audience=own_host)
    except RecordError:
        return None
    version, head = payload.get("until_version"), payload.get("head")
    told = (payload.get("owner"), payload.get("previous"))
    if payload.keys() != ROTATE_FIELDS or told != (successor.key_id, key.key_id):
        return None
    if type(version) is not int or not isinstance(head, str | None):
        return None
    return key._replace(until_version=version, until_digest=head)


class Link(NamedTuple):
    """One stored record of the chain, as it lies in the store."""

    version: int
    record: Record


def build(
    links: Sequence[Link],
    owner_keys: Sequence[OwnerKey],
    own_host: str,
    floor: int = 0,
    void: int | None = None,
) -> Book:
    """Verify the stored chain, record by record; `links` in the order in which they were applied.

    `floor` is the highest version that was ever accepted here, from a second place: a chain that
    ends below it was rolled back. Never raises: what is wrong becomes a `Damage`. A version that no
    signature bears out moves nothing: it can neither push the chain forward nor stretch it.
    """
    read = [_read(link, owner_keys, own_host) for link in links]
    proved = max((place.version for place in read if place.is_believed), default=0)
    places = _settled(read, max(floor, proved))
    _hold_to_ends(places, owner_keys, max(floor, proved))
    entries: list[Entry] = []
    follower: _Place | None = None
    above = max([floor, *places]) + 1
    for place in sorted(places.values(), reverse=True, key=lambda one: one.version):
        entries += _gap(place.version, above)
        entry = place.entry
        if follower is not None and follower.version == place.version + 1:
            named = follower.previous
            if named is not None and place.digest != named:
                entry = Damage(place.version, "is not the one that its successor names")
        entries.append(entry)
        follower, above = place, place.version
    entries += _gap(0, above)
    revocations = tuple(entry for entry in entries if isinstance(entry, Revocation))
    version = max([floor, *places])
    following = _next(links, places, version)
    superseded, overlaid = _superseded(entries, own_host)
    head = (places[version].digest if version in places else None) or NO_RECORD
    return Book(
        own_host,
        tuple(entries),
        revocations,
        version,
        following,
        superseded,
        overlaid,
        head if version else None,
        void,
    )


def _superseded(
    entries: Sequence[Entry], own_host: str
) -> tuple[dict[tuple[int, str], str], dict[tuple[int, str], tuple[Overlay, ...]]]:
    """The policies of which newer ones leave nothing, and less, for each recipient.

    `entries` are newest first. The newest record about two governs whatever has become of it, so
    that an expired or revoked one supersedes too. Mail from oneself is nobody's matter.
    """
    governing: dict[tuple[str, str], dict[str, Overlay]] = {}
    found: dict[tuple[int, str], str] = {}
    overlaid: dict[tuple[int, str], tuple[Overlay, ...]] = {}
    for policy in (entry for entry in entries if isinstance(entry, Policy)):
        for to in dict.fromkeys(subject.identity for subject in policy.to):
            left = False
            parts: dict[Overlay, None] = {}
            sources = [(source, *_senders(source, own_host)) for source in policy.sources]
            for source, host, who in sources:
                if who == to:
                    continue
                newer = governing.get((to, host), {})
                whole = next((one for other, one in newer.items() if other in ("", who)), None)
                left = left or whole is None
                if whole is not None:
                    parts[Overlay(source.words, whole.record)] = None
                elif who == "":
                    parts |= {one: None for other, one in newer.items() if other != to}
            if parts:
                overlaid[policy.version, to] = tuple(parts)
            if not left:
                found[policy.version, to] = next((one.record for one in parts), "")
            for source, host, who in sources:
                overlay = Overlay(source.words, policy.id)
                governing.setdefault((to, host), {}).setdefault(who, overlay)
    return found, overlaid


def _senders(source: Source, own_host: str) -> tuple[str, str]:
    """Whom a source means: (host, identity), or (host, '') for everybody there."""
    return (own_host, "") if source.kind == "local" else (source.host, source.identity)


class _Place(NamedTuple):
    """What stands at one place: its own `digest`, and the one that it names as its predecessor."""

    version: int
    entry: Entry
    digest: str | None
    previous: str | None

    @property
    def is_believed(self) -> bool:
        """Whether the owner's signature bears it out."""
        return not isinstance(self.entry, Damage)


def _settled(read: Sequence[_Place], known: int) -> dict[int, _Place]:
    """Each record at its place, in which one that is believed goes before one that is not.

    A version beyond what is known is nobody's word: such a record stands behind those that were
    applied before it.
    """
    places: dict[int, _Place] = {}
    before = 0
    for one in read:
        place = one
        if not place.is_believed and not 0 < place.version <= known:
            reason = place.entry.reason
            place = place._replace(version=before + 1, entry=Damage(before + 1, reason))
        if place.is_believed or place.version not in places:
            places[place.version] = place
        before = max(before, place.version)
    return places


def _hold_to_ends(places: dict[int, _Place], owner_keys: Sequence[OwnerKey], known: int) -> None:
    """Where the owner changed the key, only the record that was there then is believed.

    Whoever has a former key could sign another one for that place; all before it are held by their
    successors. A row of ours that no record bears out moves nothing beyond what is known.
    """
    for key in owner_keys[1:]:
        end = key.until_version or 0
        if key.until_digest is None:
            end = min(end, known)
        place = places.get(end)
        if end > 0 and (place is None or place.digest != key.until_digest):
            digest, previous = (place.digest, place.previous) if place else (None, None)
            damage = Damage(end, "is not the one at which the owner changed the key")
            places[end] = _Place(end, damage, digest, previous)


def _gap(below: int, above: int) -> list[Damage]:
    """The places between two, of which nothing is left, as one."""
    if above - below < 2:
        return []
    rest = "" if above - below == 2 else f", and all down to {below + 1}"
    return [Damage(above - 1, f"is missing{rest}")]


def _next(links: Sequence[Link], places: Mapping[int, _Place], version: int) -> Next:
    """No version is used twice, not even one that only stands in a damaged row."""
    stored = {link.version for link in links}
    following = version + 1
    while following in stored:
        following += 1
    if following == 1:
        return FIRST
    last = places[max(places)].digest if places else None
    return Next(following, last or NO_RECORD)


NO_RECORD: Final = "0" * 64
"""The predecessor that a record names where of none before it anything is left."""


def record_digest(record: Record) -> str | None:
    """The digest that a successor names, as hex; None for a text that has none."""
    try:
        return record.digest.hex()
    except ValueError:
        return None


def read_link(
    version: int, record: Record, owner_keys: Sequence[OwnerKey], own_host: str
) -> tuple[Policy | Revocation, str | None]:
    """A verified record of the chain, and the digest of its predecessor that it names.

    Raises RecordError, or MbxError for a text in it that breaks a rule of its own.
    """
    if record.kind not in ("policy", "revoke"):
        raise RecordError(6, "is no policy and no revocation")
    signers = _signers(version, record, owner_keys)
    payload = verify(record, kind=record.kind, signers=signers, audience=own_host)
    if payload.get("owner") not in signers:
        raise RecordError(6, "names another owner than the one who signed")
    if payload.get("version") != version or payload.get("chain") != own_host:
        raise RecordError(6, "belongs to another place or chain")
    previous = payload.get("previous")
    entry: Policy | Revocation
    if record.kind == "policy":
        entry = read_policy(payload, record.id)
    else:
        entry = read_revocation(payload, record.id)
    return entry, previous if isinstance(previous, str) else None


def _signers(version: int, record: Record, owner_keys: Sequence[OwnerKey]) -> Mapping[str, bytes]:
    """The key that may have signed this place of the chain, from our own trust."""
    for key in owner_keys:
        may_sign = key.until_version is None or version <= key.until_version
        if key.key_id in record.signatures and may_sign:
            return {key.key_id: key.public}
    raise RecordError(2, "signed by no key of the owner's")


def _read(link: Link, owner_keys: Sequence[OwnerKey], own_host: str) -> _Place:
    # The reasons are constants of ours or of the verifier: they are shown in policy lines.
    version, digest = link.version, record_digest(link.record)
    try:
        entry, previous = read_link(version, link.record, owner_keys, own_host)
    except RecordError as error:
        damage = Damage(version, f"cannot be verified ({error.reason})")
        return _Place(version, damage, digest, None)
    except MbxError as error:
        return _Place(version, Damage(version, f"cannot be read ({error.code})"), digest, None)
    return _Place(version, entry, digest, previous)
