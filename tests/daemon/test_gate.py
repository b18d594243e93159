"""Who is admitted, under which lease, and what the others are told."""

import json
from collections.abc import Iterator

import pytest

from mbx.core.limits import ANSWER_MAX_BYTES
from mbx.daemon.effects import Granted
from mbx.daemon.gate import NO_GRANT, Holder, Open, Session
from mbx.store import bindings
from tests.support.office import BOOT, OfficeDesk, conversation, harness, nobody, shell, unseen


@pytest.fixture
def desk() -> Iterator[OfficeDesk]:
    made = OfficeDesk()
    yield made
    made.close()


MAILBOX_CALLS = [
    ("mail.inbox", {}),
    ("mail.read", {"ids": ["abcdef"]}),
    ("mail.send", {"to": ["alice"], "subject": "s", "body": "b"}),
    ("mail.reply", {"id": "abcdef", "body": "b"}),
    ("mail.ack", {"ids": ["abcdef"]}),
    ("mail.sent", {}),
    ("identity.release", {}),
]


def token_of(desk: OfficeDesk) -> str:
    granted = [effect for effect in desk.effects if isinstance(effect, Granted)]
    return granted[-1].token


@pytest.mark.parametrize(("method", "params"), MAILBOX_CALLS)
def test_a_mailbox_call_without_a_lease_is_refused_with_the_next_step(
    desk: OfficeDesk, method: str, params: dict[str, object]
) -> None:
    desk.holder("alice", 100)
    for caller, next_step in [
        (shell(200), "mbx identity claim NAME (new: mbx identity register NAME --role ROLE)"),
        (nobody(), "mbx run --as NAME -- COMMAND"),
        (unseen(), "mbx doctor  (it says whether the daemon is in a sandbox)"),
        (unseen("0" * 64), "mbx doctor  (it says whether the daemon is in a sandbox)"),
    ]:
        error = desk.refusal(caller, method, **params)
        assert (error.code, error.next_step) == ("no-lease", next_step)


@pytest.mark.parametrize(("method", "params"), MAILBOX_CALLS[:-1])
def test_a_lease_is_asked_for_before_ids_and_bodies_are_looked_at(
    desk: OfficeDesk, method: str, params: dict[str, object]
) -> None:
    worse = {**params, "body": "x" * 300_000, "ids": ["?"], "surprise": 1}
    assert desk.refusal(shell(200), method, **worse).code == "no-lease"


def lapse_and_claim(desk: OfficeDesk) -> None:
    """The holder of alice (process 100) is taken for dead, and 200 claims the name."""
    desk.evidence[100] = "dead"
    desk.call(shell(200), "identity.claim", name="alice")


@pytest.mark.parametrize(("method", "params"), MAILBOX_CALLS)
def test_a_displaced_session_gets_lease_lost_on_everything(
    desk: OfficeDesk, method: str, params: dict[str, object]
) -> None:
    old = desk.holder("alice", 100)
    lapse_and_claim(desk)
    error = desk.refusal(old, method, **params)
    assert error.code == "lease-lost"
    assert error.facts["identity"] == "alice"
    assert (error.facts["granted_epoch"], error.facts["epoch"]) == (1, 2)
    assert error.facts["holder"] == {"cli": "shell", "session": "200-2000"}
    assert error.message == (
        "alice was taken from this session; it is held by shell 200-2000"
        " since 2023-11-14T22:13:20.000Z"
    )


def test_whoami_tells_the_loser_what_it_lost_until_it_holds_another(desk: OfficeDesk) -> None:
    old = desk.holder("alice", 100)
    assert desk.call(old, "session.whoami")["lost"] is None
    lapse_and_claim(desk)
    lost = desk.call(old, "session.whoami")["lost"]
    assert lost == desk.refusal(old, "mail.inbox").message
    desk.call(old, "identity.register", name="bob", role="dev")
    assert desk.call(old, "session.whoami")["lost"] is None


def test_a_request_written_under_an_old_epoch_is_not_carried_out_under_a_new_one(
    desk: OfficeDesk,
) -> None:
    desk.holder("alice", 100)
    desk.call(shell(100), "identity.release")
    desk.call(shell(100), "identity.claim", name="alice")
    error = desk.refusal(shell(100, granted_epoch=1), "mail.inbox")
    assert error.code == "lease-lost"
    assert desk.call(shell(100, granted_epoch=2), "mail.inbox")["unread"] == 0


def test_a_request_written_under_one_identity_is_not_carried_out_under_another_of_equal_epoch(
    desk: OfficeDesk,
) -> None:
    desk.holder("alice", 100)
    desk.call(shell(100), "identity.release")
    desk.call(shell(100), "identity.register", name="bob", role="dev")
    late = shell(100)._replace(granted_epoch=1, granted_identity_no=1)
    assert desk.refusal(late, "mail.inbox").code == "lease-lost"
    now = late._replace(granted_identity_no=2)
    assert desk.call(now, "mail.inbox")["unread"] == 0


def test_after_its_own_release_a_session_is_unknown_again(desk: OfficeDesk) -> None:
    alice = desk.holder("alice", 100)
    desk.call(alice, "identity.release")
    assert desk.refusal(alice, "mail.inbox").code == "no-lease"


def test_sleep_is_not_death_a_lapsed_holder_that_comes_back_first_goes_on(
    desk: OfficeDesk,
) -> None:
    alice = desk.holder("alice", 100)
    desk.connection.execute("UPDATE leases SET state = 2")
    assert desk.call(alice, "mail.inbox")["unread"] == 0
    assert "Revive" in [type(effect).__name__ for effect in desk.effects]


def test_a_token_proves_a_holder_only_where_the_kernel_cannot_say(desk: OfficeDesk) -> None:
    desk.holder("alice", 100)
    token = token_of(desk)
    assert desk.call(unseen(token), "mail.inbox")["unread"] == 0
    assert desk.refusal(nobody()._replace(token_hash=unseen(token).token_hash), "mail.inbox").code


def test_a_token_from_another_session_is_foreign(desk: OfficeDesk) -> None:
    desk.holder("alice", 100)
    stolen = unseen(token_of(desk)).token_hash
    for caller in (shell(200), desk.holder("bob", 300)):
        for method in ("mail.inbox", "identity.release"):
            error = desk.refusal(caller._replace(token_hash=stolen), method)
            assert error.code == "lease-foreign"


def test_the_same_conversation_in_another_process_is_no_stranger_and_no_holder(
    desk: OfficeDesk,
) -> None:
    desk.call(harness(100, "s-1"), "identity.register", name="alice", role="dev")
    token_hash = unseen(token_of(desk)).token_hash
    twin = harness(200, "s-1")._replace(token_hash=token_hash)
    assert desk.refusal(twin, "mail.inbox").code == "no-lease"
    stranger = harness(300, "s-2")._replace(token_hash=token_hash)
    assert desk.refusal(stranger, "mail.inbox").code == "lease-foreign"


def test_the_token_of_a_lost_epoch_is_lease_lost_and_of_a_released_one_nothing(
    desk: OfficeDesk,
) -> None:
    desk.holder("alice", 100)
    old = token_of(desk)
    lapse_and_claim(desk)
    assert desk.refusal(unseen(old), "mail.inbox").code == "lease-lost"
    newer = token_of(desk)
    desk.call(shell(200), "identity.release")
    assert desk.refusal(unseen(newer), "mail.inbox").code == "no-lease"


def test_conversations_of_one_process_hold_their_own_leases(desk: OfficeDesk) -> None:
    one, two = conversation(100, "one"), conversation(100, "two")
    desk.call(one, "identity.register", name="alice", role="dev")
    desk.call(two, "identity.register", name="bob", role="dev")
    assert desk.call(one, "session.whoami")["agent"] == "alice"
    assert desk.call(two, "session.whoami")["agent"] == "bob"
    assert desk.refusal(conversation(100, "three"), "mail.inbox").code == "no-lease"


def test_the_same_process_number_after_a_reboot_is_somebody_else(desk: OfficeDesk) -> None:
    desk.holder("alice", 100)
    assert desk.refusal(shell(100, boot_id=BOOT[:-1] + "1"), "mail.inbox").code == "no-lease"


def test_nobody_but_the_gate_makes_an_admitted_caller(desk: OfficeDesk) -> None:
    desk.holder("alice", 100)
    process = shell(100).lineage.process
    assert process is not None
    found: list[bindings.Binding | None] = []
    desk.carry_out(desk.work(shell(100), "mail.inbox"))
    binding = desk.rows("SELECT 1")
    assert binding == [(1,)]
    with pytest.raises(TypeError, match="only the gate"):
        Open(object(), shell(100), None)
    with pytest.raises(TypeError, match="only the gate"):
        Session(object(), shell(100), process, None)
    with pytest.raises(TypeError, match="only the gate"):
        Holder(object(), found)  # type: ignore[arg-type]


def test_a_list_of_identities_stops_before_its_budget_and_says_where_to_go_on(
    desk: OfficeDesk,
) -> None:
    described = "\x01" * 200
    for number in range(800):
        caller = shell(1_000 + number)
        name = f"agent-{number:03}x"
        desk.call(caller, "identity.register", name=name, role="dev", description=described)
    pages: list[list[str]] = []
    after = None
    while True:
        page = desk.call(nobody(), "identity.list", after=after)
        assert len(json.dumps(page, ensure_ascii=False)) <= ANSWER_MAX_BYTES
        pages.append([entry["name"] for entry in page["identities"]])
        after = page["next_after"]
        if after is None:
            break
    assert len(pages) > 1
    assert [name for names in pages for name in names] == sorted(
        f"agent-{number:03}x" for number in range(800)
    )


def test_a_request_made_while_its_session_held_nothing_is_not_carried_out_later(
    desk: OfficeDesk,
) -> None:
    alice = desk.holder("alice", 100)
    early = alice._replace(granted_epoch=NO_GRANT[1], granted_identity_no=NO_GRANT[0])
    assert desk.refusal(early, "mail.inbox").code == "no-lease"


def test_two_living_processes_of_one_label_have_credentials_of_their_own(desk: OfficeDesk) -> None:
    desk.call(harness(100, "s-1"), "identity.register", name="alice", role="dev")
    desk.call(harness(200, "s-1"), "identity.register", name="bob", role="dev")
    granted = [effect for effect in desk.effects if isinstance(effect, Granted)]
    assert [effect.session_id for effect in granted] == ["s-1", "200-2000"]
