"""`owner.*`: drafts of what the owner may sign, and what the owner signed.

A draft is for anybody, since it changes nothing; the signature is what has authority. Only the
first key is taken at the owner's terminal alone: nothing vouches for it but that.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from mbx.core import message
from mbx.core.chains import OwnerKey
from mbx.core.directive import FORWARD, PRUNE, RETIRE
from mbx.core.endpoints import parse_endpoint
from mbx.core.errors import MbxError
from mbx.core.limits import (
    ADDRESSES_MAX,
    NOTE_MAX_CHARS,
    PEER_ADDRESSES_MAX,
    POLICY_IDENTITIES_MAX,
    POLICY_PROJECTS_MAX,
    POLICY_SOURCES_MAX,
    PRUNE_DAYS,
    PRUNE_DAYS_MAX,
)
from mbx.core.names import Address, parse_address
from mbx.core.policy import CLASSES, LEVELS
from mbx.core.record import KINDS, Record
from mbx.core.text import check_text
from mbx.daemon import (
    applying,
    chainlist,
    drafting,
    forwarding,
    letters,
    peering,
    readdressing,
    retiring,
    unpairing,
)
from mbx.daemon.context import Answer, Context, Result
from mbx.daemon.drafting import Draft, Wanted
from mbx.daemon.gate import Open, OwnerTerminal
from mbx.daemon.methods.mail import read_draft
from mbx.daemon.methods.table import open_method, owner_method
from mbx.daemon.params import Params
from mbx.daemon.posting import Place
from mbx.daemon.times import optional_rfc3339
from mbx.store import owners
from mbx.store.database import Tx

_SIGNATURES_MAX: Final = 2
_DAY_S: Final = 86_400
_TTL_MAX_S: Final = 365 * _DAY_S

Maker = Callable[[Context, Tx], Draft]
"""Makes the draft that was asked for, from the state of the transaction."""


# -- show -----------------------------------------------------------------------------------------


def _read_nothing(params: Params) -> None:
    return None


def _show(context: Context, tx: Tx, caller: Open, request: None) -> Answer:
    known = owners.keys(tx)
    clock = context.authority.clock(tx, context.moment.now_ms)
    book = context.authority.book(tx)
    return Answer(
        {
            "owner": _key(tx, known[0]) if known else None,
            "host": context.host.key_id,
            "former": [key.key_id for key in known[1:]],
            "policy_version": book.version,
            "policies_in_effect": len(chainlist.in_effect(context, tx, book, clock)),
            "followed": chainlist.followed(book),
            "damage": chainlist.damage(context, book),
            "void_until": book.void,
            "clock_behind": clock.is_behind,
            "floor_fault": context.authority.floor_fault or None,
            "next": None if known else drafting.INIT,
        }
    )


def _key(tx: Tx, key: OwnerKey) -> Result:
    since = optional_rfc3339(owners.since_ms(tx))
    return {"key_id": key.key_id, "public_key": key.public.hex(), "since": since}


# -- draft ----------------------------------------------------------------------------------------


def _read_draft(params: Params) -> Maker:
    act = params.choice("act", _DRAFTS)
    if act is None:
        raise MbxError("usage", f"act is required: one of {', '.join(sorted(_DRAFTS))}")
    return _DRAFTS[act](params)


def _draft(context: Context, tx: Tx, caller: Open, make: Maker) -> Answer:
    return _drafted(make(context, tx))


def _drafted(draft: Draft) -> Answer:
    return Answer(
        {
            "kind": draft.kind,
            "payload": draft.text(),
            "confirm": draft.word(),
            "lines": list(draft.lines),
        }
    )


def _read_rotation(params: Params) -> Maker:
    try:
        public = bytes.fromhex(params.string("public_key"))
    except ValueError:
        raise MbxError("usage", "public_key must be 64 hexadecimal digits") from None
    return lambda context, tx: drafting.rotation(context, tx, public)


def _read_takeover(params: Params) -> Maker:
    name, cli, session = params.string("name"), params.string("cli"), params.string("session")
    reason = _reason(params)
    return lambda context, tx: drafting.displacing(context, tx, name, cli, session, reason)


def _read_policy(params: Params) -> Maker:
    level = params.choice("level", LEVELS)
    if level is None:
        raise MbxError("usage", f"level is required: one of {', '.join(LEVELS)}")
    classes = params.strings("classes", len(CLASSES))
    unknown = [one for one in classes if one not in CLASSES]
    if unknown:
        raise MbxError("usage", f"classes are {', '.join(CLASSES)}, not {unknown[0]!r}")
    ttl_s = params.integer("ttl_s", 0, 1, _TTL_MAX_S)
    wanted = Wanted(
        to=params.strings("to", POLICY_IDENTITIES_MAX, required=True),
        level=level,
        classes=classes or None,
        sources=params.strings("from", POLICY_SOURCES_MAX, required=True),
        projects=params.strings("projects", POLICY_PROJECTS_MAX),
        ttl_ms=ttl_s * 1000 or None,
        reason=_reason(params),
    )
    return lambda context, tx: drafting.delegation(context, tx, wanted)


def _read_revocation(params: Params) -> Maker:
    records, every = params.strings("records", POLICY_SOURCES_MAX), params.boolean("all")
    if every == bool(records):
        raise MbxError("usage", "give records, or all")
    reason = _reason(params)

    def make(context: Context, tx: Tx) -> Draft:
        known = [drafting.policy_called(context, tx, text) for text in records]
        return drafting.revocation(context, tx, None if every else known, reason)

    return make


def _reason(params: Params) -> str:
    reason = params.optional_string("reason") or ""
    check_text("reason", reason, NOTE_MAX_CHARS)
    return reason


def _read_clock(params: Params) -> Maker:
    return drafting.clock


def _read_retirement(params: Params) -> Maker:
    name = params.string("name")
    return lambda context, tx: retiring.draft(context, tx, name)


def _read_pruning(params: Params) -> Maker:
    days = params.integer("days", PRUNE_DAYS, 1, PRUNE_DAYS_MAX)
    return lambda context, tx: retiring.prune_draft(context, tx, days)


def _read_forwarding(params: Params) -> Maker:
    name, to = params.string("name"), params.string("to")
    return lambda context, tx: forwarding.draft(context, tx, name, to)


def _read_peer_change(params: Params) -> Maker:
    label, new_label = params.string("name"), params.optional_string("label")
    given = params.strings("addresses", PEER_ADDRESSES_MAX)
    addresses = [str(parse_endpoint(text)) for text in given]
    return lambda context, tx: readdressing.draft(context, tx, label, addresses, new_label)


def _read_unpairing(params: Params) -> Maker:
    label, reason = params.string("name"), _reason(params)
    return lambda context, tx: unpairing.draft(context, tx, label, reason)


def _read_pairing(params: Params) -> Maker:
    pairing, label = params.string("pairing"), params.optional_string("label")
    return lambda context, tx: peering.draft(context, tx, pairing, label)


def _read_enrolment(params: Params) -> Maker:
    pairing = params.string("pairing")
    return lambda context, tx: peering.enrolment_draft(context, tx, pairing)


def _read_adopted(params: Params) -> Maker:
    pairing = params.string("pairing")
    return lambda context, tx: peering.adopted_draft(context, tx, pairing)


_DRAFTS: Final[Mapping[str, Callable[[Params], Maker]]] = {
    "peer": _read_pairing,
    "enrolment": _read_enrolment,
    "peer-there": _read_adopted,
    "rotate": _read_rotation,
    "clock": _read_clock,
    "takeover": _read_takeover,
    "policy": _read_policy,
    "revoke": _read_revocation,
    RETIRE: _read_retirement,
    PRUNE: _read_pruning,
    FORWARD: _read_forwarding,
    readdressing.CHANGE: _read_peer_change,
    unpairing.UNPAIR: _read_unpairing,
}


# -- compose --------------------------------------------------------------------------------------


class _Letter(NamedTuple):
    draft: message.Draft
    to: tuple[Address, ...]
    answers: str | None


def _read_letter(params: Params) -> _Letter:
    answers = params.optional_string("id")
    if answers is not None:
        draft, _ = read_draft(params, None, "reply")
        return _Letter(draft, (), answers)
    to = params.strings("to", ADDRESSES_MAX, required=True)
    draft, _ = read_draft(params, params.string("subject"), message.KINDS[0])
    return _Letter(draft, tuple(parse_address(text) for text in to), None)


def _compose(context: Context, tx: Tx, caller: OwnerTerminal, request: _Letter) -> Answer:
    """For the owner's terminal alone: an answer shows the subject of what it answers."""
    if request.answers is not None:
        draft = letters.answer(context, tx, caller, request.draft, request.answers)
    else:
        draft = letters.draft(context, tx, caller, request.draft, request.to, Place())
    return _drafted(draft)


# -- enroll, apply --------------------------------------------------------------------------------


class _Given(NamedTuple):
    record: Record


def _read_record(params: Params) -> _Given:
    return _Given(read_record(params.mapping("record", RECORD_FIELDS)))


RECORD_FIELDS: Final = ("kind", "payload", "signatures")
"""Of a record as it travels."""


def read_record(given: Mapping[str, object]) -> Record:
    """A record as it travels, which nobody has verified. Raises MbxError usage."""
    kind, payload, signatures = given["kind"], given["payload"], given["signatures"]
    if not isinstance(kind, str) or kind not in KINDS or not isinstance(payload, str):
        raise MbxError("usage", "record has a kind and a payload text")
    if not isinstance(signatures, Mapping) or not 1 <= len(signatures) <= _SIGNATURES_MAX:
        raise MbxError("usage", "record has signatures by one or two keys")
    signed = {str(key_id): text for key_id, text in signatures.items() if isinstance(text, str)}
    if len(signed) != len(signatures):
        raise MbxError("usage", "signatures are texts by key id")
    return Record(kind, payload, signed)


def _enroll(context: Context, tx: Tx, caller: OwnerTerminal, request: _Given) -> Answer:
    return applying.enroll(context, tx, request.record)


def _apply(context: Context, tx: Tx, caller: Open, request: _Given) -> Answer:
    return applying.apply(context, tx, request.record)


METHODS: Final = (
    open_method(
        "owner.show", "The owner's key, and how the chain of policies stands.", _read_nothing, _show
    ),
    open_method(
        "owner.draft",
        "The exact payload for the owner to sign: a takeover, a policy, a revocation, a key, a"
        " change or the end of a pairing.",
        _read_draft,
        _draft,
    ),
    owner_method(
        "owner.compose",
        "The exact payload of a letter, or with `id` of an answer, for the owner to sign.",
        _read_letter,
        _compose,
        writes=False,
    ),
    owner_method(
        "owner.enroll",
        "Take the owner's first key.",
        _read_record,
        _enroll,
        writes=True,
        keyed=False,
    ),
    open_method(
        "owner.apply",
        "Apply a record that the owner signed, once; it answers what was before and is now.",
        _read_record,
        _apply,
        writes=True,
    ),
)
"""What this module adds to the table of methods."""
