"""What a daemon does about other hosts by itself: the rounds of its relay, over a real store."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from mbx.core.limits import ABSENCE_MIN_MS, BACK_MIN_MS, UNOFFERED_MAX_MS
from mbx.daemon.context import Answer
from mbx.daemon.dispatch import Work
from mbx.daemon.faces.channels import Channel
from mbx.daemon.journal import Journal
from mbx.daemon.relay import Relay
from mbx.paths import Paths
from mbx.store import peers
from mbx.store.database import Committed, Outcome
from tests.support.paired import PairedDesk, desk, pair, sent, settle

ROUND_MS = 60_000


async def nobody_pairs(channel: Channel) -> None:
    raise AssertionError(f"nobody pairs here: {channel}")


class Relayed:
    """A host with its relay, from which no link stands to the one that it is paired with."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.here, self._there = desk("desk"), desk("lap")
        self.ana = self.here.holder("ana", 10)
        self._there.holder("ben", 20)
        pair(self.here, self._there)
        settle(self.here, self._there)
        self._journal = Journal(str(folder / "log"), self.here.world.now_ms)
        self.relay = self._started()

    def _started(self) -> Relay:
        home = str(self._folder)
        paths, here = Paths(home, f"{home}/run"), self.here.dispatcher
        relay = Relay(paths, here, self._submit, nobody_pairs, self._journal, lambda ends: ())
        relay.links.know(self.here.do(peers.present), "0" * 26)
        return relay

    def _submit(self, work: Work, done: Callable[[Outcome[Answer]], None]) -> None:
        done(Committed(self.here.carry_out(work), 1))

    async def start_again(self) -> None:
        """As another daemon."""
        await self.relay.close()
        self.relay = self._started()

    async def close(self) -> None:
        await self.relay.close()
        self.here.close()
        self._there.close()

    def send(self) -> str:
        answer = self.here.call(self.ana, "mail.send", to=["ben"], subject="s", body="b")
        return str(answer["id"])

    def stage(self, message_id: str) -> str:
        return str(sent(self.here, self.ana, message_id)["ben@lap"]["stage"])

    def rounds(self, spent_ms: int) -> None:
        """Time passes while the host is there."""
        for _ in range(spent_ms // ROUND_MS):
            self.here.world.pass_ms(ROUND_MS)
            self.relay.keep_house()


@pytest.fixture
async def relayed(tmp_path: Path) -> AsyncIterator[Relayed]:
    made = Relayed(tmp_path)
    yield made
    await made.close()


def asleep(host: PairedDesk) -> None:
    host.world.wall_ms += UNOFFERED_MAX_MS  # the steady clock stands meanwhile


def stopped(host: PairedDesk) -> None:
    host.world.pass_ms(UNOFFERED_MAX_MS)


def clock_set(host: PairedDesk) -> None:
    host.world.wall_ms += 20 * 365 * 86_400_000


@pytest.mark.parametrize("away", [asleep, stopped, clock_set])
async def test_a_host_that_was_not_there_tries_before_it_gives_mail_up(
    relayed: Relayed, away: Callable[[PairedDesk], None]
) -> None:
    relayed.rounds(BACK_MIN_MS)
    message = relayed.send()
    relayed.rounds(ABSENCE_MIN_MS)
    away(relayed.here)
    relayed.rounds(BACK_MIN_MS)
    assert relayed.stage(message) == "queued"
    relayed.rounds(ROUND_MS)
    assert relayed.stage(message) == "returned"


async def test_a_host_that_was_off_tries_before_it_gives_mail_up(relayed: Relayed) -> None:
    message = relayed.send()
    stopped(relayed.here)
    await relayed.start_again()
    relayed.rounds(BACK_MIN_MS - ROUND_MS)
    assert relayed.stage(message) == "queued"
    relayed.rounds(ROUND_MS)
    assert relayed.stage(message) == "returned"


async def test_a_host_that_is_there_gives_mail_up_when_its_time_is_over(relayed: Relayed) -> None:
    message = relayed.send()
    for _ in range(UNOFFERED_MAX_MS // ROUND_MS // 4):
        relayed.here.world.pass_ms(3 * ROUND_MS)
        relayed.rounds(ROUND_MS)
    assert relayed.stage(message) == "queued"
    relayed.rounds(ROUND_MS)
    assert relayed.stage(message) == "returned"
