"""What paired hosts tell each other of their identities: who has the mail of a retired one now."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from mbx.core.keys import SigningKey
from mbx.core.peer import Onward
from mbx.daemon import directory, relaying
from mbx.daemon.effects import Described, Met
from mbx.daemon.linkstate import LinkState
from mbx.store import forwards, peers
from tests.support.owner import Owner
from tests.support.paired import PairedDesk, desk, pair, sent, settle

NEW: Final = LinkState(True, 1, None, 0, None, names_run=True)
OLD: Final = LinkState(True, 1, None, 0, None)
"""A link to an older mbx: it names no start of its daemon, and knows no `forwards`."""


class Two:
    """ben, cai and dee on the lap; ana on the desk, who writes to ben."""

    def __init__(self) -> None:
        self.here, self.there = desk("desk"), desk("lap")
        self.ana = self.here.holder("ana", 10)
        for number, name in enumerate(("ben", "cai", "dee"), 20):
            self.there.call(self.there.holder(name, number), "identity.release")
        self.owner = Owner(self.there, SigningKey.from_seed(b"o" * 32))
        self.owner.enroll()
        self.link: LinkState | None = NEW
        self.there.dispatcher._link = lambda peer_no: self.link
        pair(self.here, self.there)
        self.settle()

    def settle(self) -> None:
        self.there.tell()
        settle(self.here, self.there)

    def forward(self, old: str, new: str) -> None:
        self.owner.do("forward", name=old, to=new)
        self.settle()

    def kinds(self) -> list[str]:
        """Of the records that the lap has queued for the desk since it was paired."""
        return [place.record.kind for place in self.there.places("desk") if place.record]

    def write(self, to: str = "ben@lap") -> dict[str, Any]:
        return self.here.call(self.ana, "mail.send", to=[to], subject="s", body="b")

    def refusal(self, to: str = "ben@lap") -> str:
        refused = self.here.refusal(self.ana, "mail.send", to=[to], subject="s", body="b")
        return f"{refused.code}: {refused.message}"


@pytest.fixture
def two() -> Iterator[Two]:
    made = Two()
    yield made
    for one in (made.here, made.there):
        one.close()


@pytest.mark.parametrize("to", ["ben@lap", "ben"])
def test_who_writes_to_a_forwarded_identity_of_a_paired_host_is_told_who_has_its_mail(
    two: Two, to: str
) -> None:
    two.forward("ben", "cai")
    answer = two.write(to)
    [reach] = answer["recipients"]
    assert (reach["address"], reach["state"]) == ("ben@lap", "forwarded")
    assert reach["detail"].startswith("forwarded to cai@lap: queued for lap")
    settle(two.here, two.there)
    assert sent(two.here, two.ana, answer["id"])["cai@lap"]["stage"] == "delivered"


def test_a_reply_to_one_who_is_forwarded_by_now_reaches_whoever_has_its_mail(two: Two) -> None:
    ben = two.there.holder("eve", 30)
    letter = two.there.call(ben, "mail.send", to=["ana@desk"], subject="s", body="b")["id"]
    two.there.call(ben, "identity.release")
    two.settle()
    two.forward("eve", "cai")
    answer = two.here.call(two.ana, "mail.reply", id=letter, body="yes")
    assert answer["recipients"][0]["state"] == "forwarded"
    settle(two.here, two.there)
    assert sent(two.here, two.ana, answer["id"])["cai@lap"]["stage"] == "delivered"


def test_a_forward_that_is_forwarded_further_leads_to_its_end(two: Two) -> None:
    two.forward("ben", "cai")
    two.forward("cai", "dee")
    for name in ("ben", "cai"):
        [reach] = two.write(f"{name}@lap")["recipients"]
        assert reach["detail"].startswith("forwarded to dee@lap")


def test_a_forward_that_leads_nowhere_any_more_is_told_as_none(two: Two) -> None:
    two.forward("ben", "cai")
    two.owner.do("retire", name="cai")
    two.settle()
    assert two.refusal().startswith("unknown-recipient: ben@lap: retired there")
    two.forward("cai", "dee")
    assert two.write()["recipients"][0]["detail"].startswith("forwarded to dee@lap")


def test_what_was_told_is_not_told_again(two: Two) -> None:
    two.forward("ben", "cai")
    before = two.kinds()
    assert before.count("forwards") == 1
    for link in (NEW, None, OLD, NEW):
        two.link = link
        two.there.tell()
    assert two.kinds() == before


def test_an_older_mbx_hears_that_it_is_retired_and_of_no_kind_that_it_does_not_know(
    two: Two,
) -> None:
    two.link = OLD
    two.forward("ben", "cai")
    assert set(two.kinds()) <= {"directory", "receipt"}
    assert two.refusal().startswith("unknown-recipient: ben@lap: retired there")
    # It is brought up to date later: what it did not hear is told as soon as a link stands.
    two.link = NEW
    two.settle()
    assert two.kinds().count("forwards") == 1
    assert two.write()["recipients"][0]["state"] == "forwarded"


def test_who_has_no_link_hears_of_it_when_one_stands(two: Two) -> None:
    two.link = None
    two.forward("ben", "cai")
    assert two.refusal().startswith("unknown-recipient")
    two.link = NEW
    context, no = two.there.dispatcher.context(), two.there.peer_nos["desk"]
    answer = two.there.do(lambda tx: relaying.stood(context, tx, no, "a" * 26, "b" * 26))
    assert answer.effects == (Met(no),), "by which the daemon tells what is due"
    two.settle()
    assert two.write()["recipients"][0]["state"] == "forwarded"


def test_a_forward_of_one_who_was_retired_before_is_told_as_well(two: Two) -> None:
    two.owner.do("retire", name="ben")
    two.settle()
    two.there.effects.clear()
    two.forward("ben", "cai")
    assert any(isinstance(effect, Described) for effect in two.there.effects)
    assert two.write()["recipients"][0]["state"] == "forwarded"


def test_a_new_identity_of_the_name_gets_its_own_mail(two: Two) -> None:
    """Names of retired identities are free on their host after a while."""
    two.forward("ben", "cai")
    no = two.here.peer_nos["lap"]
    two.here.do(
        lambda tx: peers.save_identity(
            tx, no, "9" * 26, name="ben", role="r", description="", retired=False, now_ms=1
        )
    )
    [reach] = two.write()["recipients"]
    assert (reach["identity"], reach["state"]) == ("9" * 26, "remote")


def test_a_host_speaks_of_its_own_identities_alone_and_unknown_ones_are_passed_over(
    two: Two,
) -> None:
    peer = two.here.peer("lap")
    own = two.here.rows("SELECT identity FROM identities WHERE name = 'ana'")[0][0]
    ben = two.there.rows("SELECT identity FROM identities WHERE name = 'ben'")[0][0]
    told = [Onward(own, ben), Onward("8" * 26, ben)]
    told += [Onward(ben, own)]
    two.here.do(lambda tx: directory.learn_forwards(tx, peer, told))
    assert two.here.rows("SELECT 1 FROM identities WHERE forward_no IS NOT NULL") == []


def test_mail_that_waits_for_a_forwarded_identity_elsewhere_is_not_handed_on_here(
    two: Two,
) -> None:
    two.write()
    peer = two.here.peer("lap")
    ids = dict(two.there.rows("SELECT name, identity FROM identities"))
    told = [Onward(ids["ben"], ids["cai"])]
    two.here.do(lambda tx: directory.learn_forwards(tx, peer, told))
    assert two.here.do(lambda tx: forwards.left(tx, 10)) == []
    assert two.here.do(forwards.here) == []


def place_kinds(desk: PairedDesk) -> list[str]:
    return [place.record.kind for place in desk.places("desk") if place.record]


def test_more_forwards_than_one_record_holds_travel_in_several(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "DIRECTORY_ENTRIES_MAX", 1)
    two.owner.do("forward", name="ben", to="dee")
    two.owner.do("forward", name="cai", to="dee")
    two.settle()
    assert place_kinds(two.there).count("forwards") == 2
    for name in ("ben", "cai"):
        assert two.write(f"{name}@lap")["recipients"][0]["state"] == "forwarded"
