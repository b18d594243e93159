"""The owner's chains as they stand in the store, verified once for each change; what they grant."""

from collections.abc import Mapping
from typing import Final, Protocol

from mbx.core import authority, chains, lines
from mbx.core.authority import Book, Clock, Content, Grant
from mbx.core.chains import Chain, OwnerKey, Terms
from mbx.core.lines import Lines
from mbx.core.policy import Sender
from mbx.core.record import Record, RecordError, verify
from mbx.daemon.glimpses import Glimpses
from mbx.daemon.times import rfc3339
from mbx.store import followed, messages, owners, peers
from mbx.store.database import Tx
from mbx.store.followed import FollowedRow
from mbx.store.peers import PeerRow

DRAFT_AGAIN: Final = "repeat the command: it makes a new draft"
"""The next step where something has happened since the owner was shown a draft."""

_EMPTY: Final = ("", "", "")


class Written(Protocol):
    """What a stored message tells of its writer: what its lines are computed from."""

    @property
    def no(self) -> int:
        """Its key in the store."""

    @property
    def sender_identity(self) -> str:
        """The id of the identity that wrote it."""

    @property
    def peer_no(self) -> int | None:
        """The paired host that it came from, None for this one."""

    @property
    def hop(self) -> int:
        """How often its content was passed on."""

    @property
    def external(self) -> int:
        """1 if it came from outside, or was written under the influence of what did."""

    @property
    def owner_key(self) -> str | None:
        """The owner's key that signed it, None for the host's."""


class Authority:
    """Reads and verifies the chains when one has changed.

    `floor` is the second place's version, `audit_reached` its row of the audit log: number, hash;
    `void` the version up to which nothing counts, since the store was put back (None: it was not).
    `followed` and `followed_void` are the same two for each followed chain, by its host's key id;
    beside the version stands since when (ms UTC).
    `floor_fault`: why the second place could not be written last, '' if it was.
    """

    _floor = 0
    _raised = 0

    def __init__(
        self,
        own_host: str,
        floor: int = 0,
        audit_reached: tuple[int, bytes] = (0, b""),
        void: int | None = None,
        followed: Mapping[str, tuple[int, int]] | None = None,
        followed_void: Mapping[str, int] | None = None,
    ) -> None:
        self._own_host = own_host
        self.glimpses = Glimpses()
        self.floor = floor
        self._followed = dict(followed or {})
        self.followed_void = dict(followed_void or {})
        self.audit_reached = audit_reached
        self.void = void
        self.floor_fault = ""
        self._known: tuple[tuple[str, str, str], int, Book] = (_EMPTY, 0, Book(own_host))

    def book(self, tx: Tx) -> Book:
        """The verified chains, as of this transaction."""
        state, raised = owners.state(tx), self._raised
        known_state, known_raised, book = self._known
        if (state, raised) != (known_state, known_raised):
            book = authority.build(
                owners.chain(tx),
                self.keys(tx),
                self._own_host,
                self.floor,
                self.void,
                self._chains(tx),
            )
            self._known = (state, raised, book)
        return book

    def keys(self, tx: Tx, chain: str | None = None) -> list[OwnerKey]:
        """The owner's keys, newest first, with the ends of the former ones as they were signed.

        `chain`: of the chain of that host, None for our own.
        """
        return chains.with_ends(owners.keys(tx), owners.rotations(tx), self._own_host, chain)

    def _chains(self, tx: Tx) -> list[Chain]:
        """The chains of other hosts of the same owner."""
        return [
            chains.verified(
                owners.followed_chain(tx, row.chain),
                self.keys(tx, row.chain),
                row.chain,
                self._own_host,
                self._terms(row),
            )
            for row in followed.everything(tx)
        ]

    def _terms(self, row: FollowedRow) -> Terms:
        version, at_ms = self._followed.get(row.chain, (0, None))
        void = self.followed_void.get(row.chain)
        return Terms(version, at_ms, row.first_version, void, row.ended_version, row.label)

    @property
    def floor(self) -> int:
        """The version of the second place. It never falls, in whatever order records tell it."""
        return self._floor

    @floor.setter
    def floor(self, version: int) -> None:
        if version > self._floor:
            self._floor = version
            self._raised += 1

    @property
    def followed(self) -> Mapping[str, tuple[int, int]]:
        """The versions of the second place for followed chains; none of them ever falls."""
        return self._followed

    def raise_followed(self, chain: str, version: int, at_ms: int) -> None:
        """The second place is to know that a followed chain went so far."""
        if version > self._followed.get(chain, (0, 0))[0]:
            self._followed[chain] = (version, at_ms)
            self._raised += 1

    def clock(self, tx: Tx, now_ms: int) -> Clock:
        """The wall clock beside the latest it ever was."""
        return Clock(now_ms, owners.clock_high_ms(tx))


class Reader:
    """What one recipient may be made to do by each sender: for one request, in its transaction."""

    def __init__(
        self, office: Authority, tx: Tx, own_host: str, recipient: str, now_ms: int
    ) -> None:
        self._tx = tx
        self._own_host = own_host
        self._recipient = recipient
        self._now_ms = now_ms
        self._book = office.book(tx)
        self._clock = office.clock(tx, now_ms) if self._book.entries else Clock(now_ms)
        self._grants: dict[tuple[str, int | None], Grant] = {}
        self._lines: dict[tuple[object, ...], Lines] = {}
        self._peers: dict[int, PeerRow] = {}

    def grant(self, written: Written) -> Grant:
        """What the owner delegated for mail of this sender: an identity of one host."""
        sender, peer_no = written.sender_identity, written.peer_no
        known = self._grants.get((sender, peer_no))
        if known is None and sender == self._recipient and peer_no is None:
            known = Grant(reason=authority.ONESELF)
        if known is None:
            host = self._own_host if peer_no is None else self.peer(peer_no).key_id
            known = self._book.grant(self._recipient, Sender(sender, host), self._clock)
            self._grants[sender, peer_no] = known
        return known

    def peer(self, no: int) -> PeerRow:
        """The paired host with this key, looked up once a request."""
        known = self._peers.get(no)
        if known is None:
            known = self._peers[no] = peers.by_no(self._tx, no)
        return known

    def lines(self, written: Written) -> Lines:
        """The receiver's own words on one message, computed (and verified) once a request."""
        what: tuple[object, ...] = (
            written.sender_identity,
            written.peer_no,
            written.hop,
            written.external,
        )
        if written.owner_key is not None:
            what = (written.no, written.owner_key)
        known = self._lines.get(what)
        if known is None:
            known = self._lines[what] = self._compute(written)
        return known

    def _compute(self, written: Written) -> Lines:
        if written.owner_key is not None:
            if _is_owners(self._tx, written, self._own_host):
                return lines.owner_lines(written.owner_key)
            lowered = authority.lowered(authority.NOTHING, Content(is_verified=False))
            return lines.unverified_lines(lowered, rfc3339)
        content = Content(bool(written.external), written.hop)
        lowered = authority.lowered(self.grant(written), content)
        if written.peer_no is not None:
            return lines.paired_lines(self.peer(written.peer_no).label, lowered, rfc3339)
        return lines.local_lines(lowered, rfc3339)


def _is_owners(tx: Tx, written: Written, own_host: str) -> bool:
    """Whether the stored mail is signed by a key of the owner's, now verified."""
    keys = {key.key_id: key for key in owners.keys(tx)}
    key = keys.get(written.owner_key or "")
    return key is not None and verified_mail(
        messages.signed(tx, written.no, key.key_id), key, own_host
    )


def verified_mail(record: Record, key: OwnerKey, own_host: str) -> bool:
    """Whether `record` is mail that this key of the owner's signed for this host."""
    try:
        payload = verify(
            record, kind="owner-mail", signers={key.key_id: key.public}, audience=own_host
        )
    except RecordError:
        return False
    return payload.get("owner") == key.key_id
