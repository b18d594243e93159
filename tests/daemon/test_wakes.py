"""The worker that wakes, on a store and a clock of the test, with a way of the test."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from mbx.core.brake import OPEN, Outcome, Verdict, Waiting
from mbx.core.lease import Lease, LeaseState
from mbx.core.limits import (
    REST_TOLD_MS,
    WAKE_ANNOUNCED_MAX,
    WAKE_DAY_MS,
    WAKE_GAP_MS,
    WAKE_RETRY_MAX_MS,
    WAKE_THREAD_MS,
    WAKES_AT_ONCE_MAX,
    WAKES_KEPT_MAX,
    WAKES_OF_DAY_MAX,
    WAKES_OF_THREAD_MAX,
)
from mbx.daemon import announcing
from mbx.daemon.holders import Target
from mbx.daemon.reach import NOT_LIVE, Lasting
from mbx.daemon.wakes import Seen, Told
from mbx.store import leases, wakes
from mbx.store.database import Tx
from tests.support.office import OfficeDesk, harness
from tests.support.patience import looks
from tests.support.waker import ANA, BEN, SAM, Scene, Sessions


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    async with made.serving():
        yield made
    made.desk.close()


async def test_one_wake_announces_all_that_waits_and_each_message_once(scene: Scene) -> None:
    scene.way.seen = Seen("busy", "it is in a turn")
    await scene.send(SAM, "ben")
    await scene.send(SAM, "ben")
    assert scene.way.woken == []
    scene.way.seen = Seen("idle")
    await scene.pass_ms(WAKE_GAP_MS, "ben")
    assert scene.way.woken == [(200, "mbx: 2 messages wait for ben; call mbx_inbox")]
    await scene.pass_ms(WAKE_DAY_MS, "ben")
    assert len(scene.way.woken) == 1


@pytest.mark.parametrize(("ms", "count"), [(-1, 1), (0, 2), (1, 2)])
async def test_new_mail_waits_until_the_brake_opens(scene: Scene, ms: int, count: int) -> None:
    await scene.send(SAM, "ben")
    await scene.send(SAM, "ben")
    await scene.pass_ms(WAKE_GAP_MS + ms, "ben")
    assert len(scene.way.woken) == count


async def test_a_ring_of_two_agents_in_one_thread_ends(scene: Scene) -> None:
    message = await scene.send(ANA, "ben", needs_reply=True)
    thread = message
    writers = [(BEN, "ana"), (ANA, "ben")]
    for number in range(2 * WAKES_OF_THREAD_MAX):
        writer, name = writers[number % 2]
        scene.desk.world.pass_ms(WAKE_GAP_MS)
        answer = {"id": message, "body": "and you?", "kind": "request"}
        message = str(scene.desk.call(writer, "mail.reply", **answer)["id"])
        await scene.look(name)
    assert len(scene.way.woken) == WAKES_OF_THREAD_MAX
    assert "this thread woke as often as one may" in scene.reach("ben", thread).detail
    assert scene.reach("ben").is_open
    await scene.pass_ms(WAKE_THREAD_MS, "ana", "ben")
    assert len(scene.way.woken) > WAKES_OF_THREAD_MAX


async def test_a_thread_that_woke_others_while_a_session_was_looked_at_wakes_it_no_more(
    scene: Scene,
) -> None:
    letter = {"to": ["ben"], "subject": "s", "body": "b", "kind": "task"}
    message = scene.desk.call(SAM, "mail.send", **letter)
    ana, ben, thread = scene.no("ana"), scene.no("ben"), str(message["id"])
    others = [Waiting(no, thread) for no in range(1_000, 1_000 + WAKES_OF_THREAD_MAX)]

    def wake_others() -> None:
        scene.way.while_looking = lambda: None
        scene.brakes.spend(ana, others)

    scene.way.while_looking = wake_others
    scene.worker.look([ben])
    await scene.worker.rest()
    assert (scene.way.woken, scene.outcomes("ben")) == ([], [])
    await scene.pass_ms(WAKE_THREAD_MS, "ben")
    assert [pid for pid, _ in scene.way.woken] == [200]


async def test_a_message_that_woke_one_counts_though_another_was_busy(scene: Scene) -> None:
    """The first to be woken was not: the second has, by the same message."""
    cause = Waiting(1, "t")
    woken = [Waiting(no, "t") for no in range(2, WAKES_OF_THREAD_MAX + 1)]
    scene.brakes.spend(3, woken)
    scene.brakes.spend(1, [cause])
    scene.brakes.spend(2, [cause])
    assert not scene.brakes.of_thread("t").is_open
    scene.brakes.refund(1, [cause])
    assert not scene.brakes.of_thread("t").is_open
    scene.brakes.refund(2, [cause])
    assert scene.brakes.of_thread("t").is_open


async def test_a_new_daemon_knows_what_woke_one_when_it_did_not_wake_another(scene: Scene) -> None:
    await scene.send(SAM, "ben")
    scene.start()
    [(no, thread)] = scene.desk.rows("SELECT no, thread FROM messages")
    cause = Waiting(no, thread)
    scene.brakes.spend(3, [Waiting(no + one, thread) for one in range(1, WAKES_OF_THREAD_MAX)])
    scene.brakes.spend(2, [cause])
    scene.brakes.refund(2, [cause])
    assert not scene.brakes.of_thread(thread).is_open


async def test_a_wake_is_logged_by_the_way_that_it_went(scene: Scene) -> None:
    told = list[str]()
    await scene.send(SAM, "ben")
    scene.watchers.add("a connection", ANA, scene.no("ana"), lambda method, _: told.append(method))
    await scene.send(SAM, "ana")
    assert (told, scene.ways) == (["mail.arrived"], ["claude", "watch"])


async def test_a_cause_that_is_too_old_to_count_counts_anew(scene: Scene) -> None:
    cause = Waiting(1, "t")
    woken = [Waiting(no, "t") for no in range(2, WAKES_OF_THREAD_MAX + 1)]
    scene.brakes.spend(1, [cause])
    scene.desk.world.pass_ms(WAKE_THREAD_MS)
    scene.brakes.spend(3, woken)
    scene.brakes.spend(2, [cause])
    assert not scene.brakes.of_thread("t").is_open
    scene.brakes.refund(2, [cause])
    assert scene.brakes.of_thread("t").is_open


async def test_a_mailbox_is_woken_so_often_a_day_and_its_senders_are_told(scene: Scene) -> None:
    for _ in range(WAKES_OF_DAY_MAX + 2):
        await scene.send(SAM, "ben")
        scene.desk.world.pass_ms(WAKE_GAP_MS)
    assert len(scene.way.woken) == WAKES_OF_DAY_MAX
    assert "as often as one may be in a day" in scene.reach("ben").detail
    await scene.pass_ms(WAKE_DAY_MS, "ben")
    assert len(scene.way.woken) == WAKES_OF_DAY_MAX + 1


async def test_a_setting_of_the_clock_opens_no_brake(scene: Scene) -> None:
    await scene.send(SAM, "ben")
    scene.desk.world.wall_ms += 30 * WAKE_DAY_MS
    await scene.send(SAM, "ben")
    assert len(scene.way.woken) == 1


async def test_a_new_daemon_knows_the_brakes_also_when_the_clock_was_set_back(scene: Scene) -> None:
    await scene.send(SAM, "ben")
    scene.desk.world.wall_ms -= 30 * WAKE_DAY_MS
    scene.start()
    assert scene.brakes.of_mailbox(scene.no("ben")) == Verdict(
        scene.desk.world.monotonic_ms() + WAKE_GAP_MS, "gap"
    )
    scene.desk.world.pass_ms(WAKE_GAP_MS)
    assert scene.brakes.of_mailbox(scene.no("ben")) == OPEN


async def test_a_takeover_between_intent_and_call_wakes_nobody(scene: Scene) -> None:
    before = scene.desk.rows("SELECT session_no FROM leases WHERE identity_no = ?", scene.no("ben"))

    def take_over() -> None:
        def unit(tx: Tx) -> None:
            row = leases.find(tx, scene.no("ben"))
            after = Lease(LeaseState.HELD, row.lease.epoch + 1, before[0][0], 0)
            leases.save(tx, row.identity_no, row.lease, after)

        scene.way.meanwhile = lambda: None
        scene.desk.do(unit)

    scene.way.meanwhile = take_over
    await scene.send(SAM, "ben")
    assert scene.way.woken == [(200, "mbx: 1 message waits for ben; call mbx_inbox")]
    assert scene.outcomes("ben") == ["failed", "admitted"]  # the second one is the new holder's


async def test_what_was_told_to_a_former_holder_is_not_announced_to_the_next(scene: Scene) -> None:
    target = Sessions(scene.desk).target(scene.no("ben"))
    assert target is not None
    await scene.send(SAM, "ben", kind="message")  # wakes nobody
    scene.desk.connection.execute("UPDATE deliveries SET wakes = 1")
    scene.desk.connection.commit()
    waiting = scene.desk.do(lambda tx: announcing.waiting(tx, target))
    draft = announcing.Draft(target, "claude", tuple(waiting), tuple(waiting))
    intent = scene.desk.do(lambda tx: announcing.intend(tx, 1, draft))
    assert intent is not None
    scene.desk.connection.execute("UPDATE leases SET epoch = epoch + 1")
    scene.desk.connection.commit()
    now = scene.desk.dispatcher.context().moment
    scene.desk.do(
        lambda tx: announcing.settle(tx, scene.desk.host, now, target, intent, "admitted", "x")
    )
    assert scene.desk.rows("SELECT stage FROM deliveries") == [(2,)]


async def test_an_unknown_outcome_is_never_repeated_and_newer_mail_waits_long(scene: Scene) -> None:
    scene.way.outcome = "unknown"
    await scene.send(SAM, "ben")
    await scene.pass_ms(WAKE_RETRY_MAX_MS, "ben")
    assert len(scene.way.woken) == 1
    assert scene.reach("ben").is_open
    scene.way.outcome = "admitted"
    await scene.send(SAM, "ben")
    assert scene.way.woken[1:] == [(200, "mbx: 2 messages wait for ben; call mbx_inbox")]


@pytest.mark.parametrize(("ms", "count"), [(-1, 1), (0, 2), (1, 2)])
async def test_newer_mail_wakes_after_the_pause_of_an_unknown_outcome(
    scene: Scene, ms: int, count: int
) -> None:
    scene.way.outcome = "unknown"
    await scene.send(SAM, "ben")
    await scene.send(SAM, "ben")
    assert "is not known (as staged)" in scene.reach("ben").detail
    await scene.pass_ms(WAKE_RETRY_MAX_MS + ms, "ben")
    assert len(scene.way.woken) == count


async def test_a_new_daemon_does_not_repeat_what_an_earlier_one_left_open(scene: Scene) -> None:
    scene.way.outcome = "unknown"
    await scene.send(SAM, "ben")
    scene.desk.connection.execute("UPDATE wakes SET outcome = NULL")
    scene.desk.connection.commit()
    scene.start()
    assert scene.outcomes("ben") == ["unknown"]
    scene.way.outcome = "admitted"
    async with scene.serving():
        await scene.pass_ms(WAKE_DAY_MS, "ben")
        assert len(scene.way.woken) == 1


async def test_what_certainly_did_not_arrive_is_tried_again_and_costs_nothing(scene: Scene) -> None:
    scene.way.outcome = "failed"
    await scene.send(SAM, "ben")
    assert scene.brakes.of_mailbox(scene.no("ben")).is_open
    assert "did not reach it" in scene.reach("ben").detail
    scene.way.outcome = "admitted"
    await scene.pass_ms(WAKE_GAP_MS, "ben")
    assert scene.outcomes("ben") == ["failed", "admitted"]


async def test_what_a_hook_announced_wakes_nobody_and_its_sender_is_told(scene: Scene) -> None:
    scene.way.seen = Seen("busy", "it is in a turn")
    await scene.send(SAM, "ben")
    await scene.send(SAM, "ben")
    scene.hooks.told = {1}
    scene.way.seen = Seen("idle")
    await scene.pass_ms(WAKE_GAP_MS, "ben")
    assert scene.outcomes("ben") == ["admitted"]
    assert scene.desk.rows("SELECT stage FROM deliveries") == [(3,), (3,)]
    scene.hooks.told = {1, 2, 3}
    await scene.send(SAM, "ben")
    await scene.pass_ms(WAKE_GAP_MS, "ben")
    assert scene.outcomes("ben") == ["admitted"]
    assert scene.desk.rows("SELECT stage FROM deliveries WHERE message_no = 3") == [(3,)]


@pytest.mark.parametrize(
    ("outcome", "kept"),
    [
        ("admitted", ["told", "kept"]),
        ("unknown", ["told", "taken back"]),
        ("failed", ["told", "taken back"]),
    ],
)
async def test_hooks_say_what_a_wake_did_not_say_for_certain(
    scene: Scene, outcome: Outcome, kept: list[str]
) -> None:
    scene.way.outcome = outcome
    await scene.send(SAM, "ben")
    assert scene.hooks.kept == kept


async def test_a_way_that_fails_inside_leaves_no_wake_open(scene: Scene) -> None:
    def fail() -> None:
        raise RuntimeError("inside")

    scene.way.meanwhile = fail
    await scene.send(SAM, "ben")
    assert scene.outcomes("ben") == ["unknown"]
    assert "a way failed inside" in scene.log


async def test_a_way_that_fails_at_looking_is_none_and_ends_nothing(scene: Scene) -> None:
    def fail(target: Target) -> Seen:
        raise KeyError("inside")

    scene.way.look = fail  # type: ignore[method-assign]  # the way is the test's own
    await scene.worker.look_at_sessions()
    await scene.send(SAM, "ben")
    assert scene.way.woken == []
    assert "mbx failed at it (KeyError)" in scene.reach("ben").detail


async def test_an_outcome_that_a_full_disk_refuses_is_written_down_later(scene: Scene) -> None:
    scene.way.meanwhile = lambda: setattr(scene, "is_full", True)
    await scene.send(SAM, "ben")
    assert scene.outcomes("ben") == [None]
    await scene.send(SAM, "ana")
    assert scene.outcomes("ana") == []
    assert [pid for pid, _ in scene.way.woken] == [200]
    scene.is_full = False
    await scene.worker.settle_again()
    assert scene.outcomes("ben") == ["admitted"]


@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_so_many_sessions_are_woken_at_once(scene: Scene, more: int) -> None:
    names = [f"agent-{letter}" for letter in "abcdefghk"[: WAKES_AT_ONCE_MAX + more]]
    for number, name in enumerate(names):
        caller = harness(1_000 + number, f"s-{name}")
        scene.desk.call(caller, "identity.register", name=name, role="many")
    gate, most = asyncio.Event(), 0

    async def wake(target: Target, text: str, is_current: Callable[[], bool]) -> Told:
        nonlocal most
        scene.way.woken.append((target.process.pid, text))
        most = max(most, len(scene.way.woken))
        await gate.wait()
        return Told("admitted", "as staged")

    scene.way.wake = wake  # type: ignore[method-assign]  # the way is the test's own
    letter = {"to": ["role:many"], "subject": "s", "body": "b", "kind": "task"}
    scene.desk.call(SAM, "mail.send", **letter)
    scene.worker.look([scene.no(name) for name in names])
    for _ in looks():
        await asyncio.sleep(0)
        if len(scene.way.woken) >= min(len(names), WAKES_AT_ONCE_MAX):
            break
    assert most == min(len(names), WAKES_AT_ONCE_MAX)
    gate.set()
    await scene.worker.rest()
    assert len(scene.way.woken) == len(names)


async def test_who_sits_at_a_shell_and_who_holds_nothing_are_woken_by_nothing(scene: Scene) -> None:
    await scene.send(ANA, "sam")
    assert scene.way.woken == []
    assert not scene.reach("sam").is_open
    scene.desk.call(BEN, "identity.release")
    assert scene.reach("ben") == NOT_LIVE


@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_one_wake_announces_so_many_messages(scene: Scene, more: int) -> None:
    count = WAKE_ANNOUNCED_MAX + more
    scene.way.seen = Seen("busy", "it is in a turn")
    await scene.send(SAM, "ben")
    for _ in range(count - 1):
        letter = {"to": ["ben"], "subject": "s", "body": "b", "kind": "task"}
        scene.desk.call(SAM, "mail.send", **letter)
    scene.way.seen = Seen("idle")
    await scene.pass_ms(WAKE_GAP_MS, "ben")
    assert scene.desk.rows("SELECT count(*) FROM deliveries WHERE stage = 3") == [
        (min(count, WAKE_ANNOUNCED_MAX),)
    ]


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_so_many_wakes_are_remembered(more: int) -> None:
    desk = OfficeDesk()
    desk.call(BEN, "identity.register", name="ben", role="dev")
    wake = wakes.NewWake(1, 1, 1, "claude", desk.world.now_ms(), 1, 1)

    def unit(tx: Tx) -> None:
        for _ in range(WAKES_KEPT_MAX + more):
            wakes.intend(tx, wake, [Waiting(1, "0" * 26)])
        wakes.forget_old(tx, desk.world.now_ms())

    desk.do(unit)
    kept = min(WAKES_KEPT_MAX, WAKES_KEPT_MAX + more)
    assert desk.rows("SELECT count(*) FROM wakes") == [(kept,)]
    assert desk.rows("SELECT count(*) FROM wake_threads") == [(kept,)]
    desk.do(lambda tx: wakes.forget_old(tx, desk.world.now_ms() + 2 * WAKE_DAY_MS + 1))
    assert desk.rows("SELECT count(*) FROM wakes") == [(0,)]
    desk.close()


# -- what lasts -----------------------------------------------------------------------------------

AT_WORK, RESTS = Lasting(False, True), Lasting(True, True)


async def lasting(scene: Scene, seen: Seen, pass_ms: int = 0) -> Lasting | None:
    """What is to be told of ben after a time, and a look that sees this of his session."""
    scene.desk.world.pass_ms(pass_ms)
    scene.way.seen = seen
    await scene.worker.look_at_sessions()
    return scene.reach("ben").lasting


async def test_of_another_holder_nothing_has_lasted(scene: Scene) -> None:
    await lasting(scene, Seen("idle"))
    assert await lasting(scene, Seen("idle"), REST_TOLD_MS) == RESTS
    scene.desk.call(BEN, "identity.release")
    assert scene.reach("ben").lasting is None
    scene.desk.call(BEN, "identity.claim", name="ben")
    assert scene.reach("ben").lasting is None
    assert await lasting(scene, Seen("idle")) == AT_WORK
