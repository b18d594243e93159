"""Frames for tests of the link: good ones of each type, and what a hostile peer makes of them."""

import json
import random
from typing import Any

from mbx.core.frames import Bye, Frame, Hello, No, Ok, Put, Withdrawal, encode
from mbx.core.keys import crockford
from mbx.core.record import Record
from mbx.core.streams import EMPTY_HEAD, Incoming, Outgoing, StreamState

HOSTS = ("0" * 26, "z" * 26)
"""Two key ids; the first is the smaller one."""

STORES = ("1" * 26, "2" * 26)
SIGNATURE = "A" * 86 + "=="


def record(payload: str, kind: str = "message") -> Record:
    """A record of the right shape; nobody has signed it."""
    return Record(kind, payload, {HOSTS[0]: SIGNATURE})


def empty(no: int) -> StreamState:
    """The streams of one of two hosts that have just been paired."""
    name = crockford(bytes([no]) * 16)
    return StreamState(Outgoing(name, 0, EMPTY_HEAD, 0), Incoming(None, 0, EMPTY_HEAD))


def samples() -> dict[str, Frame]:
    """One good frame of each sort."""
    out = Outgoing("3" * 26, 7, b"\x07" * 32, 5)
    into = Incoming("4" * 26, 2, b"\x02" * 32)
    return {
        "hello": Hello(HOSTS[0], STORES[0], StreamState(out, into)),
        "put": Put(8, (record('{"body":"Grüße \\u0001"}'), record("{}", "receipt"))),
        "withdrawn": Put(9, (Withdrawal(b"\x09" * 32),)),
        "ok": Ok(7),
        "no": No(8, "disk-full", 5_000),
        "bye": Bye("stopping"),
        "mismatch": Bye("version-mismatch", 1),
    }


_NUMBERS = (-1, 0, 1, 2**53 - 1, 2**53, 1.5, True, None, "7", 10**15)
_TEXTS = ("", "x", "\ud800", "\0", "put", "Hello", "ok\n", "\u202e", "a" * 5_000)
_ODD: tuple[Any, ...] = ({}, [], [[]], [{}], {"a": 1}, *_NUMBERS, *_TEXTS)


def mutated(chance: random.Random, text: str) -> str:
    """The text, changed somewhere: characters, pieces, or the value that it stands for."""
    way = chance.randrange(7)
    at = chance.randrange(len(text))
    if way == 0:
        return text[:at] + chance.choice('{}[]":,0-\\\n\0é\ud800 e.') + text[at + 1 :]
    if way == 1:
        return text[:at]
    if way == 2:
        end = at + chance.randint(1, 40)
        return text[:at] + text[end:]
    if way == 3:
        end = at + chance.randint(1, 40)
        return text[:end] + text[at:]
    if way == 4:
        return text + chance.choice([text, " ", "\n", "x", "\0", "[" * 2_000])
    value = json.loads(text)
    _spoil(chance, value)
    return json.dumps(value, ensure_ascii=chance.random() < 0.5)


def _spoil(chance: random.Random, value: dict[str, Any]) -> None:
    """One field somewhere inside is missing, another, or too much."""
    inside = [value]
    for one in inside:
        inside.extend(deeper for deeper in one.values() if isinstance(deeper, dict))
        for deeper in one.values():
            if isinstance(deeper, list):
                inside.extend(item for item in deeper if isinstance(item, dict))
    target = chance.choice(inside)
    key = chance.choice([*target, "type", "protocol", "extra"])
    way = chance.randrange(3)
    if way == 0:
        target.pop(key, None)
    elif way == 1:
        target[key] = chance.choice(_ODD)
    else:
        target[key] = [target.get(key)] * chance.choice([1, 2, 64, 65, 1_025])


def texts() -> dict[str, str]:
    """The texts of `samples`."""
    return {name: encode(frame) for name, frame in samples().items()}
