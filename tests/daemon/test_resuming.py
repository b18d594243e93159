"""Sessions that come back, sessions that wait, identities named at launch."""

from collections.abc import Iterator

import pytest

from mbx.core.evidence import own_id
from mbx.daemon.effects import Ended, Granted, Waiting
from mbx.daemon.gate import Caller
from mbx.daemon.resuming import Wish
from tests.support.office import OfficeDesk, conversation, harness, shell

FIRST, AGAIN, OTHER = harness(100, "s-1"), harness(200, "s-1"), harness(300, "s-2")


@pytest.fixture
def desk() -> Iterator[OfficeDesk]:
    made = OfficeDesk()
    made.add_owner()
    made.call(FIRST, "identity.register", name="ana", role="dev")
    yield made
    made.close()


def arrive(desk: OfficeDesk, caller: Caller, wish: Wish | None = None) -> str | None:
    """What the session holds after it has arrived."""
    desk.effects.clear()
    desk.carry_out(desk.dispatcher.arrival(caller, wish or Wish()))
    return agent(desk, caller)


def agent(desk: OfficeDesk, caller: Caller) -> str | None:
    held: str | None = desk.call(caller, "session.whoami")["agent"]
    return held


def pending(desk: OfficeDesk, caller: Caller) -> str | None:
    waits: str | None = desk.call(caller, "session.whoami")["pending"]
    return waits


def die(desk: OfficeDesk, caller: Caller) -> None:
    """The caller's process ends and the daemon is told."""
    process = caller.lineage.process
    assert process is not None
    desk.evidence[process.pid] = "dead"
    number = desk.rows("SELECT no FROM sessions WHERE pid = ?", process.pid)[0][0]
    desk.carry_out(desk.dispatcher.burial(number, "its process has ended"))


# -- coming back ----------------------------------------------------------------------------------


def test_a_conversation_that_comes_back_in_another_process_has_its_identity_again(
    desk: OfficeDesk,
) -> None:
    die(desk, FIRST)
    assert arrive(desk, AGAIN) == "ana"
    assert [type(effect) for effect in desk.effects][:1] == [Granted]
    assert desk.rows("SELECT epoch FROM leases WHERE identity_no = 2") == [(2,)]


def test_it_comes_back_too_when_the_death_of_the_old_process_was_not_told_yet(
    desk: OfficeDesk,
) -> None:
    desk.evidence[100] = "dead"
    assert arrive(desk, AGAIN) == "ana"


def test_another_conversation_gets_nothing_by_itself(desk: OfficeDesk) -> None:
    die(desk, FIRST)
    assert arrive(desk, OTHER) is None
    assert pending(desk, OTHER) is None


def test_who_gave_it_back_by_itself_does_not_get_it_again_before_it_claims(
    desk: OfficeDesk,
) -> None:
    desk.call(FIRST, "identity.release")
    assert arrive(desk, AGAIN) is None
    desk.call(AGAIN, "identity.claim", name="ana")
    die(desk, AGAIN)
    assert arrive(desk, harness(400, "s-1")) == "ana"


def test_who_lost_it_while_it_lived_is_told_and_never_waits_for_it(desk: OfficeDesk) -> None:
    desk.evidence[100] = "unknown"
    desk.silent_ms[100] = 10**9
    desk.call(OTHER, "identity.claim", name="ana")
    assert desk.refusal(FIRST, "mail.inbox").code == "lease-lost"
    assert arrive(desk, FIRST) is None
    die(desk, FIRST)
    assert arrive(desk, AGAIN) is None
    assert pending(desk, AGAIN) is None


def test_who_lost_it_to_one_that_came_back_never_waits_for_it_either(desk: OfficeDesk) -> None:
    die(desk, FIRST)
    desk.call(OTHER, "identity.claim", name="ana")
    desk.evidence[300], desk.silent_ms[300] = "unknown", 10**9
    assert arrive(desk, AGAIN) == "ana"
    assert desk.refusal(OTHER, "mail.inbox").code == "lease-lost"
    die(desk, OTHER)
    assert arrive(desk, harness(400, "s-2")) is None
    assert pending(desk, harness(400, "s-2")) is None


@pytest.mark.parametrize("by_claim", [True, False])
def test_a_conversation_that_went_on_in_another_process_remembers_what_it_held(
    desk: OfficeDesk, by_claim: bool
) -> None:
    desk.evidence[100], desk.silent_ms[100] = "unknown", 10**9
    if by_claim:
        desk.call(AGAIN, "identity.claim", name="ana")
    assert arrive(desk, AGAIN) == "ana"
    die(desk, FIRST)
    die(desk, AGAIN)
    assert arrive(desk, harness(400, "s-1")) == "ana"


def test_two_holders_never_go_by_one_label_whichever_was_met_first(desk: OfficeDesk) -> None:
    """Their credentials would be one file: each would be answered as the other."""
    desk.call(FIRST, "identity.release")
    desk.call(AGAIN, "identity.register", name="ben", role="dev")
    desk.call(FIRST, "identity.claim", name="ana")
    labels = desk.rows("SELECT cli, session_id FROM sessions WHERE identity_no IS NOT NULL")
    assert sorted(labels) == [("claude", "100-1000"), ("claude", "s-1")]
    granted = [effect for effect in desk.effects if isinstance(effect, Granted)]
    assert [one.session_id for one in granted] == ["s-1", "s-1", "100-1000"]


def test_shells_are_told_apart_by_their_process_and_never_come_back(desk: OfficeDesk) -> None:
    caller = shell(500)
    desk.call(caller, "identity.register", name="ben", role="dev")
    assert desk.rows("SELECT count(*) FROM remembered WHERE cli = 'shell'") == [(0,)]


def test_a_retired_identity_does_not_come_back(desk: OfficeDesk) -> None:
    die(desk, FIRST)
    desk.connection.execute("UPDATE identities SET retired_ms = 1 WHERE name = 'ana'")
    assert arrive(desk, AGAIN) is None


# -- waiting --------------------------------------------------------------------------------------


def test_who_comes_back_while_another_holds_it_waits_and_is_watched(desk: OfficeDesk) -> None:
    assert arrive(desk, AGAIN) is None
    assert pending(desk, AGAIN) == "ana"
    assert [type(effect) for effect in desk.effects if isinstance(effect, Waiting)] == [Waiting]
    assert agent(desk, FIRST) == "ana"


def test_those_who_wait_are_served_in_order_when_the_holder_dies(desk: OfficeDesk) -> None:
    third = harness(400, "s-1")
    arrive(desk, AGAIN)
    arrive(desk, third)
    desk.effects.clear()
    die(desk, FIRST)
    assert [type(effect) for effect in desk.effects][:2] == [Ended, Granted]
    assert (agent(desk, AGAIN), pending(desk, AGAIN)) == ("ana", None)
    assert pending(desk, third) == "ana"
    die(desk, AGAIN)
    assert agent(desk, third) == "ana"


def test_a_place_is_gone_with_its_process(desk: OfficeDesk) -> None:
    arrive(desk, AGAIN)
    die(desk, AGAIN)
    die(desk, FIRST)
    assert desk.rows("SELECT state FROM leases WHERE identity_no = 2") == [(2,)]
    assert desk.rows("SELECT count(*) FROM pending") == [(0,)]


def test_a_hand_off_serves_nobody(desk: OfficeDesk) -> None:
    arrive(desk, AGAIN)
    desk.call(FIRST, "identity.release")
    assert agent(desk, AGAIN) is None
    assert desk.call(OTHER, "identity.claim", name="ana")["agent"] == "ana"


def test_who_waits_and_claims_another_waits_no_more(desk: OfficeDesk) -> None:
    arrive(desk, AGAIN)
    desk.call(AGAIN, "identity.register", name="ben", role="dev")
    assert pending(desk, AGAIN) is None
    die(desk, FIRST)
    assert agent(desk, AGAIN) == "ben"


def test_waiting_twice_keeps_the_first_place(desk: OfficeDesk) -> None:
    arrive(desk, AGAIN)
    arrive(desk, harness(400, "s-1"))
    desk.world.pass_ms(1_000)
    arrive(desk, AGAIN)
    assert desk.rows("SELECT count(*) FROM pending") == [(2,)]
    die(desk, FIRST)
    assert agent(desk, AGAIN) == "ana"


# -- one conversation in several processes --------------------------------------------------------


def test_who_followed_its_dead_twin_gives_back_for_good(desk: OfficeDesk) -> None:
    """It was granted by the name of its conversation, so that one forgets."""
    arrive(desk, AGAIN)
    die(desk, FIRST)
    assert agent(desk, AGAIN) == "ana"
    desk.call(AGAIN, "identity.release")
    assert (arrive(desk, AGAIN), pending(desk, AGAIN)) == (None, None)
    assert arrive(desk, harness(400, "s-1")) is None


def test_no_process_of_a_conversation_waits_for_what_it_gave_back(desk: OfficeDesk) -> None:
    arrive(desk, AGAIN)
    desk.call(FIRST, "identity.release")
    assert pending(desk, AGAIN) is None
    desk.call(OTHER, "identity.claim", name="ana")
    die(desk, OTHER)
    assert (agent(desk, AGAIN), arrive(desk, AGAIN)) == (None, None)


def test_who_went_by_its_process_goes_by_its_conversation_again(desk: OfficeDesk) -> None:
    desk.call(AGAIN, "identity.register", name="ben", role="dev")
    assert label(desk, AGAIN) == "200-2000"
    desk.call(AGAIN, "identity.release")
    die(desk, FIRST)
    assert arrive(desk, AGAIN) == "ana"
    assert label(desk, AGAIN) == "s-1"
    desk.call(AGAIN, "identity.release")
    assert arrive(desk, AGAIN) is None


def test_whoami_calls_a_session_what_everything_else_calls_it(desk: OfficeDesk) -> None:
    for caller, name in ((AGAIN, "ben"), (OTHER, "cyd")):
        desk.call(caller, "identity.register", name=name, role="dev")
    for caller in (FIRST, AGAIN, OTHER):
        held = agent(desk, caller)
        shown = desk.call(caller, "identity.show", name=held)["holder"]
        assert shown["session"] == label(desk, caller)
        scope = {"cli": "claude", "session": label(desk, caller)}
        assert desk.call(OTHER, "diagnostics.show", **scope)["mailbox"] == f"{held}@desk"


def test_one_that_waits_is_told_apart_from_the_twin_that_holds(desk: OfficeDesk) -> None:
    arrive(desk, AGAIN)
    assert (label(desk, FIRST), label(desk, AGAIN)) == ("s-1", "200-2000")
    shown = desk.call(OTHER, "diagnostics.show", cli="claude", session="200-2000")
    assert (shown["status"], shown["pending"]) == ("no-binding", "ana")
    die(desk, FIRST)
    assert label(desk, AGAIN) == "s-1"


def test_who_goes_on_as_another_conversation_waits_for_what_that_one_held(
    desk: OfficeDesk,
) -> None:
    """Its place would outlast the hand-off by the conversation it waited in."""
    later, fifth = harness(200, "s-5"), harness(500, "s-5")
    desk.call(fifth, "identity.register", name="ben", role="dev")
    arrive(desk, AGAIN)
    assert (arrive(desk, later), pending(desk, later)) == (None, "ben")
    desk.call(FIRST, "identity.release")
    desk.call(OTHER, "identity.claim", name="ana")
    die(desk, OTHER)
    assert agent(desk, later) is None
    die(desk, fifth)
    assert agent(desk, later) == "ben"


# -- conversations of processes that host many ----------------------------------------------------


def test_two_processes_with_one_conversation_have_each_their_own_credential(
    desk: OfficeDesk,
) -> None:
    """One that was relabelled is known by its own name everywhere, and still goes by the other."""
    one, two = conversation(600, "c-1"), conversation(700, "c-1")
    for caller, name in ((one, "cyd"), (two, "dan")):
        desk.call(caller, "identity.register", name=name, role="dev")
    assert two.lineage.process is not None
    own = own_id(two.lineage.process, "c-1")
    assert (label(desk, one), label(desk, two)) == ("c-1", own)
    granted = [effect for effect in desk.effects if isinstance(effect, Granted)]
    assert len({(effect.cli, effect.session_id) for effect in granted}) == len(granted) == 3
    assert (agent(desk, one), agent(desk, two)) == ("cyd", "dan")
    for caller, name in ((one, "cyd"), (two, "dan")):
        scope = {"cli": "opencode", "session": label(desk, caller)}
        assert desk.call(OTHER, "diagnostics.show", **scope)["mailbox"] == f"{name}@desk"
    die(desk, one)
    desk.call(two, "identity.release")
    assert (arrive(desk, two), label(desk, two)) == ("cyd", "c-1")


def test_the_twin_of_a_shared_conversation_that_waits_is_called_by_its_own_name(
    desk: OfficeDesk,
) -> None:
    one, two = conversation(600, "c-1"), conversation(700, "c-1")
    desk.call(one, "identity.register", name="cyd", role="dev")
    assert (arrive(desk, two), pending(desk, two)) == (None, "cyd")
    own = label(desk, two)
    assert own != "c-1"
    shown = desk.call(OTHER, "diagnostics.show", cli="opencode", session=own)
    assert (shown["status"], shown["pending"]) == ("no-binding", "cyd")
    desk.call(one, "identity.release")
    assert (arrive(desk, two), pending(desk, two)) == (None, None)


def test_after_a_hand_off_no_other_conversation_of_that_process_has_a_place(
    desk: OfficeDesk,
) -> None:
    """All of them had the same launch: what it wished for was given back."""
    one, two = conversation(600, "c-1"), conversation(600, "c-2")
    elsewhere = conversation(700, "c-3")
    wish = Wish("cyd", "dev")
    assert [arrive(desk, who, wish) for who in (one, two, elsewhere)] == ["cyd", None, None]
    assert pending(desk, two) == pending(desk, elsewhere) == "cyd"
    desk.call(one, "identity.release")
    assert (arrive(desk, two, wish), pending(desk, two)) == (None, None)
    assert arrive(desk, elsewhere, wish) == "cyd"


def label(desk: OfficeDesk, caller: Caller) -> str:
    said: str = desk.call(caller, "session.whoami")["session"]["id"]
    return said


# -- named at launch ------------------------------------------------------------------------------


def test_an_identity_named_at_launch_is_claimed_when_it_is_free(desk: OfficeDesk) -> None:
    desk.call(FIRST, "identity.release")
    assert arrive(desk, OTHER, Wish("ana")) == "ana"


def test_it_is_registered_only_together_with_a_role(desk: OfficeDesk) -> None:
    assert arrive(desk, OTHER, Wish("ben")) is None
    assert desk.rows("SELECT count(*) FROM identities WHERE name = 'ben'") == [(0,)]
    assert arrive(desk, OTHER, Wish("ben", "dev")) == "ben"


def test_it_is_never_taken_from_anybody(desk: OfficeDesk) -> None:
    assert arrive(desk, OTHER, Wish("ana", "dev")) is None
    assert pending(desk, OTHER) == "ana"
    assert agent(desk, FIRST) == "ana"


@pytest.mark.parametrize("name", ["owner", "a-na", "No Name", "x", "role:dev", "*"])
def test_a_name_that_cannot_be_is_passed_over_in_silence(desk: OfficeDesk, name: str) -> None:
    before = desk.rows("SELECT count(*) FROM identities")
    assert arrive(desk, OTHER, Wish(name, "dev")) is None
    assert desk.rows("SELECT count(*) FROM identities") == before


def test_what_was_given_back_is_not_claimed_again_because_it_was_named_at_launch(
    desk: OfficeDesk,
) -> None:
    assert arrive(desk, OTHER, Wish("ben", "dev")) == "ben"
    desk.call(OTHER, "identity.release")
    assert arrive(desk, OTHER, Wish("ben", "dev")) is None
    assert arrive(desk, harness(400, "s-2"), Wish("ben", "dev")) == "ben"


def test_who_waits_for_what_was_named_at_launch_gets_it_when_it_is_free(desk: OfficeDesk) -> None:
    assert arrive(desk, OTHER, Wish("ana")) is None
    desk.call(FIRST, "identity.release")
    assert arrive(desk, OTHER, Wish("ana")) == "ana"


def test_what_a_conversation_held_goes_before_what_was_named_at_launch(desk: OfficeDesk) -> None:
    die(desk, FIRST)
    assert arrive(desk, AGAIN, Wish("ben", "dev")) == "ana"


def test_arriving_with_an_identity_changes_nothing(desk: OfficeDesk) -> None:
    assert arrive(desk, FIRST, Wish("ben", "dev")) == "ana"
    assert desk.rows("SELECT epoch FROM leases WHERE identity_no = 2") == [(1,)]
