"""A directive says exactly what it says, or it is none."""

from typing import Any

import pytest

from mbx.core import directive
from mbx.core.canonical import JsonValue, encode
from mbx.core.directive import Forwarding, Retirement, Seen
from mbx.core.limits import DIRECTIVE_IDENTITIES_MAX, RECORD_MAX_BYTES
from mbx.core.record import RecordError

ENVELOPE: dict[str, JsonValue] = {"iat": 5, "nonce": "0" * 32, "aud": "h" * 26, "owner": "k" * 26}
BEN, CAI = Seen("b" * 26, "ben", 3), Seen("c" * 26, "cai", 0)
RETIRE, PRUNE = Retirement((BEN, CAI)), Retirement((BEN,), 77)
FORWARD = Forwarding(BEN, CAI.identity, CAI.name)
AGAIN = FORWARD._replace(previous="r" * 26)


def content(wanted: directive.Directive, **changes: JsonValue) -> dict[str, Any]:
    return {**directive.payload(wanted, ENVELOPE), **changes}


def is_refused(payload: dict[str, Any]) -> bool:
    with pytest.raises(RecordError) as refused:
        directive.read(payload)
    return refused.value.step == 6


@pytest.mark.parametrize("wanted", [RETIRE, PRUNE, FORWARD, AGAIN])
def test_what_is_written_is_read_back(wanted: directive.Directive) -> None:
    assert directive.read(content(wanted)) == wanted


@pytest.mark.parametrize("wanted", [RETIRE, PRUNE, FORWARD])
def test_a_field_too_many_or_too_few_makes_it_none(wanted: directive.Directive) -> None:
    whole = content(wanted)
    assert is_refused({**whole, "why": None})
    for name in whole:
        assert is_refused({key: value for key, value in whole.items() if key != name})


@pytest.mark.parametrize("act", ["clock", "", None, 5, ["retire"], "prune", "forward"])
def test_another_act_is_not_read_as_this_one(act: JsonValue) -> None:
    assert is_refused(content(RETIRE, act=act))


@pytest.mark.parametrize(
    "seen",
    [
        None,
        "ben",
        {},
        {"identity": "b" * 26, "name": "ben"},
        {**BEN.as_object(), "role": "dev"},
        {**BEN.as_object(), "identity": "b" * 25},
        {**BEN.as_object(), "identity": "B" * 26},
        {**BEN.as_object(), "identity": 5},
        {**BEN.as_object(), "name": None},
        {**BEN.as_object(), "epoch": -1},
        {**BEN.as_object(), "epoch": True},
        {**BEN.as_object(), "epoch": "3"},
    ],
)
def test_what_is_no_identity_at_an_epoch_is_refused(seen: JsonValue) -> None:
    assert is_refused(content(RETIRE, identities=[seen]))
    if isinstance(seen, dict) and seen.keys() == BEN.as_object().keys():
        assert is_refused({**content(FORWARD), **seen})


@pytest.mark.parametrize(
    "to",
    [
        None,
        "cai",
        {},
        {"identity": "c" * 26},
        CAI.as_object(),
        {"identity": "c", "name": "cai"},
        {"identity": "c" * 26, "name": 5},
        {"identity": "b" * 26, "name": "cai"},
    ],
)
def test_a_forward_needs_one_other_identity(to: JsonValue) -> None:
    assert is_refused(content(FORWARD, to=to))


@pytest.mark.parametrize("previous", ["", "ben", 5, False, ["r" * 26], "R" * 26])
def test_a_forward_names_the_record_before_it_or_none(previous: JsonValue) -> None:
    assert is_refused(content(FORWARD, previous=previous))


@pytest.mark.parametrize("since", [None, -1, True, "5"])
def test_a_prune_says_since_when(since: JsonValue) -> None:
    assert is_refused(content(PRUNE, unseen_since_ms=since))


def test_identities_are_one_to_sixty_four_each_once() -> None:
    many = [Seen(f"{number:026}", "x" * 40, 2**53 - 1) for number in range(65)]
    most = Retirement(tuple(many[:DIRECTIVE_IDENTITIES_MAX]))
    assert directive.read(content(most)) == most
    assert len(encode(content(most))) < RECORD_MAX_BYTES
    assert is_refused(content(Retirement(tuple(many))))
    assert is_refused(content(Retirement(())))
    assert is_refused(content(RETIRE, identities={}))
    assert is_refused(content(Retirement((BEN, BEN._replace(epoch=4)))))
