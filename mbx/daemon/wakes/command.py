"""A client's or the desktop's own command, run for one wake: alone, silent, and ended in time."""

import asyncio
import os
import pwd
import signal
from collections.abc import Mapping
from contextlib import suppress

from mbx.core.limits import WAKE_COMMAND_MS


async def run(argv: tuple[str, ...], environ: Mapping[str, str]) -> int | None:
    """Its exit status, negative for a signal; None: it did not end in time. Raises OSError."""
    started = await asyncio.create_subprocess_exec(
        *argv,
        env=environ,
        cwd="/",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(WAKE_COMMAND_MS / 1000):
            return await started.wait()
    except TimeoutError:
        return None
    finally:
        if started.returncode is None:  # its number is still its own
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            await started.wait()


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """What such a command needs, and nothing else of anybody's."""
    home = variables.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
    return {"PATH": os.defpath, "LANG": "C.UTF-8", "TERM": "dumb", **variables, "HOME": home}


def program(word: str, variables: Mapping[str, str]) -> str | None:
    """The path of a program by its word, as a process with these variables finds it."""
    folders = variables.get("PATH", os.defpath).split(":")
    paths = (os.path.join(folder, word) for folder in folders) if "/" not in word else (word,)
    return next((path for path in paths if os.path.isabs(path) and os.access(path, os.X_OK)), None)
