"""Random histories at the real office: authority is what the owner's records say, and never grows.

I13: what is applied equals a recomputation from the records, by a model that knows nothing of
chains, stores or caches; versions never fall. I14: along answers, forwards, notes to oneself,
release and claim, renames and new processes, what came from outside stays so.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mbx.core.errors import MbxError
from mbx.daemon.authority import Authority
from mbx.daemon.effects import Authorised
from mbx.daemon.gate import Caller
from tests.support.office import OfficeDesk, harness, nobody
from tests.support.owner import Wire, an_owner, content

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
NAMES: Final = ("ana", "ben", "cleo", "dora")
CLASSES: Final = {
    "ask": set[str](),
    "collaborate": {"read", "edit"},
    "autonomous": {"read", "edit"},
    "yolo": {"read", "edit", "outward", "permissions"},
}

met: Counter[str] = Counter()
"""How often each thing came up in all examples of this process."""


@pytest.fixture(scope="module", autouse=True)
def counts() -> Iterator[None]:
    met.clear()
    yield
    print(dict(sorted(met.items())))  # noqa: T201


def settled(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def until_met(histories: Callable[[], None], wanted: dict[str, int]) -> None:
    """Play them until so much of each came up: of many runs one meets too little of something."""
    for _ in range(4):
        histories()
        if all(met[what] >= least for what, least in wanted.items()):
            break
    for what, least in wanted.items():
        assert met[what] >= least, what


# -- I13 ------------------------------------------------------------------------------------------


@dataclass
class Signed:
    """One record that was applied, as the owner would remember it."""

    kind: str
    id: str
    payload: dict[str, Any]
    is_damaged: bool = False


@dataclass
class Memory:
    """The owner's own list of what was applied, and what follows from it."""

    records: list[Signed] = field(default_factory=list)

    def classes(self, to: str, sender: str, now_ms: int, names: dict[str, str]) -> set[str]:
        """What mail of `sender` lets `to` do, by going through the list from the end."""
        later_damage = False
        for one in reversed(self.records):
            if one.is_damaged:
                later_damage = True
            elif one.kind == "policy" and self._is_about(one, names[to], names[sender]):
                dead = later_damage or self._is_revoked(one) or now_ms >= one.payload["exp"]
                return set() if dead else set(one.payload["classes"])
        return set()

    def _is_about(self, one: Signed, to: str, sender: str) -> bool:
        sources = one.payload["from"]
        return any(it["identity"] == to for it in one.payload["to"]) and any(
            it["kind"] == "local" or it.get("identity") == sender for it in sources
        )

    def _is_revoked(self, one: Signed) -> bool:
        return any(
            one.payload["iat"] <= it.payload["iat"]
            if it.payload["all"]
            else one.id in it.payload["records"]
            for it in self.records
            if it.kind == "revoke" and not it.is_damaged
        )


class Bureau:
    """A desk with an owner and four agents, and the memory beside it."""

    def __init__(self) -> None:
        self.desk = OfficeDesk()
        self.desk.add_owner()
        self.owner = an_owner(self.desk)
        self.agents = {name: self.desk.holder(name, pid) for pid, name in enumerate(NAMES, 1)}
        self.identities = dict(self.desk.rows("SELECT name, identity FROM identities"))
        self.memory = Memory()
        self.drawer: list[Wire] = []
        self.version = 0

    def sign(self, act: str, **wanted: object) -> None:
        """Draft and sign; it lies in the drawer until somebody brings it."""
        self.desk.world.pass_ms(SECOND)
        self.drawer.append(self.owner.signed(self.owner.draft(act, **wanted)))

    def bring(self, place: int) -> None:
        """Bring a record of the drawer back, the newest or an older one."""
        record = self.drawer[-1 - place % len(self.drawer)]
        try:
            answer = self.owner.apply(record)
        except MbxError as error:
            met[f"refused {error.code}"] += 1
            return
        met["duplicate" if answer["duplicate"] else f"applied {record['kind']}"] += 1
        if not answer["duplicate"]:
            told = content(record)
            self.memory.records.append(Signed(record["kind"], answer["id"], told))

    def damage(self, place: int) -> None:
        """Somebody writes into a row; a daemon starts on it."""
        if not self.memory.records:
            return
        one = self.memory.records[place % len(self.memory.records)]
        one.is_damaged = True
        self.desk.connection.execute(
            "UPDATE owner_records SET payload = payload || ' ' WHERE record_id = ?", (one.id,)
        )
        met["damaged"] += 1
        self.restart()

    def restart(self) -> None:
        told = [one.version for one in self.desk.effects if isinstance(one, Authorised)]
        self.desk.dispatcher._authority = Authority(self.desk.host.key_id, max(told, default=0))

    def check(self) -> None:
        now_ms = self.desk.world.wall_ms
        version = self.desk.call(nobody(), "owner.show")["policy_version"]
        assert version >= self.version
        assert version == len(self.memory.records)
        self.version = version
        for to in NAMES[:2]:
            for sender in NAMES[1:]:
                if to == sender:
                    continue
                letter = {"to": [to], "subject": "s", "body": "b"}
                message = self.desk.call(self.agents[sender], "mail.send", **letter)["id"]
                read = self.desk.call(self.agents[to], "mail.read", ids=[message])["messages"][0]
                expected = self.memory.classes(to, sender, now_ms, self.identities)
                _, _, shown = str(read["policy"]).partition(": ")
                assert set(shown.split(", ")) - {""} == expected, read["policy_line"]
                met["granted" if expected else "ask"] += 1


names = st.sampled_from(NAMES)
policies = st.tuples(
    st.just("policy"),
    st.fixed_dictionaries(
        {
            "to": st.lists(names, min_size=1, max_size=4, unique=True),
            "from": st.just(["local"]) | st.lists(names, min_size=1, max_size=3, unique=True),
            "level": st.sampled_from(tuple(CLASSES)),
            "ttl_s": st.sampled_from([60, 600, 9_000, 9_000]),
        }
    ),
)
steps = st.one_of(
    policies,
    policies,
    policies,
    st.tuples(st.just("revoke"), st.none() | st.integers(0, 5)),
    st.tuples(st.just("bring"), st.sampled_from([0, 0, 0, 1, 2])),
    st.tuples(st.just("pass"), st.sampled_from([SECOND, 40 * SECOND, 8 * MINUTE])),
    st.tuples(st.sampled_from(["damage", "restart", "restart", "restart"]), st.integers(0, 5)),
)


def carried_out(bureau: Bureau, step: tuple[str, Any]) -> None:
    what, given_ = step
    if what == "policy":
        bureau.sign("policy", **given_)
        bureau.bring(0)
    elif what == "revoke":
        known = [one.id for one in bureau.memory.records if one.kind == "policy"]
        readable = bureau.desk.call(nobody(), "policy.list", all=True)["policies"]
        ids = [one["id"] for one in readable if one["id"] in known]
        if given_ is None:
            bureau.sign("revoke", all=True)
        elif ids:
            bureau.sign("revoke", records=[ids[given_ % len(ids)]])
        else:
            return
        if bureau.desk.world.wall_ms % 3:
            bureau.bring(0)
    elif what == "bring" and bureau.drawer:
        bureau.bring(given_)
    elif what == "pass":
        bureau.desk.world.pass_ms(given_)
    elif what == "damage":
        bureau.damage(given_)
    elif what == "restart":
        bureau.restart()


@settled(40)
@given(st.lists(steps, min_size=4, max_size=14))
def signing(history: list[tuple[str, Any]]) -> None:
    bureau = Bureau()
    try:
        for step in history:
            carried_out(bureau, step)
            bureau.check()
    finally:
        bureau.desk.close()


@pytest.mark.long
@pytest.mark.timeout(120)
def test_what_is_applied_is_what_the_owners_records_say() -> None:
    until_met(signing, {"granted": 40, "ask": 200, "applied policy": 20, "applied revoke": 5})


# -- I14 ------------------------------------------------------------------------------------------


@dataclass
class Letter:
    """What is truly in a message: when its content first came from outside (None: its own)."""

    id: str
    to: str
    root_ms: int | None
    hop: int
    is_first_hand: bool

    def root_read_at(self, now_ms: int) -> int | None:
        """What reading it at this time brings: the first hand counts from each reading."""
        return now_ms if self.is_first_hand else self.root_ms


class Talk:
    """Four conversations with one policy for all; what each has truly read lately."""

    def __init__(self) -> None:
        self.desk = OfficeDesk()
        self.desk.add_owner()
        self.owner = an_owner(self.desk)
        self.pids = {f"c-{name}": pid for pid, name in enumerate(NAMES, 1)}
        self.holds = {f"c-{name}": name for name in NAMES}
        self.named = {name: name for name in NAMES}
        for name in NAMES:
            caller = self.caller(f"c-{name}")
            self.desk.call(caller, "identity.register", name=name, role="dev")
        self.owner.do("policy", to=list(NAMES), level="autonomous", **{"from": ["local"]})
        self.letters: list[Letter] = []
        self.read_roots: dict[str, list[int]] = {talk: [] for talk in self.pids}
        self.fresh = 10

    def caller(self, talk: str) -> Caller:
        return harness(self.pids[talk], talk)

    def talk_of(self, identity: str) -> str:
        return next(talk for talk, held in self.holds.items() if held == identity)

    def root(self, talk: str, quoted: Letter | None, *, origin: bool) -> int | None:
        """The truth about what this conversation writes now."""
        now_ms = self.desk.world.wall_ms
        if origin:
            return now_ms
        roots = [one for one in self.read_roots[talk] if now_ms - one < HOUR]
        root_ms = quoted.root_read_at(now_ms) if quoted is not None else None
        if root_ms is not None:
            roots.append(root_ms)
        return max(roots, default=None)

    def write(self, talk: str, to: str, quoted: Letter | None, *, origin: bool) -> None:
        letter: dict[str, Any] = {"to": [self.named[to]], "subject": "s", "body": "b"}
        if quoted is not None:
            letter["reply_to"] = quoted.id
        if origin:
            letter["origin"] = "external"
        root_ms = self.root(talk, quoted, origin=origin)
        sent = self.desk.call(self.caller(talk), "mail.send", **letter)["id"]
        self._deliver(talk, to, str(sent), root_ms, quoted)

    def reply(self, talk: str, quoted: Letter) -> None:
        caller = self.caller(talk)
        sender = self.desk.rows(
            "SELECT i.identity FROM messages AS m JOIN identities AS i ON i.no = m.sender_no"
            " WHERE m.id = ?",
            quoted.id,
        )[0][0]
        names_now = dict(self.desk.rows("SELECT identity, name FROM identities"))
        to = next(key for key, name in self.named.items() if name == names_now[sender])
        root_ms = self.root(talk, quoted, origin=False)
        sent = self.desk.call(caller, "mail.reply", id=quoted.id, body="b")["id"]
        self._deliver(talk, to, str(sent), root_ms, quoted)

    def _deliver(
        self, talk: str, to: str, message: str, root_ms: int | None, quoted: Letter | None
    ) -> None:
        """Whoever holds the mailbox reads it at once; what it is shown must not be more."""
        now_ms = self.desk.world.wall_ms
        quoted_ms = quoted.root_read_at(now_ms) if quoted is not None else None
        if quoted_ms is not None:
            self.read_roots[talk].append(quoted_ms)
        reader = self.talk_of(to)
        entry = self.desk.call(self.caller(reader), "mail.read", ids=[message])["messages"][0]
        _, _, shown = str(entry["policy"]).partition(": ")
        classes = set(shown.split(", ")) - {""}
        letter = Letter(message, to, root_ms, int(entry["hop"]), entry["origin"] is not None)
        if root_ms is not None:
            assert classes <= {"read"}
            met["outside"] += 1
        elif reader != talk:
            assert classes == {"read", "edit"}
            met["inside"] += 1
        read_ms = letter.root_read_at(now_ms)
        if read_ms is not None:
            self.read_roots[reader].append(read_ms)
        if quoted is not None:
            assert letter.hop >= quoted.hop
            met["quoted"] += 1
        self.letters.append(letter)

    def step(self, what: str, one: int, two: int) -> None:
        talks = list(self.pids)
        talk = talks[one % len(talks)]
        held = self.holds[talk]
        mine = [letter for letter in self.letters if letter.to == held]
        to = NAMES[two % len(NAMES)]
        if what in ("plain", "external"):
            self.write(talk, to, None, origin=what == "external")
        elif what == "note":
            self.write(talk, held, None, origin=False)
        elif what == "forward" and mine:
            self.write(talk, to, mine[two % len(mine)], origin=False)
        elif what == "reply" and mine:
            self.reply(talk, mine[two % len(mine)])
        elif what == "swap":
            other = self.talk_of(to)
            for each in {talk, other}:
                self.desk.call(self.caller(each), "identity.release")
            if other != talk:
                self.holds[talk], self.holds[other] = to, held
            for each in {talk, other}:
                name = self.named[self.holds[each]]
                self.desk.call(self.caller(each), "identity.claim", name=name)
            met["swapped"] += 1
        elif what == "rename":
            spelt = "".join("bcdfghjkmn"[int(digit)] for digit in str(self.fresh))
            self.fresh += 1
            self.named[held] = f"{held}-{spelt}"
            self.desk.call(self.caller(talk), "identity.rename", name=self.named[held])
            met["renamed"] += 1
        elif what == "resume":
            ((number,),) = self.desk.rows("SELECT no FROM sessions WHERE pid = ?", self.pids[talk])
            self.desk.carry_out(self.desk.dispatcher.burial(number, "its process has ended"))
            self.fresh += 1
            self.pids[talk] = self.fresh + 100
            self.desk.call(self.caller(talk), "identity.claim", name=self.named[held])
            met["resumed"] += 1
        elif what == "pass":
            self.desk.world.pass_ms((7 * MINUTE, 20 * MINUTE, 59 * MINUTE)[two % 3])


moves = st.tuples(
    st.sampled_from(
        "plain plain external note forward forward reply reply swap rename resume pass".split()
    ),
    st.integers(0, 3),
    st.integers(0, 5),
)


@settled(60)
@given(st.lists(moves, min_size=4, max_size=24))
def talking(history: list[tuple[str, int, int]]) -> None:
    talk = Talk()
    try:
        for what, one, two in history:
            talk.step(what, one, two)
    finally:
        talk.desk.close()


@pytest.mark.long
@pytest.mark.timeout(120)
def test_what_came_from_outside_stays_so_whatever_agents_do() -> None:
    until_met(talking, {"outside": 20, "inside": 10, "quoted": 10, "swapped": 5})


def test_every_sort_of_step_came_up() -> None:
    """One history of each, so that no rule above is vacuous."""
    talk = Talk()
    for what, one, two in (
        ("external", 0, 1), ("reply", 1, 0), ("forward", 1, 2), ("note", 2, 0), ("swap", 1, 3),
        ("rename", 1, 0), ("resume", 1, 0), ("plain", 1, 3), ("pass", 0, 2), ("plain", 3, 1),
    ):  # fmt: skip
        talk.step(what, one, two)
    talk.desk.close()
    bureau = Bureau()
    for step in (
        ("policy", {"to": ["ana"], "from": ["local"], "level": "yolo", "ttl_s": 600}),
        ("policy", {"to": ["ben"], "from": ["cleo"], "level": "collaborate", "ttl_s": 60}),
        ("bring", 1), ("revoke", 0), ("bring", 0), ("damage", 1), ("pass", 8 * MINUTE),
        ("restart", None), ("revoke", None), ("bring", 0),
    ):  # fmt: skip
        carried_out(bureau, step)
        bureau.check()
    bureau.desk.close()
    for what in ("outside", "quoted", "swapped", "renamed", "resumed", "granted", "ask"):
        assert met[what] > 0, what
    for what in ("applied policy", "applied revoke", "duplicate", "damaged"):
        assert met[what] > 0, what
