"""The tables of hooks: the clients' own words, and nothing that no client knows."""

import json

import pytest

from mbx.core.clients import ACTS, CLIENTS, END, FORMS, NOTHING, START, STATUS_LINES, Client, output
from mbx.core.evidence import HARNESSES

EVERY = pytest.mark.parametrize("client", CLIENTS.values(), ids=list(CLIENTS))


@EVERY
def test_each_client_is_an_agent_cli_that_the_walk_knows(client: Client) -> None:
    assert client.harness in HARNESSES
    assert set(client.events) == set(client.forms) <= set(ACTS)
    assert set(client.forms.values()) <= set(FORMS)


@EVERY
def test_an_event_has_one_act_and_any_other_has_none(client: Client) -> None:
    for act, event in client.events.items():
        assert client.act_of(event) == act
    for event in ("", "Nonsense", "stop", "SubagentStop", "PreCompact"):
        assert client.act_of(event) == ""


@EVERY
def test_a_change_of_the_conversation_is_no_end(client: Client) -> None:
    assert client.ends.isdisjoint({"clear", "resume", "other", "compact", "fork", ""})


def test_every_client_tells_of_its_sessions_and_can_be_told_something() -> None:
    for client in CLIENTS.values():
        assert START in client.events
        told = {form for act, form in client.forms.items() if act != END}
        assert told != {NOTHING}
    assert set(STATUS_LINES) <= set(CLIENTS)


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_what_the_table_of_forms_shows(form: str) -> None:
    told = output(form, "E", "T")
    shown = FORMS[form].replace("EVENT", '"E"').replace("TEXT", '"T"')
    if told is None:
        assert not shown.startswith("{")
    else:
        assert json.loads(shown) == told
