"""What must hold, as a small pure model: leases, mailboxes, keys, cursors, sessions that come back.

It is written from the rules (docs/concepts.md, the table of `mbx.core.lease`), not from the code:
no SQL, no records, no clock. `answer` says what a request must be answered with, or raises
`Refusal`; `done` takes up what was answered. Identities and sessions are values of the model; the
ids and epochs that mbx makes are learnt from its answers or counted.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mbx.core.evidence import Evidence
from mbx.core.limits import LEASE_TIMEOUT_MS, SHARED_TIMEOUT_MS

HOST: Final = "sim"
OWNER: Final = "owner"
FREE, HELD, LAPSED = "free", "held", "lapsed"
DELIVERED, READ, ACKED = 2, 4, 5

Grant = tuple[int, int]
"""(identity, epoch); `NOTHING` for a session that holds nothing."""
NOTHING: Final = (0, 0)

SESSION_METHODS: Final = frozenset({"identity.register", "identity.claim", "identity.release"})
KEYED: Final = SESSION_METHODS | {
    "identity.set",
    "identity.rename",
    "mail.send",
    "mail.reply",
    "mail.ack",
}
LOOKING: Final = frozenset({"mail.inbox", "mail.sent", "mail.thread"})
"""The methods that change nothing at all, whoever calls them.

A search shows pieces of texts, so that it may be kept who has seen them; it changes no mailbox.
"""


class Refusal(Exception):
    """The request must be refused with this code, and change nothing."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(eq=False)
class Seat:
    """One session: a conversation in a process. `shared`: the process hosts many conversations."""

    pid: int
    cli: str
    conversation: str
    shared: bool = False
    evidence: Evidence = "live"
    silent_ms: int = 0
    """Since it was last heard of, or seen to live where that says something of it."""
    bound: Grant | None = None
    """What it was granted and has not released; it may be another's by now."""
    label: str | None = None
    """The id by which it was met; None: not met yet."""
    waits: int | None = None

    @property
    def own_id(self) -> str:
        return f"{self.pid}-{self.pid * 10}"

    @property
    def session_id(self) -> str:
        """The id that it calls itself."""
        return self.conversation or self.own_id


@dataclass
class Identity:
    """A named mailbox and its lease; `holder` is the session of the newest grant."""

    no: int
    name: str
    role: str
    state: str = FREE
    epoch: int = 0
    holder: Seat | None = None
    stages: dict[str, int] = field(default_factory=dict)
    """Message id -> stage, in the order of arrival."""

    @property
    def unread(self) -> int:
        return sum(stage < READ for stage in self.stages.values())


@dataclass(frozen=True)
class Letter:
    """An accepted message."""

    id: str
    sender: int
    to: tuple[int, ...]
    thread: str
    words: frozenset[str]


@dataclass(frozen=True)
class Request:
    """A call as it arrived: `grant` is what its session held then (None: not known).

    `token` is another session's, or its own where nobody can see whose the call is (`unseen`).
    """

    seat: Seat
    method: str
    params: Mapping[str, Any]
    key: str | None = None
    grant: Grant | None = None
    token: str | None = None
    unseen: bool = False

    @property
    def digest(self) -> str:
        return json.dumps([self.method, self.params, self.key], sort_keys=True)


@dataclass
class Model:
    """All that must be true now."""

    identities: dict[int, Identity] = field(default_factory=dict)
    letters: dict[str, Letter] = field(default_factory=dict)
    """By id, in the order of commits."""
    answers: dict[tuple[object, str], tuple[str, dict[str, Any]]] = field(default_factory=dict)
    tokens: dict[str, Grant] = field(default_factory=dict)
    cursors: dict[str, tuple[int, bool, str]] = field(default_factory=dict)
    """Cursor -> (identity, acked too, the last message before it)."""
    remembered: dict[tuple[str, str], int] = field(default_factory=dict)
    met: list[Seat] = field(default_factory=list)
    """Sessions that are known, in the order in which they were met."""
    waiting: list[Seat] = field(default_factory=list)
    """In the order in which they came."""

    def __post_init__(self) -> None:
        self.identities[1] = Identity(1, OWNER, OWNER)

    def named(self, name: str) -> Identity | None:
        """The identity of that name."""
        return next((one for one in self.identities.values() if one.name == name), None)

    # -- the gate -------------------------------------------------------------------------------

    def is_holder(self, grant: Grant | None) -> bool:
        """Is this grant the lease of now? A lapsed one that nobody took still is."""
        if grant is None:
            return False
        identity = self.identities[grant[0]]
        return identity.epoch == grant[1] and identity.state != FREE

    def admitted(self, request: Request) -> Identity:
        """The identity under whose lease the request is carried out. Refusal."""
        seat = request.seat
        if request.unseen:
            bearer = self.tokens.get(request.token or "")
            if bearer is None:
                raise Refusal("no-lease")
            if not self.is_holder(bearer):
                raise Refusal("lease-lost")
            return self.identities[bearer[0]]
        self._refuse_foreign_token(request)
        if seat.bound is None:
            raise Refusal("no-lease")
        if request.grant is not None and request.grant != seat.bound:
            raise Refusal("no-lease" if request.grant == NOTHING else "lease-lost")
        if not self.is_holder(seat.bound):
            raise Refusal("lease-lost")
        return self.identities[seat.bound[0]]

    def _refuse_foreign_token(self, request: Request) -> None:
        theirs = self.tokens.get(request.token or "")
        seat = request.seat
        if theirs is None or (seat.bound is not None and seat.bound[0] == theirs[0]):
            return
        holder = self.identities[theirs[0]].holder
        if holder is None or (holder.cli, holder.label) != (seat.cli, seat.session_id):
            raise Refusal("lease-foreign")

    # -- answers --------------------------------------------------------------------------------

    def answer(self, request: Request) -> dict[str, Any]:
        """What the answer must say at least. Refusal with the code, where it must be refused."""
        if request.method in SESSION_METHODS:
            if request.unseen:
                raise Refusal("no-lease")
            self._refuse_foreign_token(request)
            own = None
        else:
            own = self.admitted(request)
        earlier = self.answers.get((self._scope(request, own), request.key or ""))
        if request.key is not None and earlier is not None:
            if earlier[0] != request.digest:
                raise Refusal("idempotency-conflict")
            return {**earlier[1], "duplicate": True}
        act = getattr(self, "_" + request.method.replace(".", "_"))
        expected: dict[str, Any] = act(request) if own is None else act(own, request.params)
        return expected

    def is_repeat(self, request: Request) -> bool:
        """Was this answered before? Only asked of requests that are not refused."""
        own = None if request.method in SESSION_METHODS else self.admitted(request)
        return request.key is not None and (self._scope(request, own), request.key) in self.answers

    def done(self, request: Request, result: dict[str, Any], token: str | None = None) -> None:
        """The request was carried out and answered with `result`; `token` came with a grant."""
        seat = request.seat
        own = None if request.method in SESSION_METHODS else self.admitted(request)
        used = (own.no, own.epoch) if own else seat.bound if self.is_holder(seat.bound) else None
        if not self.is_repeat(request):
            if request.key is not None:
                self.answers[self._scope(request, own), request.key] = (request.digest, result)
            self._apply(request, own, result, token)
        self._revive(request, used)

    def _revive(self, request: Request, used: Grant | None) -> None:
        """A lapsed lease that its living session uses is held again: sleep is not death."""
        if used is None:
            return
        identity = self.identities[used[0]]
        holder = identity.holder
        if identity.epoch == used[1] and holder is not None:
            holder.silent_ms = 0
            if identity.state == LAPSED and holder.bound == used:
                identity.state = HELD

    def _scope(self, request: Request, own: Identity | None) -> object:
        return (request.seat.pid, request.seat.conversation) if own is None else own.no

    # -- names ----------------------------------------------------------------------------------

    def claimable(self, identity: Identity) -> bool:
        """May somebody else than the holder claim it now?"""
        holder = identity.holder
        if identity.state != HELD or holder is None:
            return True
        if holder.evidence == "dead":
            return True
        if holder.shared and holder.silent_ms >= SHARED_TIMEOUT_MS:
            return True
        return holder.evidence == "unknown" and holder.silent_ms >= LEASE_TIMEOUT_MS

    def _identity_register(self, request: Request) -> dict[str, Any]:
        name, held = request.params["name"], self._held(request.seat)
        existing = self.named(name)
        if existing is not None and existing is held:
            return {"agent": name, "epoch": held.epoch}
        if existing is not None:
            raise Refusal("name-taken")
        if held is not None:
            raise Refusal("conflict")
        self._refuse_look_alike(name, None)
        return {"agent": name, "epoch": 1, "unread": 0}

    def _identity_claim(self, request: Request) -> dict[str, Any]:
        name, held = request.params["name"], self._held(request.seat)
        wanted = self.named(name)
        if wanted is None:
            raise Refusal("unknown-identity")
        if wanted is held and held.state == HELD:
            return {"agent": name, "epoch": held.epoch}
        if held is not None and held is not wanted:
            raise Refusal("conflict")
        if wanted.state == HELD and not self.claimable(wanted):
            raise Refusal("in-use")
        return {"agent": name, "epoch": wanted.epoch + 1, "unread": wanted.unread}

    def _identity_release(self, request: Request) -> dict[str, Any]:
        own = self.admitted(request)
        return {"released": own.name, "epoch": own.epoch}

    def _identity_rename(self, own: Identity, params: Mapping[str, Any]) -> dict[str, Any]:
        self._refuse_look_alike(params["name"], own)
        return {"agent": params["name"], "old_name": own.name}

    def _identity_set(self, own: Identity, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"agent": own.name, "role": params["role"]}

    def _held(self, seat: Seat) -> Identity | None:
        """What the session holds now."""
        grant = seat.bound
        return self.identities[grant[0]] if grant and self.is_holder(grant) else None

    def _refuse_look_alike(self, name: str, own: Identity | None) -> None:
        bare = name.replace("-", "")
        for one in self.identities.values():
            if one is not own and one.name.replace("-", "") == bare:
                raise Refusal("name-taken")

    # -- mail -----------------------------------------------------------------------------------

    def reached(self, own: Identity, to: Sequence[str]) -> list[Identity]:
        """The mailboxes that addresses name, each once, in the order of first mention. Refusal."""
        found: dict[int, Identity] = {}
        for address in to:
            name, _, host = address.partition("@")
            others = [i for i in self.identities.values() if i is not own and i.name != OWNER]
            if address == "*":
                some = others
            elif address.startswith("role:"):
                some = [one for one in others if one.role == address.removeprefix("role:")]
            else:
                named = self.named(name) if host in {"", HOST} else None
                some = [named] if named else []
            if not some:
                raise Refusal("unknown-recipient")
            for one in sorted(some, key=lambda i: i.name):
                found.setdefault(one.no, one)
        return list(found.values())

    def _mail_send(self, own: Identity, params: Mapping[str, Any]) -> dict[str, Any]:
        reached = self.reached(own, params["to"])
        return {"duplicate": False, "addresses": [f"{one.name}@{HOST}" for one in reached]}

    def _mail_reply(self, own: Identity, params: Mapping[str, Any]) -> dict[str, Any]:
        head, to = self._answered(own, params)
        told = {"duplicate": False, "thread": head.thread}
        return told | {"addresses": [f"{one.name}@{HOST}" for one in to]}

    def _answered(self, own: Identity, params: Mapping[str, Any]) -> tuple[Letter, list[Identity]]:
        """What is answered, and whom that reaches: of one's own message, who got that. Refusal."""
        head = self.letters.get(params["id"])
        if head is None or not self.is_own(own, head):
            raise Refusal("not-found")
        if (is_sent := head.id not in own.stages) and params.get("final"):
            raise Refusal("usage")
        return head, [self.identities[no] for no in (sorted(head.to) if is_sent else [head.sender])]

    def _received(self, own: Identity, message_id: str) -> Letter:
        if message_id not in own.stages:
            raise Refusal("not-found")
        return self.letters[message_id]

    def _known(self, own: Identity, ids: Sequence[str]) -> tuple[list[str], list[str]]:
        """The messages among `ids`, each once, and what is none of `own`. Refusal of a lone one."""
        wanted = list(dict.fromkeys(ids))
        if len(wanted) == 1:
            self._received(own, wanted[0])
        there = [one for one in wanted if one in own.stages]
        return there, [one for one in wanted if one not in own.stages]

    def _mail_read(self, own: Identity, params: Mapping[str, Any]) -> dict[str, Any]:
        there, missing = self._known(own, params["ids"])
        unread = own.unread - sum(own.stages[one] < READ for one in there)
        return {"ids": there, "failed_ids": missing, "unread": unread}

    def _mail_ack(self, own: Identity, params: Mapping[str, Any]) -> dict[str, Any]:
        there, missing = self._known(own, params["ids"])
        unread = own.unread - sum(own.stages[one] < READ for one in there)
        return {"acked": there, "failed_ids": missing, "unread": unread}

    def open_ids(self, own: Identity, *, acked_too: bool) -> list[str]:
        """What the inbox lists, in order."""
        return [one for one, stage in own.stages.items() if acked_too or stage < ACKED]

    def _mail_inbox(self, own: Identity, params: Mapping[str, Any]) -> dict[str, Any]:
        listed = self.open_ids(own, acked_too=params["all"])
        if params["cursor"] is not None:
            no, acked_too, last = self.cursors[params["cursor"]]
            if (no, acked_too) != (own.no, params["all"]):
                raise Refusal("conflict")
            place = list(self.letters).index
            listed = [one for one in listed if place(one) > place(last)]
        limit = params["limit"]
        return {
            "ids": listed[:limit],
            "has_more": len(listed) > limit,
            "unread": own.unread,
            "stages": [own.stages[one] for one in listed[:limit]],
        }

    def _mail_sent(self, own: Identity, params: Mapping[str, Any]) -> dict[str, Any]:
        sent = [one for one in self.letters.values() if one.sender == own.no]
        told = {
            one.id: {
                f"{self.identities[no].name}@{HOST}": self.identities[no].stages[one.id]
                for no in one.to
            }
            for one in reversed(sent)
        }
        return {"copies": dict(list(told.items())[: params["limit"]])}

    def _mail_thread(self, own: Identity, params: Mapping[str, Any]) -> dict[str, Any]:
        start = self.letters.get(params["id"])
        if start is None or not self.is_own(own, start):
            raise Refusal("not-found")
        ids = [o.id for o in self.letters.values() if o.thread == start.thread]
        return {"ids": [one for one in ids if self.is_own(own, self.letters[one])]}

    def _mail_search(self, own: Identity, params: Mapping[str, Any]) -> dict[str, Any]:
        found = [one for one in self.letters.values() if params["query"] in one.words]
        return {"ids": [one.id for one in reversed(found) if self.is_own(own, one)]}

    def is_own(self, own: Identity, letter: Letter) -> bool:
        """Sent or received: the only mail that an identity may see."""
        return letter.sender == own.no or letter.id in own.stages

    # -- effects --------------------------------------------------------------------------------

    def _apply(
        self,
        request: Request,
        own: Identity | None,
        result: Mapping[str, Any],
        token: str | None,
    ) -> None:
        params, seat = request.params, request.seat
        match request.method:
            case "identity.register" | "identity.claim":
                self._take(seat, params["name"], params.get("role"), result["epoch"], token)
            case "identity.release":
                self._give_back(seat)
            case "identity.rename" if own:
                own.name = params["name"]
            case "identity.set" if own:
                own.role = params["role"]
            case "mail.send" if own:
                self._post(own, self.reached(own, params["to"]), None, params["body"], result)
            case "mail.reply" if own:
                head, to = self._answered(own, params)
                self._post(own, to, head, params["body"], result)
                if params.get("final"):
                    own.stages[head.id] = ACKED
            case "mail.inbox" if own and result["has_more"]:
                last = result["messages"][-1]["id"]
                self.cursors[result["next_cursor"]] = (own.no, params["all"], last)
            case "mail.read" | "mail.ack" if own:
                stage = READ if request.method == "mail.read" else ACKED
                for one in self._known(own, params["ids"])[0]:
                    own.stages[one] = max(own.stages[one], stage)

    def _take(self, seat: Seat, name: str, role: str | None, epoch: int, token: str | None) -> None:
        identity = self.named(name)
        if identity is not None and seat.bound == (identity.no, epoch):
            return  # it got its own back
        if identity is None:
            identity = Identity(len(self.identities) + 1, name, role or "")
            self.identities[identity.no] = identity
        self._displace(identity, seat)
        self.grant(identity, seat, token)

    def grant(self, identity: Identity, seat: Seat, token: str | None) -> None:
        """The identity goes to the session, in a new epoch."""
        self.meet(seat)
        if self._is_taken(seat):
            seat.label = seat.own_id
        identity.epoch += 1
        identity.state, identity.holder = HELD, seat
        seat.bound, seat.silent_ms = (identity.no, identity.epoch), 0
        self.leave(seat)
        if seat.label != seat.own_id:
            self.remembered[seat.cli, seat.label or ""] = identity.no
        for one, grant in list(self.tokens.items()):
            if grant[0] == identity.no and grant[1] < identity.epoch - 1:
                del self.tokens[one]
        if token is not None:
            self.tokens[token] = (identity.no, identity.epoch)

    def meet(self, seat: Seat) -> None:
        """A session is about to hold something or to wait: it goes by what it calls itself."""
        seat.label = seat.session_id
        if seat not in self.met:
            self.met.append(seat)

    def _is_taken(self, seat: Seat) -> bool:
        """Does another holder go by its label? Two credentials would be one file."""
        others = [one for one in self.met if one is not seat and one.bound]
        return not seat.shared and (seat.cli, seat.label) in {(i.cli, i.label) for i in others}

    def _give_back(self, seat: Seat) -> None:
        assert seat.bound is not None
        identity = self.identities[seat.bound[0]]
        identity.state = FREE
        self.tokens = {t: g for t, g in self.tokens.items() if g[0] != identity.no}
        seat.bound = None
        for name in (seat.label, seat.session_id):
            self._forget(identity, seat.cli, name)

    def _displace(self, identity: Identity, seat: Seat) -> None:
        """A living holder of another conversation is told what it lost, and never waits for it."""
        if identity.state != HELD or not (holder := identity.holder) or holder.evidence == "dead":
            return
        if (holder.cli, holder.label) != (seat.cli, seat.session_id):
            self._forget(
                identity, holder.cli, None if holder.label == holder.own_id else holder.label
            )

    def _forget(self, identity: Identity, cli: str, label: str | None) -> None:
        """No process of that conversation (None: of any) waits for it, or gets it by itself."""
        for name, no in list(self.remembered.items()):
            if (name[0], no) == (cli, identity.no) and label in (None, name[1]):
                del self.remembered[name]
        for one in list(self.waiting):
            if (one.cli, one.waits) == (cli, identity.no) and label in (None, one.label):
                self.leave(one)

    def leave(self, seat: Seat) -> None:
        """The session waits for nothing any more."""
        seat.waits = None
        if seat in self.waiting:
            self.waiting.remove(seat)

    def _post(
        self,
        own: Identity,
        to: Sequence[Identity],
        head: Letter | None,
        body: str,
        result: Mapping[str, Any],
    ) -> None:
        no, thread = result["id"], head.thread if head else result["id"]
        reached, words = tuple(one.no for one in to), frozenset(body.split())
        self.letters[no] = Letter(no, own.no, reached, thread, words)
        for one in to:
            one.stages[no] = DELIVERED

    # -- sessions that end and come back --------------------------------------------------------

    def arrive(self, seat: Seat) -> Identity | None:
        """The session says hello, holding nothing: the identity it gets, or None."""
        if seat.bound is not None:
            return None
        no = self.remembered.get((seat.cli, seat.session_id))
        if no is None:
            return None
        identity = self.identities[no]
        self.meet(seat)
        if identity.state == HELD and not self.claimable(identity):
            if seat not in self.waiting:
                seat.waits = no
                self.waiting.append(seat)
            return None
        self._displace(identity, seat)
        return identity

    def bury(self, seat: Seat) -> tuple[Identity, Seat] | None:
        """The death of a session is told: who follows it, if somebody waits."""
        self.leave(seat)
        if seat.bound is None:
            return None
        identity = self.identities[seat.bound[0]]
        if identity.epoch == seat.bound[1] and identity.state == HELD:
            identity.state = LAPSED
        seat.bound = None
        follower = next((one for one in self.waiting if one.waits == identity.no), None)
        return None if follower is None or identity.state == HELD else (identity, follower)

    def restart(self) -> None:
        """A new daemon: the dead are buried, sessions that hold nothing are forgotten."""
        for seat in [one for one in self.waiting if one.evidence == "dead"]:
            self.leave(seat)
        for seat in [one for one in self.met if one.bound and one.evidence == "dead"]:
            followed = self.bury(seat)
            if followed is not None:
                self.grant(*followed, None)
        named = {id(one.holder) for one in self.identities.values()}
        for seat in list(self.met):
            if seat.bound is None and id(seat) not in named and seat.waits is None:
                self.met.remove(seat)
        for seat in self.met:
            seat.silent_ms = 0

    # -- what the store must hold ---------------------------------------------------------------

    def holders(self) -> dict[str, tuple[str, int, int | None]]:
        """Name -> (state, epoch, process of the newest grant)."""
        return {
            one.name: (one.state, one.epoch, one.holder.pid if one.holder else None)
            for one in self.identities.values()
        }

    def copies(self) -> dict[tuple[int, str], int]:
        """(recipient, message) -> stage: one copy each, and no other."""
        return {
            (one.no, message): stage
            for one in self.identities.values()
            for message, stage in one.stages.items()
        }

    def bindings(self) -> dict[tuple[int, str], Grant]:
        """(process, conversation) -> what the session was granted and did not release."""
        return {
            (one.pid, one.conversation if one.shared else ""): one.bound
            for one in self.met
            if one.bound is not None
        }

    def queues(self) -> dict[int, list[int]]:
        """Identity -> the processes that wait for it, in order."""
        found: dict[int, list[int]] = defaultdict(list)
        for one in self.waiting:
            found[one.waits or 0].append(one.pid)
        return dict(found)
