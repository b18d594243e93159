"""Attacks with a former key of the owner's, and on the record by which the key was changed."""

from collections.abc import Iterator

import pytest

from mbx.core.keys import key_id
from tests.daemon.test_policy_attacks import HOST_LIKE, STRANGER, Scene
from tests.support.office import nobody
from tests.support.owner import Owner, content, wire


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.desk.close()


def test_key_compromise_a_former_key_signs_nothing_any_more(scene: Scene) -> None:
    scene.policy("collaborate")
    stolen = scene.owner.key
    early = scene.owner.signed(scene.draft("yolo"))
    draft = scene.owner.draft("rotate", public_key=STRANGER.public.hex())
    scene.owner.apply(scene.owner.signed(draft, STRANGER))
    assert scene.refused(early) == "owner-required"
    heir = Owner(scene.desk, STRANGER)
    thief = Owner(scene.desk, stolen)
    for act in ("policy", "revoke", "clock"):
        wanted: dict[str, object] = {"all": True} if act == "revoke" else {}
        if act == "policy":
            wanted = {"to": ["ui"], "from": ["local"], "level": "yolo"}
        assert scene.refused(thief.signed(thief.draft(act, **wanted))) == "owner-required"
    assert scene.line().startswith("policy: collaborate (")
    scene.restart()
    assert scene.line().startswith("policy: collaborate (")
    scene.owner = heir
    assert scene.holds_again()


def changed_key(scene: Scene) -> Owner:
    """The owner changes the key; the former one is stolen."""
    draft = scene.owner.draft("rotate", public_key=STRANGER.public.hex())
    scene.owner.apply(scene.owner.signed(draft, STRANGER))
    return Owner(scene.desk, STRANGER)


def test_key_compromise_a_former_key_puts_no_other_record_at_the_end_of_its_chain(
    scene: Scene,
) -> None:
    other = scene.owner.signed(scene.draft("yolo"))
    scene.policy("collaborate")
    scene.owner = changed_key(scene)
    assert scene.line().startswith("policy: collaborate (")
    ((key, signature),) = other["signatures"].items()
    replace = "UPDATE owner_records SET payload = ?, signatures = ? WHERE version = 1"
    scene.tamper(replace, other["payload"], f'[["{key}","{signature}"]]')
    assert scene.is_ask("record 1", "changed the key")
    assert scene.holds_again()


@pytest.mark.parametrize(
    "tampered",
    [
        "DELETE FROM owner_records WHERE kind = 'rotate' AND record_id <> ?",
        "UPDATE owner_records SET signatures = '[]' WHERE kind = 'rotate' AND record_id <> ?",
        "UPDATE owner_records SET payload = '{}' WHERE kind = 'rotate' AND record_id <> ?",
    ],
)
def test_key_compromise_without_the_record_of_the_change_the_chain_before_it_is_void(
    scene: Scene, tampered: str
) -> None:
    first = scene.desk.rows("SELECT record_id FROM owner_records")[0][0]
    scene.policy("collaborate")
    scene.owner = changed_key(scene)
    scene.tamper(tampered, first)
    assert scene.is_ask("record 1", "changed the key")
    assert scene.holds_again()


@pytest.mark.parametrize("until", [None, 2, 7])
def test_key_compromise_a_row_that_lets_a_former_key_go_on_lets_it_nothing(
    scene: Scene, until: int | None
) -> None:
    scene.policy("collaborate")
    stolen = scene.owner
    scene.owner = changed_key(scene)
    next_one = {**content(stolen.draft("policy", to=["ui"], level="yolo", **{"from": ["local"]}))}
    forged = wire("policy", {**next_one, "owner": stolen.id}, stolen.key)
    ((key, signature),) = forged["signatures"].items()
    row = (forged["payload"], f'[["{key}","{signature}"]]')
    scene.desk.connection.execute(
        "INSERT INTO owner_records (kind, record_id, version, payload, signatures, applied_ms,"
        " answer, acceptance, acceptance_signature) SELECT kind, substr(record_id, 2) || '0', 2,"
        " ?, ?, applied_ms, answer, acceptance, acceptance_signature FROM owner_records"
        " WHERE version = 1",
        row,
    )
    scene.tamper("UPDATE owner_keys SET until_version = ? WHERE key_id = ?", until, stolen.id)
    assert scene.is_ask("record 2", "no key of the owner's")
    assert scene.holds_again()


def test_a_key_that_was_given_up_never_comes_back(scene: Scene) -> None:
    first = scene.owner.key
    draft = scene.owner.draft("rotate", public_key=STRANGER.public.hex())
    scene.owner.apply(scene.owner.signed(draft, STRANGER))
    heir = Owner(scene.desk, STRANGER)
    fresh = content(heir.draft("rotate", public_key=HOST_LIKE.public.hex()))
    for key in (first, STRANGER):
        error = scene.desk.refusal(
            nobody(), "owner.draft", act="rotate", public_key=key.public.hex()
        )
        assert error.code == "conflict"
        forged = {**fresh, "public_key": key.public.hex(), "owner": key_id("owner", key.public)}
        assert scene.refused(wire("rotate", forged, key, STRANGER)) == "conflict"
    shouted = {**fresh, "public_key": HOST_LIKE.public.hex().upper()}
    assert scene.refused(wire("rotate", shouted, HOST_LIKE, STRANGER)) == "owner-required"


@pytest.mark.parametrize(
    "change",
    [{"until_version": 9}, {"previous": "z" * 26}, {"previous": None}, {"head": "0" * 64}],
)
def test_a_rotation_for_another_state(scene: Scene, change: dict[str, object]) -> None:
    draft = content(scene.owner.draft("rotate", public_key=STRANGER.public.hex()))
    record = wire("rotate", {**draft, **change}, scene.owner.key, STRANGER)
    assert scene.refused(record) == "conflict"
