"""One side of a pairing: its terms, and who waits for news of it."""

import asyncio

import pytest

from mbx.core.keys import SigningKey
from mbx.core.pairing import INVITER, Own
from mbx.daemon import pairingside
from mbx.daemon.context import Answer
from mbx.daemon.pairingside import ENDS, WAITING_MAX, Side
from mbx.store.database import Committed, Outcome

OWN = Own(SigningKey.from_seed(bytes(32)), b"certificate", "desk", (), None)
Told = asyncio.Future[Outcome[Answer]]


def side() -> Side:
    return Side("0" * 26, INVITER, OWN, lambda: 1_000, 1_700_000_000_000, 2_500)


def looking(one: Side, seen: int = 1) -> Told:
    told: Told = asyncio.get_running_loop().create_future()
    one.look(seen, told.set_result)
    return told


def state(told: Told) -> str:
    outcome = told.result()
    assert isinstance(outcome, Committed)
    return str(outcome.value.result["state"])


async def test_whoever_has_not_seen_it_is_answered_at_once_and_others_with_the_next_news() -> None:
    one = side()
    assert looking(one, 0).done()
    waiting = looking(one)
    assert not waiting.done()
    one.changed()
    assert state(waiting) == "waiting"


async def test_more_callers_than_may_wait_send_the_oldest_home() -> None:
    one = side()
    waiting = [looking(one) for _ in range(WAITING_MAX + 1)]
    assert [told.done() for told in waiting] == [True] + [False] * WAITING_MAX
    one.over("replaced")
    assert {state(told) for told in waiting[1:]} == {"over"}


async def test_without_news_a_caller_is_told_so_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pairingside, "LOOK_S", 0)
    one = side()
    told = looking(one)
    await told
    assert state(told) == "waiting"
    one.over("stopped")


async def test_only_the_first_end_counts_and_has_words_and_a_next_step() -> None:
    for code, (words, step) in ENDS.items():
        one = side()
        one.over(code)
        one.over("other", "later words", "later step")
        end = one.told()["end"]
        assert end == {"code": code.removesuffix("-here"), "words": words, "next": step}
        assert words
        assert step
        assert looking(one).done()


async def test_its_term_is_the_one_that_was_set_last() -> None:
    one = side()
    ended: asyncio.Future[Side] = asyncio.get_running_loop().create_future()
    one.end_at(10**9, lambda _: ended.set_exception(AssertionError("too early")))
    assert one.told()["left_s"] == (10**9 - 1_000) // 1_000
    one.end_at(1_000, ended.set_result)
    assert await ended is one
    one.end_at(1_000, lambda _: ended.set_exception(AssertionError("after its end")))
    one.over("expired-here")
    await asyncio.sleep(0)
