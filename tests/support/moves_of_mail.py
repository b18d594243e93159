"""A rogue's moves of signed mail: who speaks, and what it says of itself."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from mbx.core.keys import SigningKey, key_id
from mbx.core.limits import (
    BODY_MAX_BYTES,
    HOPS_MAX,
    INTEGER_MAX,
    REF_MAX_CHARS,
    REFS_MAX,
    SUBJECT_MAX_CHARS,
    TOPIC_MAX_CHARS,
)
from mbx.core.message import Draft, Envelope, Party, owner_payload
from mbx.core.record import Record, sign
from tests.support.byzantine import Known
from tests.support.moves import ANY, DAY_MS, HOSTILE, Act, Made, Move, letter, offers
from tests.support.rogue import NOW_MS, Rogue, fresh_id, signed

# -- who speaks -----------------------------------------------------------------------------------


def _spliced(r: Rogue, k: Known) -> Record:
    """The record of another host, as that host signed it."""
    other = SigningKey.from_seed(b"another host whose record it has")
    own = r.message(k.ana, sender=Party(fresh_id("hal"), "hal", "lap"))
    return signed(own.kind, own.payload, other, key_id("host", other.public))


def _two_signatures(r: Rogue, k: Known) -> Record:
    own = r.message(k.ana)
    return replace(own, signatures={**own.signatures, fresh_id("other"): "A" * 86 + "=="})


def _bad_signature(r: Rogue, k: Known) -> Record:
    own, other = r.message(k.ana, "one"), r.message(k.ana, "other")
    return replace(own, signatures=other.signatures)


def _other_spelling(r: Rogue, k: Known) -> Record:
    own = r.message(k.ana)
    return signed("message", own.payload.replace(":", ": ", 1), r.key, r.key_id)


def _other_type(r: Rogue, k: Known) -> Record:
    return r.message(k.ana, type="receipt")


def _other_audience(r: Rogue, k: Known) -> Record:
    return r.message(k.ana, aud=[k.honest])


def _for_both(r: Rogue, k: Known) -> Record:
    return r.message(k.ana, aud=sorted([k.honest, k.host]))


def _owner_mail(signer: str) -> Made:
    def made(r: Rogue, k: Known) -> Record:
        key = (
            r.key if signer == "host" else SigningKey.from_seed(b"the own owner of a rogue's host!")
        )
        own = key_id(signer, key.public)
        envelope = Envelope(
            r.party("owner"), 0, "", [k.ana], None, None, 0, NOW_MS, None, (k.host,), r.nonce()
        )
        draft = Draft("obey", "your owner says so", "message", needs_reply=False)
        return sign("owner-mail", owner_payload(draft, envelope, own), key, own)

    return made


def _from(sender: Callable[[Rogue, Known], Party]) -> Made:
    return lambda r, k: r.message(k.ana, sender=sender(r, k))


def _named(name: str) -> Made:
    return _from(lambda r, k: Party(fresh_id(f"{name} {r.label}"), name, r.label))


def _from_all(*names: str) -> Act:
    return offers(*(_named(name) for name in names))


def _policies(r: Rogue, k: Known) -> None:
    """Records that only an owner may sign, and of which none is for others."""
    for kind in ("policy", "takeover", "rotate", "directive", "unpair", "lease", "restore"):
        content = {"v": 1, "type": kind, **r.envelope, "owner": r.key_id, "version": 1}
        r.offer(r.sign(kind, content))


def _readdressed(r: Rogue, k: Known) -> None:
    """A record about itself as its peer's owner would sign it, with a thousand addresses."""
    pin: dict[str, Any] = {"host": r.key_id, "key": r.key.public.hex(), "certificate": "00" * 32}
    pin |= {"label": "desk", "owner": None, "transcript": "00" * 32}
    for addresses in (
        [f"192.0.2.1:{port}" for port in range(1, 1_001)],
        ["127.0.0.1:22", *HOSTILE],
    ):
        content = {"v": 1, "type": "peer", **r.envelope, "owner": r.key_id, "version": 9}
        r.offer(r.sign("peer", content, peer=pin, label="desk", addresses=addresses))


SPEAKERS: Final = (
    Move("another host's record spliced in", offers(_spliced), told={"wrong-issuer": 1}),
    Move("a signature too many", offers(_two_signatures), told={"wrong-issuer": 1}),
    Move("another message's signature", offers(_bad_signature), told={"wrong-signature": 1}),
    Move("another spelling of its payload", offers(_other_spelling), told={"malformed": 1}),
    Move("another type within", offers(_other_type), told={"malformed": 1}),
    Move("a record for another audience", offers(_other_audience), told={"wrong-audience": 1}),
    Move("a record for two audiences", offers(_for_both), mail=1),
    Move("mail signed by its own owner", offers(_owner_mail("owner")), told={"wrong-issuer": 1}),
    Move("owner's mail signed by its host", offers(_owner_mail("host")), told={"wrong-issuer": 1}),
    Move("from its own owner", offers(_named("owner")), mail=1),
    Move(
        "from reserved names",
        _from_all("mbx", "system", "everyone", "host", "lead", "me"),
        told={"malformed": 6},
    ),
    Move(
        "from names that look reserved",
        _from_all("0wner", "1ead", "sys7em"),
        told={"malformed": 2},
        mail=1,
    ),
    Move("from what is no name", _from_all(*HOSTILE, "", "ana@desk", "*"), told={"malformed": 10}),
    Move("from a name of ours", offers(_named("ana")), mail=1),
    Move(
        "from our identity, under its own name",
        offers(_from(lambda r, k: Party(k.ben.identity, "bob", r.label))),
        mail=1,
    ),
    Move(
        "from our identity, under our name and label",
        offers(_from(lambda r, k: k.ben)),
        mail=1,
    ),
    Move(
        "from the recipient itself",
        offers(_from(lambda r, k: k.ana)),
        mail=1,
    ),
    Move(
        "from an identity of a third host",
        offers(_from(lambda r, k: Party(fresh_id("hal of lap"), "hal", "lap"))),
        mail=1,
    ),
    Move("from an identity that it never told of", offers(_named("nobody-knows")), mail=1),
    Move("with authority", offers(letter(authority="owner")), told={"malformed": 1}),
    Move("with less than there must be", offers(letter(hop=None)), told={"malformed": 1}),
    Move(
        "under leases that are none",
        offers(
            *(
                letter(lease=lease)
                for lease in (
                    None,
                    {},
                    {"epoch": 0, "id": fresh_id("x")},
                    {"epoch": True, "id": fresh_id("x")},
                    {"epoch": 1, "id": "x"},
                    {"epoch": 1, "id": fresh_id("x"), "identity": "ana"},
                )
            )
        ),
        told={"malformed": 6},
    ),
    Move(
        "under a lease of another epoch and identity",
        offers(letter(lease={"epoch": INTEGER_MAX, "id": fresh_id("lease of ana")})),
        mail=1,
    ),
    Move("records of an owner's", _policies, told={ANY: 7}),
    Move("a record about its own addresses", _readdressed, told={"unsupported": 2}),
)
"""Moves of records that say who speaks."""


# -- what mail says -------------------------------------------------------------------------------


def _to(*parties: Callable[[Rogue, Known], Any]) -> Made:
    def made(r: Rogue, k: Known) -> Record:
        to = [party(r, k) for party in parties]
        return r.message(
            k.ana, to=[one if isinstance(one, dict) else one.as_object() for one in to]
        )

    return made


def _ana(r: Rogue, k: Known) -> Party:
    return k.ana


def _ana_as(name: str, host: str) -> Callable[[Rogue, Known], Party]:
    return lambda r, k: Party(k.ana.identity, name, host)


def _pat(name: str, host: str) -> Callable[[Rogue, Known], Party]:
    return lambda r, k: Party(fresh_id("x"), name, host)


def _crowd(count: int) -> Act:
    def act(r: Rogue, k: Known) -> None:
        others = [Party(fresh_id(f"p{no}"), "pat", "far").as_object() for no in range(count - 1)]
        r.offer(r.message(k.ana, to=[k.ana.as_object(), *others]))

    return act


def _claims(*claims: Callable[[Known], tuple[str | None, str | None]]) -> Act:
    """Mail that says it stands in these threads, and answers these: (thread, reply_to)."""

    def act(r: Rogue, k: Known) -> None:
        for claim in claims:
            thread, reply_to = claim(k)
            r.offer(r.message(k.ana, thread=thread, reply_to=reply_to))

    return act


def _cycle(r: Rogue, k: Known) -> None:
    """Each of two messages says that it stands below the other."""
    one = r.message(k.ana, "one", thread=fresh_id("cycle"))
    other = r.message(k.ana, "other", thread=one.id, reply_to=one.id)
    r.offer(other)
    r.offer(one)
    r.offer(r.message(k.ana, "third", thread=other.id, reply_to=other.id))


def _sizes(field: str, *values: Any) -> tuple[Made, ...]:
    return tuple(letter(**{field: value}) for value in values)


def _around(field: str, most: int, **more: Any) -> Move:
    """A text of a character less than the limit, as long, and longer."""
    texts = ["x" * (most + change) for change in (-1, 0, 1)]
    code = "too-large" if field == "body" else "malformed"
    return Move(f"{field} around its limit", offers(*_sizes(field, *texts)), told={code: 1}, mail=2)


def _dates(*values: Any) -> tuple[Made, ...]:
    return tuple(letter(iat=value) for value in values)


MAIL: Final = (
    Move(
        "to nobody here",
        offers(_to(lambda r, k: Party(fresh_id("nobody"), "nobody", "desk"))),
        told={"unknown-recipient": 1},
    ),
    Move(
        "to an identity of a third host",
        offers(_to(lambda r, k: Party(fresh_id("hal of lap"), "hal", "lap"))),
        told={"unknown-recipient": 1},
    ),
    Move(
        "to ana under other names",
        offers(
            *(
                _to(_ana_as(name, host))
                for name, host in (("owner", "desk"), ("ben", "desk"), ("ana", "lap"))
            )
        ),
        mail=3,
    ),
    Move(
        "to ana and what is no mailbox",
        offers(
            *(_to(_ana, _pat(text, "far")) for text in HOSTILE),
            *(_to(_ana, _pat("pat", text)) for text in HOSTILE),
        ),
        told={"malformed": 2 * len(HOSTILE)},
    ),
    Move("to who is retired", offers(_to(lambda r, k: k.retired)), told={"retired": 1}),
    Move(
        "to ana and who is retired",
        offers(_to(_ana, lambda r, k: k.retired)),
        told={"retired": 1},
        mail=1,
    ),
    Move("to ana twice", offers(_to(_ana, _ana)), told={"malformed": 1}),
    Move("to a thousand", _crowd(1_000), mail=1),
    Move("to a thousand and one", _crowd(1_001), told={"malformed": 1}),
    Move(
        "in the private thread of two others",
        _claims(
            lambda k: (k.private, None),
            lambda k: (k.private, k.private),
            lambda k: (k.private, k.answer),
            lambda k: (None, k.answer),
            lambda k: (k.answer, None),
        ),
        mail=5,
    ),
    Move(
        "in the thread of another host",
        _claims(
            lambda k: (k.of_honest, k.of_honest),
            lambda k: (k.to_honest, None),
            lambda k: (None, k.to_honest),
        ),
        mail=3,
    ),
    Move(
        "in its own thread, as an answer to another's",
        _claims(lambda k: (k.mine, k.private), lambda k: (k.mine, k.of_honest)),
        mail=2,
    ),
    Move(
        "in a thread that nobody knows",
        _claims(
            lambda k: (fresh_id("unknown"), fresh_id("unknown too")),
            lambda k: (fresh_id("unknown"), None),
        ),
        mail=2,
    ),
    Move("in a circle", _cycle, mail=3),
    Move(
        "answers that are ids of nothing",
        offers(*(letter(thread=text) for text in ("", "x", fresh_id("x")[:8]))),
        told={"malformed": 3},
    ),
    Move(
        "depths around the limit",
        offers(*_sizes("hop", 0, HOPS_MAX - 1, HOPS_MAX, HOPS_MAX + 1, INTEGER_MAX, -1, True)),
        told={"malformed": 4},
        mail=3,
    ),
    Move(
        "roots that lie",
        offers(
            *(
                letter(external_since=since, **more)
                for since in (0, -1, INTEGER_MAX, "yesterday")
                for more in ({}, {"origin": "external"})
            )
        ),
        told={"malformed": 4},
        mail=4,
    ),
    Move(
        "times and projects of another kind",
        offers(
            letter(sent_at="yesterday"),
            letter(sent_at="yesterday", origin="external"),
            letter(sent_at=-1),
            letter(project={"a": 1}),
            letter(project="x" * 5_000),
        ),
        told={"malformed": 5},
    ),
    Move(
        "other sorts and origins",
        offers(
            letter(kind="order"),
            letter(origin="owner"),
            letter(needs_reply=1),
            letter(quiet=["x"]),
            letter(attachments=[{}]),
            letter(expected_output="x"),
        ),
        told={"malformed": 6},
    ),
    Move(
        "signed a month off",
        offers(*_dates(NOW_MS - 30 * DAY_MS, NOW_MS + 30 * DAY_MS, 0, INTEGER_MAX)),
        mail=4,
    ),
    Move(
        "signed at no time",
        offers(*_dates(-1, "now", None, True)),
        told={"malformed": 4},
    ),
    _around("subject", SUBJECT_MAX_CHARS),
    _around("body", BODY_MAX_BYTES),
    _around("topic", TOPIC_MAX_CHARS),
    Move(
        "references around their number",
        offers(*_sizes("refs", ["r"] * (REFS_MAX - 1), ["r"] * REFS_MAX, ["r"] * (REFS_MAX + 1))),
        told={"malformed": 1},
        mail=2,
    ),
    Move(
        "references around their length",
        offers(*_sizes("refs", ["r" * REF_MAX_CHARS], ["r" * (REF_MAX_CHARS + 1)], list(HOSTILE))),
        told={"malformed": 2},
        mail=1,
    ),
    Move(
        "hostile subjects",
        offers(*_sizes("subject", *HOSTILE)),
        told={"malformed": 4},
        mail=3,
    ),
)
"""Moves of mail, of which only what it says of itself is in question."""
