"""What needs the owner's signature: ask the daemon for a draft, have it signed here, bring it back.

The daemon drafts and applies; the owner reads, agrees and types the passphrase in this process, on
its terminal (`mbx.owner`, which is loaded only then). With `--draft FILE` the draft is written to a
file instead, to be signed where the key is.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import click

from mbx.cli.command import Body, completed
from mbx.cli.output import cell
from mbx.cli.session import Session
from mbx.core.errors import MbxError
from mbx.core.record import Record
from mbx.paths import printable, quoted
from mbx.wire import JsonObject

if TYPE_CHECKING:
    from mbx.owner.draft import Draft, Expected

KINDS: Final[Mapping[str, str]] = {
    "takeover": "takeover",
    "policy": "policy",
    "revoke": "revoke",
    "retire": "directive",
    "forward": "directive",
    "prune": "directive",
    "clock": "directive",
    "send": "owner-mail",
    "reply": "owner-mail",
    "peer-change": "peer",
    "unpair": "unpair",
}
"""Act -> the kind of record that its draft must be."""

_LETTERS: Final = frozenset({"send", "reply"})
"""Acts drafted at the owner's terminal alone: an answer tells the subject of what it answers."""

Teller = Callable[[Session, JsonObject], None]
"""Prints what `owner.apply` answered, for people."""


def draft_option(function: Body) -> Body:
    """Add `--draft FILE` to a command that needs the owner's signature."""
    return click.option(
        "--draft",
        "draft_file",
        metavar="FILE",
        shell_complete=completed("files"),
        help="Write the request to FILE instead of signing here; see `mbx owner sign`.",
    )(function)


def carry_out(
    session: Session,
    act: str,
    draft_file: str | None,
    tell: Teller | None = None,
    /,
    **facts: object,
) -> None:
    """Do one act of the owner, or write its draft to a file; prints the outcome.

    `facts` are the parameters of `owner.draft` beside `act`; None is left out. Raises MbxError.
    """
    if draft_file is not None:
        write_draft(session, draft_file, act, **facts)
        return
    record = authorise(session, act, **facts)
    answer = apply_record(session, record)
    if session.output.as_json:
        session.output.document(answer)
    else:
        (tell or tell_applied)(session, answer)


def authorise(session: Session, act: str, /, **facts: object) -> Record:
    """The signed record of one act of the owner, after a look, a word and the passphrase.

    Raises MbxError: owner-required without a terminal or without agreement, owner-locked after
    wrong passphrases, conflict for a draft that is not what was asked for.
    """
    from mbx.owner import keyfile, signing
    from mbx.owner.seat import owners_terminal

    with owners_terminal() as terminal:  # first: without one nothing else is worth asking
        require_owners_terminal(session)
        path = session.paths.owner_key_path()
        key = keyfile.load(path)
        draft, expected = request(session, act, **facts)
        if key.key_id != expected.owner:
            raise another_owner(path, expected.owner, key.key_id)
        return signing.sign(terminal, draft, key, expected)


def require_owners_terminal(session: Session) -> None:
    """The daemon's word, besides our own look, that no agent CLI is above this command.

    It sees through a pid namespace that this process is in. Asked by the smallest call that it
    keeps for the owner's terminal. Raises MbxError owner-required.
    """
    session.ask("owner.inbox", limit=1)


def request(session: Session, act: str, /, **facts: object) -> "tuple[Draft, Expected]":
    """The daemon's draft for an act, and what it must be. Raises MbxError, also without owner."""
    from mbx.owner.draft import Expected, read_draft

    owner, host = known_owner(session)
    if owner is None:
        raise MbxError("owner-required", "this host has no owner yet", "mbx owner init")
    if act in _LETTERS:
        draft = read_draft(session.ask("owner.compose", **facts))
    else:
        draft = read_draft(session.ask("owner.draft", act=act, **facts))
    return draft, Expected({KINDS[act]}, owner, host)


def known_owner(session: Session) -> tuple[str | None, str | None]:
    """The key ids of the owner (None: there is none yet) and of the host, as the daemon knows."""
    answer = session.ask("owner.show")
    owner, host = answer.get("owner"), answer.get("host")
    return str(owner["key_id"]) if owner else None, str(host) if host else None


def another_owner(path: str, known: str, found: str) -> MbxError:
    """The refusal of a key file that is not the owner's of this host; ids of keys."""
    return MbxError(
        "conflict",
        f"this host's owner is {known}; the key at {printable(path)} is {found}",
        "`mbx owner show` tells more; put a copy of the right key there, and this one aside",
    )


def write_draft(session: Session, path: str, act: str, /, **facts: object) -> None:
    """Write the draft of an act to a new file, for `mbx owner sign`. Raises MbxError."""
    from mbx.owner import requests

    draft, expected = request(session, act, **facts)
    draft.examine(expected)
    requests.write_request(path, draft)
    if session.output.as_json:
        session.output.document({"draft": path, "kind": draft.kind, "id": draft.id})
        return
    session.output.text(
        f"wrote the request {draft.id} to {cell(printable(path))}; nothing has changed yet",
        f"next: mbx owner sign {quoted(path)}  (where the owner's key is), then"
        f" mbx owner apply {quoted(path + '.signed')}  (here)",
    )


def apply_record(session: Session, record: Record) -> JsonObject:
    """Have the daemon apply a signed record; a repeated one acts once. Raises MbxError."""
    from mbx.owner import requests

    told = {"record": requests.as_object(record)}
    try:
        return session.client().call("owner.apply", told, changes=True)
    except MbxError as error:
        if error.code != "outcome-unknown":
            raise
        raise MbxError(
            "outcome-unknown",
            f"the answer was lost: record {record.id} may have been applied",
            "`mbx owner show` and `mbx audit` tell; a record that was lost is signed anew",
        ) from None


def tell_applied(session: Session, answer: JsonObject) -> None:
    """Print what a record did."""
    again = " already" if answer.get("duplicate") else ""
    session.output.text(f"applied{again}: {cell(answer.get('kind'))} {cell(answer.get('id'))}")
    for moment in ("before", "after"):
        if answer.get(moment) is not None:
            session.output.text(f"  {moment:<6} {_told(answer[moment])}")


def chain_warnings(answer: JsonObject) -> list[str]:
    """What is wrong with the whole of what the owner signed, as the daemon told it."""
    warnings = []
    if answer.get("void_until") is not None:
        warnings.append(
            "the store was put back from a copy: what was signed up to record"
            f" {cell(answer['void_until'])} is void; sign anew what shall hold"
        )
    if answer.get("floor_fault"):
        warnings.append(
            f"the floor cannot be written ({cell(answer['floor_fault'])}): nobody would see that"
            " the store was put back; mbx doctor tells more"
        )
    return warnings


def _told(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{cell(name)} {_told(one)}" for name, one in value.items()) or "-"
    if isinstance(value, list):
        return "; ".join(map(_told, value)) or "-"
    return cell(value)
