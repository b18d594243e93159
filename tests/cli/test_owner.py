"""`mbx owner …` on real terminals, with a real daemon: what is made, signed, carried, applied."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mbx.cli import authority
from mbx.core.errors import EXIT_STATUS
from mbx.core.keys import SigningKey, key_id
from mbx.owner import keyfile, requests
from mbx.owner.draft import Draft
from tests.cli.conftest import MBX, Desk, contents, document
from tests.cli.owners import PASSPHRASE, SEALED, SEED, Human, refused
from tests.owner.test_draft import OWNER, content, draft
from tests.support.seat import LoneSeat
from tests.support.shells import look_alike

# Asks the daemon for a draft as commands do, and has it signed and applied, or written to a file.
_ACT = """
import os, sys
from mbx.cli import authority
from mbx.cli.output import Output
from mbx.cli.session import Session
from mbx.core.errors import MbxError
output = Output(os.environ)
output.as_json = sys.argv[1] == "json"
try:
    authority.carry_out(
        Session(output, os.environ), "revoke", sys.argv[2] or None, all=True, reason=sys.argv[3]
    )
except MbxError as error:
    output.error(error)
    sys.exit(error.exit_status)
"""


def revoke(form: str = "text", file: str = "", reason: str = "a test") -> str:
    """The shell text of an act that needs the owner's signature: revoke everything."""
    return shlex.join([sys.executable, "-c", _ACT, form, file, reason])


@pytest.fixture
def newcomer(own_desk: Desk) -> Iterator[Human]:
    """A human whose host has no owner yet."""
    human = Human(own_desk)
    yield human
    human.shell.close()


@pytest.fixture(scope="module")
def owner(desk: Desk) -> Iterator[Human]:
    """The owner of a host, for tests that change no key."""
    human = Human(desk)
    human.enroll()
    yield human
    human.shell.close()


@pytest.fixture
def key_home(tmp_path: Path) -> Path:
    """A home with a key file and no daemon: another machine."""
    home = tmp_path / "away"
    home.mkdir(mode=0o700)
    keyfile.create(str(home / "owner.key"), SEALED)
    return home


def away(home: Path, *arguments: str, stdin: bytes | None = None, **env: str) -> LoneSeat:
    """A command on a terminal, on that other machine."""
    return LoneSeat(
        [str(MBX), *arguments], env={**os.environ, "MBX_HOME": str(home), **env}, stdin=stdin
    )


# -- init, show -----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(120)  # keys at the usual cost, of time and memory
def test_init_makes_one_key_that_the_daemon_knows_and_tells_nobody_the_secret(
    newcomer: Human,
) -> None:
    before = newcomer.shows()
    assert (before["owner"], before["key_file"]["state"]) == (None, "missing")
    newcomer.shell.start("mbx owner init --json")
    newcomer.screen.expect("New passphrase")
    secrets = _canaries(newcomer.shell.pid)
    newcomer.screen.type(f"{PASSPHRASE}\n")
    newcomer.screen.answer("The same again:", PASSPHRASE)
    shown = newcomer.agree()
    answer = document(newcomer.shell.finish())
    after = newcomer.shows()
    assert answer["after"]["owner"] == after["owner"]["key_id"] == after["key_file"]["key_id"]
    assert after["key_file"]["state"] == "present"
    assert f'public_key: "{after["owner"]["public_key"]}"' in shown
    assert newcomer.key_path.stat().st_mode & 0o7777 == 0o600
    for text in (*secrets, newcomer.screen.drain(), answer, *_files(newcomer.desk.home)):
        assert PASSPHRASE not in str(text)
    assert "mbx owner show" in refused(newcomer.run("mbx owner init"), "conflict")
    text = newcomer.run("mbx owner show").out
    assert after["owner"]["key_id"] in text
    assert "present" in text


def _canaries(pid: int) -> list[str]:
    """Arguments and environment of a process and of all below it."""
    found = []
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for one in (pid, *map(int, children)):
        for entry in ("cmdline", "environ"):
            try:
                found.append(Path(f"/proc/{one}/{entry}").read_text(errors="replace"))
            except PermissionError:
                found.append("closed")
    assert len(found) >= 4
    return found


def _files(folder: Path) -> list[str]:
    found = [(path.name, content) for path, _, content in contents(folder)]
    assert {"store.db", "daemon.log", "owner.key"} <= {name for name, _ in found}
    return [content.decode("latin-1") for _, content in found]


@pytest.mark.long
@pytest.mark.timeout(120)  # keys at the usual cost, of time and memory
def test_of_two_inits_at_once_one_makes_the_key(newcomer: Human) -> None:
    other = Human(newcomer.desk)
    try:
        for human in (newcomer, other):
            human.shell.start("mbx owner init")
        for human in (newcomer, other):
            human.choose(f"{PASSPHRASE} of {human.shell.pid}")
        words = [human.asked() for human in (newcomer, other)]
        for human, word in zip((newcomer, other), words, strict=True):
            human.screen.type(f"{word}\n")
        ends = [human.shell.finish() for human in (newcomer, other)]
    finally:
        other.shell.close()
    assert sorted(end.status for end in ends) == [0, 1]
    refused(next(end for end in ends if end.status), "conflict")
    told = newcomer.shows()
    assert told["key_file"]["state"] == "present"
    assert told["key_file"]["key_id"] == told["owner"]["key_id"]


def test_an_init_below_an_agent_cli_is_refused_and_leaves_no_key(
    newcomer: Human, tmp_path: Path
) -> None:
    claude = look_alike(tmp_path, "claude")
    done = newcomer.run(f"{claude} -c 'mbx owner init; exit $?'")
    assert "agent CLI claude" in refused(done, "owner-required")
    assert "passphrase" not in newcomer.screen.drain()
    assert not newcomer.key_path.exists()
    assert newcomer.shows()["owner"] is None


def test_an_init_without_a_terminal_asks_nobody(newcomer: Human) -> None:
    done = newcomer.run(f"echo {PASSPHRASE} | setsid --wait mbx owner init")
    assert "has none" in refused(done, "owner-required")
    assert not newcomer.desk.home.exists() or not newcomer.key_path.exists()


def test_an_init_that_was_left_changes_nothing(newcomer: Human) -> None:
    newcomer.shell.start("mbx owner init")
    newcomer.choose()
    newcomer.screen.expect("to agree")
    newcomer.screen.type("\x03")
    assert newcomer.shell.finish().status == 130
    assert not newcomer.key_path.exists()
    assert newcomer.shows()["owner"] is None


# -- sign, apply ----------------------------------------------------------------------------------


def test_a_request_is_carried_away_signed_there_and_brought_back(
    owner: Human, key_home: Path, tmp_path: Path
) -> None:
    file = tmp_path / "request"
    version = owner.shows()["policy_version"]
    done = owner.run(revoke(file=str(file)))
    assert f"mbx owner sign {file}" in done.out
    assert "conflict" not in done.err
    with away(key_home, "owner", "sign", str(file), "--json") as seat:
        shown = seat.answer("Type all to agree", "all")
        assert 'reason: "a test"' in shown
        seat.answer("Passphrase:", PASSPHRASE)
        told = document(seat.finish())
    assert told["signed"] == f"{file}.signed"
    assert not (key_home / "run").exists(), "no daemon is needed to sign"
    assert owner.shows()["policy_version"] == version
    applied = document(owner.run(f"mbx owner apply {file}.signed --json"))
    assert (applied["id"], applied["duplicate"]) == (told["id"], False)
    assert owner.shows()["policy_version"] == version + 1
    again = owner.run(f"mbx owner apply {file}.signed")
    assert again.out.startswith(f"applied already: revoke {told['id']}")
    assert owner.shows()["policy_version"] == version + 1


def test_an_act_is_signed_and_applied_where_the_key_is(owner: Human) -> None:
    version = owner.shows()["policy_version"]
    done = owner.sign(revoke("json"))
    assert document(done)["kind"] == "revoke"
    done = owner.sign(revoke())
    assert done.out.startswith("applied: revoke ")
    assert owner.shows()["policy_version"] == version + 2


def test_a_record_that_was_changed_or_signed_by_another_is_not_applied(
    owner: Human, tmp_path: Path
) -> None:
    file = tmp_path / "request"
    assert owner.run(revoke(file=str(file))).status == 0
    one = requests.read_request(str(file))
    stranger = SigningKey.from_seed(bytes(32))
    forged = json.loads(one.payload) | {"reason": "another"}
    before = owner.shows()
    for number, payload in enumerate((one.payload, json.dumps(forged, separators=(",", ":")))):
        record = _signed(Draft(one.kind, payload, one.confirm), stranger, OWNER)
        path = tmp_path / f"record{number}"
        requests.write_record(str(path), record)
        assert "not to be believed" in refused(
            owner.run(f"mbx owner apply {path}"), "owner-required"
        )
    assert owner.shows() == before


def _signed(one: Draft, key: SigningKey, name: str) -> Any:
    from mbx.core.record import seal

    return seal(one.kind, one.payload.encode(), key).record(name)


@pytest.mark.parametrize("command", ["sign", "apply"])
def test_a_file_that_is_something_else_is_named(owner: Human, command: str, tmp_path: Path) -> None:
    path = tmp_path / "note"
    path.write_text("hello")
    assert "not JSON" in refused(owner.run(f"mbx owner {command} {path}"), "usage")
    assert "no file" in refused(owner.run(f"mbx owner {command} {path}2"), "not-found")


def test_a_request_for_another_owner_is_not_shown_for_signing(
    key_home: Path, tmp_path: Path
) -> None:
    other = key_id("owner", SigningKey.from_seed(bytes(32)).public)
    file = tmp_path / "request"
    requests.write_request(str(file), draft(content(owner=other)))
    with away(key_home, "owner", "sign", str(file)) as seat:
        assert "another owner key" in refused(seat.finish(), "conflict")
        assert "Passphrase" not in seat.drain()


def test_the_first_key_and_its_successor_are_not_signed_from_a_file(
    key_home: Path, tmp_path: Path
) -> None:
    file = tmp_path / "request"
    requests.write_request(str(file), draft(content(type="rotate"), kind="rotate"))
    with away(key_home, "owner", "sign", str(file)) as seat:
        assert "not asked for" in refused(seat.finish(), "conflict")


def test_nothing_is_overwritten_by_sign_and_export(key_home: Path, tmp_path: Path) -> None:
    file, signed = tmp_path / "request", tmp_path / "request.signed"
    requests.write_request(str(file), draft())
    signed.write_text("precious")
    for arguments in (("sign", str(file)), ("export", str(signed))):
        with away(key_home, "owner", *arguments) as seat:
            refused(seat.finish(), "conflict")
    assert signed.read_text() == "precious"


QUESTIONS = ("to agree", "Passphrase:")


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("\x04", EXIT_STATUS["owner-required"]),
        ("\x03", 130),
        (signal.SIGTERM, -signal.SIGTERM),
        (signal.SIGHUP, -signal.SIGHUP),
    ],
)
def test_every_way_out_of_a_command_gives_the_terminal_back(
    key_home: Path, tmp_path: Path, question: str, how: str | signal.Signals, status: int
) -> None:
    file = tmp_path / "request"
    requests.write_request(str(file), draft())
    with away(key_home, "owner", "sign", str(file)) as seat:
        if question == "Passphrase:":
            seat.answer("to agree", "api-dev")
        seat.expect(question)
        seat.signal(how) if isinstance(how, signal.Signals) else seat.type(how)
        done = seat.finish()
        assert (done.status, seat.state()) == (status, seat.before)
        assert "Traceback" not in done.err
    assert not Path(f"{file}.signed").exists()


def test_three_wrong_passphrases_lock_and_no_other_way_in_is_read(
    key_home: Path, tmp_path: Path
) -> None:
    file = tmp_path / "request"
    requests.write_request(str(file), draft())
    names = ("MBX_PASSPHRASE", "MBX_OWNER_PASSPHRASE", "PASSPHRASE", "PINENTRY_USER_DATA")
    env = dict.fromkeys(names, PASSPHRASE)
    piped = f"api-dev\n{PASSPHRASE}\n".encode()
    with away(key_home, "owner", "sign", str(file), stdin=piped, **env) as seat:
        seat.answer("to agree", "api-dev")
        for _ in range(3):
            seat.answer("Passphrase:", "wrong")
        assert "3 wrong passphrases" in refused(seat.finish(), "owner-locked")
        assert PASSPHRASE not in seat.drain()
    for arguments in (["--passphrase", PASSPHRASE], ["--passphrase-file", "f"], ["-p", "x"]):
        with away(key_home, "owner", "sign", str(file), *arguments) as seat:
            done = seat.finish()
            assert done.status == EXIT_STATUS["usage"]
            assert PASSPHRASE not in done.err
    done_piped = subprocess.run(
        [str(MBX), "owner", "sign", str(file)],
        env={**os.environ, "MBX_HOME": str(key_home), **env},
        input=piped.decode(),
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
        start_new_session=True,
    )
    refused(done_piped, "owner-required")


@pytest.mark.parametrize("command", ["passwd", "sign {file}", "rotate", "init"])
def test_below_an_agent_cli_no_command_asks_for_a_passphrase(
    newcomer: Human, tmp_path: Path, command: str
) -> None:
    newcomer.enroll()
    file = tmp_path / "request"
    requests.write_request(str(file), draft())
    claude = look_alike(tmp_path, "claude")
    asked = f"mbx owner {command.format(file=file)}"
    done = newcomer.run(f"{claude} -c '{asked}; exit $?'")
    assert "agent CLI claude" in refused(done, "owner-required")
    shown = newcomer.screen.drain()
    assert shown.count("Passphrase:") == 1, "that of the enrolment"
    assert not {"Old passphrase", "New passphrase"} & set(shown.split(":"))
    assert newcomer.key_path.read_bytes() == SEALED
    assert not Path(f"{file}.signed").exists()


# -- the key file ---------------------------------------------------------------------------------


def test_the_passphrase_is_changed_and_the_key_stays(key_home: Path) -> None:
    path = key_home / "owner.key"
    with away(key_home, "owner", "passwd", "--json") as seat:
        seat.answer("Old passphrase:", PASSPHRASE)
        seat.answer("New passphrase", "eight quiet otters")
        seat.answer("The same again:", "eight quiet otters")
        assert document(seat.finish())["key_id"] == OWNER
    sealed = keyfile.load(str(path))
    assert (sealed.key_id, sealed.n) == (OWNER, keyfile.N_DEFAULT)
    assert sealed.open(b"eight quiet otters") == SEED
    assert os.listdir(key_home) == ["owner.key"]


def test_a_copy_is_the_same_file_and_private(key_home: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with away(key_home, "owner", "export", str(copy)) as seat:
        assert seat.finish().status == 0
    assert copy.read_bytes() == SEALED
    assert copy.stat().st_mode & 0o7777 == 0o600


@pytest.mark.parametrize("command", ["passwd", "export copy", "sign request"])
def test_a_damaged_key_file_is_named_and_left_as_it_is(
    key_home: Path, tmp_path: Path, command: str
) -> None:
    requests.write_request(str(tmp_path / "request"), draft())
    path = key_home / "owner.key"
    path.write_bytes(SEALED[:200])
    verb, _, name = command.partition(" ")
    with away(key_home, "owner", verb, *([str(tmp_path / name)] if name else [])) as seat:
        err = refused(seat.finish(), "store-damaged")
    assert str(path) in err
    assert "left as it is" in err
    assert path.read_bytes() == SEALED[:200]


# -- rotate ---------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(120)  # keys at the usual cost, of time and memory
def test_a_new_key_follows_the_old_one_and_an_interrupted_change_is_finished(
    newcomer: Human,
) -> None:
    newcomer.enroll()
    newcomer.shell.start("mbx owner rotate --json")
    newcomer.choose("eight quiet otters")
    newcomer.agree()
    newcomer.screen.answer("Old passphrase:", PASSPHRASE)
    told = document(newcomer.shell.finish())
    assert told["previous"] == OWNER
    after = newcomer.shows()
    assert after["owner"]["key_id"] == told["rotated"] == after["key_file"]["key_id"]
    assert after["former"] == [OWNER]
    # As it lies after a kill between the daemon's answer and the new file's taking its place.
    path, begun = newcomer.key_path, Path(f"{newcomer.key_path}.next")
    path.rename(begun)
    keyfile.create(str(path), SEALED)
    state = newcomer.shows()["key_file"]
    assert (state["state"], "rotate" in state["next"]) == ("another", True)
    assert "mbx owner show" in refused(newcomer.run(revoke()), "conflict")
    assert document(newcomer.run("mbx owner rotate --json")) == told
    assert newcomer.shows() == after
    assert not begun.exists()


@pytest.mark.long
@pytest.mark.timeout(120)  # keys at the usual cost, of time and memory
def test_a_change_that_was_left_keeps_the_old_key(newcomer: Human) -> None:
    newcomer.enroll()
    before = newcomer.shows()
    newcomer.shell.start("mbx owner rotate")
    newcomer.choose("eight quiet otters")
    newcomer.agree()
    for _ in range(3):
        newcomer.screen.answer("Old passphrase:", "wrong")
    refused(newcomer.shell.finish(), "owner-locked")
    assert newcomer.shows() == before
    assert not Path(f"{newcomer.key_path}.next").exists()


def test_without_an_owner_nothing_can_be_drafted_or_followed(newcomer: Human) -> None:
    assert "mbx owner init" in refused(newcomer.run(revoke()), "not-found")
    newcomer.desk.home.mkdir(mode=0o700, exist_ok=True)
    keyfile.create(str(newcomer.key_path), SEALED)
    for command in (revoke(), "mbx owner rotate"):
        assert "mbx owner init" in refused(newcomer.run(command), "owner-required")


def test_every_act_has_the_kind_of_record_that_its_draft_must_be() -> None:
    from mbx.owner.draft import KINDS

    assert set(authority.KINDS.values()) <= KINDS
