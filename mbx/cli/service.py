"""What commands do with the service that starts the daemon, where one is installed."""

import os
import sys
from collections.abc import Callable

from mbx.cli.session import Session
from mbx.client import PAUSE_LAST_S
from mbx.launch import READY_S
from mbx.service import installer
from mbx.service.installer import Said
from mbx.service.job import Job, Manager
from mbx.service.platforms import Found, found, manager_of

Running = Callable[[], int | None]
"""The process of the daemon that answers; None when none does."""


def manager_here() -> Manager:
    """The manager of this platform."""
    return manager_of(sys.platform, os.getuid())


def installed(session: Session) -> Found | None:
    """The service of this home; None where there is none."""
    return found(session.paths, session.environ, manager_here())


def pid_under(session: Session, manager: Manager, job: Job) -> int | None:
    """The process of the service; None where it has none."""
    said = installer.run(manager.pid(job), session.environ)
    return manager.pid_in(said.told) if said.is_done else None


def bring_up(session: Session, manager: Manager, job: Job, running: Running) -> Said:
    """Have the service start the daemon, and wait until it answers or the service gave up."""
    said = installer.run_all(manager.start(job), session.environ)
    if not said.is_done:
        return said
    deadline = session.clock.monotonic() + READY_S
    while running() is None:
        if session.clock.monotonic() >= deadline:
            return Said(False, "", f"no daemon answers after {READY_S:g} s")
        if pid_under(session, manager, job) is None and running() is None:
            return Said(False, "", "it ended before it answered")
        session.clock.sleep(PAUSE_LAST_S)
    return said
