"""Removed hosts are dialled until they know it: once each, with pauses, for thirty days."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from mbx.core.limits import FAREWELL_MAX_MS, REDIAL_MAX_MS, STAND_BY_MS
from mbx.daemon.farewells import TOLD, Farewells, due
from mbx.store.peers import PeerRow
from tests.support.office import HandWorld

ENDED_MS = 1_700_000_000_000


def row(
    no: int, *, by: str | None = "us", key: str = "", addresses: tuple[str, ...] = ("a:1",)
) -> PeerRow:
    ended_ms = None if by is None else ENDED_MS
    label = f"host-{no}"
    told = (None, "record", 1, 1, 2, ended_ms, by, (), ())
    return PeerRow(no, key or label, b"", b"", label, label, addresses, *told)


@dataclass
class Bell:
    """A timer that a test rings."""

    delay_s: float
    act: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass
class Hall:
    world: HandWorld = field(default_factory=HandWorld)
    bells: list[Bell] = field(default_factory=list)
    dialled: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        def call_later(delay_s: float, act: Callable[[], None]) -> Bell:
            self.bells.append(Bell(delay_s, act))
            return self.bells[-1]

        self.farewells = Farewells(
            self.world, lambda row: self.dialled.append(row.label), call_later
        )

    def ring(self) -> float:
        """Let the time of the newest timer come; how long it was."""
        bell = self.bells[-1]
        assert not bell.is_cancelled
        self.world.pass_ms(int(bell.delay_s * 1000) + 1)
        bell.act()
        return bell.delay_s


@pytest.fixture
def hall() -> Hall:
    return Hall()


def test_who_was_removed_by_our_owner_of_late_and_has_an_address_is_to_be_told() -> None:
    rows = [row(1), row(2, by="peer"), row(3, by=None), row(4, addresses=())]
    assert [one.no for one in due(rows, ENDED_MS)] == [1]


def test_who_was_paired_again_is_not_told_that_it_is_removed() -> None:
    assert due([row(1, key="k"), row(2, key="k", by=None)], ENDED_MS) == []
    assert [one.no for one in due([row(1, key="k"), row(2, key="k")], ENDED_MS)] == [2]


@pytest.mark.parametrize(("late_ms", "is_due"), [(-1, True), (0, True), (1, False)])
def test_it_is_tried_for_thirty_days(late_ms: int, is_due: bool) -> None:
    assert bool(due([row(1)], ENDED_MS + FAREWELL_MAX_MS + late_ms)) is is_due


def test_the_end_of_a_link_may_tell_first_then_it_is_dialled_until_it_has_heard(hall: Hall) -> None:
    hall.farewells.know([row(1)])
    assert hall.ring() == STAND_BY_MS / 1000
    assert hall.dialled == ["host-1"]
    for _ in range(10):
        hall.farewells.tried(1, "unreachable")
        assert STAND_BY_MS / 1000 <= hall.ring() <= (STAND_BY_MS + REDIAL_MAX_MS) / 1000
    assert hall.dialled == ["host-1"] * 11
    assert hall.farewells.waiting == ["host-1"]
    hall.farewells.tried(1, TOLD)
    assert hall.farewells.waiting == []
    hall.farewells.know([row(1)])  # another pairing began or ended
    assert hall.farewells.waiting == []
    hall.farewells.tried(1, TOLD)


@pytest.mark.parametrize("code", [TOLD, "not-paired"])
def test_who_knows_it_already_is_left_alone(hall: Hall, code: str) -> None:
    hall.farewells.know([row(1), row(2)])
    hall.ring()
    hall.farewells.tried(2, code)
    assert hall.farewells.waiting == ["host-1"]


def test_nothing_is_dialled_after_the_end_or_for_who_is_paired_again(hall: Hall) -> None:
    hall.farewells.know([row(1), row(2)])
    hall.farewells.know([row(2)])
    assert [bell.is_cancelled for bell in hall.bells] == [True, False]
    hall.farewells.close()
    assert [bell.is_cancelled for bell in hall.bells] == [True, True]


def test_after_thirty_days_a_running_daemon_gives_up_too(hall: Hall) -> None:
    hall.farewells.know([row(1)])
    hall.world.wall_ms = ENDED_MS + FAREWELL_MAX_MS + 1
    hall.ring()
    assert (hall.dialled, hall.farewells.waiting) == ([], [])
