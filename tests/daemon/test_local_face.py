"""The local face over real sockets: whatever comes in, one clear answer, nobody else is hurt."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from mbx.core.errors import EXIT_STATUS
from mbx.core.limits import (
    ANSWER_MAX_BYTES,
    BODY_MAX_BYTES,
    CONNECTIONS_MAX,
    REQUEST_LINE_MAX_BYTES,
    WAITING_MAX_BYTES,
)
from tests.support.daemon import Daemon, HungUpError, Line, NewHolder, fresh_home, request
from tests.support.patience import looks

STATUS = request(1, "daemon.status")
HELLO = request(0, "hello", protocol=1)
"""Round trips within which an end that was brought about must show."""


@pytest.fixture
def line(daemon: Daemon) -> Iterator[Line]:
    with daemon.line() as connected:
        connected.hello()
        yield connected


def becomes_true(daemon: Daemon, holds: Callable[[], bool]) -> bool:
    """Wait, by bounded round trips of another caller, for what follows from an event."""
    with daemon.line() as other:
        other.hello()
        for _ in looks():
            if holds():
                return True
            other.call("daemon.status")
    return False


# -- lines that are no request ------------------------------------------------------------------

NO_JSON = {
    "empty": b"",
    "blank": b"   ",
    "carriage return": b"\r",
    "bare word": b"hello",
    "half an object": b'{"jsonrpc":"2.0","id":1,"method":"daemon.status"',
    "two values": STATUS + STATUS,
    "byte order mark": b"\xef\xbb\xbf" + STATUS,
    "bad UTF-8": STATUS.replace(b"status", b"stat\xff\xfe"),
    "overlong UTF-8": STATUS.replace(b"status", b"stat\xc0\xaf"),
    "UTF-16": STATUS.decode().encode("utf-16"),
    "raw control character": STATUS.replace(b"status", b"stat\x01us"),
    "duplicate key": b'{"jsonrpc":"2.0","id":1,"method":"daemon.status","id":2}',
    "inner duplicate key": request(1, "daemon.status")[:-3] + b'{"hash":true,"hash":false}}',
    "NaN": request(1, "mail.inbox", limit=float("nan")),
    "infinity": request(1, "mail.inbox", limit=float("inf")),
    "overflow": b'{"jsonrpc":"2.0","id":1,"method":"mail.inbox","params":{"limit":1e999}}',
    "17 digits": b'{"jsonrpc":"2.0","id":12345678901234567,"method":"daemon.status"}',
    "lone surrogate": request(1, "mail.send", to=["a"], subject="\ud800", body=""),
    "deep array": b"[" * 100_000,
    "deep closed array": b"[" * 100_000 + b"]" * 100_000,
    "deep object": b'{"a":' * 9 + b"1" + b"}" * 9,
    "crowded array": request(1, "mail.ack", ids=["x"] * 1_025),
    "crowded object": request(1, "daemon.status", **{f"p{n}": n for n in range(65)}),
    "comment": b"/* */" + STATUS,
}

NO_REQUEST = {
    "array": b"[]",
    "batch": b"[" + STATUS + b"]",
    "number": b"1",
    "string": b'"daemon.status"',
    "null": b"null",
    "nothing in it": b"{}",
    "notification": b'{"jsonrpc":"2.0","method":"daemon.status"}',
    "null id": request(None, "daemon.status"),
    "fraction as id": request(1.5, "daemon.status"),
    "boolean as id": request(True, "daemon.status"),
    "list as id": request([1], "daemon.status"),
    "long id": request("x" * 129, "daemon.status"),
}

NO_CALL = {
    "no version": b'{"id":7,"method":"daemon.status"}',
    "other version": STATUS.replace(b"2.0", b"1.0").replace(b":1,", b":7,"),
    "no method": b'{"jsonrpc":"2.0","id":7}',
    "method is no string": b'{"jsonrpc":"2.0","id":7,"method":{}}',
    "unknown method": request(7, "daemon.explode"),
    "method of object protocol": request(7, "__class__"),
    "params are a list": b'{"jsonrpc":"2.0","id":7,"method":"daemon.status","params":[true]}',
    "params are a string": b'{"jsonrpc":"2.0","id":7,"method":"daemon.status","params":"x"}',
    "unknown parameter": request(7, "daemon.status", verbose=True),
    "second hello": request(7, "hello", protocol=1),
}


@pytest.mark.parametrize("raw", NO_JSON.values(), ids=NO_JSON.keys())
def test_a_line_that_is_no_json_gets_one_answer_and_the_next_is_served(
    raw: bytes, line: Line
) -> None:
    answer = line.ask(raw)
    assert (answer["id"], answer["error"]["code"]) == (None, -32700)
    assert answer["error"]["data"]["code"] == "usage"
    assert line.call("session.whoami")["agent"] is None


@pytest.mark.parametrize("raw", NO_REQUEST.values(), ids=NO_REQUEST.keys())
def test_json_that_is_no_request_gets_one_answer_and_the_next_is_served(
    raw: bytes, line: Line
) -> None:
    answer = line.ask(raw)
    assert (answer["id"], answer["error"]["data"]["code"]) == (None, "usage")
    assert line.call("session.whoami")["agent"] is None


@pytest.mark.parametrize("raw", NO_CALL.values(), ids=NO_CALL.keys())
def test_a_request_that_cannot_be_served_is_answered_under_its_own_id(
    raw: bytes, line: Line
) -> None:
    answer = line.ask(raw)
    assert (answer["id"], answer["error"]["data"]["code"]) == (7, "usage")
    assert line.call("session.whoami")["agent"] is None


def test_text_and_whole_numbers_come_back_as_ids(line: Line) -> None:
    for number in (0, -1, 2**53 - 1, "", "a b", "\u2028", "x" * 128):
        assert line.ask(request(number, "daemon.status"))["id"] == number


# -- hello ----------------------------------------------------------------------------------------


def test_nothing_is_served_before_hello_and_hello_still_works(daemon: Daemon) -> None:
    with daemon.line() as line:
        for method in ("daemon.status", "daemon.stop", "session.whoami", "mail.inbox"):
            assert line.refusal(method)["code"] == "usage"
        assert line.hello()["protocol"] == 1
        assert line.call("daemon.status")["running"] is True


@pytest.mark.parametrize("theirs", [0, 2, -1, "1", None, 1.5, [1], 10**15])
def test_another_protocol_is_told_ours_and_may_ask_for_status(
    theirs: object, daemon: Daemon
) -> None:
    with daemon.line() as line:
        refused = line.refusal("hello", protocol=theirs)
        assert (refused["code"], refused["protocol"]) == ("version-mismatch", 1)
        assert refused["next"] == "mbx daemon restart"
        assert line.call("daemon.status")["pid"] == daemon.pid
        assert line.refusal("session.whoami")["code"] == "version-mismatch"
        assert line.refusal("identity.register", name="x")["code"] == "version-mismatch"


@pytest.mark.parametrize(
    ("field", "value", "is_good"),
    [
        ("session", {"cli": "c" * 40, "id": "s" * 128}, True),
        ("session", {"cli": "c" * 41, "id": "s"}, False),
        ("session", {"cli": "c", "id": "s" * 129}, False),
        ("session", {"cli": "", "id": "s"}, False),
        ("session", {"cli": "c", "id": ""}, False),
        ("session", {"cli": "c", "id": "a\nb"}, False),
        ("session", {"cli": "c", "id": "a\u202eb"}, False),
        ("session", {"cli": 1, "id": "s"}, False),
        ("session", {"cli": "c"}, False),
        ("session", "c", False),
        ("session", None, True),
        ("token", "0" * 63, False),
        ("token", "0" * 64, True),
        ("token", "0" * 65, False),
        ("token", "é" * 64, False),
        ("token", 5, False),
    ],
)
def test_what_hello_says_of_the_session_has_limits(
    field: str, value: object, is_good: bool, daemon: Daemon
) -> None:
    with daemon.line() as line:
        said = {"protocol": 1, field: value}
        if is_good:
            assert line.call("hello", **said)["protocol"] == 1
        else:
            assert line.refusal("hello", **said)["code"] == "usage"
        assert line.call("daemon.status")["running"] is True


def greeted_in_time(daemon: Daemon) -> Line:
    """A connection that has said hello before its time was over, tried as often as it takes."""
    for _ in looks():
        line = daemon.line()
        try:
            line.hello()
        except (HungUpError, BrokenPipeError):
            line.close()
        else:
            return line
    raise AssertionError("nobody says hello in time")


def test_whoever_never_says_hello_is_let_go() -> None:
    """The deadline of ten seconds is made short in the process that the test starts."""
    hurried = (
        "import sys, mbx.daemon.faces.local as face; face.HELLO_DEADLINE_S = 0.05; "
        "from mbx.daemon.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    with (
        fresh_home() as home,
        Daemon(home, python=("-I", "-c", hurried)) as daemon,
        greeted_in_time(daemon) as greeted,
        daemon.line() as silent,
        daemon.line() as half,
    ):
        with suppress(BrokenPipeError):  # its time may be over already
            half.write(HELLO[:20])
        assert silent.is_closed()
        assert half.is_closed()
        assert greeted.call("daemon.status")["running"] is True


# -- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_one_write", [True, False])
def test_a_line_of_two_mebibytes_passes_and_one_byte_more_is_refused(
    in_one_write: bool, line: Line
) -> None:
    for more in (-1, 0, 1):
        padded = STATUS.ljust(REQUEST_LINE_MAX_BYTES + more)
        if not in_one_write:
            line.write(padded[:-10])
            padded = padded[-10:]
        answer = line.ask(padded)
        if more == 1:
            assert answer["error"]["data"]["code"] == "too-many"
            assert answer["error"]["data"]["limit_bytes"] == REQUEST_LINE_MAX_BYTES
        else:
            assert answer["result"]["running"] is True
    assert line.ask(request("next", "daemon.status"))["id"] == "next"


def test_an_endless_line_is_answered_once_and_costs_no_memory(daemon: Daemon, line: Line) -> None:
    before_kib = daemon.resident_kib()
    piece = request(5, "daemon.stop") + b" " * 1_000_000  # nothing of it is read as a request
    for _ in range(64):
        line.write(piece)
    assert line.read()["error"]["data"]["code"] == "too-many"
    assert daemon.status()["running"] is True
    assert daemon.resident_kib() - before_kib < 16 * 1024
    line.write(b"\n")
    assert line.ask(request("next", "daemon.status"))["id"] == "next"


def test_unfinished_lines_of_many_callers_stay_within_the_room_for_all(daemon: Daemon) -> None:
    before_kib = daemon.resident_kib()
    with ExitStack() as stack:
        hoard = [stack.enter_context(daemon.line()) for _ in range(60)]
        for one in hoard:
            one.hello()
            one.write(b'"' + b"a" * (REQUEST_LINE_MAX_BYTES - 2))
        limit_kib = 3 * WAITING_MAX_BYTES // 1024
        assert daemon.status()["running"] is True
        assert daemon.resident_kib() - before_kib < limit_kib
        answers = []
        for one in hoard:
            one.write(b'"\n' + STATUS + b"\n")
            answers.append(one.read())
            assert one.read()["result"]["running"] is True
        codes = {answer["error"]["data"]["code"] for answer in answers}
        assert codes == {"rate-limited", "usage"}, "some were given up, the others are no request"


# -- pieces, orders and endings -------------------------------------------------------------------


def test_five_hundred_requests_in_one_write_are_all_answered(daemon: Daemon, line: Line) -> None:
    methods = ("daemon.status", "identity.list", "session.whoami", "mail.inbox", "no.such")
    lines = [request(number, methods[number % len(methods)]) for number in range(500)]
    line.write(b"\n".join(lines) + b"\n")
    answers = [line.read() for _ in lines]
    assert sorted(answer["id"] for answer in answers) == list(range(500))
    for answer in answers:
        assert ("result" in answer) == (answer["id"] % len(methods) < 3)


def test_requests_that_arrive_byte_by_byte_are_served_beside_others(
    daemon: Daemon, line: Line
) -> None:
    with daemon.line() as slow:
        for number, byte in enumerate(HELLO + b"\n" + STATUS + b"\n"):
            slow.write(bytes([byte]))
            if number % 10 == 0:
                assert line.call("daemon.status")["running"] is True
        assert slow.read()["id"] == 0
        assert slow.read()["id"] == 1


def test_halves_of_requests_on_two_connections_do_not_mix(daemon: Daemon) -> None:
    with daemon.line() as one, daemon.line() as other:
        one.hello()
        other.hello()
        for number in range(20):
            left = request(f"one {number}", "daemon.status")
            right = request(f"other {number}", "session.whoami")
            one.write(left[:30])
            other.write(right[:40])
            one.write(left[30:] + b"\n" + left[:7])
            other.write(right[40:] + b"\n")
            assert one.read()["id"] == f"one {number}"
            assert other.read()["id"] == f"other {number}"
            one.write(left[7:] + b"\n")
            assert one.read()["id"] == f"one {number}"


def test_a_caller_that_hangs_up_anywhere_leaves_nothing_behind(daemon: Daemon) -> None:
    with daemon.line() as other:
        other.hello()
        descriptors = daemon.open_descriptors()
        calls = HELLO + b"\n" + STATUS + b"\n" + request(2, "identity.list") + b"\n"
        for cut in range(0, len(calls) + 1, 5):
            with daemon.line() as line:
                line.write(calls[:cut])
        assert becomes_true(daemon, lambda: daemon.open_descriptors() <= descriptors + 1)
        assert other.call("daemon.status")["running"] is True


def test_a_caller_that_only_ends_its_writing_is_answered_and_let_go(daemon: Daemon) -> None:
    descriptors = daemon.open_descriptors()
    for number in (1, 100):
        with daemon.line() as line:
            line.write(HELLO + b"\n" + (STATUS + b"\n") * number)
            line.socket.shutdown(socket.SHUT_WR)
            assert [line.read()["id"] for _ in range(number + 1)] == [0] + [1] * number
            assert line.is_closed()
    with daemon.line() as line:
        line.hello()
        line.write(STATUS[:20])
        line.socket.shutdown(socket.SHUT_WR)
        assert line.is_closed()
    assert becomes_true(daemon, lambda: daemon.open_descriptors() <= descriptors + 1)


def test_at_the_limit_of_connections_the_next_is_told_and_a_free_place_is_used(
    daemon: Daemon,
) -> None:
    with ExitStack() as stack:
        places: list[Line] = []
        refused = None
        while refused is None:
            line = stack.enter_context(daemon.line())
            with suppress(BrokenPipeError):  # it may be told, and closed, before it has spoken
                line.write(HELLO + b"\n")
            answer = line.read()
            if "error" in answer:
                refused = answer["error"]["data"]["code"]
                assert line.is_closed()
            else:
                places.append(line)
        reserved = places[CONNECTIONS_MAX:]
        assert (refused, len(reserved)) == ("rate-limited", 8)
        for line in reserved:  # kept for those who ask how it is, or stop the daemon
            assert line.refusal("session.whoami")["code"] == "rate-limited"
            assert line.call("daemon.status")["running"] is True
            line.close()
        assert places[2].call("session.whoami")["agent"] is None
        assert places[0].call("daemon.status")["running"] is True
        places[1].close()
        places[0].call("daemon.status")
        with daemon.line() as line:
            assert line.hello()["protocol"] == 1
    assert daemon.status()["running"] is True


# -- answers that nobody reads --------------------------------------------------------------------


def test_a_caller_that_does_not_read_hurts_nobody(daemon: Daemon, new_holder: NewHolder) -> None:
    name, holder = new_holder()
    sent = holder.call("mail.send", to=[name], subject="large", body="x" * BODY_MAX_BYTES)
    before_kib = daemon.resident_kib()
    read = b"".join(request(n, "mail.read", ids=[sent["id"]]) + b"\n" for n in range(600))
    holder.socket.setblocking(False)
    try:
        while read:
            read = read[holder.socket.send(read) :]
    except (BlockingIOError, BrokenPipeError, ConnectionResetError):
        pass  # it stopped taking our requests, or let us go
    for _ in range(50):
        assert daemon.status()["running"] is True
    assert daemon.resident_kib() - before_kib < 64 * 1024


def test_many_large_answers_reach_a_caller_that_reads_them(new_holder: NewHolder) -> None:
    name, holder = new_holder()
    sent = holder.call("mail.send", to=[name], subject="large", body="x" * BODY_MAX_BYTES)
    holder.write(b"".join(request(n, "mail.read", ids=[sent["id"]]) + b"\n" for n in range(100)))
    answers = [holder.read() for _ in range(100)]
    assert sorted(answer["id"] for answer in answers) == list(range(100))
    assert {answer["result"]["messages"][0]["truncated"] for answer in answers} == {False}


def test_reading_many_large_messages_stays_within_one_answer(
    daemon: Daemon, new_holder: NewHolder
) -> None:
    name, holder = new_holder()
    refs = ["\x01" * 2_048] * 20
    sent = [
        holder.call("mail.send", to=[name], subject="s", body="b", refs=refs)["id"]
        for _ in range(8)
    ]
    answer = holder.ask(request(1, "mail.read", ids=sent))
    assert len(json.dumps(answer, ensure_ascii=False).encode()) < ANSWER_MAX_BYTES
    shown = [message["id"] for message in answer["result"]["messages"]]
    left = [failure["id"] for failure in answer["result"]["failed"]]
    assert shown + left == sent
    assert {failure["code"] for failure in answer["result"]["failed"]} == {"too-many"}
    page = holder.call("mail.inbox")
    stages = {message["id"]: message["stage"] for message in page["messages"]}
    assert stages == dict.fromkeys(shown, "read") | dict.fromkeys(left, "delivered")


def test_every_refusal_has_a_code_of_the_contract(line: Line) -> None:
    for raw in (*NO_JSON.values(), *NO_REQUEST.values(), *NO_CALL.values()):
        told = line.ask(raw)["error"]["data"]
        assert told["code"] in EXIT_STATUS
        assert told["message"]
        assert len(json.dumps(told)) < 2_000
