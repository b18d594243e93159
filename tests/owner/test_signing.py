"""Confirmation and passphrase, on a real terminal, with the key opened in a process of its own."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mbx.core.record import Record, verify
from mbx.owner import keyfile
from tests.owner.test_draft import HOST, KEY, OWNER, draft
from tests.support.seat import Seat

PASSPHRASE = "seven quiet otters"
SEALED = keyfile.seal(b"\x02" * 32, PASSPHRASE.encode(), bytes(28), n=keyfile.N_MIN)

_FRAME = """
import json, sys
from mbx.core.errors import MbxError
from mbx.owner import keyfile, requests, seclusion, signing
from mbx.owner.draft import Draft, Expected
from mbx.owner.terminal import Terminal
try:
    with Terminal() as terminal:
        {act}
    print(json.dumps(told))
except MbxError as error:
    print(json.dumps([error.code, error.message]))
    sys.exit(1)
except KeyboardInterrupt:
    sys.exit(130)
"""
_SIGN = """
        key = keyfile.load(sys.argv[1])
        draft = Draft(**json.loads(sys.argv[2]))
        expected = Expected({"takeover"}, key.key_id, sys.argv[3])
        told = [requests.as_object(signing.sign(terminal, draft, key, expected)),
            seclusion.is_secluded()]
"""
_CHOOSE = """
        told = signing.choose(terminal).decode()
"""


def program(act: str) -> list[str]:
    return [sys.executable, "-c", _FRAME.replace("{act}", act.strip())]


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "owner.key"
    keyfile.create(str(path), SEALED)
    return path


@pytest.fixture
def seat(key_file: Path) -> Iterator[Seat]:
    one = draft()
    asked = {"kind": one.kind, "payload": one.payload, "confirm": one.confirm}
    with Seat([*program(_SIGN), str(key_file), json.dumps(asked), HOST]) as started:
        yield started


def told(seat: Seat) -> tuple[int, Any]:
    done = seat.finish()
    assert done.err == ""
    assert seat.state() == seat.before
    return done.status, json.loads(done.out)


def test_a_record_is_shown_agreed_to_and_signed_in_a_closed_process(seat: Seat) -> None:
    shown = seat.expect("Type api-dev to agree")
    for row in ('name: "api-dev"', "epoch: 7", 'destination.cli: "claude"', f'aud: "{HOST}"'):
        assert row in shown
    seat.type("api-dev\n")
    seat.answer("Passphrase:", PASSPHRASE)
    status, (record, secluded) = told(seat)
    assert (status, secluded) == (0, sys.platform == "linux")
    signed = Record(**record)
    assert verify(signed, kind="takeover", signers={OWNER: KEY.public}, audience=HOST)
    assert PASSPHRASE not in seat.drain()


def test_three_wrong_passphrases_end_it(seat: Seat) -> None:
    seat.answer("to agree", "api-dev")
    for number in (1, 2, 3):
        seat.answer("Passphrase:", f"wrong number {number}")
        seat.expect(f"({number} of 3 tries)")
    status, (code, message) = told(seat)
    assert (status, code) == (1, "owner-locked")
    assert "nothing was signed" in message
    assert "wrong number" not in message + seat.drain()


def test_a_mistyped_passphrase_may_be_typed_again(seat: Seat) -> None:
    seat.answer("to agree", "api-dev")
    seat.answer("Passphrase:", "")
    seat.answer("Passphrase:", PASSPHRASE)
    assert told(seat)[0] == 0


def test_whoever_types_something_else_three_times_has_not_agreed(seat: Seat) -> None:
    for answer in ("yes", "api-dev2", ""):
        seat.answer("to agree", answer)
    status, (code, message) = told(seat)
    assert (status, code) == (1, "owner-required")
    assert "nothing was signed" in message
    assert "Passphrase" not in seat.drain()


@pytest.mark.parametrize("passphrase", ["eight888", "\u00fc" * 8, "a long passphrase of words"])
def test_a_passphrase_is_chosen_by_typing_it_twice(passphrase: str) -> None:
    with Seat(program(_CHOOSE)) as seat:
        seat.answer("New passphrase", "1234567")
        seat.expect("Too short: 7 of at least 8 characters")
        seat.answer("New passphrase", passphrase)
        between = seat.answer("The same again:", passphrase)
        assert ("Warning: shorter than 12" in between) is (len(passphrase) < 12)
        assert told(seat) == (0, passphrase)
        assert passphrase not in seat.drain()


def test_a_passphrase_that_is_never_repeated_is_not_taken() -> None:
    with Seat(program(_CHOOSE)) as seat:
        for number in range(3):
            seat.answer("New passphrase", f"a passphrase {number}")
            seat.answer("The same again:", "a passphrase")
        status, (code, _) = told(seat)
        assert (status, code) == (1, "owner-required")


def test_the_secret_is_nowhere_but_on_the_line(key_file: Path) -> None:
    """Arguments, environment and standard input of the process that signs are not read."""
    one = draft()
    asked = json.dumps({"kind": one.kind, "payload": one.payload, "confirm": one.confirm})
    env = {**os.environ, "MBX_PASSPHRASE": PASSPHRASE, "PASSPHRASE": PASSPHRASE}
    piped = f"api-dev\n{PASSPHRASE}\n".encode()
    argv = [*program(_SIGN), str(key_file), asked, HOST, PASSPHRASE]
    with Seat(argv, env=env, stdin=piped) as seat:
        seat.answer("to agree", "api-dev")
        seat.answer("Passphrase:", "wrong")
        seat.expect("(1 of 3 tries)")
        seat.answer("Passphrase:", "wrong")
        seat.answer("Passphrase:", "wrong")
        assert told(seat)[0] == 1
