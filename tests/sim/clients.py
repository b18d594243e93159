"""The other side: sessions in processes, and what they ask for.

A client does what the real one does: it makes one idempotency key for each changing call and
repeats a call of unknown outcome with the same key. It also does what clients should not: it uses a
key twice, a foreign token, names that are not there, ids that are not its own.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mbx.core.evidence import Claim, Lineage, Process, SessionKey
from tests.sim.case import mark
from tests.sim.history import Return

NAMES: Final = ("ada", "ben", "cleo", "dora", "erik")
FURTHER_NAMES: Final = ("finn", "gwen", "hugo", "iris", "jack", "kate")
"""Taken by sessions that change their names; nobody writes to them."""

HOST: Final = "sim"
KINDS: Final = {
    "shell": ("bash",),
    "claude": ("claude",),
    "run": ("python3", "-m", "mbx", "run"),
    "codex": ("codex", "app-server"),
}
"""Kind of session -> the command line of its holder process."""

TRIES_MAX: Final = 4
CHANGING: Final = frozenset(
    {
        "identity.register",
        "identity.claim",
        "identity.release",
        "mail.send",
        "mail.reply",
        "mail.ack",
    }
)


@dataclass(frozen=True)
class Op:
    """One thing that a client wants done, however often it has to ask."""

    no: int
    method: str
    params: Mapping[str, Any]
    key: str | None


@dataclass(eq=False)
class Session:
    """One conversation and what its client believes."""

    kind: str
    process: Process
    conversation: str = ""
    alive: bool = True
    holding: str | None = None
    ids: list[str] = field(default_factory=list)
    """Messages that it has seen in its inbox."""
    keys: list[str] = field(default_factory=list)
    repeats: list[Op] = field(default_factory=list)
    """What it asked for without learning the outcome."""
    tries: dict[int, int] = field(default_factory=dict)
    in_flight: dict[int, Op] = field(default_factory=dict)
    """By attempt."""
    connection: Lineage | None = None
    """What the walk said when its open connection said hello."""
    paused_until: int = 0

    @property
    def label(self) -> str:
        """As audit rows and answers name it."""
        return f"{self.kind}/{self.session_id}"

    @property
    def session_id(self) -> str:
        return self.conversation or f"{self.process.pid}-{self.process.start_ticks}"

    def claim(self, method: str) -> Claim:
        """What it says of itself at hello."""
        if self.kind == "run":
            return "self" if method.startswith("identity.") else None
        return SessionKey(self.kind, self.conversation) if self.conversation else None

    def learn(self, op: Op, answer: Return) -> None:
        """An answer arrived."""
        if answer.outcome == "ok":
            self._believe(op, answer.result)
        elif answer.code in {"no-lease", "lease-lost"}:
            self.holding = None
        elif answer.outcome == "unknown":
            self.tries[op.no] = self.tries.get(op.no, 0) + 1
            if op.key is not None and self.tries[op.no] < TRIES_MAX:
                self.repeats.append(op)

    def _believe(self, op: Op, result: Mapping[str, Any]) -> None:
        if op.method in {"identity.register", "identity.claim"}:
            self.holding = result.get("agent")
        elif op.method == "identity.release":
            self.holding = None
            self.ids.clear()
        elif op.method == "session.whoami":
            self.holding = result["agent"]
        elif op.method == "mail.inbox":
            new = [entry["id"] for entry in result.get("messages", ())]
            self.ids = [*self.ids, *(one for one in new if one not in self.ids)][-12:]


class Wishes:
    """Draws what a session asks for next."""

    def __init__(self, chance: random.Random, names: int) -> None:
        self._chance = chance
        self._names = NAMES[:names]
        self._ops = 0
        self._ids: list[str] = ["0" * 26]
        """Of messages of anybody."""

    def next_no(self) -> int:
        """The number of one more operation."""
        self._ops += 1
        return self._ops

    @property
    def names(self) -> Sequence[str]:
        """The names of this run."""
        return self._names

    def heard_of(self, message_id: str) -> None:
        """A message was accepted."""
        self._ids.append(message_id)

    def draw(self, session: Session, now_ms: int) -> Op:
        """The next operation of a session that has none to repeat."""
        methods, weights = zip(*(_HOLDING if session.holding else _WITHOUT), strict=True)
        return self._op(session, self._chance.choices(methods, weights)[0], now_ms)

    def mail(self, session: Session, now_ms: int) -> Op:
        """An operation that needs a lease, whatever the session believes."""
        return self._op(session, self._chance.choice(("mail.send", "mail.inbox")), now_ms)

    def _op(self, session: Session, method: str, now_ms: int) -> Op:
        self._ops += 1
        params = getattr(self, "_" + method.partition(".")[2])(session, self._ops)
        return Op(self._ops, method, params, self._key(session, method, now_ms))

    def relay(self, name: str, quoted: str | None) -> Op:
        """An operation that writes to this one alone what it read, or (None) something new."""
        self._ops += 1
        params: dict[str, Any] = {"to": [name], "subject": f"subject {self._ops}"}
        params |= {"body": mark(self._ops) + "pass it on", "needs_reply": True}
        if quoted is not None:
            params["reply_to"] = quoted
        return Op(self._ops, "mail.send", params, None)

    def inbox(self) -> Op:
        """An operation that looks at all that came."""
        self._ops += 1
        return Op(self._ops, "mail.inbox", {"all": True, "limit": 20}, None)

    def read(self, message_id: str) -> Op:
        """An operation that reads this message."""
        self._ops += 1
        return Op(self._ops, "mail.read", {"ids": [message_id]}, None)

    def claim(self, name: str) -> Op:
        """An operation that claims this name."""
        self._ops += 1
        return Op(self._ops, "identity.claim", {"name": name}, None)

    def release(self) -> Op:
        """An operation that gives the name back."""
        self._ops += 1
        return Op(self._ops, "identity.release", {}, None)

    def another_name(self) -> Op:
        """An operation that registers a name that may be free yet, or claims any."""
        self._ops += 1
        if self._chance.random() < 0.3:
            return Op(self._ops, "identity.claim", {"name": self._chance.choice(NAMES)}, None)
        self._ops -= 1
        return self.registration(self._chance.choice((*NAMES, *FURTHER_NAMES)))

    def registration(self, name: str) -> Op:
        """An operation that registers this name."""
        self._ops += 1
        return Op(self._ops, "identity.register", {"name": name, "role": "worker"}, None)

    def _key(self, session: Session, method: str, now_ms: int) -> str | None:
        if method not in CHANGING or self._chance.random() < 0.12:
            return None
        if session.keys and self._chance.random() < 0.07:
            return self._chance.choice(session.keys)
        key = f"{now_ms & 0xFFFF_FFFF_FFFF:012x}{self._ops:020x}"
        session.keys.append(key)
        return key

    # -- parameters -----------------------------------------------------------------------------

    def _register(self, session: Session, op: int) -> dict[str, Any]:
        return {"name": self._chance.choice(self._names), "role": "worker"}

    def _claim(self, session: Session, op: int) -> dict[str, Any]:
        own = session.holding if self._chance.random() < 0.4 else None
        return {"name": own or self._chance.choice(self._names)}

    def _nothing(self, session: Session, op: int) -> dict[str, Any]:
        return {}

    _release = _whoami = _list = _sent = _nothing

    def _inbox(self, session: Session, op: int) -> dict[str, Any]:
        return {"all": self._chance.random() < 0.5, "limit": self._chance.choice((3, 20))}

    def _read(self, session: Session, op: int) -> dict[str, Any]:
        return {"ids": [self._id(session) for _ in range(self._chance.randint(1, 3))]}

    def _ack(self, session: Session, op: int) -> dict[str, Any]:
        return {"ids": [self._id(session) for _ in range(self._chance.randint(1, 3))], "did": "x"}

    def _reply(self, session: Session, op: int) -> dict[str, Any]:
        params = {"id": self._id(session), "body": self._body(op), **self._origin()}
        return {**params, "final": "acted"} if self._chance.random() < 0.5 else params

    def _send(self, session: Session, op: int) -> dict[str, Any]:
        return {
            "to": [self._address(session) for _ in range(self._chance.choice((1, 1, 2, 3)))],
            "subject": f"subject {op}",
            "body": self._body(op),
            "needs_reply": self._chance.random() < 0.3,
            **self._origin(),
            **self._quoted(session),
        }

    def _origin(self) -> dict[str, str]:
        return {"origin": "external"} if self._chance.random() < 0.12 else {}

    def _quoted(self, session: Session) -> dict[str, str]:
        return {"reply_to": self._id(session)} if self._chance.random() < 0.12 else {}

    def _address(self, session: Session) -> str:
        drawn = self._chance.random()
        if drawn < 0.05:
            return self._chance.choice(("adaa", "role:worker", "*", "ben@elsewhere", "owner"))
        if drawn < 0.15 and session.holding:
            return session.holding
        name = self._chance.choice(self._names)
        return f"{name}@{HOST}" if drawn < 0.3 else name

    def _body(self, op: int) -> str:
        size = self._chance.choice((5, 40, 40, 200, 3_000))
        return mark(op) + "text é\n" * (size // 7)

    def _id(self, session: Session) -> str:
        chosen = self._chance.choice(self._ids)
        if session.ids and self._chance.random() < 0.9:
            chosen = self._chance.choice(session.ids)
        return chosen[: self._chance.choice((8, 12, 26, 26))]


_HOLDING: Final = (
    ("mail.send", 32),
    ("mail.inbox", 16),
    ("mail.read", 20),
    ("mail.ack", 8),
    ("mail.reply", 10),
    ("mail.sent", 4),
    ("identity.release", 6),
    ("identity.claim", 6),
    ("identity.register", 2),
    ("identity.list", 3),
    ("session.whoami", 3),
)
"""What a session does that believes to hold an identity, with weights."""

_WITHOUT: Final = (
    ("identity.register", 34),
    ("identity.claim", 46),
    ("mail.send", 6),
    ("mail.inbox", 4),
    ("identity.release", 4),
    ("identity.list", 2),
    ("session.whoami", 4),
)
