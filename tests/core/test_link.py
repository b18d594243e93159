"""The machine of one link: every event in every state, the window, deadlines, refusals.

What two machines do with each other over a bad line is `tests/sim/test_link.py`; what hostile peers
send is `test_link_hostile.py`.
"""

import re
from collections.abc import Callable

import pytest

from mbx.core import limits
from mbx.core.commands import (
    Closed,
    Send,
    Stood,
)
from mbx.core.dialing import FUTILE
from mbx.core.frames import BYES, Bye, No, Ok, Put, Withdrawal, encode
from mbx.core.link import Link, Phase, open_link
from mbx.core.streams import Incoming, Outgoing, StreamState
from tests.support.frames import STORES
from tests.support.linking import (
    BAD,
    FAULT,
    INTO,
    NOTHING,
    OUT,
    STATES,
    THEM,
    TIMEOUT,
    US,
    greeting,
    head,
    hear,
    offering,
    ours,
    receiving,
    some,
    standing,
    theirs,
    told,
)

# --- every event in every state ------------------------------------------------------------------


EVENTS: dict[str, Callable[[Link], str]] = {
    "hello": lambda link: hear(link, theirs()),
    "hello, nothing to recall": lambda link: hear(link, theirs(received=9)),
    "hello of a fork": lambda link: hear(link, theirs(sent=4)._replace(streams=fork())),
    "hello of another host": lambda link: hear(link, theirs()._replace(host=US)),
    "hello of another version": lambda link: told(
        link.receive('{"type":"hello","protocol":2,"more":[]}', 0)
    ),
    "ok as greeted": lambda link: hear(link, Ok(2)),
    "ok to place 4": lambda link: hear(link, Ok(4)),
    "ok to place 5": lambda link: hear(link, Ok(5)),
    "ok to place 6": lambda link: hear(link, Ok(6)),
    "put of the next": lambda link: hear(link, Put(5, some(2))),
    "put of the next but two": lambda link: hear(link, Put(7, some(1))),
    "put of the next and more": lambda link: hear(link, Put(6, some(2))),
    "put of what we have": lambda link: hear(link, Put(3, some(2))),
    "put of some that we have": lambda link: hear(link, Put(4, some(4))),
    "put after a gap": lambda link: hear(link, Put(9, some(1))),
    "withdrawn": lambda link: hear(link, Put(5, (Withdrawal(b"w" * 32),))),
    "no to place 3": lambda link: hear(link, No(3, "busy", 5_000)),
    "no to place 4": lambda link: hear(link, No(4, "busy", 5_000)),
    "bye": lambda link: hear(link, Bye("stopping")),
    "bye of a mismatch": lambda link: hear(link, Bye("version-mismatch", 2)),
    "bye of a rollback": lambda link: hear(link, Bye("rollback-of-us")),
    "no frame": lambda link: told(link.receive("{}", 0)),
    "a binary message": lambda link: told(link.receive(b'{"type":"ok","upto":2}', 0)),
    "recalled": lambda link: told(link.recalled(2, head(2), 0)),
    "recalled, other place": lambda link: told(link.recalled(3, head(3), 0)),
    "recalled, not known": lambda link: told(link.recalled(2, None, 0)),
    "offer": lambda link: told(link.offer(12, 0)),
    "fetched from 2": lambda link: told(link.fetched(2, some(2), 0)),
    "fetched from 5": lambda link: told(link.fetched(5, some(2), 0)),
    "committed 4": lambda link: told(link.committed(4)),
    "committed 5": lambda link: told(link.committed(5)),
    "defer 5": lambda link: told(link.defer(5, "busy", 1_000)),
    "defer 6": lambda link: told(link.defer(6, "busy", 1_000)),
    "lost": lambda link: told(link.lost()),
    "close": lambda link: told(link.close("stopping")),
    "tick, too early": lambda link: told(link.tick(4_999)),
    "tick, after 5 s": lambda link: told(link.tick(5_000)),
    "tick, after 10 min": lambda link: told(link.tick(600_000)),
}


def fork() -> StreamState:
    """Streams with as many places, and another head."""
    return StreamState(Outgoing(INTO, 4, b"f" * 32, 4), Incoming(OUT, 9, head(9)))


BUG = "ValueError"
"""What only a daemon with a defect asks for."""

_HELLOS = [name for name in EVENTS if name.startswith("hello")]
_OKS = [name for name in EVENTS if name.startswith("ok")]
_PUTS = [name for name in EVENTS if name.startswith(("put", "withdrawn"))]
_NOS = ["no to place 3", "no to place 4"]
_STORE = [name for name in EVENTS if name.startswith(("recalled", "fetched", "committed", "defer"))]
_ALWAYS = {
    "bye": "closed stopping by peer",
    "bye of a mismatch": "closed version-mismatch by peer",
    "bye of a rollback": "stopped rollback-of-peer by peer, closed rollback-of-us by peer",
    "no frame": BAD,
    "a binary message": BAD,
    "lost": "closed lost",
    "close": "bye stopping, closed stopping",
    "tick, too early": NOTHING,
}
_BEFORE = (
    _ALWAYS
    | dict.fromkeys([*_HELLOS, *_OKS, *_PUTS, *_NOS], FAULT)
    | dict.fromkeys([*_STORE, "offer"], NOTHING)
    | {"tick, after 5 s": TIMEOUT, "tick, after 10 min": TIMEOUT}
)
_STANDS = (
    _ALWAYS
    | dict.fromkeys([*_HELLOS, *_OKS, *_NOS], FAULT)
    | dict.fromkeys([*_STORE, "offer", "tick, after 5 s", "tick, after 10 min"], NOTHING)
    | {
        "ok as greeted": NOTHING,
        "put of the next": "commit 5+2",
        "put of the next but two": FAULT,
        "put of the next and more": FAULT,
        "put of what we have": "say ok 4",
        "put of some that we have": "commit 5+3",
        "put after a gap": FAULT,
        "withdrawn": "commit 5+1",
        "fetched from 2": "put 3+2, fetch 4",
        "committed 5": BUG,
    }
)
_OFFERS = _STANDS | {
    "ok to place 4": "acknowledged 4",
    "ok to place 5": "acknowledged 5",
    "no to place 3": "refused 3 busy",
    "fetched from 2": NOTHING,
    "fetched from 5": "put 6+2, fetch 7",
    "tick, after 10 min": TIMEOUT,
}
_RECEIVES = {
    "put of the next": NOTHING,
    "put of the next but two": "commit 7+1",
    "put of the next and more": "commit 7+1",
    "put of some that we have": "commit 7+1",
    "withdrawn": NOTHING,
    "committed 5": "say ok 5",
    "defer 5": "say no 5 busy",
    "defer 6": BUG,
}

OUTCOMES: dict[str, dict[str, str]] = {
    "greeting": _BEFORE
    | {
        "hello": "recall 2",
        "hello, nothing to recall": "say ok 4",
        "hello of a fork": "stopped fork, bye fork, closed fork",
        "hello of another host": "bye wrong-host, closed wrong-host",
        "hello of another version": "bye version-mismatch, closed version-mismatch",
    },
    "comparing": _BEFORE
    | {
        "ok as greeted": NOTHING,
        "recalled": "say ok 4",
        "recalled, not known": "stopped fork, bye fork, closed fork",
    },
    "noted": _BEFORE
    | {
        "recalled": "say ok 4, stood, fetch 2",
        "recalled, not known": "stopped fork, bye fork, closed fork",
    },
    "agreeing": _BEFORE | {"ok as greeted": "stood, fetch 2"},
    "standing": _STANDS,
    "offering": _OFFERS,
    "paused": _STANDS
    | {"fetched from 2": NOTHING, "tick, after 5 s": "fetch 2", "tick, after 10 min": "fetch 2"},
    "receiving": _STANDS | _RECEIVES,
    "skipping": _STANDS
    | {
        "put of the next but two": NOTHING,
        "put of the next and more": NOTHING,
        "put after a gap": NOTHING,
    },
    "closed": dict.fromkeys(EVENTS, NOTHING),
}


@pytest.mark.parametrize("state", STATES)
def test_every_event_in_this_state_has_its_outcome(state: str) -> None:
    assert OUTCOMES[state].keys() == EVENTS.keys()
    found = {}
    for name, event in EVENTS.items():
        try:
            found[name] = event(STATES[state]())
        except ValueError:
            found[name] = BUG
    assert found == OUTCOMES[state]


def test_the_table_has_a_cell_for_every_state_and_event() -> None:
    assert OUTCOMES.keys() == STATES.keys()
    assert sum(len(row) for row in OUTCOMES.values()) == len(STATES) * len(EVENTS) == 380


@pytest.mark.parametrize("state", STATES)
def test_a_closed_link_says_and_does_nothing_more(state: str) -> None:
    link = STATES[state]()
    link.close("stopping")
    assert link.phase is Phase.CLOSED
    assert link.deadline() is None
    for event in EVENTS.values():
        assert event(link) == NOTHING
    assert (link.offered, link.uncommitted, link.kept_bytes) == ((0, 0), (0, 0), 0)


# --- hello and agreement -------------------------------------------------------------------------


def test_a_new_link_says_hello_and_nothing_else() -> None:
    link, commands = open_link(ours(), THEM, None, 0)
    assert commands == [Send(encode(ours()))]
    assert link.phase is Phase.GREETING


def test_two_new_hosts_go_on_with_each_other() -> None:
    a, _ = open_link(ours(0, 0, 0), THEM, None, 0)
    assert hear(a, theirs(0, 0, 0)) == "say ok 0"
    commands = a.receive(encode(Ok(0)), 0)
    assert commands == [Stood(STORES[1], INTO)]


def test_what_the_peer_has_is_acknowledged_once_both_go_on() -> None:
    link = greeting()
    assert hear(link, theirs(received=9)) == "say ok 4"
    assert hear(link, Ok(9)) == "stood, acknowledged 9"


def test_the_first_frame_is_bounded_more_tightly_than_the_later_ones() -> None:
    text = encode(theirs(received=9))
    for more, outcome in ((-1, "say ok 4"), (0, "say ok 4"), (1, BAD)):
        padded = text + " " * (limits.HELLO_MAX_BYTES - len(text) + more)
        assert told(greeting().receive(padded, 0)) == outcome
    text = encode(Ok(2))
    for more, outcome in ((-1, NOTHING), (0, NOTHING), (1, BAD)):
        padded = text + " " * (limits.FRAME_MAX_BYTES - len(text) + more)
        assert told(standing().receive(padded, 0)) == outcome


def test_a_peer_of_another_version_is_told_ours() -> None:
    commands = greeting().receive('{"type":"hello","protocol":7}', 0)
    assert commands[0] == Send('{"type":"bye","code":"version-mismatch","protocol":1}')


def test_a_store_that_is_not_the_one_known_stops_the_link() -> None:
    link, _ = open_link(ours(), THEM, STORES[0], 0)
    assert hear(link, theirs(received=9)) == (
        "stopped another-store, bye another-store, closed another-store"
    )


def test_the_reason_of_a_close_says_which_rule_was_broken() -> None:
    (_, closed_now) = standing().receive(encode(Put(9, some(1))), 0)
    assert closed_now == Closed("protocol", False, "a gap between places")
    (_, closed_now) = greeting().receive("[]", 0)
    assert closed_now == Closed("malformed", False, "not an object")


def test_every_word_of_parting_has_a_meaning() -> None:
    """Those that the machine says, that the daemon may say, and that end in no other try soon."""
    outcomes = {outcome for row in OUTCOMES.values() for outcome in row.values()}
    said = {code for outcome in outcomes for code in re.findall(r"bye ([a-z-]+)", outcome)}
    assert len(said) >= 6
    assert (said | FUTILE | {"other-link", "unpaired"}) - BYES.keys() == set()


# --- deadlines -----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["greeting", "comparing", "noted", "agreeing"])
def test_a_link_that_does_not_come_to_stand_ends_after_5_s(state: str) -> None:
    link = STATES[state]()
    assert link.deadline() == limits.HELLO_DEADLINE_MS == 5_000
    assert told(link.tick(4_999)) == NOTHING
    assert told(link.tick(5_000)) == TIMEOUT


def test_each_of_the_two_steps_has_its_own_5_s() -> None:
    link = greeting()
    hear(link, theirs(received=9), 4_000)
    assert link.deadline() == 9_000


def test_an_idle_link_owes_nothing() -> None:
    assert standing().deadline() is None
    assert receiving().deadline() is None


def test_a_peer_that_does_not_answer_is_dead_after_a_minute_and_the_time_of_a_slow_line() -> None:
    link = standing()
    link.fetched(2, some(1), 1_000)
    under_way = link.offered[1]
    due_ms = 1_000 + limits.ANSWER_DEADLINE_MS + under_way * 1_000 // 8_192
    assert link.deadline() == due_ms
    assert told(link.tick(due_ms - 1)) == NOTHING
    assert told(link.tick(due_ms)) == TIMEOUT


def test_any_progress_starts_the_minute_anew_and_an_old_answer_does_not() -> None:
    link = offering()
    before = link.deadline()
    assert before is not None
    hear(link, Ok(2), 50_000)
    assert link.deadline() == before
    hear(link, Ok(3), 50_000)
    assert link.deadline() == before + 50_000
    hear(link, Ok(5), 51_000)
    assert link.deadline() is None


def test_the_minute_begins_when_something_is_offered_not_when_the_link_stood() -> None:
    link = standing()
    link.fetched(2, some(1), 500_000)
    assert (link.deadline() or 0) >= 560_000
