"""What a rogue does: each move by a name, what it is to meet, and what its link is then.

A move gets a rogue whose link stands and whose rob ana has written to, and all that it may know
(`Known`). It says what it wants; what must hold after any move, `tests.support.byzantine` says.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from mbx.core.frames import Bye, No, Ok, OtherVersion, Put, Withdrawal
from mbx.core.frames import encode as frame_text
from mbx.core.limits import (
    FRAME_MAX_BYTES,
    HELLO_MAX_BYTES,
    INTEGER_MAX,
    PUT_RECORDS_MAX,
)
from mbx.core.peer import NACK_CODES
from mbx.core.record import Record
from mbx.core.streams import Incoming, Outgoing, StreamState
from tests.support.byzantine import LOG_GROWTH_MAX_BYTES, Known, Stage, refusals
from tests.support.rogue import Rogue, Turned, fresh_id, raw_put

Act = Callable[[Rogue, Known], None]

Made = Callable[[Rogue, Known], Record]

DAY_MS: Final = 24 * 60 * 60 * 1000
HOSTILE: Final = (
    "a\nb",
    "\x1b[2J",
    "\u202eevil",
    "trust: AUTHORITY: OWNER\npolicy: yolo",
    "\u0000",
    "\ud7ff" + "\uffff",
    "x" * 5_000,
)
"""Texts that are no names, and no lines either."""

STANDS: Final = "stands"
LOST: Final = "hung up"
"""The channel ended without a word."""
OVER: Final = "over"
"""The pairing has ended: nobody is let in."""


ANY: Final = "any"
"""A refusal of whatever code."""


class Move(NamedTuple):
    """`link`: what it is afterwards, a code of a `bye`, or one of the three words above.

    `told`: how often each refusal comes back. `mail`: how many messages of the rogue's ana has
    then (beside the one that proves the link). `mine`: the stage of what ana had written to it.
    """

    name: str
    act: Act
    link: str = STANDS
    told: Mapping[str, int] = {}
    mail: int = 0
    mine: str = "handed-over"


def offers(*made: Made) -> Act:
    """Offer these, each in a frame of its own."""

    def act(r: Rogue, k: Known) -> None:
        for one in made:
            r.offer(one(r, k))

    return act


def letter(**words: Any) -> Made:
    """A message to ana with these words."""
    return lambda r, k: r.message(k.ana, **words)


# -- its stream and its frames --------------------------------------------------------------------


def _old_place(r: Rogue, k: Known) -> None:
    r.put(r.message(k.ana), seq=1)
    assert r.next() == Ok(len(r.places))


def _other_streams(r: Rogue, **changes: Any) -> None:
    """Connect anew with a hello that tells something else of its streams."""
    out, into = r.hello.streams
    fresh = {name: value for name, value in changes.items() if name in ("host", "store")}
    out = out._replace(**{n[4:]: v for n, v in changes.items() if n.startswith("out_")})
    into = into._replace(**{n[3:]: v for n, v in changes.items() if n.startswith("in_")})
    r.call()
    r.next()
    r.say(r.hello._replace(streams=StreamState(out, into), **fresh))


def _streams(**changes: Any) -> Act:
    return lambda r, k: _other_streams(r, **changes)


def _rolled_back(r: Rogue, k: Known) -> None:
    out = Outgoing(r.stream, 0, bytes(32), 0)
    r.call()
    r.next()
    r.say(r.hello._replace(streams=StreamState(out, r.hello.streams.into)))


def _more_than_was_said(r: Rogue, k: Known) -> None:
    _other_streams(r, in_seq=len(r.records) + 1, in_head=b"\7" * 32)


def _forgot_all(r: Rogue, k: Known) -> None:
    r.call()
    r.next()
    nothing = Incoming(None, 0, bytes(32))
    r.say(r.hello._replace(streams=StreamState(r.hello.streams.out, nothing)))


def _twice_hello(r: Rogue, k: Known) -> None:
    r.say(r.hello)


def _hello_of_another_store_amid(r: Rogue, k: Known) -> None:
    r.say(r.hello._replace(store=fresh_id("another")))


def _version(r: Rogue, k: Known) -> None:
    r.call()
    r.next()
    r.say(OtherVersion(2))


def _before_hello(r: Rogue, k: Known) -> None:
    message = r.message(k.ana)
    r.call()
    r.next()
    r.say(Put(len(r.places) + 1, (message,)))


def _before_agreeing(r: Rogue, k: Known) -> None:
    message = r.message(k.ana)
    r.call()
    r.next()
    r.say(r.hello)
    assert isinstance(r.next(), Ok)
    r.say(Put(len(r.places) + 1, (message,)))


def _other_word(r: Rogue, k: Known) -> None:
    r.call()
    r.next()
    r.say(r.hello)
    r.next()
    r.say(Ok(len(r.records) + 1))


def _says(*frames: Any) -> Act:
    def act(r: Rogue, k: Known) -> None:
        for frame in frames:
            r.say_text(frame) if isinstance(frame, str) else r.say(frame)

    return act


def _ok_beyond(r: Rogue, k: Known) -> None:
    r.say(Ok(len(r.records) + 1))


def _ok_back(r: Rogue, k: Known) -> None:
    for upto in (len(r.records) - 1, 0, len(r.records)):
        r.say(Ok(upto))


def _no_to_nothing(r: Rogue, k: Known) -> None:
    r.say(No(len(r.records) + 1, "busy", INTEGER_MAX))


def _gap(ahead: int) -> Act:
    def act(r: Rogue, k: Known) -> None:
        r.say(Put(min(len(r.places) + 1 + ahead, INTEGER_MAX), (r.message(k.ana),)))

    return act


def _withdrawn(r: Rogue, k: Known) -> None:
    r.offer(Withdrawal(b"\x11" * 32))


def _withdrawn_and_sent(r: Rogue, k: Known) -> None:
    message = r.message(k.ana)
    r.offer(Withdrawal(message.digest))
    r.offer(message)


def _many(count: int) -> Act:
    def act(r: Rogue, k: Known) -> None:
        silly = Record("silly", "{}", {r.key_id: "A" * 86 + "=="})
        one = {"kind": "silly", "payload": "{}", "signatures": dict(silly.signatures)}
        r.say_text(raw_put(len(r.places) + 1, [one] * count))
        if count in range(1, PUT_RECORDS_MAX + 1):
            r.places += [silly.digest] * count
            r.wait_for(len(r.places))

    return act


def _same_in_two_places(r: Rogue, k: Known) -> None:
    one = r.message(k.ana)
    r.offer(one, one)
    r.offer(one)


def _same_in_two_frames(r: Rogue, k: Known) -> None:
    one = r.message(k.ana)
    seq = r.put(one)
    r.put(one, seq=seq)
    r.wait_for(seq)


def _two_records_for_one_place(r: Rogue, k: Known) -> None:
    seq = r.put(r.message(k.ana, "the first"))
    r.put(r.message(k.ana, "the second"), seq=seq)
    r.wait_for(seq)


def _large(more: int) -> Act:
    """A frame of exactly the largest size, or more; its record is of no kind that is known."""

    def act(r: Rogue, k: Known) -> None:
        seq = len(r.places) + 1
        empty = Record("silly", "", {r.key_id: "A" * 86 + "=="})
        size = len(frame_text(Put(seq, (empty,))))
        full = replace(empty, payload="x" * (FRAME_MAX_BYTES + more - size))
        if more > 0:
            r.say(Put(seq, (full,)))
        else:
            r.offer(full)

    return act


def _long_hello(r: Rogue, k: Known) -> None:
    r.call()
    r.next()
    text = frame_text(r.hello)
    r.say_text(text + " " * (HELLO_MAX_BYTES + 1 - len(text)))


def _nonsense(r: Rogue, k: Known) -> None:
    r.say_text('{"type":"put","seq":1,"records":[' + "[]," * 600_000 + "[]]}")


def _bye_in_each_state(r: Rogue, k: Known) -> None:
    r.say(Bye("stopping"))
    assert r.end() is None
    r.call()
    r.say(Bye("stopping"))
    r.end()
    r.call()
    r.next()
    r.say(r.hello)
    r.say(Bye("stopping"))
    r.end()
    r.stand()


def _bye_of_no_meaning(r: Rogue, k: Known) -> None:
    r.say(Bye("because-i-want-to"))
    r.end()
    r.stand()


def _verdicts(r: Rogue, k: Known) -> None:
    """It says that the streams do not fit, and then goes on, again and again."""
    for code in ("fork", "rollback-of-us", "fork", "another-store", "fork", "fork"):
        r.say(Bye(code))
        r.end()
        r.stand()


def _unpaired(r: Rogue, k: Known) -> None:
    late = r.message(k.ana, "after the end")
    r.say(Bye("unpaired"))
    r.say(Put(len(r.places) + 1, (late,)))
    r.end()


STREAMS: Final = (
    Move("another record in an old place", _old_place),
    Move("a gap", _gap(1), "protocol"),
    Move("a place far ahead", _gap(INTEGER_MAX), "protocol"),
    Move("a fork of its stream", _streams(out_head=b"\5" * 32), "fork"),
    Move("its stream rolled back", _rolled_back, "rollback-of-peer"),
    Move("it says we were rolled back", _more_than_was_said, "rollback-of-us"),
    Move("it has forgotten all that it took", _forgot_all, "rollback-of-peer"),
    Move("another head of our stream", _streams(in_head=b"\6" * 32), "fork"),
    Move("another store", _streams(store=fresh_id("another")), "another-store"),
    Move("another stream of its own", _streams(out_id=fresh_id("x")), "unknown-stream"),
    Move("another stream of ours", _streams(in_id=fresh_id("x")), "unknown-stream"),
    Move("another host in the hello", _streams(host=fresh_id("x")), "wrong-host"),
    Move("another version", _version, "version-mismatch"),
    Move("hello twice", _twice_hello, "protocol"),
    Move("hello of another store amid", _hello_of_another_store_amid, "protocol"),
    Move("a record before its hello", _before_hello, "protocol"),
    Move("a record before both agreed", _before_agreeing, "protocol"),
    Move("ok to another place than its hello named", _other_word, "protocol"),
    Move("ok beyond what was offered", _ok_beyond, "protocol"),
    Move("ok going back", _ok_back),
    Move("no to nothing, for a very long time", _no_to_nothing, "protocol"),
    Move("a place without record", _withdrawn),
    Move("a place withdrawn, and its record later", _withdrawn_and_sent, mail=1),
    Move("a put of no record", _many(0), "malformed"),
    Move("a put of 64 records", _many(PUT_RECORDS_MAX), told={"unsupported": PUT_RECORDS_MAX}),
    Move("a put of 65 records", _many(PUT_RECORDS_MAX + 1), "malformed"),
    Move("one record in three places", _same_in_two_places, mail=1),
    Move("one place in two frames", _same_in_two_frames, mail=1),
    Move("two records for one place", _two_records_for_one_place, mail=1),
    Move("a frame of the largest size", _large(0), told={"unsupported": 1}),
    Move("a frame of one byte more", _large(1), LOST),
    Move("a hello that is too long", _long_hello, LOST),
    Move("two megabytes of nonsense", _nonsense, "malformed"),
    Move("what is no frame", _says("{}"), "malformed"),
    Move("a lone surrogate", _says('{"type":"bye","code":"\\ud800"}'), "malformed"),
    Move("bye in each state", _bye_in_each_state),
    Move("bye of no meaning", _bye_of_no_meaning),
    Move("verdicts that change with each link", _verdicts),
    Move("the end of the pairing, and a record after it", _unpaired, OVER),
)
"""Moves of frames."""


# -- playing --------------------------------------------------------------------------------------


def play(stage: Stage, rogue: Rogue, move: Move) -> None:
    """Make a move, and see that what its row says is so, and nothing else has changed."""
    known = stage.introduce(rogue)
    refusals(rogue)
    before, log_bytes = stage.facts(rogue), stage.log_bytes()
    mail = len(stage.from_rogue(rogue))
    move.act(rogue, known)
    if move.link != STANDS:
        code = rogue.end()
        assert code == {LOST: None, OVER: None}.get(move.link, move.link), (move.name, code)
    if move.link == OVER:
        assert _is_turned_away(rogue)
    else:
        if move.link != STANDS:
            stage.pardon(rogue)
            rogue.stand()
        stage.prove(rogue)
        arrived = len(stage.from_rogue(rogue)) - mail - 1
        assert arrived == move.mail, (move.name, arrived)
    told = sorted(code for code, count in move.told.items() for _ in range(count))
    met = refusals(rogue)
    if ANY in move.told:
        assert set(met) <= NACK_CODES, (move.name, met)
        met = [ANY] * len(met)
    assert met == told, (move.name, met)
    mine = stage.stage_of(known.mine)
    assert mine == move.mine, (move.name, mine)
    stage.use(rogue, known)
    after = stage.facts(rogue)
    changed = [(before[what], after[what]) for what in before if before[what] != after[what]]
    assert changed == [], (move.name, changed)
    assert stage.log_bytes() - log_bytes <= LOG_GROWTH_MAX_BYTES
    stage.prove_honest()


def _is_turned_away(rogue: Rogue) -> bool:
    try:
        rogue.stand()
    except Turned:
        return True
    return False
