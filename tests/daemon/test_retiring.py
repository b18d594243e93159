"""Identities end by the owner's word: what that does, and what it never does."""

from collections.abc import Iterator
from typing import Any

import pytest

from mbx.core.canonical import JsonValue
from mbx.core.keys import SigningKey
from mbx.core.limits import DIRECTIVE_IDENTITIES_MAX, PRUNE_DAYS
from mbx.daemon.effects import Granted, Retired
from mbx.daemon.resuming import Wish
from tests.daemon.test_applying import state
from tests.support.office import KEY, OfficeDesk, harness, nobody, shell, unseen
from tests.support.owner import Owner, an_owner, content, wire

LETTER: dict[str, Any] = {"subject": "s", "body": "b"}
ANA, BEN, CAI, NEW = shell(1), shell(2), shell(3), shell(9)
DAY_MS = 86_400_000
EVERYTHING = ("mail.inbox", "mail.sent", "mail.watch", "identity.release")


@pytest.fixture
def desk() -> Iterator[OfficeDesk]:
    """Ana holds hers; ben gave his back with one letter unacked; cai holds hers."""
    desk = OfficeDesk()
    desk.add_owner()
    for pid, name in ((1, "ana"), (2, "ben"), (3, "cai")):
        desk.holder(name, pid)
    desk.call(BEN, "mail.send", to="ana", **LETTER)
    desk.call(ANA, "mail.send", to="ben", **LETTER)
    desk.call(BEN, "identity.release")
    yield desk
    desk.close()


@pytest.fixture
def owner(desk: OfficeDesk) -> Owner:
    return an_owner(desk)


def shown(desk: OfficeDesk, name: str) -> dict[str, Any]:
    return desk.call(nobody(), "identity.show", name=name)


def refused(desk: OfficeDesk, owner: Owner, record: dict[str, Any]) -> str:
    """The code of the refusal of a record, which changes nothing."""
    before = state(desk)
    code = desk.refusal(nobody(), "owner.apply", record=record).code
    assert state(desk) == before
    return code


def forged(owner: Owner, draft: dict[str, Any], **changes: JsonValue) -> dict[str, Any]:
    """A record that the owner signs, although no daemon drafts it."""
    return wire(draft["kind"], {**content(draft), **changes}, owner.key)


def seen(desk: OfficeDesk, *names: str) -> list[JsonValue]:
    rows = desk.rows(
        "SELECT i.identity, i.name, l.epoch FROM identities AS i"
        " JOIN leases AS l ON l.identity_no = i.no"
    )
    by_name = {name: {"identity": no, "name": name, "epoch": epoch} for no, name, epoch in rows}
    return [by_name[name] for name in names]


# -- retire ---------------------------------------------------------------------------------------


def test_a_retired_identity_keeps_its_mail_and_its_name_and_admits_nobody(
    desk: OfficeDesk, owner: Owner
) -> None:
    mail = desk.rows("SELECT * FROM deliveries"), desk.rows("SELECT * FROM messages")
    draft = owner.draft("retire", name="ben")
    assert draft["confirm"] == "ben"
    assert "1 unacked message" in "\n".join(draft["lines"])
    record = owner.signed(draft)
    desk.effects.clear()
    answer = owner.apply(record)
    assert (answer["act"], answer["retired"]) == ("retire", ["ben"])
    assert answer["before"] == [{"name": "ben", "state": "free", "epoch": 1, "unacked": 1}]
    assert answer["after"] == [{"name": "ben", "state": "retired", "epoch": 1, "unacked": 1}]
    assert [type(effect) for effect in desk.effects][1:] == [Retired]
    assert (desk.rows("SELECT * FROM deliveries"), desk.rows("SELECT * FROM messages")) == mail
    assert shown(desk, "ben")["reason"] == "retired"
    stranded = desk.call(nobody(), "daemon.health")["stranded"]
    assert [(one["name"], one["state"], one["unacked"]) for one in stranded] == [
        ("ben", "retired", 1)
    ]
    assert desk.refusal(BEN, "identity.claim", name="ben").code == "closed"
    assert desk.refusal(NEW, "identity.register", name="ben", role="dev").code == "name-taken"
    assert desk.refusal(ANA, "mail.send", to="ben", **LETTER).code == "closed"
    assert desk.call(ANA, "mail.sent")["messages"][0]["to"] == ["ben@desk"]
    assert desk.call(ANA, "mail.inbox")["messages"][0]["from"] == "ben@desk"
    row = desk.rows("SELECT act, identity FROM audit ORDER BY no DESC LIMIT 1")
    assert row == [("retire", shown(desk, "ben")["identity"])]
    before = state(desk)
    assert owner.apply(record) == {**answer, "duplicate": True}
    assert state(desk) == before


@pytest.mark.parametrize("evidence", ["live", "unknown"])
@pytest.mark.parametrize("act", ["retire", "forward"])
def test_a_holder_that_is_not_proved_dead_is_never_touched(
    desk: OfficeDesk, owner: Owner, act: str, evidence: Any
) -> None:
    wanted: dict[str, str] = {"name": "ben"} | ({"to": "cai"} if act == "forward" else {})
    record = owner.signed(owner.draft(act, **wanted))
    desk.call(NEW, "identity.claim", name="ben")
    desk.evidence[9] = evidence
    error = desk.refusal(nobody(), "owner.draft", act=act, **wanted)
    assert (error.code, error.facts["holder"]) == ("in-use", {"cli": "shell", "session": "9-90"})
    one = seen(desk, "ben")[0]
    assert isinstance(one, dict)
    fields: dict[str, JsonValue] = {"identities": [one]} if act == "retire" else one
    draft = {"kind": record["kind"], "payload": record["payload"]}
    assert refused(desk, owner, forged(owner, draft, **fields)) == "in-use"
    assert refused(desk, owner, record) == "conflict"
    assert desk.call(NEW, "session.whoami")["agent"] == "ben"


def test_a_holder_that_is_dead_and_not_buried_yet_is_no_holder(
    desk: OfficeDesk, owner: Owner
) -> None:
    desk.call(NEW, "identity.claim", name="ben")
    desk.evidence[9] = "dead"
    assert owner.do("retire", name="ben")["before"][0]["state"] == "held"
    acts = [act for (act,) in desk.rows("SELECT act FROM audit ORDER BY no DESC LIMIT 2")]
    assert acts == ["retire", "lapse"]
    assert desk.rows("SELECT state, epoch FROM leases WHERE identity_no = 3") == [(0, 2)]
    session_no = desk.rows("SELECT no FROM sessions WHERE pid = 9")[0][0]
    desk.carry_out(desk.dispatcher.burial(session_no, "dead"))
    assert desk.rows("SELECT state, epoch FROM leases WHERE identity_no = 3") == [(0, 2)]


def test_who_claimed_it_in_between_keeps_it_and_nothing_else_is_retired(
    desk: OfficeDesk, owner: Owner
) -> None:
    desk.call(CAI, "identity.release")
    draft = owner.draft("retire", name="ben")
    both = forged(owner, draft, identities=seen(desk, "cai", "ben"))
    desk.call(NEW, "identity.claim", name="ben")
    desk.call(NEW, "identity.release")
    assert refused(desk, owner, both) == "conflict"
    assert refused(desk, owner, owner.signed(draft)) == "conflict"
    desk.call(NEW, "identity.claim", name="ben")
    assert refused(desk, owner, forged(owner, draft, identities=seen(desk, "cai", "ben"))) == (
        "in-use"
    )
    assert shown(desk, "cai")["state"] == "free"


def test_another_name_than_the_owner_saw_is_another_state(desk: OfficeDesk, owner: Owner) -> None:
    draft = owner.draft("retire", name="ben")
    one = seen(desk, "ben")[0]
    assert isinstance(one, dict)
    record = forged(owner, draft, identities=[{**one, "name": "cai"}])
    assert refused(desk, owner, record) == "conflict"


def test_several_end_together(desk: OfficeDesk, owner: Owner) -> None:
    desk.call(CAI, "identity.release")
    draft = owner.draft("retire", name="ben")
    answer = owner.apply(forged(owner, draft, identities=seen(desk, "cai", "ben")))
    assert answer["retired"] == ["cai", "ben"]
    assert [shown(desk, name)["state"] for name in ("ben", "cai")] == ["retired", "retired"]
    assert refused(desk, owner, owner.signed(draft)) == "closed"
    assert desk.refusal(nobody(), "owner.draft", act="retire", name="ben").code == "closed"


def test_the_owners_own_mailbox_never_ends(desk: OfficeDesk, owner: Owner) -> None:
    assert desk.refusal(nobody(), "owner.draft", act="retire", name="owner").code == (
        "unknown-identity"
    )
    draft = owner.draft("retire", name="ben")
    record = forged(owner, draft, identities=seen(desk, "ben", "owner"))
    assert refused(desk, owner, record) == "closed"


def test_only_the_owner_of_this_host_ends_anybody(desk: OfficeDesk, owner: Owner) -> None:
    draft = owner.draft("retire", name="ben")
    stranger = SigningKey.from_seed(bytes([99]) * 32)
    payload = content(draft)
    for record in (
        wire("directive", payload, stranger),
        wire("directive", payload, KEY, role="host"),
        wire("takeover", {**payload, "type": "takeover"}, owner.key),
        forged(owner, draft, aud="h" * 26),
        forged(owner, draft, act="end"),
        forged(owner, draft, more=1),
    ):
        assert refused(desk, owner, record) == "owner-required"
    desk.world.pass_ms(DAY_MS)
    assert refused(desk, owner, owner.signed(draft)) == "closed"


def test_an_identity_that_is_not_known_here_is_refused(desk: OfficeDesk, owner: Owner) -> None:
    draft = owner.draft("retire", name="ben")
    foreign: JsonValue = [{"identity": "x" * 26, "name": "ben", "epoch": 1}]
    assert refused(desk, owner, forged(owner, draft, identities=foreign)) == "unknown-identity"
    assert desk.refusal(nobody(), "owner.draft", act="retire", name="bem").code == (
        "unknown-identity"
    )


def test_the_child_of_a_dead_holder_loses_what_it_used(desk: OfficeDesk, owner: Owner) -> None:
    desk.call(harness(20, "s-1"), "identity.register", name="dora", role="dev")
    token = next(one.token for one in desk.effects[::-1] if isinstance(one, Granted))
    session_no = desk.rows("SELECT no FROM sessions WHERE session_id = 's-1'")[0][0]
    desk.evidence[20] = "dead"
    desk.carry_out(desk.dispatcher.burial(session_no, "dead"))
    assert desk.call(unseen(token), "mail.inbox")["messages"] == []
    owner.do("retire", name="dora")
    before = state(desk)
    for method in EVERYTHING[:3]:
        error = desk.refusal(unseen(token), method)
        assert (error.code, "retired" in error.message) == ("lease-lost", True)
    assert desk.carry_out(desk.dispatcher.arrival(harness(21, "s-1"), Wish())).effects == ()
    assert state(desk) == before


@pytest.mark.parametrize("evidence", ["unknown", "live"])
def test_a_lapsed_holder_that_is_bound_yet_is_fenced_or_seen_to_live_spared(
    desk: OfficeDesk, owner: Owner, evidence: Any
) -> None:
    desk.connection.execute("UPDATE leases SET state = 2 WHERE identity_no = 4")  # cai's
    desk.evidence[3] = evidence
    if evidence == "live":
        assert desk.refusal(nobody(), "owner.draft", act="retire", name="cai").code == "in-use"
        return
    owner.do("retire", name="cai")
    before = state(desk)
    for method in EVERYTHING:
        assert desk.refusal(CAI, method).code == "lease-lost"
    assert desk.refusal(CAI, "mail.send", to="ana", **LETTER).code == "lease-lost"
    assert desk.call(CAI, "session.whoami")["agent"] is None
    assert state(desk) == before
    assert desk.call(CAI, "identity.register", name="eve", role="dev")["agent"] == "eve"


def test_the_gate_admits_nobody_to_what_is_retired_whatever_its_lease_says(
    desk: OfficeDesk,
) -> None:
    desk.connection.execute("UPDATE identities SET retired_ms = 5 WHERE name = 'cai'")
    assert desk.refusal(CAI, "mail.inbox").code == "lease-lost"
    assert desk.call(CAI, "session.whoami")["agent"] is None


def test_who_waited_for_it_waits_no_longer(desk: OfficeDesk, owner: Owner) -> None:
    twin = harness(21, "s-1")
    desk.call(harness(20, "s-1"), "identity.register", name="dora", role="dev")
    desk.carry_out(desk.dispatcher.arrival(twin, Wish()))
    assert desk.call(twin, "session.whoami")["pending"] == "dora"
    desk.evidence[20] = "dead"
    owner.do("retire", name="dora")
    assert desk.call(twin, "session.whoami")["pending"] is None
    assert desk.rows("SELECT count(*) FROM tokens WHERE epoch < 1") == [(0,)]


# -- prune ----------------------------------------------------------------------------------------


def reasons(desk: OfficeDesk, days: int = PRUNE_DAYS) -> dict[str, str | None]:
    answer = desk.call(nobody(), "identity.prunable", days=days)
    listed = answer["prunable"] + answer["staying"]
    assert len(listed) == answer["prunable_total"] + answer["staying_total"]
    return {one["name"]: one["reason"] for one in listed}


def test_a_preview_says_why_each_one_stays_and_changes_nothing(desk: OfficeDesk) -> None:
    desk.holder("dora", 4)
    desk.call(shell(4), "identity.release")
    before = state(desk)
    assert reasons(desk)["dora"] == "used at 2023-11-14T22:13:20.000Z"
    desk.world.pass_ms(PRUNE_DAYS * DAY_MS)
    assert str(reasons(desk)["dora"]).startswith("used at")
    desk.world.pass_ms(1)
    assert reasons(desk) == {
        "ana": "held by shell 1-10",
        "ben": "has 1 unacked message",
        "cai": "held by shell 3-30",
        "dora": None,
    }
    assert state(desk) == before


def test_a_prune_retires_those_that_nobody_needs_and_no_others(
    desk: OfficeDesk, owner: Owner
) -> None:
    desk.holder("dora", 4)
    desk.call(shell(4), "identity.release")
    assert desk.refusal(nobody(), "owner.draft", act="prune", days=1).code == "not-found"
    desk.world.pass_ms(2 * DAY_MS)
    draft = owner.draft("prune", days=1)
    assert (draft["confirm"], content(draft)["act"]) == ("dora", "prune")
    assert owner.apply(owner.signed(draft))["retired"] == ["dora"]
    listed = desk.call(nobody(), "identity.list", all=True)["identities"]
    assert {one["name"]: one["state"] for one in listed} == {
        "ana": "held",
        "ben": "free",
        "cai": "held",
        "dora": "retired",
    }


@pytest.mark.parametrize("event", ["mail", "claim", "use", "forged"])
def test_what_became_needed_in_between_stays(desk: OfficeDesk, owner: Owner, event: str) -> None:
    desk.holder("dora", 4)
    desk.call(shell(4), "identity.release")
    desk.world.pass_ms(2 * DAY_MS)
    draft = owner.draft("prune", days=1)
    record = owner.signed(draft)
    if event == "mail":
        desk.call(ANA, "mail.send", to="dora", **LETTER)
    elif event == "forged":
        record = forged(owner, draft, identities=seen(desk, "dora", "ben"))
    else:
        desk.call(shell(4), "identity.claim", name="dora")
    if event == "use":
        desk.call(shell(4), "identity.release")
        record = forged(owner, draft, identities=seen(desk, "dora"))
    assert refused(desk, owner, record) == "conflict"
    assert shown(desk, "dora")["state"] != "retired"


def test_sixty_four_at_once_the_longest_unused_first(desk: OfficeDesk, owner: Owner) -> None:
    names = [f"{a}{b}-dev" for a in "stuvwxyz" for b in "abcdefghj"][: DIRECTIVE_IDENTITIES_MAX + 2]
    for number, name in enumerate(names):
        desk.holder(name, 100 + number)
        desk.call(shell(100 + number), "identity.release")
        desk.world.pass_ms(1)
    desk.world.pass_ms(2 * DAY_MS)
    draft = owner.draft("prune", days=1)
    assert len(draft["confirm"]) == 6
    assert draft["lines"][0].startswith(f"{DIRECTIVE_IDENTITIES_MAX} of {len(names)} ")
    first = owner.apply(owner.signed(draft))
    assert first["retired"] == names[:DIRECTIVE_IDENTITIES_MAX]
    assert owner.do("prune", days=1)["retired"] == names[DIRECTIVE_IDENTITIES_MAX:]


def test_a_dead_holder_that_nobody_buried_does_not_keep_it(desk: OfficeDesk, owner: Owner) -> None:
    desk.world.pass_ms(2 * DAY_MS)
    desk.evidence[3] = "dead"
    assert owner.do("prune", days=1)["retired"] == ["cai"]
