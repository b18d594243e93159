"""Bind tickets: how long, how often, for whom, how many; and what handing one in counts for."""

from collections.abc import Iterator

import pytest

from mbx.core.errors import MbxError
from mbx.core.evidence import Lineage, Process, SessionKey, chosen
from mbx.core.lease import claimable
from mbx.core.limits import (
    SHARED_TIMEOUT_MS,
    TICKET_TTL_MS,
    TICKETS_MAX,
    TICKETS_OF_CONVERSATION_MAX,
)
from mbx.daemon.effects import Granted, Seen, Ticketed
from mbx.daemon.holders import Holders
from mbx.daemon.tickets import Tickets, digest_of
from mbx.store import leases
from mbx.store.database import Committed, Tx, run_reads
from tests.support.office import BOOT, HandWorld, OfficeDesk, conversation, harness, nobody, shell

PROCESS = Process(70, 700, BOOT)
OTHER = Process(71, 710, BOOT)
A, B = SessionKey("codex", "a"), SessionKey("codex", "b")


def undecided(process: Process = PROCESS) -> Lineage:
    """A connection of a shared process that named no conversation."""
    return Lineage("none", "codex", undecided=process)


@pytest.fixture
def world() -> HandWorld:
    return HandWorld()


@pytest.fixture
def tickets(world: HandWorld) -> Tickets:
    return Tickets(world)


def issue(tickets: Tickets, text: str, key: SessionKey = A, process: Process = PROCESS) -> None:
    tickets.issued(Ticketed(process, key, digest_of(text)))


def refusal(tickets: Tickets, text: str, lineage: Lineage) -> MbxError:
    before = len(tickets)
    with pytest.raises(MbxError) as refused:
        tickets.redeem(text, lineage)
    assert len(tickets) == before, "a refusal changes nothing"
    return refused.value


# -- one ticket -----------------------------------------------------------------------------------


def test_a_ticket_makes_a_connection_its_conversation_once(tickets: Tickets) -> None:
    issue(tickets, "one")
    found = tickets.redeem("one", undecided())
    assert (found.verdict, found.cli, found.session_id) == ("session", "codex", "a")
    assert (found.process, found.shared, found.undecided) == (PROCESS, True, None)
    assert refusal(tickets, "one", undecided()).code == "not-found"


@pytest.mark.parametrize(("late_ms", "is_good"), [(-1, True), (0, False), (1, False)])
def test_a_ticket_lives_ten_minutes(
    late_ms: int, is_good: bool, tickets: Tickets, world: HandWorld
) -> None:
    issue(tickets, "one")
    world.pass_ms(TICKET_TTL_MS + late_ms)
    if is_good:
        assert tickets.redeem("one", undecided()).session_id == "a"
    else:
        assert refusal(tickets, "one", undecided()).code == "not-found"
    assert len(tickets) == 0


def test_the_wall_clock_is_no_matter(tickets: Tickets, world: HandWorld) -> None:
    issue(tickets, "one")
    world.wall_ms += 10 * TICKET_TTL_MS
    assert tickets.redeem("one", undecided()).session_id == "a"


def test_wrong_used_expired_and_foreign_tickets_are_told_in_the_same_words(
    tickets: Tickets, world: HandWorld
) -> None:
    issue(tickets, "used")
    tickets.redeem("used", undecided())
    issue(tickets, "expired")
    world.pass_ms(TICKET_TTL_MS)
    issue(tickets, "foreign", A, OTHER)
    refused = [refusal(tickets, text, undecided()) for text in ("", "wrong", "used", "expired")]
    refused.append(refusal(tickets, "foreign", undecided()))
    refused.append(refusal(tickets, "wrong", chosen(PROCESS, A)))
    assert len({str(error.as_object()) for error in refused}) == 1
    assert refused[0].code == "not-found"
    assert tickets.redeem("foreign", undecided(OTHER)).process == OTHER, "it was left alone"


@pytest.mark.parametrize(
    "lineage",
    [
        nobody().lineage,
        shell(70).lineage,
        harness(70, "a", "codex").lineage,
        Lineage("unknown"),
        undecided(Process(70, 701, BOOT)),
        undecided(Process(70, 700, "another boot")),
    ],
    ids=["nobody", "shell", "one conversation", "unknown", "number used again", "another boot"],
)
def test_only_a_connection_of_exactly_that_process_may_hand_it_in(
    lineage: Lineage, tickets: Tickets
) -> None:
    issue(tickets, "one")
    assert refusal(tickets, "one", lineage).code == "not-found"


def test_a_connection_that_is_another_conversation_stays_it(tickets: Tickets) -> None:
    issue(tickets, "of b", B)
    error = refusal(tickets, "of b", chosen(PROCESS, A))
    assert (error.code, error.facts["session"]) == ("conflict", {"cli": "codex", "id": "a"})
    own = chosen(PROCESS, B)
    assert tickets.redeem("of b", own) is own
    assert refusal(tickets, "of b", undecided()).code == "not-found"


# -- many -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_of_the_tickets_of_one_conversation_the_oldest_is_dropped(
    more: int, tickets: Tickets
) -> None:
    issue(tickets, "of b", B)
    count = TICKETS_OF_CONVERSATION_MAX + more
    for number in range(count):
        issue(tickets, f"{number}")
    assert len(tickets) == 1 + min(count, TICKETS_OF_CONVERSATION_MAX)
    if more > 0:
        assert refusal(tickets, "0", undecided()).code == "not-found"
    assert tickets.redeem(f"{max(0, more)}", undecided()).session_id == "a"
    assert tickets.redeem("of b", undecided()).session_id == "b"


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_of_all_tickets_the_oldest_is_dropped(
    more: int, tickets: Tickets, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 50
    assert TICKETS_MAX == 10_000
    monkeypatch.setattr("mbx.daemon.tickets.TICKETS_MAX", most)
    for number in range(most + more):
        issue(tickets, f"{number}", SessionKey("codex", f"c-{number}"))
    assert len(tickets) == min(most + more, most)
    if more > 0:
        assert refusal(tickets, "0", undecided()).code == "not-found"
    assert tickets.redeem("1", undecided()).session_id == "c-1"


def test_expired_tickets_take_no_room(tickets: Tickets, world: HandWorld) -> None:
    for number in range(TICKETS_OF_CONVERSATION_MAX):
        issue(tickets, f"{number}")
    world.pass_ms(TICKET_TTL_MS)
    assert len(tickets) == 0


# -- the method -----------------------------------------------------------------------------------


@pytest.fixture
def desk() -> Iterator[OfficeDesk]:
    desk = OfficeDesk()
    yield desk
    desk.close()


def test_a_conversation_is_given_a_ticket_of_128_bits_of_which_the_store_learns_nothing(
    desk: OfficeDesk,
) -> None:
    caller = conversation(70, "a", "codex")
    told = [desk.call(caller, "session.ticket") for _ in range(2)]
    assert {one["expires_in_s"] for one in told} == {TICKET_TTL_MS // 1000}
    texts = [one["ticket"] for one in told]
    assert len(set(texts)) == 2
    assert all(len(bytes.fromhex(text)) == 16 for text in texts)
    assert desk.effects == [Ticketed(PROCESS, A, digest_of(text)) for text in texts]
    assert desk.rows("SELECT count(*) FROM answers") == [(0,)]
    assert desk.refusal(caller, "session.ticket", key="k").code == "usage", "never kept"


def test_only_a_conversation_of_a_shared_process_is_given_one(desk: OfficeDesk) -> None:
    assert desk.refusal(shell(5), "session.ticket").code == "usage"
    assert desk.refusal(harness(5, "s"), "session.ticket").code == "usage"
    assert desk.refusal(nobody(), "session.ticket").code == "no-lease"
    unnamed = nobody()._replace(lineage=undecided())
    assert desk.refusal(unnamed, "session.ticket").code == "no-lease"
    assert desk.effects == []


# -- signs of life --------------------------------------------------------------------------------


class NoWatch:
    """A watch for processes that do not end here."""

    def watch(self, process: Process, on_death: object, /) -> None:
        pass

    def unwatch(self, process: Process, /) -> None:
        pass

    def sees(self, process: Process, /) -> bool:
        return True


@pytest.mark.parametrize(("late_ms", "is_claimable"), [(-1, False), (0, True), (1, True)])
def test_a_conversation_that_binds_is_alive_and_one_that_is_silent_for_ten_minutes_is_not(
    late_ms: int, is_claimable: bool, desk: OfficeDesk
) -> None:
    holders = Holders(desk.world, NoWatch(), lambda no, why: None, lambda process: "live")
    caller = conversation(70, "a", "codex")
    desk.call(caller, "identity.register", name="anna", role="dev")
    granted = next(effect for effect in desk.effects if isinstance(effect, Granted))
    holders.granted(granted)
    desk.world.pass_ms(SHARED_TIMEOUT_MS - 1)
    desk.effects.clear()
    desk.call(caller._replace(lineage=chosen(PROCESS, A)), "session.whoami", bind="redeemed")
    seen = [effect for effect in desk.effects if isinstance(effect, Seen)]
    assert seen == [Seen(granted.identity_no, granted.epoch)]
    holders.heard(granted.identity_no, granted.epoch)
    desk.world.pass_ms(SHARED_TIMEOUT_MS + late_ms)
    holders.look_around()

    def look(tx: Tx) -> bool:
        row = leases.find(tx, granted.identity_no)
        return claimable(row.lease, holders.observe(row)).ok

    outcome = run_reads(desk.connection, [look])[0]
    assert isinstance(outcome, Committed)
    assert outcome.value is is_claimable
