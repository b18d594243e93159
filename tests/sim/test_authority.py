"""The checker's rules on the owner's authority refuse bad histories: I9, I10, I13, I14."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from mbx.core.record import Record
from tests.sim.checker import violations
from tests.sim.history import Damaged, Died, Placed
from tests.sim.image import Message
from tests.sim.mandates import ASK, HOUR_MS, Reign, key_of

ADA, BEN, CLEO, DORA = "shell/1", "shell/2", "shell/3", "shell/4"
Lie = Callable[[Reign], None]


def usual() -> Reign:
    """An owner; ada and ben hold their names, cleo's is hers by a takeover from dora."""
    story = Reign("ada", "ben", "cleo")
    story.grant("ada", ADA)
    story.grant("ben", BEN)
    story.grant("cleo", DORA)
    story.enroll()
    story.tick()
    story.take_over(story.takeover("cleo", CLEO), "cleo", CLEO)
    story.tick()
    return story


def granted(policy: Record, exp_ms: int) -> str:
    until = datetime.fromtimestamp(exp_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    told = f"read, edit; check in at milestones; record {policy.id}; until {until}"
    return f"policy: collaborate ({told})"


def ask(why: str, policy: Record | None = None) -> str:
    record = f"; record {policy.id}" if policy else ""
    return f"{ASK[:-1]}; {why}{record})"


COLLABORATE = "collaborate: read, edit"


def letter(story: Reign) -> Message:
    """What ada writes to ben."""
    return story.send(ADA, "ada", ["ben"])


# --- good ones ------------------------------------------------------------------------------------


def test_the_usual_history_is_good() -> None:
    assert violations(usual().case()) == {}


def test_a_grant_an_expiry_a_revocation_and_damage_are_good_when_told_as_they_are() -> None:
    story = usual()
    first, second, third, fourth = (letter(story) for _ in range(4))
    story.read(BEN, "ben", first)
    wide = story.policy("ben")
    story.read(BEN, "ben", first, COLLABORATE, granted(wide, story.now_ms + HOUR_MS))
    narrow = story.policy("ben", classes=("read",), ttl_ms=1_000)
    story.tick()
    story.read(BEN, "ben", second, "ask", ask("the policy has expired", narrow))
    gone = story.revoke(narrow)
    story.read(BEN, "ben", third, "ask", ask(f"revoked by record {gone.id}", narrow))
    story.policy("ada")
    story.events.append(Damaged(story.chain[-1].id))
    story.read(BEN, "ben", fourth, "ask", ask(f"revoked by record {gone.id}", narrow))
    assert violations(story.case()) == {}


def test_a_record_that_is_brought_again_and_acts_no_more_is_good() -> None:
    story = usual()
    given = story.takeover("ada", DORA)
    one = story.take_over(given, "ada", DORA)
    told = {"id": one.id, "kind": "takeover", "duplicate": True}
    story.call("owner/0-0", "owner.apply", {"record": given}, "ok", told, changes=False)
    assert violations(story.case()) == {}


def test_a_text_that_grows_deeper_and_stays_external_is_good() -> None:
    story = usual()
    first = story.send(ADA, "ada", ["ben"], origin="external", external_since=story.now_ms)
    story.read(BEN, "ben", first)
    told: dict[str, Any] = {"hop": 1, "external_since": story.now_ms}
    story.send(BEN, "ben", ["cleo"], **told)
    assert violations(story.case()) == {}


# --- I9 -------------------------------------------------------------------------------------------


def a_takeover_ended_another_epoch(story: Reign) -> None:
    story.take_over(story.takeover("ada", DORA, epoch=0), "ada", DORA)


def a_takeover_reached_another_destination(story: Reign) -> None:
    story.take_over(story.takeover("ada", DORA), "ada", "shell/5")


def a_takeover_without_a_record(story: Reign) -> None:
    story.epochs["ada"] += 1
    story.call(DORA, "identity.claim", {"name": "ada"}, "unknown")
    told = {"to": {"cli": "shell", "session": "4"}, "epoch": 2, "record": "0" * 26}
    story.audit.append(("takeover", story.identity("ada"), {"seq": story.seq, **told}))


def a_takeover_signed_by_a_stranger(story: Reign) -> None:
    story.take_over(story.takeover("ada", DORA, key=key_of(8)), "ada", DORA)


def a_takeover_came_too_late(story: Reign) -> None:
    given = story.takeover("ada", DORA)
    story.tick(300_000)
    story.take_over(given, "ada", DORA)


def a_takeover_acted_twice(story: Reign) -> None:
    given = story.takeover("ada", DORA)
    story.take_over(given, "ada", DORA)
    story.take_over(given, "ada", CLEO)


def a_policy_acted_twice(story: Reign) -> None:
    one = story.policy("ben")
    given = {"kind": one.kind, "payload": one.payload, "signatures": dict(one.signatures)}
    story.bring(given, "policy", version=1)


def a_record_left_two_audit_rows(story: Reign) -> None:
    story.take_over(story.takeover("ada", DORA), "ada", DORA, rows=2)


def a_record_left_no_trace(story: Reign) -> None:
    story.policy("ben")
    story.records.pop()


def a_record_that_nobody_brought(story: Reign) -> None:
    story.keep(Record(**story.takeover("ada", DORA)), None)


def an_acceptance_names_another_end_of_the_log(story: Reign) -> None:
    story.take_over(story.takeover("ada", DORA), "ada", DORA, audit_hash="0" * 64)


def an_acceptance_names_an_older_row(story: Reign) -> None:
    row = story._chained()[0]
    told: dict[str, Any] = {"audit_no": row.no, "audit_hash": row.hash.hex()}
    story.take_over(story.takeover("ada", DORA), "ada", DORA, **told)


def an_acceptance_is_not_signed(story: Reign) -> None:
    one = story.records[-1]
    story.records[-1] = replace(one, acceptance_signature=bytes(64))


# --- I10 ------------------------------------------------------------------------------------------


def a_living_holder_was_displaced_by_a_strangers_record(story: Reign) -> None:
    story.take_over(story.takeover("ada", DORA, key=key_of(8)), "ada", DORA)


def a_living_holder_was_displaced_by_a_record_of_another_kind(story: Reign) -> None:
    cli, _, session = DORA.partition("/")
    story.epochs["ada"] += 1
    told: dict[str, Any] = {"epoch": 2, "to": {"cli": cli, "session": session}}
    given = story.sealed("revoke", version=1, previous=None, records=None, all=True)
    story.bring(given, "takeover", identity=story.identity("ada"), **told)


def a_living_holder_was_displaced_by_a_session_of_its_own(story: Reign) -> None:
    """The claim of another was told as a takeover."""
    given = story.takeover("ada", DORA)
    story.epochs["ada"] += 1
    story.call(DORA, "identity.claim", {"name": "ada"}, "unknown")
    told = {"to": given and {"cli": "shell", "session": "4"}, "epoch": 2}
    row = {"seq": story.seq, "record": Record(**given).id, **told}
    story.audit.append(("takeover", story.identity("ada"), row))


# --- I13 ------------------------------------------------------------------------------------------


def an_expired_policy_still_grants(story: Reign) -> None:
    one = story.policy("ben", ttl_ms=1_000)
    line = granted(one, story.now_ms + 1_000)
    story.tick(2_000)
    story.read(BEN, "ben", letter(story), COLLABORATE, line)


def a_revoked_policy_still_grants(story: Reign) -> None:
    one = story.policy("ben")
    story.revoke(one)
    story.read(BEN, "ben", letter(story), COLLABORATE, granted(one, story.now_ms + HOUR_MS))


def an_older_policy_came_back(story: Reign) -> None:
    """The newest is revoked; what it replaced is not."""
    wide = story.policy("ben")
    story.revoke(story.policy("ben", "ask", ()))
    story.read(BEN, "ben", letter(story), COLLABORATE, granted(wide, story.now_ms + HOUR_MS))


def a_damaged_record_uncovers_an_older_one(story: Reign) -> None:
    wide = story.policy("ben")
    story.events.append(Damaged(story.policy("ben", "ask", ()).id))
    story.read(BEN, "ben", letter(story), COLLABORATE, granted(wide, story.now_ms + HOUR_MS))


def a_policy_for_another_grants(story: Reign) -> None:
    one = story.policy("ada")
    story.read(BEN, "ben", letter(story), COLLABORATE, granted(one, story.now_ms + HOUR_MS))


def a_grant_is_not_told(story: Reign) -> None:
    story.policy("ben")
    story.read(BEN, "ben", letter(story))


def what_came_from_outside_grants_all(story: Reign) -> None:
    one = story.policy("ben")
    told: dict[str, Any] = {"origin": "external", "external_since": story.now_ms}
    message = story.send(ADA, "ada", ["ben"], **told)
    story.read(BEN, "ben", message, COLLABORATE, granted(one, story.now_ms + HOUR_MS))


def a_clock_that_was_set_back_revives_a_policy(story: Reign) -> None:
    one = story.policy("ben", ttl_ms=HOUR_MS)
    line = granted(one, story.now_ms + HOUR_MS)
    story.tick(2 * HOUR_MS)
    story.revoke(one)
    story.policy("ben")
    story.tick(-2 * HOUR_MS)
    story.read(BEN, "ben", letter(story), COLLABORATE, line)


def a_policy_signed_by_a_stranger_counts(story: Reign) -> None:
    story.policy("ben", key=key_of(8))


def a_version_was_skipped(story: Reign) -> None:
    story.policy("ben")
    story.policy("ben", version=3)


def a_version_came_twice(story: Reign) -> None:
    story.policy("ben")
    story.policy("ada", version=1)


def a_record_follows_another_one(story: Reign) -> None:
    story.policy("ben")
    story.chain[0] = Record(**story.takeover("ada", DORA))
    story.policy("ada")


def the_version_fell(story: Reign) -> None:
    story.policy("ben")
    told = {"policy_version": 0, "policies_in_effect": 1}
    story.call("owner/0-0", "owner.show", {}, "ok", told, changes=False)


def a_void_policy_counts_as_in_effect(story: Reign) -> None:
    story.revoke(story.policy("ben"))
    told = {"policy_version": 2, "policies_in_effect": 1}
    story.call("owner/0-0", "owner.show", {}, "ok", told, changes=False)


def a_superseded_policy_counts_as_in_effect(story: Reign) -> None:
    story.policy("ben")
    story.policy("ben", "ask", ())
    told = {"policy_version": 2, "policies_in_effect": 2}
    story.call("owner/0-0", "owner.show", {}, "ok", told, changes=False)


# --- I14 ------------------------------------------------------------------------------------------


def _outside(story: Reign) -> Message:
    told: dict[str, Any] = {"origin": "external", "external_since": story.now_ms}
    return story.send(ADA, "ada", ["ben"], **told)


def an_answer_forgets_where_it_came_from(story: Reign) -> None:
    first = _outside(story)
    story.reply(BEN, "ben", "ada", first)


def an_answer_is_of_an_earlier_time(story: Reign) -> None:
    first = _outside(story)
    story.reply(BEN, "ben", "ada", first, external_since=story.now_ms - HOUR_MS)


def what_was_read_does_not_stick(story: Reign) -> None:
    story.read(BEN, "ben", _outside(story))
    story.tick(HOUR_MS - 1)
    story.send(BEN, "ben", ["cleo"], hop=1)


def a_release_washes_it_off(story: Reign) -> None:
    story.read(BEN, "ben", _outside(story))
    story.release("ben", BEN)
    story.grant("ben", BEN)
    story.send(BEN, "ben", ["cleo"], hop=1)


def another_name_washes_it_off(story: Reign) -> None:
    story.read(BEN, "ben", _outside(story))
    story.release("ben", BEN)
    story.release("cleo", CLEO)
    story.grant("cleo", BEN)
    story.send(BEN, "cleo", ["ben"], hop=1)


def a_note_to_oneself_washes_it_off(story: Reign) -> None:
    story.read(BEN, "ben", _outside(story))
    story.send(BEN, "ben", ["ben"])


def a_hop_is_not_counted(story: Reign) -> None:
    story.read(BEN, "ben", story.send(ADA, "ada", ["ben"]))
    story.send(BEN, "ben", ["cleo"], hop=0)


def an_answer_forgets_the_hops(story: Reign) -> None:
    first = story.send(ADA, "ada", ["ben"], hop=4)
    story.reply(BEN, "ben", "ada", first, hop=0)


def a_text_was_passed_on_beyond_its_limit(story: Reign) -> None:
    deep = story.send(ADA, "ada", ["ben"], hop=6)
    story.read(BEN, "ben", deep)
    story.send(BEN, "ben", ["cleo"], hop=7, reply_to=deep.id)


def what_was_listed_does_not_stick(story: Reign) -> None:
    story.listed(BEN, "mail.inbox", [_outside(story)])
    story.send(BEN, "ben", ["cleo"], hop=1)


def a_hop_is_not_counted_after_a_listing(story: Reign) -> None:
    story.listed(BEN, "mail.inbox", [story.send(ADA, "ada", ["ben"], hop=2)])
    story.send(BEN, "ben", ["cleo"], hop=2)


def test_a_daemon_that_died_may_have_forgotten_what_was_listed() -> None:
    story = usual()
    message = _outside(story)
    story.listed(BEN, "mail.inbox", [message])
    story.crash()
    story.send(BEN, "ben", ["cleo"])
    assert violations(story.case()) == {}


# --- I14, of sessions below sessions --------------------------------------------------------------


def _below(story: Reign, *lines: tuple[str, ...]) -> None:
    """Each of `lines` is a session, and what stands above it; a process goes by its session."""
    for session, *above in lines:
        story.events.append(Placed(session, session, tuple(above)))


def what_is_below_writes_clean(story: Reign) -> None:
    _below(story, (BEN,), (CLEO, BEN))
    story.read(BEN, "ben", _outside(story))
    story.send(CLEO, "cleo", ["ada"], hop=1)


def what_was_read_below_leaves_no_mark(story: Reign) -> None:
    _below(story, (BEN, CLEO), (CLEO,))
    story.read(BEN, "ben", _outside(story))
    story.send(CLEO, "cleo", ["ada"], hop=1)


def what_one_below_reads_another_writes_clean(story: Reign) -> None:
    """What stands above both holds nothing."""
    _below(story, (BEN, "claude"), (CLEO, "run", "claude"))
    story.read(BEN, "ben", _outside(story))
    story.send(CLEO, "cleo", ["ada"], hop=1)


def the_end_of_what_was_above_washes_it_off(story: Reign) -> None:
    _below(story, (BEN,), (CLEO, BEN))
    story.read(BEN, "ben", _outside(story))
    story.events.append(Died(BEN, BEN))
    story.send(CLEO, "cleo", ["ada"], hop=1)


def a_hop_is_not_counted_through_what_is_below(story: Reign) -> None:
    _below(story, (BEN,), (CLEO, BEN))
    story.read(BEN, "ben", story.send(ADA, "ada", ["ben"], hop=3))
    story.send(CLEO, "cleo", ["ben"], hop=0)


def _strangers(story: Reign) -> None:
    _below(story, (BEN, "shell/7"), (CLEO, "shell/8"))


def _of_one_process(story: Reign) -> None:
    for session in (BEN, CLEO):
        story.events.append(Placed(session, "codex", ()))


def _when_it_had_ended(story: Reign) -> None:
    story.events.append(Placed(BEN, BEN, ()))
    story.events.append(Died(BEN, BEN))
    story.events.append(Placed(CLEO, CLEO, (BEN,)))


@pytest.mark.parametrize("place", [_strangers, _of_one_process, _when_it_had_ended])
def test_strangers_write_what_they_like(place: Lie) -> None:
    story = usual()
    place(story)
    story.read(BEN, "ben", _outside(story))
    story.send(CLEO, "cleo", ["ada"])
    assert violations(story.case()) == {}


def test_what_one_below_passes_on_with_its_mark_is_good() -> None:
    story = usual()
    _below(story, (BEN,), (CLEO, BEN))
    message = _outside(story)
    story.read(BEN, "ben", message)
    told: dict[str, Any] = {"hop": 1, "external_since": message.content["external_since"]}
    story.send(CLEO, "cleo", ["ben"], **told)
    assert violations(story.case()) == {}


BAD = {
    "I9": [
        a_takeover_ended_another_epoch,
        a_takeover_reached_another_destination,
        a_takeover_without_a_record,
        a_takeover_signed_by_a_stranger,
        a_takeover_came_too_late,
        a_takeover_acted_twice,
        a_policy_acted_twice,
        a_record_left_two_audit_rows,
        a_record_left_no_trace,
        a_record_that_nobody_brought,
        an_acceptance_names_another_end_of_the_log,
        an_acceptance_names_an_older_row,
        an_acceptance_is_not_signed,
    ],
    "I10": [
        a_living_holder_was_displaced_by_a_strangers_record,
        a_living_holder_was_displaced_by_a_record_of_another_kind,
        a_living_holder_was_displaced_by_a_session_of_its_own,
    ],
    "I13": [
        an_expired_policy_still_grants,
        a_revoked_policy_still_grants,
        an_older_policy_came_back,
        a_damaged_record_uncovers_an_older_one,
        a_policy_for_another_grants,
        a_grant_is_not_told,
        what_came_from_outside_grants_all,
        a_clock_that_was_set_back_revives_a_policy,
        a_policy_signed_by_a_stranger_counts,
        a_version_was_skipped,
        a_version_came_twice,
        a_record_follows_another_one,
        the_version_fell,
        a_void_policy_counts_as_in_effect,
        a_superseded_policy_counts_as_in_effect,
    ],
    "I14": [
        an_answer_forgets_where_it_came_from,
        an_answer_is_of_an_earlier_time,
        what_was_read_does_not_stick,
        a_release_washes_it_off,
        another_name_washes_it_off,
        a_note_to_oneself_washes_it_off,
        a_hop_is_not_counted,
        an_answer_forgets_the_hops,
        a_text_was_passed_on_beyond_its_limit,
        what_was_listed_does_not_stick,
        a_hop_is_not_counted_after_a_listing,
        what_is_below_writes_clean,
        what_was_read_below_leaves_no_mark,
        what_one_below_reads_another_writes_clean,
        the_end_of_what_was_above_washes_it_off,
        a_hop_is_not_counted_through_what_is_below,
    ],
}


@pytest.mark.parametrize(
    ("invariant", "lie"),
    [(name, lie) for name, lies in BAD.items() for lie in lies],
    ids=[f"{name}-{lie.__name__}" for name, lies in BAD.items() for lie in lies],
)
def test_the_invariant_refuses_the_bad_history(invariant: str, lie: Lie) -> None:
    story = usual()
    lie(story)
    assert invariant in violations(story.case())


def test_the_dead_are_displaced_by_anybodys_record_and_it_is_no_theft() -> None:
    """But it is no takeover either: that is what I9 says."""
    story = usual()
    story.events.append(Died(ADA))
    a_living_holder_was_displaced_by_a_strangers_record(story)
    assert set(violations(story.case())) == {"I9"}
