"""The machines of a pairing: every event in every state, the code's one use, its term, words."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from mbx.core import pairing
from mbx.core.canonical import encode
from mbx.core.keys import key_id
from mbx.core.limits import (
    HELLO_DEADLINE_MS,
    INVITATION_TTL_MS,
    PAIRING_STEP_MS,
    WRONG_PROOFS_MAX,
)
from mbx.core.pairing_code import PairingCode
from mbx.core.pairing_run import End, Invitation, Joiner, refusal_text
from tests.support.pairs import (
    BARE,
    CODE,
    DESK,
    LAPTOP,
    OTHER_CODE,
    OWNER,
    START_MS,
    STRANGER,
    WALL_MS,
    Heard,
    Machine,
    Meeting,
    invitation,
    inviter,
    joiner,
    meet,
    spoken_in_a_run,
)

# -- a good run -----------------------------------------------------------------------------------


def test_two_hosts_that_share_a_code_see_the_same_twelve_digits_and_each_other() -> None:
    meeting = meet()
    assert meeting.has_agreed
    here, there = meeting.inviter.match, meeting.joiner.match
    assert here is not None
    assert there is not None
    assert (here.transcript, here.short) == (there.transcript, there.short)
    assert len(here.short) == 14
    assert here.short.replace(" ", "").isdigit()
    assert here.invitation == there.invitation == "1" * 26
    assert (here.protocol, here.adopts, here.skew_ms, here.notice) == (1, False, 0, None)
    for match, other in ((here, LAPTOP), (there, DESK)):
        assert match.peer.host == key_id("host", other.signer.public) == match.pin.host
        assert match.peer[1:] == (
            other.signer.public,
            other.certificate,
            other.label,
            other.addresses,
            other.owner,
        )
        assert match.pin.certificate == pairing.certificate_hash(other.certificate)
        assert match.pin[3:] == (other.label, None, match.transcript)


def test_each_run_has_other_digits() -> None:
    shorts = set()
    for number in range(1, 60):
        match = meet(joiner(nonce=number), inviter(nonce=number + 1)).joiner.match
        assert match is not None
        shorts.add(match.short)
    assert len(shorts) == 59


@pytest.mark.parametrize(
    ("who", "owner", "adopts"), [(BARE, OWNER, True), (LAPTOP._replace(owner=OWNER), OWNER, False)]
)
def test_an_owner_is_shared_by_adoption_or_by_being_the_same(
    who: pairing.Own, owner: bytes, *, adopts: bool
) -> None:
    meeting = meet(joiner(who=who))
    assert meeting.has_agreed
    for match in (meeting.inviter.match, meeting.joiner.match):
        assert match is not None
        assert match.adopts == adopts
        assert match.pin.owner == key_id("owner", owner)


@pytest.mark.parametrize("first", ["joiner", "inviter"])
def test_both_people_agree_in_either_order_and_records_are_handed_over(first: str) -> None:
    meeting = meet()
    sides = [("joiner", meeting.joiner, meeting.at_joiner)]
    sides.append(("inviter", meeting.inviter, meeting.at_inviter))  # type: ignore[arg-type]
    for name, machine, heard in sorted(sides, key=lambda side: side[0] != first):
        assert meeting.at_joiner.code is None
        spoken = heard.take(machine.confirm([f"record of {name}"]))
        meeting.go_on([(name, text) for text in spoken])
    assert meeting.at_joiner.records == [("record of inviter",)]
    assert meeting.at_inviter.records == [("record of joiner",)]
    assert (meeting.at_joiner.code, meeting.at_inviter.code) == ("paired", "paired")
    assert meeting.has_agreed


def test_one_who_declines_ends_it_for_both_even_after_the_other_agreed() -> None:
    meeting = meet()
    meeting.go_on([("joiner", one) for one in meeting.at_joiner.take(meeting.joiner.confirm())])
    meeting.go_on([("inviter", one) for one in meeting.at_inviter.take(meeting.inviter.decline())])
    assert (meeting.at_joiner.code, meeting.at_inviter.code) == ("declined", "declined")


# -- every event in every state -------------------------------------------------------------------

Event = Callable[[Machine], Any]
MESSAGES = ["join", "invite", "prove", "accept", "finish", "confirmed"]


SAID = spoken_in_a_run()
STEPS = {"inviter": ["join", "prove", "finish"], "joiner": ["invite", "accept"]}


def in_state(role: str, state: str) -> Machine:
    """A machine of the run that `SAID` is from, in this state."""
    machine: Machine = inviter() if role == "inviter" else joiner()
    if isinstance(machine, Joiner) and state != "opening":
        machine.start(START_MS)
    for name in STEPS[role]:
        if machine.state != state:
            machine.receive(SAID[name], START_MS)
    if state == "ended":
        machine.lost()
    assert machine.state == state
    return machine


def hearing(name: str) -> Event:
    return lambda one: one.receive(SAID[name], START_MS)


EVENTS: dict[str, Event] = {
    **{name: hearing(name) for name in SAID},
    "no": lambda one: one.receive(refusal_text("busy"), START_MS),
    "bad no": lambda one: one.receive('{"code":"odd","protocols":[1],"type":"no"}', START_MS),
    "garbage": lambda one: one.receive("\ud800{", START_MS),
    "unknown type": lambda one: one.receive('{"type":"hello"}', START_MS),
    "early tick": lambda one: one.tick((one.deadline or 10**9) - 1),
    "tick": lambda one: one.tick(one.deadline or 10**9),
    "late tick": lambda one: one.tick((one.deadline or 10**9) + 10**9),
    "lost": lambda one: one.lost(),
    "confirm": lambda one: one.confirm(),
    "decline": lambda one: one.decline(),
}

# What comes out: the types of messages sent, `compare`, and how it ends; "!" is a ValueError.
AWAITED = {
    ("inviter", "opening", "join"): "invite",
    ("inviter", "offering", "prove"): "accept",
    ("inviter", "proving", "finish"): "compare",
    ("inviter", "comparing", "confirmed"): "confirmed there",
    ("joiner", "offering", "invite"): "prove",
    ("joiner", "proving", "accept"): "finish compare",
    ("joiner", "comparing", "confirmed"): "confirmed there",
}
IN_ANY_STATE = {
    "no": "end:busy",
    "bad no": "end:malformed",
    "garbage": "no:malformed end:malformed",
    "unknown type": "no:malformed end:malformed",
    "early tick": "",
    "tick": "no:timeout end:timeout",
    "late tick": "no:timeout end:timeout",
    "lost": "end:lost",
    "confirm": "!",
    "decline": "no:declined end:declined",
}
STATES = ["opening", "offering", "proving", "comparing", "ended"]


def wanted(role: str, state: str, event: str) -> str:
    if state == "ended":
        return "!" if event == "confirm" else ""
    if event == "confirm" and state == "comparing":
        return "confirmed"
    if event in MESSAGES:
        return AWAITED.get((role, state, event), "no:malformed end:malformed")
    return IN_ANY_STATE[event]


def outcome(machine: Machine, event: Event) -> str:
    heard = Heard()
    try:
        heard.take(event(machine))
    except ValueError:
        return "!"
    parts = []
    for text in heard.sent:
        said = json.loads(text)
        parts.append("no:" + said["code"] if said["type"] == "no" else said["type"])
    parts += ["compare"] * len(heard.matches) + ["confirmed there"] * len(heard.records)
    return " ".join([*parts, *(f"end:{end.code}" for end in heard.ends)])


@pytest.mark.parametrize("role", ["inviter", "joiner"])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", EVENTS)
def test_every_event_in_every_state_does_what_the_table_says(
    role: str, state: str, event: str
) -> None:
    machine = in_state(role, state)
    said = outcome(machine, EVENTS[event])
    assert said == wanted(role, state, event)
    assert (machine.state == "ended") == ("end:" in said or state == "ended")
    if machine.state == "ended":
        assert machine.deadline is None


def test_the_table_is_whole() -> None:
    assert len(SAID) == len(MESSAGES)
    assert len(EVENTS) * len(STATES) * 2 == 160


def test_what_is_said_twice_ends_a_run() -> None:
    meeting = meet()
    meeting.go_on([("joiner", text) for text in meeting.at_joiner.take(meeting.joiner.confirm())])
    with pytest.raises(ValueError, match="nothing to confirm"):
        meeting.joiner.confirm()
    assert meeting.inviter.state == "comparing"
    meeting.go_on([("joiner", encode(pairing.confirmed_message([])))])
    assert meeting.at_inviter.code == "malformed"
    with pytest.raises(ValueError, match="started once"):
        meeting.joiner.start(START_MS)


# -- the code: its one use, wrong ones, its term --------------------------------------------------


def test_five_wrong_proofs_burn_an_invitation_for_ever() -> None:
    invited = invitation()
    for count in range(1, WRONG_PROOFS_MAX + 1):
        meeting = meet(joiner(OTHER_CODE, STRANGER), inviter(invited))
        left = WRONG_PROOFS_MAX - count
        assert meeting.at_inviter.wrong == [left]
        assert meeting.at_joiner.code == ("wrong-code" if left else "burnt")
        assert meeting.inviter.match is None
        assert meeting.joiner.match is None
    late = meet(joiner(), inviter(invited))
    assert (late.at_joiner.code, late.at_inviter.code) == ("burnt", "burnt")
    assert late.at_inviter.wrong == []
    assert "burnt by 5 wrong codes" in late.at_joiner.ends[0].words


def test_four_wrong_proofs_do_not_keep_the_right_one_out() -> None:
    invited = invitation()
    for _ in range(WRONG_PROOFS_MAX - 1):
        meet(joiner(OTHER_CODE, STRANGER), inviter(invited))
    assert meet(joiner(), inviter(invited)).has_agreed


def until_the_proof(
    invited: Invitation, code: PairingCode = CODE
) -> tuple[Meeting, list[tuple[str, str]]]:
    """A run whose `prove` is said, but has not arrived."""
    held = []

    def hold(speaker: str, text: str) -> list[str]:
        if json.loads(text)["type"] != "prove":
            return [text]
        held.append((speaker, text))
        return []

    return Meeting.of(joiner(code), inviter(invited)).run(hold), held


def test_runs_beside_each_other_burn_it_together() -> None:
    invited = invitation()
    open_runs = []
    for _ in range(WRONG_PROOFS_MAX + 2):
        meeting, held = until_the_proof(invited, OTHER_CODE)
        open_runs.append((meeting, held))
    for meeting, held in open_runs:
        meeting.go_on(held)
    codes = [meeting.at_joiner.code for meeting, _ in open_runs]
    assert codes == ["wrong-code"] * 4 + ["burnt"] * 3
    assert invited.wrong_proofs == WRONG_PROOFS_MAX


def test_a_stranger_who_says_nothing_more_keeps_nobody_out() -> None:
    invited = invitation()
    for _ in range(20):
        idle = inviter(invited)
        idle.receive(SAID["join"], START_MS)
        assert idle.state == "offering"
    assert meet(joiner(), inviter(invited)).has_agreed


def test_a_code_is_used_once_and_the_next_ones_hear_busy_and_then_used() -> None:
    invited = invitation()
    first = Meeting.of(joiner(), inviter(invited))
    first.run(lambda speaker, text: [] if json.loads(text)["type"] == "finish" else [text])
    assert first.inviter.state == "proving"
    second = meet(joiner(who=STRANGER), inviter(invited))
    assert second.at_joiner.code == second.at_inviter.code == "busy"
    first.go_on([("joiner", first.at_joiner.sent[-1])])
    assert first.has_agreed
    third = meet(joiner(who=STRANGER), inviter(invited))
    assert third.at_joiner.code == third.at_inviter.code == "used"
    assert invited.wrong_proofs == 0


@pytest.mark.parametrize("end", ["lost", "tick", "garbage", "decline"])
def test_a_code_that_was_proved_is_spent_however_that_run_ends(end: str) -> None:
    invited = invitation()
    meeting = Meeting.of(joiner(), inviter(invited))
    meeting.run(lambda speaker, text: [] if json.loads(text)["type"] == "finish" else [text])
    assert invited.refusal(START_MS) == "busy"
    EVENTS[end](meeting.inviter)
    assert invited.refusal(START_MS) == "used"
    assert meet(joiner(), inviter(invited)).at_joiner.code == "used"


@pytest.mark.parametrize(("late_ms", "code"), [(-1, None), (0, "expired"), (1, "expired")])
def test_a_code_is_good_for_ten_minutes_and_not_a_moment_longer(
    late_ms: int, code: str | None
) -> None:
    at_ms = START_MS + INVITATION_TTL_MS + late_ms
    meeting = Meeting.of(joiner(), inviter()).run(now_ms=at_ms)
    assert meeting.at_joiner.code == code
    assert meeting.has_agreed == (code is None)
    assert INVITATION_TTL_MS == 600_000


def test_a_code_that_expires_between_two_messages_is_not_proved_any_more() -> None:
    meeting, held = until_the_proof(invitation())
    meeting.go_on(held, now_ms=START_MS + INVITATION_TTL_MS)
    assert meeting.at_joiner.code == "expired"


def test_people_have_ten_minutes_to_compare_after_a_proof_in_the_last_one() -> None:
    at_ms = START_MS + INVITATION_TTL_MS - 1
    meeting = Meeting.of(joiner(), inviter()).run(now_ms=at_ms)
    assert meeting.joiner.deadline == meeting.inviter.deadline == at_ms + INVITATION_TTL_MS


@pytest.mark.parametrize("role", ["inviter", "joiner"])
@pytest.mark.parametrize(
    ("state", "ttl_ms"),
    [
        ("opening", HELLO_DEADLINE_MS),
        ("offering", PAIRING_STEP_MS),
        ("proving", PAIRING_STEP_MS),
        ("comparing", INVITATION_TTL_MS),
    ],
)
@pytest.mark.parametrize(("late_ms", "ends"), [(-1, False), (0, True), (1, True)])
def test_each_state_has_its_deadline(
    role: str, state: str, ttl_ms: int, late_ms: int, *, ends: bool
) -> None:
    machine = in_state(role, state)
    assert machine.deadline == START_MS + ttl_ms
    assert bool(machine.tick(START_MS + ttl_ms + late_ms)) == ends


# -- clear words ----------------------------------------------------------------------------------


def test_every_code_has_a_sentence_and_a_next_step_in_plain_words() -> None:
    assert set("burnt expired used wrong-code busy version-mismatch".split()) < set(
        pairing.REFUSALS
    )
    for code, (words, next_step) in pairing.REFUSALS.items():
        assert code == code.lower()
        assert len(words) > 15
        assert len(next_step) > 15
        (end,) = joiner().receive(refusal_text(code), START_MS)
        assert isinstance(end, End)
        assert end.code == code
        assert end.words.startswith(words)
        assert code == "version-mismatch" or end.next_step == next_step


@pytest.mark.parametrize(
    ("joiners", "inviters", "older"),
    [((1,), (2, 3), "here"), ((2, 4), (1, 3), "on the other host")],
)
def test_a_version_mismatch_names_both_versions_and_the_older_side(
    joiners: tuple[int, ...], inviters: tuple[int, ...], older: str
) -> None:
    meeting = meet(joiner(protocols=joiners), inviter(protocols=inviters))
    end = meeting.at_joiner.ends[0]
    assert end.code == meeting.at_inviter.code == "version-mismatch"
    here, there = (", ".join(map(str, versions)) for versions in (joiners, inviters))
    assert f"{here} here, {there} there" in end.words
    assert older in end.next_step
    assert f"{there} here, {here} there" in meeting.at_inviter.ends[0].words


def test_the_newest_common_version_is_spoken() -> None:
    meeting = meet(joiner(protocols=(1, 2, 5)), inviter(protocols=(2, 4, 5, 9)))
    assert meeting.has_agreed
    assert meeting.joiner.match is not None
    assert meeting.joiner.match.protocol == 5


def test_a_joiner_of_a_later_version_with_other_fields_hears_of_the_version() -> None:
    one = inviter()
    heard = Heard()
    heard.take(one.receive('{"hybrid":true,"protocols":[7],"type":"join"}', START_MS))
    assert heard.code == "version-mismatch"
    assert "1 here, 7 there" in heard.ends[0].words


def test_an_inviter_that_answers_in_another_version_is_told_so_too() -> None:
    one = joiner()
    one.start(START_MS)
    heard = Heard()
    heard.take(one.receive('{"protocols":[3],"type":"invite"}', START_MS))
    assert heard.code == "version-mismatch"
    assert "1 here, 3 there" in heard.ends[0].words


@pytest.mark.parametrize(
    ("apart_ms", "words"),
    [
        (0, None),
        (60_000, None),
        (-60_000, None),
        (60_001, "60 seconds"),
        (119_999, "119 seconds"),
        (120_000, "2 minutes"),
        (600_000, "10 minutes"),
        (-7_199_999, "119 minutes"),
        (7_200_000, "2 hours"),
        (-3 * 86_400_000, "3 days"),
        (20_000 * 86_400_000, "20,000 days"),
    ],
)
def test_hosts_with_unequal_clocks_pair_and_are_told_how_far_apart_they_are(
    apart_ms: int, words: str | None
) -> None:
    meeting = meet(joiner(wall_ms=WALL_MS + apart_ms))
    assert meeting.has_agreed
    here, there = meeting.inviter.match, meeting.joiner.match
    assert here is not None
    assert there is not None
    assert (here.skew_ms, there.skew_ms) == (apart_ms, -apart_ms)
    if words is None:
        assert here.notice is there.notice is None
    else:
        assert here.notice is not None
        assert there.notice is not None
        code, told = here.notice
        assert code == "skewed-clock"
        assert words in told
        assert ("ahead of" if apart_ms > 0 else "behind") in told
        assert ("behind" if apart_ms > 0 else "ahead of") in there.notice[1]


def test_the_time_between_two_messages_does_not_count_as_skew() -> None:
    meeting = Meeting.of(joiner(), inviter()).run(now_ms=START_MS + 4_000)
    assert meeting.inviter.match is not None
    assert meeting.inviter.match.skew_ms == 0


def test_a_clock_before_1970_is_told_as_its_beginning() -> None:
    assert meet(joiner(wall_ms=-5)).has_agreed


def test_a_host_is_not_paired_with_itself() -> None:
    twin = DESK._replace(label="twin")
    meeting = meet(joiner(who=twin))
    assert meeting.at_joiner.code == "itself"
    late = meet(joiner(who=LAPTOP), inviter(who=LAPTOP._replace(label="twin")))
    assert late.at_joiner.code == "itself"


def test_an_inviter_notices_its_own_key_too() -> None:
    one = inviter()
    said = pairing.prove_message(DESK, bytes(32), WALL_MS, adopt=False)
    committed = pairing.commitment(said)
    one.receive(encode(pairing.join_message((1,), committed)), START_MS)
    heard = Heard()
    heard.take(one.receive(encode({**said, "proof": "0" * 64}), START_MS))
    assert heard.code == "itself"
