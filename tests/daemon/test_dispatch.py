"""From call to unit: idempotency, the order of checks, and what is in the table."""

from collections.abc import Iterator

import pytest

from mbx.daemon.effects import Arrived, Revive, Seen
from mbx.daemon.gate import Access
from mbx.daemon.methods import METHODS
from mbx.store.database import Tx, run_group
from tests.support.office import OfficeDesk, shell


@pytest.fixture
def desk() -> Iterator[OfficeDesk]:
    made = OfficeDesk()
    yield made
    made.close()


LETTER = {"to": ["alice"], "subject": "s", "body": "b"}


def test_a_repeat_with_the_same_key_gives_the_first_answer_and_no_second_message(
    desk: OfficeDesk,
) -> None:
    alice = desk.holder("alice", 100)
    first = desk.call(alice, "mail.send", key="k1", **LETTER)
    desk.world.pass_ms(90 * 24 * 3_600_000)
    again = desk.call(alice, "mail.send", key="k1", **LETTER)
    assert again == {**first, "duplicate": True}
    assert desk.rows("SELECT count(*) FROM messages") == [(1,)]


def test_a_key_used_for_another_request_is_a_conflict(desk: OfficeDesk) -> None:
    alice = desk.holder("alice", 100)
    desk.call(alice, "mail.send", key="k1", **LETTER)
    error = desk.refusal(alice, "mail.send", key="k1", **{**LETTER, "body": "other"})
    assert error.code == "idempotency-conflict"
    error = desk.refusal(alice, "mail.ack", key="k1", ids=["abcdef"])
    assert error.code == "idempotency-conflict"
    assert desk.rows("SELECT count(*) FROM messages") == [(1,)]


def test_keys_belong_to_one_identity(desk: OfficeDesk) -> None:
    alice, bob = desk.holder("alice", 100), desk.holder("bob", 200)
    first = desk.call(alice, "mail.send", key="k1", **LETTER)
    second = desk.call(bob, "mail.send", key="k1", **LETTER)
    assert first["id"] != second["id"]
    assert second["duplicate"] is False


def test_two_deliberate_messages_with_the_same_words_are_two(desk: OfficeDesk) -> None:
    alice = desk.holder("alice", 100)
    one = desk.call(alice, "mail.send", key="k1", **LETTER)
    two = desk.call(alice, "mail.send", key="k2", **LETTER)
    three = desk.call(alice, "mail.send", **LETTER)
    assert len({one["id"], two["id"], three["id"]}) == 3


def test_a_refused_call_does_not_use_up_its_key(desk: OfficeDesk) -> None:
    alice = desk.holder("alice", 100)
    assert desk.refusal(alice, "mail.send", key="k", **{**LETTER, "to": ["bob"]}).code == (
        "unknown-recipient"
    )
    assert desk.call(alice, "mail.send", key="k", **LETTER)["duplicate"] is False


def test_a_release_repeated_after_a_lost_answer_is_answered_as_before(desk: OfficeDesk) -> None:
    alice = desk.holder("alice", 100)
    first = desk.call(alice, "identity.release", key="r1")
    assert desk.call(alice, "identity.release", key="r1") == {**first, "duplicate": True}
    assert desk.refusal(alice, "identity.release", key="r2").code == "no-lease"


def test_a_key_does_not_outlive_the_lease_of_its_identity(desk: OfficeDesk) -> None:
    alice = desk.holder("alice", 100)
    desk.call(alice, "mail.send", key="k1", **LETTER)
    desk.evidence[100] = "dead"
    desk.call(shell(200), "identity.claim", name="alice")
    assert desk.refusal(alice, "mail.send", key="k1", **LETTER).code == "lease-lost"


def test_a_unit_that_runs_again_draws_the_same_ids(desk: OfficeDesk) -> None:
    alice = desk.holder("alice", 100)
    work = desk.work(alice, "mail.send", LETTER)
    twice = []
    for _ in range(2):
        desk.connection.execute("BEGIN")
        twice.append(work.unit(Tx(desk.connection, 9)).result)
        desk.connection.execute("ROLLBACK")
    assert twice[0] == twice[1]
    assert len(run_group(desk.connection, [work.unit])) == 1


@pytest.mark.parametrize("name", ["", "mail", "mail.sendd", "__init__", None, 7, ["mail.send"]])
def test_a_method_that_is_not_there_is_refused(desk: OfficeDesk, name: object) -> None:
    with pytest.raises(Exception, match="no such method"):
        desk.dispatcher.work(shell(1), name, {})


def test_only_status_and_stop_answer_across_versions() -> None:
    assert {name for name, method in METHODS.items() if method.across_versions} == {
        "daemon.status",
        "daemon.stop",
    }


def test_every_mailbox_method_needs_a_lease() -> None:
    assert {name for name, method in METHODS.items() if method.access is Access.LEASE} == {
        *(name for name in METHODS if name.startswith("mail.")),
        "identity.set",
        "identity.rename",
    }


def test_what_a_call_lets_out_follows_its_commit(desk: OfficeDesk) -> None:
    alice = desk.holder("alice", 100)
    desk.effects.clear()
    desk.call(alice, "mail.send", **LETTER)
    assert desk.effects == [Arrived((1,)), Seen(1, 1)]


def test_burying_and_reviving_are_harmless_when_they_come_late(desk: OfficeDesk) -> None:
    desk.holder("alice", 100)
    desk.carry_out(desk.dispatcher.revival(Revive(1, 1)))
    assert desk.rows("SELECT state FROM leases") == [(1,)]
    desk.carry_out(desk.dispatcher.burial(1, "it ended"))
    assert desk.rows("SELECT state FROM leases") == [(2,)]
    desk.carry_out(desk.dispatcher.burial(1, "it ended"))
    desk.carry_out(desk.dispatcher.burial(99, "it never was"))
    acts = [act for (act,) in desk.rows("SELECT act FROM audit ORDER BY no")]
    assert acts == ["register", "claim", "lapse"]


def test_a_lease_is_not_revived_after_the_proved_death_of_its_holder(desk: OfficeDesk) -> None:
    """Else a child that goes on with the token would hold the name for ever, watched by nobody."""
    desk.holder("alice", 100)
    desk.carry_out(desk.dispatcher.burial(1, "it ended"))
    desk.carry_out(desk.dispatcher.revival(Revive(1, 1)))
    assert desk.rows("SELECT state FROM leases") == [(2,)]
    desk.call(shell(200), "identity.claim", name="alice")


def test_a_lapsed_lease_is_held_again_by_the_session_that_uses_it(desk: OfficeDesk) -> None:
    desk.holder("alice", 100)
    desk.connection.execute("UPDATE leases SET state = 2")
    desk.carry_out(desk.dispatcher.revival(Revive(1, 1)))
    assert desk.rows("SELECT state FROM leases") == [(1,)]


def test_the_burial_of_a_displaced_session_leaves_the_new_holder_alone(desk: OfficeDesk) -> None:
    desk.holder("alice", 100)
    desk.evidence[100] = "dead"
    desk.call(shell(200), "identity.claim", name="alice")
    desk.carry_out(desk.dispatcher.burial(1, "it ended"))
    assert desk.rows("SELECT state, epoch, session_no FROM leases") == [(1, 2, 2)]
    assert desk.refusal(shell(100), "mail.inbox").code == "no-lease"
