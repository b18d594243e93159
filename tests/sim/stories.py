"""Histories written by hand: a small scribe that keeps the books right unless it is told to lie."""

import base64
import hashlib
from typing import Any, Final

from mbx.core import record
from mbx.core.canonical import encode
from mbx.core.keys import SigningKey, key_id
from tests.sim.case import Case, mark
from tests.sim.history import Call, Commit, Event, Outcome, Reopened, Return
from tests.sim.image import Audit, Delivery, Image, Lease, Message, OwnerRecord, Receipt
from tests.sim.tenure import FREE, HELD, LAPSED

KEY: Final = SigningKey.from_seed(bytes(range(32)))
HOST: Final = key_id("host", KEY.public)
_NONCE: Final = "0" * 32


class Story:
    """What happened so far. Identities are called i1, i2 … in the order of their names."""

    def __init__(self, *names: str) -> None:
        self.events: list[Event] = []
        self.names = list(names)
        self.epochs = dict.fromkeys(names, 0)
        self.states = dict.fromkeys(names, FREE)
        self.leases: dict[str, tuple[str, bytes]] = {}
        self.messages: list[Message] = []
        self.deliveries: list[Delivery] = []
        self.receipts: list[Receipt] = []
        self.audit: list[tuple[str, str | None, dict[str, Any]]] = []
        self.answers: list[tuple[str, str]] = []
        self.bound: dict[str, tuple[int, int]] = {}
        self.unread = dict.fromkeys(names, 0)
        self.seq = self.attempt = self.now_ms = 0
        self.records: list[OwnerRecord] = []

    # -- calls ----------------------------------------------------------------------------------

    def call(
        self,
        session: str,
        method: str,
        params: dict[str, Any],
        outcome: Outcome | None = "ok",
        result: dict[str, Any] | None = None,
        *,
        op: int | None = None,
        key: str | None = None,
        changes: bool = True,
        under: tuple[str, int] | None = None,
        closing: bool = False,
    ) -> int:
        """A call, its commit and its answer (None: none yet); the attempt."""
        self.attempt += 1
        no = op or self.attempt
        told = (method, params, key, under, closing, self.now_ms)
        self.events.append(Call(self.attempt, no, session, *told))
        if changes:
            self.seq += 1
            self.events.append(Commit(self.seq, self.attempt))
        if outcome is not None:
            self.answer(self.attempt, outcome, result)
        return self.attempt

    def answer(self, attempt: int, outcome: Outcome, result: dict[str, Any] | None = None) -> None:
        ok = outcome == "ok"
        code = "in-use" if outcome == "refused" else ""
        self.events.append(Return(attempt, outcome, self.seq * ok, result or {}, code))

    def write(self, act: str, name: str, session: str, **detail: Any) -> None:
        """A row of the audit log."""
        cli, _, session_id = session.partition("/")
        told = {"seq": self.seq, "name": name, "cli": cli, "session": session_id, **detail}
        self.audit.append((act, self.identity(name), told))

    # -- leases ---------------------------------------------------------------------------------

    def grant(self, name: str, session: str, *, epoch: int | None = None) -> int:
        """The name is claimed and given; the epoch."""
        epoch = self.epochs[name] + 1 if epoch is None else epoch
        self.call(session, "identity.claim", {"name": name}, "ok", {"agent": name, "epoch": epoch})
        self.write("claim", name, session, epoch=epoch)
        self.epochs[name], self.states[name] = epoch, HELD
        self.bound[session] = (self.no(name), epoch)
        self.leases[name] = self.sign("lease", {"epoch": epoch})
        return epoch

    def release(self, name: str, session: str) -> None:
        epoch = self.epochs[name]
        self.call(session, "identity.release", {}, "ok", {"released": name, "epoch": epoch})
        self.write("release", name, session, epoch=epoch)
        self.states[name] = FREE
        self.bound.pop(session, None)

    def lapse(self, name: str, session: str, why: str = "its process has ended") -> None:
        self.seq += 1
        self.events.append(Commit(self.seq, None))
        self.write("lapse", name, session, epoch=self.epochs[name], why=why)
        self.states[name] = LAPSED

    # -- mail -----------------------------------------------------------------------------------

    def send(
        self,
        session: str,
        sender: str,
        to: list[str],
        outcome: Outcome | None = "ok",
        *,
        op: int | None = None,
        key: str | None = None,
        reaches: list[str] | None = None,
        epoch: int | None = None,
        stored: bool = True,
        under: tuple[str, int] | None = None,
        **lies: Any,
    ) -> Message:
        """A message; `reaches` and `lies` (fields of the payload) say where it is not as asked."""
        no = op or self.attempt + 1
        params = {"to": to, "subject": "s", "body": mark(no) + "b"}
        message = self.compose(sender, to, params, epoch or self.epochs[sender], lies)
        answer = {"id": message.id, "recipients": [{"identity": self.identity(n)} for n in to]}
        self.call(session, "mail.send", params, None, op=op, key=key, changes=stored, under=under)
        if stored:
            self.store(message, to if reaches is None else reaches)
            if key is not None:
                self.answers.append((f"i{self.no(sender)}", key))
        if outcome is not None:
            self.answer(self.attempt, outcome, answer if outcome == "ok" else None)
        return message

    def compose(
        self, sender: str, to: list[str], params: dict[str, Any], epoch: int, lies: dict[str, Any]
    ) -> Message:
        content = {
            "from": {"identity": self.identity(sender), "name": sender},
            "to": [{"identity": self.identity(name), "name": name} for name in to],
            "lease": {"epoch": epoch},
            "reply_to": None,
            "needs_reply": False,
            "subject": params["subject"],
            "body": params["body"],
            "origin": None,
            "external_since": None,
            "hop": 0,
            "sent_at": self.now_ms,
            "at": len(self.messages),
            **lies,
        }
        payload, signature = self.sign("message", content)
        digest = record.Record("message", payload, {}).digest
        return Message(len(self.messages) + 1, self.no(sender), digest, signature, payload)

    def store(self, message: Message, reaches: list[str]) -> None:
        self.messages.append(message)
        for name in reaches:
            self.deliveries.append(Delivery(self.no(name), message.no, 2))
            self.unread[name] += 1

    def ack(
        self, session: str, name: str, message: Message, *, epoch: int | None = None, stage: int = 5
    ) -> None:
        """The delivery is cleared; the receipt says so."""
        self.call(session, "mail.ack", {"ids": [message.id]}, "ok", {"acked": [message.id]})
        self.advance(name, message, stage)
        fact = {"message": message.id, "recipient": self.identity(name), "stage": 5}
        self.receive(epoch or self.epochs[name], [fact])

    def receive(self, epoch: int, facts: list[dict[str, Any]]) -> None:
        """A receipt."""
        content = {"epoch": epoch, "seq": self.seq, "facts": facts, "n": len(self.receipts)}
        payload, signature = self.sign("receipt", content)
        one = record.Record("receipt", payload, {})
        self.receipts.append(Receipt(len(self.receipts) + 1, one.id, payload, signature))

    def advance(self, name: str, message: Message, stage: int) -> None:
        at = self.deliveries.index(
            next(
                d
                for d in self.deliveries
                if (d.recipient_no, d.message_no) == (self.no(name), message.no)
            )
        )
        if self.deliveries[at].stage < 4 <= stage:
            self.unread[name] -= 1
        self.deliveries[at] = Delivery(self.no(name), message.no, stage)

    def listed(self, session: str, method: str, messages: list[Message]) -> None:
        entries = [{"id": message.id} for message in messages]
        self.call(session, method, {}, "ok", {"messages": entries}, changes=False)

    def crash(self, point: str = "somewhere", files: list[tuple[str, int]] | None = None) -> None:
        self.events.append(Reopened(point, self.image(), files or []))

    # -- the books ------------------------------------------------------------------------------

    def no(self, name: str) -> int:
        return self.names.index(name) + 1

    def identity(self, name: str) -> str:
        return f"i{self.no(name)}"

    def sign(self, kind: str, content: dict[str, Any]) -> tuple[str, bytes]:
        payload = {"v": 1, "type": kind, "iat": 1, "nonce": _NONCE, "aud": HOST, **content}
        one = record.sign(kind, payload, KEY, HOST)
        return one.payload, base64.b64decode(one.signatures[HOST])

    def image(self) -> Image:
        """The store as it is now."""
        numbers = range(1, len(self.names) + 1)
        return Image(
            HOST,
            KEY.public,
            commit_seq=self.seq,
            identities=tuple((no, f"i{no}") for no in numbers),
            unread=tuple((self.no(name), count) for name, count in self.unread.items()),
            leases=tuple(
                Lease(self.no(n), self.epochs[n], self.states[n], *self.leases.get(n, ()))
                for n in self.names
            ),
            messages=tuple(self.messages),
            deliveries=tuple(self.deliveries),
            receipts=tuple(self.receipts),
            audit=tuple(self._chained()),
            answers=tuple(self.answers),
            bound=tuple(self.bound.values()),
            owner_records=tuple(self.records),
        )

    def _chained(self) -> list[Audit]:
        rows, previous = [], bytes(32)
        for no, (act, identity, detail) in enumerate(self.audit, 1):
            text = encode(detail)
            row = {"no": no, "at": 0, "act": act, "identity": identity, "detail": text}
            previous = hashlib.sha256(previous + encode(row).encode()).digest()
            rows.append(Audit(no, 0, act, identity, text, previous))
        return rows

    def case(self) -> Case:
        """The finished story."""
        return Case(self.events, self.image())
