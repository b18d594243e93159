"""Which service manager a platform has, and what it has of ours."""

from collections.abc import Mapping
from typing import NamedTuple

from mbx.core.errors import MbxError
from mbx.paths import Paths
from mbx.service.job import Job, Manager, job_of
from mbx.service.launchd import Launchd
from mbx.service.seal import Whose, whose
from mbx.service.systemd import Systemd

_FILE_MAX_BYTES = 64 * 1024


class Found(NamedTuple):
    """The file of a job, as it is there: it was ours once at least."""

    manager: Manager
    job: Job
    path: str
    text: str
    whose: Whose

    @property
    def name(self) -> str:
        """What the manager calls it."""
        return self.manager.name(self.job)


def manager_of(platform: str, user_id: int) -> Manager:
    """By `sys.platform`: launchd on macOS, else systemd; whether it is there is another matter."""
    return Launchd(user_id) if platform == "darwin" else Systemd()


def found(paths: Paths, environ: Mapping[str, str], manager: Manager) -> Found | None:
    """What is installed for this home; None for nothing of ours."""
    try:
        job = job_of(paths, environ)
        path = manager.path(job, environ)
        with open(path, "rb") as file:
            text = file.read(_FILE_MAX_BYTES).decode("utf-8")
    except (MbxError, OSError, UnicodeDecodeError):
        return None
    owner = whose(text)
    return None if owner == "foreign" else Found(manager, job, path, text, owner)
