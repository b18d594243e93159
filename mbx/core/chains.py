"""Chains of the owner's policies and revocations, one for each host, read record by record.

Nothing here fails: what is missing, damaged, signed by no key of the owner's, or not the one record
of its place, becomes a `Damage` there. What cannot be read may have been anything.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from mbx.core.canonical import JsonValue
from mbx.core.errors import MbxError
from mbx.core.limits import CLOCK_BACK_MAX_MS
from mbx.core.policy import Policy, Revocation, read_policy, read_revocation
from mbx.core.record import Record, RecordError, verify


class OwnerKey(NamedTuple):
    """A key of the owner; a former one verifies records up to `until_version` of the chain.

    `until_digest`: of the record that stands there, as the owner signed it with the successor; None
    where no word of the owner's tells it. `until_ms`: when that was signed (ms UTC).
    """

    key_id: str
    public: bytes
    until_version: int | None = None
    until_digest: str | None = None
    until_ms: int | None = None


class Damage(NamedTuple):
    """A place of a chain where nothing that can be believed stands.

    `chain`: key id of the host; `before_ms`: whatever stood there was signed by then at the latest
    (ms UTC), since it was here then, or since what follows it was signed; None where neither tells.
    """

    version: int
    reason: str
    chain: str = ""
    before_ms: int | None = None


Entry = Policy | Revocation | Damage
"""What stands at one place of a chain."""


class Next(NamedTuple):
    """Where the chain goes on: the next record's `version`, and the predecessor it must name."""

    version: int = 1
    previous: str | None = None


FIRST: Final = Next()
"""Of a chain that has no record yet."""


class Link(NamedTuple):
    """One stored record of a chain, as it lies in the store; `applied_ms`: since when (ms UTC)."""

    version: int
    record: Record
    applied_ms: int | None = None


class Chain(NamedTuple):
    """One chain, verified; `entries` newest first.

    `host` is the key id of the host on which it is drafted. `version` is the newest place that was
    ever taken, as far as that can be known, and `head` the digest of what stands there: `NO_RECORD`
    for nothing, None for no place. Nothing up to `void` counts, since the store was put back from a
    copy (None: it was not), nor up to `ended`, since the pairing with the host has ended.
    `revocations` are all that can be believed, also where two records stand at one place. `label`:
    what the host is called here, '' for our own.
    """

    host: str
    entries: tuple[Entry, ...] = ()
    revocations: tuple[Revocation, ...] = ()
    version: int = 0
    next: Next = FIRST
    head: str | None = None
    void: int | None = None
    ended: int = 0
    label: str = ""


ROTATE_FIELDS: Final = frozenset(
    "v type iat nonce aud owner public_key previous until_version head".split()
)
"""Of the record by which the owner's key is changed: at `until_version`, where `head` stood."""

SHARED_ROTATE_FIELDS: Final = ROTATE_FIELDS | {"chain", "chains"}
"""The same where other hosts have that owner too.

`chain` is the host whose chain `until_version` and `head` are about; `chains` says where those of
the other hosts stood.
"""

_END_FIELDS: Final = frozenset({"chain", "version", "head"})


def ends_told(payload: Mapping[str, JsonValue], own_host: str) -> dict[str, tuple[int, str | None]]:
    """Chain -> (version, digest) at which the former key ends, by a verified record of kind rotate.

    Raises RecordError (step 6) for a record that is none.
    """
    if payload.keys() not in (ROTATE_FIELDS, SHARED_ROTATE_FIELDS):
        raise RecordError(6, "fields missing or unknown")
    first = {
        "chain": payload.get("chain", own_host),
        "version": payload["until_version"],
        "head": payload["head"],
    }
    others = payload.get("chains", [])
    if not isinstance(others, list):
        raise RecordError(6, "chains is no list")
    found: dict[str, tuple[int, str | None]] = {}
    for one in (first, *others):
        if not isinstance(one, dict) or one.keys() != _END_FIELDS:
            raise RecordError(6, "chains is no list of ends")
        chain, version, head = one["chain"], one["version"], one["head"]
        if not isinstance(chain, str) or type(version) is not int:
            raise RecordError(6, "not the end of a chain")
        if not isinstance(head, str | None) or chain in found:
            raise RecordError(6, "not the end of a chain")
        found[chain] = (version, head)
    return found


def with_ends(
    owner_keys: Sequence[OwnerKey],
    rotations: Sequence[Record],
    own_host: str,
    chain: str | None = None,
) -> list[OwnerKey]:
    """The owner's keys, newest first, each former one with its end as both keys signed it.

    `rotations` are the stored records, in any order. A former key without one keeps what the row
    says of it, and no digest. `chain`: of that host, None for `own_host`; a record that does not
    name the chain ends the key before its first record. Never raises.
    """
    found = [key._replace(until_version=None) for key in owner_keys[:1]]
    wanted = own_host if chain is None else chain
    for successor, key in pairwise(owner_keys):
        ends = (_end_of(key, successor, record, own_host, wanted) for record in rotations)
        end = next(filter(None, ends), None)
        version = (key.until_version or 0) if wanted == own_host else 0
        found.append(end or key._replace(until_version=version))
    return found


def _end_of(
    key: OwnerKey, successor: OwnerKey, record: Record, own_host: str, chain: str
) -> OwnerKey | None:
    """The key with its end, if this record tells it; None for any other record."""
    signers = {key.key_id: key.public, successor.key_id: successor.public}
    try:
        payload = verify(record, kind="rotate", signers=signers, audience=own_host)
        if (payload.get("owner"), payload.get("previous")) != (successor.key_id, key.key_id):
            return None
        version, head = ends_told(payload, own_host).get(chain, (0, None))
    except RecordError:
        return None
    signed_ms = payload["iat"]
    assert isinstance(signed_ms, int)
    return key._replace(until_version=version, until_digest=head, until_ms=signed_ms)


# -- one chain ------------------------------------------------------------------------------------


class Terms(NamedTuple):
    """By what a chain is judged.

    `floor` is the highest version that was ever accepted, from a second place, and `floor_ms` when
    that was (None: nobody knows): a chain that ends below it was rolled back. `first` is where our
    knowledge of it begins: what is missing below is no damage. `void`, `ended` and `label` as in
    `Chain`.
    """

    floor: int = 0
    floor_ms: int | None = None
    first: int = 1
    void: int | None = None
    ended: int = 0
    label: str = ""


def verified(
    links: Sequence[Link],
    owner_keys: Sequence[OwnerKey],
    host: str,
    audience: str,
    terms: Terms | None = None,
) -> Chain:
    """Verify the stored chain of `host`; `links` in the order in which they were applied here.

    `audience` is our own host's key id. A version that no signature bears out moves nothing: it can
    neither push the chain forward nor stretch it.
    """
    terms = terms or Terms()
    read = [_read(link, owner_keys, host, audience, terms.label) for link in links]
    floor = terms.floor
    proved = max((place.version for place in read if place.is_signed), default=0)
    places = _settled(read, max(floor, proved))
    _hold_to_ends(places, owner_keys, max(floor, proved), terms.first)
    entries: list[Entry] = []
    follower: _Place | None = None
    above = max([floor, *places]) + 1
    if above > max(places, default=0) + 1:
        entries += _gap(max(places, default=terms.first - 1), above, terms.floor_ms)
        above = max(places, default=terms.first - 1) + 1
    for place in sorted(places.values(), reverse=True, key=lambda one: one.version):
        entries += _gap(place.version, above)
        entry = place.entry
        if follower is not None and follower.version == place.version + 1:
            named = follower.previous
            if named is not None and place.digest != named:
                entry = Damage(place.version, "is not the one that its successor names")
        entries.append(entry)
        follower, above = place, place.version
    entries += _gap(terms.first - 1, above)
    version = max([floor, *places])
    head = (places[version].digest if version in places else None) or NO_RECORD
    return Chain(
        host,
        tuple(_dated(entries, host)),
        tuple(place.entry for place in read if isinstance(place.entry, Revocation)),
        version,
        _next(links, places, version),
        head if version else None,
        terms.void,
        terms.ended,
        terms.label,
    )


def stamps(entries: Sequence[Entry]) -> list[int | None]:
    """When each of a chain's entries (newest first) was signed at the earliest, ms UTC.

    It never falls along the chain, also where the clock of its host was set back. Damage has that
    of what follows it, None where nothing does.
    """
    found: list[int | None] = []
    latest = 0
    for entry in reversed(entries):
        if isinstance(entry, Damage):
            found.append(entry.before_ms)
        else:
            latest = max(latest, entry.iat_ms)
            found.append(latest)
    return found[::-1]


class _Place(NamedTuple):
    """What stands at one place: its own `digest`, and the one that it names as its predecessor.

    `is_signed`: the owner's signature bears out that a record of this place is there.
    """

    version: int
    entry: Entry
    digest: str | None
    previous: str | None = None
    is_signed: bool = False
    applied_ms: int | None = None


def _dated(entries: Sequence[Entry], host: str) -> list[Entry]:
    """The same, damage with the chain that it is in and the time by which it was done."""
    before_ms: int | None = None
    found: list[Entry] = []
    for entry, stamp in zip(entries, stamps(entries), strict=True):
        if isinstance(entry, Damage):
            known = [one for one in (entry.before_ms, before_ms) if one is not None]
            found.append(entry._replace(chain=host, before_ms=min(known) if known else None))
        else:
            before_ms = stamp
            found.append(entry)
    return found


def _settled(read: Sequence[_Place], known: int) -> dict[int, _Place]:
    """Each record at its place, in which one that is signed goes before one that is not.

    A version beyond what is known is nobody's word: such a record stands behind those that were
    applied before it. Of two that are signed neither counts: one of them was kept from somebody.
    """
    places: dict[int, _Place] = {}
    before = 0
    for one in read:
        place = one
        if not place.is_signed and not 0 < place.version <= known:
            place = place._replace(version=before + 1, entry=_moved(place.entry, before + 1))
        there = places.get(place.version)
        if place.is_signed and there is not None and there.is_signed:
            if there.digest != place.digest:
                twice = Damage(place.version, _TWICE, before_ms=place.applied_ms)
                place = place._replace(entry=twice, digest=None)
            places[place.version] = place
        elif place.is_signed or there is None:
            places[place.version] = place
        before = max(before, place.version)
    return places


def _moved(entry: Entry, version: int) -> Damage:
    assert isinstance(entry, Damage)
    return entry._replace(version=version)


_TWICE: Final = "stands there in two versions, both signed"


def _hold_to_ends(
    places: dict[int, _Place], owner_keys: Sequence[OwnerKey], known: int, first: int
) -> None:
    """Where the owner changed the key, only the record that was there then is believed.

    Whoever has a former key could sign another one for that place; all before it are held by their
    successors. A row of ours that no record bears out moves nothing beyond what is known.
    """
    for key in owner_keys[1:]:
        end = key.until_version or 0
        if key.until_digest is None:
            end = min(end, known)
        place = places.get(end)
        if end >= first and (place is None or place.digest != key.until_digest):
            digest, previous = (place.digest, place.previous) if place else (None, None)
            damage = Damage(end, _NOT_THE_END, before_ms=key.until_ms)
            places[end] = _Place(end, damage, digest, previous)


_NOT_THE_END: Final = "is not the one at which the owner changed the key"


def _gap(below: int, above: int, before_ms: int | None = None) -> list[Damage]:
    """The places between two, of which nothing is left, as one."""
    if above - below < 2:
        return []
    rest = "" if above - below == 2 else f", and all down to {below + 1}"
    return [Damage(above - 1, f"is missing{rest}", before_ms=before_ms)]


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
    record: Record, owner_keys: Sequence[OwnerKey], chain: str, audience: str
) -> tuple[Policy | Revocation, str | None]:
    """A verified record of the chain of a host, and the digest of its predecessor that it names.

    Raises RecordError, or MbxError for a text in it that breaks a rule of its own.
    """
    if record.kind not in ("policy", "revoke"):
        raise RecordError(6, "is no policy and no revocation")
    key = next((one for one in owner_keys if one.key_id in record.signatures), None)
    if key is None:
        raise RecordError(2, _UNSIGNED)
    signers = {key.key_id: key.public}
    payload = verify(record, kind=record.kind, signers=signers, audience=audience)
    if payload.get("owner") != key.key_id:
        raise RecordError(6, "names another owner than the one who signed")
    if payload.get("chain") != chain:
        raise RecordError(6, _MISPLACED)
    previous = payload.get("previous")
    entry: Policy | Revocation
    if record.kind == "policy":
        entry = read_policy(payload, record.id)
    else:
        entry = read_revocation(payload, record.id)
    if key.until_version is not None and entry.version > key.until_version:
        raise RecordError(2, _UNSIGNED)
    return entry, previous if isinstance(previous, str) else None


_UNSIGNED: Final = "signed by no key of the owner's"
_MISPLACED: Final = "belongs to another place or chain"
_EARLY: Final = "was signed at a time that had not come when it was taken"


def _read(
    link: Link, owner_keys: Sequence[OwnerKey], host: str, audience: str, label: str
) -> _Place:
    # The reasons are constants of ours or of the verifier: they are shown in policy lines.
    version, digest, applied_ms = link.version, record_digest(link.record), link.applied_ms
    entry: Entry
    try:
        entry, previous = read_link(link.record, owner_keys, host, audience)
        if entry.version != version:
            raise RecordError(6, _MISPLACED)
    except RecordError as error:
        reason = f"cannot be verified ({error.reason})"
        return _Place(version, Damage(version, reason, before_ms=applied_ms), digest)
    except MbxError as error:
        reason = f"cannot be read ({error.code})"
        return _Place(version, Damage(version, reason, before_ms=applied_ms), digest)
    if isinstance(entry, Policy) and label:
        entry = entry.told_from(label)
        if applied_ms is not None and entry.iat_ms > applied_ms + CLOCK_BACK_MAX_MS:
            # What is void "up to now" must not wait for its time.
            entry = Damage(version, _EARLY, before_ms=applied_ms)
    return _Place(version, entry, digest, previous, is_signed=True, applied_ms=applied_ms)
