"""Which of two paired hosts dials, when it tries again, and which of two links between them stays.

Both ends decide by the same two key ids and so agree without asking. The discipline that makes the
comparison of streams true is the caller's: **a host has one live link to a peer**. Whichever loses
is closed before the hello of the other is made up, since a hello tells what is committed and the
loser could still commit.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

from mbx.core.backoff import pause_ms
from mbx.core.limits import REDIAL_REFUSED_MS, REDIAL_WOKEN_MS, STABLE_LINK_MS, STAND_BY_MS
from mbx.core.streams import STOPS

Initiative = Literal["dial", "stand-by", "wait"]

FUTILE: Final = frozenset({"unpaired", "version-mismatch", *STOPS})
"""Codes of a closed link after which another try helps only if somebody changes something.

The peer itself says these. `wrong-host` is not among them: whoever sits on the way, or has got an
address that was the peer's, can show another certificate, and must not silence a link by that.
"""


def initiative(ours: str, theirs: str, *, we_can: bool, they_can: bool | None) -> Initiative:
    """What the host with key id `ours` does about a link to `theirs`.

    `we_can` dial when we know an address of theirs; `they_can` is what we know of the opposite, or
    None. The only one that can dials. Of two the smaller key id dials; the other stands by and
    dials a little later all the same: the address that the first one knows may be an old one.
    """
    if not we_can:
        return "wait"
    return "dial" if they_can is False or ours < theirs else "stand-by"


def newer_stays(ours: str, theirs: str, *, older_is_ours: bool, newer_is_ours: bool) -> bool:
    """Of two links of one pair, whether the newer one replaces the older; the other is closed.

    `…_is_ours`: we dialled it. A host that dials again has lost its first link, so the newer stays.
    Of two that were dialled from both sides, the one stays that the smaller key id dialled. If that
    is the older, ask for a sign of life on it at once: the peer may have dialled because it is
    gone, and nothing else would tell before the next ping.
    """
    if older_is_ours == newer_is_ours:
        return True
    return newer_is_ours == (ours < theirs)


@dataclass(frozen=True, slots=True)
class Dialling:
    """When the next try to reach one peer is due; each event gives the state after it.

    `due_ms` (monotonic) is None while a try runs, while a link stands, or when it is for the other
    to dial. `failures` are those in a row; `tried_ms` is when the last try began, `stood_ms` since
    when a link stands, whoever dialled it. `is_first`: no link has stood since the pairing, so
    nobody knows yet whether the other can dial, and whoever can does so without standing by.
    `is_woken`: a sign of life came while a try ran; if that fails, it counts for the next one.
    """

    initiative: Initiative
    due_ms: int | None = None
    failures: int = 0
    is_trying: bool = False
    tried_ms: int | None = None
    stood_ms: int | None = None
    is_first: bool = False
    is_woken: bool = False

    @classmethod
    def begin(cls, what: Initiative, now_ms: int, *, is_first: bool = False) -> "Dialling":
        """At the start, or for a new peer: try now, or leave the other a moment to do it."""
        return _due_in(cls(what, is_first=is_first), 0, now_ms)

    def paired(self, now_ms: int) -> "Dialling":
        """Both hosts have recorded the pairing only now: earlier tries could not succeed."""
        anew = replace(self, failures=0)
        return anew if self.due_ms is None else _due_in(anew, 0, now_ms)

    def trying(self, now_ms: int) -> "Dialling":
        """A try begins. Raises ValueError when none is due: there is one at a time."""
        if self.due_ms is None or now_ms < self.due_ms:
            raise ValueError("no try is due")
        return replace(self, due_ms=None, is_trying=True, tried_ms=now_ms)

    def failed(self, code: str, now_ms: int, chance: bytes) -> "Dialling":
        """The try that ran gave no link that stands; `code` is that of the link, or any other word.

        While another link stands, that says nothing.
        """
        over = replace(self, is_trying=False, is_woken=False)
        if self.stood_ms is not None or not self.is_trying:
            return over
        after = _after(over, self.failures + 1, code, now_ms, chance)
        return after.woken(now_ms) if self.is_woken else after

    def stood(self, now_ms: int) -> "Dialling":
        """A link stands: both said hello, compared their streams and go on. Nobody has to dial.

        A try of ours that still runs is to be given up, and not reported any more.
        """
        over = replace(self, is_trying=False, is_first=False, is_woken=False)
        return replace(over, due_ms=None, stood_ms=now_ms)

    def ended(self, code: str, now_ms: int, chance: bytes) -> "Dialling":
        """The link that stood is gone, and there is no other.

        The pauses start from the beginning only if it stood for a while: a link that comes and goes
        is a failure each time.
        """
        if self.stood_ms is None:
            return self
        is_stable = now_ms - self.stood_ms >= STABLE_LINK_MS
        over = replace(self, stood_ms=None)
        return _after(over, 1 if is_stable else self.failures + 1, code, now_ms, chance)

    def woken(self, now_ms: int) -> "Dialling":
        """A sign of life: try at once (but not all the time), however long the pause would be.

        For what says that a try may succeed now: the peer was heard of, an address is new, this
        machine woke up or got a network. Pauses go on growing if it does not.
        """
        if self.due_ms is None:
            return replace(self, is_woken=True) if self.is_trying else self
        soon_ms = now_ms if self.tried_ms is None else max(now_ms, self.tried_ms + REDIAL_WOKEN_MS)
        return replace(self, due_ms=min(self.due_ms, soon_ms))

    def knowing(self, what: Initiative, now_ms: int) -> "Dialling":
        """Addresses changed, and with them perhaps whose turn it is: a new chance to succeed."""
        changed = replace(self, initiative=what, due_ms=None)
        if self.is_trying or self.stood_ms is not None:
            return changed
        due = _due_in(changed, 0, now_ms)
        return due.woken(now_ms) if what == "dial" else due


def _after(state: Dialling, failures: int, code: str, now_ms: int, chance: bytes) -> Dialling:
    wait_ms = REDIAL_REFUSED_MS if code in FUTILE else pause_ms(failures, chance)
    return _due_in(replace(state, failures=failures), wait_ms, now_ms)


def _due_in(state: Dialling, wait_ms: int, now_ms: int) -> Dialling:
    if state.initiative == "wait":
        return replace(state, due_ms=None)
    leave_ms = STAND_BY_MS if state.initiative == "stand-by" and not state.is_first else 0
    return replace(state, due_ms=now_ms + wait_ms + leave_ms)
