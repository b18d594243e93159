"""Two people pair two hosts, each at a terminal: a code, twelve digits, a signature.

The daemons do the talking (`pair.*`); here the person is told, asked, and has the records signed.
Everything about the pairing goes to the terminal (`/dev/tty`): the code is in no argument, no
variable, no output and no answer that is kept. Whoever leaves before having signed declines.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from typing import Final

from mbx.cli.authority import another_owner, apply_record, known_owner, require_owners_terminal
from mbx.cli.output import cell
from mbx.cli.session import Session
from mbx.core.errors import MbxError
from mbx.core.limits import INVITATION_TTL_MS
from mbx.core.names import check_host_label
from mbx.core.pairing_code import PairingCode, parse_code
from mbx.core.record import Record
from mbx.core.text import visible
from mbx.owner import keyfile, requests, signing
from mbx.owner.draft import CONFIRM_ID_CHARS, Draft, Expected, read_draft
from mbx.owner.keyfile import SealedKey
from mbx.owner.terminal import Terminal, departing
from mbx.paths import printable, quoted
from mbx.wire import JsonObject

_NEWS_S: Final = 40.0
"""How long the daemon may take for news: twice as long as it waits for any."""
_TRIES: Final = 3
_MINUTES_TOLD: Final = frozenset({5, 2, 1})
_SECONDS_BELOW_S: Final = 120
"""A term below this is told in seconds."""
_LOOK: Final = (
    "mbx peers list tells whether a link stands; if none ever does, remove it and pair again"
)
_LEFT: Final = f"It stays recorded here, and the other side may agree yet: {_LOOK}."
_TERM: Final = re.compile("([1-9][0-9]{0,5})(s|m)")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000}

_CODES: Final = {
    "version-mismatch": "version-mismatch",
    "expired": "closed",
    "used": "closed",
    "burnt": "closed",
    "declined": "closed",
    "left": "closed",
    "replaced": "closed",
    "stopped": "closed",
    "undecided": "closed",
}
"""How a pairing ended -> the code of the error; peer-refused for all other ends."""


def term_ms(text: str) -> int:
    """Milliseconds of ``10m`` or ``90s``, ten minutes at most. Raises MbxError usage."""
    match = _TERM.fullmatch(text)
    ttl_ms = int(match[1]) * _UNIT_MS[match[2]] if match is not None else 0
    if not 0 < ttl_ms <= INVITATION_TTL_MS:
        minutes = INVITATION_TTL_MS // _UNIT_MS["m"]
        words = f"--ttl {text!r} is no time up to {minutes} minutes"
        raise MbxError("usage", words, f"write it like {minutes}m or 90s")
    return ttl_ms


def invite(
    session: Session, listen: tuple[str, ...], ttl_ms: int | None, label: str | None
) -> None:
    """Show a code and the addresses, and see the pairing through. Raises MbxError."""
    from mbx.owner.seat import owners_terminal

    _check_label(label)
    with owners_terminal() as terminal:
        require_owners_terminal(session)
        owner, host = known_owner(session)
        if owner is None:
            raise MbxError("owner-required", "this host has no owner yet", "mbx owner init")
        key = _own_key(session, owner)
        invited = session.ask("pair.invite", listen=listen, ttl_ms=ttl_ms)
        code = str(invited.pop("code"))
        ceremony = Ceremony(session, terminal, invited, label, key, str(host))
        with ceremony.declining():
            _show_invitation(terminal, invited, code)
            del code
            answer = ceremony.hold()
    _tell(session, answer)


def join(session: Session, address: str, label: str | None) -> None:
    """Ask for the code, go there, and see the pairing through. Raises MbxError."""
    from mbx.core.endpoints import parse_endpoint
    from mbx.owner.seat import owners_terminal

    endpoint = parse_endpoint(address)
    _check_label(label)
    with owners_terminal() as terminal:
        require_owners_terminal(session)
        owner, host = known_owner(session)
        key = None if owner is None else _own_key(session, owner)
        if key is None:
            terminal.show(
                "This host has no owner. It will take the owner of the host that it joins for its"
                " own; to have one of its own, press Ctrl-C and run: mbx owner init",
                *_unheeded(label),
                "",
            )
        code = _asked_code(terminal)
        joined = session.ask("pair.join", address=str(endpoint), code=code.shown())
        del code
        ceremony = Ceremony(session, terminal, joined, label, key, str(host))
        with ceremony.declining():
            terminal.show(f"Connecting to {endpoint} ...")
            answer = ceremony.hold()
    _tell(session, answer)


class Ceremony:
    """One pairing as one person sees it: wait, compare, agree, wait for the other person.

    `key` None: this host has no owner and adopts one.
    """

    def __init__(
        self,
        session: Session,
        terminal: Terminal,
        told: JsonObject,
        label: str | None,
        key: SealedKey | None,
        host: str,
    ) -> None:
        self._session = session
        self._terminal = terminal
        self._told = told
        self._label = label
        self._key = key
        self._host = host
        self._has_agreed = False

    @contextmanager
    def declining(self) -> Iterator[None]:
        """Whoever leaves inside, in whatever way, declines; once it is signed, only leaves.

        A terminal that is closed, and any other signal that ends the process, is such a way; of
        being killed the daemon hears by the connection that is held.
        """
        run = {"run": self._told["run"]}
        held = self._session.client().hold("pair.hold", run)
        with closing(held), departing() as departure:
            try:
                yield
            except BaseException as why:
                departure.hold()
                if not self._has_agreed and not self._told.get("end"):
                    with suppress(MbxError):
                        self._session.ask("pair.decline", **run)
                if self._has_agreed and isinstance(why, KeyboardInterrupt):
                    self._terminal.show(_LEFT)
                raise

    def hold(self) -> JsonObject:
        """All of it; what came of it. Raises MbxError for every other end."""
        self._wait(lambda told: told["state"] == "comparing")
        other = self._told["compare"]
        draft = self._drafted(other) if self._key is not None else None
        self._show_other(other)
        self._ask_whether_same(other)
        self._look(seen=0)  # the other person may have said no meanwhile
        if self._key is None:
            applied = self._adopt(other)
        else:
            assert draft is not None
            applied = self._sign(other, draft, self._key)
        self._has_agreed = True
        return self._await_other(applied)

    # -- news -------------------------------------------------------------------------------------

    def _wait(self, is_there: Callable[[JsonObject], bool]) -> None:
        """Until the daemon tells of what is awaited. Raises MbxError when the pairing is over."""
        minutes_told = {_minutes(self._told)}  # the code was shown with them
        while not is_there(self._told):
            before, minutes = self._told, _minutes(self._told)
            if minutes in _MINUTES_TOLD - minutes_told and self._told["state"] == "waiting":
                minutes_told.add(minutes)
                self._terminal.show(f"{minutes} min left.")
            self._look(seen=int(before["seen"]))
            if self._told["wrong_codes"] > before["wrong_codes"]:
                self._show_wrong_code()

    def _look(self, seen: int) -> None:
        client = self._session.client(answer_s=_NEWS_S)
        wanted = {"run": self._told["run"], "seen": seen}
        self._told = client.call("pair.state", wanted, changes=False)
        if self._told["state"] == "over" and not self._has_agreed:
            raise self._over(self._told["end"], self._told.get("compare"))

    def _over(self, end: JsonObject, other: JsonObject | None) -> MbxError:
        """Why it has ended; where the other host knew the pairing first, that is what to tell."""
        if other is None or end["code"] != "declined":
            return _refusal(end)
        for peer in self._session.ask("peers.list")["peers"]:
            if peer["host"] == other["key_id"] and not peer["ended_at"]:
                label = cell(peer["label"])
                return MbxError(
                    "conflict",
                    f"that host is paired already: it is {label}",
                    f"mbx peers list; if only one of the two knows of the pairing: mbx peers remove"
                    f" {label}, then pair again",
                    peer=label,
                )
        step = "if nobody there said no: mbx peers list there may know this host already"
        return MbxError("closed", end["words"], step, reason=end["code"])

    def _show_wrong_code(self) -> None:
        number, left = self._told["wrong_codes"], self._told["wrong_codes_left"]
        self._terminal.show(
            f"A wrong code was tried ({number} so far; {left} more make this one void). If nobody"
            " mistyped it on the other machine, somebody is guessing: press Ctrl-C."
        )

    # -- what the person sees and says ------------------------------------------------------------

    def _show_other(self, other: JsonObject) -> None:
        rows = [
            ("calls itself", cell(other["label"])),
            ("key", cell(other["key_id"])),
            ("owner", self._whose(other)),
            (
                "addresses",
                ", ".join(map(cell, other["addresses"])) or "none: it will dial this one",
            ),
        ]
        if other.get("skew"):
            rows.append(("clock", f"{cell(other['skew'])} (this hinders nothing)"))
        self._terminal.show(
            "",
            "The other host knows the code.",
            "",
            *(f"  {name:<12}  {value}" for name, value in rows),
            "",
            "Both screens must show the same digits:",
            "",
            f"    {cell(other['short'])}",
            "",
        )

    def _whose(self, other: JsonObject) -> str:
        owner = other.get("owner")
        if owner is None:
            return "none: it takes you for its owner"
        if self._key is None:
            return f"{cell(owner)} (will be the owner of this host too)"
        if owner == self._key.key_id:
            return "you"
        return f"{cell(owner)} (not you; it has no power here)"

    def _ask_whether_same(self, other: JsonObject) -> None:
        """Raises MbxError closed for anything but yes."""
        for _ in range(_TRIES):
            answer = self._terminal.ask("Does the other screen show the same? (yes or no)")
            if answer.strip().lower() == "yes":
                return
            if answer.strip().lower() in ("no", "n"):
                break
            self._terminal.show("Compare the digits, then type yes or no.")
        raise MbxError(
            "closed",
            "the digits are not the same, or nobody said so: nothing was paired",
            "if they differed, somebody sat in between: try another network, then mbx pair again",
            reason="declined",
        )

    # -- records ----------------------------------------------------------------------------------

    def _drafted(self, other: JsonObject) -> Draft:
        """The draft of this host's record, under a label that is free. Raises MbxError."""
        for tried in range(1, _TRIES + 1):
            try:
                return self._draft("peer", other, label=self._label)
            except MbxError as error:
                if error.code == "closed":
                    self._look(seen=0)  # the other person was faster: what they said is the reason
                if error.code not in ("name-taken", "name-invalid") or tried == _TRIES:
                    raise
                self._ask_label(error, str(other["label"]))
        raise AssertionError("the last try has raised")

    def _ask_label(self, refused: MbxError, told: str) -> None:
        free = next(iter(_texts(refused.facts.get("suggestions"))), told)
        self._terminal.show(f"{visible(refused.message)}.")
        given = self._terminal.ask(f"Another label for the other host (Enter: {free}):")
        self._label = given.strip() or free

    def _draft(self, act: str, other: JsonObject, **more: object) -> Draft:
        pairing = other["pairing"]
        return read_draft(self._session.ask("owner.draft", act=act, pairing=pairing, **more))

    def _sign(self, other: JsonObject, draft: Draft, key: SealedKey) -> JsonObject:
        """Show, agree, unlock, apply; first what the other host needs to adopt our owner."""
        wanted = [(draft, Expected({"peer"}, key.key_id, self._host))]
        if other["adopts"]:
            there = str(other["key_id"])
            for act, kind in (("enrolment", "rotate"), ("peer-there", "peer")):
                expected = Expected({kind}, key.key_id, there)
                wanted.append((self._draft(act, other), expected))
        for one, expected in wanted:
            signing.present(self._terminal, one, expected)
        unlocked = signing.unlock(self._terminal, key)
        own, *theirs = (signing.signed(one, [unlocked]) for one, _ in wanted)
        del unlocked
        if theirs:
            enrolment, peer = map(requests.as_object, theirs)
            self._session.ask(
                "pair.enclose", pairing=other["pairing"], enrolment=enrolment, peer=peer
            )
        return apply_record(self._session, own)

    def _adopt(self, other: JsonObject) -> JsonObject:
        """What the inviter's owner signed for this host: shown in full, and agreed to here."""
        self._terminal.show("Waiting for the owner to sign on the other host ...")
        self._wait(lambda told: bool(told["agreed"]["there"]))
        owner = str(other["owner"])
        for told in self._told["records"]:
            record = Record(told["kind"], told["payload"], told["signatures"])
            draft = Draft(
                record.kind,
                record.payload,
                record.id[:CONFIRM_ID_CHARS],
                (f"the owner of {other['label']} has signed this for this host",),
            )
            expected = Expected({record.kind}, owner, self._host)
            signing.present(self._terminal, draft, expected, "To adopt")
        wanted = {"pairing": other["pairing"]}
        return self._session.client().call("pair.adopt", wanted, changes=True)

    def _await_other(self, applied: JsonObject) -> JsonObject:
        """Until the other person has agreed too. Raises MbxError where that stays unknown."""
        after = applied.get("after") or {}
        peer = cell(after.get("peer"))
        if not self._told["agreed"]["there"]:
            self._terminal.show(f"Recorded here as {peer}. Waiting for the other side to agree ...")
        try:
            self._look(seen=0)
            while self._told["state"] != "over":
                self._look(seen=int(self._told["seen"]))
        except MbxError as error:  # its own words would have a new pairing begun
            raise MbxError(
                "peer-refused",
                "this host has recorded the pairing, but nothing more is told of the other one"
                f" ({error.code}): this daemon was started again, or does not answer",
                _LOOK,
                reason="unanswered",
                peer=after.get("peer"),
            ) from None
        end = self._told["end"]
        if end["code"] != "paired":
            raise MbxError(
                "peer-refused",
                end["words"],
                end["next"],
                reason=end["code"],
                peer=after.get("peer"),
            )
        return {"paired": True, **after, "id": applied.get("id"), "adopted": applied.get("owner")}


# -- small parts ----------------------------------------------------------------------------------


def _own_key(session: Session, owner: str) -> SealedKey:
    """The owner's key file here. Raises MbxError not-found, or conflict for another owner's."""
    path = session.paths.owner_key_path()
    try:
        key = keyfile.load(path)
    except MbxError as error:
        if error.code != "not-found":
            raise
        step = f"put a copy of the owner's key there: install -m 600 COPY {quoted(printable(path))}"
        raise MbxError(error.code, error.message, step) from None
    if key.key_id != owner:
        raise another_owner(path, owner, key.key_id)
    return key


def _check_label(label: str | None) -> None:
    """Raises MbxError name-invalid for what is no label, before anybody types a code."""
    if label is not None:
        check_host_label(label)


def _unheeded(label: str | None) -> tuple[str, ...]:
    """Who adopts an owner has the other host called what that owner signs."""
    if label is None:
        return ()
    words = f"That owner also says what the other host is called here: --label {label} is not used."
    return (f"{words} Afterwards: mbx peers addr HOST --label {label}",)


def _minutes(told: JsonObject) -> int:
    """How many minutes a code is good yet, a part of one as one."""
    return -(-int(told["left_s"]) // 60)


def _asked_code(terminal: Terminal) -> PairingCode:
    """The code as it is typed here. Raises MbxError usage after three tries."""
    for tried in range(1, _TRIES + 1):
        try:
            return parse_code(terminal.ask("Code that the other host shows:"))
        except MbxError as error:
            if tried == _TRIES:
                raise
            terminal.show(f"{visible(error.message)}; {visible(error.next_step or '')}.")
    raise AssertionError("the last try has raised")


def _show_invitation(terminal: Terminal, invited: JsonObject, code: str) -> None:
    until = datetime.fromisoformat(str(invited["expires_at"])).astimezone()
    left_s, minutes = int(invited["left_s"]), _minutes(invited)
    term = f"{minutes} min" if left_s >= _SECONDS_BELOW_S else f"{left_s} s"
    addresses = [cell(one) for one in invited["addresses"]]
    terminal.show(
        f"The code, for one host, until {until:%H:%M} ({term}):",
        "",
        f"    {code}",
        "",
        *_ways(addresses, [cell(one) for one in invited["listening"]]),
        "",
        "Waiting for the other host (Ctrl-C to leave) ...",
    )


def _ways(addresses: list[str], listening: list[str]) -> list[str]:
    if not addresses:
        return [f"This host listens at {', '.join(listening)}, but has no address for others."]
    head = "In a terminal of your own on the other machine, run"
    head += ":" if len(addresses) == 1 else " one of these (whichever address it reaches):"
    return [head, "", *(f"    mbx join {quoted(address)}" for address in addresses)]


def _refusal(end: JsonObject) -> MbxError:
    code = str(end["code"])
    return MbxError(_CODES.get(code, "peer-refused"), end["words"], end["next"], reason=code)


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _tell(session: Session, answer: JsonObject) -> None:
    if session.output.as_json:
        session.output.document(answer)
        return
    peer = cell(answer.get("peer"))
    lines = [f"paired with {peer} (key {cell(answer.get('key_id'))})"]
    if answer.get("adopted"):
        lines.append(f"the owner of this host is {cell(answer['adopted'])} from now on")
        lines.append("next: copy owner.key here (mbx owner export), or sign there: mbx owner sign")
    lines.append(f"next: mbx peers list; then write to NAME@{peer}")
    session.output.text(*lines)
