"""A paired host that keeps no rule: real keys, true streams, and any frame or record it can sign.

It speaks frames over whatever wire it is given: TLS and a websocket to a daemon (`SocketWire`), or
texts handed to links in this process. What it says besides its moves is what an honest host would,
so that after each move it can show that its link still works.
"""

import base64
import hashlib
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from websockets.client import ClientProtocol
from websockets.frames import Frame as SocketFrame
from websockets.frames import Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import WebSocketURI

from mbx.core.canonical import JsonValue, encode, parse
from mbx.core.frames import Bye, Frame, Hello, No, Ok, Put, Withdrawal
from mbx.core.frames import encode as frame_text
from mbx.core.frames import parse as parse_frame
from mbx.core.keys import SigningKey, crockford, key_id
from mbx.core.limits import FRAME_MAX_BYTES, RECORD_MAX_BYTES
from mbx.core.message import Draft, Envelope, Party
from mbx.core.message import payload as message_payload
from mbx.core.peer import Entry, Nack, directory_payload, nack_payload
from mbx.core.receipt import Fact
from mbx.core.receipt import payload as receipt_payload
from mbx.core.record import Record, signed_bytes
from mbx.core.streams import EMPTY_HEAD, Incoming, Outgoing, StreamState, extended
from mbx.daemon.certificates import Context

NOW_MS: Final = 1_700_000_000_000
"""When the rogue says that it signs; nobody may care."""


class Wire(Protocol):
    """One connection to the host that is attacked."""

    def send(self, text: str) -> None:
        """Say this; what the other side does not want any more is lost."""

    def read(self) -> str | None:
        """What it says next, None once it has hung up."""

    def close(self) -> None:
        """Hang up."""


class Turned(Exception):
    """The host let nobody in: the status of its answer."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


def signed(kind: str, payload: str, key: SigningKey, signer: str) -> Record:
    """A record whose payload nobody has looked at."""
    raw = key.sign(signed_bytes(kind, payload))
    return Record(kind, payload, {signer: base64.b64encode(raw).decode()})


def fresh_id(words: str) -> str:
    """An id that no other words have."""
    return crockford(hashlib.sha256(words.encode()).digest())


@dataclass
class Rogue:
    """One such host: `label` is what it is called, `dial` connects it to the host `victim`."""

    label: str
    victim: str
    victim_label: str
    victim_public: bytes
    dial: Callable[["Rogue"], Wire]
    wire: Wire | None = None
    places: list[bytes] = field(default_factory=list)
    """Digests of what its stream holds, in order."""
    heard_head: bytes = EMPTY_HEAD
    heard_stream: str | None = None
    records: list[Record] = field(default_factory=list)
    """What it was sent, in order."""
    acked: int = 0
    code: str | None = None
    """Of the last `bye` that it heard."""
    taken: int = 0
    """How many of `records` were looked at by `answers`."""
    drawn: int = 0

    def __post_init__(self) -> None:
        self.key = SigningKey.from_seed(hashlib.sha256(self.label.encode()).digest())
        self.key_id = key_id("host", self.key.public)
        self.stream = fresh_id(f"{self.label}>{self.victim_label}")
        self.store = fresh_id(f"store of {self.label}")

    # -- links ------------------------------------------------------------------------------------

    @property
    def hello(self) -> Hello:
        """The truth about its streams."""
        head = EMPTY_HEAD
        for digest in self.places:
            head = extended(head, digest)
        out = Outgoing(self.stream, len(self.places), head, self.acked)
        into = Incoming(self.heard_stream, len(self.records), self.heard_head)
        return Hello(self.key_id, self.store, StreamState(out, into))

    def call(self) -> None:
        """Connect, without a word. Raises Turned."""
        self.hang_up()
        self.code = None
        self.wire = self.dial(self)

    def greet(self) -> Hello:
        """Say hello and hear the other's, which is the truth about what it has."""
        self.call()
        self.say(self.hello)
        theirs = self.next()
        assert isinstance(theirs, Hello), theirs
        self.keep(theirs)
        return theirs

    def keep(self, theirs: Hello) -> None:
        """What the host has of us is what was sent; what it has not was never there."""
        del self.places[theirs.streams.into.seq :]
        self.acked = theirs.streams.into.seq
        self.heard_stream = theirs.streams.out.id

    def stand(self) -> None:
        """A link that stands, as an honest host makes it. Raises Turned."""
        self.call()
        # It hears what the other has before it says how its own stream goes.
        theirs = self.next()
        assert isinstance(theirs, Hello), theirs
        self.keep(theirs)
        if not self.records:
            self.heard_stream = None
        self.say(self.hello)
        self.heard_stream = theirs.streams.out.id
        answer = self.next()
        assert isinstance(answer, Ok), answer
        self.say(Ok(len(self.records)))

    def hang_up(self) -> None:
        """End the connection, if there is one."""
        if self.wire is not None:
            self.wire.close()
            self.wire = None

    def say(self, frame: Frame) -> None:
        """One frame."""
        self.say_text(frame_text(frame))

    def say_text(self, text: str) -> None:
        """Any text."""
        assert self.wire is not None
        self.wire.send(text)

    def next(self) -> Frame | None:
        """What the host says next, None at its end. What it offers is taken and acknowledged."""
        assert self.wire is not None
        while (text := self.wire.read()) is not None:
            frame = parse_frame(text)
            if isinstance(frame, Put):
                self._take(frame)
                continue
            if isinstance(frame, Bye):
                self.code = frame.code
            if isinstance(frame, Ok):
                self.acked = max(self.acked, frame.upto)
            return frame
        return None

    def _take(self, frame: Put) -> None:
        for seq, place in enumerate(frame.places, frame.seq):
            if seq == len(self.records) + 1:
                self.heard_head = extended(self.heard_head, place.digest)
                self.records.append(
                    place if isinstance(place, Record) else Record("withdrawn", "{}", {})
                )
        self.say(Ok(len(self.records)))

    # -- records ----------------------------------------------------------------------------------

    def put(self, *records: Record | Withdrawal, seq: int | None = None) -> int:
        """Offer these at the next place, or anywhere; the last place."""
        first = len(self.places) + 1 if seq is None else seq
        self.say(Put(first, records))
        for at, one in enumerate(records, first):
            if at == len(self.places) + 1:
                self.places.append(one.digest)
        return first + len(records) - 1

    def offer(self, *records: Record | Withdrawal) -> None:
        """Offer these and wait until they are committed."""
        self.wait_for(self.put(*records))

    def wait_for(self, seq: int) -> None:
        """Until the host has acknowledged this place."""
        while self.acked < seq:
            frame = self.next()
            assert isinstance(frame, Ok), f"{frame} instead of ok {seq}"

    def end(self) -> str | None:
        """Hear until the host hangs up; the code of its `bye`, None where it said none."""
        while self.next() is not None:
            pass
        return self.code

    def answers(self) -> list[str]:
        """The codes of the refusals since this was asked last."""
        fresh, self.taken = self.records[self.taken :], len(self.records)
        return [str(read(one)["code"]) for one in fresh if one.kind == "nack"]

    def until_record(self, wanted: Callable[[Record], bool]) -> Record:
        """The first record of the host that fits, of those that came and those that come."""
        looked = 0
        while True:
            for one in self.records[looked:]:
                if wanted(one):
                    return one
            looked = len(self.records)
            count = len(self.records)
            assert self.wire is not None
            while len(self.records) == count:
                text = self.wire.read()
                assert text is not None, f"the host hung up ({self.code})"
                frame = parse_frame(text)
                if isinstance(frame, Put):
                    self._take(frame)
                elif isinstance(frame, Bye):
                    self.code = frame.code
                elif isinstance(frame, Ok):
                    self.acked = max(self.acked, frame.upto)

    def sign(self, kind: str, payload: Mapping[str, JsonValue], **changes: Any) -> Record:
        """A record under its own key, of any kind and content; `changes` to the payload."""
        return signed(kind, encode({**payload, **changes}), self.key, self.key_id)

    @property
    def envelope(self) -> dict[str, JsonValue]:
        """iat, nonce, aud."""
        return {"iat": NOW_MS, "nonce": self.nonce(), "aud": self.victim}

    def nonce(self) -> str:
        """32 hex digits that were never there."""
        self.drawn += 1
        return hashlib.sha256(f"{self.label} {self.drawn}".encode()).hexdigest()[:32]

    def party(self, name: str = "rob") -> Party:
        """One of its own identities."""
        return Party(fresh_id(f"{name} of {self.label}"), name, self.label)

    def message(
        self,
        whom: Party | Sequence[Party],
        subject: str = "from a rogue",
        body: str = "do as I say",
        *,
        sender: Party | None = None,
        thread: str | None = None,
        reply_to: str | None = None,
        hop: int = 0,
        external_since: int | None = None,
        kind: str = "message",
        **changes: Any,
    ) -> Record:
        """A message of its own."""
        everybody = [whom] if isinstance(whom, Party) else list(whom)
        envelope = Envelope(
            sender=sender or self.party(),
            lease_epoch=1,
            lease_id=fresh_id(f"lease of {self.label}"),
            to=everybody,
            thread=thread,
            reply_to=reply_to,
            hop=hop,
            sent_at_ms=NOW_MS,
            project=None,
            audience=(self.victim,),
            nonce=self.nonce(),
            external_since=external_since,
        )
        draft = Draft(subject, body, kind, needs_reply=False)
        return self.sign("message", message_payload(draft, envelope), **changes)

    def entry(self, who: str = "rob", **changes: Any) -> dict[str, JsonValue]:
        """What it tells of one of its identities."""
        told = Entry(self.party(who).identity, who, "rogue", "", "live", "claude", retired=False)
        return {**told._asdict(), **changes}

    def directory(
        self, *entries: dict[str, JsonValue], addresses: Any = None, **changes: Any
    ) -> Record:
        """What it tells of its identities and addresses."""
        payload = directory_payload([], self.envelope, addresses)
        return self.sign("directory", {**payload, "identities": list(entries)}, **changes)

    def receipt(self, *facts: Fact | dict[str, JsonValue], **changes: Any) -> Record:
        """What it says became of mail."""
        envelope = self.envelope
        payload = receipt_payload(
            [],
            epoch=1,
            sequence=1,
            now_ms=NOW_MS,
            nonce=str(envelope["nonce"]),
            audience=self.victim,
        )
        told: list[JsonValue] = [one.as_object() if isinstance(one, Fact) else one for one in facts]
        return self.sign("receipt", {**payload, "facts": told}, **changes)

    def nack(
        self,
        message: str,
        code: str = "unknown-recipient",
        *,
        recipient: str | None = None,
        words: str = "",
        **changes: Any,
    ) -> Record:
        """A refusal."""
        payload = nack_payload(Nack(message, recipient, code, words), self.envelope)
        return self.sign("nack", payload, **changes)


def read(record: Record) -> dict[str, Any]:
    """The payload of a record."""
    payload = parse(record.payload.encode(), RECORD_MAX_BYTES)
    assert isinstance(payload, dict)
    return dict(payload)


def facts_of(record: Record) -> list[dict[str, Any]]:
    """What a receipt states."""
    found: list[dict[str, Any]] = read(record)["facts"] if record.kind == "receipt" else []
    return found


def raw_put(seq: int, records: Sequence[Any]) -> str:
    """A `put` of whatever is given."""
    return encode({"type": "put", "seq": seq, "records": list(records)})


def said_no(seq: int, retry_ms: int) -> No:
    """A refusal for now."""
    return No(seq, "busy", retry_ms)


class SocketWire:
    """TLS and a websocket, without a loop: one text after the other. Raises Turned."""

    def __init__(self, port: int, context: Context, timeout_s: float) -> None:
        connection = socket.create_connection(("127.0.0.1", port), timeout_s)
        self.socket = context.wrap_socket(connection)
        uri = WebSocketURI(secure=True, host="mbx", port=443, path="/link", query="")
        self._protocol = ClientProtocol(uri, max_size=FRAME_MAX_BYTES + 1)
        self._texts: deque[str] = deque()
        self._parts: list[bytes] = []
        self._statuses: list[int] = []
        self._is_over = False
        self._protocol.send_request(self._protocol.connect())
        self._flush()
        status = self._upgrade()
        if status != 101:
            self.close()
            raise Turned(status)

    def send(self, text: str) -> None:
        """One text; nobody hears it once the other side has hung up."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_text(text.encode("utf-8", "surrogatepass"))
            self._flush()

    def read(self) -> str | None:
        """The next text; None at the end."""
        while not self._texts and not self._is_over:
            self._hear()
        return self._texts.popleft() if self._texts else None

    def close(self) -> None:
        """At once."""
        self._is_over = True
        self.socket.close()

    def _upgrade(self) -> int:
        """The status of the answer, 0 for none."""
        while not self._statuses and not self._is_over:
            self._hear()
        return self._statuses[0] if self._statuses else 0

    def _hear(self) -> None:
        try:
            data = self.socket.recv(1 << 18)
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            data = b""
        if data:
            self._protocol.receive_data(data)
        else:
            self._is_over = True
        for event in self._protocol.events_received():
            if isinstance(event, Response):
                self._statuses.append(event.status_code)
            elif isinstance(event, SocketFrame) and event.opcode in (Opcode.TEXT, Opcode.CONT):
                self._parts.append(bytes(event.data))
                if event.fin:
                    self._texts.append(b"".join(self._parts).decode())
                    self._parts.clear()
        self._flush()

    def _flush(self) -> None:
        pieces = [piece for piece in self._protocol.data_to_send() if piece]
        try:
            for piece in pieces:
                self.socket.sendall(piece)
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            # What it said before it hung up can still be read.
