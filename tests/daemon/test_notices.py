"""A person is told of mail that waits long in a session that nothing reaches."""

from collections.abc import AsyncIterator

import pytest

from mbx.core.limits import (
    WAKE_NOTICE_MS,
    WAKE_RETRY_MAX_MS,
)
from mbx.daemon.wakes import Seen, Status
from mbx.store import wakes
from tests.support.waker import SAM, Scene


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    async with made.serving():
        yield made
    made.desk.close()


@pytest.mark.parametrize(("ms", "count"), [(-1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("seen", [Seen("none", "it has no way"), Seen("none")])
async def test_a_person_is_told_of_mail_that_waits_long_and_reaches_nobody(
    scene: Scene, seen: Seen, ms: int, count: int
) -> None:
    scene.way.seen, scene.desktop.seen = seen, Seen("ready")
    await scene.send(SAM, "ben")
    assert scene.desktop.woken == []
    await scene.pass_ms(WAKE_NOTICE_MS + ms, "ben")
    assert len(scene.desktop.woken) == count
    assert not scene.reach("ben").is_open


async def test_a_notice_wakes_nobody_and_is_not_repeated_for_the_same_mail(scene: Scene) -> None:
    scene.way.seen, scene.desktop.seen = Seen("none", "it has no way"), Seen("ready")
    await scene.send(SAM, "ben")
    await scene.pass_ms(WAKE_NOTICE_MS, "ben")
    assert scene.desktop.woken == [(200, "mbx: 1 message waits for ben; call mbx_inbox")]
    assert scene.outcomes("ben") == ["unknown"]
    assert scene.desk.rows("SELECT stage FROM deliveries") == [(2,)]
    assert scene.hooks.kept == []
    assert scene.desk.do(lambda tx: wakes.unknown(tx, 0, 9)) == []
    for _ in range(3):
        await scene.pass_ms(WAKE_RETRY_MAX_MS, "ben")
    assert len(scene.desktop.woken) == 1
    await scene.send(SAM, "ben")
    await scene.pass_ms(WAKE_NOTICE_MS, "ben")
    assert len(scene.desktop.woken) == 2


async def test_what_a_hook_says_meanwhile_needs_no_notice(scene: Scene) -> None:
    scene.way.seen, scene.desktop.seen = Seen("none", "it has no way"), Seen("ready")
    await scene.send(SAM, "ben")
    scene.hooks.told = {1}
    await scene.pass_ms(WAKE_NOTICE_MS, "ben")
    await scene.send(SAM, "ben")
    assert scene.desktop.woken == [], "the time of the new mail begins with it"


@pytest.mark.parametrize("status", ["busy", "idle"])
async def test_who_is_reached_in_another_way_is_no_matter_for_a_person(
    scene: Scene, status: Status
) -> None:
    scene.way.seen, scene.desktop.seen = Seen(status), Seen("ready")
    await scene.send(SAM, "ben")
    await scene.pass_ms(2 * WAKE_NOTICE_MS, "ben")
    assert scene.desktop.woken == []


async def test_a_person_is_told_of_a_client_that_takes_no_wakes(scene: Scene) -> None:
    scene.way.seen, scene.desktop.seen = Seen("blocked", "it takes none"), Seen("ready")
    await scene.send(SAM, "ben")
    await scene.pass_ms(WAKE_RETRY_MAX_MS, "ben")
    assert len(scene.desktop.woken) == 1


async def test_where_there_is_no_desktop_nothing_is_tried(scene: Scene) -> None:
    scene.way.seen = Seen("none", "it has no way")
    await scene.send(SAM, "ben")
    await scene.pass_ms(WAKE_NOTICE_MS, "ben")
    assert (scene.desktop.woken, scene.outcomes("ben")) == ([], [])
