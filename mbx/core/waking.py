"""Which copies of which messages wake an idle recipient, and by which words."""

import re

from mbx.core.message import WAKING_KINDS


def wakes(kind: str, body: str, name: str, *, needs_reply: bool, quiet: bool) -> bool:
    """Whether a copy for the mailbox `name` wakes whoever holds it.

    `quiet`: the copy came only by an address that reaches everybody, or its sender asked not to.
    """
    if quiet or kind == "status":
        return False
    return kind in WAKING_KINDS or needs_reply or _mentions(body, name)


def notice(waiting: int, name: str) -> str:
    """The words that wake the holder of the mailbox `name`: a count and a name, nothing else."""
    many = "1 message waits" if waiting == 1 else f"{waiting} messages wait"
    return f"mbx: {many} for {name}; call mbx_inbox"


def notice_words(text: str) -> str:
    """For a person: the count and the name of such words, and what is to be done."""
    return (
        f"{text.removeprefix('mbx: ').partition(';')[0]}; its agent hears of it at your next prompt"
    )


def _mentions(body: str, name: str) -> bool:
    """``@name`` as a word of its own: not in an address, not the beginning of a longer name."""
    if f"@{name}" not in body:
        return False
    pattern = rf"(?<![A-Za-z0-9_@.-])@{re.escape(name)}(?![a-z0-9-]|@)"
    return re.search(pattern, body) is not None
