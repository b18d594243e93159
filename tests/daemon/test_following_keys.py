"""A change of the owner's key on one host, and what becomes of it on the others."""

from typing import Any

from mbx.core.keys import SigningKey, key_id
from tests.support.office import nobody
from tests.support.owner import TERMINAL, Wire, content, record_of, wire
from tests.support.paired import settle
from tests.support.siege import INVENTED, STRANGER, Siege, siege_of_test

__all__ = ["siege_of_test"]


# -- the owner's key ------------------------------------------------------------------------------


def _rotated(siege: Siege, to: SigningKey = INVENTED) -> Wire:
    """The owner changes the key on `desk`."""
    siege.pass_ms()
    draft = siege.owner.draft("rotate", public_key=to.public.hex())
    record = siege.owner.signed(draft, to)
    siege.owner.apply(record)
    siege.owner.key = siege.owner_there.key = to
    return record


def test_a_change_of_the_key_reaches_the_hosts_of_the_owner(siege: Siege) -> None:
    mine = siege.set("ben", "autonomous", "ana@desk", on=siege.owner_there)
    siege.settle()
    former = siege.owner.key
    _rotated(siege)
    siege.settle()
    shown = siege.there.call(nobody(), "owner.show")
    assert shown["owner"]["key_id"] == key_id("owner", INVENTED.public)
    assert shown["former"] == [key_id("owner", former.public)]
    for host, label in ((siege.here, "lap"), (siege.there, "desk")):
        peer = host.call(nobody(), "peers.show", name=label)
        assert (peer["owner"], peer["owner_key"]) == ("same", key_id("owner", INVENTED.public))
    assert f"record {mine}" in siege.line(), "what the former key signed here holds on"
    assert siege.goes_on()


def test_a_former_key_signs_nothing_more_on_any_chain(siege: Siege) -> None:
    siege.set("ben", "collaborate", "ana@desk", on=siege.owner_there)
    siege.settle()
    former = siege.owner.key
    _rotated(siege)
    siege.settle()
    before = siege.line()
    assert siege.level() == "collaborate"
    siege.bring(siege.forged(former, owner=key_id("owner", former.public)))
    assert siege.refusals(siege.here)[-1] == "wrong-issuer"
    again: dict[str, Any] = {
        "version": 1,
        "previous": None,
        "owner": key_id("owner", former.public),
    }
    siege.bring(siege.forged(former, **again))
    assert siege.line() in (before, before.replace("collaborate", "ask")) or siege.level() == "ask"
    assert siege.goes_on()


def test_what_the_former_key_signed_here_unseen_by_the_other_host_is_void(siege: Siege) -> None:
    siege.set("ben", "collaborate", "ana@desk", on=siege.owner_there)
    siege.settle()
    siege.set("ben", "yolo", "ana@desk", on=siege.owner_there)
    _rotated(siege)
    siege.settle()
    assert "signed by no key of the owner's" in siege.line()
    assert siege.goes_on()


def test_a_key_change_again_or_by_a_former_key_is_refused(siege: Siege) -> None:
    first = siege.owner.key
    record = record_of(_rotated(siege))
    siege.settle()
    siege.bring(record)
    back = content(siege.owner.draft("rotate", public_key=STRANGER.public.hex()))
    back["previous"] = key_id("owner", first.public)
    siege.bring(record_of(wire("rotate", back, first, STRANGER)))
    assert siege.there.rows("SELECT count(*) FROM owner_keys") == [(2,)]
    assert siege.goes_on()


def test_a_change_back_to_a_former_key_is_refused_and_holds_nothing_up(siege: Siege) -> None:
    """Signed by both keys: what was given up, perhaps since somebody has it, never comes back."""
    first = siege.owner.key
    _rotated(siege)
    siege.settle()
    back = content(siege.owner.draft("rotate", public_key=STRANGER.public.hex()))
    back |= {"owner": key_id("owner", first.public), "public_key": first.public.hex()}
    siege.bring(record_of(wire("rotate", back, siege.owner.key, first)))
    assert siege.refusals(siege.here) == ["conflict"]
    assert siege.goes_on()


def test_hosts_on_which_the_key_was_changed_at_once_go_apart_and_are_told(siege: Siege) -> None:
    for owner, heir in ((siege.owner, INVENTED), (siege.owner_there, STRANGER)):
        draft = owner.draft("rotate", public_key=heir.public.hex())
        owner.apply(owner.signed(draft, heir))
        owner.key = heir
    siege.settle()
    for host, heir in ((siege.here, INVENTED), (siege.there, STRANGER)):
        owner_id = host.call(nobody(), "owner.show")["owner"]["key_id"]
        assert owner_id == key_id("owner", heir.public)
        told = [one["subject"] for one in host.call(TERMINAL, "owner.inbox")["messages"]]
        assert [text.endswith("refuses a record that you signed (rotate)") for text in told] == [
            True
        ]
    siege.set("ben@lap", "yolo", "ana@desk")
    siege.settle()
    assert siege.line() == siege.before, "what holds there is what was signed before"


def test_a_third_host_hears_of_the_new_key_before_it_hears_what_that_signed(siege: Siege) -> None:
    """Also where the host on which the key was changed cannot be reached from there."""
    vm, _ = siege.add("vm", "cat", 40)
    _rotated(siege)
    siege.settle()
    siege.set("cat@vm", "collaborate", "ben", on=siege.owner_there)
    settle(siege.there, vm)
    [listed] = vm.call(nobody(), "policy.list", to="cat")["policies"]
    assert (listed["to"], listed["in_effect"]) == (["cat"], True)
    settle(siege.here, vm)
    assert vm.call(nobody(), "owner.show")["owner"]["key_id"] == siege.owner.id
