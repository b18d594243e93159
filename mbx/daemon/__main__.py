"""`python -m mbx.daemon [--foreground]`: one daemon for each home folder.

The lock decides, not the presence or the answer of a socket: whoever does not get it says so and
ends. The first line on standard output is JSON: ``{"ready": true}``, ``{"ready": false, "reason":
"running"}`` or ``{"error": {code, message, next}}``; after it the standard streams are closed to
the world.
"""

import errno
import fcntl
import json
import os
import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from mbx.core.errors import MbxError
from mbx.paths import Paths, link_step, link_words, make_folder
from mbx.seclusion import close_process

_FAILED = 1

DESCRIPTORS_WANTED: Final = 4_096
"""Each session takes a handful, and each link; some systems and sandboxes give a process 256."""


def main(argv: Sequence[str]) -> int:
    """Run the daemon; its exit status."""
    foreground = "--foreground" in argv
    os.umask(0o077)
    close_process()
    _allow_descriptors()
    try:
        paths = Paths.from_environ(os.environ)
        make_folder(paths.home())
        lock = _lock(paths.lock_path())
        if lock is None:
            _say({"ready": False, "reason": "running", "home": paths.home()})
            return 0
        make_folder(paths.run_dir())
        run_lock = _lock_folder(paths.run_dir())
        try:
            return _serve(paths, foreground)
        finally:
            os.close(run_lock)
    except MbxError as error:
        _say({"error": error.as_object()})
        return error.exit_status
    except OSError as error:
        refusal = _refusal(error)
        _say({"error": refusal.as_object()})
        return refusal.exit_status


def _allow_descriptors() -> None:
    """As many as may be needed and the system lets us have: the starter's own limit is not ours."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    most = DESCRIPTORS_WANTED if hard == unlimited else min(hard, DESCRIPTORS_WANTED)
    if soft != unlimited and soft < most:
        with suppress(OSError, ValueError):  # then it serves as many as it can
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _refusal(error: OSError) -> MbxError:
    """What the system refused at the start; a link in the place of a file is named as such."""
    path = error.filename if isinstance(error.filename, str) else None
    link = link_words(path) if path and error.errno == errno.ELOOP else None
    if path and link:
        message, step = f"{path} {link}", link_step(path)
    else:
        message = f"{path or 'start'}: {error.strerror}"
        step = "see to the disk and to the rights on the home folder, then start again"
    return MbxError("daemon-unreachable", message, step, errno=error.errno, path=path)


def _lock(path: str) -> int | None:
    """The descriptor that holds the daemon lock until the process ends; None: another has it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _lock_folder(path: str) -> int:
    """The descriptor that holds the run folder: two homes that share one would share a socket.

    Raises MbxError while a daemon of another home holds it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise MbxError(
            "daemon-unreachable",
            f"the run folder {path} is that of a running daemon of another MBX_HOME",
            "unset MBX_RUN, or set it to a folder of its own",
            path=path,
        ) from None
    return descriptor


def _serve(paths: Paths, foreground: bool) -> int:
    # Imported only by the one that serves: starters that lose the race end in a few milliseconds.
    import asyncio

    import uvloop

    from mbx.daemon import app
    from mbx.daemon.journal import Journal, level_of, whence
    from mbx.daemon.world import SystemWorld
    from mbx.store.database import StoreFailure

    world = SystemWorld()
    journal = Journal(paths.log_path(), world.now_ms, level_of(os.environ))
    announce = _announcer(paths, foreground)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(app.run(paths, world, journal, announce))
    except StoreFailure as failure:
        journal.write("ended", why=failure)
        refusal = MbxError(
            "store-damaged",
            f"the store failed: {failure}",
            f"see {paths.log_path()}; then start again",
            path=paths.store_path(),
        )
        _say({"error": refusal.as_object()})
        return _FAILED
    except MbxError:
        raise
    except Exception as error:
        journal.write("ended by a defect", whence=whence(error))
        raise
    finally:
        journal.close()
    return 0


def _announcer(paths: Paths, foreground: bool) -> Callable[[], None]:
    def announce() -> None:
        _say({"ready": True, "pid": os.getpid(), "socket": paths.socket_path()})
        if not foreground:
            nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            for stream in (0, 1, 2):
                os.dup2(nowhere, stream)
            os.close(nowhere)

    return announce


def _say(line: dict[str, object]) -> None:
    try:
        os.write(1, json.dumps(line).encode() + b"\n")
    except OSError:
        return  # the starter is gone; the daemon serves others


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
