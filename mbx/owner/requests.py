"""Requests and signed records as files, to be carried between the host and the owner's key.

A request is ``{v, type: "owner-request", kind, payload, confirm, lines}``, a signed record
``{v, type: "owner-record", kind, payload, signatures}``: one line of JSON each. They are read
strictly and bounded, and what is wrong is said.
"""

import json
import re
from typing import Final

from mbx.core import limits
from mbx.core.canonical import CanonicalError, JsonValue, parse_line
from mbx.core.errors import MbxError
from mbx.core.ids import is_id
from mbx.core.record import Record
from mbx.owner.draft import Draft, read_draft
from mbx.owner.files import read_bounded, write_new
from mbx.paths import printable

MAX_BYTES: Final = limits.REQUEST_LINE_MAX_BYTES
"""Of such a file: what the daemon would not take as a request need not be carried."""

SIGNATURES_MAX: Final = 2
"""A rotation has two signatures, everything else one."""

_REQUEST: Final = "owner-request"
_RECORD: Final = "owner-record"
_SIGNATURE: Final = re.compile("[A-Za-z0-9+/]{86}==")


def write_request(path: str, draft: Draft) -> None:
    """Write a draft to a new file. Raises MbxError as `write_new` does."""
    _write(
        path,
        {
            "v": 1,
            "type": _REQUEST,
            "kind": draft.kind,
            "payload": draft.payload,
            "confirm": draft.confirm,
            "lines": list(draft.lines),
        },
    )


def read_request(path: str) -> Draft:
    """The draft in a file. Raises MbxError not-found, or usage saying what is wrong."""
    content = _read(path, _REQUEST, {"kind", "payload", "confirm", "lines"})
    return read_draft(content)


def write_record(path: str, record: Record) -> None:
    """Write a signed record to a new file. Raises MbxError as `write_new` does."""
    _write(path, {"v": 1, "type": _RECORD, **as_object(record)})


def read_record(path: str) -> Record:
    """The signed record in a file; its signatures are not verified here. Raises MbxError."""
    content = _read(path, _RECORD, {"kind", "payload", "signatures"})
    kind, payload, signatures = content["kind"], content["payload"], content["signatures"]
    if not isinstance(kind, str) or not isinstance(payload, str):
        raise _unfit(path, _RECORD, "kind or payload is no text")
    if not isinstance(signatures, dict) or not 0 < len(signatures) <= SIGNATURES_MAX:
        raise _unfit(path, _RECORD, f"signatures is no object of 1 to {SIGNATURES_MAX}")
    found: dict[str, str] = {}
    for key_id, signature in signatures.items():
        if not is_id(key_id):
            raise _unfit(path, _RECORD, "a signature is not under a key id")
        if not isinstance(signature, str) or _SIGNATURE.fullmatch(signature) is None:
            raise _unfit(path, _RECORD, "a signature is not 64 bytes in base64")
        found[key_id] = signature
    return Record(kind, payload, found)


def as_object(record: Record) -> dict[str, object]:
    """A record as it travels: ``{kind, payload, signatures}``."""
    return {
        "kind": record.kind,
        "payload": record.payload,
        "signatures": dict(record.signatures),
    }


def _write(path: str, content: dict[str, object]) -> None:
    line = json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"
    raw = line.encode()
    if len(raw) > MAX_BYTES:
        raise MbxError("too-many", f"the file would have more than {MAX_BYTES:,} bytes")
    write_new(path, raw)


def _read(path: str, sort: str, fields: set[str]) -> dict[str, JsonValue]:
    raw = read_bounded(path, MAX_BYTES, _NAMES[sort])
    try:
        content = parse_line(raw.strip(b" \t\r\n"), MAX_BYTES)
    except CanonicalError as error:
        raise _unfit(path, sort, error.reason) from None
    if not isinstance(content, dict):
        raise _unfit(path, sort, "it is no JSON object")
    if content.get("type") != sort:
        other = next((known for known in _NAMES if content.get("type") == known), None)
        raise _unfit(path, sort, f"it is {_NAMES[other]}" if other else f"its type is not {sort}")
    if type(content.get("v")) is not int or content["v"] != 1:
        raise _unfit(path, sort, "v is not 1")
    wanted = fields | {"v", "type"}
    if lacking := sorted(wanted - content.keys()):
        raise _unfit(path, sort, f"it lacks {', '.join(lacking)}")
    if len(content) != len(wanted):
        raise _unfit(path, sort, "it has fields that are not known")
    return content


_NAMES: Final = {
    _REQUEST: "a request that a command wrote with --draft FILE",
    _RECORD: "a signed record that `mbx owner sign` wrote",
}
"""Type of a file -> what it is, for people."""


def _unfit(path: str, sort: str, why: str) -> MbxError:
    return MbxError("usage", f"{printable(path)}: {why}", f"give {_NAMES[sort]}")
