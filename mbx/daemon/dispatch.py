"""From a call to a unit of work: gate, then parameters, then the act, in one transaction.

The lease is checked before ids and body, so a bad body never hides `no-lease`. A repeat with the
same idempotency key gives the first answer; the same key with another request is refused.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from mbx.core.errors import MbxError
from mbx.core.evidence import Evidence, Process
from mbx.core.lease import LeaseState, Observation
from mbx.daemon import codec, forwarding, gate, granting, resuming
from mbx.daemon.authority import Authority
from mbx.daemon.context import Answer, Context, Facts
from mbx.daemon.effects import Glimpsed, Revive, Seen
from mbx.daemon.encounters import Encounter
from mbx.daemon.gate import Access, Caller, Mailbox, Open, OwnerTerminal, Principal, Session
from mbx.daemon.host import Host
from mbx.daemon.kinship import See, nobody
from mbx.daemon.linkstate import LinkState, NetworkState
from mbx.daemon.methods import METHODS
from mbx.daemon.methods.table import Method
from mbx.daemon.params import Params
from mbx.daemon.proven import Proven
from mbx.daemon.reach import Reach, unreached
from mbx.daemon.resuming import Wish
from mbx.daemon.world import ClockSteps, World, moment
from mbx.store import answers, exposures, identities, messages, sessions
from mbx.store.bindings import Binding
from mbx.store.database import Tx, Unit
from mbx.store.leases import LeaseRow

_ADMIT: Final[Mapping[Access, Callable[[Tx, Caller], Principal]]] = {
    Access.OPEN: gate.admit_open,
    Access.SESSION: gate.admit_session,
    Access.LEASE: gate.admit_holder,
    Access.OWNER_TERMINAL: gate.admit_owner_terminal,
}


class Work(NamedTuple):
    """A unit of work and the queue it belongs to.

    `when_full` reads in its place on a full disk; a `brief` one may run on the loop; one
    `after_index` waits until the full-text index has what is committed by now.
    """

    unit: Unit[Answer]
    writes: bool
    when_full: Unit[Answer] | None = None
    brief: bool = False
    after_index: bool = False


def _unseen(process: Process) -> Evidence:
    return "unknown"


def _nobody(cli: str, session_id: str) -> Sequence[Encounter]:
    return ()


def _no_link(peer_no: int) -> LinkState | None:
    return None


def _no_pairing(pairing: str) -> Proven | None:
    return None


class Dispatcher:
    """Makes units of work, and sees when the clock is set; all other state is in the store."""

    def __init__(
        self,
        host: Host,
        world: World,
        facts: Facts,
        observe: Callable[[LeaseRow], Observation | None],
        last_seen_ms: Callable[[int], int | None],
        *,
        authority: Authority | None = None,
        look: Callable[[Process], Evidence] = _unseen,
        see: See = nobody,
        sessions_called: Callable[[str, str], Sequence[Encounter]] = _nobody,
        link: Callable[[int], LinkState | None] = _no_link,
        network: Callable[[], NetworkState] = NetworkState,
        proven: Callable[[str], Proven | None] = _no_pairing,
        reach: Callable[[LeaseRow, str | None], Reach] = unreached,
    ) -> None:
        self.host = host
        self.world = world
        self.clock_steps = ClockSteps(world)
        self.facts = facts
        self._observe = observe
        self._last_seen_ms = last_seen_ms
        self._authority = authority or Authority(host.key_id)
        self._look = look
        self._see = see
        self._sessions_called = sessions_called
        self._link = link
        self._network = network
        self._proven = proven
        self._reach = reach

    def context(self) -> Context:
        """The surroundings of a request that arrives now."""
        now, monotonic_ms = moment(self.world), self.world.monotonic_ms()
        self.clock_steps.look(now.now_ms, monotonic_ms)
        return Context(
            host=self.host,
            moment=now,
            facts=self.facts,
            observe=self._observe,
            last_seen_ms=self._last_seen_ms,
            uptime_ms=monotonic_ms - self.facts.started_ms,
            authority=self._authority,
            look=self._look,
            see=self._see,
            sessions_called=self._sessions_called,
            link=self._link,
            network=self._network,
            proven=self._proven,
            reach=self._reach,
        )

    def work(self, caller: Caller, name: object, params: object) -> Work:
        """The unit that carries out a call.

        Raises MbxError usage for a method that is not there.
        """
        method = METHODS.get(name) if isinstance(name, str) else None
        if method is None:
            raise MbxError("usage", "there is no such method", "see docs/protocol-local.md")
        call = _read(method, params)
        context = self.context()
        unit = _unit(context, caller, method, call)
        if method.when_full is None:
            brief = method.brief and not getattr(call.request, "is_long", False)
            return Work(unit, method.writes, brief=brief, after_index=method.after_index)
        reading = replace(method, act=method.when_full, writes=False)
        return Work(unit, method.writes, _unit(context, caller, reading, call._replace(key=None)))

    def burial(self, session_no: int, why: str) -> Work:
        """The unit that ends a session whose process is dead."""
        now = moment(self.world)

        def unit(tx: Tx) -> Answer:
            session = sessions.by_no(tx, session_no)
            return Answer({}, resuming.end(tx, self.host, now, session, why) if session else ())

        return Work(unit, writes=True)

    def glimpsed(self, effect: Glimpsed) -> None:
        """Remember what was read where nothing was written."""
        glimpses = self._authority.glimpses
        glimpses.add(effect.cli, effect.session_id, effect.read, self.world.now_ms())

    def keeping(self) -> Work:
        """The unit that puts what is only remembered into the store, before the daemon ends."""
        read = self._authority.glimpses.everything()

        def unit(tx: Tx) -> Answer:
            for cli, session_id, many in read:
                exposures.expose(tx, cli, session_id, many)
            return Answer({})

        return Work(unit, writes=True)

    def arrival(self, caller: Caller, wish: Wish) -> Work:
        """The unit in which a session without identity gets its own again, or a place."""
        context = self.context()
        return Work(
            lambda tx: resuming.arrive(context, tx, gate.admit_session(tx, caller), wish),
            writes=True,
        )

    def glance(self, caller: Caller) -> Work:
        """The unit that looks whether a caller still holds its lease, and at its mail."""
        return Work(lambda tx: _glance(tx, caller), writes=False, brief=True)

    def handing_on(self, identity_no: int) -> Work:
        """The unit that hands on the next piece of what a forward left."""
        now = moment(self.world)
        return Work(lambda tx: forwarding.continued(tx, self.host, now, identity_no), writes=True)

    def revival(self, effect: Revive) -> Work:
        """The unit that holds a lapsed lease again for the holder that just used it."""
        now = moment(self.world)

        def unit(tx: Tx) -> Answer:
            granting.revive(tx, now, effect.identity_no, effect.epoch)
            return Answer({})

        return Work(unit, writes=True)


class _Call(NamedTuple):
    request: Any
    key: str | None = None
    digest: bytes = b""
    """16 bytes that tell two requests with one key apart."""
    fault: MbxError | None = None


def _read(method: Method[Any, Any], given: object) -> _Call:
    """The parameters as a request; a fault is kept for after the gate."""
    try:
        params = Params(given)
        key = params.key() if method.keyed else None
        request = method.read(params)
        params.finish()
    except MbxError as fault:
        return _Call(None, fault=fault)
    if key is None:
        return _Call(request)
    return _Call(request, key, _digest(method.name, given))


def _glance(tx: Tx, caller: Caller) -> Answer:
    holder = gate.admit_holder(tx, caller)
    return Answer(
        {
            "agent": holder.binding.name,
            "identity_no": holder.identity_no,
            "unread": identities.unread(tx, holder.identity_no),
            "waking": messages.waking(tx, holder.identity_no),
        }
    )


def _unit(context: Context, caller: Caller, method: Method[Any, Any], call: _Call) -> Unit[Answer]:
    return lambda tx: _carry_out(context, tx, caller, method, call)


def _carry_out(
    context: Context, tx: Tx, caller: Caller, method: Method[Any, Any], call: _Call
) -> Answer:
    principal = _ADMIT[method.access](tx, caller)
    if call.fault is not None:
        raise call.fault
    if call.key is None or isinstance(principal, Open):
        answer = method.act(context, tx, principal, call.request)
    else:
        answer = _once(context, tx, method, principal, call)
    return _with_signs_of_life(answer, principal)


def _once(
    context: Context, tx: Tx, method: Method[Any, Any], principal: Session | Mailbox, call: _Call
) -> Answer:
    """Act, or answer as before. The first answer is kept for ever, in the same transaction."""
    assert call.key is not None
    scope = _scope(principal)
    earlier = answers.find(tx, scope, call.key)
    if earlier is not None:
        if earlier[0] != call.digest:
            raise MbxError(
                "idempotency-conflict",
                "this idempotency key was used before, for another request",
                "repeat the first request unchanged, or use a new key",
            )
        return Answer({**json.loads(earlier[1]), "duplicate": True})
    answer = method.act(context, tx, principal, call.request)
    answers.save(tx, scope, call.key, call.digest, codec.encode(answer.result).decode())
    return answer


def _scope(principal: Session | Mailbox) -> str:
    if not isinstance(principal, Session):
        return f"i{principal.identity_no}"
    process = principal.process
    return f"s{process.pid}:{process.start_ticks}:{process.boot_id}:{principal.conversation}"


def _digest(method: str, given: object) -> bytes:
    return hashlib.sha256(method.encode() + b"\0" + codec.canonical(given)).digest()[:16]


def _with_signs_of_life(answer: Answer, principal: Principal) -> Answer:
    binding: Binding | None = None
    if not isinstance(principal, OwnerTerminal):  # the human, who holds nothing
        binding = principal.binding
    if binding is None:
        return answer
    seen = Seen(binding.identity_no, binding.lease.epoch)
    if binding.lease.state is LeaseState.LAPSED:
        revive = Revive(binding.identity_no, binding.lease.epoch)
        return answer._replace(effects=(*answer.effects, seen, revive))
    return answer._replace(effects=(*answer.effects, seen))
