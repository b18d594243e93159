"""The checker accepts good histories and refuses bad ones: at least three for each invariant."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.sim.case import Case
from tests.sim.checker import INVARIANTS, violations
from tests.sim.history import Commit, Died, Reopened, Return, Silent, trace_hash
from tests.sim.image import Delivery
from tests.sim.stories import Story
from tests.sim.tenure import HELD
from tests.sim.test_authority import BAD as OWNERS

ADA, BEN, CLEO = "shell/1", "shell/2", "shell/3"
Lie = Callable[[Story], Case | None]


def usual() -> Story:
    """Two holders, three messages, an ack, a crash; ada is handed over to a third session."""
    story = Story("ada", "ben")
    story.grant("ada", ADA)
    story.grant("ben", BEN)
    first = story.send(ADA, "ada", ["ben"], key="k1")
    second = story.send(ADA, "ada", ["ben", "ada"], "unknown", key="k2")
    story.listed(BEN, "mail.inbox", [first, second])
    story.ack(BEN, "ben", first)
    story.crash()
    story.send(BEN, "ben", ["ada"])
    story.listed(ADA, "mail.sent", [second, first])
    story.release("ada", ADA)
    story.grant("ada", CLEO)
    return story


def test_an_empty_history_is_good() -> None:
    assert violations(Story("ada").case()) == {}


def test_the_usual_history_is_good() -> None:
    assert violations(usual().case()) == {}


def test_a_refused_and_a_lost_send_that_left_nothing_are_good() -> None:
    story = usual()
    story.send(BEN, "ben", ["ada"], "refused", stored=False)
    story.send(BEN, "ben", ["ada"], "unknown", stored=False)
    assert violations(story.case()) == {}


def test_a_repeat_that_is_answered_as_before_is_good() -> None:
    story = usual()
    sent = story.send(BEN, "ben", ["ada"], "unknown", op=70, key="k7")
    params = {"to": ["ada"], "subject": "s", "body": sent.content["body"]}
    result = {"id": sent.id, "recipients": [{"identity": "i1"}], "duplicate": True}
    story.call(BEN, "mail.send", params, "ok", result, op=70, key="k7", changes=False)
    assert violations(story.case()) == {}


def test_a_holder_gets_its_own_lease_under_its_new_name_and_no_other() -> None:
    story = usual()
    story.audit.append(
        ("rename", story.identity("ben"), {"seq": story.seq, "name": "zoe", "old_name": "ben"})
    )
    for epoch, broken in ((1, set()), (2, {"I1"})):
        told = {"agent": "zoe", "epoch": epoch}
        story.call(BEN, "identity.claim", {"name": "zoe"}, "ok", told, changes=False)
        assert set(violations(story.case())) == broken


def test_the_lease_of_the_dead_is_given_on_and_that_of_the_silent_too() -> None:
    story = usual()
    story.events.append(Died(BEN))
    story.lapse("ben", BEN)
    story.grant("ben", "shell/4")
    story.events.append(Silent("shell/4"))
    story.lapse("ben", "shell/4", "nothing can be learnt of it")
    story.grant("ben", "shell/5")
    assert violations(story.case()) == {}


# --- I1: nothing lost -----------------------------------------------------------------------------


def an_accepted_message_is_gone(story: Story) -> None:
    story.send(BEN, "ben", ["ada"], stored=False)


def one_of_two_recipients_got_nothing(story: Story) -> None:
    story.send(BEN, "ben", ["ada", "ben"], reaches=["ada"])


def an_accepted_ack_is_forgotten(story: Story) -> None:
    story.advance("ben", story.messages[0], 3)


def an_accepted_claim_left_no_trace(story: Story) -> None:
    story.call("shell/9", "identity.claim", {"name": "ada"}, "ok", {"agent": "ada", "epoch": 9})


def an_accepted_release_left_no_trace(story: Story) -> None:
    story.call(BEN, "identity.release", {}, "ok", {"released": "ben", "epoch": 1})


# --- I2: nothing doubled --------------------------------------------------------------------------


def a_delivery_is_there_twice(story: Story) -> None:
    story.deliveries.append(story.deliveries[0])


def a_repeat_sent_a_second_message(story: Story) -> None:
    story.send(BEN, "ben", ["ada"], "unknown", op=70, key="k7")
    story.send(BEN, "ben", ["ada"], op=70, key="k7")


def a_call_without_key_sent_two(story: Story) -> None:
    story.send(BEN, "ben", ["ada"], op=70)
    params = {"subject": "s", "body": "op 70\nb"}
    story.store(story.compose("ben", ["ada"], params, 1, {}), ["ada"])


def a_message_is_stored_twice(story: Story) -> None:
    story.messages.append(replace(story.messages[0], no=9))


def an_ack_left_two_receipts(story: Story) -> None:
    story.receive(1, story.receipts[0].content["facts"])


def one_claim_was_granted_twice(story: Story) -> None:
    story.lapse("ada", CLEO)
    story.write("claim", "ada", CLEO, epoch=3)


def one_key_served_two_requests(story: Story) -> None:
    story.send(BEN, "ben", ["ada"], key="k8")
    story.send(BEN, "ben", ["ben"], key="k8")


# --- I3: nothing invented -------------------------------------------------------------------------


def a_message_that_nobody_sent(story: Story) -> None:
    params = {"subject": "s", "body": "op 99\nb"}
    story.store(story.compose("ben", ["ada"], params, 1, {}), ["ada"])


def a_body_that_was_changed(story: Story) -> None:
    story.send(BEN, "ben", ["ada"], body="op 13\nsomething else")


def a_subject_that_was_changed(story: Story) -> None:
    story.send(BEN, "ben", ["ada"], subject="another")


def a_signature_of_another_text(story: Story) -> None:
    first, second = story.messages[:2]
    story.messages[0] = replace(first, signature=second.signature)


def a_payload_edited_after_it_was_signed(story: Story) -> None:
    first = story.messages[0]
    story.messages[0] = replace(first, payload=first.payload.replace('"s"', '"z"'))


def a_delivery_to_somebody_not_named(story: Story) -> None:
    story.send(BEN, "ben", ["ben"], reaches=["ben", "ada"])


def a_message_stored_as_another_senders(story: Story) -> None:
    story.messages[2] = replace(story.messages[2], sender_no=1)


def a_receipt_that_claims_too_much(story: Story) -> None:
    sent = story.messages[2]
    story.call(CLEO, "mail.ack", {"ids": [sent.id]}, "unknown")
    story.receive(2, [{"message": sent.id, "recipient": "i1", "stage": 5}])


def a_lease_signed_by_nobody(story: Story) -> None:
    payload, _ = story.leases["ada"]
    story.leases["ada"] = (payload, bytes(64))


# --- I4: unknown is all or nothing ----------------------------------------------------------------


def an_unknown_send_reached_one_of_two(story: Story) -> None:
    story.send(BEN, "ben", ["ada", "ben"], "unknown", reaches=["ada"])


def an_unknown_send_reached_one_recipient_twice(story: Story) -> None:
    story.send(BEN, "ben", ["ada"], "unknown", reaches=["ada", "ada"])


def an_unknown_send_reached_nobody_and_is_there(story: Story) -> None:
    story.send(BEN, "ben", ["ada"], "unknown", reaches=[])


def a_refused_send_is_there(story: Story) -> None:
    story.send(BEN, "ben", ["ada"], "refused")


# --- I5: order ------------------------------------------------------------------------------------


def a_later_commit_lies_in_front(story: Story) -> None:
    story.send(BEN, "ben", ["ada"])
    last, before = story.messages[-1], story.messages[-2]
    story.messages[-2:] = [replace(last, no=before.no), replace(before, no=last.no)]


def a_message_was_put_before_all(story: Story) -> None:
    sent = story.send(BEN, "ben", ["ada"])
    story.messages[-1] = replace(sent, no=0)


def an_inbox_is_listed_backwards(story: Story) -> None:
    story.listed(BEN, "mail.inbox", [story.messages[1], story.messages[0]])


def sent_mail_is_listed_forwards(story: Story) -> None:
    story.listed(ADA, "mail.sent", [story.messages[0], story.messages[1]])


# --- I6: one holder -------------------------------------------------------------------------------


def a_held_name_was_granted_again(story: Story) -> None:
    story.grant("ben", "shell/7")


def one_session_was_granted_two_names(story: Story) -> None:
    story.events.append(Died(BEN))
    story.lapse("ben", BEN)
    story.grant("ben", CLEO)


def a_lease_was_released_twice(story: Story) -> None:
    story.release("ben", BEN)
    story.release("ben", BEN)


def the_store_says_held_and_the_log_says_free(story: Story) -> None:
    story.release("ben", BEN)
    story.states["ben"] = HELD


def a_lapse_named_another_epoch(story: Story) -> None:
    story.events.append(Died(BEN))
    story.write("lapse", "ben", BEN, epoch=7, why="dead")


# --- I7: epochs grow ------------------------------------------------------------------------------


def an_epoch_was_granted_twice(story: Story) -> None:
    story.release("ada", CLEO)
    story.grant("ada", "shell/6", epoch=2)


def an_epoch_went_back(story: Story) -> None:
    story.release("ada", CLEO)
    story.grant("ada", "shell/6", epoch=1)


def the_store_lags_behind_the_log(story: Story) -> None:
    story.epochs["ada"] = 1


def two_sessions_were_told_one_epoch(story: Story) -> None:
    story.call("shell/8", "identity.claim", {"name": "ada"}, "ok", {"agent": "ada", "epoch": 2})


# --- I8: no stale change --------------------------------------------------------------------------


def a_former_holder_sent_mail(story: Story) -> None:
    story.send(ADA, "ada", ["ben"], epoch=1)


def a_former_holder_read_its_inbox(story: Story) -> None:
    story.listed(ADA, "mail.inbox", [])


def a_session_without_lease_read_mail(story: Story) -> None:
    story.listed("shell/77", "mail.inbox", [])


def a_late_request_was_done_under_the_next_lease(story: Story) -> None:
    story.release("ben", BEN)
    story.grant("ben", BEN)
    story.send(BEN, "ben", ["ada"], under=("i2", 1))


def a_late_request_was_done_as_another_identity(story: Story) -> None:
    story.release("ada", CLEO)
    story.grant("ada", ADA)
    story.send(ADA, "ada", ["ben"], under=("i2", 3))


def a_message_names_an_old_epoch(story: Story) -> None:
    story.send(CLEO, "ada", ["ben"], "unknown", epoch=1)


def a_receipt_names_an_old_epoch(story: Story) -> None:
    story.ack(CLEO, "ada", story.messages[2], epoch=1)


# --- I10, I11 -------------------------------------------------------------------------------------


def a_living_holder_was_displaced(story: Story) -> None:
    story.lapse("ben", BEN)
    story.grant("ben", "shell/7")


def a_holder_was_displaced_before_it_died(story: Story) -> None:
    story.lapse("ben", BEN)
    story.events.append(Died(BEN))


def a_holder_was_displaced_for_the_death_of_another(story: Story) -> None:
    story.events.append(Died(CLEO))
    story.lapse("ben", BEN)


def closed(story: Story, *names: str) -> None:
    for name in names:
        story.call(
            f"shell/{name}",
            "identity.claim",
            {"name": name},
            "refused",
            changes=False,
            closing=True,
        )


def a_name_stays_taken_for_ever(story: Story) -> None:
    closed(story, "ben")


def every_name_stays_taken(story: Story) -> None:
    closed(story, "ada", "ben")


def a_lapsed_name_stays_taken(story: Story) -> None:
    story.events.append(Died(BEN))
    story.lapse("ben", BEN)
    closed(story, "ben")


# --- I17: the store is sound ----------------------------------------------------------------------


def sqlite_complains(story: Story) -> Case:
    case = story.case()
    return replace(case, final=replace(case.final, complaints=("row 7 missing from index",)))


def the_unread_counter_is_too_high(story: Story) -> None:
    story.unread["ada"] += 1


def a_message_lies_in_no_mailbox(story: Story) -> None:
    story.send(BEN, "ben", ["ada"], "unknown", reaches=[])


def a_delivery_has_no_message(story: Story) -> None:
    story.deliveries.append(Delivery(1, 99, 5))


def an_audit_row_was_edited(story: Story) -> Case:
    case = story.case()
    rows = list(case.final.audit)
    rows[1] = replace(rows[1], act="register")
    return replace(case, final=replace(case.final, audit=tuple(rows)))


def an_audit_row_was_removed(story: Story) -> Case:
    case = story.case()
    return replace(case, final=replace(case.final, audit=case.final.audit[1:]))


def an_identity_has_no_lease(story: Story) -> Case:
    case = story.case()
    return replace(case, final=replace(case.final, leases=case.final.leases[1:]))


def a_session_is_bound_to_an_epoch_to_come(story: Story) -> None:
    story.bound[BEN] = (2, 9)


def the_index_is_ahead_of_the_mail(story: Story) -> Case:
    case = story.case()
    return replace(case, final=replace(case.final, indexed=99))


def a_store_after_a_crash_was_not_sound(story: Story) -> None:
    story.unread["ada"] += 1
    story.crash()
    story.unread["ada"] -= 1


# --- I18: a crash leaves a prefix -----------------------------------------------------------------


def an_answer_came_before_its_commit(story: Story) -> None:
    before = story.image()
    story.send(BEN, "ben", ["ada"])
    story.events.append(Reopened("before COMMIT", before))


def an_answered_ack_was_lost_in_the_crash(story: Story) -> None:
    before = story.image()
    story.ack(CLEO, "ada", story.messages[2])
    story.events.append(Reopened("after COMMIT", replace(before, commit_seq=story.seq)))


def more_was_there_than_was_committed(story: Story) -> None:
    story.seq += 1
    story.crash()


def a_commit_was_lost_that_nobody_was_told_of(story: Story) -> None:
    before = story.image()
    story.events.append(Commit(story.seq + 1, None))
    story.events.append(Reopened("after COMMIT", before))


def a_message_vanished_after_the_crash(story: Story) -> None:
    sent = story.send(BEN, "ben", ["ada"], "unknown")
    story.crash()
    story.messages.remove(sent)
    story.deliveries.pop()
    story.unread["ada"] -= 1


def a_delivery_went_back_after_the_crash(story: Story) -> None:
    story.ack(CLEO, "ada", story.messages[2])
    story.crash()
    story.advance("ada", story.messages[2], 4)


def an_answer_to_a_key_was_forgotten(story: Story) -> None:
    story.crash()
    story.answers.pop(0)


def a_file_told_of_a_grant_that_never_was(story: Story) -> None:
    story.crash(files=[("i1", 3)])


BAD: dict[str, list[Lie]] = {
    "I1": [
        an_accepted_message_is_gone,
        one_of_two_recipients_got_nothing,
        an_accepted_ack_is_forgotten,
        an_accepted_claim_left_no_trace,
        an_accepted_release_left_no_trace,
    ],
    "I2": [
        a_delivery_is_there_twice,
        a_repeat_sent_a_second_message,
        a_call_without_key_sent_two,
        a_message_is_stored_twice,
        an_ack_left_two_receipts,
        one_claim_was_granted_twice,
        one_key_served_two_requests,
    ],
    "I3": [
        a_message_that_nobody_sent,
        a_body_that_was_changed,
        a_subject_that_was_changed,
        a_signature_of_another_text,
        a_payload_edited_after_it_was_signed,
        a_delivery_to_somebody_not_named,
        a_message_stored_as_another_senders,
        a_receipt_that_claims_too_much,
        a_lease_signed_by_nobody,
    ],
    "I4": [
        an_unknown_send_reached_one_of_two,
        an_unknown_send_reached_one_recipient_twice,
        an_unknown_send_reached_nobody_and_is_there,
        a_refused_send_is_there,
    ],
    "I5": [
        a_later_commit_lies_in_front,
        a_message_was_put_before_all,
        an_inbox_is_listed_backwards,
        sent_mail_is_listed_forwards,
    ],
    "I6": [
        a_held_name_was_granted_again,
        one_session_was_granted_two_names,
        a_lease_was_released_twice,
        the_store_says_held_and_the_log_says_free,
        a_lapse_named_another_epoch,
    ],
    "I7": [
        an_epoch_was_granted_twice,
        an_epoch_went_back,
        the_store_lags_behind_the_log,
        two_sessions_were_told_one_epoch,
    ],
    "I8": [
        a_former_holder_sent_mail,
        a_former_holder_read_its_inbox,
        a_session_without_lease_read_mail,
        a_late_request_was_done_under_the_next_lease,
        a_late_request_was_done_as_another_identity,
        a_message_names_an_old_epoch,
        a_receipt_names_an_old_epoch,
    ],
    "I10": [
        a_living_holder_was_displaced,
        a_holder_was_displaced_before_it_died,
        a_holder_was_displaced_for_the_death_of_another,
    ],
    "I11": [a_name_stays_taken_for_ever, every_name_stays_taken, a_lapsed_name_stays_taken],
    "I17": [
        sqlite_complains,
        the_unread_counter_is_too_high,
        a_message_lies_in_no_mailbox,
        a_delivery_has_no_message,
        an_audit_row_was_edited,
        an_audit_row_was_removed,
        an_identity_has_no_lease,
        a_session_is_bound_to_an_epoch_to_come,
        the_index_is_ahead_of_the_mail,
        a_store_after_a_crash_was_not_sound,
    ],
    "I18": [
        an_answer_came_before_its_commit,
        an_answered_ack_was_lost_in_the_crash,
        more_was_there_than_was_committed,
        a_commit_was_lost_that_nobody_was_told_of,
        a_message_vanished_after_the_crash,
        a_delivery_went_back_after_the_crash,
        an_answer_to_a_key_was_forgotten,
        a_file_told_of_a_grant_that_never_was,
    ],
}


@pytest.mark.parametrize(
    ("invariant", "lie"),
    [(name, lie) for name, lies in BAD.items() for lie in lies],
    ids=[f"{name}-{getattr(lie, '__name__', '')}" for name, lies in BAD.items() for lie in lies],
)
def test_the_invariant_refuses_the_bad_history(invariant: str, lie: Lie) -> None:
    story = usual()
    case = lie(story) or story.case()
    assert violations(case).get(invariant), violations(case)


def test_every_invariant_is_shown_three_bad_histories_at_least() -> None:
    shown = {name: [*BAD.get(name, ()), *OWNERS.get(name, ())] for name in INVARIANTS}
    assert set(BAD) | set(OWNERS) == set(INVARIANTS)
    assert min(len(lies) for lies in shown.values()) >= 3


# --- I22: the same seed gives the same trace ------------------------------------------------------


def test_equal_histories_have_equal_traces() -> None:
    one, two = usual().case(), usual().case()
    assert trace_hash(one.events, one.final) == trace_hash(two.events, two.final)


@pytest.mark.parametrize("different", ["an answer", "the order", "the store"])
def test_histories_that_differ_have_other_traces(different: str) -> None:
    one, two = usual().case(), usual().case()
    events, final = list(two.events), two.final
    if different == "an answer":
        events[-1] = Return(1, "unknown")
    elif different == "the order":
        events[0], events[1] = events[1], events[0]
    else:
        final = replace(final, state_hash="another")
    assert trace_hash(one.events, one.final) != trace_hash(events, final)
