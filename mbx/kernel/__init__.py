"""What a platform must tell of processes, so that we know who calls and who lives.

The contract has one implementation for Linux (`linux`: /proc, descriptors of processes) and one for
the rest (`portable`: psutil). `mbx.kernel.ancestry` chooses between them. The daemon asks about its
callers and holders, a command of the owner's about itself.
"""

import os
import select
import socket
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, Self

from mbx.core.evidence import ProcessEntry, Unreadable


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a unix socket when it connected.

    `pid` is 0 where the kernel names none (another pid namespace, already gone, a platform that
    never does); `pidfd` is None where none could be had; `ended` when the kernel says so at once.
    Close it, or use it in ``with``.
    """

    pid: int
    uid: int
    gid: int
    pidfd: int | None
    ended: bool = False

    def is_alive(self) -> bool:
        """Whether the peer has not ended. Without a pidfd: yes, as far as can be said."""
        return not self.ended and (self.pidfd is None or not _has_ended(self.pidfd))

    def close(self) -> None:
        """Give the pidfd back. Once only."""
        if self.pidfd is not None:
            os.close(self.pidfd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


class Kernel(Protocol):
    """The contract. A module with these functions fulfils it."""

    def boot_id(self) -> str:
        """The id of this boot: equal as long as the machine runs, whatever its clock does.

        Where numbers of processes mean something in a namespace only, ``+`` and it follow. Raises
        OSError where it cannot be read now; then the next call asks again.
        """

    def numbers_are_ours(self) -> bool:
        """Whether sockets and entries speak of the same numbers. Raises OSError as `boot_id`."""

    def read_entry(self, pid: int) -> ProcessEntry | Unreadable | None:
        """The entry of a process; None when there is no such process."""

    def read_stat(self, pid: int) -> ProcessEntry | Unreadable | None:
        """The entry without its command line, which costs less."""

    def variables(self, pid: int, names: Collection[str]) -> dict[str, str] | None:
        """Those of the environment that a process of ours was started with; None: closed to us."""

    def listens_at(self, pid: int, port: int) -> frozenset[str]:
        """The addresses, reachable from here, at which a process of ours listens on a TCP port."""

    def peer_of(self, sock: socket.socket) -> Peer:
        """The peer of a connected unix socket (or of a transport's socket). Raises OSError."""

    def pidfd_of(self, pid: int) -> int | None:
        """A descriptor that is readable when the process has ended; None: there is no such thing.

        Raises ProcessLookupError when there is no such process, OSError when none can be had now.
        """
