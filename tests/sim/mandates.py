"""Histories of the owner's acts, written by hand: a scribe as `stories.Story`, with a key."""

from collections.abc import Sequence
from typing import Any, Final

from mbx.core.keys import SigningKey, key_id
from mbx.core.record import Record
from tests.sim.history import Outcome
from tests.sim.image import Message, OwnerRecord
from tests.sim.owner import wire
from tests.sim.stories import HOST, Story
from tests.sim.tenure import HELD

OWNER: Final = "owner/0-0"
HOUR_MS: Final = 3_600_000
START_MS: Final = 1_700_000_000_000
ASK: Final = "policy: ask (read, answer, share information, ack; nothing more is delegated)"
LOCAL: Final = "trust: local (sent by an identity of this host, under its lease)"


def key_of(seed: int) -> SigningKey:
    """One of the owner's keys, or a stranger's."""
    return SigningKey.from_seed(bytes([seed]) * 32)


class Reign(Story):
    """A story with an owner, whose books are right unless it is told to lie."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.now_ms = START_MS
        self.key = key_of(7)
        self.chain: list[Record] = []
        self.drafted = 0

    @property
    def owner(self) -> str:
        """The id of the key of now."""
        return key_id("owner", self.key.public)

    def tick(self, elapsed_ms: int = 1_000) -> None:
        self.now_ms += elapsed_ms

    # -- records --------------------------------------------------------------------------------

    def sealed(self, kind: str, key: SigningKey | None = None, **content: Any) -> dict[str, Any]:
        """A record as it travels; `key` signs in the place of the owner's."""
        self.drafted += 1
        envelope = {"iat": self.now_ms, "nonce": f"{self.drafted:032x}", "aud": HOST}
        payload = {"v": 1, "type": kind, **envelope, "owner": self.owner, **content}
        return wire(kind, payload, {self.owner: key or self.key})

    def bring(
        self,
        given: dict[str, Any],
        act: str,
        outcome: Outcome = "ok",
        *,
        identity: str | None = None,
        method: str = "owner.apply",
        rows: int = 1,
        accepted: dict[str, Any] | None = None,
        **detail: Any,
    ) -> Record:
        """The record is brought and acts: `rows` audit rows, `accepted` is false in the answer."""
        one = Record(**given)
        self.call(OWNER, method, {"record": given}, None)
        for _ in range(rows):
            self.audit.append((act, identity, {"seq": self.seq, "record": one.id, **detail}))
        if all(kept.record_id != one.id for kept in self.records):
            self.keep(one, detail.get("version"), **(accepted or {}))
        self.answer(self.attempt, outcome, {"id": one.id, "kind": one.kind, "duplicate": False})
        return one

    def keep(self, one: Record, version: int | None, **lies: Any) -> None:
        """The row of an applied record, with the host's word; `lies` are fields of that."""
        last = self._chained()[-1]
        content = {
            "record": one.id,
            "kind": one.kind,
            "version": version,
            "seq": self.seq,
            "audit_no": last.no,
            "audit_hash": last.hash.hex(),
            "aud": self.owner,
            **lies,
        }
        payload, signature = self.sign("acceptance", content)
        told = (len(self.records) + 1, one.kind, one.id, version, one.payload, payload, signature)
        self.records.append(OwnerRecord(*told))

    def enroll(self) -> None:
        content: dict[str, Any] = {
            "public_key": self.key.public.hex(),
            "previous": None,
            "until_version": 0,
            "head": None,
        }
        self.bring(self.sealed("rotate", **content), "owner", method="owner.enroll")

    def takeover(
        self, name: str, to: str, *, epoch: int | None = None, key: SigningKey | None = None
    ) -> dict[str, Any]:
        """The record of a takeover of the epoch of now."""
        cli, _, session = to.partition("/")
        return self.sealed(
            "takeover",
            key,
            exp=self.now_ms + 300_000,
            identity=self.identity(name),
            epoch=self.epochs[name] if epoch is None else epoch,
            destination={"cli": cli, "session": session},
        )

    def take_over(
        self, given: dict[str, Any], name: str, to: str, *, rows: int = 1, **accepted: Any
    ) -> Record:
        """It acts: the session gets the name in the next epoch."""
        cli, _, session = to.partition("/")
        self.epochs[name] += 1
        one = self.bring(
            given,
            "takeover",
            identity=self.identity(name),
            epoch=self.epochs[name],
            to={"cli": cli, "session": session},
            rows=rows,
            accepted=accepted,
        )
        self.states[name] = HELD
        self.bound[to] = (self.no(name), self.epochs[name])
        self.leases[name] = self.sign("lease", {"epoch": self.epochs[name]})
        return one

    def policy(
        self,
        to: str,
        level: str = "collaborate",
        classes: Sequence[str] = ("read", "edit"),
        *,
        ttl_ms: int = HOUR_MS,
        version: int | None = None,
        key: SigningKey | None = None,
    ) -> Record:
        """The next record of the chain: everybody here may make `to` do this."""
        content = {
            "exp": self.now_ms + ttl_ms,
            "to": [{"identity": self.identity(to), "name": to}],
            "level": level,
            "classes": list(classes),
            "from": [{"kind": "local"}],
            "projects": [],
        }
        return self._link("policy", content, version, key)

    def revoke(self, *records: Record) -> Record:
        """The next record of the chain: these are void, without any: all are."""
        content = {"records": [one.id for one in records] or None, "all": not records}
        return self._link("revoke", content, None, None)

    def _link(
        self, kind: str, content: dict[str, Any], version: int | None, key: SigningKey | None
    ) -> Record:
        no = len(self.chain) + 1 if version is None else version
        previous = self.chain[-1].digest.hex() if self.chain else None
        given = self.sealed(kind, key, version=no, previous=previous, chain=HOST, **content)
        self.chain.append(self.bring(given, kind, version=no))
        return self.chain[-1]

    # -- reading --------------------------------------------------------------------------------

    def reply(self, session: str, sender: str, to: str, answered: Message, **lies: Any) -> Message:
        """An answer to a message."""
        return self.send(session, sender, [to], reply_to=answered.id, **lies)

    def read(
        self, session: str, name: str, message: Message, word: str = "ask", line: str = ASK
    ) -> None:
        """A message is shown with these words."""
        entry = {
            "id": message.id,
            "body": message.content["body"],
            "bytes": len(message.content["body"]),
            "trust": "local",
            "policy": word,
            "trust_line": LOCAL,
            "policy_line": line,
        }
        self.call(session, "mail.read", {"ids": [message.id]}, "ok", {"messages": [entry]})
        self.advance(name, message, 4)
