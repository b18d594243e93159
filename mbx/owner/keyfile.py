"""The owner's key at rest: an Ed25519 seed under a passphrase, in one line of JSON.

``{v, type, key_id, public_key, kdf: {name, n, r, p, salt}, cipher, nonce, sealed}``; bytes are
lower-case hex. scrypt (RFC 7914) makes the key of AES-256-GCM out of the passphrase, and everything
but `sealed` is associated data: a changed header opens nothing. The parameters are bounded before
they are used, so that no file takes all memory. What is wrong with a file is named, and the file is
left as it is (KINDS K08).

Python cannot promise that a passphrase or a seed leaves no copy in memory; the process that opens
a key cannot be read by others (`mbx.owner.seclusion`) and ends soon.
"""

import fcntl
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from mbx.core.canonical import CanonicalError, JsonValue, encode, parse
from mbx.core.errors import MbxError
from mbx.core.keys import PUBLIC_BYTES, SEED_BYTES, SigningKey, key_id
from mbx.owner.files import folder_of, unwritten, write_synced
from mbx.paths import link_words, printable, quoted

ROLE: Final = "owner"
"""The role of the key, which its id depends on."""

MAX_BYTES: Final = 4_096
"""Of a key file; a real one has fewer than 500."""

N_DEFAULT: Final = 2**17
"""scrypt's cost: 128 MiB and about half a second (PROOF R30)."""
N_MIN: Final = 2**15
N_MAX: Final = 2**18
R: Final = 8
P_MAX: Final = 2
CIPHER: Final = "aes-256-gcm"

_TYPE: Final = "owner-key"
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_FIELDS: Final = frozenset("v type key_id public_key kdf cipher nonce sealed".split())
_KDF_FIELDS: Final = frozenset("name n r p salt".split())
_HEX: Final = re.compile("[0-9a-f]*")


class WrongPassphrase(Exception):
    """The passphrase does not open the key, or the file was changed: nobody can tell which."""


@dataclass(frozen=True, slots=True)
class SealedKey:
    """A key file whose form is checked; only the passphrase tells whether it is whole.

    `raw` is the file as it was read, `path` where.
    """

    path: str
    raw: bytes
    key_id: str
    public: bytes
    n: int
    p: int
    salt: bytes
    nonce: bytes
    sealed: bytes

    def open(self, passphrase: bytes | bytearray) -> bytes:
        """The seed. Raises WrongPassphrase; MbxError store-damaged when it is another key's."""
        secret = _derive(passphrase, self.salt, self.n, self.p)
        header = _header(self.key_id, self.public, self.n, self.p, self.salt, self.nonce)
        try:
            seed = AESGCM(secret).decrypt(self.nonce, self.sealed, encode(header).encode())
        except InvalidTag:
            raise WrongPassphrase from None
        if SigningKey.from_seed(seed).public != self.public:
            raise _wrong(self.path, "is damaged: the key in it is not the one it names")
        return seed


def seal(seed: bytes, passphrase: bytes | bytearray, chance: bytes, *, n: int = N_DEFAULT) -> bytes:
    """The content of a key file for a seed of 32 random bytes; `chance` are 28 other random bytes.

    Raises ValueError for other lengths and for parameters that `parse_key` would refuse.
    """
    if len(chance) != _SALT_BYTES + _NONCE_BYTES or not _is_cost(n):
        raise ValueError("28 random bytes, and n a power of two within bounds")
    salt, nonce = chance[:_SALT_BYTES], chance[_SALT_BYTES:]
    public = SigningKey.from_seed(seed).public
    header = _header(key_id(ROLE, public), public, n, 1, salt, nonce)
    secret = _derive(passphrase, salt, n, 1)
    sealed = AESGCM(secret).encrypt(nonce, seed, encode(header).encode())
    return encode({**header, "sealed": sealed.hex()}).encode() + b"\n"


def load(path: str) -> SealedKey:
    """The key file at `path`, not opened yet.

    Raises MbxError: `not-found` when there is none, `store-damaged` for anything that is not a key
    file of ours or lies open to others.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise missing(path) from None
    except OSError as error:
        raise _wrong(path, link_words(path) or f"cannot be read ({error.strerror})") from None
    try:
        _check_entry(path, os.fstat(descriptor))
        raw = os.read(descriptor, MAX_BYTES + 1)
    except OSError as error:
        raise _wrong(path, f"cannot be read ({error.strerror})") from None
    finally:
        os.close(descriptor)
    return parse_key(path, raw)


def parse_key(path: str, raw: bytes) -> SealedKey:
    """The content of a key file; blanks, line ends and a byte order mark around it do no harm.

    Raises MbxError store-damaged, naming what is wrong and `path`.
    """
    if not raw.strip():
        raise _wrong(path, "is empty")
    try:
        text = raw.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n")
        content = parse(text, MAX_BYTES)
    except CanonicalError as error:
        raise _wrong(path, f"is damaged or no key file: {error.reason}") from None
    if not isinstance(content, dict) or content.get("type") != _TYPE:
        raise _wrong(path, "is no owner key")
    if content.get("v") != 1 or type(content["v"]) is not int:
        raise _wrong(path, "has a version that this mbx does not know", "install a newer mbx")
    if content.keys() != _FIELDS:
        raise _wrong(path, "is damaged: fields are missing or unknown")
    n, p, salt = _kdf(path, content["kdf"])
    if content["cipher"] != CIPHER:
        raise _wrong(path, f"names a cipher other than {CIPHER}")
    public = _bytes(path, "public_key", content["public_key"], PUBLIC_BYTES)
    own_id = key_id(ROLE, public)
    if content["key_id"] != own_id:
        raise _wrong(path, "is damaged: key and key id do not belong together")
    nonce = _bytes(path, "nonce", content["nonce"], _NONCE_BYTES)
    sealed = _bytes(path, "sealed", content["sealed"], SEED_BYTES + _TAG_BYTES)
    return SealedKey(path, raw, own_id, public, n, p, salt, nonce, sealed)


def missing(path: str) -> MbxError:
    """The refusal where a key is needed and there is no file."""
    return MbxError(
        "not-found",
        f"there is no owner key at {printable(path)}",
        "`mbx owner init` makes one; if it lies elsewhere, put a copy there (mode 600), or write"
        " the request with --draft FILE and sign it where the key is",
    )


# -- on the disk ----------------------------------------------------------------------------------


def create(path: str, content: bytes) -> None:
    """Put a new key file in place, whole or not at all, never over another one.

    Raises MbxError conflict when there is something at `path`.
    """
    with _locked(path) as aside:
        write_synced(aside, content)
        try:
            os.link(aside, path, follow_symlinks=False)
        except FileExistsError:
            raise MbxError(
                "conflict",
                f"{printable(path)} is there already and is never overwritten",
                "mbx owner show",
            ) from None
        finally:
            os.unlink(aside)


def replace(path: str, old: bytes, content: bytes) -> None:
    """Put `content` in the place of a key file that still reads `old`, whole or not at all.

    Raises MbxError conflict when another process changed the file meanwhile.
    """
    with _locked(path) as aside:
        if load(path).raw != old:
            raise MbxError(
                "conflict",
                f"{printable(path)} was changed meanwhile by another command",
                "mbx owner show",
            )
        write_synced(aside, content)
        os.rename(aside, path)


@contextmanager
def _locked(path: str) -> Iterator[str]:
    """The path for a file that is not in place yet; one process at a time has it."""
    try:
        folder = os.open(folder_of(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            aside = f"{path}.new"
            with suppress(FileNotFoundError):
                os.unlink(aside)  # of a process that was killed: it never became the key
            yield aside
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise unwritten(path, error) from None


def _check_entry(path: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise _wrong(path, "is not a regular file")
    if found.st_uid != os.geteuid():
        raise _wrong(path, f"belongs to user {found.st_uid}, not to user {os.geteuid()}")
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise _wrong(path, f"can be used by others (mode {mode:04o})", f"chmod 600 {quoted(path)}")


# -- the form -------------------------------------------------------------------------------------


def _header(
    own_id: str, public: bytes, n: int, p: int, salt: bytes, nonce: bytes
) -> dict[str, JsonValue]:
    """Everything but `sealed`: the associated data."""
    return {
        "v": 1,
        "type": _TYPE,
        "key_id": own_id,
        "public_key": public.hex(),
        "kdf": {"name": "scrypt", "n": n, "r": R, "p": p, "salt": salt.hex()},
        "cipher": CIPHER,
        "nonce": nonce.hex(),
    }


def _kdf(path: str, kdf: JsonValue) -> tuple[int, int, bytes]:
    """(n, p, salt), bounded: nothing is derived with parameters that are not these."""
    if not isinstance(kdf, Mapping) or kdf.keys() != _KDF_FIELDS or kdf["name"] != "scrypt":
        raise _wrong(path, "names a key derivation that this mbx does not know")
    n, r, p = kdf["n"], kdf["r"], kdf["p"]
    if type(n) is not int or type(r) is not int or type(p) is not int:
        raise _wrong(path, "is damaged: a scrypt parameter is no whole number")
    if not _is_cost(n) or r != R or not 1 <= p <= P_MAX:
        raise _wrong(
            path,
            f"asks for scrypt parameters out of bounds (n 2^15 to 2^18, r {R}, p 1 to {P_MAX})",
        )
    return n, p, _bytes(path, "salt", kdf["salt"], _SALT_BYTES)


def _is_cost(n: int) -> bool:
    return N_MIN <= n <= N_MAX and n & (n - 1) == 0


def _bytes(path: str, name: str, value: JsonValue, size_bytes: int) -> bytes:
    if not isinstance(value, str) or len(value) != 2 * size_bytes or _HEX.fullmatch(value) is None:
        raise _wrong(path, f"is damaged: {name} is not {size_bytes} bytes in hex")
    return bytes.fromhex(value)


def _derive(passphrase: bytes | bytearray, salt: bytes, n: int, p: int) -> bytes:
    try:
        return Scrypt(salt=salt, length=32, n=n, r=R, p=p).derive(passphrase)
    except MemoryError:
        raise MbxError(
            "owner-locked",
            f"not enough memory to open the owner key: {n * R * 128 // 2**20} MiB are needed",
            "free some memory and try again",
        ) from None


def _wrong(path: str, what: str, remedy: str | None = None) -> MbxError:
    name = printable(path)
    return MbxError(
        "store-damaged",
        f"the owner key {name} {what}; it was left as it is",
        remedy or f"put a copy back that `mbx owner export` wrote, mode 600: {quoted(name)}",
        path=name,
    )
