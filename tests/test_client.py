"""What one call makes of a daemon that is absent, dying, silent, foreign or of another version."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mbx import __version__
from mbx.client import (
    ANSWER_S,
    Client,
    Clock,
    NoDaemon,
    hello_params,
    is_stopped,
    key_at,
    state_of,
    step_for,
)
from mbx.core.errors import MbxError
from mbx.paths import Paths
from mbx.wire import JsonObject
from tests.support.peer import HELLO, Peer, answering, line, requests, saying


class Leaping:
    """A clock that leaps further at each look, so that deadlines come soon; it never waits."""

    def __init__(self, leap_s: float) -> None:
        self._now_s = 0.0
        self._leap_s = leap_s

    def monotonic(self) -> float:
        self._now_s += self._leap_s
        return self._now_s

    def sleep(self, seconds: float, /) -> None:
        self._now_s += seconds


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path), str(tmp_path / "run"))


def call(
    paths: Paths,
    method: str = "mail.send",
    params: JsonObject | None = None,
    *,
    clock: Clock = time,
    changes: bool = True,
    environ: Mapping[str, str] | None = None,
) -> JsonObject:
    given = {"key": "k" * 32} if params is None else params
    client = Client(paths, environ or {}, clock, start=None)
    return client.call(method, given, changes=changes)


def refusal(paths: Paths, **how: Any) -> MbxError:
    with pytest.raises(MbxError) as refused:
        call(paths, **how)
    return refused.value


# --- keys and hello ------------------------------------------------------------------------------


def test_keys_sort_by_time_and_differ_by_chance() -> None:
    early, late = key_at(1, b"\xff" * 10), key_at(2, b"\0" * 10)
    assert early < late
    assert len(early) == len(late) == 32
    assert key_at(1, b"\0" * 10) != early


def test_a_key_needs_eighty_random_bits() -> None:
    with pytest.raises(ValueError, match="80"):
        key_at(1, b"\0" * 9)


@pytest.mark.parametrize(
    "environ",
    [{}, {"MBX_CLI": "claude"}, {"MBX_SESSION": "s"}, {"MBX_CLI": "", "MBX_SESSION": "s"}],
)
def test_no_session_is_named_unless_both_variables_are_set(
    paths: Paths, environ: dict[str, str]
) -> None:
    assert hello_params(paths, environ) == {"protocol": 1, "client": __version__}


def test_the_token_of_the_named_session_is_sent_with_it(paths: Paths) -> None:
    environ = {"MBX_CLI": "claude", "MBX_SESSION": "s"}
    assert "token" not in hello_params(paths, environ)
    file = Path(paths.session_file("claude", "s"))
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"identity": "i", "epoch": 1, "token": "ab"}))
    params = hello_params(paths, environ)
    assert params["session"] == {"cli": "claude", "id": "s"}
    assert params["token"] == "ab"


def test_a_pipe_in_place_of_the_session_file_is_not_waited_for(paths: Paths) -> None:
    file = Path(paths.session_file("claude", "s"))
    file.parent.mkdir(parents=True)
    os.mkfifo(file)
    environ = {"MBX_CLI": "claude", "MBX_SESSION": "s"}
    assert "token" not in hello_params(paths, environ)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"token":1}', "{}"])
def test_a_damaged_session_file_is_as_good_as_none(paths: Paths, content: str) -> None:
    file = Path(paths.session_file("claude", "s"))
    file.parent.mkdir(parents=True)
    file.write_text(content)
    environ = {"MBX_CLI": "claude", "MBX_SESSION": "s"}
    assert "token" not in hello_params(paths, environ)


def test_a_holder_names_itself_and_no_conversation(paths: Paths) -> None:
    params = hello_params(paths, {"MBX_CLI": "claude", "MBX_SESSION": "s"}, holder=True)
    assert params == {"protocol": 1, "client": __version__, "holder": "self"}


# --- one good call -------------------------------------------------------------------------------


def test_hello_and_call_leave_in_one_write(paths: Paths) -> None:
    seen: list[bytes] = []

    def script(connection: socket.socket) -> None:
        seen.append(connection.recv(65_536))
        connection.sendall(HELLO + line(1, result={"id": "m"}))

    with Peer(paths, script):
        assert call(paths) == {"id": "m"}
    assert [json.loads(one)["method"] for one in seen[0].splitlines()] == ["hello", "mail.send"]


def test_notifications_before_the_answer_are_passed_over(paths: Paths) -> None:
    push = json.dumps({"jsonrpc": "2.0", "method": "mail.arrived", "params": {}}).encode() + b"\n"
    with Peer(paths, saying(push + HELLO + push + line(1, result={"a": 1}))):
        assert call(paths) == {"a": 1}


def test_what_the_daemon_refuses_reaches_the_caller_whole(paths: Paths) -> None:
    data = {"code": "in-use", "message": "held", "next": "mbx x", "holder": {"cli": "claude"}}
    error = {"code": -32000, "message": "held", "data": data}
    with Peer(paths, saying(HELLO + line(1, error=error))):
        refused = refusal(paths)
    assert refused.as_object() == data


def test_a_code_that_this_version_does_not_know_still_reaches_the_user(paths: Paths) -> None:
    error = {"code": -32000, "message": "m", "data": {"code": "quite-new", "message": "Sorry."}}
    with Peer(paths, saying(HELLO + line(1, error=error))):
        refused = refusal(paths)
    assert refused.code == "version-mismatch"
    assert "quite-new" in refused.message
    assert "Sorry." in refused.message


@pytest.mark.parametrize(
    ("number", "code"),
    [(-32602, "usage"), (-32601, "version-mismatch"), (-32603, "daemon-unreachable")],
)
def test_an_error_without_a_code_of_ours_gets_the_nearest(
    paths: Paths, number: int, code: str
) -> None:
    with Peer(paths, saying(HELLO + line(1, error={"code": number, "message": "why"}))):
        refused = refusal(paths)
    assert (refused.code, refused.message) == (code, "why")


def test_facts_named_like_arguments_do_not_break_the_error(paths: Paths) -> None:
    data = {"code": "conflict", "message": "m", "next": None, "self": 1, "next_step": 2, "x": 3}
    with Peer(paths, saying(HELLO + line(1, error={"code": -32000, "data": data}))):
        assert refusal(paths).facts == {"x": 3}


# --- lost connections ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "last_words",
    [b"", HELLO[:10], HELLO, HELLO + line(1, result={"id": "m"})[:-1]],
    ids=["nothing", "half a hello", "a hello", "an answer without its end"],
)
def test_a_connection_lost_in_an_answer_is_repeated_with_the_same_key(
    paths: Paths, last_words: bytes
) -> None:
    log: list[dict[str, Any]] = []
    with Peer(paths, saying(last_words, log=log), answering({"id": "m"}, log=log)):
        assert call(paths) == {"id": "m"}
    keys = [request["params"].get("key") for request in log if request["id"] == 1]
    assert keys == ["k" * 32] * 2


def test_a_change_that_was_written_and_never_answered_is_of_unknown_outcome(paths: Paths) -> None:
    with Peer(paths, *[saying(b"")] * 3):
        refused = refusal_of_starting(paths, never_ready)
    assert refused.code == "outcome-unknown"
    assert refused.exit_status == 75
    assert refused.facts["key"] == "k" * 32
    assert refused.next_step is not None
    assert "--key " + "k" * 32 in refused.next_step


def test_a_question_that_was_never_answered_has_no_outcome_to_worry_about(paths: Paths) -> None:
    with Peer(paths, saying(b"")):
        refused = refusal_of_starting(paths, never_ready, changes=False)
    assert (refused.code, refused.exit_status) == ("daemon-unreachable", 6)


def test_a_change_that_never_left_is_not_of_unknown_outcome(paths: Paths) -> None:
    refused = refusal_of_starting(paths, never_ready)
    assert refused.code == "daemon-unreachable"


def never_ready(paths: Paths, environ: Mapping[str, str], clock: Clock) -> bool:
    return False


def refusal_of_starting(paths: Paths, start: Any, *, changes: bool = True) -> MbxError:
    client = Client(paths, {}, Leaping(0.01), start=start)
    with pytest.raises(MbxError) as refused:
        client.call("mail.send", {"key": "k" * 32}, changes=changes)
    return refused.value


def test_a_daemon_that_takes_the_call_and_hangs_is_left_in_time_and_named(paths: Paths) -> None:
    def hang(connection: socket.socket) -> None:
        requests(connection)
        while connection.recv(1):
            pass

    with Peer(paths, hang):
        refused = refusal(paths, clock=Leaping(ANSWER_S / 4.1), changes=False)
    assert refused.code == "daemon-unreachable"
    assert f"process {os.getpid()}" in refused.message
    assert refused.next_step == f"kill -9 {os.getpid()}", "it runs, and does not answer"


def test_one_that_is_stopped_only_has_to_go_on() -> None:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=-1) as child:
        os.kill(child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        assert is_stopped(state_of(child.pid))
        assert step_for(child.pid, state_of(child.pid)) == f"kill -CONT {child.pid}"
        child.kill()
    assert state_of(child.pid) == "?"
    assert not is_stopped(state_of(os.getpid()))
    assert step_for(None, "?") == "mbx daemon status"


def test_a_caller_with_less_time_says_so_and_is_answered_so_much_sooner(paths: Paths) -> None:
    def hang(connection: socket.socket) -> None:
        requests(connection)
        while connection.recv(1):
            pass

    with Peer(paths, hang):
        client = Client(paths, {}, Leaping(0.1), start=None, answer_s=0.4)
        with pytest.raises(MbxError, match=r"did not answer within 0\.4 s"):
            client.call("mail.inbox", {}, changes=False)


def test_a_hung_daemon_leaves_the_outcome_of_a_change_unknown(paths: Paths) -> None:
    def hang(connection: socket.socket) -> None:
        requests(connection)
        while connection.recv(1):
            pass

    with Peer(paths, hang):
        assert refusal(paths, clock=Leaping(ANSWER_S / 4.1)).code == "outcome-unknown"


def test_a_refusal_that_comes_before_the_request_is_read_is_heard(paths: Paths) -> None:
    data = {"code": "rate-limited", "message": "too many connections", "next": "wait"}
    error = {"code": -32000, "message": "m", "data": data}

    def refuse_unread(connection: socket.socket) -> None:
        connection.sendall(line(None, error=error))

    with Peer(paths, refuse_unread):
        refused = refusal(paths, params={"body": "x" * 1_500_000, "key": "k" * 32})
    assert refused.code == "rate-limited"


# --- not our daemon, or another version ----------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"[]\n", line(7, result={}), line(0, result=[]), line(0)],
)
def test_something_else_on_the_socket_is_named_and_not_asked_again(
    paths: Paths, words: bytes
) -> None:
    with Peer(paths, saying(words)):
        refused = refusal(paths)
    assert refused.code == "daemon-unreachable"
    assert "no mbx daemon" in refused.message


MISMATCH = {
    "code": -32000,
    "message": "m",
    "data": {"code": "version-mismatch", "message": "speaks 2", "protocol": 2, "version": "9.0"},
}


def test_another_protocol_is_refused_with_the_way_out(paths: Paths) -> None:
    with Peer(paths, saying(line(0, error=MISMATCH) + line(1, error=MISMATCH))):
        refused = refusal(paths)
    assert (refused.code, refused.next_step) == ("version-mismatch", "mbx daemon restart")


def test_another_protocol_in_a_friendly_hello_is_refused_too(paths: Paths) -> None:
    hello = line(0, result={"protocol": 2, "version": "9.0", "host": "desk"})
    with Peer(paths, saying(hello + line(1, result={}))):
        refused = refusal(paths)
    assert refused.code == "version-mismatch"
    assert "9.0" in refused.message


@pytest.mark.parametrize("method", ["daemon.status", "daemon.stop"])
def test_status_and_stop_work_across_versions(paths: Paths, method: str) -> None:
    with Peer(paths, saying(line(0, error=MISMATCH) + line(1, result={"pid": 1}))):
        assert call(paths, method) == {"pid": 1}


# --- no daemon -----------------------------------------------------------------------------------


def test_without_a_daemon_and_without_a_starter_that_is_said(paths: Paths) -> None:
    refused = refusal(paths)
    assert isinstance(refused, NoDaemon)
    assert refused.next_step == "mbx daemon start"


def test_a_socket_that_nobody_listens_on_counts_as_no_daemon(paths: Paths) -> None:
    Path(paths.run_dir()).mkdir()
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(paths.socket_path())
    assert isinstance(refusal(paths), NoDaemon)


def test_the_call_goes_to_the_daemon_that_was_started_for_it(paths: Paths) -> None:
    peers: list[Peer] = []

    def start(paths: Paths, environ: Mapping[str, str], clock: Clock) -> bool:
        peers.append(Peer(paths, answering({"id": "m"})).__enter__())
        return True

    client = Client(paths, {}, time, start=start)
    assert client.call("mail.send", {"key": "k"}, changes=True) == {"id": "m"}
    assert len(peers) == 1
    peers[0].__exit__(None, None, None)


def test_a_daemon_that_dies_at_every_call_is_not_started_for_ever(paths: Paths) -> None:
    starts = []

    def start(paths: Paths, environ: Mapping[str, str], clock: Clock) -> bool:
        starts.append(clock.monotonic())
        return True

    refused = refusal_of_starting(paths, start)
    assert refused.code == "daemon-unreachable"
    assert starts[-1] < 2.5 * ANSWER_S


def test_what_hinders_the_start_reaches_the_user(paths: Paths) -> None:
    def start(paths: Paths, environ: Mapping[str, str], clock: Clock) -> bool:
        raise MbxError("store-damaged", "host.key is damaged", "restore host.key")

    refused = refusal_of_starting(paths, start)
    assert (refused.code, refused.next_step) == ("store-damaged", "restore host.key")


@pytest.mark.parametrize(
    "error", [PermissionError(1, "x"), PermissionError(13, "x"), OSError(30, "x")]
)
def test_a_forbidden_start_is_told_as_a_sandbox(paths: Paths, error: OSError) -> None:
    def start(paths: Paths, environ: Mapping[str, str], clock: Clock) -> bool:
        raise error

    refused = refusal_of_starting(paths, start)
    assert (refused.code, refused.exit_status) == ("sandboxed", 6)


@pytest.mark.parametrize("is_held", [True, False])
def test_a_daemon_that_runs_and_is_not_in_the_run_folder_we_see_is_behind_a_sandbox(
    paths: Paths, is_held: bool
) -> None:
    Path(paths.run_dir()).mkdir(mode=0o700)
    folder = os.open(paths.run_dir(), os.O_RDONLY)
    try:
        if is_held:  # it starts, or hangs
            fcntl.flock(folder, fcntl.LOCK_EX)
        client = Client(paths, {}, Leaping(0.01), start=lambda *_: False, answer_s=0.05)
        with pytest.raises(MbxError) as refused:
            client.call("session.whoami", {}, changes=False)
    finally:
        os.close(folder)
    assert refused.value.code == ("daemon-unreachable" if is_held else "sandboxed")
    assert refused.value.exit_status == 6
    assert refused.value.next_step is not None


@pytest.mark.root
def test_a_forbidden_socket_is_told_as_a_sandbox_and_nothing_is_started(paths: Paths) -> None:
    def start(paths: Paths, environ: Mapping[str, str], clock: Clock) -> bool:
        raise AssertionError("started")

    Path(paths.run_dir()).mkdir(mode=0o700)
    assert code_as_nobody(Client(paths, {}, time, start=start)) == "sandboxed"


def code_as_nobody(client: Client) -> str:
    """The code of the error that a call meets as user 65534, in a child of ours."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            client.call("session.whoami", {}, changes=False)
        except MbxError as error:
            os.write(writing, error.code.encode())
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as said:
        return said.read()


@pytest.mark.root
def test_a_listener_of_another_user_is_refused(paths: Paths) -> None:
    Path(paths.run_dir()).mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(paths.socket_path())
        os.seteuid(65534)  # the kernel remembers who called listen()
        try:
            listener.listen(1)
        finally:
            os.seteuid(0)
        refused = refusal(paths)
    assert refused.code == "daemon-unreachable"
    assert "user 65534" in refused.message
