"""What a method is: its name, what it needs of its caller, how it reads, what it does."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from mbx.daemon.context import Answer, Context
from mbx.daemon.gate import Access, Holder, Open, OwnerTerminal, Session
from mbx.daemon.params import Params
from mbx.store.database import Tx

P = TypeVar("P", Open, Session, Holder, OwnerTerminal)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Method(Generic[P, R]):
    """`read` turns parameters into a request value; `act` does it, inside one transaction.

    `writes` methods run in the group commit; the others run over a snapshot and cannot change
    anything. `keyed` ones take an idempotency key, and keep their first answer to it for ever. One
    `after_index` runs when the full-text index has caught up. `across_versions` methods answer
    callers of any protocol. `when_full` is what a writing method does over a snapshot instead while
    the disk is full. `brief` ones read little whatever is asked (less than a millisecond).
    """

    name: str
    access: Access
    writes: bool
    summary: str
    read: Callable[[Params], R]
    act: Callable[[Context, Tx, P, R], Answer]
    across_versions: bool = False
    when_full: Callable[[Context, Tx, P, R], Answer] | None = None
    brief: bool = False
    keyed: bool = False
    after_index: bool = False


def open_method(
    name: str,
    summary: str,
    read: Callable[[Params], R],
    act: Callable[[Context, Tx, Open, R], Answer],
    *,
    writes: bool = False,
    across_versions: bool = False,
    brief: bool = False,
) -> Method[Open, R]:
    """A method for anybody. One that `writes` brings its own right, such as a signature."""
    return Method(name, Access.OPEN, writes, summary, read, act, across_versions, brief=brief)


def session_method(
    name: str,
    summary: str,
    read: Callable[[Params], R],
    act: Callable[[Context, Tx, Session, R], Answer],
) -> Method[Session, R]:
    """A method that changes what a session holds."""
    return Method(name, Access.SESSION, True, summary, read, act, keyed=True)


def lease_method(
    name: str,
    summary: str,
    read: Callable[[Params], R],
    act: Callable[[Context, Tx, Holder, R], Answer],
    *,
    writes: bool,
    when_full: Callable[[Context, Tx, Holder, R], Answer] | None = None,
    brief: bool = False,
    keyed: bool | None = None,
    after_index: bool = False,
) -> Method[Holder, R]:
    """A mailbox method: refused without a lease. It is `keyed` if it `writes`, unless told."""
    return Method(
        name,
        Access.LEASE,
        writes,
        summary,
        read,
        act,
        when_full=when_full,
        brief=brief,
        keyed=writes if keyed is None else keyed,
        after_index=after_index,
    )


def owner_method(
    name: str,
    summary: str,
    read: Callable[[Params], R],
    act: Callable[[Context, Tx, OwnerTerminal, R], Answer],
    *,
    writes: bool,
    when_full: Callable[[Context, Tx, OwnerTerminal, R], Answer] | None = None,
    brief: bool = False,
    keyed: bool | None = None,
) -> Method[OwnerTerminal, R]:
    """A method for the owner's terminal alone. It is `keyed` if it `writes`, unless told."""
    return Method(
        name,
        Access.OWNER_TERMINAL,
        writes,
        summary,
        read,
        act,
        when_full=when_full,
        brief=brief,
        keyed=writes if keyed is None else keyed,
    )
