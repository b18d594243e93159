"""The takeover's payload: exactly its fields, a term of five minutes, an id and an epoch."""

from collections.abc import Callable
from typing import Any

import pytest

from mbx.core.errors import MbxError
from mbx.core.limits import (
    CLI_NAME_MAX_CHARS,
    NOTE_MAX_CHARS,
    SESSION_ID_MAX_CHARS,
    TAKEOVER_TTL_MS,
)
from mbx.core.record import RecordError
from mbx.core.takeover import Takeover, payload, read

NOW = 1_700_000_000_000
MINUTES = 5 * 60 * 1000
ENVELOPE: dict[str, Any] = {"iat": NOW, "nonce": "0" * 32, "aud": "h" * 26, "owner": "0" * 26}
WANTED = Takeover("a" * 26, "ui-dev", 3, "claude", "s-1", "it hangs", NOW, NOW + MINUTES)
HOLDER: dict[str, Any] = {"cli": "codex", "session": "x", "since": 1}


def test_what_was_drafted_is_what_is_read() -> None:
    assert read(payload(WANTED, HOLDER, ENVELOPE)) == WANTED
    assert read(payload(WANTED, None, ENVELOPE)) == WANTED
    assert payload(WANTED, HOLDER, ENVELOPE)["holder"] == HOLDER


@pytest.mark.parametrize(
    ("term_ms", "holds"),
    [
        *[(-1, False), (0, False), (1, True)],
        *[(MINUTES - 1, True), (MINUTES, True), (MINUTES + 1, False)],
    ],
)
def test_it_lasts_five_minutes_at_most(*, term_ms: int, holds: bool) -> None:
    assert TAKEOVER_TTL_MS == MINUTES
    told = payload(WANTED._replace(exp_ms=NOW + term_ms), None, ENVELOPE)
    if holds:
        assert read(told).exp_ms == NOW + term_ms
    else:
        with pytest.raises(RecordError):
            read(told)


Change = Callable[[dict[str, Any]], object]

WRONG: dict[str, Change] = {
    "a field too many": lambda told: told.update(also="this"),
    "a field missing": lambda told: told.pop("holder"),
    "no id": lambda told: told.update(identity="ui-dev"),
    "an id in capitals": lambda told: told.update(identity="A" * 26),
    "an id that is a list": lambda told: told.update(identity=["a" * 26]),
    "an epoch below 0": lambda told: told.update(epoch=-1),
    "an epoch that is true": lambda told: told.update(epoch=True),
    "an epoch that is a text": lambda told: told.update(epoch="3"),
    "a time that is a text": lambda told: told.update(exp=str(NOW)),
    "a time that is none": lambda told: told.update(iat=None),
    "a destination that is a text": lambda told: told.update(destination="claude s-1"),
    "a destination with more": lambda told: told["destination"].update(pid=1),
    "a destination with less": lambda told: told["destination"].pop("cli"),
    "a cli that is a number": lambda told: told["destination"].update(cli=1),
    "a session that is none": lambda told: told["destination"].update(session=None),
    "a name that is none": lambda told: told.update(name=None),
    "a reason that is none": lambda told: told.update(reason=None),
}


@pytest.mark.parametrize("what", WRONG)
def test_anything_else_is_no_takeover(what: str) -> None:
    told = payload(WANTED, HOLDER, ENVELOPE)
    WRONG[what](told)
    with pytest.raises(RecordError) as caught:
        read(told)
    assert caught.value.step == 6


def with_text(field: str, text: str) -> dict[str, Any]:
    changed: dict[str, Any] = {field: text}
    return payload(WANTED._replace(**changed), None, ENVELOPE)


@pytest.mark.parametrize(
    ("field", "most"),
    [
        ("cli", CLI_NAME_MAX_CHARS),
        ("session", SESSION_ID_MAX_CHARS),
        ("reason", NOTE_MAX_CHARS),
    ],
)
def test_its_texts_have_their_lengths(field: str, most: int) -> None:
    for chars in (most - 1, most):
        assert read(with_text(field, "x" * chars))
    with pytest.raises(MbxError):
        read(with_text(field, "x" * (most + 1)))


def test_a_session_has_no_line_break() -> None:
    for field in ("cli", "session"):
        with pytest.raises(MbxError):
            read(with_text(field, "a\nb"))
