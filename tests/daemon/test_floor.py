"""The second place: what it says is believed only if this host wrote it, and it never falls."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from mbx.core.errors import MbxError
from mbx.core.keys import SigningKey, key_id
from mbx.daemon import booting, codec, floor
from mbx.daemon.authority import Authority
from mbx.daemon.effects import Authorised
from mbx.daemon.floor import Floor, FollowedFloor
from mbx.daemon.host import Host
from mbx.daemon.world import moment
from mbx.store import audit, owners
from mbx.store.database import Committed, Tx, run_reads
from tests.support.entries import entry_of
from tests.support.office import KEY, HandWorld, OfficeDesk
from tests.support.owner import an_owner

WORLD = HandWorld()
HOST = Host("desk", key_id("host", KEY.public), KEY)
OTHER = SigningKey.from_seed(bytes([5]) * 32)
OTHER_HOST = Host("lab", key_id("host", OTHER.public), OTHER)
REACHED = Floor(7, 12, "ab" * 32)


@pytest.fixture
def path(tmp_path: Path) -> str:
    place = tmp_path / "floor"
    place.mkdir(mode=0o700)
    floor.save(str(place / "floor.json"), HOST, moment(WORLD), REACHED)
    return str(place / "floor.json")


def refusal(path: str) -> MbxError:
    """Why it is not believed; the file stays as it is."""
    before = entry_of(path)
    with pytest.raises(MbxError) as caught:
        floor.load(path, HOST)
    assert entry_of(path) == before
    assert caught.value.code == "store-damaged"
    assert path in caught.value.message
    assert "move it aside" in str(caught.value.next_step)
    return caught.value


def test_what_was_written_is_read(path: str) -> None:
    assert floor.load(path, HOST) == REACHED
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    floor.save(path, HOST, moment(WORLD), Floor(8, 13, ""))
    assert floor.load(path, HOST) == Floor(8, 13, "")
    assert os.listdir(os.path.dirname(path)) == ["floor.json"]


def test_it_makes_its_folder_private_and_needs_it_so(tmp_path: Path) -> None:
    path = tmp_path / "fresh" / "floor.json"
    assert floor.load(str(path), HOST) is None
    floor.save(str(path), HOST, moment(WORLD), REACHED)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.parent.chmod(0o777)
    with pytest.raises(MbxError):
        floor.save(str(path), HOST, moment(WORLD), Floor(8))
    assert floor.load(str(path), HOST) == REACHED


def test_every_byte_of_it_is_believed_or_refused(path: str) -> None:
    content = Path(path).read_bytes()
    for at in range(len(content) - 1):
        Path(path).write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        refusal(path)
    for length in range(0, len(content) - 1, 13):
        Path(path).write_bytes(content[:length])
        refusal(path)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"\n", b"null", b"\xff", b"x" * 5_000, b"[" * 4_000]
)
def test_what_is_no_floor_is_refused(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)
    refusal(path)


def test_the_floor_of_another_host_is_refused(path: str) -> None:
    floor.save(path, OTHER_HOST, moment(WORLD), REACHED)
    assert "step 3" in refusal(path).message


def test_a_field_too_many_is_refused(path: str) -> None:
    content = Path(path).read_bytes()
    Path(path).write_bytes(content.replace(b"{", b'{"also":1,', 1))
    refusal(path)


@pytest.mark.parametrize("version", [True, "7", None])
def test_a_field_of_another_type_is_refused(path: str, version: Any) -> None:
    floor.save(path, HOST, moment(WORLD), REACHED._replace(version=version))
    refusal(path)


def replaced(path: Path, what: str) -> None:
    """Put something else in its place."""
    path.rename(f"{path}.true")
    match what:
        case "a link to it":
            path.symlink_to(f"{path}.true")
        case "a link that leads nowhere":
            path.symlink_to("/nowhere/at/all")
        case "a link to itself":
            path.symlink_to(path)
        case "a folder":
            path.mkdir()
        case _:
            os.mkfifo(path)


@pytest.mark.parametrize(
    "what",
    ["a link to it", "a link that leads nowhere", "a link to itself", "a folder", "a pipe"],
)
def test_what_is_no_file_is_not_taken_for_a_missing_one(path: str, what: str) -> None:
    replaced(Path(path), what)
    refusal(path)


def test_an_open_mode_neither_hurts_nor_stays(path: str) -> None:
    """The signature protects it; who may write to it may as well remove it."""
    os.chmod(path, 0o666)
    assert floor.load(path, HOST) == REACHED
    floor.save(path, HOST, moment(WORLD), Floor(8))
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


@pytest.mark.parametrize("is_link", [True, False])
def test_what_a_killed_daemon_left_beside_it_is_in_nobodys_way(path: str, *, is_link: bool) -> None:
    aside = Path(f"{path}.new")
    if is_link:
        aside.symlink_to("/nowhere/at/all")
    else:
        aside.write_bytes(b"half")
    floor.save(path, HOST, moment(WORLD), Floor(8))
    assert floor.load(path, HOST) == Floor(8)
    assert not os.path.lexists(aside)


def test_a_disk_that_takes_nothing_leaves_the_old_one(path: str) -> None:
    os.mkdir(f"{path}.new")
    with pytest.raises(OSError, match="new"):
        floor.save(path, HOST, moment(WORLD), Floor(8))
    assert floor.load(path, HOST) == REACHED


# -- at a start -----------------------------------------------------------------------------------


def started(desk: OfficeDesk, known: Floor | None) -> Floor:
    read = run_reads(
        desk.connection, [lambda tx: booting._floor(tx, known, desk.host, desk.world.now_ms())]
    )[0]
    assert isinstance(read, Committed)
    reached = read.value
    assert isinstance(reached, Floor)
    return reached


def test_a_start_takes_the_higher_of_the_two_places() -> None:
    desk = OfficeDesk()
    desk.add_owner()
    owner = an_owner(desk)
    desk.holder("ui", 1)
    assert started(desk, None) == Floor()
    row = (3, (audit.hash_at(Tx(desk.connection, 0), 3) or b"").hex())
    assert started(desk, Floor(0, *row)) == Floor(0, *row)
    for _ in range(2):
        owner.do("policy", to=["ui"], level="collaborate", **{"from": ["local"]})
    assert started(desk, Floor(1, *row)) == Floor(2, *row)
    assert started(desk, Floor(5, *row)) == Floor(5, *row)
    lost = started(desk, None)
    assert lost.version == 3
    assert lost.audit_no > 0
    desk.connection.execute("UPDATE owner_records SET version = 1 << 60 WHERE version = 2")
    assert started(desk, Floor(2, *row)).version == 2
    desk.close()


@pytest.mark.parametrize("gone", [(3, "ab" * 32), (99, "ab" * 32)])
def test_a_log_without_the_row_voids_the_chain_once_until_the_row_is_back(
    gone: tuple[int, str],
) -> None:
    desk = OfficeDesk()
    desk.add_owner()
    owner = an_owner(desk)
    desk.holder("ui", 1)
    row = (3, (audit.hash_at(Tx(desk.connection, 0), 3) or b"").hex())
    assert started(desk, Floor(0, *gone)) == Floor(0, *gone, void=0)
    owner.do("policy", to=["ui"], level="collaborate", **{"from": ["local"]})
    seen = started(desk, Floor(1, *gone))
    assert seen == Floor(1, *gone, void=1)
    owner.do("policy", to=["ui"], level="collaborate", **{"from": ["local"]})
    assert started(desk, seen) == Floor(2, *gone, void=1), "what was signed since holds"
    assert started(desk, Floor(2, *row, void=1)) == Floor(2, *row), "the true store is back"
    desk.close()


def test_a_floor_of_an_older_mbx_is_read(path: str) -> None:
    payload: dict[str, Any] = {"v": 1, "type": "floor", "iat": 1, "nonce": "0" * 32}
    payload |= {"aud": HOST.key_id, "version": 7, "audit_no": 12, "audit_hash": "ab" * 32}
    cases: list[tuple[dict[str, Any], Floor | None]]
    cases = [({}, REACHED), ({"void": None}, REACHED), ({"void": "1"}, None)]
    for more, known in cases:
        record = HOST.sign("floor", payload | more).record(HOST.key_id)
        content = {"payload": record.payload, "signature": record.signatures[HOST.key_id]}
        Path(path).write_bytes(codec.canonical(content) + b"\n")
        if known is None:
            refusal(path)
        else:
            assert floor.load(path, HOST) == known


def test_it_never_falls_in_whatever_order_it_is_told() -> None:
    authority = Authority(HOST.key_id, 3)
    for version in (5, 4, 1, 0):
        authority.floor = version
        assert authority.floor == 5


def test_each_record_that_is_applied_tells_how_far_things_went() -> None:
    desk = OfficeDesk()
    desk.add_owner()
    owner = an_owner(desk)
    desk.holder("ui", 1)
    owner.do("policy", to=["ui"], level="collaborate", **{"from": ["local"]})
    owner.do("clock")
    told = [one for one in desk.effects if isinstance(one, Authorised)]
    assert [one.version for one in told] == [0, 1, 0]
    assert [one.audit_no for one in told] == sorted({one.audit_no for one in told})
    chain = run_reads(desk.connection, [owners.chain])[0]
    assert isinstance(chain, Committed)
    assert [link.version for link in chain.value] == [1]
    desk.close()


FOLLOWED = (FollowedFloor("a" * 26, 7, 5), FollowedFloor("b" * 26, 1, 6, 1))


def test_the_places_of_other_hosts_chains_are_kept_too(path: str) -> None:
    far = Floor(3, 9, "ab" * 32, None, FOLLOWED)
    floor.save(path, HOST, moment(WORLD), far)
    assert floor.load(path, HOST) == far
    many = tuple(FollowedFloor(f"{number:026d}", 2**40, 2**41, 2**40) for number in range(400))
    floor.save(path, HOST, moment(WORLD), far._replace(followed=many))
    assert floor.load(path, HOST) == far._replace(followed=many)


@pytest.mark.parametrize(
    "followed",
    [None, {}, ["a"], [["a" * 26, 1, 5]], [["a" * 26, True, 5, None]], [["a" * 26, 1, 5, "x"]]],
)
def test_a_place_of_a_chain_that_is_none_is_not_what_this_host_wrote(
    path: str, monkeypatch: pytest.MonkeyPatch, followed: Any
) -> None:
    sign = Host.sign

    def other(host: Host, kind: str, payload: Any) -> Any:
        return sign(host, kind, {**payload, "followed": followed})

    monkeypatch.setattr(Host, "sign", other)
    floor.save(path, HOST, moment(WORLD), Floor(3))
    with pytest.raises(MbxError) as caught:
        floor.load(path, HOST)
    assert caught.value.code == "store-damaged"
