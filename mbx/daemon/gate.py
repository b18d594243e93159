"""The one gate: who may do what, decided inside the transaction that does it.

A handler receives a value that only this module can make (`Open`, `Session`, `Holder`,
`OwnerTerminal`), so a check that was forgotten does not type-check. What a caller *says* about
itself never counts; what counts is what the kernel's word about its process gave (the `Lineage` and
the `Terminal`), and, only where that cannot say whose session it is, a token.
"""

from enum import Enum
from typing import Final, NamedTuple

from mbx.core.errors import MbxError
from mbx.core.evidence import Lineage, Process, SessionKey
from mbx.core.lease import LeaseState
from mbx.core.names import OWNER
from mbx.core.terminal import Terminal, refusal
from mbx.daemon.times import rfc3339
from mbx.store import bindings, identities, leases, sessions
from mbx.store.bindings import Binding
from mbx.store.database import Tx

_SEAL: Final = object()
_NOT_LOOKED_AT: Final = Terminal(False, "this way to the daemon has no terminal")

NO_GRANT: Final = (0, 0)
"""Identity key and epoch of a request that was made while its session held nothing."""


class Access(Enum):
    """What a method needs of its caller."""

    OPEN = "nothing"
    SESSION = "a session"
    LEASE = "a lease"
    OWNER_TERMINAL = "the owner's terminal"


class Caller(NamedTuple):
    """What is known of the other end of a connection.

    `granted_identity_no` and `granted_epoch` are what its session held when the request arrived
    (`NO_GRANT`: nothing; None: not known), so that a request written under one lease is never
    carried out under a later one. It takes both: epochs of two identities may be equal.
    `terminal` is what was seen of its terminal when the request arrived; None: nobody looked.
    """

    lineage: Lineage
    claimed: SessionKey | None = None
    token_hash: bytes | None = None
    granted_epoch: int | None = None
    granted_identity_no: int | None = None
    terminal: Terminal | None = None

    @property
    def conversation(self) -> str:
        """What tells conversations of one process apart ('' where it has only one)."""
        return self.lineage.conversation


class _Admitted:
    """Made by this module alone: the seal is private to it."""

    __slots__ = ()

    def __init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("only the gate admits callers")


class Open(_Admitted):
    """Anybody at all; `binding` is the lease it holds, if it holds one now.

    `lost` is what it is told that lost one, until it holds another.
    """

    __slots__ = ("binding", "caller", "lost")

    def __init__(
        self, seal: object, caller: Caller, binding: Binding | None, lost: str | None = None
    ) -> None:
        super().__init__(seal)
        self.caller = caller
        self.binding = binding
        self.lost = lost


class Session(_Admitted):
    """A caller whose session is known; `binding` is the lease it holds, if it holds one now."""

    __slots__ = ("binding", "caller", "process")

    def __init__(
        self, seal: object, caller: Caller, process: Process, binding: Binding | None
    ) -> None:
        super().__init__(seal)
        self.caller = caller
        self.process = process
        self.binding = binding

    @property
    def conversation(self) -> str:
        """What tells conversations of its process apart."""
        return self.caller.conversation


class Holder(_Admitted):
    """A caller that holds `binding.identity` at `epoch`, as of this transaction."""

    __slots__ = ("binding", "epoch", "identity", "identity_no")

    def __init__(self, seal: object, binding: Binding) -> None:
        super().__init__(seal)
        self.binding = binding
        self.epoch = binding.granted_epoch
        self.identity = binding.identity
        self.identity_no = binding.identity_no


class OwnerTerminal(_Admitted):
    """A caller at the owner's terminal, with the mailbox of the human.

    Nobody holds that mailbox by a lease: `epoch` is 0, which no grant has.
    """

    __slots__ = ("epoch", "identity", "identity_no")

    def __init__(self, seal: object, identity: str, identity_no: int) -> None:
        super().__init__(seal)
        self.epoch = 0
        self.identity = identity
        self.identity_no = identity_no


Mailbox = Holder | OwnerTerminal
"""Who may read a mailbox: `identity` and `identity_no` say which, `epoch` under which lease."""

Principal = Open | Session | Holder | OwnerTerminal
"""Everybody that the gate admits."""


def admit_open(tx: Tx, caller: Caller) -> Open:
    """Anybody; with the binding where there is a valid one."""
    try:
        return Open(_SEAL, caller, _valid_binding(tx, caller))
    except MbxError as error:
        return Open(_SEAL, caller, None, error.message if error.code == "lease-lost" else None)


def admit_session(tx: Tx, caller: Caller) -> Session:
    """A caller that can hold a lease. Raises MbxError no-lease, lease-foreign."""
    lineage = caller.lineage
    if lineage.verdict != "session" or lineage.process is None:
        raise _no_session(lineage)
    granted = bindings.of_process(tx, lineage.process, caller.conversation)
    if caller.token_hash is not None:
        _refuse_foreign_token(tx, caller, granted)
    valid = granted if granted and _still_held(granted) else None
    return Session(_SEAL, caller, lineage.process, valid)


def admit_holder(tx: Tx, caller: Caller) -> Holder:
    """A caller that holds a lease now. Raises MbxError no-lease, lease-lost, lease-foreign."""
    return Holder(_SEAL, _valid_binding(tx, caller))


def admit_owner_terminal(tx: Tx, caller: Caller) -> OwnerTerminal:
    """A caller at the owner's terminal. Raises MbxError owner-required."""
    seen = caller.terminal or _NOT_LOOKED_AT
    if not seen.ok:
        raise refusal(seen)
    owner = identities.by_name(tx, OWNER)
    if owner is None:
        raise LookupError("the owner has no mailbox")
    return OwnerTerminal(_SEAL, owner.identity, owner.no)


def holder_of(tx: Tx, session: Session) -> Holder:
    """The session as holder. Raises as `admit_holder`."""
    return admit_holder(tx, session.caller)


def _valid_binding(tx: Tx, caller: Caller) -> Binding:
    lineage = caller.lineage
    if lineage.verdict == "session" and lineage.process is not None:
        binding = bindings.of_process(tx, lineage.process, caller.conversation)
        if caller.token_hash is not None:
            _refuse_foreign_token(tx, caller, binding)
        if binding is None:
            raise _no_identity()
        if not _is_of_grant(caller, binding):
            raise _made_under_another(caller, binding) if caller.granted_epoch else _no_identity()
        if not _still_held(binding):
            raise _lost(tx, binding)
        return binding
    if lineage.verdict == "unknown" and caller.token_hash is not None:
        binding = bindings.of_token(tx, caller.token_hash)
        if binding is None:
            raise _no_session(lineage)
        if not _still_held(binding):
            raise _lost(tx, binding)
        return binding
    raise _no_session(lineage)


def _is_of_grant(caller: Caller, binding: Binding) -> bool:
    """Whether the request was made under this grant, as far as that is known."""
    return caller.granted_epoch in (None, binding.granted_epoch) and (
        caller.granted_identity_no in (None, binding.identity_no)
    )


def _still_held(binding: Binding) -> bool:
    """Is the grant the lease of now? A lapsed lease nobody took still is: sleep is not death.

    Of a retired identity nothing is, whatever its lease says.
    """
    return (
        binding.lease.epoch == binding.granted_epoch
        and binding.lease.state is not LeaseState.FREE
        and not binding.is_retired
    )


def _refuse_foreign_token(tx: Tx, caller: Caller, own: Binding | None) -> None:
    assert caller.token_hash is not None
    theirs = bindings.of_token(tx, caller.token_hash)
    if theirs and (own is None or theirs.identity_no != own.identity_no):
        holder = sessions.by_no(tx, theirs.session_no)
        if holder and (holder.cli, holder.called) == _label(caller):
            return  # the same conversation in another process: no stranger, and no holder
        raise MbxError(
            "lease-foreign",
            f"the token of {theirs.name} was sent from another session than the one that holds it",
            "unset MBX_CLI and MBX_SESSION, then mbx whoami",
            identity=theirs.name,
        )


def _label(caller: Caller) -> tuple[str, str]:
    """What the session is called as the walk found it, whatever it claims."""
    return caller.lineage.cli, caller.lineage.session_id


def next_without_session(lineage: Lineage) -> str:
    """What helps who has none: where nobody can say who calls, `mbx run` is nobody either."""
    if lineage.verdict == "unknown":
        return "mbx doctor  (it says whether the daemon is in a sandbox)"
    return "mbx run --as NAME -- COMMAND"


def _no_session(lineage: Lineage) -> MbxError:
    return MbxError(
        "no-lease",
        f"no session was found that could hold an identity: {lineage.reason}",
        next_without_session(lineage),
    )


def _no_identity() -> MbxError:
    return MbxError(
        "no-lease",
        "this session holds no identity",
        "mbx identity claim NAME (new: mbx identity register NAME --role ROLE)",
    )


def _made_under_another(caller: Caller, binding: Binding) -> MbxError:
    return MbxError(
        "lease-lost",
        f"the lease this request was made under has ended; its session now holds {binding.name}",
        "repeat the command",
        identity=binding.name,
        epoch=binding.granted_epoch,
        granted_epoch=caller.granted_epoch,
    )


def _lost(tx: Tx, binding: Binding) -> MbxError:
    row = leases.find(tx, binding.identity_no)
    holder = sessions.by_no(tx, row.lease.session_no) if row.lease.session_no else None
    words = f" by {holder.cli} {holder.session_id}" if holder else " by nobody"
    state = "retired" if binding.is_retired else row.lease.state.name.lower()
    by_whom = words if row.lease.state is LeaseState.HELD else ""
    return MbxError(
        "lease-lost",
        f"{binding.name} was taken from this session; it is {state}{by_whom}"
        f" since {rfc3339(row.lease.since_ms)}",
        "mbx identity list",
        identity=binding.name,
        epoch=row.lease.epoch,
        granted_epoch=binding.granted_epoch,
        holder={"cli": holder.cli, "session": holder.session_id} if holder else None,
        since_ms=row.lease.since_ms,
    )
