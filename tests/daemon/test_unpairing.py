"""Pairings end and change by the owner's word, or end by the other host's: real stores, rules."""

from collections.abc import Iterator
from typing import Any

import pytest

from mbx.core.frames import Withdrawal
from mbx.core.limits import QUEUE_MAX_BYTES, QUEUE_MESSAGES_MAX
from mbx.core.peer import Peer, peer_payload
from mbx.daemon import bouncing, readdressing, relaying, unpairing
from mbx.daemon.bouncing import PIECE_ROWS
from mbx.daemon.effects import Effect, HandBack, Paired
from mbx.daemon.gate import Caller
from mbx.store import identities, outbox, peers
from tests.daemon.test_applying import state
from tests.support.office import nobody
from tests.support.owner import TERMINAL, Owner, an_owner, content, wire
from tests.support.paired import PairedDesk, carry, desk, pair, sent, settle, signed_by


class Hosts:
    """Two paired hosts with their owners' records; ana on the one, ben on the other."""

    def __init__(self) -> None:
        self.here, self.there = desk("desk"), desk("lap")
        self.ana: Caller = self.here.holder("ana", 10)
        self.ben: Caller = self.there.holder("ben", 20)
        self.owner = an_owner(self.here)
        pair(self.here, self.there)
        self.record = signed_by(self.owner, self.here.peer_nos["lap"])
        settle(self.here, self.there)
        self.here.effects.clear()

    def send(self, to: str = "ben") -> str:
        answer = self.here.call(self.ana, "mail.send", to=[to], subject="s", body="b")
        return str(answer["id"])

    def pair_anew(self) -> None:
        """A second pairing of the same two hosts; here the first is over already."""
        self.there.do(lambda tx: peers.end(tx, self.there.peer_nos["desk"], "us", 1))
        pair(self.here, self.there)

    def lap(self) -> dict[str, Any]:
        """The other host as a listing shows it."""
        [only] = listed(self.here)
        return only

    def follow(self) -> int:
        """Do what effects ask for until nothing is left to return; how many further pieces."""
        pieces = 0
        while left := [one for one in self.here.effects if isinstance(one, HandBack)]:
            self.here.effects.clear()
            for one in left:
                self.here.effects += self.hand_back(one)
                pieces += 1
        return pieces

    def hand_back(self, left: HandBack) -> list[Effect]:
        context = self.here.dispatcher.context()
        return list(self.here.do(lambda tx: bouncing.continued(context, tx, left)).effects)

    def said(self, act: Any) -> list[Effect]:
        """What follows from the other host's word."""
        context, no = self.here.dispatcher.context(), self.here.peer_nos["lap"]
        effects = list(self.here.do(lambda tx: act(context, tx, no)).effects)
        self.here.effects += effects
        return effects


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    made = Hosts()
    yield made
    made.here.close()
    made.there.close()


def listed(host: PairedDesk, **asked: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = host.call(nobody(), "peers.list", **asked)["peers"]
    return found


def subjects(host: PairedDesk) -> list[str]:
    """What the owner is told."""
    mail = host.call(TERMINAL, "owner.inbox")["messages"]
    return [str(one["subject"]) for one in mail]


def forged(owner: Owner, draft: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A record that the owner signs, although no daemon drafts it."""
    return wire(draft["kind"], {**content(draft), **changes}, owner.key)


# -- by our owner ---------------------------------------------------------------------------------


def test_a_removal_ends_the_pairing_and_returns_what_waits(hosts: Hosts) -> None:
    message = hosts.send()
    draft = hosts.owner.draft("unpair", name="lap", reason="sold")
    assert (draft["kind"], draft["confirm"]) == ("unpair", "lap")
    assert "return to their senders: 1" in "\n".join(draft["lines"])
    assert hosts.there.host.key_id in "\n".join(draft["lines"])
    before = hosts.here.stream("lap")
    answer = hosts.owner.apply(hosts.owner.signed(draft))
    assert (answer["act"], answer["peer"], answer["returning"]) == ("unpair", "lap", 1)
    assert any(isinstance(effect, Paired) for effect in hosts.here.effects)
    copy = sent(hosts.here, hosts.ana, message)["ben@lap"]
    assert (copy["stage"], copy["error"]) == ("returned", "not-paired")
    [back] = hosts.here.call(hosts.ana, "mail.inbox")["messages"]
    [read] = hosts.here.call(hosts.ana, "mail.read", ids=[back["id"]])["messages"]
    assert "not paired with this one any more" in read["body"]
    assert "may have delivered" not in read["body"]
    after = hosts.here.stream("lap")
    assert (after.out_seq, after.out_head) == (before.out_seq, before.out_head)
    assert (after.queued_messages, after.queued_bytes) == (0, 0)


def test_who_was_removed_has_no_address_any_more_and_the_words_say_why(hosts: Hosts) -> None:
    hosts.owner.do("unpair", name="lap")
    for to in ("ben@lap", "ben"):
        refusal = hosts.here.refusal(hosts.ana, "mail.send", to=[to], subject="s", body="b")
        assert refusal.code == "unknown-recipient"
        assert "lap" in refusal.message
        assert "not paired with this host any more" in refusal.message
    agents = hosts.here.call(nobody(), "agents.list")["agents"]
    assert [one["address"] for one in agents] == ["ana@desk"]
    everybody = hosts.here.refusal(hosts.ana, "mail.send", to=["*"], subject="s", body="b")
    assert "there is nobody else" in everybody.message


def test_nothing_is_taken_from_a_host_that_was_removed(hosts: Hosts) -> None:
    hosts.there.call(hosts.ben, "mail.send", to=["ana"], subject="s", body="b")
    hosts.owner.do("unpair", name="lap")
    seq = hosts.here.stream("lap").in_seq
    places = hosts.there.places("desk", seq)
    arrivals = [place.record or Withdrawal(place.digest) for place in places]
    with pytest.raises(Exception, match="nothing is taken from lap"):
        hosts.here.take("lap", seq + 1, arrivals)
    assert hosts.here.call(hosts.ana, "mail.inbox")["messages"] == []


def test_mail_that_was_offered_and_not_acknowledged_may_have_arrived(hosts: Hosts) -> None:
    hosts.send()
    no, seq = hosts.here.peer_nos["lap"], hosts.here.stream("lap").out_seq
    hosts.here.do(lambda tx: outbox.offered(tx, no, seq))
    hosts.owner.do("unpair", name="lap")
    [back] = hosts.here.call(hosts.ana, "mail.inbox")["messages"]
    [read] = hosts.here.call(hosts.ana, "mail.read", ids=[back["id"]])["messages"]
    assert "may have delivered it" in read["body"]


@pytest.mark.parametrize("count", [PIECE_ROWS - 1, PIECE_ROWS, PIECE_ROWS + 1])
def test_the_end_of_a_piece_is_no_end_of_the_queue(hosts: Hosts, count: int) -> None:
    for _ in range(count):
        hosts.send()
    hosts.here.effects.clear()
    hosts.owner.do("unpair", name="lap")
    assert hosts.follow() == (0 if count < PIECE_ROWS else 1)
    assert hosts.here.stream("lap").queued_messages == 0
    stages = hosts.here.rows("SELECT count(*) FROM deliveries WHERE error = 'not-paired'")
    assert stages == [(count,)]


def test_thousands_that_wait_return_in_bounded_pieces(hosts: Hosts) -> None:
    count = 12 * PIECE_ROWS + 7
    for _ in range(count):
        hosts.send()
    hosts.here.effects.clear()
    answer = hosts.owner.do("unpair", name="lap")
    assert answer["returning"] == count
    assert hosts.here.stream("lap").queued_messages == count - PIECE_ROWS
    assert hosts.follow() == 12
    assert hosts.here.stream("lap").queued_messages == 0


def test_an_end_is_remembered_and_nothing_signed_before_it_brings_the_pairing_back(
    hosts: Hosts,
) -> None:
    change = hosts.owner.draft("peer-change", name="lap", label="laptop")
    hosts.owner.do("unpair", name="lap")
    assert listed(hosts.here) == []
    [over] = listed(hosts.here, all=True)
    assert (over["label"], over["state"], over["link"]) == ("lap", "removed", None)
    assert over["ended_at"]
    before = state(hosts.here)
    for record in (hosts.owner.signed(change), forged(hosts.owner, change, version=9)):
        assert hosts.here.refusal(nobody(), "owner.apply", record=record).code == "not-paired"
    first = {
        "kind": hosts.record.kind,
        "payload": hosts.record.payload,
        "signatures": dict(hosts.record.signatures),
    }
    hosts.here.call(nobody(), "owner.apply", record=first)  # answered as before, and not done again
    assert state(hosts.here) == before
    assert hosts.here.refusal(nobody(), "owner.draft", act="unpair", name="lap").code == (
        "not-paired"
    )


def test_the_records_about_one_host_are_one_sequence_over_all_its_pairings(hosts: Hosts) -> None:
    stale = hosts.owner.draft("unpair", name="lap")
    hosts.owner.do("peer-change", name="lap", label="laptop")
    refusal = hosts.here.refusal(nobody(), "owner.apply", record=hosts.owner.signed(stale))
    assert refusal.code == "conflict"
    stale = hosts.owner.draft("unpair", name="laptop")
    hosts.owner.do("unpair", name="laptop")
    key = hosts.there.host.key_id
    assert hosts.here.do(lambda tx: peers.last_version(tx, key)) == 3
    hosts.pair_anew()
    no = hosts.here.peer_nos["lap"]
    hosts.here.do(
        lambda tx: peers.change(
            tx, no, label="lap", addresses=(), record_id=hosts.record.id, version=4
        )
    )
    again = forged(hosts.owner, stale, label="lap")
    assert hosts.here.refusal(nobody(), "owner.apply", record=again).code == "conflict"
    draft = hosts.owner.draft("unpair", name="lap")
    assert content(draft)["version"] == 5
    hosts.owner.apply(hosts.owner.signed(draft))
    assert [one["state"] for one in listed(hosts.here, all=True)] == ["removed", "removed"]


def test_after_a_new_pairing_the_identities_are_those_of_the_new_one(hosts: Hosts) -> None:
    hosts.owner.do("unpair", name="lap")
    hosts.pair_anew()
    settle(hosts.here, hosts.there)
    message = hosts.send("ben@lap")
    settle(hosts.here, hosts.there)
    assert sent(hosts.here, hosts.ana, message)["ben@lap"]["stage"] == "delivered"
    assert len(hosts.there.call(hosts.ben, "mail.inbox")["messages"]) == 1
    assert [one["state"] for one in listed(hosts.here, all=True)] == ["removed", "down"]


def test_mail_of_a_former_pairing_is_answered_under_the_new_one(hosts: Hosts) -> None:
    mine = hosts.send()
    theirs = hosts.there.call(hosts.ben, "mail.send", to=["ana"], subject="s", body="b")["id"]
    settle(hosts.here, hosts.there)
    hosts.owner.do("unpair", name="lap")
    refused = hosts.here.refusal(hosts.ana, "mail.reply", id=theirs, body="too early")
    assert refused.code == "not-paired"
    hosts.pair_anew()
    refused = hosts.here.refusal(hosts.ana, "mail.reply", id=theirs, body="not heard of yet")
    assert refused.code == "not-paired"
    settle(hosts.here, hosts.there)
    for answered in (theirs, mine):
        answer = hosts.here.call(hosts.ana, "mail.reply", id=answered, body="again")
        assert [one["address"] for one in answer["recipients"]] == ["ben@lap"]
        settle(hosts.here, hosts.there)
        reached = sent(hosts.here, hosts.ana, answer["id"])["ben@lap"]
        assert reached["stage"] == "delivered"
    there = hosts.there.call(hosts.ben, "mail.inbox")["messages"]
    assert [one["thread"] for one in there] == [mine, theirs, mine], "it goes on where it stood"


def test_receipts_for_mail_of_a_former_pairing_go_out_under_the_new_one(hosts: Hosts) -> None:
    """Read and acked after the new pairing, in one call each; what came back stays so."""
    first, second = hosts.send(), hosts.send()
    settle(hosts.here, hosts.there)
    back = hosts.send()
    hosts.owner.do("unpair", name="lap")
    hosts.there.call(hosts.ben, "mail.read", ids=[second])
    hosts.pair_anew()
    settle(hosts.here, hosts.there)
    hosts.there.call(hosts.ben, "mail.ack", ids=[first, second], did="both")
    settle(hosts.here, hosts.there)
    for message in (first, second):
        became = sent(hosts.here, hosts.ana, message)["ben@lap"]
        assert (became["stage"], became["did"]) == ("acked", "both")
    assert sent(hosts.here, hosts.ana, back)["ben@lap"]["stage"] == "returned"


def test_the_next_step_of_an_unknown_address_lists_what_could_be_meant(hosts: Hosts) -> None:
    for address, step in (
        ("bne", "mbx agents"),
        ("bne@lap", "mbx agents"),
        ("bne@desk", "mbx agents"),
        ("ben@nas", "mbx peers list --all"),
    ):
        refused = hosts.here.refusal(
            hosts.ana, "mail.send", to=["ana", address], subject="s", body="b"
        )
        assert (refused.code, refused.next_step) == ("unknown-recipient", step)
    hosts.owner.do("unpair", name="lap")
    refused = hosts.here.refusal(hosts.ana, "mail.send", to=["ben@lap"], subject="s", body="b")
    assert refused.next_step == "mbx peers list --all"


def test_only_the_owner_ends_a_pairing_and_only_as_it_was_named(hosts: Hosts) -> None:
    draft = hosts.owner.draft("unpair", name="lap")
    other = hosts.there.key
    before = state(hosts.here)
    for record, code in (
        (wire("unpair", content(draft), other), "owner-required"),
        (forged(hosts.owner, draft, label="desk"), "conflict"),
        (forged(hosts.owner, draft, label="lap2"), "conflict"),
        (forged(hosts.owner, draft, version=4), "conflict"),
        (forged(hosts.owner, draft, peer="0" * 26), "not-paired"),
        (forged(hosts.owner, draft, extra=1), "owner-required"),
        (forged(hosts.owner, draft, aud=hosts.there.host.key_id), "owner-required"),
    ):
        assert hosts.here.refusal(nobody(), "owner.apply", record=record).code == code
    assert state(hosts.here) == before
    refusal = hosts.here.refusal(nobody(), "owner.draft", act="unpair", name="lab")
    assert (refusal.code, refusal.facts["suggestions"]) == ("not-paired", ["lap"])


# -- by the other host ----------------------------------------------------------------------------


def test_a_host_that_says_bye_for_ever_is_told_of_once_and_listed_until_removed(
    hosts: Hosts,
) -> None:
    message = hosts.send()
    effects = hosts.said(unpairing.dismissed)
    assert any(isinstance(effect, Paired) for effect in effects)
    assert hosts.said(unpairing.dismissed) == []
    assert subjects(hosts.here) == ["lap has removed this host"]
    assert sent(hosts.here, hosts.ana, message)["ben@lap"]["error"] == "not-paired"
    assert (hosts.lap()["state"], hosts.lap()["next"]) == ("removed-us", "mbx peers remove lap")
    refusal = hosts.here.refusal(hosts.ana, "mail.send", to=["ben@lap"], subject="s", body="b")
    assert "not paired with this host any more" in refusal.message
    draft = hosts.owner.draft("unpair", name="lap")
    assert "has removed this host itself" in draft["lines"][0]
    answer = hosts.owner.apply(hosts.owner.signed(draft))
    assert (answer["before"]["paired"], answer["after"]["paired"]) == (False, False)
    assert listed(hosts.here) == []
    assert [one["state"] for one in listed(hosts.here, all=True)] == ["removed"]


def test_a_dial_that_is_turned_away_ends_only_what_once_stood(hosts: Hosts) -> None:
    assert hosts.said(unpairing.turned_away) == []
    assert hosts.lap()["state"] == "down"
    hosts.here.do(lambda tx: peers.seen(tx, hosts.here.peer_nos["lap"], 1))
    hosts.said(unpairing.turned_away)
    assert hosts.lap()["state"] == "removed-us"
    assert len(subjects(hosts.here)) == 1


def test_a_host_that_was_paired_anew_hides_its_former_end(hosts: Hosts) -> None:
    hosts.said(unpairing.dismissed)
    hosts.pair_anew()
    assert [one["state"] for one in listed(hosts.here)] == ["down"]
    every = listed(hosts.here, all=True)
    assert [one["state"] for one in every] == ["removed-us", "down"]
    assert every[0]["next"] is None, "to remove that label would end the new pairing"


# -- label and addresses --------------------------------------------------------------------------


def test_the_owner_gives_a_host_another_label_and_other_addresses(hosts: Hosts) -> None:
    draft = hosts.owner.draft("peer-change", name="lap", addresses=["10.0.0.9", "lap.local:5000"])
    assert (draft["kind"], draft["confirm"]) == ("peer", "lap")
    hosts.owner.apply(hosts.owner.signed(draft))
    assert hosts.lap()["addresses"] == ["10.0.0.9:24629", "lap.local:5000"]
    assert any(isinstance(effect, Paired) for effect in hosts.here.effects)
    answer = hosts.owner.do("peer-change", name="lap", label="laptop")
    assert (answer["before"]["peer"], answer["after"]["peer"]) == ("lap", "laptop")
    assert (hosts.lap()["label"], len(hosts.lap()["addresses"])) == ("laptop", 2)
    hosts.send("ben@laptop")
    assert carry_to(hosts) == 1


def test_the_same_again_is_signed_where_a_link_waits_for_that_and_then_it_goes_on(
    hosts: Hosts,
) -> None:
    context, no = hosts.here.dispatcher.context(), hosts.here.peer_nos["lap"]
    hosts.here.do(lambda tx: relaying.stopped(context, tx, no, "copies-of-peer"))
    hosts.here.do(lambda tx: relaying.stood(context, tx, no, "a" * 26, "b" * 26))
    assert hosts.here.stream("lap").stopped == "copies-of-peer", (
        "a link that was late undoes nothing"
    )
    before = hosts.lap()["addresses"]
    draft = hosts.owner.draft("peer-change", name="lap")
    assert any("two copies of lap were met" in line for line in draft["lines"])
    assert hosts.here.stream("lap").stopped == "copies-of-peer"
    hosts.owner.apply(hosts.owner.signed(draft))
    stream = hosts.here.stream("lap")
    assert (stream.stopped, stream.parted, stream.parted_ms) == (None, None, None)
    assert hosts.lap()["addresses"] == before
    again = hosts.here.refusal(nobody(), "owner.draft", act="peer-change", name="lap")
    assert again.code == "usage"


def carry_to(hosts: Hosts) -> int:
    """The label of the other host has changed here; the streams have not."""
    hosts.here.peer_nos["lap"] = hosts.here.do(lambda tx: peers.present(tx)[0].no)
    return carry(hosts.here, hosts.there)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({}, "usage"),
        ({"addresses": ["192.0.2.1:47100"]}, "usage"),
        ({"label": "lap"}, "usage"),
        ({"label": "desk"}, "name-taken"),
        ({"label": "de-sk"}, "name-taken"),
        ({"label": "box"}, "name-taken"),
        ({"label": "b0x"}, "name-taken"),
        ({"label": "local"}, "name-invalid"),
        ({"label": "A"}, "name-invalid"),
        ({"addresses": ["http://lap"]}, "usage"),
        ({"addresses": ["0.0.0.0"]}, "usage"),
        ({"addresses": [f"10.0.0.{n}" for n in range(9)]}, "too-many"),
    ],
)
def test_what_cannot_be_is_refused_before_anybody_signs(
    hosts: Hosts, asked: dict[str, object], code: str
) -> None:
    third = desk("box")
    pair(hosts.here, third)
    refusal = hosts.here.refusal(nobody(), "owner.draft", act="peer-change", name="lap", **asked)
    assert refusal.code == code
    third.close()


def test_a_record_with_another_pin_is_another_pairing(hosts: Hosts) -> None:
    draft = hosts.owner.draft("peer-change", name="lap", label="laptop")
    pinned = content(draft)["peer"]
    before = state(hosts.here)
    for changed in (
        {"certificate": "11" * 32},
        {"transcript": "22" * 32},
        {"label": "tower"},
        {"owner": hosts.owner.id},
    ):
        record = forged(hosts.owner, draft, peer={**pinned, **changed})
        refusal = hosts.here.refusal(nobody(), "owner.apply", record=record)
        assert (refusal.code, refusal.next_step) == (
            "conflict",
            "a changed key or certificate needs a new pairing: mbx pair",
        )
    record = forged(hosts.owner, draft, version=3)
    assert hosts.here.refusal(nobody(), "owner.apply", record=record).code == "conflict"
    assert state(hosts.here) == before


def test_a_pairing_without_its_record_is_said_to_be_damaged(hosts: Hosts) -> None:
    third = desk("box")
    pair(hosts.here, third)
    refusal = hosts.here.refusal(
        nobody(), "owner.draft", act="peer-change", name="box", label="chest"
    )
    assert refusal.code == "store-damaged"
    assert "mbx peers remove box" in str(refusal.next_step)
    assert hosts.owner.do("unpair", name="box")["peer"] == "box"
    third.close()


def test_a_label_that_was_taken_since_the_draft_is_refused(hosts: Hosts) -> None:
    draft = hosts.owner.draft("peer-change", name="lap", label="box")
    third = desk("box")
    pair(hosts.here, third)
    refusal = hosts.here.refusal(nobody(), "owner.apply", record=hosts.owner.signed(draft))
    assert refusal.code == "name-taken"
    assert readdressing.CHANGE == "peer-change"
    third.close()


# -- limits of a queue ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "size_bytes", "fits"),
    [
        (QUEUE_MESSAGES_MAX - 2, 0, True),
        (QUEUE_MESSAGES_MAX - 1, 0, True),
        (QUEUE_MESSAGES_MAX, 0, False),
        (QUEUE_MESSAGES_MAX + 1, 0, False),
        (0, -1, True),
        (0, 0, True),
        (0, 1, False),
    ],
)
def test_a_full_queue_refuses_mail_and_nothing_else(
    hosts: Hosts, messages: int, size_bytes: int, *, fits: bool
) -> None:
    """`size_bytes`: beyond what leaves room for exactly one more message like the first."""
    hosts.send()
    one = hosts.here.stream("lap").queued_bytes
    full = QUEUE_MAX_BYTES - one + size_bytes if not messages else one
    hosts.here.do(
        lambda tx: tx.run(
            "UPDATE streams SET queued_messages = ?, queued_bytes = ?", (messages, full)
        )
    )
    if fits:
        hosts.send()
    else:
        refusal = hosts.here.refusal(hosts.ana, "mail.send", to=["ben"], subject="s", body="b")
        assert (refusal.code, refusal.facts["peer"]) == ("queue-full", "lap")
        assert refusal.next_step == "mbx peers show lap"
    # receipts and directories go on
    before = hosts.here.stream("lap").out_seq
    hosts.there.call(hosts.ben, "mail.send", to=["ana"], subject="s", body="b")
    carry(hosts.there, hosts.here)
    hosts.here.holder("cai", 30)
    hosts.here.tell()
    assert hosts.here.stream("lap").out_seq == before + 2
    assert hosts.here.do(lambda tx: identities.by_name(tx, "cai")) is not None


def test_a_peer_record_is_built_as_it_is_read() -> None:
    """What the support plants is what a pairing signs."""
    made = Hosts()
    row = made.here.peer("lap")
    pin = made.here.do(lambda tx: readdressing.pin_of(tx, row))
    assert pin.host == made.there.host.key_id
    assert peer_payload(Peer(1, pin, "lap", ()), {})["label"] == "lap"
    made.here.close()
    made.there.close()
