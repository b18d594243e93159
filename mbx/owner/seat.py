"""Whether a command of the owner's runs where the owner sits, by this process's own look.

The daemon says the same of its callers; a passphrase is asked for in commands that need no daemon
too (`mbx owner sign`, `mbx owner passwd`), so each of them looks for itself first.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from mbx.core.terminal import refusal
from mbx.kernel.ancestry import own_terminal
from mbx.owner.terminal import Terminal


@contextmanager
def owners_terminal() -> Iterator[Terminal]:
    """The terminal on which a passphrase may be asked for.

    Raises MbxError owner-required without a terminal, or below an agent CLI.
    """
    with Terminal() as terminal:
        seen = own_terminal()
        if not seen.ok:
            raise refusal(seen)
        yield terminal
