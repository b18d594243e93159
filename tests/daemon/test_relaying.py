"""Mail, receipts and refusals between two hosts: real stores and rules, records carried by hand."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from mbx.core.record import Record
from mbx.daemon.effects import Arrived, Queued
from mbx.daemon.gate import Caller
from tests.support.office import shell
from tests.support.owner import TERMINAL, Owner, an_owner
from tests.support.paired import PairedDesk, carry, desk, pair, sent, settle


class Hosts:
    """Two paired hosts, ana on the one and ben on the other."""

    def __init__(self) -> None:
        self.here, self.there = desk("desk"), desk("lap")
        self.ana = self.here.holder("ana", 10)
        self.ben = self.there.holder("ben", 20)
        pair(self.here, self.there)
        settle(self.here, self.there)

    def send(self, to: str = "ben", **words: object) -> dict[str, Any]:
        content: dict[str, object] = {"subject": "hello", "body": "over the wire", **words}
        return self.here.call(self.ana, "mail.send", to=[to], **content)

    def inbox(self, host: PairedDesk, caller: Caller) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = host.call(caller, "mail.inbox")["messages"]
        return found


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    made = Hosts()
    yield made
    made.here.close()
    made.there.close()


def test_mail_reaches_a_name_that_only_the_other_host_has(hosts: Hosts) -> None:
    answer = hosts.send()
    assert answer["recipients"][0]["address"] == "ben@lap"
    assert answer["recipients"][0]["state"] == "remote"
    assert any(isinstance(effect, Queued) for effect in hosts.here.effects)
    carry(hosts.here, hosts.there)
    [message] = hosts.inbox(hosts.there, hosts.ben)
    assert message["id"] == answer["id"]
    assert message["from"] == "ana@desk"
    assert message["trust"] == "verified (paired host desk)"
    assert message["policy"] == "ask"
    assert any(isinstance(effect, Arrived) for effect in hosts.there.effects)
    [read] = hosts.there.call(hosts.ben, "mail.read", ids=[answer["id"]])["messages"]
    assert read["body"] == "over the wire"


def test_hosts_are_told_by_the_labels_of_whoever_reads(hosts: Hosts) -> None:
    hosts.there.connection.execute("UPDATE peers SET label = 'big-box'")
    hosts.there.holder("cat", 21)
    hosts.there.tell()
    settle(hosts.here, hosts.there)
    message = hosts.here.call(
        hosts.ana, "mail.send", to=["ben", "cat", "ana"], subject="s", body="b"
    )
    settle(hosts.here, hosts.there)
    [read] = hosts.there.call(hosts.ben, "mail.read", ids=[message["id"]])["messages"]
    assert read["from"] == "ana@big-box"
    assert sorted(read["to"]) == ["ana@big-box", "ben@lap", "cat@lap"]


def test_receipts_tell_the_sender_what_became_of_it(hosts: Hosts) -> None:
    message = hosts.send()["id"]
    assert sent(hosts.here, hosts.ana, message)["ben@lap"]["stage"] == "queued"
    carry(hosts.here, hosts.there)
    assert sent(hosts.here, hosts.ana, message)["ben@lap"]["stage"] == "handed-over"
    settle(hosts.here, hosts.there)
    assert sent(hosts.here, hosts.ana, message)["ben@lap"]["stage"] == "delivered"
    hosts.there.call(hosts.ben, "mail.read", ids=[message])
    settle(hosts.here, hosts.there)
    assert sent(hosts.here, hosts.ana, message)["ben@lap"]["stage"] == "read"
    hosts.there.call(
        hosts.ben, "mail.ack", ids=[message], outcome="acted", did="built it", note="green"
    )
    settle(hosts.here, hosts.there)
    copy = sent(hosts.here, hosts.ana, message)["ben@lap"]
    assert (copy["stage"], copy["did"], copy["note"], copy["outcome"]) == (
        "acked",
        "built it",
        "green",
        "acted",
    )


def test_a_reply_comes_back_into_the_thread(hosts: Hosts) -> None:
    first = hosts.send(kind="request")
    settle(hosts.here, hosts.there)
    answer = hosts.there.call(hosts.ben, "mail.reply", id=first["id"], body="done", final="acted")
    assert answer["recipients"][0]["address"] == "ana@desk"
    settle(hosts.here, hosts.there)
    [reply] = hosts.inbox(hosts.here, hosts.ana)
    assert (reply["from"], reply["thread"]) == ("ben@lap", first["thread"])
    thread = hosts.here.call(hosts.ana, "mail.thread", id=first["id"])["messages"]
    assert [one["id"] for one in thread] == [first["id"], answer["id"]]


def test_what_comes_twice_is_there_once(hosts: Hosts) -> None:
    message = hosts.send()["id"]
    places = hosts.here.places("lap", hosts.here.stream("lap").acked_seq)
    first = places[0].seq
    arrivals = [place.record for place in places if place.record]
    assert hosts.there.take("desk", first, arrivals) == places[-1].seq
    assert hosts.there.take("desk", first, arrivals) == places[-1].seq
    assert [one["id"] for one in hosts.inbox(hosts.there, hosts.ben)] == [message]


def test_one_record_for_several_hosts(hosts: Hosts) -> None:
    hosts.here.holder("cat", 11)
    answer = hosts.here.call(
        hosts.ana, "mail.send", to=["cat", "ben@lap"], subject="both", body="one record"
    )
    assert [one["state"] for one in answer["recipients"]] == ["live-next-prompt", "remote"]
    settle(hosts.here, hosts.there)
    assert [one["id"] for one in hosts.inbox(hosts.there, hosts.ben)] == [answer["id"]]


def test_the_owner_of_the_other_host_has_a_mailbox_there(hosts: Hosts) -> None:
    answer = hosts.send("owner@lap")
    assert answer["recipients"][0]["address"] == "owner@lap"
    settle(hosts.here, hosts.there)
    assert hosts.there.rows(
        "SELECT count(*) FROM deliveries AS d JOIN identities AS i"
        " ON i.no = d.recipient_no WHERE i.name = 'owner'"
    ) == [(1,)]


def test_a_name_on_two_hosts_is_ambiguous_unless_it_is_here(hosts: Hosts) -> None:
    third = desk("pi")
    third.holder("ben", 30)
    pair(hosts.here, third)
    settle(hosts.here, third)
    refusal = hosts.here.refusal(hosts.ana, "mail.send", to=["ben"], subject="s", body="b")
    assert refusal.code == "ambiguous"
    assert sorted(refusal.facts["candidates"]) == ["ben@lap", "ben@pi"]  # type: ignore[call-overload]
    assert hosts.send("ben@pi")["recipients"][0]["address"] == "ben@pi"
    hosts.here.holder("ben", 12)
    assert hosts.send("ben")["recipients"][0]["address"] == "ben@desk"
    third.close()


def test_a_role_and_everyone_reach_both_hosts(hosts: Hosts) -> None:
    assert [one["address"] for one in hosts.send("role:dev")["recipients"]] == ["ben@lap"]
    assert [one["address"] for one in hosts.send("*")["recipients"]] == ["ben@lap"]


def _waking(hosts: Hosts) -> list[tuple[str, int]]:
    return hosts.there.rows(
        "SELECT m.subject, d.wakes FROM deliveries AS d JOIN messages AS m ON m.no = d.message_no"
        " ORDER BY m.no"
    )


def test_what_wakes_nobody_here_wakes_nobody_there(hosts: Hosts) -> None:
    hosts.send("ben@lap", kind="request", subject="wakes")
    hosts.send("*", kind="request", subject="to everybody")
    hosts.send("ben@lap", kind="request", subject="as asked", wake="inbox")
    settle(hosts.here, hosts.there)
    assert _waking(hosts) == [("wakes", 1), ("to everybody", 0), ("as asked", 0)]


def test_an_unknown_name_there_is_refused_here_with_a_suggestion(hosts: Hosts) -> None:
    refusal = hosts.here.refusal(hosts.ana, "mail.send", to=["bne@lap"], subject="s", body="b")
    assert refusal.code == "unknown-recipient"
    assert refusal.facts["suggestions"] == {"bne@lap": ["ben@lap"]}
    assert hosts.here.stream("lap").queued_messages == 0


def test_agents_list_the_identities_of_paired_hosts_in_their_own_words(hosts: Hosts) -> None:
    agents = {one["address"]: one for one in hosts.here.call(hosts.ana, "agents.list")["agents"]}
    assert agents["ben@lap"]["host"] == "lap"
    assert agents["ben@lap"]["role"] == "dev"
    assert agents["ben@lap"]["state"] in {"live", "idle", "offline", "unknown", "remote"}


# -- the owner's own mail --------------------------------------------------------------------------


def _letter(hosts: Hosts, owner: Owner) -> dict[str, Any]:
    draft = hosts.here.call(TERMINAL, "owner.compose", to=["ben@lap"], subject="Stop", body="Now.")
    return owner.apply(owner.signed(draft))


def test_a_letter_of_the_owner_of_both_hosts_has_authority_on_both(hosts: Hosts) -> None:
    owner, _ = an_owner(hosts.here), an_owner(hosts.there)
    assert _letter(hosts, owner)["recipients"][0]["address"] == "ben@lap"
    settle(hosts.here, hosts.there)
    [listed] = hosts.inbox(hosts.there, hosts.ben)
    assert (listed["from"], listed["trust"]) == ("owner@desk", "authority: OWNER")
    assert (
        hosts.there.call(hosts.ben, "mail.read", ids=[listed["id"]])["messages"][0]["body"]
        == "Now."
    )


def test_a_letter_of_another_owner_is_refused_and_comes_back(hosts: Hosts) -> None:
    owner, _ = an_owner(hosts.here, 7), an_owner(hosts.there, 8)
    letter = _letter(hosts, owner)
    settle(hosts.here, hosts.there)
    assert hosts.inbox(hosts.there, hosts.ben) == []
    [returned] = hosts.here.call(TERMINAL, "owner.inbox")["messages"]
    assert returned["from"] == "mbx@desk"
    assert returned["thread"] == letter["thread"]


def test_the_sender_on_another_host_is_told_that_its_mail_was_handed_on(hosts: Hosts) -> None:
    owner = an_owner(hosts.there)
    hosts.there.holder("cat", 21)
    message = hosts.send()["id"]
    settle(hosts.here, hosts.there)
    hosts.there.call(hosts.ben, "identity.release")
    owner.do("forward", name="ben", to="cat")
    settle(hosts.here, hosts.there)
    copy = sent(hosts.here, hosts.ana, message)["ben@lap"]
    assert (copy["stage"], copy["outcome"], copy["note"]) == (
        "acked",
        "superseded",
        "forwarded to cat",
    )


# -- what is not believed -------------------------------------------------------------------------


def _forged(record: Record, **changes: str) -> Record:
    payload = record.payload
    for old, new in changes.items():
        payload = payload.replace(old, new)
    return replace(record, payload=payload)


def _only_message(hosts: Hosts) -> tuple[int, Record]:
    hosts.send()
    place = hosts.here.places("lap", hosts.here.stream("lap").acked_seq)[-1]
    assert place.record is not None
    return place.seq, place.record


def test_a_changed_record_is_refused_and_returned_and_the_next_one_passes(hosts: Hosts) -> None:
    seq, record = _only_message(hosts)
    bad = _forged(record, wire="hand")
    assert hosts.there.take("desk", seq, [bad]) == seq
    assert hosts.inbox(hosts.there, hosts.ben) == []
    assert hosts.there.stream("desk").in_seq == seq


def test_mail_that_the_other_host_refuses_comes_back_once_as_mail(hosts: Hosts) -> None:
    ben = hosts.there.rows("SELECT no FROM identities WHERE name = 'ben' AND peer_no IS NULL")
    message = hosts.send()["id"]
    hosts.there.connection.execute("UPDATE identities SET retired_ms = 1 WHERE no = ?", ben[0])
    settle(hosts.here, hosts.there)
    copy = sent(hosts.here, hosts.ana, message)["ben@lap"]
    assert (copy["stage"], copy["error"]) == ("returned", "retired")
    [returned] = hosts.inbox(hosts.here, hosts.ana)
    assert returned["from"] == "mbx@desk"
    assert returned["subject"].startswith("Returned: your message to ben@lap")
    [read] = hosts.here.call(hosts.ana, "mail.read", ids=[returned["id"]])["messages"]
    assert message in read["body"]
    assert read["reply_to"] == message


def test_a_host_speaks_for_its_own_names_only(hosts: Hosts) -> None:
    third = desk("pi")
    eve = third.holder("eve", 30)
    pair(third, hosts.there)
    settle(third, hosts.there)
    third.call(eve, "mail.send", to=["ben"], subject="s", body="b")
    place = third.places("lap", third.stream("lap").acked_seq)[-1]
    assert place.record is not None
    # What pi signed, brought by desk as if it were desk's own.
    seq = hosts.there.stream("desk").in_seq + 1
    assert hosts.there.take("desk", seq, [place.record]) == seq
    assert hosts.inbox(hosts.there, hosts.ben) == []
    third.close()


def test_a_receipt_for_mail_on_another_host_changes_nothing(hosts: Hosts) -> None:
    third = desk("pi")
    third.holder("cat", 30)
    pair(hosts.here, third)
    settle(hosts.here, third)
    message = hosts.send("cat@pi")["id"]
    ben = hosts.there.rows("SELECT identity FROM identities WHERE name = 'ben'")[0][0]
    cat = third.rows("SELECT identity FROM identities WHERE name = 'cat'")[0][0]
    for recipient in (ben, cat):
        payload = {
            "v": 1,
            "type": "receipt",
            "iat": 1,
            "nonce": "0" * 32,
            "aud": hosts.here.host.key_id,
            "epoch": 1,
            "seq": 1,
            "facts": [{"message": message, "recipient": recipient, "stage": 4, "at": 1}],
        }
        signed = hosts.there.host.sign("receipt", payload).record(hosts.there.host.key_id)  # type: ignore[arg-type]
        seq = hosts.here.stream("lap").in_seq + 1
        hosts.here.take("lap", seq, [signed])
    assert sent(hosts.here, hosts.ana, message)["cat@pi"]["stage"] == "queued"
    third.close()


def test_receipts_never_go_backwards(hosts: Hosts) -> None:
    message = hosts.send()["id"]
    settle(hosts.here, hosts.there)
    hosts.there.call(hosts.ben, "mail.ack", ids=[message])
    settle(hosts.here, hosts.there)
    old = hosts.there.places("desk", 0)
    receipts = [p.record for p in old if p.record and p.record.kind == "receipt"]
    seq = hosts.here.stream("lap").in_seq + 1
    hosts.here.take("lap", seq, receipts)
    assert sent(hosts.here, hosts.ana, message)["ben@lap"]["stage"] == "acked"


def test_what_no_link_was_handed_for_three_days_comes_back(hosts: Hosts) -> None:
    from mbx.core.limits import UNOFFERED_MAX_MS
    from mbx.daemon import bouncing

    message = hosts.send()["id"]
    peer = hosts.here.peer("lap")

    def give_up() -> int:
        context = hosts.here.dispatcher.context()
        return len(hosts.here.do(lambda tx: bouncing.give_up(context, tx, peer)))

    hosts.here.world.pass_ms(UNOFFERED_MAX_MS)
    assert give_up() == 0
    hosts.here.world.pass_ms(1)
    assert give_up() > 0
    assert give_up() == 0
    copy = sent(hosts.here, hosts.ana, message)["ben@lap"]
    assert (copy["stage"], copy["error"]) == ("returned", "expired")
    place = hosts.here.places("lap", hosts.here.stream("lap").acked_seq)[-1]
    assert place.record is None
    settle(hosts.here, hosts.there)
    assert hosts.inbox(hosts.there, hosts.ben) == []
    assert hosts.here.stream("lap").queued_messages == 0
    assert shell(1)
