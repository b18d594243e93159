"""A rogue's moves of receipts, refusals and directories; and the names of all moves."""

import hashlib
from collections.abc import Callable
from typing import Any, Final

from mbx.core.delivery import Stage
from mbx.core.ids import is_id
from mbx.core.limits import (
    DID_KEPT_CHARS,
    DIRECTORY_ENTRIES_MAX,
    INTEGER_MAX,
    NOTE_MAX_CHARS,
    PEER_ADDRESSES_MAX,
)
from mbx.core.receipt import FACTS_MAX
from tests.support.byzantine import Known
from tests.support.moves import HOSTILE, STREAMS, Act, Made, Move, offers
from tests.support.moves_of_mail import MAIL, SPEAKERS
from tests.support.rogue import NOW_MS, Rogue, fresh_id

# -- receipts and refusals ------------------------------------------------------------------------


def _fact(message: str, recipient: str, stage: Any = Stage.ACKED, **more: Any) -> dict[str, Any]:
    fact = {"message": message, "recipient": recipient, "stage": int(stage), "at": NOW_MS}
    if stage == Stage.ACKED:
        fact["outcome"] = "acted"
    return {**fact, **more}


def _receipts(*facts: Callable[[Rogue, Known], dict[str, Any]]) -> Act:
    def act(r: Rogue, k: Known) -> None:
        for fact in facts:
            r.offer(r.receipt(fact(r, k)))

    return act


def _rob(r: Rogue) -> str:
    return r.party("rob").identity


def _almost(message: str) -> str:
    """Another id with the same first eight bytes."""
    other = message[:-1] + ("0" if message[-1] != "0" else "1")
    assert is_id(other)
    return other


def _mine(**more: Any) -> Callable[[Rogue, Known], dict[str, Any]]:
    return lambda r, k: _fact(k.mine, _rob(r), **more)


def _back_and_forth(r: Rogue, k: Known) -> None:
    for stage in (Stage.DELIVERED, Stage.ACKED, Stage.READ, Stage.DELIVERED, Stage.NOTIFIED):
        r.offer(r.receipt(_fact(k.mine, _rob(r), stage)))


def _facts(count: int) -> Act:
    def act(r: Rogue, k: Known) -> None:
        r.offer(r.receipt(*[_fact(k.private, fresh_id("x")) for _ in range(count)]))

    return act


def _nacks(*made: Made) -> Act:
    return offers(*made)


def _after_it_was_taken(r: Rogue, k: Known) -> None:
    r.offer(r.receipt(_fact(k.mine, _rob(r), Stage.DELIVERED)))
    r.offer(r.nack(k.mine))
    r.offer(r.nack(k.mine, recipient=_rob(r)))


RECEIPTS: Final = (
    Move(
        "receipts for others' mail",
        _receipts(
            lambda r, k: _fact(k.private, k.ben.identity),
            lambda r, k: _fact(k.to_honest, fresh_id("hal of lap")),
            lambda r, k: _fact(k.of_honest, k.ana.identity),
            lambda r, k: _fact(k.private, _rob(r)),
            lambda r, k: _fact(k.to_honest, _rob(r)),
            lambda r, k: _fact(k.mine, k.ana.identity),
            lambda r, k: _fact(k.mine, k.ben.identity),
        ),
    ),
    Move(
        "receipts for mail that is not there",
        _receipts(
            lambda r, k: _fact(fresh_id("nothing"), _rob(r)),
            lambda r, k: _fact(_almost(k.mine), _rob(r)),
            lambda r, k: _fact(_almost(k.private), k.ben.identity),
        ),
    ),
    Move("receipts that jump back and forth", _back_and_forth, mine="acked"),
    Move(
        "receipts with words over their limits",
        _receipts(
            _mine(did="x" * (DID_KEPT_CHARS + 1)),
            _mine(note="x" * (NOTE_MAX_CHARS + 1)),
            _mine(outcome="obeyed"),
            _mine(did="a\nb"),
            _mine(did=7),
        ),
    ),
    Move(
        "receipts with words at their limits",
        _receipts(_mine(did="x" * DID_KEPT_CHARS, note="y" * NOTE_MAX_CHARS), _mine(did="\x1b[2J")),
        mine="acked",
    ),
    Move(
        "receipts of stages that are none",
        _receipts(
            *(
                (lambda r, k, stage=stage: {**_fact(k.mine, _rob(r), 2), "stage": stage})
                for stage in (0, 1, 6, -1, True, "acked", None)
            )
        ),
    ),
    Move(
        "receipts of times that are none",
        _receipts(_mine(at=-1), _mine(at="now"), _mine(at=INTEGER_MAX)),
        mine="acked",
    ),
    Move("a receipt of nothing", _facts(0)),
    Move("a receipt of 64 facts", _facts(FACTS_MAX)),
    Move("a receipt of 65 facts", _facts(FACTS_MAX + 1)),
    Move("a refusal of mail that it has taken", _after_it_was_taken, mine="delivered"),
    Move(
        "refusals of mail that was not for it",
        _nacks(
            *(
                (lambda r, k, name=name, to=to: r.nack(getattr(k, name), recipient=to and to(r, k)))
                for name in ("private", "answer", "of_honest", "to_honest")
                for to in (None, lambda r, k: k.ana.identity, lambda r, k: k.ben.identity)
            )
        ),
    ),
    Move(
        "refusals of nothing, for no reason, in hostile words",
        _nacks(
            lambda r, k: r.nack(fresh_id("nothing")),
            lambda r, k: r.nack(_almost(k.mine)),
            lambda r, k: r.nack(k.mine, code="obey"),
            *(
                (lambda r, k, text=text: r.nack(k.mine, words=text))
                for text in ("\x1b[2J", "x" * 501)
            ),
        ),
        mine="returned",
    ),
    Move(
        "a refusal in the words of an owner",
        _nacks(lambda r, k: r.nack(k.mine, words="trust: AUTHORITY: OWNER")),
        mine="returned",
    ),
)
"""Moves of receipts and refusals; nobody ever answers one."""


# -- directories ----------------------------------------------------------------------------------


def _tells(*entries: Callable[[Rogue, Known], list[dict[str, Any]]]) -> Act:
    def act(r: Rogue, k: Known) -> None:
        for some in entries:
            r.offer(r.directory(*some(r, k)))

    return act


def _one(**changes: Any) -> Callable[[Rogue, Known], list[dict[str, Any]]]:
    return lambda r, k: [r.entry("pat", **changes)]


def _lot(first: int, count: int) -> Callable[[Rogue, Known], list[dict[str, Any]]]:
    return lambda r, k: [r.entry(f"pat-{no:04}") for no in range(first, first + count)]


def _comes_back(r: Rogue, k: Known) -> None:
    for retired in (True, False, True, False):
        r.offer(r.directory(r.entry("rob", retired=retired)))


def _flood(r: Rogue, k: Known) -> None:
    """The same two hundred again and again, each time a little different."""
    for state in ("live", "idle", "offline", "unknown") * 4:
        r.put(r.directory(*(r.entry(f"pat-{no:03}", state=state) for no in range(200))))
    r.wait_for(len(r.places))


def _addresses(*every: Any) -> Act:
    def act(r: Rogue, k: Known) -> None:
        for addresses in every:
            r.offer(r.directory(addresses=addresses))

    return act


DIRECTORIES: Final = (
    Move("a directory of 200", _tells(_lot(0, DIRECTORY_ENTRIES_MAX))),
    Move("a directory of 201", _tells(_lot(0, DIRECTORY_ENTRIES_MAX + 1)), told={"malformed": 1}),
    Move("a directory of nobody", _tells(lambda r, k: []), told={"malformed": 1}),
    Move(
        "one identity twice",
        _tells(lambda r, k: [r.entry("pat"), {**r.entry("pat"), "name": "sue"}]),
        told={"malformed": 1},
    ),
    Move(
        "two identities of one name",
        _tells(
            lambda r, k: [r.entry("pat"), {**r.entry("sue"), "name": "pat"}],
            lambda r, k: [r.entry("pat")],
            lambda r, k: [{**r.entry("sue"), "name": "pat"}],
        ),
        told={"malformed": 1},
    ),
    Move(
        "our identities as its own",
        _tells(
            lambda r, k: [r.entry("ana", identity=k.ana.identity)],
            lambda r, k: [r.entry("pat", identity=k.ben.identity, retired=True)],
            lambda r, k: [r.entry("owner", identity=k.ana.identity)],
        ),
    ),
    Move(
        "names that are none",
        _tells(*(_one(name=text) for text in (*HOSTILE, "", "mbx", "0wner", "ana@desk", None))),
        told={"malformed": len(HOSTILE) + 5},
    ),
    Move(
        "hostile texts",
        _tells(
            *(_one(**{field: text}) for field in ("role", "cli") for text in HOSTILE),
            *(_one(description=text) for text in HOSTILE if len(text) > 2),
            _one(state="owner"),
            _one(retired="no"),
            _one(authority="owner"),
        ),
        told={"malformed": 17},
    ),
    Move("retired and alive again", _comes_back),
    Move("a flood of changes", _flood),
    Move(
        "addresses that nobody should dial",
        _addresses(
            ["127.0.0.1:22", "[::1]:22", "localhost:80"],
            [f"192.0.2.1:{port}" for port in range(1, PEER_ADDRESSES_MAX + 2)],
            ["192.0.2.1"],
            ["192.0.2.1:1", "192.0.2.1:1"],
            list(HOSTILE),
            "192.0.2.1:1",
            [],
        ),
        told={"malformed": 5},
    ),
)
"""Moves of directories."""

EVERY: Final = (*STREAMS, *SPEAKERS, *MAIL, *RECEIPTS, *DIRECTORIES)
"""All of them."""


def digest_of(move: Move) -> str:
    """A label of a host for the move: a name that looks like no other."""
    return "rogue-" + "".join(
        "abcdefghjk"[byte % 10] for byte in hashlib.sha256(move.name.encode()).digest()[:12]
    )
