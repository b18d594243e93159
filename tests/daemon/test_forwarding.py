"""Mail of a retired identity goes on by the owner's word: once, whole, and with a true answer."""

import base64
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbx.core.delivery import Stage
from mbx.core.errors import MbxError
from mbx.core.limits import FORWARD_PIECE_ROWS, FORWARD_STEPS_MAX
from mbx.core.record import Record, verify
from mbx.daemon import booting
from mbx.daemon.effects import Arrived, Authorised, HandOn, Retired
from mbx.daemon.gate import Caller
from mbx.paths import Paths
from mbx.store import forwards
from mbx.store.database import Committed, run_group, run_reads
from tests.daemon.test_applying import state
from tests.daemon.test_retiring import forged, refused, seen, shown
from tests.support.office import BOOT, OfficeDesk, at_terminal, nobody, shell
from tests.support.owner import Owner, an_owner, content

LETTER: dict[str, Any] = {"subject": "s", "body": "b"}
ANA, BEN, CAI, DEE = shell(1), shell(2), shell(3), shell(4)
NAMES = ("ana", "ben", "cai", "dee")


@pytest.fixture
def desk() -> Iterator[OfficeDesk]:
    """Four agents, of whom ben gave his identity back."""
    desk = OfficeDesk()
    desk.add_owner()
    for pid, name in enumerate(NAMES, 1):
        desk.holder(name, pid)
    desk.call(BEN, "identity.release")
    yield desk
    desk.close()


@pytest.fixture
def owner(desk: OfficeDesk) -> Owner:
    return an_owner(desk)


def send(desk: OfficeDesk, sender: Caller, *to: str, **more: object) -> dict[str, Any]:
    return desk.call(sender, "mail.send", to=list(to), **LETTER | more)


def inbox(desk: OfficeDesk, holder: Caller) -> list[str]:
    return [one["id"] for one in desk.call(holder, "mail.inbox", limit=200)["messages"]]


def settle(desk: OfficeDesk) -> int:
    """Hand on what the effects so far say is left, as the daemon does; how many pieces."""
    pieces = 0
    while left := [one for one in desk.effects if isinstance(one, HandOn)]:
        desk.effects.remove(left[0])
        desk.carry_out(desk.dispatcher.handing_on(left[0].identity_no))
        pieces += 1
    return pieces


def unread_is_true(desk: OfficeDesk) -> bool:
    return not desk.rows(
        "SELECT identity_no FROM mailboxes AS b WHERE unread <> (SELECT count(*)"
        " FROM deliveries AS d WHERE d.recipient_no = b.identity_no AND d.stage < 4)"
    )


def pages(desk: OfficeDesk, holder: Caller, method: str, **asked: object) -> Iterator[list[str]]:
    """Ids of one listing after the other, two a page."""
    cursor: dict[str, object] = {}
    while True:
        page = desk.call(holder, method, limit=2, **asked, **cursor)
        yield [one["id"] for one in page["messages"]]
        if not page["has_more"]:
            return
        cursor = {"cursor": page["next_cursor"]}


# -- what was there -------------------------------------------------------------------------------


def test_unacked_mail_is_handed_on_and_its_sender_sees_it(desk: OfficeDesk, owner: Owner) -> None:
    desk.call(BEN, "identity.claim", name="ben")
    letters = [send(desk, ANA, "ben", kind="task")["id"] for _ in range(3)]
    desk.call(BEN, "mail.ack", ids=[letters[0]], did="it")
    desk.call(BEN, "mail.read", ids=[letters[1]])
    desk.call(BEN, "identity.release")
    desk.effects.clear()
    answer = owner.do("forward", name="ben", to="cai")
    assert (answer["agent"], answer["forwarded_to"]) == ("ben", "cai@desk")
    assert (answer["moved"], answer["left"]) == (2, 0)
    assert answer["before"] == {"name": "ben", "state": "free", "epoch": 2, "unacked": 2}
    assert answer["after"] == {"name": "ben", "state": "retired", "epoch": 2, "unacked": 0}
    assert [type(effect) for effect in desk.effects] == [Authorised, Retired, Arrived]
    assert inbox(desk, CAI) == letters[1:]
    opened = desk.call(CAI, "mail.read", ids=[letters[1]])["messages"][0]
    assert (opened["from"], opened["to"]) == ("ana@desk", ["ben@desk"])
    assert desk.call(CAI, "mail.watch")["waking"] == 1
    sent = desk.call(ANA, "mail.sent", id=letters[1])["messages"][0]["recipients"]
    told = {one["address"]: (one["stage"], one["outcome"], one["note"]) for one in sent}
    assert told == {
        "ben@desk": ("acked", "superseded", "forwarded to cai"),
        "cai@desk": ("read", None, None),
    }
    first = desk.call(ANA, "mail.sent", id=letters[0])["messages"][0]["recipients"]
    assert [(one["address"], one["did"]) for one in first] == [("ben@desk", "it")]
    assert shown(desk, "ben")["reason"] == "forwarded to cai"
    assert (shown(desk, "ben")["state"], shown(desk, "ben")["unread"]) == ("retired", 0)
    assert unread_is_true(desk)
    before = state(desk)
    record = desk.rows("SELECT payload FROM owner_records ORDER BY no DESC LIMIT 1")[0][0]
    again = owner.apply(owner.signed({"kind": "directive", "payload": record}))
    assert (again["duplicate"], again["moved"]) == (True, 2)
    assert state(desk) == before


def test_the_receipts_of_what_was_handed_on_are_signed_by_the_host(
    desk: OfficeDesk, owner: Owner
) -> None:
    letter = send(desk, ANA, "ben")["id"]
    owner.do("forward", name="ben", to="cai")
    payload, signature = desk.rows("SELECT payload, signature FROM receipts")[0]
    key = desk.host.key_id
    record = Record("receipt", payload, {key: base64.b64encode(signature).decode()})
    told = verify(
        record, kind="receipt", signers={key: desk.host.signer.public}, audience=desk.host.key_id
    )
    assert told["epoch"] == 0
    assert told["facts"] == [
        {
            "message": letter,
            "recipient": shown(desk, "ben")["identity"],
            "stage": int(Stage.ACKED),
            "at": desk.world.now_ms(),
            "outcome": "superseded",
            "note": "forwarded to cai",
        }
    ]


@pytest.mark.parametrize("method", ["mail.inbox", "mail.thread"])
def test_no_listing_that_was_begun_before_steps_past_what_was_handed_on(
    desk: OfficeDesk, owner: Owner, method: str
) -> None:
    """It is refused, and the next one shows everything."""
    first = send(desk, ANA, "cai")["id"]
    asked = {"id": first} if method == "mail.thread" else {}
    place = {"reply_to": first}
    old = [send(desk, ANA, "ben", **place)["id"] for _ in range(2)]
    own = [first, *(send(desk, ANA, "cai", **place)["id"] for _ in range(3))]
    listing = pages(desk, CAI, method, **asked)
    assert next(listing) == own[:2]
    owner.do("forward", name="ben", to="cai")
    settle(desk)
    with pytest.raises(MbxError, match="forwarded to this mailbox") as caught:
        next(listing)
    assert caught.value.code == "conflict"
    again = [one for page in pages(desk, CAI, method, **asked) for one in page]
    assert again == [first, *old, *own[1:]]


def test_a_forward_that_brings_nothing_ends_no_listing(desk: OfficeDesk, owner: Owner) -> None:
    ids = [send(desk, ANA, "cai")["id"] for _ in range(3)]
    listing = pages(desk, CAI, "mail.inbox")
    assert next(listing) == ids[:2]
    owner.do("forward", name="ben", to="cai")
    assert next(listing) == ids[2:]


def test_who_has_the_message_already_gets_no_second_copy(desk: OfficeDesk, owner: Owner) -> None:
    both = send(desk, ANA, "ben", "cai")["id"]
    acked = send(desk, ANA, "ben", "cai")["id"]
    desk.call(CAI, "mail.ack", ids=[acked])
    assert owner.do("forward", name="ben", to="cai")["moved"] == 2
    assert inbox(desk, CAI) == [both]
    assert unread_is_true(desk)


def test_more_than_one_piece_follows_by_itself_and_after_a_new_start(
    desk: OfficeDesk, owner: Owner, tmp_path: Path
) -> None:
    count = 2 * FORWARD_PIECE_ROWS + 1
    for _ in range(count):
        send(desk, ANA, "ben")
    desk.effects.clear()
    answer = owner.do("forward", name="ben", to="cai")
    assert (answer["moved"], answer["left"]) == (FORWARD_PIECE_ROWS, FORWARD_PIECE_ROWS + 1)
    ben = desk.rows("SELECT no FROM identities WHERE name = 'ben'")[0][0]
    assert [one for one in desk.effects if isinstance(one, HandOn)] == [HandOn(ben)]
    # A daemon that ended here finds in its store what is left.
    paths = Paths(str(tmp_path), str(tmp_path / "run"))
    booted = run_group(
        desk.connection,
        [lambda tx: booting.boot(tx, paths, desk.world, BOOT, lambda process: "live")],
    )[0]
    assert isinstance(booted, Committed)
    assert HandOn(ben) in booted.value.effects
    assert settle(desk) == 2
    assert desk.call(CAI, "session.whoami")["unread"] == count
    assert unread_is_true(desk)
    facts = [
        fact["message"]
        for (payload,) in desk.rows("SELECT payload FROM receipts")
        for fact in json.loads(payload)["facts"]
    ]
    assert (len(facts), len(set(facts))) == (count, count)
    audited = desk.rows("SELECT act, detail FROM audit WHERE act IN ('forward', 'hand-on')")
    assert [act for act, _ in audited] == ["forward", "hand-on", "hand-on"]
    assert sum(json.loads(detail)["moved"] for _, detail in audited) == count


def test_mail_that_led_nowhere_goes_on_when_there_is_a_way_again(
    desk: OfficeDesk, owner: Owner
) -> None:
    for _ in range(FORWARD_PIECE_ROWS + 1):
        send(desk, ANA, "ben")
    owner.do("forward", name="ben", to="cai")
    desk.call(CAI, "identity.release")
    owner.do("retire", name="cai")
    assert settle(desk) == 1
    assert desk.rows("SELECT count(*) FROM deliveries WHERE stage < 5 AND recipient_no = 3") == [
        (1,)
    ]
    assert shown(desk, "ben")["reason"] == "retired"
    assert desk.refusal(ANA, "mail.send", to="ben", **LETTER).facts["retired"] == ["ben"]
    owner.do("forward", name="cai", to="dee")
    settle(desk)
    assert desk.call(DEE, "session.whoami")["unread"] == FORWARD_PIECE_ROWS + 1
    assert shown(desk, "ben")["reason"] == "forwarded to dee"


# -- what comes -----------------------------------------------------------------------------------


def test_what_is_written_to_it_reaches_the_other_and_the_sender_is_told(
    desk: OfficeDesk, owner: Owner
) -> None:
    owner.do("forward", name="ben", to="cai")
    answer = send(desk, ANA, "ben@desk")
    assert answer["recipients"] == [
        {
            "address": "ben@desk",
            "identity": shown(desk, "cai")["identity"],
            "state": "forwarded",
            "detail": "forwarded to cai: held by a live session; this mail wakes nobody",
        }
    ]
    assert inbox(desk, CAI) == [answer["id"]]
    opened = desk.call(CAI, "mail.read", ids=[answer["id"]])["messages"][0]
    assert opened["to"] == ["cai@desk"]


def test_one_copy_comes_however_many_names_lead_there(desk: OfficeDesk, owner: Owner) -> None:
    desk.call(DEE, "identity.release")
    owner.do("forward", name="ben", to="cai")
    owner.do("forward", name="dee", to="cai")
    both = send(desk, ANA, "ben", "cai")
    assert [one["address"] for one in both["recipients"]] == ["cai@desk"]
    assert both["recipients"][0]["state"] == "live-next-prompt"
    assert both["warnings"] == ["ben is forwarded to cai: one copy for both"]
    two = send(desk, ANA, "dee", "ben")
    assert [(one["address"], one["state"]) for one in two["recipients"]] == [
        ("dee@desk", "forwarded")
    ]
    assert two["warnings"] == ["ben is forwarded to cai: one copy for both"]
    assert inbox(desk, CAI) == [both["id"], two["id"]]


def test_many_at_once_are_never_reached_through_a_retired_one(
    desk: OfficeDesk, owner: Owner
) -> None:
    desk.call(CAI, "identity.set", role="test")
    owner.do("forward", name="ben", to="cai")
    assert [one["address"] for one in send(desk, ANA, "role:dev")["recipients"]] == ["dee@desk"]
    everyone = send(desk, ANA, "*", kind="task")["recipients"]
    assert [one["address"] for one in everyone] == ["cai@desk", "dee@desk"]
    assert desk.call(CAI, "mail.watch")["waking"] == 0
    named = send(desk, ANA, "*", "ben", kind="task")
    assert named["warnings"] == ["ben is forwarded to cai: one copy for both"]
    assert desk.call(CAI, "mail.watch")["waking"] == 1


def test_a_mention_of_the_old_name_wakes_who_gets_it(desk: OfficeDesk, owner: Owner) -> None:
    owner.do("forward", name="ben", to="cai")
    send(desk, ANA, "ben", body="look here, @ben")
    send(desk, ANA, "ben", body="nothing urgent")
    assert desk.call(CAI, "mail.watch")["waking"] == 1


def test_an_answer_to_its_mail_reaches_the_other(desk: OfficeDesk, owner: Owner) -> None:
    desk.call(BEN, "identity.claim", name="ben")
    question = send(desk, BEN, "ana")["id"]
    desk.call(BEN, "identity.release")
    owner.do("forward", name="ben", to="cai")
    answer = desk.call(ANA, "mail.reply", id=question, body="yes")
    assert [(one["address"], one["state"]) for one in answer["recipients"]] == [
        ("ben@desk", "forwarded")
    ]
    assert inbox(desk, CAI) == [answer["id"]]
    assert answer["thread"] == question


def test_the_owners_letters_follow_also_when_the_forward_came_after_the_draft(
    desk: OfficeDesk, owner: Owner
) -> None:
    terminal = at_terminal(shell(9))
    draft = desk.call(terminal, "owner.compose", to=["ben", "cai"], **LETTER)
    owner.do("forward", name="ben", to="cai")
    answer = owner.apply(owner.signed(draft))
    assert inbox(desk, CAI) == [answer["id"]]
    draft = desk.call(terminal, "owner.compose", to=["ben"], **LETTER)
    assert [one["name"] for one in content(draft)["to"]] == ["cai"]
    assert owner.apply(owner.signed(draft))["recipients"][0]["address"] == "cai@desk"


def test_rights_are_not_handed_on(desk: OfficeDesk, owner: Owner) -> None:
    owner.do("policy", to=["ben"], level="autonomous", **{"from": ["ana"]})
    before, after = send(desk, ANA, "ben")["id"], ""
    owner.do("forward", name="ben", to="cai")
    after = send(desk, ANA, "ben")["id"]
    for letter in (before, after):
        opened = desk.call(CAI, "mail.read", ids=[letter])["messages"][0]
        assert (opened["policy"], opened["trust"]) == ("ask", "local")


# -- chains, and what is refused ------------------------------------------------------------------


def test_a_chain_is_followed_to_its_end_and_never_becomes_a_circle(
    desk: OfficeDesk, owner: Owner
) -> None:
    owner.do("forward", name="ben", to="cai")
    desk.call(CAI, "identity.release")
    letter = send(desk, ANA, "ben")["id"]
    owner.do("forward", name="cai", to="dee")
    assert inbox(desk, DEE) == [letter]
    assert shown(desk, "ben")["reason"] == "forwarded to dee"
    assert send(desk, ANA, "ben")["recipients"][0]["detail"].startswith("forwarded to dee: ")
    desk.call(DEE, "identity.release")
    for to in ("ben", "cai"):
        error = desk.refusal(nobody(), "owner.draft", act="forward", name="dee", to=to)
        assert error.code == "closed"
    owner.do("forward", name="ben", to="ana")
    assert send(desk, ANA, "ben", "cai")["recipients"][0]["detail"].startswith("forwarded to ana")


def test_a_circle_in_a_damaged_store_leads_nowhere(desk: OfficeDesk) -> None:
    desk.connection.execute(
        "UPDATE identities SET retired_ms = 5, forward_no = 5 - no + 2 WHERE name IN ('ben', 'cai')"
    )
    assert desk.rows("SELECT forward_no FROM identities WHERE retired_ms = 5") == [(4,), (3,)]
    assert desk.refusal(ANA, "mail.send", to="ben", **LETTER).code == "closed"
    end = run_reads(desk.connection, [lambda tx: forwards.end_of(tx, 3)])[0]
    assert isinstance(end, Committed)
    assert end.value == (3 if FORWARD_STEPS_MAX % 2 == 0 else 4)


def test_one_that_was_retired_before_is_forwarded_later(desk: OfficeDesk, owner: Owner) -> None:
    letter = send(desk, ANA, "ben")["id"]
    owner.do("retire", name="ben")
    draft = owner.draft("forward", name="ben", to="cai")
    assert "ben is retired already" in draft["lines"]
    assert owner.apply(owner.signed(draft))["moved"] == 1
    assert inbox(desk, CAI) == [letter]


def test_of_two_forwards_the_one_that_was_overtaken_is_refused(
    desk: OfficeDesk, owner: Owner
) -> None:
    """In whatever order they are brought, and also when the first way was taken once more."""
    to_cai, to_dee = (owner.signed(owner.draft("forward", name="ben", to=to)) for to in NAMES[2:])
    owner.apply(to_dee)
    assert refused(desk, owner, to_cai) == "conflict"
    assert shown(desk, "ben")["reason"] == "forwarded to dee"
    again = owner.signed(owner.draft("forward", name="ben", to="cai"))
    for to in ("ana", "dee"):
        owner.do("forward", name="ben", to=to)
    assert refused(desk, owner, again) == "conflict"
    assert owner.apply(to_dee)["duplicate"]
    assert shown(desk, "ben")["reason"] == "forwarded to dee"
    owner.do("forward", name="ben", to="cai")
    assert shown(desk, "ben")["reason"] == "forwarded to cai"


def test_a_draft_is_refused_where_no_forward_can_be(desk: OfficeDesk, owner: Owner) -> None:
    for to, code in (
        ("ben", "usage"),
        ("owner", "unknown-identity"),
        ("xyz", "unknown-identity"),
    ):
        error = desk.refusal(nobody(), "owner.draft", act="forward", name="ben", to=to)
        assert error.code == code
    error = desk.refusal(nobody(), "owner.draft", act="forward", name="owner", to="cai")
    assert error.code == "unknown-identity"


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ("claimed", "conflict"),
        ("target retired", "closed"),
        ("target renamed", "conflict"),
        ("to the owner", "closed"),
        ("from the owner", "closed"),
        ("to nobody", "unknown-identity"),
        ("held", "in-use"),
    ],
)
def test_a_forward_for_another_state_changes_nothing(
    desk: OfficeDesk, owner: Owner, event: str, code: str
) -> None:
    send(desk, ANA, "ben")
    draft = owner.draft("forward", name="ben", to="cai")
    record = owner.signed(draft)
    (human,) = seen(desk, "owner")
    assert isinstance(human, dict)
    if event == "claimed":
        desk.call(BEN, "identity.claim", name="ben")
        desk.call(BEN, "identity.release")
    elif event == "target retired":
        desk.call(CAI, "identity.release")
        owner.do("retire", name="cai")
    elif event == "target renamed":
        desk.call(CAI, "identity.rename", name="cai-two")
    elif event == "to the owner":
        to = {"identity": human["identity"], "name": "owner"}
        record = forged(owner, draft, to=to)
    elif event == "from the owner":
        record = forged(owner, draft, **human)
    elif event == "to nobody":
        record = forged(owner, draft, to={"identity": "x" * 26, "name": "cai"})
    else:
        desk.call(BEN, "identity.claim", name="ben")
        (one,) = seen(desk, "ben")
        assert isinstance(one, dict)
        record = forged(owner, draft, **one)
    assert refused(desk, owner, record) == code
    assert shown(desk, "ben")["state"] != "retired"


# -- nothing is lost ------------------------------------------------------------------------------

ACTS = ("send", "send", "send", "both", "both", "read", "ack", "forward", "forward", "retire")
STEP = st.tuples(st.sampled_from(ACTS), st.integers(0, 3), st.integers(0, 3))


class History:
    """Identities that are claimed for one act each, and mail between them."""

    def __init__(self, counts: Counter[str]) -> None:
        self.counts = counts
        self.desk = OfficeDesk()
        self.desk.add_owner()
        self.owner = an_owner(self.desk)
        self.accepted: list[tuple[str, list[str]]] = []
        self.handled: set[tuple[str, str]] = set()
        for pid, name in enumerate(NAMES, 1):
            self.desk.holder(name, pid)
            self.desk.call(shell(pid), "identity.release")

    def step(self, act: str, first: int, second: int) -> None:
        try:
            if act in ("forward", "retire"):
                wanted = {"name": NAMES[first]} | (
                    {"to": NAMES[second]} if act == "forward" else {}
                )
                self.owner.do(act, **wanted)
            else:
                self._as_holder(act, first, second)
        except MbxError as error:
            self.counts[f"{act} {error.code}"] += 1
        else:
            self.counts[act] += 1

    def _as_holder(self, act: str, first: int, second: int) -> None:
        desk, caller = self.desk, shell(first + 1)
        desk.call(caller, "identity.claim", name=NAMES[first])
        try:
            if act in ("send", "both"):
                to = NAMES[second:] if act == "both" else [NAMES[second]]
                answer = send(desk, caller, *to)
                self.accepted.append(
                    (answer["id"], [one["identity"] for one in answer["recipients"]])
                )
            elif found := inbox(desk, caller):
                ids = found[second : second + 1] or found[:1]
                desk.call(caller, f"mail.{act}", ids=ids)
                if act == "ack":
                    self.handled.add((ids[0], NAMES[first]))
        finally:
            desk.call(caller, "identity.release")

    def check(self) -> None:
        """I1 and I2, and that what senders see is true."""
        settle(self.desk)
        rows = self.desk.rows(
            "SELECT m.id, i.identity, i.name, d.stage, d.outcome, i.no, i.retired_ms IS NOT NULL"
            " FROM deliveries AS d JOIN messages AS m ON m.no = d.message_no"
            " JOIN identities AS i ON i.no = d.recipient_no"
        )
        copies = {(row[0], row[2]): row for row in rows}
        at_identity = {(row[0], row[1]) for row in rows}
        assert len(copies) == len(rows)
        for letter, promised in self.accepted:
            assert {(letter, identity) for identity in promised} <= at_identity
        for letter, name in self.handled:
            assert copies[letter, name][4] == "noted"
        ways = dict(self.desk.rows("SELECT no, forward_no FROM identities"))
        name_of = dict(self.desk.rows("SELECT no, name FROM identities"))
        retired = {
            no for (no,) in self.desk.rows("SELECT no FROM identities WHERE retired_ms IS NOT NULL")
        }
        for (letter, name), (_, _, _, stage, outcome, no, _) in copies.items():
            if outcome == "superseded":
                self.counts["handed on"] += 1
                assert any((letter, one) in copies for one in NAMES if one != name)
            end = no
            while ways[end] is not None:
                end = ways[end]
            if stage < Stage.ACKED and no in retired:
                assert end in retired, f"{letter} is left with {name}, for {name_of[end]}"
        lost = [
            letter
            for letter, _ in self.accepted
            if not any(
                (letter, name) in copies and copies[letter, name][4] != "superseded"
                for name in NAMES
            )
        ]
        assert not lost
        assert unread_is_true(self.desk)
        facts = Counter(
            (fact["message"], fact["recipient"], fact["stage"])
            for (payload,) in self.desk.rows("SELECT payload FROM receipts")
            for fact in json.loads(payload)["facts"]
        )
        assert not facts or max(facts.values()) == 1
        closed = {(row[0], row[1], int(Stage.ACKED)) for row in rows if row[3] == Stage.ACKED}
        assert {fact for fact in facts if fact[2] == Stage.ACKED} == closed


def test_mail_is_never_lost_nor_doubled_by_forwards() -> None:
    counts: Counter[str] = Counter()

    @settings(max_examples=40, deadline=None)
    @given(st.lists(STEP, min_size=12, max_size=40))
    def histories(steps: list[tuple[str, int, int]]) -> None:
        history = History(counts)
        try:
            for step in steps:
                history.step(*step)
            history.check()
        finally:
            history.desk.close()

    histories()
    assert {what.partition(" ")[2] for what in counts} <= {"", "closed", "usage", "on"}
    assert min(counts[act] for act in ("send", "both", "read", "ack", "forward", "retire")) >= 5
    assert counts["handed on"] >= 5
