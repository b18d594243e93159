"""Hosts of one owner that are paired without a network, and what their agents may be made to do."""

from typing import Any

from mbx.core.frames import Place
from mbx.core.keys import SigningKey
from mbx.daemon.authority import Authority
from mbx.daemon.effects import Authorised
from mbx.daemon.gate import Caller
from mbx.store import identities
from tests.support.owner import Owner, an_owner
from tests.support.paired import PairedDesk, desk, pair, settle

SECOND = 1_000


class Estate:
    """`desk` (with ana) and `lap` (with ben), both of one owner; each policy comes a second later.

    Further hosts come with `add`.
    """

    def __init__(self) -> None:
        self.here, self.there = desk("desk"), desk("lap")
        self.hosts = [self.here, self.there]
        self.ana = self.here.holder("ana", 10)
        self.ben = self.there.holder("ben", 20)
        self.owner, self.owner_there = an_owner(self.here), an_owner(self.there)
        pair(self.here, self.there, self.owner.id)
        settle(self.here, self.there)

    def add(self, label: str, name: str, pid: int, *, seed: int = 7) -> tuple[PairedDesk, Caller]:
        """A further host, with an agent; an owner of another `seed` is another one."""
        made = desk(label)
        self.hosts.append(made)
        agent = made.holder(name, pid)
        owner = an_owner(made, seed)
        for other in (self.here, self.there):
            pair(made, other, owner.id if owner.id == self.owner.id else None)
            settle(made, other)
        return made, agent

    def close(self) -> None:
        for host in self.hosts:
            host.close()

    def pass_ms(self, ms: int = SECOND) -> None:
        """Time passes on all hosts."""
        for host in self.hosts:
            host.world.pass_ms(ms)

    def settle(self) -> None:
        """All that is queued between the two arrives."""
        settle(self.here, self.there)

    def set(self, to: str, level: str, *sources: str, on: Owner | None = None, **more: Any) -> str:
        """The owner signs a policy (on `desk` unless told); its id."""
        self.pass_ms()
        wanted = {"to": [to], "level": level, "from": list(sources), **more}
        return str((on or self.owner).do("policy", **wanted)["id"])

    def revoke(self, *records: str, on: Owner | None = None) -> str:
        """The owner takes these back, or all; the id of that record."""
        self.pass_ms()
        which: dict[str, Any] = {"records": list(records)} if records else {"all": True}
        return str((on or self.owner).do("revoke", **which)["id"])

    def level(self) -> str:
        """What ben may be made to do by mail of ana's, as ben reads it."""
        return self.line().removeprefix("policy: ").split(" (")[0]

    def line(self) -> str:
        """The whole policy line of fresh mail from ana, as ben reads it."""
        return self.line_of(self.here, self.ana)

    def line_of(self, host: PairedDesk, sender: Caller) -> str:
        """The policy line of fresh mail from `sender` on `host` to ben."""
        letter = {"to": ["ben@lap"], "subject": "s", "body": "b"}
        message = host.call(sender, "mail.send", **letter)["id"]
        settle(host, self.there)
        [read] = self.there.call(self.ben, "mail.read", ids=[message])["messages"]
        return str(read["policy_line"])

    def bring(self, *records: Place, by: PairedDesk | None = None) -> None:
        """What the host `by` (`desk`) sends to `lap`, whatever it is; the link must go on."""
        sender = by or self.here
        first = self.there.stream(sender.label).in_seq + 1
        upto = self.there.take(sender.label, first, list(records))
        assert upto == first + len(records) - 1
        self.forget_streams(sender)

    def forget_streams(self, sender: PairedDesk) -> None:
        """What was smuggled in counts as sent, so that honest mail comes behind it."""
        stream, no = self.there.stream(sender.label), sender.peer_nos[self.there.label]
        sender.connection.execute("DELETE FROM outbox WHERE peer_no = ?", (no,))
        sender.connection.execute(
            "UPDATE streams SET out_seq = ?1, offered_seq = ?1, acked_seq = ?1, out_head = ?2,"
            " queued_messages = 0, queued_bytes = 0 WHERE peer_no = ?3",
            (stream.in_seq, stream.in_head, no),
        )

    def restart(self, host: PairedDesk) -> None:
        """A daemon starts on the store of a host, with what its second place knows."""
        told = [one for one in host.effects if isinstance(one, Authorised)]
        followed: dict[str, tuple[int, int]] = {}
        for one in told:
            for chain, *far in one.followed:
                followed[chain] = max((far[0], far[1]), followed.get(chain, (0, 0)))
        floor = max((one.version for one in told), default=0)
        host.dispatcher._authority = Authority(host.host.key_id, floor, followed=followed)

    def identity(self, host: PairedDesk, name: str) -> str:
        """The id of an identity that lives on a host."""
        row = host.do(lambda tx: identities.by_name(tx, name))
        assert row is not None
        return row.identity


def key(seed: int) -> SigningKey:
    """A key that is nobody's here."""
    return SigningKey.from_seed(bytes([seed]) * 32)
