"""The host key: made once, in private; anything wrong with it stops the daemon and is left."""

import base64
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mbx.core.errors import MbxError
from mbx.core.keys import SigningKey, key_id
from mbx.daemon import keystore
from tests.support.daemon import Daemon, fresh_home
from tests.support.entries import entry_of

SEED = bytes(range(32))
PUBLIC = SigningKey.from_seed(SEED).public


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "host.key"


def load(path: Path, *, must_exist: bool = True, seed: bytes = b"\1" * 32) -> SigningKey:
    return keystore.load_or_create(str(path), seed, must_exist=must_exist)


def good_file(path: Path) -> bytes:
    load(path, must_exist=False, seed=SEED)
    return path.read_bytes()


def changed(content: bytes, **fields: object) -> bytes:
    return json.dumps(json.loads(content) | fields).encode()


# -- one key --------------------------------------------------------------------------------------


def test_the_key_is_made_once_and_is_the_same_ever_after(path: Path) -> None:
    first = load(path, must_exist=False, seed=SEED)
    before = path.read_bytes()
    assert first.public == PUBLIC
    assert load(path, must_exist=False).public == PUBLIC
    assert load(path).public == PUBLIC
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["host.key"]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_the_key_is_private_whatever_the_umask(umask: int, path: Path) -> None:
    before = os.umask(umask)
    try:
        if umask == 0o777 and os.geteuid() != 0:
            pytest.skip("a file without any permission cannot be read back but by root")
        load(path, must_exist=False)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) & 0o177 == 0
    assert path.stat().st_nlink == 1


def test_the_left_over_of_a_start_that_was_killed_does_not_become_the_key(path: Path) -> None:
    aside = path.with_name("host.key.new")
    aside.write_bytes(b"half a k")
    assert load(path, must_exist=False, seed=SEED).public == PUBLIC
    assert not aside.exists()


@pytest.mark.parametrize("content", [b"half a k", None])
def test_the_left_over_of_a_start_that_was_killed_goes_where_there_is_a_key(
    path: Path, content: bytes | None
) -> None:
    key = load(path, must_exist=False)
    aside = path.with_name("host.key.new")
    if content is None:
        os.link(path, aside)  # killed between its link and its unlink
    else:
        aside.write_bytes(content)
    assert load(path).public == key.public
    assert not aside.exists()
    assert path.stat().st_nlink == 1


def test_a_key_that_cannot_be_made_is_named_with_the_next_step(path: Path) -> None:
    path.with_name("host.key.new").mkdir()
    with pytest.raises(MbxError, match=r"host\.key cannot be made") as refused:
        load(path, must_exist=False)
    assert refused.value.code == "daemon-unreachable"
    assert refused.value.as_object()["next"]
    assert not path.exists()


def test_a_missing_key_is_a_loss_when_the_store_has_an_owner(path: Path) -> None:
    with pytest.raises(MbxError, match=r"host\.key is missing") as refused:
        load(path)
    assert refused.value.code == "store-damaged"
    assert os.listdir(path.parent) == []


# -- harmless variants ----------------------------------------------------------------------------

HARMLESS: dict[str, Callable[[bytes], bytes]] = {
    "no line end": bytes.strip,
    "CRLF": lambda raw: raw.strip() + b"\r\n",
    "byte order mark": lambda raw: b"\xef\xbb\xbf" + raw,
    "blank lines": lambda raw: b"\n \n" + raw + b"\n\n",
    "indented": lambda raw: json.dumps(json.loads(raw), indent=4).encode(),
    "more fields": lambda raw: changed(raw, comment="the key of my laptop"),
}


@pytest.mark.parametrize("variant", HARMLESS.values(), ids=HARMLESS.keys())
def test_a_harmless_variant_of_the_file_is_read(
    variant: Callable[[bytes], bytes], path: Path
) -> None:
    path.write_bytes(variant(good_file(path)))
    assert load(path).public == PUBLIC


# -- damage ---------------------------------------------------------------------------------------

OTHER_ID = key_id("host", SigningKey.from_seed(b"\2" * 32).public)
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda raw: b"",
    "half": lambda raw: raw[: len(raw) // 2],
    "one byte short": lambda raw: raw.strip()[:-1],
    "zeros": lambda raw: bytes(len(raw)),
    "not UTF-8": lambda raw: b"\xff" + raw,
    "twice": lambda raw: raw + raw,
    "no object": lambda raw: b"[]",
    "deep": lambda raw: b"[" * 4_000,
    "too large": lambda raw: raw + b" " * 5_000,
    "no seed": lambda raw: changed(raw, seed=None),
    "short seed": lambda raw: changed(raw, seed=base64.b64encode(SEED[:31]).decode()),
    "long seed": lambda raw: changed(raw, seed=base64.b64encode(SEED + b"x").decode()),
    "another seed": lambda raw: changed(raw, seed=base64.b64encode(b"\3" * 32).decode()),
    "seed is not base64": lambda raw: changed(raw, seed="!" * 44),
    "another key id": lambda raw: changed(raw, key_id=OTHER_ID),
    "another type": lambda raw: changed(raw, type="mbx-owner-key"),
    "a newer version": lambda raw: changed(raw, v=2),
    "a PEM file": lambda raw: b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.parametrize("must_exist", [True, False])
def test_a_damaged_key_is_named_and_left_byte_for_byte(
    damage: Callable[[bytes], bytes], must_exist: bool, path: Path
) -> None:
    path.write_bytes(damage(good_file(path)))
    before = (path.read_bytes(), entry_of(path))
    with pytest.raises(MbxError) as refused:
        load(path, must_exist=must_exist)
    assert refused.value.code == "store-damaged"
    assert str(path) in refused.value.message
    assert refused.value.next_step
    assert (path.read_bytes(), entry_of(path)) == before
    assert os.listdir(path.parent) == ["host.key"]


def link_to_key(path: Path) -> None:
    path.rename(path.with_name("real.key"))
    path.symlink_to("real.key")


def dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o700)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


NO_FILES: dict[str, Callable[[Path], None]] = {
    "link": link_to_key,
    "dangling link": dangling_link,
    "folder": folder,
    "pipe": pipe,
}


@pytest.mark.parametrize("put", NO_FILES.values(), ids=NO_FILES.keys())
@pytest.mark.parametrize("must_exist", [True, False])
def test_what_is_no_file_of_its_own_is_named_and_left(
    put: Callable[[Path], None], must_exist: bool, path: Path
) -> None:
    good_file(path)
    put(path)
    before = (sorted(os.listdir(path.parent)), entry_of(path))
    with pytest.raises(MbxError, match=r"host\.key") as refused:
        load(path, must_exist=must_exist)
    assert refused.value.code == "store-damaged"
    assert (sorted(os.listdir(path.parent)), entry_of(path)) == before


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644, 0o660, 0o601, 0o700, 0o400])
def test_a_key_that_others_can_read_is_refused_with_the_remedy(mode: int, path: Path) -> None:
    before = good_file(path)
    path.chmod(mode)
    if mode & 0o077:
        with pytest.raises(MbxError, match=f"mode {mode:04o}") as refused:
            load(path)
        assert refused.value.next_step == f"chmod 600 {path}"
    else:
        assert load(path).public == PUBLIC
    assert path.read_bytes() == before
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_the_remedy_for_an_open_key_is_a_command_in_any_folder(tmp_path: Path) -> None:
    odd = tmp_path / "a b"
    odd.mkdir()
    path = odd / "host.key"
    good_file(path)
    path.chmod(0o644)
    with pytest.raises(MbxError) as refused:
        load(path)
    assert refused.value.next_step == f"chmod 600 '{path}'"


# -- with the daemon around it --------------------------------------------------------------------


@pytest.fixture
def home() -> Iterator[Path]:
    with fresh_home() as folder:
        yield folder


def files(home: Path) -> dict[str, bytes]:
    """What must stay as it is: not the log, which says why, nor the lock."""
    named = ("host.key", "store.db", "store.db-wal")
    return {name: (home / name).read_bytes() for name in named if (home / name).is_file()}


def used(home: Path) -> bytes:
    """An installation with an identity; its key file."""
    with Daemon(home) as daemon, daemon.agent() as agent:
        agent.registered("anna").close()
        daemon.stop()
    return (home / "host.key").read_bytes()


def refusal(home: Path) -> dict[str, str]:
    daemon = Daemon(home)
    said = daemon.start()
    assert daemon.wait() == 1
    error = said["error"]
    assert isinstance(error, dict)
    return error


def test_all_files_are_private_from_the_first_instant(home: Path) -> None:
    lax = ("sh", "-c", 'umask 0; exec "$0" "$@"')
    with Daemon(home, prefix=lax) as daemon, daemon.agent() as agent:
        agent.registered("anna").close()
        found = list(home.rglob("*"))
        assert {path.name for path in found} >= {
            *("host.key", "store.db", "store.db-wal", "daemon.lock", "daemon.log"),
            *("run", "mbx.sock", "sessions", "snapshots"),
        }
        open_to_others = []
        for path in found:
            # A sign of life may be renamed meanwhile: then it is looked at by its other name.
            with suppress(FileNotFoundError):
                if path.stat().st_mode & 0o077:
                    open_to_others.append(path)
        assert open_to_others == []


@pytest.mark.parametrize("damage", ["empty", "half", "another seed", "missing", "other key"])
def test_the_daemon_stops_at_a_wrong_key_and_goes_on_once_the_right_one_is_back(
    damage: str, home: Path
) -> None:
    key_file = used(home)
    path = home / "host.key"
    if damage == "missing":
        path.unlink()
    elif damage == "other key":
        path.unlink()
        keystore.load_or_create(str(path), b"\7" * 32, must_exist=False)
    else:
        path.write_bytes(DAMAGES[damage](key_file))
    before = files(home)
    for _ in range(2):
        error = refusal(home)
        assert error["code"] == "store-damaged"
        assert str(path) in error["message"]
        assert files(home)["store.db"] == before["store.db"]
        assert files(home).get("host.key") == before.get("host.key")
    path.write_bytes(key_file)
    path.chmod(0o600)
    with Daemon(home) as daemon, daemon.line() as line:
        line.hello()
        assert [one["name"] for one in line.call("identity.list")["identities"]] == ["anna"]


@pytest.mark.root
def test_an_unreadable_key_stops_the_daemon_of_a_plain_user(home: Path) -> None:
    """Root reads everything, so the daemon runs as nobody here."""
    nobody = 65_534
    os.chown(home, nobody, nobody)
    run_as = ("setpriv", f"--reuid={nobody}", f"--regid={nobody}", "--clear-groups")
    starter = Daemon(home, prefix=run_as)
    said = starter.start()
    if "ready" not in said:
        starter.wait()
        pytest.skip("another user cannot run the daemon from here")
    starter.stop()
    path = home / "host.key"
    before = path.read_bytes()
    path.chmod(0)
    blocked = Daemon(home, prefix=run_as)
    error = blocked.start()["error"]
    blocked.wait()
    assert error["code"] == "store-damaged"
    assert "cannot be read" in error["message"]
    assert path.read_bytes() == before
