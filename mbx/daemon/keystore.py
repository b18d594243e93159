"""The host key on disk: made once, private from the first instant, never replaced by itself."""

import base64
import binascii
import json
from typing import Final

from mbx.core.keys import SigningKey, key_id
from mbx.daemon.privatefile import PrivateFile

ROLE: Final = "host"
_TYPE: Final = "mbx-host-key"
_SEED_BYTES: Final = 32


def load_or_create(path: str, seed: bytes, *, must_exist: bool) -> SigningKey:
    """The host key at `path`; made from the 32 random bytes of `seed` when there is none yet.

    `must_exist`: the store belongs to a host already, so a missing file is a loss, not a beginning.
    Raises MbxError store-damaged for anything that cannot be a key of ours, and daemon-unreachable
    where none can be made.
    """
    file = PrivateFile(path, "the host key")
    raw = file.read()
    if raw is not None:
        key = _parse(file, raw)
        file.drop_aside()
        return key
    if must_exist:
        raise file.wrong("is missing, but the store belongs to it")
    file.create(_content(SigningKey.from_seed(seed), seed))
    return _parse(file, file.read() or b"")


def _parse(file: PrivateFile, raw: bytes) -> SigningKey:
    """A key file's content. Blanks, line ends and a byte order mark around it do no harm."""
    try:
        content = json.loads(raw.decode("utf-8-sig").strip())
        seed = base64.b64decode(content["seed"], validate=True)
        told_id = content["key_id"]
        if content["type"] != _TYPE or content["v"] != 1 or len(seed) != _SEED_BYTES:
            raise ValueError("fields")
    except (ValueError, KeyError, TypeError, binascii.Error, RecursionError) as error:
        raise file.wrong("is damaged") from error
    key = SigningKey.from_seed(seed)
    if key_id(ROLE, key.public) != told_id:
        raise file.wrong("is damaged: key and key id do not belong together")
    return key


def _content(key: SigningKey, seed: bytes) -> bytes:
    content = {
        "v": 1,
        "type": _TYPE,
        "key_id": key_id(ROLE, key.public),
        "seed": base64.b64encode(seed).decode(),
    }
    return json.dumps(content).encode() + b"\n"
