"""The moves of a rogue find what they are for: each rule that is taken out of mbx, one of them."""

import sqlite3
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from mbx.core import exposure, message, names
from mbx.core.delivery import Stage
from mbx.core.errors import MbxError
from mbx.core.limits import INTEGER_MAX
from mbx.core.record import ANY_AUDIENCE, Record, inspect, verify
from mbx.daemon import relaying
from mbx.store import identities, messages, peers
from mbx.store.database import Tx
from tests.support.byzantine import LABEL
from tests.support.moves import play
from tests.support.moves_of_records import EVERY
from tests.support.nearstage import NearStage, near_stage_of_test

__all__ = ["near_stage_of_test"]


def claims_count(patch: pytest.MonkeyPatch) -> None:
    def place(taken: Any, record: Any, relayed: Any) -> tuple[str, int | None]:
        no = messages.by_id(taken.tx, relayed.reply_to) if relayed.reply_to else None
        return relayed.thread or record.id, no

    patch.setattr(relaying, "_place", place)


def any_depth_is_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(message, "HOPS_MAX", INTEGER_MAX)
    patch.setattr(exposure, "HOPS_MAX", 2 * INTEGER_MAX)


def any_name_is_shown(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(message, "_named", lambda parties: parties)


def any_sender_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(names, "check_name", lambda name: None)


def no_signature_is_looked_at(patch: pytest.MonkeyPatch) -> None:
    def verified(record: Record, *, kind: str, audience: str, **rest: object) -> Any:
        return inspect(kind, record.payload, audience=audience)

    patch.setattr(relaying, "verify", verified)


def no_audience_is_looked_at(patch: pytest.MonkeyPatch) -> None:
    def verified(record: Record, **what: Any) -> Any:
        return verify(record, **{**what, "audience": ANY_AUDIENCE})

    patch.setattr(relaying, "verify", verified)


def ids_count_for_every_host(patch: pytest.MonkeyPatch) -> None:
    find = peers.identity_of

    def found(tx: Tx, no: int, identity: str) -> Any:
        return identities.by_identity(tx, identity) or find(tx, no, identity)

    patch.setattr(peers, "identity_of", found)


def receipts_go_back(patch: pytest.MonkeyPatch) -> None:
    find = messages.copy_to

    def found(*where: Any) -> Any:
        copy = find(*where)
        return copy and (copy[0], Stage.HANDED_OVER)

    patch.setattr(messages, "copy_to", found)


def what_came_is_taken_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(messages, "is_known", lambda tx, digest: False)


Plant = Callable[[pytest.MonkeyPatch], None]

DEFECTS: Final[Mapping[Plant, str]] = {
    claims_count: "in the private thread of two others",
    any_depth_is_read: "depths around the limit",
    any_name_is_shown: "to ana and what is no mailbox",
    any_sender_is_believed: "from reserved names",
    no_signature_is_looked_at: "another message's signature",
    no_audience_is_looked_at: "a record for another audience",
    ids_count_for_every_host: "from our identity, under our name and label",
    receipts_go_back: "receipts that jump back and forth",
    what_came_is_taken_again: "one record in three places",
}
"""A rule taken out of mbx, and the move that tells."""


@pytest.mark.parametrize("plant", DEFECTS, ids=lambda one: one.__name__)
def test_the_move_finds_the_planted_defect(
    stage: NearStage, monkeypatch: pytest.MonkeyPatch, plant: Plant
) -> None:
    [move] = [one for one in EVERY if one.name == DEFECTS[plant]]
    rogue = stage.rogue(LABEL)
    play(stage, rogue, move)
    plant(monkeypatch)
    with pytest.raises((AssertionError, MbxError, sqlite3.Error, ValueError)):
        play(stage, rogue, move)
    monkeypatch.undo()
    rogue.hang_up()
