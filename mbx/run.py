"""`mbx run`: hold an identity while a command runs (DESIGN 4.2).

The wrapper itself is the holder: the daemon watches this process, so the identity is free again
when it ends, however it ends. Between claim and release it only passes signals on and waits.
"""

import os
import signal
from collections.abc import Callable, Mapping
from typing import Final

from mbx.client import Client
from mbx.core.errors import MbxError
from mbx.wire import WISHES, JsonObject

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
SIGNAL_BASE: Final = 128
"""Exit statuses as POSIX shells give them: 127, 126, and 128 + the number of the signal."""

PASSED_ON: Final = frozenset(
    {
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGALRM,
    }
)
"""Signals that reach the command too. Stops and window changes reach it from the terminal, which
serves the whole foreground group, and keep their usual effect on the wrapper."""

_SI_KERNEL: Final = 0x80
"""`si_code` of a signal that the kernel sent (sigaction(2)): the terminal's, to the whole group."""

_PYTHON_IGNORES: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""What Python ignores at its start and a command expects to find as it was."""

OF_THIS_CONVERSATION: Final = ("MBX_CLI", "MBX_SESSION", *WISHES.values())
"""Variables that would let the command act for another conversation or claim another identity."""


def run_as(
    argv: list[str],
    *,
    name: str | None,
    role: str | None,
    environ: Mapping[str, str],
    client: Client,
    new_key: Callable[[], str],
    warn: Callable[[str], None],
) -> int:
    """Hold an identity for `argv`; the exit status of the command.

    `name` and `role` are what the user gave; MBX_AGENT and MBX_ROLE are the launch-time pair in
    their place. `client` says hello as the holder. Raises MbxError: usage, or the claim's refusal.
    """
    claim = _claim_params(argv, name, role, environ)
    client.call("identity.claim", claim | {"key": new_key()}, changes=True)
    try:
        return _run(argv, environ, warn)
    finally:
        _release(client, new_key(), warn)


def _claim_params(
    argv: list[str], name: str | None, role: str | None, environ: Mapping[str, str]
) -> JsonObject:
    if name is None:
        name = environ.get("MBX_AGENT") or None
        role = role or environ.get("MBX_ROLE") or None
    if name is None:
        step = "mbx run --as NAME -- CMD"
        raise MbxError("usage", "no identity was named: neither --as nor MBX_AGENT is set", step)
    if not argv or not argv[0]:
        raise MbxError("usage", "no command was given", f"mbx run --as {name} -- CMD")
    return {"name": name} if role is None else {"name": name, "role": role}


def _run(argv: list[str], environ: Mapping[str, str], warn: Callable[[str], None]) -> int:
    """Start the command, pass signals on, wait for its end."""
    # Where SIGCHLD is ignored no exit status is kept; blocked from before the start, no signal is
    # lost or ends the wrapper before its command.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    waited_for = PASSED_ON | {signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    kept = {key: value for key, value in environ.items() if key not in OF_THIS_CONVERSATION}
    try:
        pid = os.posix_spawnp(argv[0], argv, kept, setsigmask=(), setsigdef=_PYTHON_IGNORES)
    except OSError as error:
        return _not_run(argv[0], error, warn)
    return _wait(pid, waited_for)


def _not_run(program: str, error: OSError, warn: Callable[[str], None]) -> int:
    from mbx.core.text import visible

    warn(f"error: cannot run {visible(program)}: {error.strerror}")
    return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE


def _wait(pid: int, signals: frozenset[signal.Signals]) -> int:
    while True:
        came = signal.sigwaitinfo(signals)
        if came.si_signo != signal.SIGCHLD:
            if came.si_code != _SI_KERNEL:
                _pass_on(pid, came.si_signo)
            continue
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else SIGNAL_BASE - code


def _pass_on(pid: int, number: int) -> None:
    """Signal the command; it is not reaped yet, so its number is still its own."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):  # gone, or it became another user's
        pass


def _release(client: Client, key: str, warn: Callable[[str], None]) -> None:
    """Give the identity back; whoever has it now is told by the daemon, not decided here."""
    try:
        client.call("identity.release", {"key": key}, changes=True)
    except MbxError as error:
        if error.code != "no-lease":  # the command gave it back itself
            warn(f"warning: the identity was not given back: {error.message}")
