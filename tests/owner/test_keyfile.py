"""The owner's key at rest: what opens it, and everything that does not."""

import json
import os
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from mbx.core.errors import MbxError
from mbx.core.keys import SigningKey, key_id
from mbx.owner import keyfile
from mbx.owner.keyfile import SealedKey, WrongPassphrase
from tests.support.vectors import VECTORS

SEED = bytes(range(32))
PUBLIC = SigningKey.from_seed(SEED).public
CHANCE = bytes(range(100, 128))
PASSPHRASE = b"seven quiet otters"
CONTENT = keyfile.seal(SEED, PASSPHRASE, CHANCE, n=keyfile.N_MIN)
FIELDS: dict[str, Any] = json.loads(CONTENT)


def written(path: Path, content: bytes = CONTENT, mode: int = 0o600) -> str:
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


def with_kdf(**changes: object) -> bytes:
    return json.dumps({**FIELDS, "kdf": {**FIELDS["kdf"], **changes}}).encode()


def refusal(content: bytes) -> MbxError:
    """What `parse_key` says of a content that it must not take."""
    with pytest.raises(MbxError) as refused:
        keyfile.parse_key("/home/x/owner.key", content)
    assert refused.value.code == "store-damaged"
    assert "/home/x/owner.key" in refused.value.message
    assert "left as it is" in refused.value.message
    return refused.value


def test_a_sealed_key_opens_with_its_passphrase_and_with_no_other() -> None:
    sealed = keyfile.parse_key("k", CONTENT)
    assert sealed.open(PASSPHRASE) == SEED
    assert (sealed.key_id, sealed.public) == (key_id("owner", PUBLIC), PUBLIC)
    for wrong in (b"", PASSPHRASE + b" "):
        with pytest.raises(WrongPassphrase):
            sealed.open(wrong)


def test_the_usual_cost_is_128_mib_and_the_file_tells_it() -> None:
    sealed = keyfile.parse_key("k", keyfile.seal(SEED, PASSPHRASE, CHANCE))
    assert (sealed.n, sealed.p) == (131_072, 1)


def test_the_file_is_one_line_and_shows_neither_seed_nor_passphrase() -> None:
    assert CONTENT.count(b"\n") == 1
    assert CONTENT.endswith(b"\n")
    assert len(CONTENT) < 500
    assert SEED.hex().encode() not in CONTENT
    assert PASSPHRASE not in CONTENT


def test_the_same_seed_and_passphrase_never_make_the_same_secret_twice() -> None:
    again = json.loads(keyfile.seal(SEED, PASSPHRASE, bytes(28), n=keyfile.N_MIN))
    assert again["sealed"] != FIELDS["sealed"]


@pytest.mark.parametrize("chance", [b"", bytes(27), bytes(29)])
def test_a_key_is_not_sealed_with_too_little_chance(chance: bytes) -> None:
    with pytest.raises(ValueError, match="28 random bytes"):
        keyfile.seal(SEED, PASSPHRASE, chance, n=keyfile.N_MIN)


@pytest.mark.parametrize("n", [0, 2**14, 2**15 + 1, 2**19])
def test_a_key_is_not_sealed_with_a_cost_out_of_bounds(n: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        keyfile.seal(SEED, PASSPHRASE, CHANCE, n=n)


@pytest.mark.parametrize("change", [0x01, 0x20, 0x80])
def test_each_changed_byte_is_refused(change: int) -> None:
    opened = refused = 0
    for place in range(len(CONTENT)):
        damaged = bytearray(CONTENT)
        damaged[place] ^= change
        try:
            sealed = keyfile.parse_key("k", bytes(damaged))
        except MbxError:
            refused += 1
            continue
        # Salt, nonce and secret: digits that stay digits. Each 25th is enough at this cost.
        opened += 1
        if opened % 25 == 1:
            with pytest.raises(WrongPassphrase):
                sealed.open(PASSPHRASE)
    assert refused + opened == len(CONTENT)
    assert refused > 250


@pytest.mark.parametrize("name", sorted({*FIELDS, *(f"kdf.{name}" for name in FIELDS["kdf"])}))
def test_each_field_that_is_missing_or_of_another_type_is_refused(name: str) -> None:
    outer, _, inner = name.partition(".")
    values: tuple[Any, ...] = (None, [], "", "x", 1.5, True, {})
    for value in values:
        changed: dict[str, Any] = json.loads(CONTENT)
        (changed["kdf"] if inner else changed)[inner or outer] = value
        refusal(json.dumps(changed).encode())
    lacking: dict[str, Any] = json.loads(CONTENT)
    (lacking["kdf"] if inner else lacking).pop(inner or outer)
    refusal(json.dumps(lacking).encode())


def test_every_header_field_is_bound_to_the_secret() -> None:
    other = SigningKey.from_seed(bytes(32)).public
    changes: list[dict[str, Any]] = [
        {"public_key": other.hex(), "key_id": key_id("owner", other)},
        {"kdf": {**FIELDS["kdf"], "n": 2**16}},
        {"kdf": {**FIELDS["kdf"], "p": 2}},
        {"kdf": {**FIELDS["kdf"], "salt": "00" * 16}},
        {"nonce": "00" * 12},
        {"sealed": "00" * 48},
    ]
    for change in changes:
        sealed = keyfile.parse_key("k", json.dumps({**FIELDS, **change}).encode())
        with pytest.raises(WrongPassphrase):
            sealed.open(PASSPHRASE)


def test_a_secret_that_is_another_key_than_the_header_names_is_refused() -> None:
    """Only who knows the passphrase can make such a file; it must not pass for the owner's key."""
    other = SigningKey.from_seed(bytes(32)).public
    forged = {**FIELDS, "public_key": other.hex(), "key_id": key_id("owner", other)}
    del forged["sealed"]
    secret = Scrypt(salt=CHANCE[:16], length=32, n=keyfile.N_MIN, r=8, p=1).derive(PASSPHRASE)
    header = json.dumps(forged, sort_keys=True, separators=(",", ":")).encode()
    forged["sealed"] = AESGCM(secret).encrypt(CHANCE[16:], SEED, header).hex()
    sealed = keyfile.parse_key("k", json.dumps(forged).encode())
    with pytest.raises(MbxError, match="not the one it names"):
        sealed.open(PASSPHRASE)


@pytest.mark.parametrize(
    "changes",
    [
        {"n": 2**14},
        {"n": 2**19},
        {"n": 2**40},
        {"n": 2**53 - 1},
        {"n": 0},
        {"n": -1},
        {"n": 2**15 + 1},
        {"r": 1},
        {"r": 2**20},
        {"p": 0},
        {"p": 3},
        {"p": 2**30},
    ],
    ids=str,
)
def test_parameters_out_of_bounds_are_refused_before_any_memory_is_taken(
    changes: dict[str, int],
) -> None:
    tracemalloc.start()
    try:
        error = refusal(with_kdf(**changes))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert "out of bounds" in error.message


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (CONTENT[: len(CONTENT) // 2], "damaged"),
        (CONTENT + CONTENT, "damaged"),
        (b"\0" * 400, "damaged"),
        (b"x" * 5_000, "4096 bytes"),
        (CONTENT.replace(b'"v":1', b'"v":1,"v":1'), "damaged"),
        (CONTENT.replace(b'"v":1', b'"v":2'), "does not know"),
        (CONTENT.replace(b'"v":1', b'"v":1.0'), "damaged"),
        (CONTENT.replace(b"owner-key", b"mbx-host-key"), "no owner key"),
        (CONTENT.replace(b"scrypt", b"argon2id"), "key derivation"),
        (CONTENT.replace(b"aes-256-gcm", b"aes-128-gcm"), "cipher"),
        (CONTENT.replace(b'{"cipher"', b'{"a":1,"cipher"'), "unknown"),
        (FIELDS["sealed"].encode(), "damaged"),
        (b"[" * 4_000, "damaged"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(content: bytes, what: str) -> None:
    assert what in refusal(content).message


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + CONTENT,
        CONTENT.rstrip(),
        CONTENT.rstrip() + b"\r\n",
        b"\n " + CONTENT,
        json.dumps(FIELDS, indent=2).encode(),
        json.dumps(dict(reversed(FIELDS.items()))).encode(),
    ],
)
def test_harmless_variants_of_a_file_are_read(content: bytes) -> None:
    sealed = keyfile.parse_key("k", content)
    assert (sealed.key_id, sealed.sealed.hex()) == (FIELDS["key_id"], FIELDS["sealed"])


# -- on the disk ----------------------------------------------------------------------------------


def load_refusal(path: Path) -> MbxError:
    with pytest.raises(MbxError) as refused:
        keyfile.load(str(path))
    assert str(path) in refused.value.message
    assert refused.value.next_step
    return refused.value


def test_a_file_is_made_private_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "owner.key"
    old_mask = os.umask(0)
    try:
        keyfile.create(str(path), CONTENT)
    finally:
        os.umask(old_mask)
    assert path.stat().st_mode & 0o7777 == 0o600
    assert keyfile.load(str(path)) == keyfile.parse_key(str(path), CONTENT)
    assert os.listdir(tmp_path) == ["owner.key"]


def test_no_file_names_the_ways_to_one(tmp_path: Path) -> None:
    error = load_refusal(tmp_path / "owner.key")
    assert error.code == "not-found"
    assert "mbx owner init" in str(error.next_step)


def test_open_modes_links_folders_and_pipes_are_refused_by_name(tmp_path: Path) -> None:
    for mode in (0o640, 0o604, 0o660, 0o700 | 0o001):
        error = load_refusal(Path(written(tmp_path / f"mode{mode:o}", mode=mode)))
        assert f"mode {mode:04o}" in error.message
        assert "chmod 600" in str(error.next_step)
    (tmp_path / "link").symlink_to(written(tmp_path / "real"))
    assert "is a link" in load_refusal(tmp_path / "link").message
    (tmp_path / "folder").mkdir(mode=0o700)
    assert "not a regular file" in load_refusal(tmp_path / "folder").message
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert "not a regular file" in load_refusal(tmp_path / "pipe").message


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_file_of_another_user_is_refused_by_name(tmp_path: Path) -> None:
    path = Path(written(tmp_path / "owner.key"))
    os.chown(path, 65_534, 65_534)
    assert "belongs to user 65534" in load_refusal(path).message


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "owner.key"
    for there in ("file", "link", "folder"):
        if there == "file":
            path.write_bytes(b"precious")
        elif there == "link":
            path.symlink_to(tmp_path / "nowhere")
        else:
            path.mkdir()
        with pytest.raises(MbxError) as refused:
            keyfile.create(str(path), CONTENT)
        assert refused.value.code == "conflict"
        assert path.is_symlink() or path.is_dir() or path.read_bytes() == b"precious"
        assert os.listdir(tmp_path) == ["owner.key"]
        path.rmdir() if path.is_dir() else path.unlink()


def test_of_many_that_make_a_key_at_once_one_does(tmp_path: Path) -> None:
    path = str(tmp_path / "owner.key")
    contents = [CONTENT.replace(b'"v":1', b'"v":%d' % number) for number in range(2, 34)]

    def made(content: bytes) -> bool:
        try:
            keyfile.create(path, content)
        except MbxError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(made, contents))
    assert outcomes.count(True) == 1
    assert Path(path).read_bytes() == contents[outcomes.index(True)]
    assert os.listdir(tmp_path) == ["owner.key"]


_KILLED = """
import os, sys
from mbx.owner import files, keyfile
path, step = sys.argv[1], sys.argv[2]
die = lambda *_, **__: os._exit(9)
setattr(os, step, die)
keyfile.create(path, sys.stdin.buffer.read())
"""


@pytest.mark.parametrize("step", ["write", "fsync", "link"])
def test_a_maker_that_dies_on_the_way_leaves_no_key_and_no_hindrance(
    tmp_path: Path, step: str
) -> None:
    path = tmp_path / "owner.key"
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(path), step], input=CONTENT, timeout=20, check=False
    )
    assert done.returncode == 9
    assert not path.exists()
    keyfile.create(str(path), CONTENT)
    assert keyfile.load(str(path)).raw == CONTENT
    assert os.listdir(tmp_path) == ["owner.key"]


def test_a_changed_file_replaces_the_old_one_whole(tmp_path: Path) -> None:
    path = tmp_path / "owner.key"
    keyfile.create(str(path), CONTENT)
    new = keyfile.seal(SEED, b"another one", bytes(28), n=keyfile.N_MIN)
    keyfile.replace(str(path), CONTENT, new)
    assert path.read_bytes() == new
    assert path.stat().st_mode & 0o7777 == 0o600
    with pytest.raises(MbxError) as refused:
        keyfile.replace(str(path), CONTENT, CONTENT)
    assert refused.value.code == "conflict"
    assert path.read_bytes() == new


def test_a_folder_that_cannot_be_used_is_a_refusal_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "owner.key"
    with pytest.raises(MbxError) as refused:
        keyfile.create(str(path), CONTENT)
    assert str(path) in refused.value.message


# -- the published cases --------------------------------------------------------------------------


def test_scrypt_is_that_of_rfc_7914() -> None:
    cases = json.loads((VECTORS / "rfc7914/scrypt.json").read_bytes())["tests"]
    for case in cases:
        kdf = Scrypt(
            salt=case["salt"].encode(), length=case["dklen"], n=case["n"], r=case["r"], p=case["p"]
        )
        assert kdf.derive(case["password"].encode()).hex() == case["out"]
    assert len(cases) == 3


def test_aes_256_gcm_is_that_of_the_published_cases() -> None:
    suite = json.loads((VECTORS / "wycheproof/aes_gcm_test.json").read_bytes())
    judged = {"valid": 0, "invalid": 0}
    for group in suite["testGroups"]:
        if (group["keySize"], group["ivSize"], group["tagSize"]) != (256, 96, 128):
            continue
        for case in group["tests"]:
            key, iv, aad, ct, tag, msg = (
                bytes.fromhex(case[name]) for name in ("key", "iv", "aad", "ct", "tag", "msg")
            )
            try:
                opened: bytes | None = AESGCM(key).decrypt(iv, ct + tag, aad)
            except InvalidTag:
                opened = None
            assert opened == (msg if case["result"] == "valid" else None)
            judged[case["result"]] += 1
    assert sum(judged.values()) == 66
    assert min(judged.values()) > 10


def test_a_sealed_key_is_a_plain_value() -> None:
    assert keyfile.parse_key("k", CONTENT) == SealedKey(
        "k",
        CONTENT,
        FIELDS["key_id"],
        PUBLIC,
        keyfile.N_MIN,
        1,
        CHANCE[:16],
        CHANCE[16:],
        bytes.fromhex(FIELDS["sealed"]),
    )
