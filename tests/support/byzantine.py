"""The host that a rogue attacks, with what must hold after each of its moves.

Two of them: a real daemon with sockets and TLS, here, and the daemon's middle in this process, in
`tests.support.nearstage`. Both have the same scene: ana and ben, who share a thread that is nobody
else's business, and an honest paired host with hal, whose mail must pass whatever the rogue does.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from mbx.core.errors import MbxError
from mbx.core.keys import crockford
from mbx.core.lines import POLICY_ASK
from mbx.core.message import Party
from mbx.daemon import certificates
from mbx.daemon.certificates import TlsKey
from mbx.store import identities, leases, outbox, peers
from mbx.store.database import Tx
from mbx.store.peers import NewPeer
from tests.support.daemon import Agent, Line, RefusedError, fresh_home
from tests.support.hosts import PairedHost, do
from tests.support.rogue import Rogue, SocketWire, Turned, facts_of, fresh_id
from tests.support.shells import TIMEOUT_S

HONEST: Final = "lap"
LABEL: Final = "rogue-one"
RETIRED: Final = fresh_id("an identity that nobody holds any more")
LOG_GROWTH_MAX_BYTES: Final = 4_096
"""Of the daemon's log, by whatever one move does."""
MEMORY_GROWTH_MAX_KIB: Final = 64 * 1024
"""Of the daemon, by all moves of a file together: what a few frames of two megabytes leave."""
_ROWS: Final = 200


class Known(NamedTuple):
    """Everything that a rogue may know in the worst case."""

    ana: Party
    ben: Party
    retired: Party
    host: str
    honest: str
    """Key ids."""
    private: str
    """The first message of the thread of ana and ben."""
    answer: str
    """The second."""
    of_honest: str
    """What hal wrote to ana."""
    to_honest: str
    """What ana wrote to hal."""
    mine: str = ""
    """What ana wrote to the rogue's rob; he has it."""


class Stage:
    """What both kinds of host have in common."""

    def __init__(self, host: str, public: bytes) -> None:
        self.host, self.public = host, public
        self.honest: Rogue
        self.known: Known
        self.refused_calls = 0
        """Calls of rogues that were not let in."""

    # -- of each kind -----------------------------------------------------------------------------

    def call(self, who: str, method: str, **params: object) -> dict[str, Any]:
        """A call of an agent by name ('' nobody's). Raises RefusedError or MbxError."""
        raise NotImplementedError

    def dial(self, rogue: Rogue) -> Any:
        """A wire to the host. Raises Turned."""
        raise NotImplementedError

    def log_bytes(self) -> int:
        """How much the host has written of what happened."""
        raise NotImplementedError

    def owners_mail(self) -> list[str]:
        """Subjects of what the owner was told, where the owner can be asked."""
        return []

    # -- the scene --------------------------------------------------------------------------------

    def rogue(self, label: str) -> Rogue:
        """The host of that label; the pairing is there already."""
        return Rogue(label, self.host, "desk", self.public, self.dial)

    def set_scene(self) -> None:
        """Play what was before."""
        self.honest = self.rogue(HONEST)
        self.honest.stand()
        self.honest.offer(self.honest.directory(self.honest.entry("hal")))
        ids = {one["name"]: one["identity"] for one in self.call("", "identity.list")["identities"]}
        ana, ben = (Party(ids[name], name, "desk") for name in ("ana", "ben"))
        private = self.send("ana", "ben", "nobody else's business")
        answer = self.call("ben", "mail.reply", id=private, body="indeed")["id"]
        to_honest = self.send("ana", f"hal@{HONEST}", "to hal")
        self.honest.until_record(lambda one: one.id == to_honest)
        record = self.honest.message(ana, "from hal", sender=self.honest.party("hal"))
        self.honest.offer(record)
        self.known = Known(
            ana,
            ben,
            Party(RETIRED, "old", "desk"),
            self.host,
            self.honest.key_id,
            private,
            str(answer),
            record.id,
            to_honest,
        )

    def send(self, who: str, to: str, subject: str = "hello") -> str:
        """The id of a new message."""
        return str(self.call(who, "mail.send", to=[to], subject=subject, body="b")["id"])

    def introduce(self, rogue: Rogue) -> Known:
        """The rogue has a link, has told of its rob, and ana has written to him."""
        self.clear()
        rogue.stand()
        rogue.offer(rogue.directory(rogue.entry("rob")))
        mine = self.send("ana", f"rob@{rogue.label}", "to a rogue")
        rogue.until_record(lambda one: one.id == mine)
        # What is said next, the daemon hears behind the word that it was taken.
        rogue.offer(rogue.directory(rogue.entry("rob")))
        return self.known._replace(mine=mine)

    def pardon(self, rogue: Rogue) -> None:
        """The owner lets a rogue call again that was met as two copies of one host."""

    # -- what must hold ---------------------------------------------------------------------------

    def facts(self, rogue: Rogue) -> dict[str, Any]:
        """All that the rogue may not change."""
        theirs = f"@{rogue.label}"
        everybody = self.call("", "agents.list")["agents"]
        return {
            "identities": [
                [one[what] for what in ("name", "identity", "role", "description", "state")]
                for one in self.call("", "identity.list", all=True)["identities"]
                if one["name"] != "mbx"  # the host's own, made by the first mail that it writes
            ],
            "agents": [
                [one[what] for what in ("address", "role", "description")]
                for one in everybody
                if one["host"] != rogue.label
            ],
            "policies": self.call("", "policy.list", all=True),
            "peers": [
                [one[what] for what in ("label", "host", "told_label", "addresses", "state")]
                for one in self.call("", "peers.list")["peers"]
                if one["label"] != rogue.label
            ],
            "mail": {who: self._mail(who, theirs) for who in ("ana", "ben")},
            "threads": {who: self._thread(who, theirs) for who in ("ana", "ben")},
            "sent": [
                self.call("ana", "mail.sent", id=one)["messages"]
                for one in (self.known.private, self.known.to_honest)
            ],
        }

    def _mail(self, who: str, theirs: str) -> list[Any]:
        found = self.call(who, "mail.inbox", limit=_ROWS)["messages"]
        return [
            one for one in found if not one["from"].endswith(theirs) and one["from"] != "mbx@desk"
        ]

    def _thread(self, who: str, theirs: str) -> list[Any]:
        """The private thread as each of the two sees it: with nobody else's mail in it."""
        found = self.call(who, "mail.thread", id=self.known.private)["messages"]
        assert [one["from"] for one in found] == ["ana@desk", "ben@desk"]
        return list(found)

    def from_rogue(self, rogue: Rogue, who: str = "ana") -> list[dict[str, Any]]:
        """What is in a mailbox of the rogue's; its trust line is never more than its host's."""
        theirs = f"@{rogue.label}"
        found = self.call(who, "mail.inbox", limit=_ROWS)["messages"]
        mail = [one for one in found if one["from"].endswith(theirs)]
        assert {one["trust"] for one in mail} <= {f"verified (paired host {rogue.label})"}, mail
        assert {one["policy"] for one in mail} <= {POLICY_ASK}, mail
        return mail

    def prove(self, rogue: Rogue) -> None:
        """The rogue's link works: its honest mail arrives, and its receipt comes back."""
        honest = rogue.message(self.known.ana, "an honest word", sender=rogue.party("rob"))
        rogue.offer(honest)
        rogue.until_record(lambda one: _states(one, honest.id))

    def stage_of(self, message: str) -> str:
        """How far a message of ana's came, as she is told."""
        [sent] = self.call("ana", "mail.sent", id=message)["messages"]
        [copy] = sent["recipients"]
        return str(copy["stage"])

    def prove_honest(self) -> None:
        """The link of the other host works, both ways, and so does mail here."""
        self.prove_of(self.honest, "hal")
        self.send("ben", "ana", "hello")

    def prove_of(self, honest: Rogue, name: str) -> None:
        """As `prove`, and back."""
        sent = honest.message(self.known.ana, "over the other link", sender=honest.party(name))
        honest.offer(sent)
        honest.until_record(lambda one: _states(one, sent.id))
        back = self.send("ana", f"{name}@{honest.label}")
        honest.until_record(lambda one: one.id == back)

    def use(self, rogue: Rogue, known: Known) -> None:
        """Ana does with the rogue's mail what one does with mail: nothing of it does her harm."""
        theirs = f"@{rogue.label}"
        for one in self.from_rogue(rogue):
            [read_now] = self.call("ana", "mail.read", ids=[one["id"]])["messages"]
            here = [to for to in read_now["to"] if to.endswith("@desk")]
            assert here in (["ana@desk"], ["ana@desk", "old@desk"]), read_now["to"]
            assert read_now["reply_to"] in (None, known.mine, *self.ids_of(rogue))
            found = self.call("ana", "mail.thread", id=one["id"])["messages"]
            others = {who["from"] for who in found if not who["from"].endswith(theirs)}
            assert others <= {"ana@desk"}, others
            assert known.private not in {who["id"] for who in found}
            said = self.refusal("ana", "mail.reply", id=one["id"], body="no")
            # What it says of itself may forbid this; a fault of ours would be a way to stop ana.
            assert said in (None, "closed", "not-paired", "policy-denied"), said

        self.call("ana", "mail.search", query="rogue")

    def ids_of(self, rogue: Rogue) -> set[str]:
        """Ids of all that ana has of the rogue's."""
        return {one["id"] for one in self.from_rogue(rogue)}

    def refusal(self, who: str, method: str, **params: object) -> str | None:
        """The code with which a call is refused, None where it is not."""
        try:
            self.call(who, method, **params)
        except (RefusedError, MbxError) as error:
            return error.code
        return None

    def clear(self) -> None:
        """Close what arrived since the scene was set, so that lists stay short."""
        kept = {self.known.private, self.known.answer, self.known.of_honest}
        for who in ("ana", "ben"):
            found = self.call(who, "mail.inbox", limit=_ROWS)["messages"]
            fresh = [one["id"] for one in found if one["id"] not in kept]
            if fresh:
                self.call(who, "mail.ack", ids=fresh)


def _states(record: Any, message: str) -> bool:
    return any(fact["message"] == message for fact in facts_of(record))


def refusals(rogue: Rogue) -> list[str]:
    """Codes of the refusals that a rogue was told since this was asked last, sorted."""
    return sorted(rogue.answers())


# -- a real daemon --------------------------------------------------------------------------------


def tls_of(folder: Path, rogue: Rogue) -> TlsKey:
    """The TLS key of a host that exists only here."""
    path = folder / f"{rogue.label}.key"
    seed = rogue.label.encode().ljust(32, b"-")[:32]
    return certificates.load_or_create(str(path), seed, rogue.key_id, must_exist=False)


class RealStage(Stage):
    """A daemon process that is paired with every rogue of `labels`, and with an honest host."""

    def __init__(self, stack: ExitStack, labels: Sequence[str]) -> None:
        home = stack.enter_context(fresh_home())
        self.host_here = PairedHost(home, "desk")
        super().__init__(self.host_here.key_id, self.host_here.public)
        self._tls: dict[str, TlsKey] = {}
        folder = stack.enter_context(fresh_home())
        for label in (*labels, HONEST):
            rogue = self.rogue(label)
            self._tls[label] = tls_of(folder, rogue)
        do(home, self._pair)
        self.daemon = stack.enter_context(self.host_here.daemon)
        self.agents: dict[str, Agent] = {}
        self._lines: dict[str, Line] = {"": stack.enter_context(self.daemon.line())}
        self._lines[""].hello()
        for name in ("ana", "ben"):
            agent = self.agents[name] = stack.enter_context(self.daemon.agent())
            self._lines[name] = stack.enter_context(agent.registered(name))
        self.set_scene()
        self.memory_kib = self.daemon.resident_kib()

    def _pair(self, tx: Tx) -> None:
        plant_retired(tx)
        for label, tls in self._tls.items():
            rogue = self.rogue(label)
            no = peers.add(tx, new_peer(rogue, tls.certificate), 1)
            outbox.begin(tx, no, stream_to(label))

    def call(self, who: str, method: str, **params: object) -> dict[str, Any]:
        return self._lines[who].call(method, **params)

    def dial(self, rogue: Rogue) -> SocketWire:
        context = certificates.dialling(
            self._tls[rogue.label], self.host, self.host_here.tls.certificate
        )
        try:
            return SocketWire(self.host_here.port, context, TIMEOUT_S)
        except Turned:
            self.refused_calls += 1
            raise

    def log_bytes(self) -> int:
        return (self.host_here.home / "daemon.log").stat().st_size


def new_peer(rogue: Rogue, certificate: bytes) -> NewPeer:
    """What a pairing would have recorded of the rogue."""
    return NewPeer(
        rogue.key_id,
        rogue.key.public,
        certificate,
        rogue.label,
        rogue.label,
        (),
        None,
        crockford(b"planted".ljust(32)),
        1,
    )


def plant_retired(tx: Tx) -> None:
    """An identity of this host that is nobody's any more."""
    made = identities.create(
        tx, identity=RETIRED, name="old", role="dev", description="", project=None, now_ms=1
    )
    leases.create(tx, made.no, 1)
    identities.retire(tx, made.no, 2)


def stream_to(label: str) -> str:
    """The planted stream to a host."""
    return crockford(f"desk>{label}".encode().ljust(32)[:32])


@contextmanager
def real_stage(labels: Sequence[str]) -> Iterator[RealStage]:
    """A real daemon, all of it gone at the end."""
    with ExitStack() as stack:
        stage = RealStage(stack, labels)
        yield stage
        stage.honest.hang_up()
