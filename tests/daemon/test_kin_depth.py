"""How often a text was passed on is counted through runs and agents below an agent, too."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.correspondence import hold, mail, read
from tests.support.office import OfficeDesk, harness, run, shell
from tests.support.owner import Owner, an_owner


@pytest.fixture
def desk() -> Iterator[OfficeDesk]:
    desk = OfficeDesk()
    desk.add_owner()
    yield desk
    desk.close()


@pytest.fixture
def owner(desk: OfficeDesk) -> Owner:
    return an_owner(desk)


def chain_of_runs(desk: OfficeDesk, count: int) -> list[str]:
    """Names, each of which somebody else holds."""
    names = [f"{letter}{letter}-dev" for letter in "abcdefghjk"[:count]]
    for pid, name in enumerate(names, 20):
        desk.holder(name, pid)
    return names


def test_a_text_that_is_read_by_one_run_and_written_by_another_goes_a_hop_deeper(
    desk: OfficeDesk,
) -> None:
    """Each agent has a run read it, and another run pass it on under another name."""
    names = chain_of_runs(desk, 9)
    message = mail(desk, shell(20), names[1])
    for place in range(1, 8):
        agent, reader, writer = harness(300 + place, "s"), run(101 + place), run(201 + place)
        for caller in (reader, writer):
            assert caller.lineage.process is not None
            desk.below(caller.lineage.process.pid, shell(50), agent)
        desk.call(shell(20 + place), "identity.release")
        desk.call(reader, "identity.claim", name=names[place])
        assert read(desk, reader, message)["hop"] == place - 1
        desk.call(reader, "identity.release")
        hold(desk, writer, f"pen-{'abcdefghjk'[place] * 2}")
        letter = {"to": [names[place + 1]], "subject": "s", "body": "b"}
        sent = desk.call(writer, "mail.send", **letter)
        assert bool(sent["warnings"]) is (place == 7)
        message = str(sent["id"])
    assert desk.rows("SELECT max(hop) FROM messages") == [(7,)]


def test_an_answer_from_a_run_keeps_the_depth_of_what_was_read_above(desk: OfficeDesk) -> None:
    a, b = desk.holder("aa-dev", 20), desk.holder("bb-dev", 21)
    claude = hold(desk, harness(1, "s-1"), "ui")
    desk.below(2, claude)
    hold(desk, run(2), "api")
    read(desk, claude, mail(desk, a, "ui"))
    assert read(desk, b, mail(desk, run(2), "bb-dev"))["hop"] == 1
    question = mail(desk, b, "api")
    answer = desk.call(run(2), "mail.reply", id=question, body="b")["id"]
    assert read(desk, b, str(answer))["hop"] == 0, "bb-dev wrote to this session: it is not new"


def test_whom_the_one_above_knows_is_new_to_the_one_below(desk: OfficeDesk) -> None:
    """Or a fleet below one agent could pass a text around among itself for ever."""
    a, b = desk.holder("aa-dev", 20), desk.holder("bb-dev", 21)
    claude = hold(desk, harness(1, "s-1"), "ui")
    desk.below(2, claude)
    worker = hold(desk, run(2), "api")
    read(desk, claude, mail(desk, b, "ui"))
    read(desk, worker, mail(desk, a, "api"))
    assert read(desk, b, mail(desk, worker, "bb-dev"))["hop"] == 1


def test_who_wrote_to_an_identity_is_not_new_to_the_next_run_of_it(desk: OfficeDesk) -> None:
    """Who does each thing in a run of its own talks for long without going deeper."""
    a, b = desk.holder("aa-dev", 20), desk.holder("bb-dev", 21)
    hold(desk, run(2), "api")
    desk.call(run(2), "identity.release")
    pids = itertools.count(300)

    def as_api(act: Callable[..., Any]) -> Any:
        caller = run(next(pids))
        assert caller.lineage.process is not None
        desk.below(caller.lineage.process.pid, harness(1, "s-1"))
        desk.call(caller, "identity.claim", name="api")
        done = act(desk, caller)
        desk.call(caller, "identity.release")
        return done

    for _ in range(12):
        for other, name in ((a, "aa-dev"), (b, "bb-dev")):
            asked = mail(desk, other, "api")
            as_api(partial(read, message=asked))
            told = as_api(partial(mail, to=name))
            assert read(desk, other, told)["hop"] <= 1


def test_the_limit_of_the_strictest_policy_it_was_read_under_holds_below_too(
    desk: OfficeDesk, owner: Owner
) -> None:
    names = chain_of_runs(desk, 10)
    owner.do("policy", to=names, level="collaborate", **{"from": ["local"]})
    claude = hold(desk, harness(1, "s-1"), "ui")
    desk.below(2, claude)
    below = hold(desk, run(2), "api")
    message = mail(desk, shell(20), names[1])
    for place in range(1, 8):
        read(desk, shell(20 + place), message)
        message = mail(desk, shell(20 + place), names[place + 1] if place < 7 else "ui")
    assert read(desk, claude, message)["hop"] == 7, "under `ask`, where 6 is the limit"
    asked = mail(desk, shell(29), "api")
    letter = {"to": [names[8]], "subject": "s", "body": "b"}
    assert "6 times already" in desk.call(below, "mail.send", **letter)["warnings"][0]
    error = desk.refusal(below, "mail.send", reply_to=asked, **letter)
    assert (error.code, error.facts["limit"]) == ("policy-denied", 6)
