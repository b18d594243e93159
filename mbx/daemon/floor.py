"""The second place: how far the owner's chain and the audit log ever went, in a file of its own.

A store that was put back from a copy has forgotten what came later, revocations among it. The file
lies in a folder of its own, is signed with the host key, and is written before an answer tells of a
record. Who puts back both is not found out here (the threat model says so); paired hosts see it.
"""

import os
from typing import Final, NamedTuple

from mbx.core.canonical import CanonicalError, parse
from mbx.core.errors import MbxError
from mbx.core.record import Record, RecordError, verify
from mbx.daemon import codec
from mbx.daemon.host import Host
from mbx.daemon.world import Moment
from mbx.paths import make_folder

_MAX_BYTES: Final = 4_096
_KIND: Final = "floor"


class Floor(NamedTuple):
    """`version`: of the owner's chain; `audit_no` and `audit_hash`: of the audit log's last row."""

    version: int = 0
    audit_no: int = 0
    audit_hash: str = ""


def load(path: str, host: Host) -> Floor:
    """The floor kept at `path`; nothing yet where there is no file.

    Raises MbxError store-damaged for a file that this host did not sign: without it a store that
    was put back could not be told from the true one.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return Floor()
    try:
        return _read(content, host)
    except (CanonicalError, RecordError, KeyError, TypeError, ValueError) as error:
        raise MbxError(
            "store-damaged",
            f"the file {path} is not what this host wrote ({error})",
            "put it back from a backup; without one, move it aside: then every policy is void",
            path=path,
        ) from error


def save(path: str, host: Host, moment: Moment, floor: Floor) -> None:
    """Put the floor in place: temporary file, sync, rename, sync of the folder. Raises OSError."""
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
        },
    ).record(host.key_id)
    signature = record.signatures[host.key_id]
    content = codec.canonical({"payload": record.payload, "signature": signature}) + b"\n"
    folder = os.path.dirname(path)
    make_folder(folder)
    aside = f"{path}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(aside, flags, 0o600)
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(aside, path)
    _sync_folder(folder)


def _read(content: bytes, host: Host) -> Floor:
    outer = parse(content.rstrip(b"\n"), _MAX_BYTES)
    if not isinstance(outer, dict):
        raise RecordError(4, "not an object")
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
    if not (isinstance(version, int) and isinstance(audit_no, int) and isinstance(audit_hash, str)):
        raise RecordError(6, "a field is of the wrong type")
    return Floor(version, audit_no, audit_hash)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
