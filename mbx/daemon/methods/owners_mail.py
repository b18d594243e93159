"""`owner.inbox`, `owner.read`, `owner.ack`: the human's own mail, at the owner's terminal.

The functions and the answers are those of `mbx.daemon.methods.mailbox`; there is no lease.
"""

from typing import Final

from mbx.daemon.methods import mailbox
from mbx.daemon.methods.table import owner_method

METHODS: Final = (
    owner_method(
        "owner.inbox",
        "As `mail.inbox`, for the mailbox of the owner.",
        mailbox.inbox_request,
        mailbox.inbox,
        writes=False,
        brief=True,
    ),
    owner_method(
        "owner.read",
        "As `mail.read`, for the mailbox of the owner.",
        mailbox.read_request,
        mailbox.read,
        writes=True,
        when_full=mailbox.peek,
        keyed=False,
    ),
    owner_method(
        "owner.ack",
        "As `mail.ack`, for the mailbox of the owner.",
        mailbox.ack_request,
        mailbox.ack,
        writes=True,
    ),
)
"""What this module adds to the table of methods."""
