"""Ends of wires that lead nowhere: whoever asks on them for a sign of life is not answered."""

from collections.abc import Callable

from mbx.daemon.linkstate import RoundTrip


class MuteEnd:
    """What a `mbx.daemon.linkstate.Wire` asks, unanswered; a dead wire is found out by others."""

    def ping(self) -> None:
        """Nobody answers."""

    def measure(self) -> None:
        """Nobody answers."""

    @property
    def round_trip(self) -> RoundTrip | None:
        return None

    @property
    def run(self) -> str | None:
        return None

    def question(self, answered: Callable[[], None]) -> None:
        """Nobody answers."""
