"""What bounds a paired host that keeps no rule: counts, threads, answers, calls."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mbx.core.errors import MbxError
from mbx.core.frames import Bye, No
from mbx.core.limits import (
    ANSWERS_WAITING_MAX,
    CALL_BREACH_MS,
    CALL_CREDIT_MS,
    CALL_MS,
    DIRECTORY_ENTRIES_MAX,
    PEER_IDENTITIES_MAX,
    STOP_TOLD_MS,
)
from mbx.core.message import Party
from mbx.daemon import relaying
from mbx.store import outbox, peers
from mbx.store.database import Committed, Tx
from tests.support.byzantine import HONEST, LABEL, refusals
from tests.support.nearstage import NearStage, near_stage_of_test
from tests.support.paired import signed_by
from tests.support.rogue import Rogue, Turned, fresh_id

__all__ = ["near_stage_of_test"]


@pytest.fixture(name="rogue")
def rogue_of_test(stage: NearStage) -> Iterator[Rogue]:
    """Its link stands, and it has told of rob."""
    rogue = stage.rogue(LABEL)
    stage.introduce(rogue)
    refusals(rogue)
    yield rogue
    rogue.hang_up()


def identities_of(stage: NearStage) -> int:
    return stage.desk.do(lambda tx: peers.count_of(tx, stage.desk.peer_nos[LABEL]))


def fill(stage: NearStage, count: int) -> None:
    """The rogue has told of so many, of whom the first half is retired."""
    no, have = stage.desk.peer_nos[LABEL], identities_of(stage)

    def unit(tx: Tx) -> None:
        for number in range(count - have):
            name = f"pat-{number:04}"
            peers.save_identity(
                tx,
                no,
                fresh_id(name),
                name=name,
                role="dev",
                description="",
                retired=number * 2 < count,
                now_ms=1,
            )

    stage.desk.do(unit)


# -- identities -----------------------------------------------------------------------------------


def test_a_host_tells_of_so_many_identities_and_of_no_more(stage: NearStage, rogue: Rogue) -> None:
    fill(stage, PEER_IDENTITIES_MAX - 2)
    for told in ([], [], ["too-many"]):
        rogue.offer(rogue.directory(rogue.entry(f"new-{len(rogue.places)}")))
        stage.prove(rogue)
        assert refusals(rogue) == told
    assert identities_of(stage) == PEER_IDENTITIES_MAX
    # What is known can still change; of a record that goes too far nothing is taken.
    rogue.offer(rogue.directory(rogue.entry("rob", description="at work")))
    rogue.offer(rogue.directory(rogue.entry("rob", description="never"), rogue.entry("newer")))
    stage.prove(rogue)
    assert refusals(rogue) == ["too-many"]
    shown = stage.call("", "agents.list", query="rob", after="pz")["agents"]
    assert [one["description"] for one in shown] == ["at work"]


def test_mail_makes_no_more_identities_than_a_directory(stage: NearStage, rogue: Rogue) -> None:
    fill(stage, PEER_IDENTITIES_MAX - 1)
    for name, told in (("one-more", []), ("too-many-more", ["too-many"]), ("one-more", [])):
        rogue.offer(rogue.message(stage.known.ana, sender=rogue.party(name)))
        stage.prove(rogue)
        assert refusals(rogue) == told
    assert identities_of(stage) == PEER_IDENTITIES_MAX


def test_a_message_that_is_refused_leaves_nothing_of_its_sender(
    stage: NearStage, rogue: Rogue
) -> None:
    before = identities_of(stage)
    nobody = Party(fresh_id("nobody"), "nobody", "desk")
    rogue.offer(*(rogue.message(nobody, sender=rogue.party(f"pat-{no}")) for no in "abc"))
    stage.prove(rogue)
    assert refusals(rogue) == ["unknown-recipient"] * 3
    assert identities_of(stage) == before


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_everybody_is_listed_however_many_there_are(
    stage: NearStage, rogue: Rogue, more: int
) -> None:
    count = peers.PAGE_ROWS + more - 2  # besides rob, and hal of the other host
    names = [f"pat-{number:04}" for number in range(count)]
    for first in range(0, count, DIRECTORY_ENTRIES_MAX):
        piece = names[first : first + DIRECTORY_ENTRIES_MAX]
        rogue.offer(rogue.directory(*(rogue.entry(name) for name in piece)))
    listed: list[str] = []
    after: str | None = ""
    pages = 0
    while after is not None:
        page = stage.call("", "agents.list", after=after)
        listed += [one["address"] for one in page["agents"]]
        after, pages = page["next_after"], pages + 1
    away = [f"{name}@{LABEL}" for name in (*names, "rob")]
    assert sorted(listed) == sorted([*away, f"hal@{HONEST}", "ana@desk", "ben@desk"])
    assert len(listed) == len(set(listed))
    assert pages == (1 if more < 0 else 2)


# -- threads --------------------------------------------------------------------------------------


def thread_of(stage: NearStage, message: str) -> list[str]:
    """Who speaks in the thread of a message, as ana sees it."""
    return [one["from"] for one in stage.call("ana", "mail.thread", id=message)["messages"]]


def test_an_answer_goes_on_where_what_it_answers_stands(stage: NearStage, rogue: Rogue) -> None:
    mine = stage.send("ana", f"rob@{LABEL}", "a question")
    for thread in (mine, fresh_id("as it is called elsewhere"), stage.known.private):
        rogue.offer(rogue.message(stage.known.ana, thread=thread, reply_to=mine))
    assert thread_of(stage, mine) == ["ana@desk", *[f"rob@{LABEL}"] * 3]


def test_who_was_addressed_by_a_third_host_is_in_that_conversation(
    stage: NearStage, rogue: Rogue
) -> None:
    """hal wrote to ana and to rob, and rob answers both."""
    honest = stage.honest
    audience = sorted([stage.host, rogue.key_id])
    rob = Party(rogue.party().identity, "rob", "as-lap-calls-it")
    to = [stage.known.ana, rob]
    asked = honest.message(to, sender=honest.party("hal"), aud=audience)
    honest.offer(asked)
    rogue.offer(rogue.message(stage.known.ana, thread=asked.id, reply_to=asked.id))
    assert thread_of(stage, asked.id) == [f"hal@{HONEST}", f"rob@{LABEL}"]


def test_who_was_not_addressed_begins_a_thread_of_its_own(stage: NearStage, rogue: Rogue) -> None:
    known = stage.known
    made = [
        rogue.message(known.ana, thread=thread, reply_to=reply_to)
        for thread, reply_to in (
            (known.private, known.answer),
            (known.private, None),
            (None, known.answer),
            (known.of_honest, known.of_honest),
            (known.to_honest, None),
        )
    ]
    rogue.offer(*made)
    for one in made:
        assert thread_of(stage, one.id) == [f"rob@{LABEL}"]
        [read] = stage.call("ana", "mail.read", ids=[one.id])["messages"]
        assert (read["thread"], read["reply_to"]) == (one.id, None)
        answer = stage.call("ana", "mail.reply", id=one.id, body="?")
        assert answer["thread"] == one.id


def test_a_thread_that_is_nobodys_here_keeps_its_name_for_its_host(
    stage: NearStage, rogue: Rogue
) -> None:
    elsewhere = fresh_id("a thread of others")
    made = [rogue.message(stage.known.ana, thread=elsewhere) for _ in range(2)]
    rogue.offer(*made)
    assert thread_of(stage, made[0].id) == [f"rob@{LABEL}"] * 2
    # Another host that names it later was not in it, as far as anybody knows.
    honest = stage.honest
    late = honest.message(stage.known.ana, sender=honest.party("hal"), thread=elsewhere)
    honest.offer(late)
    assert thread_of(stage, made[0].id) == [f"rob@{LABEL}"] * 2
    assert thread_of(stage, late.id) == [f"hal@{HONEST}"]


def test_nobody_is_made_one_of_ours_by_another_hosts_word(stage: NearStage, rogue: Rogue) -> None:
    known = stage.known
    pat = Party(fresh_id("pat"), "pat", "desk")
    under = known.ana._replace(name="owner", host="anything")
    message = rogue.message([under, pat, rogue.party("sue"), Party(fresh_id("x"), "eve", "far")])
    rogue.offer(message)
    [read] = stage.call("ana", "mail.read", ids=[message.id])["messages"]
    said = f"pat@desk (so {LABEL} says)"
    assert read["to"] == ["ana@desk", said, f"sue@{LABEL}", "eve@far"]


def test_a_root_that_lies_ahead_counts_as_of_its_reading(stage: NearStage, rogue: Rogue) -> None:
    now_ms = stage.desk.world.now_ms()
    roots = {}
    for since in (now_ms - 1, now_ms, now_ms + 1):
        message = rogue.message(stage.known.ana, external_since=since)
        rogue.offer(message)
        [row] = stage.desk.rows("SELECT root_ms FROM messages WHERE id = ?", message.id)
        roots[since - now_ms] = row[0]
    assert roots == {-1: now_ms - 1, 0: now_ms, 1: None}


# -- receipts and refusals ------------------------------------------------------------------------


def copy_at_rogue(stage: NearStage, message: str) -> tuple[str, str | None]:
    [sent] = stage.call("ana", "mail.sent", id=message)["messages"]
    [copy] = sent["recipients"]
    return copy["stage"], copy["error"]


def test_what_was_never_offered_has_no_receipt_and_no_refusal(
    stage: NearStage, rogue: Rogue
) -> None:
    rogue.hang_up()
    offered = stage.send("ana", f"rob@{LABEL}", "offered, and not taken")
    wire = paused(rogue)
    waits = stage.send("ana", f"rob@{LABEL}", "not even offered")
    rob = rogue.party().identity
    fact: dict[str, Any] = {"recipient": rob, "stage": 5, "at": 1, "outcome": "acted"}
    rogue.put(rogue.receipt({"message": waits, **fact}))
    rogue.put(rogue.nack(waits))
    assert copy_at_rogue(stage, waits) == ("queued", None)
    rogue.put(rogue.receipt({"message": offered, **fact}))
    assert copy_at_rogue(stage, offered) == ("acked", None)
    assert wire is rogue.wire


def test_a_host_hears_that_what_it_told_of_itself_is_refused(
    stage: NearStage, rogue: Rogue
) -> None:
    rogue.offer(rogue.nack(fresh_id("one of our directories"), code="too-many"))
    assert f"{LABEL} refuses a record: too-many" in stage.log
    stage.log.clear()
    rogue.offer(rogue.nack(stage.known.private, code="too-many"))
    assert stage.log == []


def paused(rogue: Rogue) -> Any:
    """Its link stands, and it has refused for now what it was offered first."""
    rogue.call()
    assert rogue.wire is not None
    theirs = rogue.next()
    rogue.keep(theirs)  # type: ignore[arg-type]
    rogue.say(rogue.hello)
    rogue.next()
    rogue.say_text(f'{{"type":"ok","upto":{len(rogue.records)}}}')
    rogue.wire.read()
    rogue.say(No(len(rogue.records) + 1, "busy", 60_000))
    return rogue.wire


@pytest.mark.parametrize(("waiting", "waits"), [(-1, False), (0, True), (1, True)])
def test_who_takes_no_answers_gets_no_more_of_them(
    stage: NearStage, waiting: int, *, waits: bool
) -> None:
    rogue = stage.rogue(LABEL)
    no = stage.desk.peer_nos[LABEL]
    filler = rogue.receipt()

    def unit(tx: Tx) -> None:
        have = outbox.stream(tx, no).waiting_answers
        for _ in range(ANSWERS_WAITING_MAX + waiting - have):
            outbox.queue_record(tx, no, filler, 1)

    stage.desk.do(unit)
    bad = rogue.message(Party(fresh_id("nobody"), "nobody", "desk"))
    context = stage.desk.dispatcher.context()

    def take(tx: Tx) -> Any:
        return relaying.accept(context, tx, no, rogue.stream, 1, [bad])

    code = refusal(lambda: stage.desk.do(take))
    assert code == ("queue-full" if waits else None)
    assert stage.desk.do(lambda tx: outbox.stream(tx, no).in_seq) == (0 if waits else 1)


def refusal(act: Callable[[], Any]) -> str | None:
    try:
        act()
    except MbxError as error:
        return error.code
    return None


def test_a_refusal_that_cannot_be_told_now_makes_its_record_wait(
    stage: NearStage, rogue: Rogue
) -> None:
    no = stage.desk.peer_nos[LABEL]
    filler = rogue.receipt()

    def unit(tx: Tx) -> None:
        for _ in range(ANSWERS_WAITING_MAX):
            outbox.queue_record(tx, no, filler, 1)

    stage.desk.do(unit)
    rogue.put(rogue.message(Party(fresh_id("nobody"), "nobody", "desk")))
    assert rogue.wire is not None
    said = rogue.wire.read() or ""
    assert '"no"' in said
    assert '"queue-full"' in said


# -- calls and verdicts ---------------------------------------------------------------------------


def nonsense_for_ever(rogue: Rogue, calls: list[int]) -> None:
    """Until it is not let in any more."""
    while True:
        rogue.call()
        rogue.say_text("nonsense")
        calls.append(1)


def test_breaches_use_up_the_credit_of_the_one_host_that_makes_them(
    stage: NearStage, rogue: Rogue
) -> None:
    calls: list[int] = []
    with pytest.raises(Turned, match="503"):
        nonsense_for_ever(rogue, calls)
    assert 1 <= len(calls) <= CALL_CREDIT_MS // (CALL_MS + CALL_BREACH_MS) + 1
    stage.prove_honest()
    stage.pass_ms(CALL_CREDIT_MS + CALL_BREACH_MS)
    rogue.stand()
    stage.prove(rogue)


@pytest.mark.parametrize(("later_ms", "mails"), [(-1, 1), (0, 2), (1, 2)])
def test_the_owner_is_told_once_an_hour_that_a_link_has_stopped(
    stage: NearStage, rogue: Rogue, later_ms: int, mails: int
) -> None:
    before = len(stage.owners_mail())
    for _ in range(3):
        rogue.say(Bye("fork"))
        assert stage.desk.stream(LABEL).stopped == "fork"
        rogue.stand()
        assert stage.desk.stream(LABEL).stopped is None
    assert len(stage.owners_mail()) - before == 1
    stage.pass_ms(STOP_TOLD_MS + later_ms)
    rogue.stand()
    rogue.say(Bye("fork"))
    assert len(stage.owners_mail()) - before == mails


# -- the store, and the end -----------------------------------------------------------------------


def test_whoever_else_needs_the_store_waits_for_one_piece_at_most(
    stage: NearStage, rogue: Rogue
) -> None:
    entries = [rogue.entry(f"pat-{number:03}") for number in range(DIRECTORY_ENTRIES_MAX)]
    flood = [rogue.directory(*entries) for _ in range(30)]
    before = stage.desk.stream(LABEL).in_seq
    stage.held = []
    last = rogue.put(*flood)
    asked = stage.ask("ben", "mail.send", to=["ana"], subject="s", body="b")
    assert len(stage.held) == 2
    stage.step()
    stage.step()
    [outcome] = asked
    assert isinstance(outcome, Committed)
    taken = stage.desk.stream(LABEL).in_seq - before
    assert 0 < taken < 10
    while stage.held:
        stage.step()
    stage.held = None
    assert stage.desk.stream(LABEL).in_seq == last


@pytest.mark.parametrize("is_waiting", [False, True])
def test_nothing_is_taken_from_a_host_that_the_owner_has_removed(
    stage: NearStage, rogue: Rogue, *, is_waiting: bool
) -> None:
    """`is_waiting`: it had been received when the owner's record was applied."""
    signed_by(stage.owner, stage.desk.peer_nos[LABEL])
    before = stage.facts(rogue), len(stage.from_rogue(rogue))
    late = rogue.message(stage.known.ana, "too late")
    if is_waiting:
        stage.held = []
        rogue.put(late)
    stage.owner.do("unpair", name=LABEL)
    while stage.held:
        stage.step()
    stage.held = None
    if not is_waiting:
        rogue.put(late)
    stage.look()
    assert rogue.end() in ("refused", "unpaired")
    rogue.say_text("{}")
    with pytest.raises(Turned, match="503"):
        rogue.call()
    assert (stage.facts(rogue), len(stage.from_rogue(rogue))) == before
    stage.prove_honest()
