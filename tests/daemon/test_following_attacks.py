"""Attacks of a paired host on what our owner signed, each by its name.

After each the grant is what it was, or less, and the link goes on: a policy that the owner signs
then holds, and another one that it takes back is gone.
"""

import base64
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mbx.core.canonical import JsonValue
from mbx.core.keys import key_id
from mbx.core.peer import Entry, Nack, directory_payload, nack_payload
from mbx.core.record import Record
from mbx.daemon import following
from tests.support.office import nobody
from tests.support.owner import TERMINAL, content, record_of, wire
from tests.support.paired import PairedDesk
from tests.support.siege import HOUR, INVENTED, STRANGER, Siege, siege_of_test

__all__ = ["siege_of_test"]


# -- whose word it is -----------------------------------------------------------------------------


def _by_its_own_owner(siege: Siege) -> Record:
    owner = key_id("owner", siege.foreign.public)
    return siege.forged(siege.foreign, owner=owner, chain=siege.pi.host.key_id)


def _by_its_own_owner_in_the_name_of_ours(siege: Siege) -> Record:
    return siege.forged(siege.foreign, chain=siege.pi.host.key_id)


def _by_a_key_that_it_invents(siege: Siege) -> Record:
    owner = key_id("owner", INVENTED.public)
    return siege.forged(INVENTED, owner=owner, chain=siege.pi.host.key_id)


def _by_its_host_key(siege: Siege) -> Record:
    payload = {**siege.draft(), "chain": siege.pi.host.key_id}
    return record_of(wire("policy", payload, siege.pi.key, role="host"))


def _by_ours_and_its_own_owner(siege: Siege) -> Record:
    return siege.forged(siege.owner.key, siege.foreign, chain=siege.pi.host.key_id)


def _by_our_owner_for_its_chain(siege: Siege) -> Record:
    """As if our owner had been talked into signing a draft of a host that it does not own."""
    return siege.forged(chain=siege.pi.host.key_id, version=1, previous=None)


def _ours_brought_by_it(siege: Siege) -> Record:
    return siege.forged()


def _ours_with_its_signature(siege: Siege) -> Record:
    record = siege.forged(siege.foreign)
    return replace(record, signatures={siege.owner.id: next(iter(record.signatures.values()))})


def _ours_without_signature(siege: Siege) -> Record:
    return replace(siege.forged(), signatures={})


def _a_revocation_of_its_owner(siege: Siege) -> Record:
    owner = key_id("owner", siege.foreign.public)
    return siege.forged(siege.foreign, kind="revoke", owner=owner, chain=siege.pi.host.key_id)


def _a_key_change_by_its_owner(siege: Siege) -> Record:
    payload = _rotation(siege, chain=siege.pi.host.key_id)
    return record_of(wire("rotate", payload, siege.foreign, INVENTED))


def _a_key_change_by_the_new_key_alone(siege: Siege) -> Record:
    return record_of(wire("rotate", _rotation(siege, chain=siege.pi.host.key_id), INVENTED))


def _a_first_key(siege: Siege) -> Record:
    payload = {**_rotation(siege), "previous": None, "until_version": 0, "head": None}
    return record_of(wire("rotate", payload, INVENTED))


def _rotation(siege: Siege, **changes: Any) -> dict[str, Any]:
    draft = siege.owner.draft("rotate", public_key=INVENTED.public.hex())
    return {**content(draft), **changes}


BY_ANOTHER_OWNERS_HOST = [
    _by_its_own_owner,
    _by_its_own_owner_in_the_name_of_ours,
    _by_a_key_that_it_invents,
    _by_its_host_key,
    _by_ours_and_its_own_owner,
    _by_our_owner_for_its_chain,
    _ours_brought_by_it,
    _ours_with_its_signature,
    _ours_without_signature,
    _a_revocation_of_its_owner,
    _a_key_change_by_its_owner,
    _a_key_change_by_the_new_key_alone,
    _a_first_key,
]


@pytest.mark.parametrize("attack", BY_ANOTHER_OWNERS_HOST, ids=lambda one: one.__name__[1:])
def test_a_host_of_another_owner_has_no_power_here(
    siege: Siege, attack: Callable[[Siege], Record]
) -> None:
    record = attack(siege)
    siege.bring(record, by=siege.pi)
    assert siege.refusals(siege.pi) == ["wrong-issuer"]
    assert siege.there.rows("SELECT count(*) FROM owner_keys") == [(1,)]
    assert siege.is_as_before()
    assert siege.goes_on()


# A host of the same owner that somebody has broken into: it has its host key, not the owner's.


def _strangers(siege: Siege) -> Record:
    return siege.forged(STRANGER)


def _of_another_key_by_its_own_word(siege: Siege) -> Record:
    return siege.forged(STRANGER, owner=key_id("owner", STRANGER.public))


def _for_its_own_host_alone(siege: Siege) -> Record:
    return siege.forged(aud=siege.here.host.key_id)


def _for_other_hosts(siege: Siege) -> Record:
    return siege.forged(aud=sorted([siege.here.host.key_id, siege.pi.host.key_id]))


def _for_nobody(siege: Siege) -> Record:
    payload = {name: value for name, value in siege.draft().items() if name != "aud"}
    return record_of(wire("policy", payload, siege.owner.key))


def _of_our_own_chain(siege: Siege) -> Record:
    return siege.forged(chain=siege.there.host.key_id, version=1, previous=None)


def _of_the_chain_of_a_third_host(siege: Siege) -> Record:
    return siege.forged(chain=siege.pi.host.key_id)


def _beyond_its_level(siege: Siege) -> Record:
    return siege.forged(level="collaborate")


def _of_a_level_of_a_later_version(siege: Siege) -> Record:
    return siege.forged(level="partner")


def _with_a_field_more(siege: Siege) -> Record:
    return siege.forged(always=True)


def _without_end(siege: Siege) -> Record:
    return siege.forged(exp=2**53 - 1)


def _with_a_version_of_nothing(siege: Siege) -> Record:
    return siege.forged(version=0, previous=None)


def _in_another_spelling(siege: Siege) -> Record:
    record = siege.forged()
    text = record.payload.replace("yolo", "\\u0079olo")
    signed = siege.owner.key.sign(b"mbx-sig/1\0policy\0" + text.encode())
    return Record("policy", text, {siege.owner.id: base64.b64encode(signed).decode()})


def _a_revocation_that_calls_itself_a_policy(siege: Siege) -> Record:
    return replace(siege.forged(kind="revoke"), kind="policy")


def _a_change_in_what_was_signed(siege: Siege) -> Record:
    record = siege.forged()
    return replace(record, payload=record.payload.replace('"yolo"', '"yoio"'))


def _an_endless_text(siege: Siege) -> Record:
    return replace(siege.forged(), payload="x" * (2 * 1024 * 1024 + 1))


def _a_key_change_that_was_drafted_here(siege: Siege) -> Record:
    """Signed by the owner, and never applied: the new key is thrown away then."""
    draft = siege.owner_there.draft("rotate", public_key=INVENTED.public.hex())
    return record_of(siege.owner.signed(draft, INVENTED))


def _a_key_change_for_its_own_host_alone(siege: Siege) -> Record:
    payload = _rotation(siege, aud=siege.here.host.key_id)
    return record_of(wire("rotate", payload, siege.owner.key, INVENTED))


def _a_key_change_without_ends(siege: Siege) -> Record:
    payload = _rotation(siege, chains=[{"chain": "x"}])
    return record_of(wire("rotate", payload, siege.owner.key, INVENTED))


def _a_key_change_by_the_former_alone(siege: Siege) -> Record:
    return record_of(wire("rotate", _rotation(siege), siege.owner.key))


BY_A_HOST_OF_OURS = [
    _strangers,
    _of_another_key_by_its_own_word,
    _for_its_own_host_alone,
    _for_other_hosts,
    _for_nobody,
    _of_our_own_chain,
    _of_the_chain_of_a_third_host,
    _beyond_its_level,
    _of_a_level_of_a_later_version,
    _with_a_field_more,
    _without_end,
    _with_a_version_of_nothing,
    _in_another_spelling,
    _a_revocation_that_calls_itself_a_policy,
    _a_change_in_what_was_signed,
    _an_endless_text,
    _a_key_change_that_was_drafted_here,
    _a_key_change_for_its_own_host_alone,
    _a_key_change_without_ends,
    _a_key_change_by_the_former_alone,
]


@pytest.mark.parametrize("attack", BY_A_HOST_OF_OURS, ids=lambda one: one.__name__[1:])
def test_a_host_of_ours_cannot_make_up_what_the_owner_signed(
    siege: Siege, attack: Callable[[Siege], Record]
) -> None:
    siege.bring(attack(siege))
    assert len(siege.refusals(siege.here)) == 1
    assert siege.there.rows("SELECT count(*) FROM owner_keys") == [(1,)]
    assert siege.is_as_before()
    assert siege.goes_on()


@pytest.mark.parametrize("kind", ["directive", "takeover", "peer", "unpair", "backup", "restore"])
def test_nothing_else_that_the_owner_signs_acts_on_another_host(siege: Siege, kind: str) -> None:
    siege.bring(siege.forged(kind=kind, type=kind))
    assert siege.is_as_before()
    assert siege.goes_on()


# -- what the owner did sign, used otherwise ------------------------------------------------------


def _own(siege: Siege) -> Record:
    """The record of the policy in force, as `lap` has it."""
    [place] = [
        one.record
        for one in siege.here.places("lap")
        if one.record is not None and one.record.id == siege.policy
    ]
    return place


def test_replayed_from_a_third_host_of_ours_it_is_what_it_was(siege: Siege) -> None:
    vm, _ = siege.add("vm", "cat", 40)
    record = _own(siege)
    siege.revoke(siege.policy)
    siege.settle()
    siege.bring(record, by=vm)
    assert siege.level() == "ask"
    assert siege.there.rows("SELECT count(*) FROM owner_records WHERE version IS NULL") == [(3,)]


def test_a_new_one_handed_on_by_a_third_host_of_ours_is_refused(siege: Siege) -> None:
    vm, _ = siege.add("vm", "cat", 40)
    siege.bring(siege.forged(), by=vm)
    assert siege.refusals(vm) == ["malformed"]
    assert siege.is_as_before()
    assert siege.goes_on()


def test_an_old_one_again_after_it_was_taken_back(siege: Siege) -> None:
    record = _own(siege)
    siege.revoke(siege.policy)
    siege.settle()
    siege.bring(record, record)
    assert siege.level() == "ask"
    assert siege.goes_on()


def test_the_same_version_with_other_content_makes_neither_count(siege: Siege) -> None:
    """Two drafts were signed for one place, and one of them was kept from somebody."""
    other = siege.forged()
    newest = siege.set("ben@lap", "autonomous", "ana@desk")
    siege.settle()
    assert f"record {newest}" in siege.line()
    siege.bring(other)
    assert "stands there in two versions" in siege.line()
    assert siege.line_of(siege.pi, siege.eve).startswith("policy: ask")
    assert siege.goes_on()


def test_of_two_for_one_place_what_was_taken_back_stays_so(siege: Siege) -> None:
    wide = siege.set("ben", "yolo", "ana@desk", on=siege.owner_there)
    siege.settle()
    revoke = record_of(siege.owner.signed(siege.owner.draft("revoke", records=[wide])))
    siege.set("ana", "collaborate", "ben@lap")
    siege.settle()
    siege.bring(revoke)
    assert f"revoked by record {revoke.id}" in siege.line()


def test_what_was_held_back_voids_what_is_older(siege: Siege) -> None:
    """A host that keeps a revocation to itself cannot go on with its chain."""
    siege.revoke()
    siege.set("ana", "collaborate", "ben@lap")
    newer = siege.here.places("lap")[-1].record
    assert newer is not None
    siege.bring(newer)
    assert "record 2 of the owner's chain on desk is missing" in siege.line()
    assert siege.goes_on()


def test_what_was_held_back_of_one_chain_voids_what_is_older_in_the_others(siege: Siege) -> None:
    mine = siege.set("ben", "yolo", "ana@desk", on=siege.owner_there)
    siege.settle()
    assert f"record {mine}" in siege.line()
    siege.revoke(mine)
    siege.set("ana", "collaborate", "ben@lap")
    newer = siege.here.places("lap")[-1].record
    assert newer is not None
    siege.bring(newer)
    assert "record 2 of the owner's chain on desk is missing" in siege.line()
    held = siege.set("ben", "autonomous", "ana@desk", on=siege.owner_there)
    siege.settle()
    assert f"record {held}" in siege.line(), "what was signed since then holds"


def test_a_version_far_ahead_voids_what_is_older_and_the_owner_can_go_on_here(siege: Siege) -> None:
    far = siege.forged(version=2**53 - 1, level="ask", classes=[])
    siege.bring(far)
    assert siege.level() == "ask"
    mine = siege.set("ben", "autonomous", "ana@desk", on=siege.owner_there)
    siege.settle()
    assert f"record {mine}" in siege.line()
    siege.revoke(mine, on=siege.owner_there)
    assert siege.level() == "ask"


def test_from_before_we_were_told_of_anything_nothing_comes_back(siege: Siege) -> None:
    vm, _ = siege.add("vm", "cat", 40)
    siege.set("ben@lap", "ask", "ana@desk")
    siege.set("ben@lap", "collaborate", "ana@desk")
    siege.here.places("vm")
    old, new = [one.record for one in siege.here.places("vm")[-2:]]
    assert old is not None
    assert new is not None
    first = vm.stream("desk").in_seq + 1
    vm.take("desk", first, [new, old])
    nacks = [one.record for one in vm.places("desk") if one.record and one.record.kind == "nack"]
    assert '"code":"conflict"' in nacks[-1].payload
    assert [one["id"] for one in vm.call(nobody(), "policy.list", all=True)["policies"]] == [new.id]


def test_a_time_that_has_not_come_never_comes(siege: Siege) -> None:
    """Else what is taken back "up to now" would come to life later."""
    draft = siege.draft()
    early = siege.forged(iat=draft["iat"] + HOUR, exp=draft["iat"] + 2 * HOUR)
    siege.bring(early)
    assert "had not come when it was taken" in siege.line()
    siege.revoke(on=siege.owner_there)
    siege.pass_ms(HOUR + 60_000)
    assert siege.level() == "ask"
    assert siege.line_of(siege.pi, siege.eve).startswith("policy: ask")


def test_what_comes_after_its_end_grants_nothing(siege: Siege) -> None:
    siege.set("ben@lap", "yolo", "ana@desk", ttl_s=3_600)
    siege.pass_ms(HOUR)
    assert "the policy has expired" in siege.line()
    assert siege.goes_on()


def test_an_identity_of_another_host_with_the_id_of_ours_gains_nothing(siege: Siege) -> None:
    """A third host of ours announces ben's id as its own; what is given to that is not ben's."""
    vm, cat = siege.add("vm", "cat", 40)
    ben = siege.identity(siege.there, "ben")
    aud: dict[str, JsonValue]
    entry = Entry(ben, "mole", "dev", "", "live", None, False)
    for host in (siege.here, siege.there):
        aud = {"iat": 1, "nonce": "0" * 32, "aud": host.host.key_id}
        signed = vm.host.sign("directory", directory_payload([entry], aud))
        host.take("vm", host.stream("vm").in_seq + 1, [signed.record(vm.host.key_id)])
    siege.set("mole@vm", "yolo", "ana@desk", "cat@vm")
    siege.settle()
    assert siege.line() == siege.before
    siege.set("ana", "yolo", "mole@vm")
    letter = {"to": ["ana@desk"], "subject": "s", "body": "b"}
    message = siege.there.call(siege.ben, "mail.send", **letter)["id"]
    siege.settle()
    [read] = siege.here.call(siege.ana, "mail.read", ids=[message])["messages"]
    assert read["policy"] == "ask", "mail of ben on lap is not mail of mole on vm"
    assert cat


def test_a_host_that_refuses_changes_nothing_here_and_the_owner_is_told(siege: Siege) -> None:
    nack = Nack(siege.policy, None, "wrong-issuer", "")
    aud: dict[str, JsonValue] = {"iat": 1, "nonce": "0" * 32, "aud": siege.here.host.key_id}
    signed = siege.there.host.sign("nack", nack_payload(nack, aud))
    first = siege.here.stream("lap").in_seq + 1
    siege.here.take("lap", first, [signed.record(siege.there.host.key_id)])
    subjects = [one["subject"] for one in siege.here.call(TERMINAL, "owner.inbox")["messages"]]
    assert subjects == ["lap refuses a record that you signed (policy)"]
    assert siege.here.call(nobody(), "policy.show", id=siege.policy)["in_effect"]


def test_nobody_fills_the_owners_mailbox_by_refusing_again_and_again(siege: Siege) -> None:
    """Neither a host of ours, nor one of another owner's, which was never sent it."""

    def refuse(host: PairedDesk, record: str) -> None:
        for number in range(3):
            aud: dict[str, JsonValue] = {"iat": 1, "nonce": f"{number}" * 32}
            aud["aud"] = siege.here.host.key_id
            nack = nack_payload(Nack(record, None, "wrong-issuer", ""), aud)
            signed = host.host.sign("nack", nack).record(host.host.key_id)
            siege.here.take(host.label, siege.here.stream(host.label).in_seq + 1, [signed])

    def told() -> tuple[int, int]:
        mail = siege.here.call(TERMINAL, "owner.inbox")["messages"]
        rows = siege.here.rows("SELECT count(*) FROM audit WHERE act = 'record-refused'")
        return len(mail), int(rows[0][0])

    refuse(siege.pi, siege.policy)
    assert told() == (0, 0)
    refuse(siege.there, siege.policy)
    assert told() == (1, 1)
    refuse(siege.there, siege.set("ben@lap", "autonomous", "ana@desk"))
    assert told() == (2, 2)


def test_a_refusal_of_what_is_no_record_of_the_owners_is_about_mail(siege: Siege) -> None:
    nack = Nack("0" * 26, None, "wrong-issuer", "")
    context, peer = siege.here.dispatcher.context(), siege.here.peer("lap")
    assert siege.here.do(lambda tx: following.refused(context, tx, peer, nack)) is None
