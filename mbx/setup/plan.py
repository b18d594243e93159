"""What would be written where: the files of one client, read and edited, nothing written yet."""

import re
from difflib import unified_diff
from typing import Final, Literal, NamedTuple

from mbx.setup import files
from mbx.setup.client import MARKER, Document
from mbx.setup.entries import SERVER
from mbx.setup.files import Content
from mbx.setup.jsontext import Json
from mbx.setup.ledger import Ledger, Record, digest
from mbx.setup.steps import Language, Path, Refused, at
from mbx.setup.wishes import Member, fulfilled, is_there, remarks, undone

Act = Literal["unchanged", "write", "remove", "refused"]

_MARKER_BYTES: Final = 1_000
"""A marker stands within so much of a file of ours."""

_TELLTALE: Final = r"(?=[\w.-]*(?:key|token|secret|passw|auth|credential|bearer|cookie))[\w.-]++"
_SECRET: Final = re.compile(
    rf"""((?<![\w.-])(?:["']?{_TELLTALE}["']?\s*[:=]|["'](?=-){_TELLTALE}["']\s*,)\s*)"""
    r"""("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'{}\[\],][^"'{}\[\],\n]*)""",
    re.IGNORECASE,
)
"""What a preview must not show although it stands beside our lines: the value of a member, that of
an option (``"--api-key", "…"``), or what is said within a text (``Authorization: …``).

A word is looked through once, from its beginning: from each of its letters would cost the square of
its length, and states of clients hold words of many thousands (21 s for 1 MB, measured).
"""


class Change(NamedTuple):
    """One file, as it is and as it should be.

    `old` is None where it was refused; `why` says why. `restores`: what was there is put back.
    """

    path: str
    act: Act
    old: Content | None = None
    new: bytes | None = None
    made: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    why: str = ""
    restores: bool = False
    had_entries: bool = False

    def diff(self) -> str:
        """For people: the lines that change, secrets beside them left out."""
        before = (self.old and self.old.content) or b""
        texts = [one.decode("utf-8", "replace") for one in (before, self.new or b"")]
        old, new = (_SECRET.sub(_hidden, text).splitlines() for text in texts)
        is_there = self.old is not None and self.old.content is not None
        head = self.path if is_there else "/dev/null"
        tail = "/dev/null" if self.new is None else self.path
        return "\n".join(unified_diff(old, new, head, tail, lineterm=""))


def _hidden(found: re.Match[str]) -> str:
    quoted = found[2][0] in "\"'"
    return found[1] + ('"…"' if quoted else "…")


def planned(document: Document, ledger: Ledger, user_id: int, *, installing: bool) -> Change:
    """How one file is to change. A file that cannot be edited safely comes back as refused."""
    try:
        old = files.read(document.path, user_id)
        record = ledger.record(old.target)
        if document.kind == "file":
            return _own_file(document, old, record, ledger, installing=installing)
        if installing:
            return _with_entries(document, old)
        return _without_entries(document, old, record, ledger)
    except Refused as refusal:
        return Change(document.path, "refused", why=str(refusal))


def holds_server(document: Document) -> bool:
    """Whether the server entry belongs into a file."""
    return any(isinstance(wish, Member) and wish.path[-1] == SERVER for wish in document.wishes)


def is_anothers(document: Document, user_id: int) -> bool:
    """Whether the server entry that belongs into a file is there, of mbx with another home."""
    for wish in document.wishes:
        if isinstance(wish, Member) and wish.path[-1] == SERVER:
            try:
                text = _text(files.read(document.path, user_id))
                found = at(_language(document).read(text), wish.path)
            except Refused:  # which `planned` tells
                return False
            return wish.whose(found) == "another's"
    return False


def _with_entries(document: Document, old: Content) -> Change:
    text, language = _text(old), _language(document)
    had = is_there(language, text, document.wishes)
    outcome = fulfilled(language, text, document.wishes)
    new = outcome.text.encode("utf-8")
    act: Act = "unchanged" if outcome.text == text else "write"
    return Change(document.path, act, old, new, outcome.made, outcome.notes, had_entries=had)


def _without_entries(
    document: Document, old: Content, record: Record | None, ledger: Ledger
) -> Change:
    if old.content is None:
        return Change(document.path, "unchanged", old)
    exact = _restored(old, record, ledger)
    if exact is not None:
        act: Act = "remove" if exact.new is None else "write"
        return exact._replace(path=document.path, act=act)
    text, language = _text(old), _language(document)
    made = record.made if record is not None else ()
    outcome = undone(language, text, document.wishes, made)
    if outcome.text == text:
        return Change(document.path, "unchanged", old, old.content, notes=outcome.notes)
    is_ours = record is not None and record.before is None
    if is_ours and language.read(outcome.text) == {} and not remarks(outcome.text):
        return Change(document.path, "remove", old, None, notes=outcome.notes)
    return Change(document.path, "write", old, outcome.text.encode("utf-8"), notes=outcome.notes)


def _own_file(
    document: Document, old: Content, record: Record | None, ledger: Ledger, *, installing: bool
) -> Change:
    """A file of ours as a whole: one that people changed, or made themselves, is theirs."""
    wanted = document.text.encode("utf-8")
    content = old.content
    if content is None:
        return Change(document.path, "write" if installing else "unchanged", old, wanted)
    is_marked = MARKER.encode("ascii") in content[:_MARKER_BYTES]
    is_as_written = record is not None and digest(content) == record.after
    if installing and content == wanted:
        return Change(document.path, "unchanged", old, wanted, had_entries=True)
    if not is_marked and not is_as_written:
        if installing:
            raise Refused("is there already, and was not written by mbx")
        return Change(document.path, "unchanged", old, content)
    if record is not None and not is_as_written:
        note = f"{document.path}: you changed it, so it stays as it is"
        return Change(document.path, "unchanged", old, content, notes=(note,))
    if installing:
        return Change(document.path, "write", old, wanted, had_entries=True)
    exact = _restored(old, record, ledger)
    if exact is not None and exact.new is not None:
        return exact._replace(path=document.path, act="write")
    return Change(document.path, "remove", old, None)


def _restored(old: Content, record: Record | None, ledger: Ledger) -> Change | None:
    """What was there before, if nobody changed the file since."""
    assert old.content is not None
    if record is None or not record.is_exact or digest(old.content) != record.after:
        return None
    if record.before is None:
        return Change("", "remove", old, None, restores=True)
    copy = ledger.kept(record.before)
    return None if copy is None else Change("", "write", old, copy, restores=True)


def _text(old: Content) -> str:
    try:
        return (old.content or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(
            f"is not UTF-8 (byte 0x{error.object[error.start]:02x} at offset {error.start})"
        ) from None


def _language(document: Document) -> Language:
    if document.kind == "json":
        return Json()
    from mbx.setup.tomltext import Toml  # it loads its library, which most files do not need

    return Toml()
