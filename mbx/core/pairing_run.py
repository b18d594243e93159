"""The two machines of a pairing, without I/O: a text or the time comes in, commands go out.

=========== ==================================== ==============================================
state       inviter waits for                    joiner waits for
=========== ==================================== ==============================================
opening     `join`                               (its `start`, which sends `join`)
offering    `prove`                              `invite`
proving     `finish`                             `accept`
comparing   the two people (`confirm`, `decline`) and the other side's `confirmed`
ended       nothing
=========== ==================================== ==============================================

A `no` ends a run in every state; so does whatever is not waited for. An `Invitation` is shared by
all connections that come in while it is open: strangers run beside each other and cannot keep the
right one out, but five wrong proofs burn it. The first right proof takes it, whatever becomes of
that run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

from mbx.core import hkdf, keys, pairing
from mbx.core.canonical import JsonValue, encode
from mbx.core.limits import (
    HELLO_DEADLINE_MS,
    INVITATION_TTL_MS,
    PAIRING_STEP_MS,
    WRONG_PROOFS_MAX,
)
from mbx.core.pairing import INVITER, JOINER, PROTOCOLS, About, Match, Own, Refused, Transcript
from mbx.core.pairing_code import PairingCode
from mbx.core.peer import Pin

State = Literal["opening", "offering", "proving", "comparing", "ended"]

PAIRED: Final = "paired"
"""The code of a run that ended well."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send this text to the other side."""

    text: str


@dataclass(frozen=True, slots=True)
class WrongProof:
    """Somebody tried a wrong code: tell the owner. `left`: tries before the invitation is burnt."""

    left: int


@dataclass(frozen=True, slots=True)
class Compare:
    """Both sides know the code: show the short string and ask the person."""

    match: Match


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The other side's person agreed, and sent these records (not looked into)."""

    records: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class End:
    """Close the link once what was sent has left. `code`: `PAIRED`, or a key of `REFUSALS`.

    After `Compare` it takes nothing back: what each person decided is on record at each side.
    """

    code: str
    words: str
    next_step: str


Command = Send | WrongProof | Compare | Confirmed | End
"""What a machine asks of its driver, in this order."""

_Content: TypeAlias = Mapping[str, JsonValue]
_Step: TypeAlias = Callable[[_Content, int], list[Command]]
_Heard = TypeVar("_Heard")


class Clock(NamedTuple):
    """Both clocks of one moment, ms: `now_ms` is monotonic, `wall_ms` UTC."""

    now_ms: int
    wall_ms: int


class Invitation:
    """A code that waits for its one use; times are monotonic ms."""

    def __init__(
        self, code: PairingCode, invitation_id: str, now_ms: int, ttl_ms: int = INVITATION_TTL_MS
    ) -> None:
        self.id: Final = invitation_id
        self.expires_ms: Final = now_ms + ttl_ms
        self.wrong_proofs = 0
        self._code = code
        self._state: Literal["open", "busy", "used"] = "open"

    def refusal(self, now_ms: int) -> str | None:
        """Why it is not to be had (a key of `REFUSALS`); None while it is."""
        if self.wrong_proofs >= WRONG_PROOFS_MAX:
            return "burnt"
        if self._state != "open":
            return self._state
        return "expired" if now_ms >= self.expires_ms else None

    def is_of(self, code: PairingCode) -> bool:
        """Whether this is its code: for the host that invites, and for no run."""
        return hkdf.is_same(self._code.secret(), code.secret())

    def key_of(self, transcript: bytes) -> bytes:
        """The key that a run with this transcript must have."""
        return pairing.key_of(self._code.secret(), transcript)

    def wronged(self) -> int:
        """Count a wrong proof; how many more it takes to burn it."""
        self.wrong_proofs += 1
        return max(0, WRONG_PROOFS_MAX - self.wrong_proofs)

    def take(self) -> None:
        """A run has proved the code; no other will, ever."""
        self._state = "busy"

    def settle(self) -> None:
        """The run that took it is over, or has only its people to wait for."""
        self._state = "used"


class _Run:
    """What both roles have in common: the frame of states, refusals, and the comparing phase.

    `nonce`: 32 random bytes. Raises ValueError for another length, and for words about this host
    (label, addresses, certificate) that the other side would refuse.
    """

    role: str

    def __init__(self, own: Own, nonce: bytes, clock: Clock, protocols: Sequence[int]) -> None:
        if len(nonce) != pairing.NONCE_BYTES:
            raise ValueError(f"a nonce has {pairing.NONCE_BYTES} random bytes")
        self._own = own
        self._nonce = nonce
        self._protocols = tuple(protocols)
        self._ahead_ms = clock.wall_ms - clock.now_ms
        self._heard_ms = 0  # our wall clock when the other's was told
        self._agreed_here = self._agreed_there = False
        self._transcript = b""
        self._steps: dict[State, tuple[str, _Step]] = {
            "comparing": ("confirmed", self._confirmed_there)
        }
        self.state: State = "opening"
        self.match: Match | None = None
        """What the run has come to; stays when the link ends."""
        self.deadline: int | None = clock.now_ms + HELLO_DEADLINE_MS
        """When to call `tick` (monotonic ms); None: never."""

    def receive(self, text: str, now_ms: int) -> list[Command]:
        """The other side's next text."""
        if self.state == "ended":
            return []
        try:
            content = pairing.read(text, proved=self.state == "comparing")
            if content["type"] == "no":
                return self._refused_there(content)
            awaited, step = self._steps.get(self.state, ("", None))
            if step is None or content["type"] != awaited:
                raise Refused("malformed")
            return step(content, now_ms)
        except Refused as refused:
            return self._refuse(refused)

    def tick(self, now_ms: int) -> list[Command]:
        """The time is what it is; ends a run whose deadline has passed."""
        if self.deadline is None or now_ms < self.deadline:
            return []
        return self._refuse(Refused("timeout"))

    def lost(self) -> list[Command]:
        """The link is gone."""
        return [] if self.state == "ended" else self._end(Refused("lost"))

    def confirm(self, records: Sequence[str] = ()) -> list[Command]:
        """The person here agreed; sends up to four signed records along.

        Raises ValueError outside of `comparing`, the second time, and for more than the other side
        would read.
        """
        if self.state != "comparing" or self._agreed_here:
            raise ValueError("there is nothing to confirm")
        said = pairing.confirmed_message(records)
        _as_heard(lambda: pairing.read_confirmed(pairing.read(encode(said), proved=True)))
        self._agreed_here = True
        return [_said(said), *(self._end(None) if self._agreed_there else [])]

    def decline(self) -> list[Command]:
        """The person here said no, or gave up waiting."""
        return [] if self.state == "ended" else self._refuse(Refused("declined"))

    def _move(self, state: State, now_ms: int, ttl_ms: int) -> None:
        self.state, self.deadline = state, now_ms + ttl_ms

    def _clock_ms(self, now_ms: int) -> int:
        return max(0, now_ms + self._ahead_ms)

    def _refuse(self, refused: Refused) -> list[Command]:
        no = _said(pairing.no_message(refused.code, self._protocols))
        return [no, *self._end(refused)]

    def _refused_there(self, content: _Content) -> list[Command]:
        """A `no` is never answered, not even a malformed one."""
        try:
            return self._end(Refused(*pairing.read_no(content)))
        except Refused as refused:
            return self._end(refused)

    def _end(self, refused: Refused | None) -> list[Command]:
        self.state, self.deadline = "ended", None
        if refused is None:
            return [End(PAIRED, "both sides agreed", "")]
        words = pairing.refusal(refused.code, self._protocols, refused.theirs)
        return [End(refused.code, *words)]

    def _confirmed_there(self, content: _Content, _now_ms: int) -> list[Command]:
        if self._agreed_there:
            raise Refused("malformed")
        told = Confirmed(pairing.read_confirmed(content))
        self._agreed_there = True
        return [told, *(self._end(None) if self._agreed_here else [])]

    def _compare(self, invite: About, prove: About, now_ms: int) -> Compare:
        """Both sides have proved it: from here on people decide."""
        other = prove if self.role == INVITER else invite
        self.match = Match(
            role=self.role,
            protocol=invite.protocol,
            invitation=invite.invitation,
            transcript=self._transcript,
            short=pairing.short_string(self._transcript),
            peer=other.who,
            pin=_pin(invite, prove, other, self._transcript),
            adopts=prove.adopt,
            skew_ms=other.clock_ms - self._heard_ms,
        )
        self._move("comparing", now_ms, INVITATION_TTL_MS)
        return Compare(self.match)


class Inviter(_Run):
    """One connection's run of the side that shows the code.

    Raises ValueError as every run does, and for a host without owner.
    """

    role = INVITER

    def __init__(
        self,
        invitation: Invitation,
        own: Own,
        nonce: bytes,
        clock: Clock,
        protocols: Sequence[int] = PROTOCOLS,
    ) -> None:
        super().__init__(own, nonce, clock, protocols)
        self._invitation = invitation
        self._has_taken = False
        self._join: pairing.Join
        self._prove: About
        self._invite = _as_heard(lambda: self._about(clock.now_ms))
        self._steps |= {
            "opening": ("join", self._joined),
            "offering": ("prove", self._proved),
            "proving": ("finish", self._finished),
        }

    def _about(self, now_ms: int) -> About:
        said = pairing.invite_message(
            self._own, self._protocols, self._invitation.id, self._nonce, self._clock_ms(now_ms)
        )
        return pairing.read_invite(_fitting(said), self._protocols, self._own.certificate)

    def _joined(self, content: _Content, now_ms: int) -> list[Command]:
        self._join = pairing.read_join(content, self._protocols)
        self._check_open(now_ms)
        self._invite = self._about(now_ms)._replace(protocol=self._join.protocol)
        self._move("offering", now_ms, PAIRING_STEP_MS)
        return [_said(self._invite.content)]

    def _proved(self, content: _Content, now_ms: int) -> list[Command]:
        self._check_open(now_ms)
        self._prove, given = pairing.read_prove(content)
        if not hkdf.is_same(pairing.commitment(self._prove.content), self._join.commitment):
            raise Refused("malformed")
        if self._prove.who.public == self._own.signer.public:
            raise Refused("itself")
        self._transcript = Transcript(
            self._join.content, self._invite.content, self._prove.content, self._own.certificate
        ).digest()
        key = self._invitation.key_of(self._transcript)
        if not hkdf.is_same(given, pairing.proof(key, JOINER)):
            left = self._invitation.wronged()
            return [WrongProof(left), *self._refuse(Refused("wrong-code" if left else "burnt"))]
        self._invitation.take()
        self._has_taken = True
        self._heard_ms = self._clock_ms(now_ms)
        signature = self._own.signer.sign(pairing.signed_text(INVITER, self._transcript))
        self._move("proving", now_ms, PAIRING_STEP_MS)
        return [_said(pairing.accept_message(pairing.proof(key, INVITER), signature))]

    def _finished(self, content: _Content, now_ms: int) -> list[Command]:
        signature = pairing.read_finish(content)
        signed = pairing.signed_text(JOINER, self._transcript)
        if not keys.verify(self._prove.who.public, signature, signed):
            raise Refused("malformed")
        self._invitation.settle()
        return [self._compare(self._invite, self._prove, now_ms)]

    def _check_open(self, now_ms: int) -> None:
        code = self._invitation.refusal(now_ms)
        if code is not None:
            raise Refused(code)

    def _end(self, refused: Refused | None) -> list[Command]:
        if self._has_taken:
            self._invitation.settle()
        return super()._end(refused)


class Joiner(_Run):
    """The side that types the code. `certificate`: the DER of the inviter's, as seen in TLS.

    Raises ValueError as every run does.
    """

    role = JOINER

    def __init__(
        self,
        code: PairingCode,
        own: Own,
        certificate: bytes,
        nonce: bytes,
        clock: Clock,
        protocols: Sequence[int] = PROTOCOLS,
    ) -> None:
        super().__init__(own, nonce, clock, protocols)
        self._code = code
        self._certificate = certificate
        self._join: _Content = {}
        self._invite: About
        self._prove = _as_heard(lambda: self._about(clock.now_ms))
        self._steps |= {
            "offering": ("invite", self._invited),
            "proving": ("accept", self._accepted),
        }

    def _about(self, now_ms: int) -> About:
        said = pairing.prove_message(
            self._own, self._nonce, self._clock_ms(now_ms), adopt=self._own.owner is None
        )
        return pairing.read_prove(_fitting({**said, "proof": "0" * 64}))[0]

    def start(self, now_ms: int) -> list[Command]:
        """The link is up: speak first. Raises ValueError the second time."""
        if self._join or self.state != "opening":
            raise ValueError("a run is started once")
        self._prove = self._about(now_ms)
        committed = pairing.commitment(self._prove.content)
        self._join = pairing.join_message(self._protocols, committed)
        self._move("offering", now_ms, PAIRING_STEP_MS)
        return [_said(self._join)]

    def _invited(self, content: _Content, now_ms: int) -> list[Command]:
        self._invite = pairing.read_invite(content, self._protocols, self._certificate)
        if self._invite.who.public == self._own.signer.public:
            raise Refused("itself")
        self._heard_ms = self._clock_ms(now_ms)
        self._transcript = Transcript(
            self._join, content, self._prove.content, self._certificate
        ).digest()
        given = pairing.proof(self._key(), JOINER)
        self._move("proving", now_ms, PAIRING_STEP_MS)
        return [_said({**self._prove.content, "proof": given.hex()})]

    def _accepted(self, content: _Content, now_ms: int) -> list[Command]:
        given, signature = pairing.read_accept(content)
        signed = pairing.signed_text(INVITER, self._transcript)
        is_proved = hkdf.is_same(given, pairing.proof(self._key(), INVITER))
        if not is_proved or not keys.verify(self._invite.who.public, signature, signed):
            raise Refused("unproven")
        own = self._own.signer.sign(pairing.signed_text(JOINER, self._transcript))
        finish = _said(pairing.finish_message(own))
        return [finish, self._compare(self._invite, self._prove, now_ms)]

    def _key(self) -> bytes:
        return pairing.key_of(self._code.secret(), self._transcript)


def refusal_text(code: str) -> str:
    """The `no` for whoever comes when no machine runs (not-inviting); `code` as in `REFUSALS`."""
    return _said(pairing.no_message(code, PROTOCOLS)).text


def _said(content: _Content) -> Send:
    return Send(encode(dict(content)))


def _fitting(said: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """What the other side's reader makes of it. Raises Refused."""
    return pairing.read(encode(said))


def _as_heard(reading: Callable[[], _Heard]) -> _Heard:
    """Our own words as the other side reads them. Raises ValueError if it would refuse them."""
    try:
        return reading()
    except Refused:
        raise ValueError("the other side would refuse what this host tells") from None


def _pin(invite: About, prove: About, other: About, transcript: bytes) -> Pin:
    """What either side records of the other one."""
    inviters, joiners = invite.who.owner, prove.who.owner
    shared = inviters if joiners in (None, inviters) else None
    return Pin(
        other.who.host,
        other.who.public,
        pairing.certificate_hash(other.who.certificate),
        other.who.label,
        None if shared is None else keys.key_id("owner", shared),
        transcript,
    )
