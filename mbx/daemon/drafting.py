"""Drafts: the exact payloads for the owner to sign, written by the daemon that will apply them.

A draft changes nothing. It names the state it was made for (an epoch, a predecessor), so that a
record which comes late, or twice, finds another state and is refused.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from mbx.core import names, policy, takeover
from mbx.core.canonical import JsonValue
from mbx.core.errors import MbxError
from mbx.core.ids import parse_prefix
from mbx.core.keys import is_strong_public_key, key_id
from mbx.core.lease import LeaseState
from mbx.core.limits import (
    NOTE_MAX_CHARS,
    POLICY_SOURCES_MAX,
    POLICY_TTL_MS,
    POLICY_YOLO_TTL_MS,
    TAKEOVER_TTL_MS,
)
from mbx.core.names import Address
from mbx.core.policy import CLASSES_OF, Policy, Source, Subject
from mbx.core.record import Record, RecordError
from mbx.core.takeover import Takeover
from mbx.core.text import check_text
from mbx.daemon import chainlist, codec, peerlabels, reaching
from mbx.daemon.authority import DRAFT_AGAIN
from mbx.daemon.context import Context
from mbx.daemon.displacing import check_destination
from mbx.daemon.times import rfc3339
from mbx.store import audit, identities, leases, owners, peers, sessions
from mbx.store.database import Tx
from mbx.store.identities import IdentityRow
from mbx.store.peers import PeerRow

FORMER_KEY: Final = "the owner has, or had, this key: what was given up never comes back"
INIT: Final = "mbx owner init (in a terminal of your own)"


class Draft(NamedTuple):
    """What is to be signed: `kind` and `payload`; `confirm` is what the owner types to agree.

    `lines` are facts for the owner's eye, shown beside the payload and never instead of it.
    """

    kind: str
    payload: Mapping[str, JsonValue]
    confirm: str = ""
    lines: tuple[str, ...] = ()

    def text(self) -> str:
        """The exact text."""
        return codec.canonical(self.payload).decode()

    def word(self) -> str:
        """What the owner types: a name, else the first six characters of the record's id."""
        return self.confirm or _record_id(self.kind, self.text())[:6]


def owner_id(tx: Tx) -> str:
    """The key id of the owner. Raises MbxError owner-required while there is none."""
    known = owners.keys(tx)
    if not known:
        raise MbxError("owner-required", "this host has no owner yet", INIT)
    return known[0].key_id


def envelope(context: Context, owner: str) -> dict[str, JsonValue]:
    """What every owner record says: when, which, for whom, by whose key."""
    return {
        "iat": context.moment.now_ms,
        "nonce": context.moment.nonce("owner record"),
        "aud": context.host.key_id,
        "owner": owner,
    }


def _chained(context: Context, tx: Tx) -> dict[str, JsonValue]:
    """The envelope of the next record of the chain, for all hosts that have the same owner.

    The newest governs on all of them, so it is dated behind what came from others: clocks differ.
    """
    book = context.authority.book(tx)
    return {
        **envelope(context, owner_id(tx)),
        "iat": max(context.moment.now_ms, book.latest_followed_ms + 1),
        "aud": reaching.audience(context, tx),
        "version": book.next.version,
        "previous": book.next.previous,
        "chain": context.host.key_id,
    }


# -- the owner's key ------------------------------------------------------------------------------


def rotation(context: Context, tx: Tx, public: bytes) -> Draft:
    """The first key of the owner, or its successor: signed by the new key, and by the old one."""
    if not is_strong_public_key(public):
        raise MbxError("usage", "public_key is not an Ed25519 key")
    known, book = owners.keys(tx), context.authority.book(tx)
    if key_id("owner", public) in [one.key_id for one in known]:
        raise MbxError("conflict", FORMER_KEY)
    content: dict[str, JsonValue] = {
        "v": 1,
        "type": "rotate",
        **envelope(context, key_id("owner", public)),
        "public_key": public.hex(),
        "previous": known[0].key_id if known else None,
        "until_version": book.version,
        "head": book.head,
    }
    if reaching.hosts(tx):
        content |= {
            "aud": reaching.audience(context, tx),
            "chain": context.host.key_id,
            "chains": [
                {"chain": one.host, "version": one.version, "head": one.head}
                for one in book.followed.values()
            ],
        }
    return Draft("rotate", content, "", reaching.lines(tx))


# -- directives -----------------------------------------------------------------------------------


def clock(context: Context, tx: Tx) -> Draft:
    """The owner's word that the clock is right although it was later before.

    It names the state of the audit log, which never comes again, since no time could be trusted to
    say when it was signed.
    """
    no, head = audit.head(tx)
    return Draft(
        "directive",
        {
            "v": 1,
            "type": "directive",
            **envelope(context, owner_id(tx)),
            "act": "clock",
            "high": owners.clock_high_ms(tx),
            "audit_no": no,
            "audit_hash": head.hex(),
        },
        "clock",
    )


# -- takeover -------------------------------------------------------------------------------------


def displacing(context: Context, tx: Tx, name: str, cli: str, session: str, reason: str) -> Draft:
    """A takeover of the identity as it is held now. Raises MbxError unknown-identity, closed."""
    identity = named(tx, name)
    if identity.retired_ms is not None:
        raise MbxError("closed", f"{name} is retired", "mbx identity list --all")
    row = leases.find(tx, identity.no)
    check_destination(context, tx, row, cli, session)
    held = row.lease.state is LeaseState.HELD
    holder = sessions.by_no(tx, row.lease.session_no) if held and row.lease.session_no else None
    now_ms = context.moment.now_ms
    wanted = Takeover(
        identity.identity,
        name,
        row.lease.epoch,
        cli,
        session,
        reason,
        now_ms,
        now_ms + TAKEOVER_TTL_MS,
    )
    shown: dict[str, JsonValue] | None = None
    if holder is not None:
        since_ms = row.lease.since_ms
        shown = {"cli": holder.cli, "session": holder.session_id, "since": since_ms}
    content = takeover.payload(wanted, shown, envelope(context, owner_id(tx)))
    _check(lambda: takeover.read(content))
    return Draft("takeover", content, name)


# -- policies -------------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """A policy as the owner asked for it.

    `classes` None: all of the level's; `ttl_ms` None: the usual term of the level.
    """

    to: Sequence[str]
    level: str
    classes: Sequence[str] | None
    sources: Sequence[str]
    projects: Sequence[str]
    ttl_ms: int | None
    reason: str


def delegation(context: Context, tx: Tx, wanted: Wanted) -> Draft:
    """The next record of the chain: a policy. Raises MbxError for what a policy cannot be."""
    usual_ms = POLICY_YOLO_TTL_MS if wanted.level == policy.YOLO else POLICY_TTL_MS
    ttl_ms = usual_ms if wanted.ttl_ms is None else wanted.ttl_ms
    most_ms = policy.ttl_max_ms(wanted.level)
    if not 0 < ttl_ms <= most_ms:
        days = most_ms // 86_400_000
        raise MbxError("usage", f"a policy of level {wanted.level} lasts {days} days at most")
    every = CLASSES_OF[wanted.level]
    beyond = [one for one in wanted.classes or () if one not in every]
    if beyond:
        words = f"level {wanted.level} cannot delegate {', '.join(beyond)}"
        raise MbxError("usage", words, f"its classes: {', '.join(every) or 'none'}")
    chained = _chained(context, tx)
    iat_ms = chained["iat"]
    assert isinstance(iat_ms, int)
    content = policy.policy_payload(
        Policy(
            version=0,
            id="",
            iat_ms=iat_ms,
            exp_ms=iat_ms + ttl_ms,
            to=tuple(dict.fromkeys(subject(context, tx, name) for name in wanted.to)),
            level=wanted.level,
            classes=tuple(one for one in every if wanted.classes is None or one in wanted.classes),
            sources=tuple(_sources(context, tx, wanted.sources)),
            projects=tuple(wanted.projects),
            reason=wanted.reason,
        ),
        chained,
    )
    _check(lambda: policy.read_policy(content, ""))
    return Draft("policy", content, "", reaching.lines(tx))


def revocation(context: Context, tx: Tx, which: Sequence[Policy] | None, reason: str) -> Draft:
    """The next record of the chain: a revocation of these policies, or (None) of all.

    An id tells the owner nothing: the lines say what each policy does, from its verified record.
    """
    check_text("reason", reason, NOTE_MAX_CHARS)
    named = None if which is None else list(dict.fromkeys(one.id for one in which))
    content = policy.revoke_payload(named, reason, _chained(context, tx))
    _check(lambda: policy.read_revocation(content, ""))
    book, now_ms = context.authority.book(tx), context.moment.now_ms
    clock = context.authority.clock(tx, now_ms)
    told = {
        one.id: _told(one, chainlist.standing(context, tx, book, one, clock))
        for one in which or book.policies()
    }
    if which is None:
        told = {key: words for key, words in told.items() if words.endswith(_IN_EFFECT)}
    lines = list(told.values())[:POLICY_SOURCES_MAX]
    if len(told) > len(lines):
        lines.append(f"and {len(told) - len(lines)} more: mbx policy list")
    lines += reaching.lines(tx)
    return Draft("revoke", content, "all" if named is None else "", tuple(lines))


_IN_EFFECT: Final = "in effect"
_NAMES_TOLD_MAX: Final = 8


def _told(one: Policy, fault: str) -> str:
    """One policy in a line: the names are those that the owner signed."""
    to, sources = _few([to.words for to in one.to]), _few([source.words for source in one.sources])
    classes = ", ".join(one.classes) or "nothing"
    words = f"{one.id[:8]} lets {to} do {classes} ({one.level}) for mail from {sources}"
    term = f"from {rfc3339(one.iat_ms)} until {rfc3339(one.exp_ms)}"
    return f"{words}, {term}: {fault or _IN_EFFECT}"


def _few(names: Sequence[str]) -> str:
    left = len(names) - _NAMES_TOLD_MAX
    return ", ".join(names[:_NAMES_TOLD_MAX]) + (f" and {left} more" if left > 0 else "")


def _check(read: Callable[[], object]) -> None:
    """Nothing is drafted that would be refused when it is brought back. Raises MbxError usage."""
    try:
        read()
    except RecordError as error:
        raise MbxError("usage", f"that cannot be signed: {error.reason}") from error


def policy_called(context: Context, tx: Tx, text: str) -> Policy:
    """The one policy whose record id starts with `text`. Raises MbxError not-found, ambiguous."""
    try:
        prefix = parse_prefix(text)
    except MbxError as error:
        error.next_step = "mbx policy list --all"
        raise
    found = [one for one in context.authority.book(tx).policies() if prefix.matches(one.id)]
    if not found:
        raise MbxError("not-found", f"no policy with id {text}", "mbx policy list --all")
    if len(found) > 1:
        raise MbxError(
            "ambiguous",
            f"{text} fits {len(found)} policies",
            "give more characters of the id",
            candidates=[one.id for one in found],
        )
    return found[0]


def named(tx: Tx, name: str, new: str | None = None) -> IdentityRow:
    """The identity of this name. Raises MbxError unknown-identity with suggestions.

    `new`: what the caller could do to have one of that name.
    """
    identity = identities.by_name(tx, name)
    if identity is None or name == names.OWNER:
        raise unknown(tx, name, new)
    return identity


def unknown(tx: Tx, name: str, new: str | None = None) -> MbxError:
    """The refusal of a name that nobody has, with the names close to it; `new` as in `named`."""
    close = names.suggest(name, identities.names(tx))
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    step = "mbx identity list"
    if new is not None:
        step = f"{step} (new: {new})" if close else new
    return MbxError(
        "unknown-identity", f"there is no identity of that name{hint}", step, suggestions=close
    )


def check_names(tx: Tx, named: Iterable[tuple[str, str]], peer: PeerRow | None = None) -> None:
    """The owner read the names: ids of others beside them were not what was agreed to.

    A request that was changed on its way to the key leads here, and a rename meanwhile. Raises
    MbxError conflict. `named`: (identity id, name) as signed. `peer`: of that host, None: of ours.
    """
    for identity, name in named:
        row = (
            identities.by_identity(tx, identity)
            if peer is None
            else peers.identity_of(tx, peer.no, identity)
        )
        if row is None or row.name != name:
            now = f"is called {row.name}" if row else "is not known here"
            words = f"the record names {name}; that identity {now}"
            raise MbxError("conflict", words, DRAFT_AGAIN)


def subject(context: Context, tx: Tx, text: str) -> Subject:
    """Whom a policy concerns: an identity here, or ``name@host`` of a host of the same owner.

    Raises MbxError unknown-identity, not-paired, owner-required.
    """
    name, at, label = text.partition("@")
    if not at or label == context.host.label:
        identity = _here(tx, name)
        return Subject(identity.identity, identity.name)
    peer = peerlabels.standing(tx, label)
    if not reaching.is_same_owner(tx, peer):
        raise MbxError(
            "owner-required",
            f"{label} has another owner, who alone decides what its agents do",
            f"have the owner of {label} sign a policy there",
        )
    identity = _on_peer(tx, peer, name)
    return Subject(identity.identity, identity.name, peer.key_id, peer.label)


def _here(tx: Tx, name: str) -> IdentityRow:
    """The identity of this host; who lives on a paired host is named with it, never guessed.

    Raises MbxError unknown-identity.
    """
    away = peers.named(tx, name, None) if name != names.OWNER else []
    if not away or identities.by_name(tx, name) is not None:
        return named(tx, name)
    full = [peers.by_no(tx, who.peer_no).address(name) for who in away if who.peer_no is not None]
    words = f"nobody here is called {name}; did you mean {' or '.join(full)}?"
    raise MbxError("unknown-identity", words, "write it as name@host", suggestions=full)


def _on_peer(tx: Tx, peer: PeerRow, name: str) -> IdentityRow:
    """The identity of a paired host of this name. Raises MbxError unknown-identity."""
    found = peers.named(tx, name, peer.label) if name != names.OWNER else []
    if not found:
        away = [who.name for who in peers.identities_present(tx, label=peer.label)]
        close = [peer.address(one) for one in names.suggest(name, away)]
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        words = f"there is no identity of that name on {peer.label}{hint}"
        raise MbxError("unknown-identity", words, "mbx agents", suggestions=close)
    return found[0]


def _sources(context: Context, tx: Tx, wanted: Sequence[str]) -> list[Source]:
    """What the words name now, each once. A role is who has it now: a newcomer has no right."""
    found: dict[tuple[str, str, str], Source] = {}
    for word in wanted:
        for source in _source(context, tx, word):
            found.setdefault((source.kind, source.host, source.identity), source)
    return list(found.values())


def _source(context: Context, tx: Tx, word: str) -> list[Source]:
    if word == "local":
        return [Source("local")]
    own = context.host
    if word.startswith("host:"):
        if word[5:] == own.label:
            return [Source("local")]
        peer = peerlabels.standing(tx, word[5:])
        return [Source("host", peer.key_id, peer.label)]
    text, at, label = word.partition("@")
    host = None if not at or label == own.label else peerlabels.standing(tx, label)
    address: Address = names.parse_address(text)
    via = f"role:{address.name}" if address.kind == "role" else None
    if address.kind == "role":
        members = _of_role(tx, address.name, host)
    elif address.kind == "name":
        members = [_on_peer(tx, host, text) if host else _here(tx, text)]
    else:
        raise MbxError("usage", f"{word} is no sender: give local, host:, role: or a name")
    key, called = (host.key_id, host.label) if host else (own.key_id, own.label)
    return [Source("identity", key, called, who.identity, who.name, via) for who in members]


def _of_role(tx: Tx, role: str, host: PeerRow | None) -> list[IdentityRow]:
    """Who has a role here, or on a paired host by its word. Raises MbxError unknown-identity."""
    if host is None:
        members = [who for who, _ in leases.of_role(tx, role)]
    else:
        members = peers.identities_present(tx, role, host.label)
    if not members:
        where = f" on {host.label}" if host else ""
        raise MbxError("unknown-identity", f"nobody{where} has the role {role}")
    return members


def _record_id(kind: str, payload: str) -> str:
    return Record(kind, payload, {}).id
