"""Attacks on the owner's chain, each by its name as the tests of update frameworks have them.

Two sorts: records that somebody brings (refused, and nothing has changed), and a store that
somebody wrote to while no daemon ran (then nothing is granted, with the reason shown, until the
owner signs again). The list of names is that of TUF, whose tests show what a signed chain needs.
"""

import base64
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mbx.core.keys import SigningKey, key_id
from mbx.core.limits import POLICY_PROJECTS_MAX
from mbx.daemon.authority import Authority
from mbx.daemon.effects import Authorised
from mbx.daemon.gate import Caller
from mbx.store import inspection
from mbx.store.database import Committed, run_group, run_reads
from tests.support.office import OfficeDesk, nobody, shell
from tests.support.owner import Wire, an_owner, content, wire

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
STRANGER = SigningKey.from_seed(bytes([99]) * 32)
HOST_LIKE = SigningKey.from_seed(bytes([98]) * 32)


class Scene:
    """A desk with an owner and two agents, `ui` (whom policies concern) and `api` (who writes)."""

    def __init__(self) -> None:
        self.desk = OfficeDesk()
        self.desk.add_owner()
        self.owner = an_owner(self.desk)
        self.ui = self.desk.holder("ui", 1)
        self.api = self.desk.holder("api", 2)

    def policy(self, level: str, **more: object) -> dict[str, Any]:
        """A policy for `ui`, a second after whatever was before."""
        self.desk.world.pass_ms(SECOND)
        return self.owner.do("policy", **{"to": ["ui"], "from": ["local"], "level": level, **more})

    def draft(self, level: str = "yolo", **more: object) -> dict[str, Any]:
        """As `policy`, not signed."""
        wanted = {"to": ["ui"], "from": ["local"], "level": level, **more}
        return self.owner.draft("policy", **wanted)

    def revoke(self, **which: object) -> dict[str, Any]:
        self.desk.world.pass_ms(SECOND)
        return self.owner.do("revoke", **(which or {"all": True}))

    def forged(self, kind: str = "policy", *keys: SigningKey, **changes: Any) -> Wire:
        """The draft of a wide policy with changes, signed by the owner (or by `keys`)."""
        payload = {**content(self.draft()), **changes}
        payload = {name: value for name, value in payload.items() if value is not ...}
        return wire(kind, payload, *(keys or (self.owner.key,)))

    def refused(self, record: Wire) -> str:
        """The code with which it is refused; nothing may have changed."""
        before = self.state()
        code = self.desk.refusal(nobody(), "owner.apply", record=record).code
        assert self.state() == before
        return code

    def state(self) -> str:
        read = run_reads(self.desk.connection, [inspection.state_hash])[0]
        assert isinstance(read, Committed)
        return str(read.value)

    @property
    def floor(self) -> int:
        """What the second place knows."""
        told = [one.version for one in self.desk.effects if isinstance(one, Authorised)]
        return max(told, default=0)

    def restart(self, floor: int | None = None) -> None:
        """A daemon starts on the store as it is now."""
        known = self.floor if floor is None else floor
        self.desk.dispatcher._authority = Authority(self.desk.host.key_id, known)

    def tamper(self, sql: str, *parameters: object) -> None:
        """Write to the store while no daemon runs, then start one."""
        self.desk.connection.execute(sql, parameters)
        self.restart()

    def line(self, sender: Caller | None = None, to: str = "ui") -> str:
        """The policy line that `ui` sees on fresh mail."""
        reader = {"ui": self.ui, "api": self.api}[to]
        letter = {"to": [to], "subject": "s", "body": "b"}
        message = self.desk.call(sender or self.api, "mail.send", **letter)["id"]
        entry = self.desk.call(reader, "mail.read", ids=[message])["messages"][0]
        return str(entry["policy_line"])

    def is_ask(self, *words: str) -> bool:
        line = self.line()
        assert line.startswith("policy: ask ("), line
        return all(word in line for word in words)

    def holds_again(self) -> bool:
        """The owner signs a new policy, and that one holds, also after a start."""
        self.policy("collaborate")
        now = self.line().startswith("policy: collaborate (")
        self.restart()
        return now and self.line().startswith("policy: collaborate (")


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.desk.close()


# -- records that somebody brings -----------------------------------------------------------------


def test_version_rollback_an_older_record_changes_nothing(scene: Scene) -> None:
    wide = scene.owner.signed(scene.draft("yolo"))
    scene.owner.apply(wide)
    scene.policy("collaborate")
    before = scene.state()
    again = scene.owner.apply(wide)
    assert (again["duplicate"], again["version"]) == (True, 1)
    assert scene.state() == before
    assert scene.line().startswith("policy: collaborate (")


def test_same_version_with_other_content(scene: Scene) -> None:
    other = scene.owner.signed(scene.draft("yolo"))
    scene.policy("collaborate")
    assert scene.refused(other) == "conflict"


@pytest.mark.parametrize("version", [3, 4, 2**53 - 1])
def test_nonconsecutive_version_and_fast_forward(scene: Scene, version: int) -> None:
    scene.policy("collaborate")
    assert scene.refused(scene.forged(version=version)) == "conflict"
    assert scene.refused(scene.forged(version=-version)) == "conflict"
    assert scene.holds_again()


def test_a_record_with_another_predecessor_is_refused(scene: Scene) -> None:
    scene.policy("collaborate")
    assert scene.refused(scene.forged(previous="0" * 64)) == "conflict"
    assert scene.refused(scene.forged(previous=None)) == "conflict"


def test_expired_before_it_comes(scene: Scene) -> None:
    record = scene.owner.signed(scene.draft("yolo", ttl_s=60))
    scene.desk.world.pass_ms(60 * SECOND)
    assert scene.refused(record) == "closed"


@pytest.mark.parametrize(("age_ms", "code"), [(DAY - 1, None), (DAY, "closed")])
def test_a_draft_is_a_day_old_at_most(scene: Scene, age_ms: int, code: str | None) -> None:
    record = scene.owner.signed(scene.draft("collaborate"))
    scene.desk.world.pass_ms(age_ms)
    if code:
        assert scene.refused(record) == code
    else:
        assert scene.owner.apply(record)["applied"]


@pytest.mark.parametrize(("early_ms", "code"), [(5 * MINUTE, None), (5 * MINUTE + 1, "closed")])
def test_a_record_of_a_time_that_has_not_come(
    scene: Scene, early_ms: int, code: str | None
) -> None:
    now_ms = scene.desk.world.wall_ms
    record = scene.forged(iat=now_ms + early_ms, exp=now_ms + early_ms + HOUR)
    if code:
        assert scene.refused(record) == code
    else:
        assert scene.owner.apply(record)["applied"]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "wrong audience": ({"aud": "z" * 26}, "owner-required"),
    "audience of many": ({"aud": ["y" * 26, "z" * 26]}, "owner-required"),
    "no audience": ({"aud": ...}, "owner-required"),
    "another owner's name": ({"owner": "z" * 26}, "owner-required"),
    "another chain": ({"chain": "z" * 26}, "owner-required"),
    "a level of a later version": ({"level": "partner"}, "owner-required"),
    "a class of a later version": ({"classes": ["read", "spend"]}, "owner-required"),
    "a field of a later version": ({"until_done": True}, "owner-required"),
    "a field missing": ({"reason": ...}, "owner-required"),
    "a class beyond the level": ({"level": "collaborate"}, "owner-required"),
    "a term beyond the level": ({"exp": 2**53 - 1}, "owner-required"),
    "no term": ({"exp": ...}, "owner-required"),
    "nobody's policy": ({"to": []}, "owner-required"),
    "a version that is true": ({"version": True}, "owner-required"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_record_that_says_anything_else(scene: Scene, what: str) -> None:
    changes, code = WRONG[what]
    assert scene.refused(scene.forged(**changes)) == code


def test_foreign_owner_host_key_and_nobody(scene: Scene) -> None:
    assert scene.refused(scene.forged("policy", STRANGER)) == "owner-required"
    theirs = key_id("owner", STRANGER.public)
    assert scene.refused(scene.forged("policy", STRANGER, owner=theirs)) == "owner-required"
    by_host = wire("policy", content(scene.draft()), scene.desk.host.signer, role="host")
    assert scene.refused(by_host) == "owner-required"
    both = scene.forged("policy", scene.owner.key, STRANGER)
    assert scene.refused(both) == "owner-required"
    bad = scene.forged()
    bad["signatures"] = {scene.owner.id: "A" * 86 + "=="}
    assert scene.refused(bad) == "owner-required"
    bad["signatures"] = {theirs: next(iter(scene.forged()["signatures"].values()))}
    assert scene.refused(bad) == "owner-required"


def test_signature_of_another_kind(scene: Scene) -> None:
    """What was signed as one kind means nothing as another, whatever its fields say."""
    payload = content(scene.draft())
    for kind in ("revoke", "directive", "takeover", "owner-mail"):
        signed = wire(kind, {**payload, "type": kind}, scene.owner.key)
        passed_off = {**signed, "kind": "policy"}
        assert scene.refused(passed_off) == "owner-required"
        relabelled = {**scene.owner.signed(scene.draft()), "kind": kind}
        assert scene.refused(relabelled) == "owner-required"
    for kind in ("message", "receipt", "lease", "acceptance", "floor"):
        relabelled = {**scene.owner.signed(scene.draft()), "kind": kind}
        assert scene.refused(relabelled) == "usage"


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text + " ",
        lambda text: " " + text,
        lambda text: text.replace(":", ": ", 1),
        lambda text: text.replace("yolo", "\\u0079olo"),
        lambda text: text.replace('{"aud"', '{"v":1,"aud"'),
        lambda text: "\ufeff" + text,
        lambda text: text + "\n",
    ],
)
def test_second_encoding_also_if_the_owner_signed_it(
    scene: Scene, encode: Callable[[str], str]
) -> None:
    text = encode(scene.owner.signed(scene.draft())["payload"])
    signed = scene.owner.key.sign(b"mbx-sig/1\0policy\0" + text.encode())
    record = {
        "kind": "policy",
        "payload": text,
        "signatures": {scene.owner.id: base64.b64encode(signed).decode()},
    }
    assert scene.refused(record) == "owner-required"


def test_a_payload_that_is_no_text_of_ours(scene: Scene) -> None:
    for text in ("", "{}", "[]", "null", "\ud800", "x" * 100, "[" * 5_000, '{"a":1e400}'):
        for kind in ("policy", "rotate", "takeover", "directive"):
            record = {"kind": kind, "payload": text, "signatures": {scene.owner.id: "AAAA"}}
            assert scene.refused(record) in ("owner-required", "usage")


# -- revoking -------------------------------------------------------------------------------------


def test_what_was_signed_before_all_was_revoked_never_holds(scene: Scene) -> None:
    """The kill switch: also against a record from another machine that comes late."""
    scene.policy("yolo")
    early = content(scene.draft("yolo"))
    scene.revoke()
    assert scene.is_ask("revoked")
    assert scene.refused(wire("policy", early, scene.owner.key)) == "conflict"
    late = content(scene.draft("yolo"))
    moved = {**early, "version": late["version"], "previous": late["previous"]}
    assert scene.refused(wire("policy", moved, scene.owner.key)) == "closed"
    same_ms = {**late, "iat": scene.desk.world.wall_ms}
    assert scene.refused(wire("policy", same_ms, scene.owner.key)) == "closed"
    assert scene.is_ask("revoked")
    assert scene.holds_again()


def test_a_revoked_record_stays_revoked_whatever_comes_after(scene: Scene) -> None:
    first = scene.owner.signed(scene.draft("yolo"))
    scene.owner.apply(first)
    scene.revoke(records=[scene.desk.call(nobody(), "policy.list")["policies"][0]["id"]])
    assert scene.owner.apply(first)["duplicate"]
    assert scene.is_ask("revoked")
    scene.policy("collaborate", to=["api"])
    assert scene.is_ask("revoked")


def test_revoking_the_narrow_one_does_not_bring_back_the_wide_one(scene: Scene) -> None:
    scene.policy("yolo")
    narrow = scene.policy("collaborate")
    scene.revoke(records=[narrow["id"]])
    assert scene.is_ask("revoked", narrow["id"])


# -- time -----------------------------------------------------------------------------------------


def test_freeze_a_clock_that_is_set_back_again_and_again_gains_five_minutes_in_all(
    scene: Scene,
) -> None:
    scene.policy("yolo", ttl_s=3_600)
    scene.desk.world.pass_ms(50 * MINUTE)
    scene.policy("collaborate", to=["api"])
    assert scene.line().startswith("policy: yolo (")
    scene.desk.world.wall_ms -= 5 * MINUTE
    assert scene.line().startswith("policy: yolo (")
    scene.desk.world.wall_ms -= 1
    assert scene.is_ask("clock is behind")
    assert scene.refused(scene.owner.signed(scene.draft())) == "closed"
    scene.desk.world.wall_ms += 15 * MINUTE + 1
    assert scene.is_ask("expired")


def test_a_clock_that_stands_makes_no_policy_valid_that_was_not(scene: Scene) -> None:
    scene.policy("yolo", ttl_s=60)
    for _ in range(3):
        assert scene.line().startswith("policy: yolo (")
    scene.desk.world.pass_ms(60 * SECOND)
    assert scene.is_ask("expired")


def test_the_word_that_the_clock_is_right_counts_once(scene: Scene) -> None:
    word = scene.owner.signed(scene.owner.draft("clock"))
    scene.policy("yolo")
    assert scene.refused(word) == "conflict"
    word = scene.owner.signed(scene.owner.draft("clock"))
    assert scene.owner.apply(word)["applied"]
    before = scene.state()
    assert scene.owner.apply(word)["duplicate"]
    assert scene.state() == before


# -- a store that somebody wrote to ---------------------------------------------------------------


def test_rollback_a_store_put_back_from_a_copy(scene: Scene) -> None:
    scene.policy("yolo")
    copy = scene.desk.connection.serialize()
    revoke = scene.owner.signed(scene.owner.draft("revoke", all=True))
    scene.owner.apply(revoke)
    scene.desk.put_back(copy)
    scene.restart()
    assert scene.is_ask("record 2", "missing")
    assert scene.refused(revoke) == "conflict"
    assert scene.desk.call(nobody(), "policy.list")["policies"] == []
    assert scene.owner.draft("revoke", all=True)["payload"].count('"version":3') == 1
    assert scene.holds_again()


def test_rollback_to_before_the_first_policy(scene: Scene) -> None:
    copy = scene.desk.connection.serialize()
    scene.policy("yolo")
    scene.revoke()
    scene.desk.put_back(copy)
    scene.restart()
    assert scene.is_ask("record 2", "missing")
    assert scene.holds_again()


BYTES: dict[str, str] = {
    "a byte of the payload": "payload = replace(payload, 'autonomous', 'autonomouz')",
    "a blank in the payload": "payload = payload || ' '",
    "a payload that is no UTF-8": "payload = CAST(X'7B22FF22' AS TEXT)",
    "an empty payload": "payload = ''",
    "a byte of the signature": "signatures = replace(signatures, '==', 'A=')",
    "no signature": "signatures = '[]'",
    "signatures of another form": "signatures = '[[1],[\"a\",2],3]'",
    "signatures that are no JSON": "signatures = 'x'",
    "signatures that are no list": "signatures = '{}'",
    "signatures that are no UTF-8": "signatures = CAST(X'5BFF5D' AS TEXT)",
    "another kind": "kind = 'revoke'",
    "a kind that is no UTF-8": "kind = CAST(X'FF' AS TEXT)",
    "a version far ahead": "version = 9223372036854775807",
    "a version ahead": "version = 7",
    "no version": "version = NULL",
}


@pytest.mark.parametrize("floor", [0, 2])
@pytest.mark.parametrize("what", BYTES)
def test_one_damaged_row(scene: Scene, what: str, floor: int) -> None:
    scene.policy("yolo")
    scene.policy("autonomous")
    assert scene.line().startswith("policy: autonomous (")
    scene.desk.connection.execute(f"UPDATE owner_records SET {BYTES[what]} WHERE version = 2")
    scene.restart(floor)
    if floor == 0 and what == "no version":
        return  # without the second place a row that is gone leaves no trace
    assert scene.is_ask("record 2")
    assert scene.desk.call(nobody(), "owner.show")["damage"][0]["version"] == 2
    assert scene.desk.call(nobody(), "policy.list")["policies"] == []
    assert scene.holds_again()


@pytest.mark.parametrize("gone", [1, 2])
def test_a_missing_row(scene: Scene, gone: int) -> None:
    scene.policy("autonomous")
    scene.policy("collaborate", to=["api"])
    scene.tamper("DELETE FROM owner_records WHERE version = ?", gone)
    assert scene.is_ask(f"record {gone}", "missing")
    assert scene.holds_again()


def test_mix_and_match_rows_exchanged(scene: Scene) -> None:
    scene.policy("autonomous")
    scene.policy("collaborate")
    scene.tamper("UPDATE owner_records SET version = 99 WHERE version = 1")
    scene.tamper("UPDATE owner_records SET version = 1 WHERE version = 2")
    scene.tamper("UPDATE owner_records SET version = 2 WHERE version = 99")
    assert scene.is_ask("another place")
    assert scene.holds_again()


def test_fork_a_predecessor_replaced_by_another_that_the_owner_signed(scene: Scene) -> None:
    other = scene.owner.signed(scene.draft("yolo"))
    scene.policy("collaborate")
    scene.policy("collaborate", to=["api"])
    replace = "UPDATE owner_records SET payload = ?, signatures = ? WHERE version = 1"
    ((key, signature),) = other["signatures"].items()
    scene.tamper(replace, other["payload"], f'[["{key}","{signature}"]]')
    assert scene.is_ask("record 1", "successor")
    assert scene.holds_again()


def test_a_key_put_into_the_store_makes_no_old_record_valid(scene: Scene) -> None:
    scene.policy("collaborate")
    scene.tamper(
        "UPDATE owner_keys SET public_key = ?, key_id = ?",
        STRANGER.public,
        key_id("owner", STRANGER.public),
    )
    assert scene.is_ask("record 1", "no key of the owner's")
    scene.tamper(f"UPDATE owner_keys SET key_id = CAST(X'{'FF' * 26}' AS TEXT)")
    assert scene.is_ask("record 1")


def test_large_chains_are_verified_once(scene: Scene) -> None:
    for number in range(60):
        scene.policy("collaborate", to=["ui" if number == 0 else "api"])
    scene.restart()
    assert scene.line().startswith("policy: collaborate (")
    book = scene.desk.dispatcher._authority._known[2]
    scene.line()
    assert scene.desk.dispatcher._authority._known[2] is book


# -- records of one group -------------------------------------------------------------------------


def test_records_applied_in_one_group_never_lower_the_floor(scene: Scene) -> None:
    record = scene.owner.signed(scene.draft("collaborate"))
    scene.desk.encounters.met(shell(9).lineage)
    scene.desk.evidence[9] = "live"
    draft = scene.owner.draft("takeover", name="ui", cli="shell", session="9-90")
    other = scene.owner.signed(draft)
    units = [
        scene.desk.work(nobody(), "owner.apply", {"record": one}).unit for one in (record, other)
    ]
    authority = scene.desk.dispatcher._authority
    for outcome in run_group(scene.desk.connection, units):
        assert isinstance(outcome, Committed)
        for effect in outcome.value.effects:
            if isinstance(effect, Authorised):
                authority.floor = effect.version
    assert authority.floor == 1


# -- to whom a right is bound ---------------------------------------------------------------------


def test_a_right_follows_the_identity_through_a_rename(scene: Scene) -> None:
    scene.policy("collaborate", **{"from": ["api"]})
    scene.desk.call(scene.api, "identity.rename", name="backend")
    scene.desk.call(scene.ui, "identity.rename", name="frontend")
    letter = {"to": ["frontend"], "subject": "s", "body": "b"}
    message = scene.desk.call(scene.api, "mail.send", **letter)["id"]
    entry = scene.desk.call(scene.ui, "mail.read", ids=[message])["messages"][0]
    assert entry["policy"] == "collaborate: read, edit"
    newcomer = scene.desk.holder("api", 3)
    message = scene.desk.call(newcomer, "mail.send", **letter)["id"]
    entry = scene.desk.call(scene.ui, "mail.read", ids=[message])["messages"][0]
    assert entry["policy"] == "ask"


def test_whose_mail_a_policy_is_about_is_told_by_the_names_of_now(scene: Scene) -> None:
    wide = scene.policy("autonomous", **{"from": ["local", "api"]})["id"]
    narrow = scene.policy("collaborate", **{"from": ["role:dev"]})["id"]
    scene.desk.call(scene.api, "identity.rename", name="backend")
    scene.desk.holder("api", 3)
    everybody, now = "everybody on this host", "backend@desk"
    listed = {one["id"]: one for one in scene.desk.call(nobody(), "policy.list")["policies"]}
    shown = scene.desk.call(nobody(), "policy.show", id=wide)
    held = {one["id"]: one for one in scene.desk.call(scene.ui, "session.whoami")["policies"]}
    healthy = scene.desk.call(nobody(), "daemon.health")["policies"]
    for told in (listed, held, {one["id"]: one for one in healthy}):
        assert told[wide]["from"] == [everybody, now]
        assert sorted(told[narrow]["from"]) == [f"{now} (role:dev)", "ui@desk (role:dev)"]
    assert shown["from"] == [everybody, now]
    for one in (shown, listed[wide], held[wide]):
        assert f"{now} (role:dev)" in [part["from"] for part in one["superseded"]]
        assert "api@desk" not in str(one)


def test_a_right_ends_with_the_identity(scene: Scene) -> None:
    scene.policy("collaborate", **{"from": ["api"]})
    scene.desk.call(scene.api, "identity.release")
    scene.owner.do("retire", name="api")
    newcomer = scene.desk.refusal(scene.api, "identity.claim", name="api")
    assert newcomer.code == "closed"
    other = scene.desk.holder("api-two", 3)
    assert scene.line(other).startswith("policy: ask (")


def test_a_role_is_who_has_it_when_the_owner_signs(scene: Scene) -> None:
    answer = scene.policy("collaborate", **{"from": ["role:dev"]})
    assert sorted(answer["from"]) == ["api@desk (role:dev)", "ui@desk (role:dev)"]
    newcomer = scene.desk.holder("ops", 3)
    assert scene.line().startswith("policy: collaborate (")
    assert scene.line(newcomer).startswith("policy: ask (")
    scene.desk.call(scene.api, "identity.release")
    assert scene.line(newcomer).startswith("policy: ask (")


def test_scopes_never_mix(scene: Scene) -> None:
    ops = scene.desk.holder("ops", 3)
    scene.policy("collaborate", classes=["edit"], projects=["/a"], **{"from": ["api"]})
    scene.policy("autonomous", classes=["read"], projects=["/b"], **{"from": ["ops"]})
    scene.policy("yolo", to=["api"])
    from_api, from_ops = scene.line(), scene.line(ops)
    assert from_api.startswith("policy: collaborate (edit;")
    assert from_api.endswith("projects /a)")
    assert from_ops.startswith("policy: autonomous (read;")
    assert from_ops.endswith("projects /b)")


def test_mail_from_oneself_delegates_nothing(scene: Scene) -> None:
    scene.policy("yolo")
    assert "from oneself" in scene.line(scene.ui)


def test_what_a_policy_cannot_be_is_refused_when_it_is_drafted(scene: Scene) -> None:
    for wrong in (
        {"projects": ["srv"]},
        {"projects": ["/srv/../etc"]},
        {"projects": [f"/{number}" for number in range(21)]},
        {"projects": ["/a", "/a"]},
        {"level": "collaborate", "classes": ["outward"]},
        {"level": "ask", "classes": ["read"]},
        {"ttl_s": 7 * 86_400 + 1},
        {"level": "collaborate", "ttl_s": 30 * 86_400 + 1},
        {"from": ["host:lab"]},
        {"from": ["nobody"]},
        {"from": ["all"]},
        {"from": ["role:none"]},
        {"to": ["owner"]},
        {"to": ["nobody"]},
    ):
        wanted = {"to": ["ui"], "from": ["local"], "level": "yolo", **wrong}
        assert scene.desk.refusal(nobody(), "owner.draft", act="policy", **wanted).code
    many = [f"/{number}" for number in range(POLICY_PROJECTS_MAX + 1)]
    more = {"to": ["ui"], "from": ["local"], "level": "ask", "projects": many}
    error = scene.desk.refusal(nobody(), "owner.draft", act="policy", **more)
    assert error.code == "too-many"
