"""What came from outside, and how deep a text was passed on, sticks to the conversation.

Nothing that a conversation can do washes it off: only the hour ends it.
"""

import json
from collections.abc import Iterator

import pytest

from mbx.daemon.dispatch import Work
from mbx.daemon.gate import Caller
from mbx.store import exposures, sessions
from mbx.store.database import Committed, Tx, run_group
from tests.support.office import OfficeDesk, conversation, harness, shell
from tests.support.owner import TERMINAL, Owner, an_owner

HOUR = 60 * 60 * 1000
MINUTE = 60 * 1000


@pytest.fixture
def desk() -> Iterator[OfficeDesk]:
    desk = OfficeDesk()
    desk.add_owner()
    yield desk
    desk.close()


@pytest.fixture
def owner(desk: OfficeDesk) -> Owner:
    return an_owner(desk)


def mail(desk: OfficeDesk, sender: Caller, to: str | list[str], **more: object) -> str:
    letter = {"to": [to] if isinstance(to, str) else to, "subject": "s", "body": "b", **more}
    return str(desk.call(sender, "mail.send", **letter)["id"])


def read(desk: OfficeDesk, reader: Caller, message: str) -> dict[str, object]:
    entry: dict[str, object] = desk.call(reader, "mail.read", ids=[message])["messages"][0]
    return entry


def is_tainted(desk: OfficeDesk, writer: Caller) -> bool:
    return desk.call(writer, "session.whoami")["external"] is not None


def housekeeping(desk: OfficeDesk) -> None:
    """What a daemon does once a minute with what conversations read."""

    def unit(tx: Tx) -> None:
        sessions.forget_unused(tx)
        exposures.forget_old(tx, desk.world.now_ms())

    assert isinstance(run_group(desk.connection, [unit])[0], Committed)


def tainted(desk: OfficeDesk, pid: int = 1) -> Caller:
    """A session `ui` that has just read what came from outside."""
    web = desk.holder("web", 90)
    ui = desk.holder("ui", pid)
    read(desk, ui, mail(desk, web, "ui", origin="external"))
    return ui


# -- it sticks ------------------------------------------------------------------------------------


def test_it_survives_release_claim_rename_and_housekeeping(desk: OfficeDesk) -> None:
    ui = tainted(desk)
    desk.call(ui, "identity.release")
    housekeeping(desk)
    assert not desk.rows("SELECT 1 FROM sessions WHERE identity_no IS NOT NULL AND pid = 1")
    desk.call(ui, "identity.register", name="fresh", role="dev")
    assert is_tainted(desk, ui)
    desk.call(ui, "identity.rename", name="other")
    assert is_tainted(desk, ui)
    desk.world.pass_ms(HOUR - 1)
    housekeeping(desk)
    assert is_tainted(desk, ui)
    desk.world.pass_ms(1)
    assert not is_tainted(desk, ui)
    desk.world.pass_ms(1)
    housekeeping(desk)
    assert desk.rows("SELECT count(*) FROM exposures") == [(0,)]


@pytest.mark.parametrize("is_buried", [True, False])
def test_it_goes_with_a_conversation_into_another_process(
    desk: OfficeDesk, *, is_buried: bool
) -> None:
    web, first = desk.holder("web", 90), harness(1, "s-1")
    desk.call(first, "identity.register", name="ui", role="dev")
    read(desk, first, mail(desk, web, "ui", origin="external"))
    desk.evidence[1] = "dead"
    if is_buried:
        ((number,),) = desk.rows("SELECT no FROM sessions WHERE pid = 1")
        desk.carry_out(desk.dispatcher.burial(number, "its process has ended"))
    again = harness(2, "s-1")
    desk.call(again, "identity.claim", name="ui")
    assert is_tainted(desk, again)
    other = harness(3, "s-2")
    desk.call(other, "identity.register", name="api", role="dev")
    assert not is_tainted(desk, other)


def test_no_change_of_label_washes_it_off(desk: OfficeDesk) -> None:
    """Two processes say that they are one conversation: only one of them can go by its name."""
    web, one, twin = desk.holder("web", 90), harness(1, "s-1"), harness(2, "s-1")
    desk.call(one, "identity.register", name="ui", role="dev")
    read(desk, one, mail(desk, web, "ui", origin="external"))
    desk.call(one, "identity.release")
    desk.call(twin, "identity.register", name="api", role="dev")
    desk.call(one, "identity.claim", name="ui")
    assert desk.rows("SELECT session_id FROM sessions WHERE pid = 1") == [("1-10",)]
    assert is_tainted(desk, one)
    for caller in (one, twin):
        desk.call(caller, "identity.release")
    desk.connection.execute("DELETE FROM exposures WHERE session_id = 's-1'")
    for pid, name in ((3, "ui"), (4, "api")):
        desk.call(shell(pid), "identity.claim", name=name)
        desk.call(shell(pid), "identity.release")
    housekeeping(desk)
    assert desk.rows("SELECT count(*) FROM sessions WHERE pid = 1") == [(0,)]
    desk.call(one, "identity.claim", name="ui")
    assert desk.rows("SELECT session_id FROM sessions WHERE pid = 1") == [("s-1",)]
    assert is_tainted(desk, one)


def test_conversations_of_one_process_are_not_each_others(desk: OfficeDesk) -> None:
    web = desk.holder("web", 90)
    one, two = conversation(5, "c-1"), conversation(5, "c-2")
    desk.call(one, "identity.register", name="ui", role="dev")
    desk.call(two, "identity.register", name="api", role="dev")
    read(desk, one, mail(desk, web, "ui", origin="external"))
    assert is_tainted(desk, one)
    assert not is_tainted(desk, two)


def test_who_answers_or_passes_on_without_reading_is_exposed_all_the_same(
    desk: OfficeDesk,
) -> None:
    web, ui, api = desk.holder("web", 90), desk.holder("ui", 1), desk.holder("api", 2)
    message = mail(desk, web, "ui", origin="external")
    entry = read(desk, api, mail(desk, ui, "api", reply_to=message))
    assert entry["hop"] == 1
    desk.world.pass_ms(HOUR - 1)
    assert is_tainted(desk, ui)
    assert desk.rows("SELECT count(*) FROM messages WHERE external = 1") == [(2,)]


def test_what_is_quoted_stays_from_outside_long_after_the_hour(desk: OfficeDesk) -> None:
    web, ui, api = desk.holder("web", 90), desk.holder("ui", 1), desk.holder("api", 2)
    message = mail(desk, web, "ui", origin="external")
    read(desk, ui, message)
    desk.world.pass_ms(30 * HOUR)
    forwarded = mail(desk, ui, "api", reply_to=message)
    assert read(desk, api, forwarded)["hop"] == 1
    answer = desk.call(api, "mail.reply", id=forwarded, body="b")["id"]
    read(desk, ui, str(answer))
    assert desk.rows("SELECT count(*) FROM messages WHERE external = 1") == [(3,)]


def test_a_note_to_oneself_keeps_it(desk: OfficeDesk) -> None:
    ui, api = tainted(desk), desk.holder("api", 2)
    desk.world.pass_ms(HOUR - MINUTE)
    note = mail(desk, ui, "ui")
    desk.world.pass_ms(MINUTE)
    assert not is_tainted(desk, ui)
    desk.world.pass_ms(-MINUTE // 2)
    read(desk, ui, note)
    assert desk.rows("SELECT external FROM messages ORDER BY no DESC LIMIT 1") == [(1,)]
    read(desk, api, mail(desk, ui, "api", reply_to=note))
    assert desk.rows("SELECT external FROM messages ORDER BY no DESC LIMIT 1") == [(1,)]


@pytest.mark.parametrize("external_first", [True, False])
def test_of_one_reading_of_several_the_worst_of_each_sender_sticks(
    desk: OfficeDesk, *, external_first: bool
) -> None:
    web, api, ui = desk.holder("web", 90), desk.holder("api", 91), desk.holder("ui", 1)
    sent = [
        mail(desk, web, "ui", **({"origin": "external"} if is_external else {}))
        for is_external in (external_first, not external_first)
    ]
    sent.append(mail(desk, api, "ui"))
    desk.call(ui, "mail.read", ids=sent)
    assert is_tainted(desk, ui)
    kept = desk.rows(
        "SELECT i.name, e.root_ms IS NOT NULL FROM exposures AS e"
        " JOIN identities AS i ON i.no = e.source_no WHERE e.session_id = '1-10' ORDER BY i.name"
    )
    assert kept == [("api", 0), ("web", 1)]


def test_a_found_snippet_exposes_as_reading_does(desk: OfficeDesk) -> None:
    web, ui = desk.holder("web", 90), desk.holder("ui", 1)
    mail(desk, web, "ui", origin="external", body="the word pomegranate")
    assert not is_tainted(desk, ui)
    assert len(desk.call(ui, "mail.search", query="pomegranate")["messages"]) == 1
    assert is_tainted(desk, ui)


@pytest.mark.parametrize("how", ["search", "reply", "reply_to"])
def test_what_an_earlier_conversation_wrote_under_the_same_name_is_read_too(
    desk: OfficeDesk, how: str
) -> None:
    """In a message of one's own stands what its writer had read."""
    writer = tainted(desk)
    desk.holder("web-2", 91)
    sent = mail(desk, writer, "web-2", body="curl evil.example")
    desk.call(writer, "identity.release")
    heir = harness(7, "another")
    desk.call(heir, "identity.claim", name="ui")
    assert not is_tainted(desk, heir)
    if how == "search":
        desk.call(heir, "mail.search", query="evil")
    elif how == "reply":
        desk.call(heir, "mail.reply", id=sent, body="run it")
    else:
        mail(desk, heir, "web", reply_to=sent)
    assert is_tainted(desk, heir)


def test_what_is_read_on_a_full_disk_is_remembered_without_it(desk: OfficeDesk) -> None:
    web, ui, api = desk.holder("web", 90), desk.holder("ui", 1), desk.holder("api", 2)
    message = mail(desk, web, "ui", origin="external")
    work = desk.work(ui, "mail.read", {"ids": [message]})
    assert work.when_full is not None
    shown = desk.carry_out(Work(work.when_full, writes=False)).result
    assert "disk is full" in shown["warnings"][0]
    assert desk.rows("SELECT count(*) FROM exposures") == [(0,)]
    assert is_tainted(desk, ui)
    entry = read(desk, api, mail(desk, ui, "api"))
    assert entry["hop"] == 1
    assert desk.rows("SELECT external FROM messages ORDER BY no DESC LIMIT 1") == [(1,)]
    desk.world.pass_ms(HOUR)
    assert not is_tainted(desk, ui)


@pytest.mark.parametrize("since", ["yesterday", -1, 9_999_999_999_999, True, [], {}])
def test_a_root_that_is_garbled_counts_as_now(desk: OfficeDesk, since: object) -> None:
    """Only a damaged store or a foreign host can bring one."""
    web, ui = desk.holder("web", 90), desk.holder("ui", 1)
    message = mail(desk, web, "ui", origin="external")
    told = f'"external_since":{desk.world.wall_ms}'
    garbled = f'"external_since":{json.dumps(since)}'
    desk.connection.execute("UPDATE messages SET payload = replace(payload, ?, ?)", (told, garbled))
    assert desk.rows("SELECT count(*) FROM messages WHERE instr(payload, ?)", garbled) == [(1,)]
    desk.world.pass_ms(2 * HOUR)
    read(desk, ui, message)
    assert is_tainted(desk, ui)
    desk.world.pass_ms(HOUR - 1)
    assert is_tainted(desk, ui)


# -- it ends --------------------------------------------------------------------------------------


def test_two_who_taint_each_other_come_clean_when_the_hour_of_the_first_reading_ends(
    desk: OfficeDesk,
) -> None:
    ui, api = tainted(desk), desk.holder("api", 2)
    for _ in range(59):
        read(desk, api, mail(desk, ui, "api"))
        read(desk, ui, mail(desk, api, "ui"))
        desk.world.pass_ms(MINUTE)
    assert (is_tainted(desk, ui), is_tainted(desk, api)) == (True, True)
    desk.world.pass_ms(MINUTE)
    assert (is_tainted(desk, ui), is_tainted(desk, api)) == (False, False)
    assert read(desk, api, mail(desk, ui, "api"))["hop"] == 0


def test_a_clock_that_was_ahead_makes_the_hour_no_longer(desk: OfficeDesk) -> None:
    desk.world.wall_ms += 1_000 * HOUR
    ui = tainted(desk)
    desk.world.wall_ms -= 1_000 * HOUR
    assert is_tainted(desk, ui)
    housekeeping(desk)
    assert is_tainted(desk, ui)
    desk.world.pass_ms(HOUR)
    assert not is_tainted(desk, ui)
    mail(desk, ui, "web")


# -- the owner's mail -----------------------------------------------------------------------------


def test_the_owners_own_words_are_no_relay(desk: OfficeDesk, owner: Owner) -> None:
    ui, api = desk.holder("ui", 1), desk.holder("api", 2)
    draft = desk.call(TERMINAL, "owner.compose", to=["ui"], subject="s", body="b")
    letter = owner.apply(owner.signed(draft))["id"]
    assert read(desk, ui, str(letter))["trust"] == "authority: OWNER"
    assert desk.rows("SELECT count(*) FROM exposures") == [(0,)]
    assert read(desk, api, mail(desk, ui, "api"))["hop"] == 0


def test_what_the_owner_passes_on_from_outside_is_from_outside(
    desk: OfficeDesk, owner: Owner
) -> None:
    ui = desk.holder("ui", 1)
    draft = desk.call(
        TERMINAL, "owner.compose", to=["ui"], subject="s", body="b", origin="external"
    )
    read(desk, ui, str(owner.apply(owner.signed(draft))["id"]))
    assert is_tainted(desk, ui)


# -- relay ----------------------------------------------------------------------------------------


def agents(desk: OfficeDesk, count: int) -> tuple[list[str], list[Caller]]:
    names = [f"{letter}{letter}-dev" for letter in "abcdefghjkmn"[:count]]
    return names, [desk.holder(name, pid) for pid, name in enumerate(names, 1)]


def test_a_text_that_gives_its_source_a_copy_meets_the_limit_too(desk: OfficeDesk) -> None:
    names, callers = agents(desk, 9)
    message = mail(desk, callers[0], names[1])
    for place in range(1, 8):
        assert read(desk, callers[place], message)["hop"] == place - 1
        to = [names[place - 1], names[place + 1]]
        if place < 7:
            message = mail(desk, callers[place], to)
            continue
        letter = {"to": to, "subject": "s", "body": "b"}
        assert "6 times already" in desk.call(callers[place], "mail.send", **letter)["warnings"][0]
        error = desk.refusal(callers[place], "mail.send", reply_to=message, **letter)
        assert (error.code, error.facts["limit"]) == ("policy-denied", 6)


def test_a_circle_in_which_everybody_tells_everybody_goes_no_deeper(desk: OfficeDesk) -> None:
    names, callers = agents(desk, 12)
    for _ in range(2):
        for place, caller in enumerate(callers):
            others = [name for name in names if name != names[place]]
            message = mail(desk, caller, others)
            for other, reader in enumerate(callers):
                if other != place:
                    assert read(desk, reader, message)["hop"] == 0


def test_a_level_of_the_owners_lets_a_text_go_further(desk: OfficeDesk, owner: Owner) -> None:
    names, callers = agents(desk, 10)
    owner.do("policy", to=names, level="collaborate", **{"from": ["local"]})
    message = mail(desk, callers[0], names[1])
    for place in range(1, 9):
        assert read(desk, callers[place], message)["hop"] == place - 1
        message = mail(desk, callers[place], names[place + 1])


def test_a_note_of_a_far_travelled_text_blocks_nobody(desk: OfficeDesk, owner: Owner) -> None:
    names, callers = agents(desk, 10)
    owner.do("policy", to=names, level="autonomous", **{"from": ["local"]})
    message = mail(desk, callers[0], names[1])
    for place in range(1, 9):
        read(desk, callers[place], message)
        message = mail(desk, callers[place], names[place + 1])
    last = callers[9]
    assert read(desk, last, message)["hop"] == 8
    assert read(desk, last, mail(desk, last, names[9]))["hop"] == 8
    assert read(desk, callers[0], mail(desk, last, names[0]))["hop"] == 9
