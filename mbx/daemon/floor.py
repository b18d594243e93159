"""The second place: how far the owner's chain and the audit log ever went, in a file of its own.

A store that was put back from a copy has forgotten what came later, revocations among it. The file
lies in a folder of its own, is signed with the host key, and is written before an answer tells of a
record. Who puts back both is not found out here (the threat model says so); paired hosts see it.
"""

import contextlib
import os
import stat
from typing import Final, NamedTuple

from mbx.core.canonical import CanonicalError, JsonValue, parse
from mbx.core.errors import MbxError
from mbx.core.record import Record, RecordError, verify
from mbx.daemon import codec
from mbx.daemon.host import Host
from mbx.daemon.world import Moment
from mbx.paths import link_words, make_folder

_MAX_BYTES: Final = 65_536
"""Of the file: some 70 bytes for each host whose chain was ever followed."""
_KIND: Final = "floor"


class FollowedFloor(NamedTuple):
    """`version` of the chain of another host (its key id), since `at_ms` (UTC); `void` as there."""

    chain: str
    version: int
    at_ms: int
    void: int | None = None


class Floor(NamedTuple):
    """`version`: of the owner's chain; `audit_no` and `audit_hash`: of the audit log's last row.

    `void`: that row was not there any more at a start, so the store was put back, and what stands
    in the chain up to this version counts no more. None: never seen. `followed`: the same of each
    chain of another host that is followed here.
    """

    version: int = 0
    audit_no: int = 0
    audit_hash: str = ""
    void: int | None = None
    followed: tuple[FollowedFloor, ...] = ()

    @property
    def has_seen(self) -> bool:
        """Whether the owner ever signed something that has a place in a chain."""
        return self.version > 0 or bool(self.followed)


def load(path: str, host: Host) -> Floor | None:
    """The floor kept at `path`; None where there is no file, nor anything else.

    Raises MbxError store-damaged for what this host did not write: without it a store that was put
    back could not be told from the true one. The file is left as it is.
    """
    try:
        content = _content(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _wrong(path, link_words(path) or f"cannot be read ({error.strerror})") from error
    try:
        return _read(content, host)
    except (CanonicalError, RecordError, KeyError, TypeError, ValueError) as error:
        raise _wrong(path, f"is not what this host wrote ({error})") from error


def _content(path: str) -> bytes:
    """Raises OSError: a link, also one that leads nowhere, is no missing file."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with open(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise _wrong(path, "is not a regular file")
        return file.read(_MAX_BYTES + 1)


def _wrong(path: str, what: str) -> MbxError:
    return MbxError(
        "store-damaged",
        f"the file {path} {what}; it was left as it is",
        "put it back from a backup; without one, move it aside: then every policy is void",
        path=path,
    )


def save(path: str, host: Host, moment: Moment, floor: Floor) -> None:
    """Put the floor in place: temporary file, sync, rename, sync of the folder.

    Raises OSError, or MbxError for a folder that others could change.
    """
    record = host.sign(
        _KIND,
        {
            "v": 1,
            "type": _KIND,
            "iat": moment.now_ms,
            "nonce": moment.nonce("floor"),
            "aud": host.key_id,
            "version": floor.version,
            "audit_no": floor.audit_no,
            "audit_hash": floor.audit_hash,
            "void": floor.void,
            "followed": [list(one) for one in floor.followed],
        },
    ).record(host.key_id)
    signature = record.signatures[host.key_id]
    content = codec.canonical({"payload": record.payload, "signature": signature}) + b"\n"
    folder = os.path.dirname(path)
    make_folder(folder)
    aside = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(aside)  # of a daemon that was killed
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(aside, flags, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(aside, path)
    _sync_folder(folder)


def _read(content: bytes, host: Host) -> Floor:
    outer = parse(content.rstrip(b"\n"), _MAX_BYTES)
    if not isinstance(outer, dict) or outer.keys() != {"payload", "signature"}:
        raise RecordError(4, "not a record")
    text, signature = outer["payload"], outer["signature"]
    if not isinstance(text, str) or not isinstance(signature, str):
        raise RecordError(4, "not a record")
    payload = verify(
        Record(_KIND, text, {host.key_id: signature}),
        kind=_KIND,
        signers={host.key_id: host.signer.public},
        audience=host.key_id,
    )
    version, audit_no, audit_hash = payload["version"], payload["audit_no"], payload["audit_hash"]
    if not (type(version) is int and type(audit_no) is int and isinstance(audit_hash, str)):
        raise RecordError(6, "a field is of the wrong type")
    void = payload.get("void")  # an older mbx wrote none
    if void is not None and type(void) is not int:
        raise RecordError(6, "a field is of the wrong type")
    followed = payload.get("followed", [])  # nor this one
    if not isinstance(followed, list):
        raise RecordError(6, "a field is of the wrong type")
    return Floor(version, audit_no, audit_hash, void, tuple(map(_followed, followed)))


def _followed(value: JsonValue) -> FollowedFloor:
    if not isinstance(value, list) or len(value) != len(FollowedFloor._fields):
        raise RecordError(6, "not the place of a chain")
    chain, version, at_ms, void = value
    if not (isinstance(chain, str) and type(version) is int and type(at_ms) is int):
        raise RecordError(6, "a field is of the wrong type")
    if void is not None and type(void) is not int:
        raise RecordError(6, "a field is of the wrong type")
    return FollowedFloor(chain, version, at_ms, void)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
