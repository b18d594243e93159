"""Refusals: codes, exit statuses, objects."""

import pytest

from mbx.core import limits
from mbx.core.errors import EXIT_STATUS, MbxError


def test_the_codes_of_the_contract_have_their_exit_statuses() -> None:
    assert EXIT_STATUS["usage"] == 2
    assert {c for c, s in EXIT_STATUS.items() if s == 3} == {
        "not-found",
        "unknown-identity",
        "unknown-recipient",
    }
    assert {c for c, s in EXIT_STATUS.items() if s == 5} == {
        "no-lease",
        "lease-lost",
        "lease-foreign",
    }
    assert EXIT_STATUS["ambiguous"] == 4
    assert EXIT_STATUS["outcome-unknown"] == 75
    assert set(EXIT_STATUS.values()) == {1, 2, 3, 4, 5, 6, 75}


def test_an_error_shows_code_message_next_and_facts() -> None:
    error = MbxError("in-use", "held", "mbx identity show bob", holder="x")
    assert error.exit_status == 1
    assert error.as_object() == {
        "code": "in-use",
        "message": "held",
        "next": "mbx identity show bob",
        "holder": "x",
    }


def test_a_code_outside_the_table_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="unknown error code"):
        MbxError("oops", "never")


def test_the_worst_legal_body_fits_a_request_line() -> None:
    assert 6 * limits.BODY_MAX_BYTES + 400_000 < limits.REQUEST_LINE_MAX_BYTES
