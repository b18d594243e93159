"""What doctor says of the owner's key, of what is delegated, and of what keeps the proof."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mbx.core.keys import SigningKey, key_id
from mbx.daemon import floor as second_place
from mbx.daemon.host import Host
from mbx.daemon.world import moment
from mbx.doctor import authority
from mbx.doctor.files import Entry
from mbx.doctor.verdict import SHOWN_MAX, Check
from mbx.owner import keyfile
from tests.support.office import KEY, HandWorld

SEED = bytes([2]) * 32
OWNER = key_id("owner", SigningKey.from_seed(SEED).public)
SEALED = keyfile.seal(SEED, b"seven quiet otters", bytes(28), n=keyfile.N_MIN)
FILE = Entry("/h/owner.key", "file", 0o600, 1_000, len(SEALED))

POLICY = {
    "id": "0123456789abcdefghjkmnpqrs",
    "level": "collaborate",
    "to": ["ui-dev"],
    "from": ["api-dev@desk"],
    "until": "2026-02-07T12:00:00.000Z",
    "left_s": authority.EXPIRY_S,
}
WELL: dict[str, Any] = {
    "owner": {"key_id": OWNER, "since": "2026-01-31T12:00:00.000Z"},
    "policies": [POLICY],
    "chain_damage": [],
    "clock_behind_s": 0,
    "void_until": None,
    "floor": "ok",
    "floor_fault": None,
}


def faults(**changes: Any) -> list[Check]:
    return [one for one in authority.everything(WELL | changes) if one.level != "ok"]


def test_a_healthy_answer_has_no_fault() -> None:
    assert faults() == []
    assert faults(policies=[]) == []
    assert authority.everything({"leases": []}) == []


@pytest.mark.parametrize(
    ("changes", "name", "level", "words", "fix"),
    [
        ({"owner": None}, "owner", "info", "no owner yet", "mbx owner init"),
        (
            {"policies": [POLICY | {"left_s": authority.EXPIRY_S - 1}]},
            "policies",
            "warn",
            "policy 0123456789ab (collaborate) of ui-dev for mail from api-dev@desk ends in 23 h",
            f"mbx policy show {POLICY['id']}",
        ),
        (
            {"policies": [POLICY | {"level": "yolo", "left_s": 60}]},
            "yolo",
            "warn",
            "(yolo) of ui-dev for mail from api-dev@desk holds until 2026-02-07 12:00 UTC",
            f"mbx policy revoke {POLICY['id']}",
        ),
        (
            {"chain_damage": [{"host": "desk", "version": 3, "reason": "is missing"}]},
            "owner's chain",
            "fail",
            "record 3 of the chain of desk is missing: the policies before it are void",
            "sign anew",
        ),
        ({"clock_behind_s": 7_200}, "owner's clock", "fail", "2 h behind", "mbx owner clock"),
        ({"floor": "missing"}, "floor", "fail", "is missing", "sign a policy"),
        (
            {"floor": "unwritten", "floor_fault": "No space left on device"},
            "floor",
            "fail",
            "cannot be written (No space left on device)",
            "tries again",
        ),
        ({"void_until": 3}, "owner's chain", "fail", "up to record 3 is void", "sign anew"),
        ({"floor": "damaged"}, "floor", "fail", "not what this host wrote", "from a backup"),
        ({"floor": "another"}, "floor", "fail", "somebody has put it", "mbx audit --verify"),
    ],
)
def test_each_fault_is_named_with_its_level_and_remedy(
    changes: dict[str, Any], name: str, level: str, words: str, fix: str
) -> None:
    (check,) = faults(**changes)
    assert (check.name, check.level) == (name, level)
    assert words in check.detail
    assert check.fix is not None
    assert fix in check.fix


def test_without_an_owner_a_missing_floor_is_no_fault() -> None:
    assert {one.level for one in faults(owner=None, floor="missing")} == {"info"}


def test_what_ends_first_comes_first_and_many_are_counted() -> None:
    count = SHOWN_MAX + 3
    many: list[dict[str, Any]] = [
        {**POLICY, "id": f"{n:026}", "left_s": 1_000 - n} for n in range(count)
    ]
    found = faults(policies=many)
    assert many[-1]["id"] in str(found[0].fix)
    assert (len(found), found[-1].detail) == (SHOWN_MAX + 1, "and 3 more of this kind")


# -- the key file ---------------------------------------------------------------------------------


def key(seen: Entry = FILE, content: bytes | None = SEALED, owner: str | None = OWNER) -> Check:
    return authority.key(seen, content, 1_000, owner)


def test_a_key_file_that_fits_is_well_and_nothing_in_it_is_told() -> None:
    assert key() == Check("owner key", "ok", f"{OWNER}, under its passphrase")
    assert key(owner=None).level == "ok"
    sealed = json.loads(SEALED)["sealed"]
    for check in (key(), key(content=SEALED[:-9]), key(owner="x")):
        assert sealed not in str(check)


@pytest.mark.parametrize(
    ("check", "level", "words", "fix"),
    [
        (key(Entry("/h/k", "missing"), None), "info", "not on this machine", None),
        (key(Entry("/h/k", "missing"), None, None), "info", "none yet", None),
        (key(FILE._replace(kind="link")), "fail", "no regular file", "mv /h/owner.key"),
        (key(FILE._replace(user_id=7)), "fail", "belongs to user 7", "sudo chown 1000"),
        (key(content=None), "fail", "cannot be read", "chmod 600 /h/owner.key"),
        (key(content=b""), "fail", "is damaged", "mbx owner export"),
        (key(owner="0" * 26), "warn", "the owner of this host is 000", "mbx owner show"),
    ],
)
def test_a_key_file_that_does_not_fit_is_named(
    check: Check, level: str, words: str, fix: str | None
) -> None:
    assert (check.name, check.level) == ("owner key", level)
    assert words in check.detail
    assert (fix or "") in str(check.fix or "")


Change = Callable[[dict[str, Any]], object]
DAMAGES: dict[str, Change] = {
    "version": lambda one: one.update(v=2),
    "kind": lambda one: one.update(type="host-key"),
    "a field more": lambda one: one.update(note=""),
    "a field less": lambda one: one.pop("nonce"),
    "id": lambda one: one.update(key_id="owner"),
    "no id": lambda one: one.update(key_id=1),
    "short key": lambda one: one.update(public_key=one["public_key"][:-2]),
    "no hex": lambda one: one.update(sealed="g" * 96),
    "upper case": lambda one: one.update(sealed=one["sealed"].upper()),
    "no derivation": lambda one: one.update(kdf="scrypt"),
    "salt": lambda one: one["kdf"].update(salt="00"),
    "derivation": lambda one: one["kdf"].pop("p"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_no_key_file_of_ours_is_damaged(damage: str) -> None:
    told = json.loads(SEALED)
    DAMAGES[damage](told)
    assert authority.key_id_in(json.dumps(told).encode()) is None


def test_the_forms_that_the_owners_commands_read_are_read_here() -> None:
    for content in (SEALED, b"\xef\xbb\xbf" + SEALED, SEALED.strip(), b"\n " + SEALED + b"\r\n"):
        assert authority.key_id_in(content) == keyfile.parse_key("k", content).key_id
    assert authority.key_id_in(SEALED * 10) is None


# -- the floor's file -----------------------------------------------------------------------------

PLACE = Entry("/h/floor/floor.json", "file", 0o600)


def test_the_floor_is_known_by_its_form(tmp_path: Path) -> None:
    path = tmp_path / "floor" / "floor.json"
    host = Host("desk", key_id("host", KEY.public), KEY)
    second_place.save(str(path), host, moment(HandWorld()), second_place.Floor(1, 2, "ab"))
    whole = path.read_bytes()
    assert authority.floor_file(Entry("/h/f", "missing"), None) is None
    assert authority.floor_folder(Entry("/h/f", "folder")) is None
    check = authority.floor_folder(Entry("/h/f", "other"))
    assert check == Check(
        "floor", "fail", "/h/f is no folder: the floor cannot be kept there", "mv /h/f /h/f.aside"
    )
    assert authority.floor_file(PLACE, whole) == Check("floor", "ok", "there, signed by the host")
    for content in (None, b"", b"{}", whole[:-9], whole.replace(b'\\"floor\\"', b'\\"lease\\"')):
        check = authority.floor_file(PLACE, content)
        assert check is not None
        assert (check.level, "does not start" in check.detail) == ("fail", True)
