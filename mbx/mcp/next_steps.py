"""The next step of an error, in the words of tools: an agent calls tools, people type commands.

The daemon speaks of commands, since it speaks to everybody. What a tool does as well is named as
the tool; what only a command or a human can do stays as it is.
"""

import re
from typing import Final

_NAME: Final = r"(?P<name>[a-z0-9-]+|NAME)"

_PHRASES: Final = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (rf"mbx identity claim {_NAME}", r'mbx_identity with action "claim", name "\g<name>"'),
        (
            rf"mbx identity register {_NAME} --role ROLE",
            r'mbx_identity with action "register", name "\g<name>", role "ROLE"',
        ),
        (r"mbx identity list --all", 'mbx_identity with action "list", all true'),
        (r"mbx identity (?:list|show [a-z0-9-]+)", 'mbx_identity with action "list"'),
        (r"mbx identity (claim|register|release)", r'mbx_identity with action "\1"'),
        (r"mbx inbox --all(?! --owner)", "mbx_inbox with all true"),
        (r"with --ref\b", "with refs"),
        (r"mbx send --to owner", 'mbx_send with to "owner"'),
        (r"mbx reply (\S+) without --final", r'mbx_reply with id "\1", without final'),
        (
            r"mbx (whoami|inbox|read|send|reply|ack|thread|search|sent|agents)\b(?! --owner)",
            r"mbx_\1",
        ),
    )
)


def for_tools(step: str) -> str:
    """The same step, with tools in the place of the commands that they stand for."""
    for pattern, words in _PHRASES:
        step = pattern.sub(words, step)
    return step
