"""A store that was put back from a copy, and a kill between commit and second place."""

import contextlib
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from mbx.core.keys import SigningKey
from tests.support.daemon import KILLED_AT_FLOOR, Daemon, HungUpError, fresh_home, request
from tests.support.human import KEY, Human, do, signed
from tests.support.owner import content, wire

HEIR = SigningKey.from_seed(bytes([9]) * 32)


@pytest.fixture
def home() -> Iterator[Path]:
    with fresh_home() as folder:
        yield folder


class Scene(contextlib.ExitStack):
    """A daemon on `home`, two agents and a human with the owner's key. Use it in ``with``."""

    def __init__(self, home: Path, python: tuple[str, ...] = ("-I", "-m", "mbx.daemon")) -> None:
        super().__init__()
        self.home = home
        self.daemon = Daemon(home, python=python)
        self._lines = contextlib.ExitStack()

    def __enter__(self) -> Self:
        super().__enter__()
        self.enter_context(self.daemon)
        self._ui, self._api = (self.enter_context(self.daemon.agent()) for _ in range(2))
        self._human = self.enter_context(Human(self.daemon.socket_path))
        self.enter_context(self._lines)
        for agent, name in ((self._ui, "ui"), (self._api, "api")):
            agent.registered(name).close()
        self._human.enroll()
        self._meet()
        return self

    def _meet(self) -> None:
        """All come to the daemon that runs now."""
        self.ui = self._lines.enter_context(self._ui.connect())
        self.api = self._lines.enter_context(self._api.connect())
        self.owner = self._lines.enter_context(self._human.line())

    def stop(self) -> None:
        self._lines.close()
        self.daemon.stop()

    def start(self) -> None:
        assert self.daemon.start()["ready"]
        self._meet()

    def line(self) -> str:
        """The policy line that ui sees on mail of api's."""
        message = self.api.call("mail.send", to=["ui"], subject="s", body="b")["id"]
        return str(self.ui.call("mail.read", ids=[message])["messages"][0]["policy_line"])

    def holds(self) -> bool:
        return self.line().startswith("policy: collaborate (")

    def is_ask(self, word: str) -> bool:
        line = self.line()
        assert line.startswith("policy: ask ("), line
        return word in line

    def change_key(self) -> None:
        """The owner changes the key."""
        draft = self.owner.call("owner.draft", act="rotate", public_key=HEIR.public.hex())
        both = wire(draft["kind"], content(draft), KEY, HEIR)
        self.owner.call("owner.apply", record=both)

    def policy(self) -> int:
        more = {"from": ["api"], "level": "collaborate"}
        version = do(self.owner, "policy", to=["ui"], **more)["version"]
        assert isinstance(version, int)
        return version


def stores(home: Path) -> list[Path]:
    return sorted(path for path in home.iterdir() if path.name.startswith("store.db"))


def put_back(copy: Path, home: Path) -> None:
    for path in stores(home):
        path.unlink()
    for path in copy.iterdir():
        shutil.copy2(path, home / path.name)


def copied(home: Path) -> Path:
    copy = home / "copy"
    copy.mkdir()
    for path in stores(home):
        shutil.copy2(path, copy / path.name)
    return copy


def test_a_store_put_back_from_a_copy_grants_nothing_until_the_owner_signs_again(
    home: Path,
) -> None:
    with Scene(home) as scene:
        assert scene.policy() == 1
        assert scene.holds()
        scene.stop()
        copy = copied(home)
        scene.start()
        assert scene.holds()
        do(scene.owner, "revoke", all=True)
        assert scene.is_ask("revoked")
        scene.stop()
        put_back(copy, home)
        scene.start()
        assert scene.is_ask("record 2 of the owner's chain is missing")
        assert scene.owner.call("policy.list")["policies"] == []
        assert scene.policy() == 3
        assert scene.holds()
        scene.stop()
        scene.start()
        assert scene.holds()


def test_a_log_put_back_voids_the_chain_although_that_is_as_long_as_ever(home: Path) -> None:
    """Else a change of the owner's key, which has no place in the chain, could be taken back."""
    with Scene(home) as scene:
        scene.policy()
        scene.stop()
        copy = copied(home)
        scene.start()
        scene.change_key()
        assert scene.holds()
        scene.stop()
        put_back(copy, home)
        for _ in range(2):
            scene.start()
            assert scene.is_ask("the store was put back from a copy")
            assert scene.owner.call("policy.list")["policies"] == []
            assert scene.owner.call("owner.show")["void_until"] == 1
            told = scene.owner.call("daemon.health")
            assert (told["void_until"], told["policies"]) == (1, [])
            scene.stop()
        scene.start()
        assert scene.policy() == 2
        assert scene.holds()
        scene.stop()
        scene.start()
        assert scene.holds(), "what the owner signed since holds, also after a start"


def test_a_kill_between_commit_and_second_place_is_made_good_by_the_next_start(home: Path) -> None:
    with Scene(home, ("-I", "-c", KILLED_AT_FLOOR)) as scene:
        scene.policy()
        scene.stop()
        copy = copied(home)
        scene.start()
        record = signed(scene.owner.call("owner.draft", act="revoke", all=True))
        (home / "floor" / "floor.json.kill").touch()
        scene.owner.write(request(1, "owner.apply", record=record) + b"\n")
        with pytest.raises(HungUpError):
            scene.owner.read()
        assert scene.daemon.wait() == -signal.SIGKILL, "no answer before the second place"
        scene.start()
        assert scene.owner.call("owner.apply", record=record)["duplicate"]
        assert scene.is_ask("revoked")
        scene.stop()
        put_back(copy, home)
        scene.start()
        assert scene.is_ask("record 2 of the owner's chain is missing")


def test_without_the_second_place_nothing_is_granted_and_a_damaged_one_stops_the_start(
    home: Path,
) -> None:
    place = home / "floor" / "floor.json"
    with Scene(home) as scene:
        scene.policy()
        scene.stop()
        content = place.read_bytes().replace(b'"v', b'"w', 1)
        place.write_bytes(content)
        said = scene.daemon.start()
        assert said["error"]["code"] == "store-damaged"
        assert str(place) in said["error"]["message"]
        assert scene.daemon.wait() != 0
        assert place.read_bytes() == content, "it is left as it is"
        place.unlink()
        for _ in range(2):
            scene.start()
            assert scene.is_ask("record 2 of the owner's chain is missing")
            scene.stop()
        scene.start()
        assert scene.policy() == 3
        assert scene.holds()
