"""Two thousand mutated requests: each line gets one answer, and the daemon goes on as before."""

import json
import random
from collections.abc import Callable

from mbx.core.errors import EXIT_STATUS
from tests.support.daemon import Daemon, Line, NewHolder, request

SEED = 20_260_514
COUNT = 2_000
BATCH = 100

INTERESTING = [
    *(b"\0", b"\xff", b"\\u0000", b"\\ud800", b"\\", b'"', b"{", b"}", b"[", b"]", b",", b":"),
    *(b"-0", b"1e999", b"NaN", b"9007199254740993", b"0.1", b"null", b"true", b"[]", b"{}"),
    *("\u2028\u202e😀".encode(), b"'; DROP TABLE messages; --", b"%s%n", b"../../etc/passwd"),
]


def flip(line: bytearray, chance: random.Random) -> None:
    line[chance.randrange(len(line))] ^= 1 << chance.randrange(8)


def insert(line: bytearray, chance: random.Random) -> None:
    place = chance.randrange(len(line))
    line[place:place] = chance.choice(INTERESTING)


def cut(line: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(line))
    del line[start : start + chance.randrange(1, 20)]


def repeat(line: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(line))
    piece = line[start : start + chance.randrange(1, 30)]
    line[start:start] = piece * chance.choice((1, 2, 100))


def swap_value(line: bytearray, chance: random.Random) -> None:
    """Put an odd value in place of a good one: the line stays JSON and reaches the methods."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return
    params = message.get("params") if isinstance(message, dict) else None
    if isinstance(params, dict) and params:
        odd: tuple[object, ...] = (
            None,
            True,
            -1,
            2**53,
            1.5,
            "",
            "\0",
            "x" * 300,
            [],
            {},
            ["a"] * 300,
            {"a": [{}]},
        )
        params[chance.choice(sorted(params))] = chance.choice(odd)
        line[:] = json.dumps(message).encode()


MUTATIONS: list[Callable[[bytearray, random.Random], None]] = [
    *(flip, insert, cut, repeat),
    *[swap_value] * 4,
]


def good_lines(name: str, message_id: str) -> list[bytes]:
    return [
        request(1, "session.whoami"),
        request(1, "identity.list", all=True, project="/x"),
        request(1, "identity.show", name=name),
        request(1, "identity.register", name=name, role="tester", description="d", project="/p"),
        request(1, "identity.claim", name=name, role="tester", key="k"),
        request(
            *(1, "mail.send"),
            to=[name],
            subject="subject",
            body="body",
            kind="request",
            needs_reply=True,
            refs=["a", "b"],
            topic="t",
            reply_to=message_id,
            origin="external",
        ),
        request(1, "mail.reply", id=message_id, body="b", final="acted", did="did", refs=["r"]),
        request(1, "mail.inbox", limit=5, cursor=None, kind="task", all=True, **{"from": name}),
        request(1, "mail.read", ids=[message_id], offset=0, max_bytes=100),
        request(1, "mail.ack", ids=[message_id], outcome="noted", did="did", note="note"),
        request(1, "mail.sent", id=message_id, limit=3, cursor=None),
        request(1, "daemon.status", hash=False),
        request(1, "hello", protocol=1, session={"cli": "c", "id": "i"}, token="0" * 64),
    ]


def mutated(lines: list[bytes], chance: random.Random) -> bytes:
    line = bytearray(chance.choice(lines))
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        if line:
            chance.choice(MUTATIONS)(line, chance)
    return bytes(line).replace(b"\n", b" ")


def answers(line: Line, batch: list[bytes]) -> list[dict[str, object]]:
    line.write(b"".join(one + b"\n" for one in batch))
    return [line.read() for _ in batch]


def test_each_of_two_thousand_mutated_lines_gets_one_answer(
    daemon: Daemon, new_holder: NewHolder
) -> None:
    chance = random.Random(SEED)
    name, line = new_holder()
    sent = line.call("mail.send", to=[name], subject="s", body="b")["id"]
    lines = good_lines(name, sent)
    before_kib = daemon.resident_kib()
    codes: dict[str, int] = {}
    for _ in range(COUNT // BATCH):
        batch = [mutated(lines, chance) for _ in range(BATCH)]
        for answer in answers(line, batch):
            code = "ok"
            if "error" in answer:
                error = answer["error"]
                assert isinstance(error, dict)
                code = error["data"]["code"]
                assert code in EXIT_STATUS
                assert code != "internal", error
            codes[code] = codes.get(code, 0) + 1
        assert line.ask(request("in step", "session.whoami"))["id"] == "in step"
    assert sum(codes.values()) == COUNT
    assert codes["ok"] > 50, codes
    assert len(codes) >= 8, codes
    assert daemon.resident_kib() - before_kib < 32 * 1024
    with daemon.line() as other:
        other.hello()
        assert other.call("identity.show", name=name)["state"] == "held"
