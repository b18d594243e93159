"""Who there is, and what identities say of themselves."""

from collections.abc import Iterator

import pytest

from mbx.core.limits import CARD_MAX_CHARS
from tests.support.office import OfficeDesk, nobody, shell

ANA, BEN = shell(100), shell(200)


@pytest.fixture
def desk() -> Iterator[OfficeDesk]:
    made = OfficeDesk()
    made.add_owner()
    made.call(ANA, "identity.register", name="ana", role="dev", description="Builds the API")
    made.call(BEN, "identity.register", name="ben", role="test", project="/repo")
    yield made
    made.close()


def names(desk: OfficeDesk, **filters: str) -> list[str]:
    return [agent["name"] for agent in desk.call(nobody(), "agents.list", **filters)["agents"]]


def test_anybody_may_see_who_there_is_and_the_human_is_no_agent(desk: OfficeDesk) -> None:
    agents = desk.call(nobody(), "agents.list")["agents"]
    assert [agent["name"] for agent in agents] == ["ana", "ben"]
    assert agents[0] == {
        "name": "ana",
        "host": "desk",
        "address": "ana@desk",
        "role": "dev",
        "description": "Builds the API",
        "cli": "shell",
        "state": "live",
        "reach": "live-next-prompt",
        "reach_detail": "it sees mail at its next prompt",
        "project": None,
        "card": None,
        "last_seen": None,
    }


def test_agents_are_found_by_word_role_and_project(desk: OfficeDesk) -> None:
    assert names(desk, query="api builds") == ["ana"]
    assert names(desk, role="test") == ["ben"]
    assert names(desk, project="/repo") == ["ben"]
    assert names(desk, query="nothing") == []


def test_the_state_tells_what_is_known_of_the_holder(desk: OfficeDesk) -> None:
    def state() -> str:
        return str(desk.call(nobody(), "agents.list", query="ana")["agents"][0]["state"])

    desk.evidence[100] = "unknown"
    assert state() == "unknown"
    desk.evidence[100] = "dead"
    assert state() == "offline"
    desk.call(ANA, "identity.release")
    assert state() == "offline"


def test_an_identity_says_what_it_is(desk: OfficeDesk) -> None:
    said = desk.call(ANA, "identity.set", role="lead-dev", description="All of it", card="a\nb")
    assert said == {
        "agent": "ana",
        "role": "lead-dev",
        "description": "All of it",
        "card": "a\nb",
    }
    desk.call(ANA, "identity.set", card="")
    agent = desk.call(nobody(), "agents.list", query="ana")["agents"][0]
    assert (agent["role"], agent["card"]) == ("lead-dev", None)
    assert desk.call(ANA, "session.whoami")["description"] == "All of it"


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({}, "usage"),
        ({"role": "No Role"}, "name-invalid"),
        ({"description": "x" * 201}, "text-invalid"),
        ({"description": "a\nb"}, "text-invalid"),
        ({"card": "x" * (CARD_MAX_CHARS + 1)}, "text-invalid"),
        ({"card": "\0"}, "text-invalid"),
    ],
)
def test_what_cannot_be_set_is_refused(desk: OfficeDesk, params: dict[str, str], code: str) -> None:
    assert desk.refusal(ANA, "identity.set", **params).code == code


def test_a_card_may_be_as_long_as_its_limit(desk: OfficeDesk) -> None:
    assert desk.call(ANA, "identity.set", card="x" * CARD_MAX_CHARS)["card"]


# -- renaming -------------------------------------------------------------------------------------


def test_mail_threads_and_the_lease_follow_an_identity_to_its_new_name(desk: OfficeDesk) -> None:
    first = desk.call(BEN, "mail.send", to=["ana"], subject="s", body="b")["id"]
    epoch = desk.call(ANA, "session.whoami")["lease"]["epoch"]
    renamed = desk.call(ANA, "identity.rename", name="anna")
    assert renamed == {"agent": "anna", "address": "anna@desk", "old_name": "ana"}
    assert desk.call(ANA, "mail.inbox")["messages"][0]["id"] == first
    assert desk.call(ANA, "session.whoami")["lease"]["epoch"] == epoch
    answer = desk.call(ANA, "mail.reply", id=first, body="hi")
    assert desk.call(BEN, "mail.thread", id=answer["id"])["messages"][0]["to"] == ["anna@desk"]
    payload = desk.rows("SELECT payload FROM leases WHERE identity_no = 2")[0][0]
    assert '"name":"anna"' in payload


def test_the_old_name_is_free_at_once_and_reaches_nobody(desk: OfficeDesk) -> None:
    desk.call(ANA, "identity.rename", name="anna")
    error = desk.refusal(BEN, "mail.send", to=["ana"], subject="s", body="b")
    assert (error.code, error.facts["suggestions"]) == ("unknown-recipient", {"ana": ["anna"]})


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("ben", "name-taken"),
        ("b-en", "name-taken"),
        ("owner", "name-invalid"),
        ("x", "name-invalid"),
        ("0wner", "name-invalid"),
    ],
)
def test_a_name_that_is_taken_or_no_name_is_refused(desk: OfficeDesk, name: str, code: str) -> None:
    assert desk.refusal(ANA, "identity.rename", name=name).code == code
    assert desk.call(ANA, "session.whoami")["agent"] == "ana"


def test_a_name_may_change_to_a_look_alike_of_itself_and_to_itself(desk: OfficeDesk) -> None:
    assert desk.call(ANA, "identity.rename", name="a-na")["agent"] == "a-na"
    assert desk.call(ANA, "identity.rename", name="a-na")["old_name"] == "a-na"
