"""What the owner's records add up to, for one recipient and one sender, now.

The newest record about the two governs. If it is revoked, expired or not to be verified, what holds
is `ask`, with the reason: never an older, wider record. What cannot be read may have been anything,
so damage weakens every match that is older than it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mbx.core.errors import MbxError
from mbx.core.limits import CLOCK_BACK_MAX_MS
from mbx.core.policy import (
    ASK,
    HOP_LIMITS,
    MANNERS,
    Policy,
    Revocation,
    Sender,
    read_policy,
    read_revocation,
)
from mbx.core.record import Record, RecordError, verify


class OwnerKey(NamedTuple):
    """A key of the owner; a former one verifies records up to `until_version` of the chain."""

    key_id: str
    public: bytes
    until_version: int | None = None


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


@dataclass(frozen=True, slots=True)
class Book:
    """The chain of policies and revocations, verified; `entries` newest first."""

    own_host: str
    entries: tuple[Entry, ...] = ()
    revocations: tuple[Revocation, ...] = field(default=())

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
                damage = entry
            elif (
                isinstance(entry, Policy)
                and entry.concerns(recipient)
                and entry.covers(sender, self.own_host)
            ):
                return self._judged(entry, damage, clock)
        return Grant(reason=_damaged(damage)) if damage else NOTHING

    def standing(self, policy: Policy, clock: Clock) -> str:
        """Why a policy grants nothing now, whoever writes; '' if it does."""
        damage = next((one for one in self.damaged if one.version > policy.version), None)
        return self._fault(policy, damage, clock)

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
    """How the agent is to work under the grant, '' where there is nothing to say."""
    return MANNERS[grant.level] if grant.classes else ""


def _damaged(damage: Damage) -> str:
    return f"record {damage.version} of the owner's chain {damage.reason}"


# -- building it ----------------------------------------------------------------------------------


class Link(NamedTuple):
    """One stored record of the chain, as it lies in the store."""

    version: int
    record: Record


def build(
    links: Sequence[Link], owner_keys: Sequence[OwnerKey], own_host: str, floor: int = 0
) -> Book:
    """Verify the stored chain, record by record.

    `floor` is the highest version that was ever accepted here, from a second place: a chain that
    ends below it was rolled back. Never raises: what is wrong becomes a `Damage`.
    """
    stored = {link.version: link.record for link in links}
    last = max([floor, *stored])
    entries: list[Entry] = []
    follower_names: str | None = None
    for version in range(last, 0, -1):
        record = stored.get(version)
        if record is None:
            entries.append(Damage(version, "is missing"))
            follower_names = None
            continue
        entry, previous = _read(version, record, owner_keys, own_host)
        if follower_names is not None and record_digest(record) != follower_names:
            entry = Damage(version, "is not the one that its successor names")
        entries.append(entry)
        follower_names = previous
    revocations = tuple(entry for entry in entries if isinstance(entry, Revocation))
    return Book(own_host, tuple(entries), revocations)


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
    elif record.kind == "revoke":
        entry = read_revocation(payload, record.id)
    else:
        raise RecordError(6, "is no policy and no revocation")
    return entry, previous if isinstance(previous, str) else None


def _signers(version: int, record: Record, owner_keys: Sequence[OwnerKey]) -> Mapping[str, bytes]:
    """The key that may have signed this place of the chain, from our own trust."""
    for key in owner_keys:
        may_sign = key.until_version is None or version <= key.until_version
        if key.key_id in record.signatures and may_sign:
            return {key.key_id: key.public}
    raise RecordError(2, "signed by no key of the owner's")


def _read(
    version: int, record: Record, owner_keys: Sequence[OwnerKey], own_host: str
) -> tuple[Entry, str | None]:
    # The reasons are constants of ours or of the verifier: they are shown in policy lines.
    try:
        return read_link(version, record, owner_keys, own_host)
    except RecordError as error:
        return Damage(version, f"cannot be verified ({error.reason})"), None
    except MbxError as error:
        return Damage(version, f"cannot be read ({error.code})"), None
