"""The host key on disk: made once, private from the first instant, never replaced by itself.

Anything wrong with the file stops the daemon with the file and the remedy named, and leaves the
file as it is: a machine must not silently become another one.
"""

import base64
import binascii
import json
import os
import stat
from contextlib import suppress
from typing import Final

from mbx.core.errors import MbxError
from mbx.core.keys import SigningKey, key_id
from mbx.paths import quoted

ROLE: Final = "host"
_TYPE: Final = "mbx-host-key"
_MAX_BYTES: Final = 4_096
_SEED_BYTES: Final = 32


def load_or_create(path: str, seed: bytes, *, must_exist: bool) -> SigningKey:
    """The host key at `path`; made from the 32 random bytes of `seed` when there is none yet.

    `must_exist`: the store belongs to a host already, so a missing file is a loss, not a beginning.
    Raises MbxError store-damaged for anything that cannot be a key of ours, and daemon-unreachable
    where none can be made.
    """
    try:
        key = _load(path)
    except FileNotFoundError:
        if must_exist:
            raise _wrong(path, "is missing, but the store belongs to it") from None
    else:
        _drop_aside(path)
        return key
    try:
        _create(path, SigningKey.from_seed(seed), seed)
    except OSError as error:
        raise MbxError(
            "daemon-unreachable",
            f"the host key {path} cannot be made: {error.strerror}",
            "see to the disk and to the rights on the home folder, then start again",
            path=path,
        ) from error
    return _load(path)


def _load(path: str) -> SigningKey:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _wrong(path, f"cannot be read ({error.strerror})") from error
    try:
        _check_file(path, os.fstat(descriptor))
        raw = os.read(descriptor, _MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    return _parse(path, raw)


def _check_file(path: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise _wrong(path, "is not a regular file")
    if found.st_uid != os.geteuid():
        raise _wrong(path, f"belongs to user {found.st_uid}")
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise _wrong(path, f"can be read by others (mode {mode:04o})", f"chmod 600 {quoted(path)}")


def _parse(path: str, raw: bytes) -> SigningKey:
    """A key file's content. Blanks, line ends and a byte order mark around it do no harm."""
    if len(raw) > _MAX_BYTES:
        raise _wrong(path, "is too large for a key")
    try:
        content = json.loads(raw.decode("utf-8-sig").strip())
        seed = base64.b64decode(content["seed"], validate=True)
        told_id = content["key_id"]
        if content["type"] != _TYPE or content["v"] != 1 or len(seed) != _SEED_BYTES:
            raise ValueError("fields")
    except (ValueError, KeyError, TypeError, binascii.Error, RecursionError) as error:
        raise _wrong(path, "is damaged") from error
    key = SigningKey.from_seed(seed)
    if key_id(ROLE, key.public) != told_id:
        raise _wrong(path, "is damaged: key and key id do not belong together")
    return key


def _create(path: str, key: SigningKey, seed: bytes) -> None:
    """Write aside, sync, link into place (never over another file), sync the folder."""
    content = {
        "v": 1,
        "type": _TYPE,
        "key_id": key_id(ROLE, key.public),
        "seed": base64.b64encode(seed).decode(),
    }
    aside = _drop_aside(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(aside, flags, 0o600)
    try:
        os.write(descriptor, json.dumps(content).encode() + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.link(aside, path)
    os.unlink(aside)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _drop_aside(path: str) -> str:
    """Remove what a start that was killed left: half a key, or the key's second name."""
    aside = f"{path}.new"
    with suppress(FileNotFoundError):
        os.unlink(aside)
    return aside


def _wrong(path: str, what: str, remedy: str | None = None) -> MbxError:
    return MbxError(
        "store-damaged",
        f"the host key {path} {what}; it was left as it is",
        remedy or f"put the right {os.path.basename(path)} back from a backup, mode 600",
        path=path,
    )
