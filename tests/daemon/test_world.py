"""The one module that reads clocks and chance."""

from mbx.daemon.world import Moment, SystemWorld, moment


def test_the_system_world_gives_time_that_does_not_go_back_and_bytes_that_differ() -> None:
    world = SystemWorld()
    assert world.monotonic_ms() <= world.monotonic_ms()
    assert world.now_ms() > 1_700_000_000_000
    assert len(world.random_bytes(32)) == 32
    assert world.random_bytes(32) != world.random_bytes(32)


def test_a_moment_draws_the_same_for_a_label_and_else_for_another() -> None:
    one = Moment(5, b"s" * 32)
    assert one.draw("a") == Moment(5, b"s" * 32).draw("a")
    assert one.draw("a") != one.draw("b")
    assert one.draw("a") != Moment(5, b"z" * 32).draw("a")
    assert len(one.nonce("a")) == 32
    assert moment(SystemWorld()).seed != moment(SystemWorld()).seed
