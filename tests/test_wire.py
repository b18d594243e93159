"""Lines over the socket, byte by byte."""

import json
import socket
import time
from collections.abc import Iterator

import pytest

from mbx.wire import LINE_MAX_BYTES, Connection, ConnectionLost, NoAnswer, WireError, decode, encode

FAR = 10.0


@pytest.fixture
def pair() -> Iterator[tuple[Connection, socket.socket]]:
    ours, theirs = socket.socketpair()
    connection = Connection(ours, time.monotonic)
    with theirs:
        yield connection, theirs
        connection.close()


def soon() -> float:
    return time.monotonic() + FAR


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_no_json_are_not_sent(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode({"x": value})


@pytest.mark.parametrize("text", ["a\nb\r\n", "\u2028\u0085", "\x1b[31m", "ü😀", "\u202e", "\0"])
def test_a_message_is_one_line_of_ascii_whatever_it_holds(text: str) -> None:
    line = encode({"text": text})
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line[:-1]) == {"text": text}


@pytest.mark.parametrize(
    "line",
    [
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b"[1]",
        b"1",
        b"",
        b"{",
        b'{"a":1}{',
        b'{"a":"\xff"}',
        b"\xef\xbb\xbf{}",
        b'{"a":' + b"[" * 100_000,
    ],
)
def test_an_answer_that_is_no_finite_json_object_is_refused(line: bytes) -> None:
    with pytest.raises(WireError):
        decode(line)


def test_an_answer_in_single_bytes_is_put_together(
    pair: tuple[Connection, socket.socket],
) -> None:
    connection, theirs = pair
    for byte in b'{"a":"\xc3\xbc"}\n':
        theirs.sendall(bytes([byte]))
    assert connection.receive(soon()) == {"a": "ü"}


def test_two_answers_in_one_piece_are_both_read(pair: tuple[Connection, socket.socket]) -> None:
    connection, theirs = pair
    theirs.sendall(b'{"a":1}\n{"a":2}\n')
    assert [connection.receive(soon())["a"] for _ in range(2)] == [1, 2]


def test_half_an_answer_is_a_lost_connection_and_says_that_the_request_had_left(
    pair: tuple[Connection, socket.socket],
) -> None:
    connection, theirs = pair
    connection.send(b"{}\n", soon())
    theirs.sendall(b'{"a":')
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionLost) as lost:
        connection.receive(soon())
    assert lost.value.written


def test_a_request_that_cannot_be_written_whole_is_not_counted_as_written(
    pair: tuple[Connection, socket.socket],
) -> None:
    connection, theirs = pair
    theirs.close()
    with pytest.raises(ConnectionLost) as lost:
        connection.send(b"x" * 10_000_000, soon())
    assert not lost.value.written


def test_a_peer_that_takes_nothing_is_left_at_the_deadline(
    pair: tuple[Connection, socket.socket],
) -> None:
    connection, _ = pair
    with pytest.raises(NoAnswer) as late:
        connection.send(b"x" * 10_000_000, time.monotonic() + 0.05)
    assert not late.value.written


def test_a_silent_peer_is_left_at_the_deadline(pair: tuple[Connection, socket.socket]) -> None:
    connection, _ = pair
    connection.send(b"{}\n", soon())
    with pytest.raises(NoAnswer) as late:
        connection.receive(time.monotonic() + 0.05)
    assert late.value.written


def test_a_deadline_that_has_passed_sends_nothing(
    pair: tuple[Connection, socket.socket],
) -> None:
    connection, theirs = pair
    with pytest.raises(NoAnswer):
        connection.send(b"{}\n", time.monotonic() - 1)
    connection.close()
    assert theirs.recv(10) == b""


def test_a_line_without_end_is_refused_with_bounded_memory(
    pair: tuple[Connection, socket.socket],
) -> None:
    import threading

    connection, theirs = pair

    def flood() -> None:
        try:
            while True:
                theirs.sendall(b"x" * 65_536)
        except OSError:
            pass

    thread = threading.Thread(target=flood)
    thread.start()
    with pytest.raises(WireError, match=str(LINE_MAX_BYTES)):
        connection.receive(soon())
    assert len(connection._buffer) <= LINE_MAX_BYTES + 65_536
    connection.close()
    thread.join(10)


def test_the_largest_answer_passes(pair: tuple[Connection, socket.socket]) -> None:
    import threading

    connection, theirs = pair
    line = json.dumps({"body": "\x01" * 174_000}).encode() + b"\n"
    assert 1_000_000 < len(line) < LINE_MAX_BYTES
    thread = threading.Thread(target=theirs.sendall, args=(line,))
    thread.start()
    assert connection.receive(soon())["body"] == "\x01" * 174_000
    thread.join(10)
