"""A retired identity on every path on which a name or a conversation could lead to it."""

from collections.abc import Iterator
from typing import Any

import pytest

from mbx.core.lease import LeaseState
from mbx.daemon import resuming
from mbx.daemon.context import Answer
from mbx.daemon.effects import Granted
from mbx.daemon.gate import Caller
from mbx.daemon.resuming import Wish
from mbx.daemon.world import moment
from mbx.store import identities, leases, waiting
from mbx.store.database import Committed, Tx, run_group, run_reads
from tests.support.office import OfficeDesk, harness, shell

LETTER: dict[str, Any] = {"subject": "s", "body": "b"}
ANA, BEN, CAI, NEW = shell(1), shell(2), shell(3), shell(9)


@pytest.fixture
def desk() -> Iterator[OfficeDesk]:
    """The retired ben, whose session gave it back, with mail from and to ana; and cai."""
    desk = OfficeDesk()
    desk.add_owner()
    for pid, name in ((1, "ana"), (2, "ben"), (3, "cai")):
        desk.holder(name, pid)
    desk.call(BEN, "mail.send", to="ana", **LETTER)
    desk.call(ANA, "mail.send", to="ben", **LETTER)
    desk.call(BEN, "identity.release")
    retire(desk, "ben")
    yield desk
    desk.close()


def number(desk: OfficeDesk, name: str) -> int:
    no = desk.rows("SELECT no FROM identities WHERE name = ?", name)[0][0]
    assert isinstance(no, int)
    return no


def retire(desk: OfficeDesk, name: str) -> None:
    """What the owner's command will do to the store, besides ending a lease that is held."""
    no, now_ms = number(desk, name), desk.world.now_ms()

    def unit(tx: Tx) -> Answer:
        identities.retire(tx, no, now_ms)
        return Answer({})

    assert isinstance(run_group(desk.connection, [unit])[0], Committed)


def arrive(desk: OfficeDesk, caller: Caller, wish: Wish | None = None) -> list[str]:
    """The names that a session gets when it first speaks."""
    answer = desk.carry_out(desk.dispatcher.arrival(caller, wish or Wish()))
    return [effect.name for effect in answer.effects if isinstance(effect, Granted)]


def state_of(desk: OfficeDesk, name: str) -> tuple[LeaseState, int]:
    no = number(desk, name)
    found = run_reads(desk.connection, [lambda tx: leases.find(tx, no).lease])[0]
    assert isinstance(found, Committed)
    return found.value.state, found.value.epoch


# -- holding it -----------------------------------------------------------------------------------


def test_it_cannot_be_claimed_by_anybody(desk: OfficeDesk) -> None:
    before = state_of(desk, "ben")
    for caller in (NEW, BEN, harness(8, "s-8")):
        for role in (None, "dev"):
            assert desk.refusal(caller, "identity.claim", name="ben", role=role).code == "closed"
    assert desk.refusal(ANA, "identity.claim", name="ben").code == "closed"
    assert state_of(desk, "ben") == before


@pytest.mark.parametrize(
    ("name", "words"), [("ben", "ben exists already"), ("b-e-n", "b-e-n looks like ben")]
)
def test_its_name_and_those_like_it_stay_taken_and_nobody_is_told_to_claim_it(
    name: str, words: str, desk: OfficeDesk
) -> None:
    refused = desk.refusal(NEW, "identity.register", name=name, role="dev")
    assert (refused.code, refused.next_step) == ("name-taken", "choose another name")
    assert words in refused.message
    assert desk.refusal(ANA, "identity.rename", name=name).code == "name-taken"


def test_a_living_identity_of_that_name_is_still_offered(desk: OfficeDesk) -> None:
    refused = desk.refusal(NEW, "identity.register", name="cai", role="dev")
    assert refused.next_step == "mbx identity claim cai"
    refused = desk.refusal(NEW, "identity.register", name="ca-i", role="dev")
    assert refused.next_step == "choose another name, or mbx identity claim cai"


def test_a_name_at_launch_does_not_open_it_again(desk: OfficeDesk) -> None:
    for wish in (Wish("ben"), Wish("ben", "dev")):
        assert arrive(desk, harness(7, "s-7"), wish) == []
    assert desk.call(harness(7, "s-7"), "session.whoami")["pending"] is None


def test_the_conversation_that_held_it_does_not_resume_it_and_may_have_another(
    desk: OfficeDesk,
) -> None:
    desk.call(harness(20, "s-1"), "identity.register", name="dora", role="dev")
    session_no = desk.rows("SELECT no FROM sessions WHERE session_id = 's-1'")[0][0]
    desk.carry_out(desk.dispatcher.burial(session_no, "dead"))
    retire(desk, "dora")
    assert arrive(desk, harness(21, "s-1")) == []
    assert arrive(desk, harness(21, "s-1"), Wish("emil", "dev")) == ["emil"]


def test_who_waits_for_it_waits_no_longer_and_is_not_served(desk: OfficeDesk) -> None:
    holder, twin = harness(20, "s-1"), harness(21, "s-1")
    desk.call(holder, "identity.register", name="dora", role="dev")
    assert arrive(desk, twin) == []
    assert desk.call(twin, "session.whoami")["pending"] == "dora"
    retire(desk, "dora")
    assert desk.call(twin, "session.whoami")["pending"] is None
    session_no = desk.rows("SELECT no FROM sessions WHERE pid = 20")[0][0]
    assert desk.carry_out(desk.dispatcher.burial(session_no, "dead")).effects
    assert state_of(desk, "dora") == (LeaseState.LAPSED, 1)
    assert desk.call(twin, "session.whoami")["agent"] is None


def test_a_place_in_the_row_that_was_left_behind_serves_nobody(desk: OfficeDesk) -> None:
    twin = harness(21, "s-1")
    desk.call(harness(20, "s-1"), "identity.register", name="dora", role="dev")
    arrive(desk, twin)
    waits = desk.rows("SELECT no FROM sessions WHERE pid = 21")[0][0]
    no, now = number(desk, "dora"), moment(desk.world)

    def unit(tx: Tx) -> Answer:
        identities.retire(tx, no, now.now_ms)
        waiting.join(tx, waits, no, now.now_ms)
        tx.run("UPDATE leases SET state = 2 WHERE identity_no = ?", (no,))
        granted = resuming.serve(tx, desk.host, now, no)
        return Answer({"granted": granted})

    outcome = run_group(desk.connection, [unit])[0]
    assert isinstance(outcome, Committed)
    assert outcome.value.result["granted"] is None


# -- writing to it --------------------------------------------------------------------------------


@pytest.mark.parametrize("to", [["ben"], ["ben@desk"], ["cai", "ben"], ["*", "ben"]])
def test_a_letter_to_its_name_is_refused_as_a_whole(to: list[str], desk: OfficeDesk) -> None:
    before = desk.rows("SELECT count(*) FROM messages")
    refused = desk.refusal(ANA, "mail.send", to=to, **LETTER)
    assert (refused.code, refused.facts["retired"]) == ("closed", ["ben"])
    assert desk.rows("SELECT count(*) FROM messages") == before


def test_an_unknown_name_beside_it_is_told_first(desk: OfficeDesk) -> None:
    assert desk.refusal(ANA, "mail.send", to=["ben", "xyz"], **LETTER).code == "unknown-recipient"


@pytest.mark.parametrize("to", ["role:dev", "*"])
def test_what_reaches_many_does_not_reach_it(to: str, desk: OfficeDesk) -> None:
    reached = desk.call(ANA, "mail.send", to=to, **LETTER)["recipients"]
    assert [one["address"] for one in reached] == ["cai@desk"]


def test_its_mail_stays_and_cannot_be_answered(desk: OfficeDesk) -> None:
    letter = desk.call(ANA, "mail.inbox")["messages"][0]
    assert desk.refusal(ANA, "mail.reply", id=letter["id"], body="b").code == "closed"
    assert desk.call(ANA, "mail.read", ids=[letter["id"]])["messages"][0]["from"] == "ben@desk"
    kept = "SELECT count(*) FROM deliveries WHERE recipient_no = ?"
    assert desk.rows(kept, number(desk, "ben")) == [(1,)]


# -- seeing it ------------------------------------------------------------------------------------


def test_lists_leave_it_out_unless_all_are_asked_for(desk: OfficeDesk) -> None:
    listed = desk.call(NEW, "identity.list")["identities"]
    assert [one["name"] for one in listed] == ["ana", "cai"]
    everything = {
        one["name"]: one for one in desk.call(NEW, "identity.list", all=True)["identities"]
    }
    assert set(everything) == {"ana", "ben", "cai"}
    shown = desk.call(NEW, "identity.show", name="ben")
    assert shown == everything["ben"]
    assert (shown["state"], shown["claimable"], shown["reason"]) == ("retired", False, "retired")
    assert [one["name"] for one in desk.call(NEW, "agents.list")["agents"]] == ["ana", "cai"]


def test_it_is_suggested_to_nobody(desk: OfficeDesk) -> None:
    refused = desk.refusal(ANA, "mail.send", to="benn", **LETTER)
    assert refused.facts["suggestions"] == {"benn": []}
    assert desk.refusal(NEW, "identity.claim", name="benn").facts["suggestions"] == []
    assert desk.refusal(NEW, "identity.show", name="benn").facts["suggestions"] == []


def test_retiring_again_changes_nothing(desk: OfficeDesk) -> None:
    before = desk.rows("SELECT retired_ms FROM identities WHERE name = 'ben'")
    desk.world.pass_ms(1)
    retire(desk, "ben")
    assert desk.rows("SELECT retired_ms FROM identities WHERE name = 'ben'") == before
