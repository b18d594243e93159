"""The frames of a link between paired hosts: five JSON texts, read strictly, one way of writing.

    hello  {protocol, host, store, streams}   who speaks, and how its two streams stand
    put    {seq, records}                     1 to 64 records for contiguous places, the first `seq`
    put    {seq, id}                          a place whose record was withdrawn; id: its digest
    ok     {upto}                             every place up to this one is committed here
    no     {seq, code, retry_ms}              this place cannot be committed now; offer it later
    bye    {code}                             the speaker closes; {protocol} at version-mismatch

Each is one object whose `type` is its name. A record travels as ``{kind, payload, signatures}``,
its payload a string of exactly the signed text. The readers refuse what is missing, unknown or out
of bounds by `FrameError`, and look at the size before anything else. What a record says is judged
by whoever commits it: one that nobody can believe must not block those behind it.

Only two things are the same in every version: `protocol` of a hello, and ``bye {code: "version-
mismatch", protocol}``. So hosts of different versions can tell each other.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, NoReturn, TypeAlias

from mbx.core.canonical import CanonicalError, JsonValue, parse_line
from mbx.core.ids import is_id
from mbx.core.limits import (
    FRAME_MAX_BYTES,
    INTEGER_MAX,
    PUT_RECORDS_MAX,
    RECORD_SIGNATURES_MAX,
)
from mbx.core.record import Record
from mbx.core.streams import HEAD_BYTES, STOPS, Incoming, Outgoing, StreamState, flaw

PROTOCOL: Final = 1
"""The version of this protocol, an integer that grows."""

VERSION_MISMATCH: Final = "version-mismatch"

BYES: Final[Mapping[str, str]] = {
    VERSION_MISMATCH: "The speaker has another version of the protocol, which it names.",
    "wrong-host": "The hello named another host than the connection had proved.",
    "malformed": "A text came that is no frame.",
    "protocol": "A frame came that no honest host sends at that point.",
    "timeout": "A hello or an answer did not come in time.",
    "other-link": "There is another link between the two, which stays.",
    "stopping": "The speaker's daemon stops.",
    "store": "The speaker's store gave no answer.",
    "refused": "The speaker could not take what was sent, and does not know when it can.",
    "unpaired": "The speaker's owner has removed the peer.",
    **{kind: f"The speaker compared the streams; its verdict is `{kind}`." for kind in STOPS},
}
"""Code of a `bye` -> what it means. An unknown one is read as any other end of a link."""

PUT_OVERHEAD_BYTES: Final = len(f'{{"type":"put","seq":{INTEGER_MAX},"records":[]}}')
"""The most that a `put` has beside its records and the commas between them."""


class FrameError(ValueError):
    """A text that is no frame of this protocol; `reason` never quotes it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Hello(NamedTuple):
    """Who speaks (`host`: key id), with which store (its id), and how its streams stand."""

    host: str
    store: str
    streams: StreamState


class OtherVersion(NamedTuple):
    """A hello of another version of the protocol: nothing else of it is read."""

    protocol: int


class Withdrawal(NamedTuple):
    """What is left of a place whose record was given up before it was offered: its digest."""

    digest: bytes


Place: TypeAlias = Record | Withdrawal
"""What stands in a place of a stream."""


class Put(NamedTuple):
    """Contiguous places from `seq` on: records, or one withdrawal alone."""

    seq: int
    places: tuple[Place, ...]


class Ok(NamedTuple):
    """Everything up to and with this place is committed."""

    upto: int


class No(NamedTuple):
    """A place that cannot be committed now; `code` says why, `retry_ms` when to try again."""

    seq: int
    code: str
    retry_ms: int


class Bye(NamedTuple):
    """Why the speaker closes; `protocol` only where versions differ."""

    code: str
    protocol: int | None = None


Frame: TypeAlias = Hello | OtherVersion | Put | Ok | No | Bye
"""What `parse` returns and `encode` writes."""


def parse(text: str | bytes, max_bytes: int = FRAME_MAX_BYTES) -> Frame:
    """Read one frame. Bytes are what a binary message holds: there is none in this protocol.

    Raises FrameError, and nothing else, for whatever is not exactly a frame.
    """
    if not isinstance(text, str):
        raise FrameError("not a text")
    # A character is a byte at least, so a text that is far too long is not even encoded.
    if len(text) > max_bytes:
        raise FrameError(f"more than {max_bytes} bytes")
    try:
        value = parse_line(text.encode(), max_bytes)
    except UnicodeEncodeError:
        raise FrameError("not UTF-8") from None
    except CanonicalError as error:
        raise FrameError(error.reason) from None
    if not isinstance(value, dict):
        raise FrameError("not an object")
    sort = value.pop("type", None)
    reader = _READERS.get(sort) if isinstance(sort, str) else None
    if reader is None:
        raise FrameError("not a type of frame")
    return reader(value)


def encode(frame: Frame) -> str:
    """The text of a frame. A `put` has either records or one withdrawal."""
    match frame:
        case Put(seq, (Withdrawal(digest),)):
            return _text("put", seq=seq, id=digest.hex())
        case Put(seq, places):
            return put_text(seq, [record_text(one) for one in places if isinstance(one, Record)])
        case Hello(host, store, (out, into)):
            streams = {
                "out": {"id": out.id, "seq": out.seq, "head": out.head.hex(), "acked": out.acked},
                "in": {"id": into.id, "seq": into.seq, "head": into.head.hex()},
            }
            return _text("hello", protocol=PROTOCOL, host=host, store=store, streams=streams)
        case OtherVersion(protocol):
            return _text("hello", protocol=protocol)
        case Ok(upto):
            return _text("ok", upto=upto)
        case No(seq, code, retry_ms):
            return _text("no", seq=seq, code=code, retry_ms=retry_ms)
        case Bye(code, None):
            return _text("bye", code=code)
        case Bye(code, protocol):
            return _text("bye", code=code, protocol=protocol)


def record_text(record: Record) -> str:
    """A record as it stands in a `put`, so that its size is known before frames are made."""
    signatures = dict(record.signatures)
    return _ENCODE({"kind": record.kind, "payload": record.payload, "signatures": signatures})


def parse_record(text: str) -> Record:
    """The record that `record_text` has written; it is not verified. Raises FrameError."""
    try:
        return _record(parse_line(text.encode(), FRAME_MAX_BYTES))
    except UnicodeEncodeError:
        raise FrameError("not UTF-8") from None
    except CanonicalError as error:
        raise FrameError(error.reason) from None


def put_text(seq: int, records: Sequence[str]) -> str:
    """The `put` of records that `record_text` has written."""
    return f'{{"type":"put","seq":{seq},"records":[{",".join(records)}]}}'


def size_bytes(text: str) -> int:
    """The bytes of a text in UTF-8. Raises UnicodeEncodeError where it has none."""
    return len(text) if text.isascii() else len(text.encode())


def fits(record: Record) -> bool:
    """Whether a frame can carry the record: to be asked before anybody is told that it was sent."""
    return size_bytes(record_text(record)) + PUT_OVERHEAD_BYTES <= FRAME_MAX_BYTES


# -- writing ---------------------------------------------------------------------------------------

_ENCODE: Final[Callable[[object], str]] = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode


def _text(sort: str, **fields: object) -> str:
    return _ENCODE({"type": sort, **fields})


# -- reading ---------------------------------------------------------------------------------------

_HEX: Final = re.compile(f"[0-9a-f]{{{2 * HEAD_BYTES}}}")
_CODE: Final = re.compile("[a-z][a-z-]{0,39}")
_KIND: Final = re.compile("[a-z][a-z-]{0,31}")
_SIGNATURE_CHARS: Final = 88
"""64 bytes in padded base64."""

_Fields: TypeAlias = dict[str, JsonValue]


def _refuse(what: str) -> NoReturn:
    raise FrameError(f"{what} is malformed")


def _check_fields(what: str, value: JsonValue, *names: str) -> _Fields:
    """The object, which has exactly these fields."""
    if not isinstance(value, dict):
        _refuse(what)
    if value.keys() != set(names):
        raise FrameError(f"{what} has fields missing or unknown")
    return value


def _number(what: str, value: JsonValue, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= INTEGER_MAX:
        _refuse(what)
    return value


def _id(what: str, value: JsonValue) -> str:
    if not is_id(value):
        _refuse(what)
    return value


def _digest(what: str, value: JsonValue) -> bytes:
    if not isinstance(value, str) or _HEX.fullmatch(value) is None:
        _refuse(what)
    return bytes.fromhex(value)


def _word(what: str, value: JsonValue, grammar: re.Pattern[str]) -> str:
    if not isinstance(value, str) or grammar.fullmatch(value) is None:
        _refuse(what)
    return value


def _hello(fields: _Fields) -> Frame:
    protocol = _number("protocol", fields.get("protocol"))
    if protocol != PROTOCOL:
        return OtherVersion(protocol)
    _check_fields("hello", fields, "protocol", "host", "store", "streams")
    both = _check_fields("streams", fields["streams"], "out", "in")
    out = _check_fields("out", both["out"], "id", "seq", "head", "acked")
    into = _check_fields("in", both["in"], "id", "seq", "head")
    streams = StreamState(
        Outgoing(
            _id("id", out["id"]),
            _number("seq", out["seq"]),
            _digest("head", out["head"]),
            _number("acked", out["acked"]),
        ),
        Incoming(
            None if into["id"] is None else _id("id", into["id"]),
            _number("seq", into["seq"]),
            _digest("head", into["head"]),
        ),
    )
    if (why := flaw(streams)) is not None:
        raise FrameError(why)
    return Hello(_id("host", fields["host"]), _id("store", fields["store"]), streams)


def _put(fields: _Fields) -> Frame:
    if "id" in fields:
        _check_fields("put", fields, "seq", "id")
        return Put(_number("seq", fields["seq"], 1), (Withdrawal(_digest("id", fields["id"])),))
    _check_fields("put", fields, "seq", "records")
    seq, records = _number("seq", fields["seq"], 1), fields["records"]
    if not isinstance(records, list) or not 1 <= len(records) <= PUT_RECORDS_MAX:
        raise FrameError(f"not 1 to {PUT_RECORDS_MAX} records")
    _number("seq", seq + len(records) - 1)
    return Put(seq, tuple(_record(one) for one in records))


def _record(value: JsonValue) -> Record:
    fields = _check_fields("record", value, "kind", "payload", "signatures")
    payload, signatures = fields["payload"], fields["signatures"]
    if not isinstance(payload, str):
        _refuse("payload")
    if not isinstance(signatures, dict) or not 1 <= len(signatures) <= RECORD_SIGNATURES_MAX:
        raise FrameError(f"not 1 to {RECORD_SIGNATURES_MAX} signatures")
    signed = {_id("key id", key_id): _signature(text) for key_id, text in signatures.items()}
    return Record(_word("kind", fields["kind"], _KIND), payload, signed)


def _signature(value: JsonValue) -> str:
    if not isinstance(value, str) or len(value) != _SIGNATURE_CHARS or not value.isascii():
        _refuse("signature")
    return value


def _ok(fields: _Fields) -> Frame:
    return Ok(_number("upto", _check_fields("ok", fields, "upto")["upto"]))


def _no(fields: _Fields) -> Frame:
    _check_fields("no", fields, "seq", "code", "retry_ms")
    return No(
        _number("seq", fields["seq"], 1),
        _word("code", fields["code"], _CODE),
        _number("retry_ms", fields["retry_ms"]),
    )


def _bye(fields: _Fields) -> Frame:
    code = _word("code", fields.get("code"), _CODE)
    if code == VERSION_MISMATCH:
        _check_fields("bye", fields, "code", "protocol")
        return Bye(code, _number("protocol", fields["protocol"]))
    _check_fields("bye", fields, "code")
    return Bye(code)


_READERS: Final[Mapping[str, Callable[[_Fields], Frame]]] = {
    "hello": _hello,
    "put": _put,
    "ok": _ok,
    "no": _no,
    "bye": _bye,
}
