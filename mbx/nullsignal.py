"""What the null signal tells of a process number: kill(2) checks it and sends it to nobody."""

import os
from typing import Literal

Told = Literal["absent", "ours", "another-user"]
"""No process has the number; one does that we may signal; one does that we may not."""


def ask(pid: int) -> Told:
    """What has this number now, whether or not /proc shows it to us; a zombie has its own still."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "absent"
    except PermissionError:
        return "another-user"
    return "ours"


def exists(pid: int) -> bool:
    """Whether a process has this number now."""
    return ask(pid) != "absent"
