"""Who is at the other end of a local connection: what it said of itself, and what the kernel says.

A connection is of one session, found once, at hello. A conversation of a shared process may name
itself later, by a bind ticket. What a request may do is decided at the gate, from the `Caller` that
is made of this when the request arrives.
"""

from __future__ import annotations  # nested functions would evaluate theirs each time

import hashlib
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from mbx import PROTOCOL, __version__
from mbx.core.clients import is_session_id
from mbx.core.errors import MbxError
from mbx.core.evidence import Claim, Lineage, SessionKey
from mbx.core.limits import CLI_NAME_MAX_CHARS, SESSION_ID_MAX_CHARS
from mbx.core.terminal import Terminal
from mbx.daemon import processes
from mbx.daemon.context import Answer
from mbx.daemon.dispatch import Work
from mbx.daemon.faces.pipes import Pipes
from mbx.daemon.gate import NO_GRANT, Access, Caller
from mbx.daemon.journal import whence
from mbx.daemon.methods import METHODS
from mbx.daemon.offers import Offers
from mbx.daemon.params import Params
from mbx.daemon.resuming import Wish
from mbx.daemon.watching import Watchers
from mbx.store.database import Committed, Outcome

HOOK: Final = "session.hook"
"""The method by which hooks tell of their session."""

WHOAMI: Final = "session.whoami"
"""The method in which a bind ticket is handed in."""

_TOKEN_CHARS: Final = 64


class Office:
    """What local faces need of the daemon behind them."""

    def __init__(
        self,
        *,
        user_id: int,
        host_label: str,
        home: str,
        known: Callable[[], Any],
        grant_of: Callable[[Any, str], tuple[int, int] | None],
        accept: Callable[[Caller, object, object], Work],
        arrival: Callable[[Caller, Wish], Work],
        met: Callable[[Lineage], None],
        submit: Callable[[Work, Callable[[Outcome[Answer]], None]], None],
        left: Callable[[str], None],
        redeem: Callable[[str, Lineage], Lineage],
        watchers: Watchers,
        offers: Offers,
        pipes: Pipes,
        current: Callable[[Lineage], Lineage],
        answer_hook: Callable[[Lineage, str, dict[str, Any]], dict[str, Any]],
        log: Callable[..., None],
    ) -> None:
        self.user_id = user_id
        self.host_label = host_label
        self.home = home
        self.known = known
        self.grant_of = grant_of
        self.accept = accept
        self.arrival = arrival
        self.met = met
        self.submit = submit
        self.left = left
        self.redeem = redeem
        self.watchers = watchers
        self.offers = offers
        self.pipes = pipes
        self.current = current
        self.answer_hook = answer_hook
        self.log = log


class Party:
    """The other end of one connection. `settled` is called when it has got what it had before."""

    def __init__(self, office: Office, settled: Callable[[], None]) -> None:
        self._office = office
        self._settled = settled
        self._socket: socket.socket | None = None
        self._mismatch: MbxError | None = None
        self._lineage = Lineage("unknown", reason="no hello yet")
        self._claimed: SessionKey | None = None
        self._token_hash: bytes | None = None
        self._wish = Wish()
        self._after_arrival: list[Callable[[], None]] = []
        self.is_greeted = False
        self.is_arriving = False
        self.changing = 0
        """Requests under way that may change what its session holds."""

    def connected(self, sock: socket.socket) -> None:
        """The socket of the connection, from which the kernel tells whose it is."""
        self._socket = sock

    def lost(self) -> None:
        """The connection is gone, and nothing more can be learnt from it."""
        self._socket = None

    def serve_only_across_versions(self, why: MbxError) -> None:
        """It may ask for status, and stop the daemon; everything else is refused so."""
        self._mismatch = why

    @property
    def lineage(self) -> Lineage:
        """What the walk found at hello, or a ticket chose."""
        return self._lineage

    # -- hello ----------------------------------------------------------------------------------

    def hello(self, params: object) -> dict[str, object]:
        """Take the first request of a connection. Raises MbxError usage, version-mismatch."""
        if self.is_greeted:
            raise MbxError("usage", "hello was said already on this connection")
        said = params if isinstance(params, dict) else {}
        self.is_greeted = True
        if said.get("protocol") != PROTOCOL:
            self._mismatch = _mismatch(said.get("protocol"))
            raise self._mismatch
        self._claimed = _session_key(said.get("session"))
        self._token_hash = _token_hash(said.get("token"))
        claim: Claim = "self" if said.get("holder") == "self" else self._claimed
        if self._socket is not None:
            with processes.peer_of(self._socket) as peer:
                self._lineage = processes.walk(peer, self._office.known(), claim)
        self._office.met(self._lineage)
        found = self._lineage
        pid = found.process.pid if found.process else None
        self._office.log(
            "a session said hello", whence=f"{found.cli or found.verdict} {pid}", via=found.via
        )
        self._wish = _wish(said)
        self._arrive()
        return {
            "protocol": PROTOCOL,
            "version": __version__,
            "host": self._office.host_label,
            "home": self._office.home,
        }

    def check_greeted(self, method: str) -> None:
        """Raises MbxError before hello, and for what is not served across versions."""
        if not self.is_greeted:
            raise MbxError("usage", "the first request of a connection is hello")
        served = METHODS.get(method)
        if self._mismatch is not None and not (served and served.across_versions):
            raise self._mismatch

    def bind(self, ticket: str | None) -> None:
        """Make this connection the conversation that a ticket names. Raises as `redeem`."""
        if ticket is None:
            return
        lineage = self._office.redeem(ticket, self._lineage)
        if lineage is not self._lineage:
            self._lineage = lineage
            self._claimed = SessionKey(lineage.cli, lineage.session_id)
            self._office.met(self._lineage)
            self._arrive()

    def introduce(self, called: str | None) -> None:
        """A hook of this session says on it that it begins, as `called`: it may come back."""
        caller, lineage = self.caller(), self._lineage
        if called is None or lineage.shared or lineage.via != "harness":
            return
        if caller.granted_epoch in (None, 0):
            self._let_arrive(caller._replace(lineage=replace(lineage, session_id=called)), Wish())

    def when_arrived(self, act: Callable[[], None]) -> None:
        """Call it once the session has got what it had before; at once where it need not wait."""
        if self.is_arriving:
            self._after_arrival.append(act)
        else:
            act()

    def _arrive(self) -> None:
        """Let a session of an agent CLI that holds nothing have its own again, before its calls."""
        caller, wish = self.caller(), self._wish
        if self._lineage.via != "harness" or caller.granted_epoch not in (None, 0):
            return
        if wish.agent is None and self._claimed is None:
            return
        self._let_arrive(caller, wish)

    def _let_arrive(self, caller: Caller, wish: Wish) -> None:
        self.is_arriving = True
        self._office.submit(self._office.arrival(caller, wish), self._arrived)

    def _arrived(self, outcome: Outcome[Answer]) -> None:
        self.is_arriving = False
        if not isinstance(outcome, Committed) and not isinstance(outcome.error, MbxError):
            self._office.log("a session could not arrive", whence=whence(outcome.error))
        waiting, self._after_arrival = self._after_arrival, []
        for act in waiting:
            act()
        self._settled()

    # -- a request ------------------------------------------------------------------------------

    def caller(self, method: str = "") -> Caller:
        """Who asks, as of now; with its terminal where the method is for the owner's alone."""
        lineage = self._lineage if self._claimed else self._office.current(self._lineage)
        caller = Caller(lineage, self._claimed, self._token_hash)
        process = self._lineage.process
        if process is not None and not self.changing:
            # Else what it will hold then, its own earlier requests decide.
            grant = self._office.grant_of(process, self._lineage.conversation)
            identity_no, epoch = grant or NO_GRANT
            caller = caller._replace(granted_epoch=epoch, granted_identity_no=identity_no)
        served = METHODS.get(method)
        if served is not None and served.access is Access.OWNER_TERMINAL:
            return caller._replace(terminal=self._terminal())
        return caller

    def _terminal(self) -> Terminal | None:
        """What is seen of the caller's terminal now; not at each hello, since it costs time."""
        if self._socket is None:
            return None
        with processes.peer_of(self._socket) as peer:
            return processes.terminal_of(peer)


def changes(method: str) -> bool:
    """Whether a request may change what its session holds."""
    served = METHODS[method]
    return served.access is Access.SESSION and served.writes


def ticket_in(method: str, params: object) -> str | None:
    """The bind ticket of a call that is in order. Raises MbxError usage."""
    if method != WHOAMI or not isinstance(params, dict) or "bind" not in params:
        return None
    given = Params(params)
    ticket = METHODS[WHOAMI].read(given)
    given.finish()
    assert ticket is None or isinstance(ticket, str)
    return ticket


def begun_in(method: str, params: Mapping[str, Any]) -> str | None:
    """What a call that tells of the beginning of a session calls it."""
    called = params.get("session") if method == HOOK and params.get("event") == "start" else None
    return called if isinstance(called, str) else None


def _session_key(said: object) -> SessionKey | None:
    if said is None:
        return None
    cli, session_id = (said.get("cli"), said.get("id")) if isinstance(said, dict) else (None, None)
    if (
        not isinstance(cli, str)
        or not 1 <= len(cli) <= CLI_NAME_MAX_CHARS
        or not cli.isprintable()
        or not is_session_id(session_id)
    ):
        raise MbxError(
            "usage",
            "session must name cli and id, printable,"
            f" at most {CLI_NAME_MAX_CHARS} and {SESSION_ID_MAX_CHARS} characters",
        )
    return SessionKey(cli, session_id)


def _wish(said: dict[str, Any]) -> Wish:
    agent, role = said.get("agent"), said.get("role")
    return Wish(agent if isinstance(agent, str) else None, role if isinstance(role, str) else None)


def _token_hash(said: object) -> bytes | None:
    if said is None:
        return None
    if not isinstance(said, str) or len(said) != _TOKEN_CHARS or not said.isascii():
        raise MbxError("usage", f"token must be {_TOKEN_CHARS} hexadecimal characters")
    return hashlib.sha256(said.encode()).digest()


def _mismatch(theirs: object) -> MbxError:
    told = theirs if isinstance(theirs, int) else None
    return MbxError(
        "version-mismatch",
        f"the running daemon (mbx {__version__}) speaks protocol {PROTOCOL}, this caller {told}",
        "mbx daemon restart",
        protocol=PROTOCOL,
        version=__version__,
    )
