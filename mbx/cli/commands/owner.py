"""`mbx owner …`: init, show, passwd, export, sign, apply, rotate."""

import os
from collections.abc import Callable
from functools import partial

import click

from mbx.cli.authority import (
    another_owner,
    apply_record,
    carry_out,
    chain_warnings,
    draft_option,
    known_owner,
    require_owners_terminal,
    tell_applied,
)
from mbx.cli.command import command, completed
from mbx.cli.output import cell
from mbx.cli.session import Session
from mbx.core.errors import MbxError
from mbx.core.keys import SigningKey, key_id
from mbx.owner import files, keyfile, requests, signing
from mbx.owner.draft import KINDS, ROTATE, Draft, Expected, read_draft
from mbx.owner.keyfile import SealedKey
from mbx.owner.seat import owners_terminal
from mbx.owner.terminal import Terminal, wipe
from mbx.paths import printable, quoted
from mbx.wire import JsonObject

NEXT_SUFFIX = ".next"
"""Behind the key file's name: the successor, until the daemon knows it."""

SIGNED_SUFFIX = ".signed"
"""Behind a request's name: the record that was made of it."""

_KEY_FIELDS = ("key_id", "public_key", "since")
_CHAIN_FIELDS = {
    "policy_version": "policy version",
    "policies_in_effect": "policies now",
    "clock_behind": "clock behind",
}
"""Field of `owner.show` -> how people are told of it."""
_LABEL_CHARS = 14
_SEED_BYTES = 32
_CHANCE_BYTES = 28


@command(
    "init",
    "Make the owner's key and tell the daemon of it.",
    examples="""
    mbx owner init
    """,
)
def init(session: Session) -> None:
    """Make the owner's key on this host and make it known to the daemon: once, and first of all.

    The owner is you, the human. Takeovers, policies and whatever else gives authority are signed
    with this key. It lies in owner.key under a passphrase of at least 8 characters, which is asked
    for on your terminal each time and kept nowhere: if you forget it, no one can restore it.

    Run it in a terminal of your own, not below an agent CLI. If it was interrupted, run it again.
    """
    path = session.paths.owner_key_path()
    with owners_terminal() as terminal:
        require_owners_terminal(session)
        known, host = known_owner(session)
        found = _found(path)
        _check_first(path, known, found)
        if found is not None:
            terminal.show(f"A key is at {cell(path)} that this host does not know yet.")
            unlocked = partial(signing.unlock, terminal, found)
            answer = _enroll(session, terminal, found.public, host, unlocked)
        else:
            answer = _enroll_new(session, terminal, path, host)
    if session.output.as_json:
        session.output.document({**answer, "path": printable(path)})
        return
    session.output.text(
        f"the owner of this host is {cell((answer.get('after') or {}).get('owner'))}",
        f"the key is in {cell(printable(path))}; keep a copy: mbx owner export FILE",
    )


@command(
    "show",
    "Show the owner's key and whether its file fits.",
    examples="""
    mbx owner show
    mbx owner show --json
    """,
)
def show(session: Session) -> None:
    """Show the owner that this host knows, the state of its policies, and the key file here."""
    answer = session.ask("owner.show")
    known = answer.get("owner") or {}
    file = _file_state(session.paths.owner_key_path(), known.get("key_id"))
    if session.output.as_json:
        session.output.document({**answer, "key_file": file})
        return
    rows = [(name.replace("_", " "), cell(known[name])) for name in _KEY_FIELDS if name in known]
    rows += [(label, cell(answer.get(name))) for name, label in _CHAIN_FIELDS.items()]
    rows += [
        ("damage", f"record {cell(one['version'])} of {cell(one['host'])} {cell(one['reason'])}")
        for one in answer.get("damage") or ()
    ]
    rows += [("follows", _followed(one)) for one in answer.get("followed") or ()]
    rows.append(("key file", f"{cell(file['path'])} ({cell(file['state'])})"))
    head = "the owner of this host" if known else "this host has no owner yet"
    lines = [f"  {label:<{_LABEL_CHARS}}  {value}" for label, value in rows]
    session.output.text(session.output.strong(head), *lines)
    for warning in chain_warnings(answer):
        session.output.note(f"warning: {warning}")
    if file["next"]:
        session.output.text(f"next: {cell(file['next'])}")


@command(
    "passwd",
    "Change the passphrase of the owner's key.",
    examples="""
    mbx owner passwd
    """,
)
def passwd(session: Session) -> None:
    """Change the passphrase of the key file here. The key stays the same; copies keep the old one.

    If somebody may know the old passphrase and has a copy of the file, use `mbx owner rotate`.
    """
    path = session.paths.owner_key_path()
    with owners_terminal() as terminal:
        sealed = keyfile.load(path)
        seed = signing.unlock_seed(terminal, sealed, "Old passphrase:")
        passphrase = signing.choose(terminal)
        content = keyfile.seal(seed, passphrase, os.urandom(_CHANCE_BYTES))
        wipe(passphrase)
        keyfile.replace(path, sealed.raw, content)
    _tell(session, {"changed": printable(path), "key_id": sealed.key_id})


@command(
    "export",
    "Write a copy of the owner's key file.",
    examples="""
    mbx owner export /media/stick/owner.key
    """,
)
@click.argument("file", metavar="FILE", shell_complete=completed("files"))
def export(session: Session, file: str) -> None:
    """Write a copy of the key file to FILE (mode 600): a backup, or for another machine.

    The copy is encrypted under the same passphrase. A file that exists is never overwritten. To
    restore, put it back as owner.key in the home folder.
    """
    sealed = keyfile.load(session.paths.owner_key_path())
    files.write_new(file, sealed.raw)
    _tell(session, {"exported": file, "key_id": sealed.key_id})


@command(
    "sign",
    "Sign a request that another command wrote.",
    examples="""
    mbx owner sign take.json
    mbx owner sign take.json --key /media/stick/owner.key
    """,
)
@click.argument("file", metavar="FILE", shell_complete=completed("files"))
@click.option(
    "--key",
    "key_file",
    metavar="KEYFILE",
    shell_complete=completed("files"),
    help="The owner's key; by default owner.key in the home folder.",
)
def sign(session: Session, file: str, key_file: str | None) -> None:
    """Sign the request in FILE, on this or any other machine, and write FILE.signed.

    A command that needs your signature writes such a file with --draft FILE. The whole record is
    shown on your terminal; you type a word of it to agree, then the passphrase. No daemon is
    needed. Bring FILE.signed back and give it to `mbx owner apply` within the time that the record
    tells.
    """
    signed_file = file + SIGNED_SUFFIX
    with owners_terminal() as terminal:
        draft = requests.read_request(file)
        key = keyfile.load(key_file or session.paths.owner_key_path())
        if os.path.lexists(signed_file):
            raise MbxError(
                "conflict",
                f"{signed_file} is there already and is never overwritten",
                f"mv {quoted(signed_file)} {quoted(signed_file + '.old')}",
            )
        record = signing.sign(terminal, draft, key, Expected(KINDS, key.key_id, None))
    requests.write_record(signed_file, record)
    if session.output.as_json:
        session.output.document({"signed": signed_file, "kind": record.kind, "id": record.id})
        return
    session.output.text(
        f"signed {cell(record.kind)} {record.id} into {cell(signed_file)}",
        f"next: mbx owner apply {quoted(signed_file)}  (on the host that wrote the request)",
    )


@command(
    "apply",
    "Bring a signed record to the daemon.",
    examples="""
    mbx owner apply take.json.signed
    """,
)
@click.argument("file", metavar="FILE", shell_complete=completed("files"))
def apply(session: Session, file: str) -> None:
    """Have the daemon verify and apply the record in FILE. The same record never acts twice."""
    record = requests.read_record(file)
    try:
        answer = apply_record(session, record)
    except MbxError as error:
        if error.code == "outcome-unknown":
            error.next_step = f"mbx owner apply {quoted(file)}  (it cannot act twice)"
        raise
    if session.output.as_json:
        session.output.document(answer)
    else:
        tell_applied(session, answer)


@command(
    "clock",
    "Say that the clock is right although it was set back.",
    examples="""
    mbx owner clock
    """,
)
@draft_option
def clock(session: Session, draft_file: str | None) -> None:
    """Sign that the clock of this host is right, although it once was later than it is now.

    A clock that was set back proves no term, so until then every policy is void and nothing else
    that you sign is taken. Look at the time first: policies end by it.
    """
    carry_out(session, "clock", draft_file)


@command(
    "rotate",
    "Give the owner a new key.",
    examples="""
    mbx owner rotate
    """,
)
def rotate(session: Session) -> None:
    """Make a new key and have the old one sign it in; needs both passphrases on your terminal.

    What the old key signed stays valid; from now on only the new key signs, also on every paired
    host that has your key, at once or when that host is met next. If it was interrupted, run it
    again: it finishes what was begun, or begins anew.
    """
    path = session.paths.owner_key_path()
    with owners_terminal() as terminal:
        require_owners_terminal(session)
        old = keyfile.load(path)
        known, host = known_owner(session)
        pending = _found(path + NEXT_SUFFIX)
        if pending is not None and known == pending.key_id:
            os.rename(path + NEXT_SUFFIX, path)
            files.sync_folder(path)
            _tell(session, {"rotated": pending.key_id, "previous": old.key_id})
            return
        if known != old.key_id:
            raise _unlike(path, known, old)
        if pending is not None:
            os.unlink(path + NEXT_SUFFIX)  # it was never made known: nothing was signed with it
        answer = _succeed(session, terminal, path, old, host)
    _tell(session, {"rotated": answer["after"]["owner"], "previous": old.key_id})


# -- the key that comes in ------------------------------------------------------------------------
Unlocked = Callable[[], SigningKey]
"""Gives the key once the owner has agreed."""


def _enroll_new(session: Session, terminal: Terminal, path: str, host: str | None) -> JsonObject:
    """Make a key, and its file only when the owner has agreed; a refused one leaves no file."""
    seed = os.urandom(_SEED_BYTES)
    content = _sealed(terminal, seed)
    key = SigningKey.from_seed(seed)

    def kept() -> SigningKey:
        keyfile.create(path, content)
        return key

    try:
        return _enroll(session, terminal, key.public, host, kept)
    except MbxError as error:
        found = None if error.code == "outcome-unknown" else _found(path)
        if found is not None and found.raw == content:
            os.unlink(path)
        raise


def _enroll(
    session: Session, terminal: Terminal, public: bytes, host: str | None, unlocked: Unlocked
) -> JsonObject:
    draft = _agreed_rotation(session, terminal, public, host, previous=None)
    record = signing.signed(draft, [unlocked()])
    told = {"record": requests.as_object(record)}
    return session.client().call("owner.enroll", told, changes=True)


def _succeed(
    session: Session, terminal: Terminal, path: str, old: SealedKey, host: str | None
) -> JsonObject:
    """Sign a new key in with the old one; the new file takes the old one's place at the end."""
    seed = os.urandom(_SEED_BYTES)
    content = _sealed(terminal, seed)
    new = SigningKey.from_seed(seed)
    draft = _agreed_rotation(session, terminal, new.public, host, previous=old.key_id)
    record = signing.signed(draft, [signing.unlock(terminal, old, "Old passphrase:"), new])
    keyfile.create(path + NEXT_SUFFIX, content)
    try:
        answer = apply_record(session, record)
    except MbxError as error:
        if error.code == "outcome-unknown":
            error.next_step = "mbx owner rotate  (it finishes what was begun)"
        else:
            os.unlink(path + NEXT_SUFFIX)
        raise
    os.rename(path + NEXT_SUFFIX, path)
    files.sync_folder(path)
    return answer


def _sealed(terminal: Terminal, seed: bytes) -> bytes:
    """The content of a new key file, under a passphrase that is chosen now."""
    passphrase = signing.choose(terminal)
    try:
        return keyfile.seal(seed, passphrase, os.urandom(_CHANCE_BYTES))
    finally:
        wipe(passphrase)


def _agreed_rotation(
    session: Session, terminal: Terminal, public: bytes, host: str | None, previous: str | None
) -> Draft:
    """The draft that brings a key in, shown and agreed to."""
    draft = read_draft(session.ask("owner.draft", act=ROTATE, public_key=public.hex()))
    expected = Expected({ROTATE}, key_id(keyfile.ROLE, public), host)
    payload = draft.examine(expected)
    if payload.get("public_key") != public.hex() or payload.get("previous") != previous:
        raise MbxError(
            "conflict",
            "the daemon drafted for another key: the owner of this host was changed meanwhile",
            "mbx owner show",
        )
    signing.present(terminal, draft, expected)
    return draft


def _check_first(path: str, known: str | None, found: SealedKey | None) -> None:
    """Refuse to begin where there is an owner. Raises MbxError conflict."""
    if known is None:
        return
    if found is None:
        raise MbxError(
            "conflict",
            f"this host has an owner ({known}), whose key is not at {printable(path)}",
            f"put a copy of that key there: install -m 600 COPY {quoted(printable(path))}",
        )
    if found.key_id != known:
        raise another_owner(path, known, found.key_id)
    raise MbxError("conflict", f"this host has an owner already ({known})", "mbx owner show")


def _unlike(path: str, known: str | None, found: SealedKey) -> MbxError:
    if known is None:
        return MbxError("owner-required", "this host has no owner yet", "mbx owner init")
    return another_owner(path, known, found.key_id)


def _found(path: str) -> SealedKey | None:
    """The key file at a path, None where there is none. Raises MbxError for a damaged one."""
    try:
        return keyfile.load(path)
    except MbxError as error:
        if error.code != "not-found":
            raise
        return None


def _followed(one: JsonObject) -> str:
    """The chain of another host of the same owner."""
    ended = one.get("ended_version")
    over = f"; up to {cell(ended)} it counts no more, that pairing has ended" if ended else ""
    return f"{cell(one['host'])} ({cell(one['key_id'])}) up to record {cell(one['version'])}{over}"


def _file_state(path: str, known: object) -> JsonObject:
    """How the key file here is: `state` is present, missing, damaged or another."""
    state: JsonObject = {"path": printable(path), "state": "missing", "key_id": None, "next": None}
    try:
        found = _found(path)
        begun = _found(path + NEXT_SUFFIX)
    except MbxError as error:
        return {**state, "state": "damaged", "detail": error.message, "next": error.next_step}
    if begun is not None:
        state["next"] = "mbx owner rotate  (it finishes what was begun)"
    if found is None:
        step = "put a copy of the key there, mode 600" if known else "mbx owner init"
        return {**state, "next": step}
    fits = known == found.key_id
    state |= {"key_id": found.key_id, "state": "present" if fits else "another"}
    if not fits and not state["next"]:
        state["next"] = "put the right copy there" if known else "mbx owner init"
    return state


def _tell(session: Session, facts: JsonObject) -> None:
    """Say what was done: a document, or one line."""
    if session.output.as_json:
        session.output.document(facts)
    else:
        session.output.text(", ".join(f"{name} {cell(value)}" for name, value in facts.items()))
