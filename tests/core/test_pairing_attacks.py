"""A man in the middle of a pairing: with and without the code, he never passes for the other side.

What must not happen: both sides accept a proof, show their people equal digits, and yet differ in
what they believe of each other.
"""

import base64
import json
from collections.abc import Sequence
from typing import Any

import pytest

from mbx.core import pairing
from mbx.core.canonical import encode
from mbx.core.keys import SigningKey
from mbx.core.limits import WRONG_PROOFS_MAX
from mbx.core.pairing import Match, Own, Transcript
from tests.support.pairs import (
    CODE,
    DESK,
    LAPTOP,
    OTHER_CODE,
    START_MS,
    STRANGER,
    Bend,
    Heard,
    Meeting,
    invitation,
    inviter,
    joiner,
    meet,
    own,
    spoken_in_a_run,
)

SAID = {name: json.loads(text) for name, text in spoken_in_a_run().items()}
MALLORY = own(9, "mallory")


def is_fooled(meeting: Meeting) -> bool:
    """Equal digits on both screens, and somebody is not who the other one thinks."""
    if not meeting.has_agreed:
        return False
    here, there = meeting.inviter.match, meeting.joiner.match
    assert here is not None
    assert there is not None
    truth = (here.peer.public, there.peer.public) == (LAPTOP.signer.public, DESK.signer.public)
    same = (here.protocol, here.adopts, here.invitation) == (
        there.protocol,
        there.adopts,
        there.invitation,
    )
    return not (truth and same)


def altering(name: str, field: str, value: Any) -> Bend:
    """Whoever sends `name`, this field arrives as `value`."""

    def bend(_speaker: str, text: str) -> Sequence[str]:
        said = json.loads(text)
        return [encode({**said, field: value})] if said["type"] == name else [text]

    return bend


def likely(name: str, field: str, value: Any) -> list[Any]:
    """Other values that a reader would take for that field."""
    other = SigningKey.from_seed(b"\x21" * 32).public.hex()
    if field in ("host_key", "owner"):
        return [other, MALLORY.signer.public.hex()]
    if field == "certificate":
        return [base64.b64encode(b"another certificate").decode()]
    if field == "label":
        return ["mallory", "desk-2"]
    if field == "addresses":
        return [[], ["10.9.9.9:24629"], list(reversed(value)), [*value, "10.9.9.9:1"]]
    if field == "clock_ms":
        return [0, value + 1, 2**53 - 1]
    if field == "protocols":
        return [[1, 2], [1, 1_000]]
    if field == "invitation":
        return ["2" * 26]
    if field == "adopt":
        return [not value]
    if field == "records":
        return []
    first = "1" if value[0] != "1" else "2"
    return [first + value[1:], value[:-1] + ("1" if value[-1] != "1" else "2"), "a" * len(value)]


ALTERED = [
    (name, field, value)
    for name in ("join", "invite", "prove", "accept", "finish")
    for field, told in SAID[name].items()
    if field != "type"
    for value in likely(name, field, told)
]


@pytest.mark.parametrize(("name", "field", "value"), ALTERED)
def test_whatever_is_altered_on_the_way_no_two_screens_agree(
    name: str, field: str, value: Any
) -> None:
    meeting = meet(bend=altering(name, field, value))
    assert not meeting.has_agreed
    assert meeting.at_inviter.matches == []
    # The inviter's proof and signature come last but one; the joiner's signature last of all.
    assert meeting.at_joiner.matches == [] or name == "finish"


def test_every_field_that_is_said_was_altered() -> None:
    assert len(ALTERED) >= 40
    fields = {(name, field) for name, field, _ in ALTERED}
    told = {(name, field) for name in SAID for field in SAID[name] if field != "type"}
    assert told - fields == {("confirmed", "records")}


def test_every_flipped_bit_of_every_message_ends_the_run() -> None:
    flipped = 0
    for name in ("join", "invite", "prove", "accept", "finish"):
        length = len(encode(SAID[name]))
        for place in range(0, length, 3):

            def bend(_speaker: str, text: str, name: str = name, place: int = place) -> list[str]:
                if json.loads(text)["type"] != name:
                    return [text]
                return [text[:place] + chr(ord(text[place]) ^ 1 << place % 7) + text[place + 1 :]]

            assert not meet(bend=bend).has_agreed
            flipped += 1
    assert flipped > 300


def test_a_certificate_of_somebody_in_between_is_found_by_both() -> None:
    """He ends the TLS link of each side; the joiner saw his certificate, not the inviter's."""
    meeting = meet(joiner(sees=b"certificate of mallory"))
    assert meeting.at_inviter.code == meeting.at_joiner.code == "wrong-code"
    assert meeting.at_inviter.wrong == [WRONG_PROOFS_MAX - 1]


def test_who_relays_everything_unaltered_has_only_been_a_wire() -> None:
    meeting = meet(bend=lambda _speaker, text: [text])
    assert meeting.has_agreed
    assert not is_fooled(meeting)


def test_what_is_reflected_to_its_sender_ends_the_run() -> None:
    for name, speaker in (("join", "joiner"), ("prove", "joiner")):
        one = joiner()
        sent = Heard()
        sent.take(one.start(START_MS))
        if name == "prove":
            sent.take(one.receive(encode(SAID["invite"]), START_MS))
        assert json.loads(sent.sent[-1])["type"] == name, speaker
        sent.take(one.receive(sent.sent[-1], START_MS))
        assert sent.code == "malformed"
    host = inviter()
    heard = Heard()
    heard.take(host.receive(encode(SAID["join"]), START_MS))
    heard.take(host.receive(heard.sent[-1], START_MS))
    assert heard.code == "malformed"


def test_the_joiners_proof_is_none_of_the_inviter_and_the_other_way_round() -> None:
    """Directions swapped: he answers the joiner with what the joiner itself has proved."""
    one = joiner()
    heard = Heard()
    heard.take(one.start(START_MS))
    heard.take(one.receive(encode(SAID["invite"]), START_MS))
    proof = json.loads(heard.sent[-1])["proof"]
    signature = SAID["finish"]["signature"]
    heard.take(
        one.receive(encode({"type": "accept", "proof": proof, "signature": signature}), 5_000)
    )
    assert heard.code == "unproven"


def test_who_has_the_host_key_but_not_the_code_cannot_hand_the_joiners_proof_back() -> None:
    one = joiner()
    heard = Heard()
    heard.take(one.start(START_MS))
    heard.take(one.receive(encode(SAID["invite"]), START_MS))
    join, prove = (json.loads(text) for text in heard.sent)
    proof = prove.pop("proof")
    transcript = Transcript(join, SAID["invite"], prove, DESK.certificate).digest()
    signature = DESK.signer.sign(pairing.signed_text("inviter", transcript)).hex()
    heard.take(
        one.receive(encode({"type": "accept", "proof": proof, "signature": signature}), 5_000)
    )
    assert heard.code == "unproven"


def test_every_field_of_every_message_and_the_certificate_are_in_the_transcript() -> None:
    prove = {name: value for name, value in SAID["prove"].items() if name != "proof"}
    whole = Transcript(SAID["join"], SAID["invite"], prove, DESK.certificate)
    digests = {whole.digest(), whole._replace(certificate=LAPTOP.certificate).digest()}
    changes = 1
    for part in ("join", "invite", "prove"):
        said = getattr(whole, part)
        for field in said:
            altered: dict[str, Any] = {part: {**said, field: "other"}}
            digests.add(whole._replace(**altered).digest())
            changes += 1
    assert len(digests) == 1 + changes
    assert changes == 1 + 3 + 9 + 9


@pytest.mark.parametrize("taken", ["proof", "signature"])
def test_a_right_proof_with_a_foreign_signature_is_none_and_so_is_the_reverse(taken: str) -> None:
    """Who knows the code but not the host key, or the key but not the code."""
    other = joiner(nonce=8)
    meeting = meet(other, inviter(nonce=7))
    strange = {json.loads(text)["type"]: json.loads(text) for text in meeting.at_inviter.sent}
    bent = meet(bend=altering("accept", taken, strange["accept"][taken]))
    assert bent.at_joiner.code == "unproven"
    assert not bent.has_agreed


def test_a_message_of_another_run_with_the_same_code_is_worth_nothing() -> None:
    first = meet(joiner(nonce=31), inviter(nonce=32))
    old = {json.loads(text)["type"]: text for text in first.at_joiner.sent + first.at_inviter.sent}
    spliced = 0
    for name in ("join", "invite", "prove", "accept", "finish"):

        def bend(_speaker: str, text: str, name: str = name) -> Sequence[str]:
            return [old[name] if json.loads(text)["type"] == name else text]

        second = meet(bend=bend)
        assert not second.has_agreed, name
        spliced += 1
    assert spliced == 5


def test_a_whole_run_played_back_proves_nothing_to_either_side() -> None:
    first = meet(joiner(nonce=31), inviter(nonce=32))
    host, heard = inviter(nonce=33), Heard()
    for text in first.at_joiner.sent:
        heard.take(host.receive(text, START_MS))
    assert heard.code == "wrong-code"
    one, told = joiner(nonce=34), Heard()
    told.take(one.start(START_MS))
    for text in first.at_inviter.sent:
        told.take(one.receive(text, START_MS))
    assert told.code == "unproven"
    assert one.match is host.match is None


def test_a_proof_that_was_seen_is_not_accepted_again() -> None:
    """The whole run again at the same inviter, with the very nonces of the first."""
    invited = invitation()
    first = meet(joiner(), inviter(invited))
    again, heard = inviter(invited), Heard()
    for text in first.at_joiner.sent:
        heard.take(again.receive(text, START_MS))
    assert heard.code == "used"


# -- somebody in between who knows the code -------------------------------------------------------


class BetweenTwoRuns:
    """He knows the code and runs two honest machines of his own, back to back."""

    def __init__(self, number: int) -> None:
        self.towards_joiner = Meeting.of(
            joiner(sees=MALLORY.certificate, nonce=number), inviter(who=MALLORY, nonce=number + 1)
        )
        self.towards_inviter = Meeting.of(
            joiner(who=MALLORY._replace(owner=LAPTOP.owner), nonce=number + 2),
            inviter(nonce=number + 3),
        )


def test_who_knows_the_code_and_sits_in_between_shows_the_two_people_different_digits() -> None:
    shown = 0
    for number in range(1, 40):
        between = BetweenTwoRuns(number)
        at_joiner = between.towards_joiner.run().joiner.match
        at_inviter = between.towards_inviter.run().inviter.match
        assert at_joiner is not None
        assert at_inviter is not None
        assert at_joiner.short != at_inviter.short
        shown += 1
    assert shown == 39


def test_the_inviters_words_come_before_the_joiners_are_known() -> None:
    """Whoever plays the inviter must settle on all of his words while he knows a digest only."""
    one = joiner()
    sent = Heard()
    sent.take(one.start(START_MS))
    said = json.loads(sent.sent[0])
    assert said.keys() == {"type", "protocols", "commitment"}
    for told in (LAPTOP.label, LAPTOP.signer.public.hex(), "02" * 32, *LAPTOP.addresses):
        assert told not in sent.sent[0]


def test_the_joiners_words_are_those_it_was_bound_to() -> None:
    """Whoever plays the joiner cannot choose his words once he has seen the inviter's."""
    for field, value in (("nonce", "3" * 64), ("label", "other"), ("clock_ms", 5)):
        host, heard = inviter(), Heard()
        mine = pairing.prove_message(MALLORY, b"\x05" * 32, 1, adopt=False)
        join = pairing.join_message((1,), pairing.commitment(mine))
        heard.take(host.receive(encode(join), START_MS))
        invite = json.loads(heard.sent[-1])
        changed = {**mine, field: value}
        transcript = Transcript(join, invite, changed, DESK.certificate).digest()
        proof = pairing.proof(pairing.key_of(CODE.secret(), transcript), "joiner")
        heard.take(host.receive(encode({**changed, "proof": proof.hex()}), START_MS))
        assert heard.code == "malformed"
        assert heard.matches == []
        assert heard.wrong == []


def digits_of(who: Own, nonce: int, invited: Match) -> str:
    match = meet(joiner(who=who, nonce=nonce), inviter(nonce=1)).inviter.match
    assert match is not None
    assert match.short != invited.short
    return match.short


def test_each_part_of_what_is_said_changes_the_digits() -> None:
    first = meet(joiner(), inviter()).inviter.match
    assert first is not None
    shorts = [
        digits_of(who, nonce, first)
        for who, nonce in (
            (LAPTOP, 3),
            (LAPTOP._replace(label="laptop-2"), 2),
            (LAPTOP._replace(addresses=()), 2),
            (LAPTOP._replace(certificate=b"x"), 2),
            (LAPTOP._replace(owner=DESK.owner), 2),
            (LAPTOP._replace(owner=None), 2),
            (LAPTOP._replace(signer=STRANGER.signer), 2),
        )
    ]
    assert len(set(shorts)) == len(shorts) == 7


# -- who does not know the code -------------------------------------------------------------------


@pytest.mark.parametrize("tries", [1, 4])
def test_who_plays_the_inviter_without_the_code_learns_nothing_that_helps(tries: int) -> None:
    """He gets the joiner's proof, which fits his own run only."""
    for number in range(tries):
        false = meet(
            joiner(sees=MALLORY.certificate, nonce=40 + number),
            inviter(invitation(OTHER_CODE), MALLORY, nonce=50),
        )
        assert false.at_joiner.code == "wrong-code"
        assert false.joiner.match is None
        stolen = json.loads(false.at_joiner.sent[-1])
        true, heard = inviter(nonce=50), Heard()
        heard.take(true.receive(false.at_joiner.sent[0], START_MS))
        heard.take(true.receive(encode(stolen), START_MS))
        assert heard.code == "wrong-code"


def test_nobody_is_fooled_in_any_mixture_of_two_runs() -> None:
    """Four honest machines, two of them his; every pattern of who hears whom for three steps."""
    mixtures = agreed = 0
    for pattern in range(2**5):
        victim, host = joiner(nonce=61), inviter(nonce=62)
        false_host, false_guest = inviter(who=MALLORY, nonce=63), joiner(who=STRANGER, nonce=64)
        at_victim, at_host = Heard(), Heard()
        told = at_victim.take(victim.start(START_MS))
        guest_said = Heard()
        guest_said.take(false_guest.start(START_MS))
        for step in range(5):
            chosen = told if pattern >> step & 1 else guest_said.sent[-1:]
            answers = [one for text in chosen for one in at_host.take(host.receive(text, START_MS))]
            for text in told:
                false_host.receive(text, START_MS)
            for text in answers:
                guest_said.take(false_guest.receive(text, START_MS))
            told = [one for text in answers for one in at_victim.take(victim.receive(text, 5_000))]
        meeting = Meeting(victim, host, at_victim, at_host)
        assert not is_fooled(meeting)
        agreed += meeting.has_agreed
        mixtures += 1
    assert mixtures == 32
    assert agreed >= 1
