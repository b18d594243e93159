"""Two real daemons, paired, over TLS on the loopback: mail, receipts, restarts."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.daemon import Line, fresh_home
from tests.support.hosts import PairedHost, addresses, copies, inbox, plant_pairing, until


class Two:
    """Two hosts that run, ana on the one and ben on the other."""

    def __init__(self, stack: ExitStack, here: PairedHost, there: PairedHost) -> None:
        self.here, self.there = here, there
        plant_pairing(here, there)
        stack.enter_context(here.daemon)
        stack.enter_context(there.daemon)
        self.ana = self._holder(stack, here, "ana")
        self.ben = self._holder(stack, there, "ben")

    def _holder(self, stack: ExitStack, host: PairedHost, name: str) -> Line:
        agent = stack.enter_context(host.daemon.agent())
        return stack.enter_context(agent.registered(name))


@pytest.fixture
def two() -> Iterator[Two]:
    with ExitStack() as stack:
        here = PairedHost(stack.enter_context(fresh_home()), "desk")
        there = PairedHost(stack.enter_context(fresh_home()), "lap")
        yield Two(stack, here, there)


def test_mail_and_receipts_travel_between_two_daemons(two: Two) -> None:
    until(lambda: "ben@lap" in addresses(two.ana), "ben is known here")
    message = two.ana.call("mail.send", to=["ben"], subject="hello", body="over the wire")["id"]
    until(lambda: inbox(two.ben), "the mail arrives")
    [arrived] = inbox(two.ben)
    assert (arrived["id"], arrived["from"]) == (message, "ana@desk")
    until(lambda: copies(two.ana, message)["ben@lap"]["stage"] == "delivered", "delivered")
    two.ben.call("mail.ack", ids=[message], outcome="acted", did="built it")
    until(lambda: copies(two.ana, message)["ben@lap"]["did"] == "built it", "acked")
