"""The checker of links accepts good histories and refuses bad ones, three for each invariant."""

import hashlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from mbx.core.limits import WINDOW_MAX_BYTES, WINDOW_RECORDS_MAX
from mbx.core.streams import EMPTY_HEAD, extended
from tests.sim.link_checker import KEPT_MAX_BYTES, LINK_INVARIANTS, violations
from tests.sim.link_history import (
    Acked,
    Asked,
    Ended,
    Event,
    Heard,
    Held,
    Left,
    LinkCase,
    Restored,
    Said,
    Spoilt,
    Stood,
    Stopped,
    Took,
    Withdrew,
    Written,
)

PLACES = tuple(hashlib.sha256(bytes([no])).digest() for no in range(5))
OTHER = hashlib.sha256(b"other").digest()


def head(places: tuple[bytes, ...]) -> bytes:
    found = EMPTY_HEAD
    for digest in places:
        found = extended(found, digest)
    return found


def left(sent: tuple[bytes, ...], acked: int, received: tuple[bytes, ...]) -> Left:
    return Left(sent, head(sent), acked, received, head(received))


def greeted(link: int) -> list[Event]:
    """Both say hello and then ok, and hear it."""
    steps: list[Event] = [Said(host, link, "hello", 0, 0, 0) for host in (0, 1)]
    steps += [Heard(host, link, "hello", 0, 0, 0) for host in (0, 1)]
    steps += [Said(host, link, "ok", 0, 0, 0) for host in (0, 1)]
    return steps + [Heard(host, link, "ok", 0, 0, 0) for host in (0, 1)]


def relayed(link: int, first: int, last: int, at_ms: int = 10) -> list[Event]:
    """Host 0 offers these places, host 1 commits them and says so."""
    took = [Took(1, link, seq, PLACES[seq - 1], True) for seq in range(first, last + 1)]
    return [
        Said(0, link, "put", first, last, at_ms),
        Heard(1, link, "put", first, last, at_ms),
        *took,
        Said(1, link, "ok", last, last, at_ms),
        Heard(0, link, "ok", last, last, at_ms),
        Acked(0, last),
    ]


def usual() -> list[Event]:
    """Three places on one link, two more on the next."""
    return [
        *(Written(0, no, PLACES[no - 1]) for no in (1, 2, 3)),
        *greeted(1),
        Held(0, 1, 3, 300, 0, 0, 900),
        *relayed(1, 1, 3),
        Ended(0, 1, "lost", False),
        *(Written(0, no, PLACES[no - 1]) for no in (4, 5)),
        *greeted(2),
        *relayed(2, 4, 5),
    ]


def case(events: list[Event], sent: int = 5, acked: int = 5, received: int = 5) -> LinkCase:
    return LinkCase(tuple(events), (left(PLACES[:sent], acked, ()), left((), 0, PLACES[:received])))


def without(sort: type, *more: object) -> list[Event]:
    """The usual history without the events of this type that begin so."""
    return [one for one in usual() if not (type(one) is sort and one[: len(more)] == more)]


def after(sort: type, *events: Event) -> list[Event]:
    """The usual history with something behind the first event of this type."""
    story = usual()
    at = next(no for no, one in enumerate(story) if type(one) is sort)
    return [*story[: at + 1], *events, *story[at + 1 :]]


def held(*sizes: int) -> Held:
    """What host 0 holds on link 2; sizes that are left out are nothing."""
    offered, offered_bytes, uncommitted, uncommitted_bytes, kept = (*sizes, 0, 0, 0, 0)[:5]
    return Held(0, 2, offered, offered_bytes, uncommitted, uncommitted_bytes, kept)


def torn(*rest: Event, received: int = 2) -> list[Event]:
    """After the usual history host 1 has lost what it had acknowledged."""
    return [*usual(), Restored(1, (), received, frozenset(), False), *rest]


def test_an_empty_history_is_good() -> None:
    assert violations(LinkCase((), (left((), 0, ()), left((), 0, ())))) == {}


def test_the_usual_history_is_good() -> None:
    assert violations(case(usual())) == {}


def test_a_withdrawn_place_without_record_is_good() -> None:
    story = usual()
    at = story.index(Took(1, 2, 5, PLACES[4], True))
    story[at] = Took(1, 2, 5, PLACES[4], False)
    story.insert(story.index(Written(0, 5, PLACES[4])) + 1, Withdrew(0, 5))
    assert violations(case(story)) == {}


def test_a_place_that_is_asked_for_again_after_a_refusal_or_on_another_link_is_good() -> None:
    again: list[Event] = [Asked(1, 2, 4, 5), Said(1, 2, "no", 5, 5, 9), Asked(1, 2, 5, 5)]
    assert violations(case([*usual(), *again, Asked(1, 3, 5, 5)])) == {}


def test_a_store_that_lost_nothing_that_counts_is_good() -> None:
    """The sender forgot an acknowledgement; the receiver what the sender never heard of."""
    story = usual()
    at = story.index(Acked(0, 5))
    story[at:] = [Restored(1, (), 4, frozenset(), True), *greeted(3), *relayed(3, 5, 5)]
    assert violations(case(story)) == {}


def test_a_rollback_that_both_tell_and_after_which_nothing_moves_is_good() -> None:
    stops: list[Event] = [
        Said(0, 3, "hello", 0, 0, 50),
        Said(1, 3, "hello", 0, 0, 50),
        Stopped(0, 3, "rollback-of-peer"),
        Stopped(1, 3, "rollback-of-us"),
    ]
    assert violations(case(torn(*stops), received=2)) == {}


def turns() -> list[Event]:
    """Stores of host 1 that go on in turns; host 0 was told twice."""

    def older(link: int) -> list[Event]:
        return [
            Restored(1, (), 2, frozenset(), False),
            Stopped(0, link, "rollback-of-peer"),
            Stopped(1, link, "rollback-of-us"),
        ]

    return [*older(3), Restored(1, (), 5, frozenset(), True), Stood(0, 4), Stood(1, 4), *older(5)]


def test_copies_that_are_found_at_their_second_turn_are_good() -> None:
    story = turns()
    story[-2] = Stopped(0, 5, "copies-of-peer")
    assert violations(case([*usual(), *story])) == {}


def test_a_host_that_forgot_the_turns_with_its_own_store_may_go_on() -> None:
    own = Restored(0, PLACES, 0, frozenset(), True)
    back = Restored(1, (), 5, frozenset(), True)
    assert violations(case([*usual(), *turns(), back, own, Stood(0, 6)])) == {}


def test_a_complaint_about_a_link_that_was_spoilt_is_good() -> None:
    assert violations(case([*usual(), Spoilt(3), Ended(1, 3, "protocol", False)])) == {}


Lie = Callable[[], LinkCase]

BAD: list[tuple[str, str, Lie]] = [
    ("I1", "a place never came", lambda: case(usual()[:-6], acked=3, received=3)),
    ("I1", "it came and the sender does not know", lambda: case(usual()[:-1], acked=3)),
    ("I1", "the end of the stream was forgotten", lambda: case(usual(), sent=4)),
    ("I1", "nothing came at all", lambda: case([Written(0, 1, PLACES[0])], 1, 0, 0)),
    ("I2", "a place twice at once", lambda: case(after(Took, Took(1, 1, 1, PLACES[0], True)))),
    ("I2", "a place again later", lambda: case([*usual(), Took(1, 2, 2, PLACES[1], True)])),
    ("I2", "the last one again", lambda: case([*usual(), Took(1, 2, 5, PLACES[4], True)])),
    ("I2", "asked again", lambda: case([*usual(), Asked(1, 2, 4, 5), Asked(1, 2, 5, 5)])),
    ("I3", "another record", lambda: case(after(Acked, Took(1, 1, 4, OTHER, True)))),
    ("I3", "a place beyond the last", lambda: case([*usual(), Took(1, 2, 6, OTHER, True)])),
    ("I3", "a record that came back", lambda: case(after(Written, Withdrew(0, 1)))),
    (
        "I3",
        "a place without its record",
        lambda: case(
            [
                one if one != Took(1, 2, 5, PLACES[4], True) else one._replace(is_record=False)
                for one in usual()
            ]
        ),
    ),
    (
        "I3",
        "something else is left",
        lambda: LinkCase(tuple(usual()), (left(PLACES, 5, ()), left((), 0, (*PLACES[:4], OTHER)))),
    ),
    ("I5", "a place before its turn", lambda: case(without(Took, 1, 1, 2))),
    ("I5", "not from the beginning", lambda: case(without(Took, 1, 1, 1))),
    ("I5", "a gap over two links", lambda: case(without(Took, 1, 1, 3))),
    ("I5", "asked with a gap", lambda: case([*usual(), Asked(1, 2, 4, 4), Asked(1, 2, 6, 6)])),
    ("I16", "ok before the commit", lambda: case(after(Heard, Said(1, 1, "ok", 1, 1, 0)))),
    ("I16", "ok to what comes later", lambda: case(after(Acked, Said(1, 1, "ok", 4, 4, 9)))),
    ("I16", "dropped before it was there", lambda: case(after(Written, Acked(0, 1)))),
    ("I16", "dropped more than was there", lambda: case(after(Acked, Acked(0, 4)))),
    (
        "I16",
        "a head of something else",
        lambda: replace(
            case(usual()),
            left=(Left(PLACES, head(PLACES[:4]), 5, (), EMPTY_HEAD), left((), 0, PLACES)),
        ),
    ),
    ("I16", "offered before any hello", lambda: case(without(Heard, 0, 1, "hello"))),
    ("I16", "offered before the other went on", lambda: case(without(Heard, 0, 2, "ok", 0))),
    ("I16", "offered before it went on itself", lambda: case(without(Said, 0, 1, "ok"))),
    ("I16", "taken before it went on itself", lambda: case(without(Said, 1, 2, "ok", 0))),
    (
        "I16",
        "taken after a rollback",
        lambda: case(
            torn(Took(1, 3, 3, PLACES[2], True), Stopped(0, 3, "fork"), Stopped(1, 3, "fork")),
            received=3,
        ),
    ),
    (
        "I16",
        "dropped after a rollback",
        lambda: case(torn(Acked(0, 2), Stopped(0, 3, "fork"), Stopped(1, 3, "fork")), received=2),
    ),
    (
        "I16",
        "a rollback that one alone tells",
        lambda: case(torn(Stopped(0, 3, "fork")), received=2),
    ),
    ("I16", "a rollback that nobody tells", lambda: case(torn(), received=2)),
    (
        "I16",
        "a copy in its second turn",
        lambda: case([*usual(), *turns(), Stood(0, 6)]),
    ),
    ("I16", "one store for two", lambda: case([*usual(), Stopped(0, 3, "copies-of-peer")])),
    ("I16", "a stop without cause", lambda: case([*usual(), Stopped(1, 2, "fork")])),
    ("I20", "malformed", lambda: case([*usual(), Ended(0, 2, "malformed", False)])),
    ("I20", "protocol, by the peer", lambda: case([*usual(), Ended(1, 2, "protocol", True)])),
    (
        "I20",
        "another link was spoilt",
        lambda: case([Spoilt(1), *usual(), Ended(0, 2, "protocol", False)]),
    ),
    ("I21", "a place too many", lambda: case([*usual(), held(WINDOW_RECORDS_MAX + 1, 9)])),
    ("I21", "a byte too many", lambda: case([*usual(), held(2, WINDOW_MAX_BYTES + 1)])),
    ("I21", "uncommitted places", lambda: case([*usual(), held(0, 0, 257, 9)])),
    ("I21", "uncommitted bytes", lambda: case([*usual(), held(0, 0, 9, WINDOW_MAX_BYTES + 1)])),
    ("I21", "texts without end", lambda: case([*usual(), held(0, 0, 0, 0, KEPT_MAX_BYTES + 1)])),
    ("I21", "offered again at once", lambda: case(after(Heard, Heard(0, 1, "no", 1, 1, 9)))),
]


@pytest.mark.parametrize(
    ("invariant", "lie"),
    [(name, lie) for name, _, lie in BAD],
    ids=[f"{name} {what}" for name, what, _ in BAD],
)
def test_a_bad_history_is_refused(invariant: str, lie: Lie) -> None:
    assert violations(lie()).get(invariant)


def test_each_invariant_is_shown_three_bad_histories() -> None:
    shown = [name for name, _, _ in BAD]
    assert {name for name in LINK_INVARIANTS if shown.count(name) < 3} == set()


def test_of_an_unfinished_run_not_everything_is_asked() -> None:
    unfinished = replace(case(usual()[:-6], acked=3, received=3), healed=False)
    assert violations(unfinished) == {}
