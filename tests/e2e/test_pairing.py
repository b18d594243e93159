"""Two people pair two hosts: the real command on terminals, real daemons, TLS over the loopback."""

import os
import re
import select
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from mbx.cli import pairing
from mbx.core.errors import EXIT_STATUS, MbxError
from mbx.core.pairing_code import parse_code
from scripts.ports import reserve_port
from tests.cli.conftest import document
from tests.cli.owners import refused
from tests.support.hosts import until
from tests.support.human import Human as Raw
from tests.support.pairers import WRONG_CODE, Person, person, told
from tests.support.patience import looks
from tests.support.shells import look_alike

Two = tuple[Person, Person]


pytestmark = [pytest.mark.long, pytest.mark.timeout(90)]


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Two]:
    """Two hosts on one machine that nobody has paired; the first one has an owner."""
    with ExitStack() as stack:
        one, other = (stack.enter_context(person(tmp_path / name)) for name in ("one", "two"))
        one.own(2)
        yield one, other


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """Two hosts with an owner each, for tests after which nobody is paired."""
    folder = tmp_path_factory.mktemp("two")
    with ExitStack() as stack:
        one, other = (stack.enter_context(person(folder / name)) for name in ("one", "two"))
        one.own(2)
        other.own(3)
        yield one, other
        assert one.peers() == other.peers() == []


def spellings(code: str) -> list[bytes]:
    """What to look for: as it is shown, as it is typed, the secret of it, and a part."""
    plain = code.replace("-", "")
    texts = [code, code.lower(), plain, plain.lower(), code[5:19], code[5:19].lower()]
    return [text.encode() for text in texts] + [parse_code(code).secret()]


def processes() -> bytes:
    """Arguments and environment of every process that may be looked at."""
    found = bytearray()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in ("cmdline", "environ"):
            try:
                found += Path(f"/proc/{pid}/{name}").read_bytes() + b"\n"
            except OSError:
                continue
    return bytes(found)


def files(home: Path) -> bytes:
    """Everything that lies in a home folder, logs and store among it."""
    found = bytearray()
    for path in sorted(home.rglob("*")):
        with suppress(FileNotFoundError):  # a daemon puts files in place by other names
            if path.is_file():
                found += path.read_bytes() + b"\n"
    return bytes(found)


# -- pairings -------------------------------------------------------------------------------------


def test_two_people_compare_twelve_digits_sign_and_their_hosts_are_paired(fresh: Two) -> None:
    one, other = fresh
    other.own(3)
    code = one.pair("--label laptop")
    other.join(one, code.lower().replace("-", " "), "--label desk --json")
    assert one.compare() == other.compare()
    seen = processes()
    one.say("yes")
    [shown] = one.sign_records()
    for what in ("To sign: peer", 'label: "laptop"', "peer.transcript", "peer.certificate"):
        assert what in shown
    one.screen.expect("Waiting for the other side to agree")
    other.say("yes")
    other.sign_records()
    done, joined = one.finish(), document(other.finish())
    assert (done.status, done.err) == (0, "")
    assert "paired with laptop" in done.out
    assert "next: mbx peers list" in done.out
    assert (joined["paired"], joined["peer"], joined["adopted"]) == (True, "desk", None)
    assert joined["addresses"] == [f"127.0.0.1:{one.port}"]
    assert [row["label"] for row in one.peers()] == ["laptop"]
    assert [row["label"] for row in other.peers()] == ["desk"]
    kept = seen + processes() + files(one.desk.home) + files(other.desk.home)
    assert len(kept) > 100_000
    for text in spellings(code):
        assert text not in kept
    assert code not in done.out
    # What was paired is spoken to.
    with Raw(str(one.desk.home / "run" / "mbx.sock")) as raw, raw.line() as line:
        for _ in looks():
            if line.call("peers.ping", name="laptop")["up"]:
                break
        else:
            raise AssertionError("no link stands between the paired hosts")


def test_a_host_without_owner_adopts_the_inviters_after_its_person_has_seen_the_records(
    fresh: Two,
) -> None:
    one, other = fresh
    code = one.pair("--json")
    other.join(one, code, "--label desk")
    told_first = other.screen.drain().replace("\r\n", "")  # it is folded
    assert "has no owner" in told_first
    assert "--label desk is not used" in told_first
    assert one.compare() == other.compare()
    other.say("yes")
    other.screen.expect("Waiting for the owner to sign")
    one.say("yes")
    shown = one.sign_records(3)
    assert [text.partition("To sign: ")[2].partition(" ")[0] for text in shown] == [
        "peer",
        "rotate",
        "peer",
    ]
    for text in (other.agree(), other.agree()):
        assert "To adopt: " in text
        assert "has signed this for this host" in text
    done, invited = other.finish(), document(one.finish())
    assert (done.status, done.err) == (0, "")
    assert "the owner of this host is" in done.out
    assert invited["owner"] == other.shows()["owner"]["key_id"] == one.shows()["owner"]["key_id"]
    assert [[peer["owner"] for peer in host.peers()] for host in fresh] == [["same"], ["same"]]
    assert not other.key_path.exists()
    signed = one.sign("mbx policy revoke --all")
    assert signed.status == 0, signed.err
    [chain] = until(lambda: other.shows()["followed"], "the adopted owner is obeyed there")
    assert (chain["version"], chain["damage"]) == (1, 0)


# -- nobody is paired -----------------------------------------------------------------------------


def test_five_wrong_codes_are_told_and_make_the_code_void(two: Two) -> None:
    one, other = two
    one.pair("--json")
    other.join(one, WRONG_CODE)
    assert "the code is not the one that the other host shows" in refused(
        other.finish(), "peer-refused"
    )
    one.screen.expect("A wrong code was tried (1 so far; 4 more make this one void)")
    with Raw(str(other.desk.home / "run" / "mbx.sock")) as raw, raw.line() as line:
        ends = []
        for _ in range(4):
            state = line.call("pair.join", address=f"127.0.0.1:{one.port}", code=WRONG_CODE)
            while state["end"] is None:
                state = line.call("pair.state", run=state["run"], seen=state["seen"])
            ends.append(state["end"]["code"])
    assert ends == ["wrong-code"] * 3 + ["burnt"]
    error = told(one.finish())
    assert (error["code"], error["reason"]) == ("closed", "burnt")
    assert "run mbx pair again" in error["next"]


def test_a_mistyped_code_is_told_before_it_is_tried(two: Two) -> None:
    one, other = two
    code = one.pair()
    other.join(one, code[:-1])
    other.screen.expect("the code has 28 characters; 27 were given")
    letters = "0" if code[0] != "0" else "1"
    other.screen.answer("Code that the other host shows:", letters + code[1:])
    other.screen.expect("a character of the code is wrong")
    other.screen.answer("Code that the other host shows:", code)
    assert one.compare() == other.compare()
    other.say("what?")
    other.screen.expect("type yes or no")
    other.screen.expect("Does the other screen show the same?")  # what is typed before is dropped
    other.say("no")
    assert "the digits are not the same" in refused(other.finish(), "closed")
    refused(one.says_yes_in_vain(), "closed")


def test_an_inviter_that_declines_ends_it_at_both_sides(two: Two) -> None:
    one, other = two
    other.join(one, one.pair())
    assert one.compare() == other.compare()
    one.say("no")
    assert "nothing was paired" in refused(one.finish(), "closed")
    refused(other.says_yes_in_vain(), "closed")


def test_ctrl_c_declines_and_leaves_the_terminal_as_it_was(two: Two) -> None:
    one, other = two
    before = one.shell.modes()
    code = one.pair()
    one.screen.type("\x03")
    assert one.finish().status == 130
    other.join(one, code)
    assert "the pairing was declined" in refused(other.finish(), "closed")
    other.join(one, one.pair())
    assert one.compare() == other.compare()
    one.screen.type("\x03")
    assert one.finish().status == 130
    refused(other.says_yes_in_vain(), "closed")
    assert one.shell.modes() == before


@pytest.mark.parametrize("at", ["waiting", "comparing"])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, None], ids=str)
def test_a_command_that_is_ended_declines_also_when_its_terminal_is_closed(
    tmp_path: Path, two: Two, at: str, how: signal.Signals | None
) -> None:
    """`how` None: the terminal is closed, by which shell and command get SIGHUP."""
    one, other = two
    inviter = Person(one.desk)
    code = inviter.pair()
    if at == "comparing":
        other.join(inviter, code)
        assert inviter.compare() == other.compare()
    [child] = (
        Path(f"/proc/{inviter.shell.pid}/task/{inviter.shell.pid}/children").read_text().split()
    )
    pidfd = os.pidfd_open(int(child))
    if how is not None:
        signal.pidfd_send_signal(pidfd, how)
        assert inviter.finish().status == 128 + how
        inviter.shell.close()
    else:
        os.dup2(os.open(os.devnull, os.O_RDWR), inviter.shell.keyboard)
    assert select.select([pidfd], [], [], 15)[0], "the command goes on without its terminal"
    os.close(pidfd)
    if at == "comparing":
        refused(other.says_yes_in_vain(), "closed")
    else:
        other.join(inviter, code)
        assert "the pairing was declined" in refused(other.finish(), "closed")
    if how is None:
        inviter.shell.close()


def test_the_code_of_a_command_that_was_killed_is_void(two: Two) -> None:
    one, other = two
    code = one.pair()
    one.signal(signal.SIGKILL)
    assert one.finish().status == 128 + signal.SIGKILL
    other.join(one, code)
    assert "the pairing was declined" in refused(other.finish(), "closed")
    other.join(one, one.pair())
    assert one.compare() == other.compare()
    one.say("no")
    assert "nothing was paired" in refused(one.finish(), "closed")
    refused(other.says_yes_in_vain(), "closed")


def test_a_command_that_is_stopped_for_a_while_keeps_its_code(fresh: Two) -> None:
    one, other = fresh
    one.controls_no_jobs()
    code = one.pair()
    one.signal(signal.SIGSTOP)
    other.join(one, code)
    digits = other.compare()
    one.signal(signal.SIGCONT)
    assert one.compare() == digits
    one.say("no")
    assert "nothing was paired" in refused(one.finish(), "closed")
    refused(other.says_yes_in_vain(), "closed")


def test_both_people_are_told_that_their_hosts_are_paired_already(fresh: Two) -> None:
    one, other = fresh
    other.own(3)
    other.join(one, one.pair("--label laptop"))
    assert one.compare() == other.compare()
    for who in fresh:
        who.say("yes")
        who.sign_records()
    for who in fresh:
        assert who.finish().status == 0
    one.controls_no_jobs()
    code = one.pair()
    one.signal(signal.SIGSTOP)  # so that the other's refusal is there first
    other.join(one, code)
    assert "is paired already: it is" in refused(other.finish(), "conflict")
    one.signal(signal.SIGCONT)
    assert "is paired already: it is laptop" in refused(one.finish(), "conflict")


def test_a_code_expires_and_says_so(two: Two) -> None:
    one, other = two
    code = one.pair("--ttl 1s")
    shown = one.screen.drain()
    assert re.search(r"until \d\d:\d\d \([01] s\):", shown), shown
    assert "nobody came with the code in time" in refused(one.finish(), "closed")
    assert "min left" not in one.screen.drain()
    other.join(one, code)
    assert "the time of the code is over" in refused(other.finish(), "closed")


def test_a_restart_of_the_daemon_ends_the_pairing_and_is_told(two: Two) -> None:
    one, other = two
    other.join(one, one.pair())
    assert one.compare() == other.compare()
    os.kill(one.desk.status()["pid"], signal.SIGKILL)
    one.say("yes")
    assert "it was started again since" in refused(one.finish(), "closed")
    other.say("yes")
    assert "the connection ended" in refused(other.finish(), "peer-refused")


def test_a_code_is_void_once_its_daemon_was_started_again(two: Two) -> None:
    one, other = two
    code = one.pair()
    os.kill(one.desk.status()["pid"], signal.SIGKILL)
    assert "it was started again since" in refused(one.finish(), "closed")
    other.join(one, code)
    assert "Connection refused" in refused(other.finish(), "peer-refused")


def test_a_restart_after_one_side_has_signed_tells_that_side_what_is_missing(fresh: Two) -> None:
    one, other = fresh
    other.own(3)
    other.join(one, one.pair("--label laptop"))
    assert one.compare() == other.compare()
    one.say("yes")
    one.sign_records()
    one.screen.expect("Recorded here as laptop. Waiting for the other side to agree")
    os.kill(other.desk.status()["pid"], signal.SIGKILL)
    words = refused(one.finish(), "peer-refused")
    assert "has not said that it has" in words
    assert "the connection ended" in words
    other.say("yes")
    assert "it was started again since" in refused(other.finish(), "closed")
    assert [len(host.peers()) for host in fresh] == [1, 0]
    other.join(one, one.pair())
    assert "is paired already: it is laptop" in refused(one.finish(), "conflict")


def test_a_restart_of_its_own_daemon_does_not_make_who_has_signed_believe_it_void(
    fresh: Two,
) -> None:
    one, other = fresh
    code = one.pair()
    other.join(one, code)
    assert one.compare() == other.compare()
    other.say("yes")
    other.screen.expect("Waiting for the owner to sign")
    one.say("yes")
    one.sign_records(3)
    one.screen.expect("Waiting for the other side to agree")
    os.kill(one.desk.status()["pid"], signal.SIGKILL)
    words = refused(one.finish(), "peer-refused")
    assert "this host has recorded the pairing" in words
    assert "mbx peers list tells whether a link stands" in words
    for _ in range(2):
        other.agree()
    assert other.finish().status == 0
    until(lambda: one.peers()[0]["state"] == "up", "what was recorded on both hosts stands")


def test_who_leaves_after_signing_is_told_that_the_record_stays(fresh: Two) -> None:
    one, other = fresh
    other.own(3)
    other.join(one, one.pair())
    assert one.compare() == other.compare()
    one.say("yes")
    one.sign_records()
    one.screen.expect("Waiting for the other side to agree")
    one.screen.type("\x03")
    assert one.finish().status == 130
    assert "It stays recorded here" in one.screen.drain()
    assert [peer["state"] for peer in one.peers()] == ["down"]


def test_an_address_that_does_not_answer_tells_what_was_tried(two: Two) -> None:
    _, other = two
    other.shell.start(f"mbx join localhost:{reserve_port()}")
    other.screen.answer("Code that the other host shows:", WRONG_CODE)
    words = refused(other.finish(), "peer-refused")
    assert "127.0.0.1: Connection refused" in words
    assert "firewall" in words


def test_what_cannot_be_an_address_or_a_term_is_refused_before_any_question(two: Two) -> None:
    one, _ = two
    for command in (
        "mbx join https://desk.local/",
        "mbx join 127.1",
        "mbx pair --ttl soon",
        "mbx pair --ttl 11m",
        "mbx pair --listen desk.local",
    ):
        refused(one.run(command), "usage")
    for command in ("mbx pair --label Laptop", "mbx join 127.0.0.1 --label owner"):
        refused(one.run(command), "name-invalid")
    assert pairing.term_ms("90s") == 90_000
    for text in ("", "0m", "5", "5h", "1.5m", "m"):
        with pytest.raises(MbxError) as refusal:
            pairing.term_ms(text)
        assert refusal.value.exit_status == EXIT_STATUS["usage"]


@pytest.mark.parametrize("command", ["pair", "join 127.0.0.1"])
def test_pairing_is_refused_below_an_agent_cli_and_without_a_terminal(
    two: Two, tmp_path: Path, command: str
) -> None:
    one, _ = two
    claude = look_alike(tmp_path, "claude")
    done = one.run(f"{claude} -c 'mbx {command}; exit $?'")
    assert "agent CLI claude" in refused(done, "owner-required")
    done = one.run(f"echo {WRONG_CODE} | setsid --wait mbx {command}")
    assert "has none" in refused(done, "owner-required")


@pytest.mark.parametrize("command", ["pair", "join 127.0.0.1"])
def test_where_the_owners_key_is_elsewhere_the_next_step_is_to_bring_it(
    two: Two, command: str
) -> None:
    one, _ = two
    away = one.key_path.rename(one.key_path.with_name("carried-away.key"))
    try:
        told = refused(one.run(f"mbx {command}"), "not-found")
    finally:
        away.rename(one.key_path)
    assert f"next: put a copy of the owner's key there: install -m 600 COPY {one.key_path}" in told


def test_an_address_to_type_is_one_word_of_any_shell(two: Two) -> None:
    one, _ = two
    one.shell.start(f"mbx pair --listen '[::1]:{reserve_port('::1')}'")
    assert "    mbx join '[::1]:" in one.screen.expect("Waiting for the other host")
    one.screen.type("\x03")
    one.finish()


def test_without_an_owner_nobody_is_invited(fresh: Two) -> None:
    _, other = fresh
    done = other.run("mbx pair")
    assert "next: mbx owner init" in refused(done, "owner-required")
