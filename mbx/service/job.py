"""What a service manager is to run, whatever it is called there."""

import hashlib
import os
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from mbx import __version__
from mbx.core.errors import MbxError
from mbx.launch import daemon_argv
from mbx.paths import Paths, home_of_user, printable

RESTART_S: Final = 2
"""Between the failure of a daemon and its next start by the service."""

STOP_S: Final = 10
"""What a daemon may take for its end, which takes `STOP_DEADLINE_MS`, before it is killed."""

FAILURES_MAX: Final = 5
"""So many failures within `FAILURES_S`, and it is started no more: a store that is damaged stays
so. The next command that needs it says what is wrong."""

FAILURES_S: Final = 300
"""See `FAILURES_MAX`."""

_HASH_CHARS: Final = 12


class Job(NamedTuple):
    """A daemon of one home: its command and its places. `name` is the same for one home always."""

    name: str
    command: tuple[str, ...]
    home: str
    run_dir: str
    version: str = __version__


class Started(NamedTuple):
    """What a file of ours starts: as it was read back. `program` is the Python."""

    program: str
    home: str


class Act(NamedTuple):
    """A command to the service manager; `may_fail`: it is no fault where it does."""

    argv: tuple[str, ...]
    may_fail: bool = False


class Manager(Protocol):
    """A service manager, as far as mbx asks anything of it; it only says what is to be run."""

    title: str
    program: str

    def name(self, job: Job) -> str:
        """What it calls the job."""

    def path(self, job: Job, environ: Mapping[str, str]) -> str:
        """Where it reads the file of the job. Raises MbxError without a home of the user."""

    def text(self, job: Job) -> str:
        """The file, sealed."""

    def read(self, text: str) -> Started | None:
        """What a file of ours starts; None where it cannot be told."""

    def probe(self) -> Act:
        """Whether the manager can be reached from here, and has read its files anew."""

    def pid(self, job: Job) -> Act:
        """Tells the process of the job."""

    def pid_in(self, told: str) -> int | None:
        """The process that the output of `pid` names."""

    def load(self, job: Job, path: str) -> tuple[Act, ...]:
        """After the file was written: it is known, and started with the session from now on."""

    def start(self, job: Job) -> tuple[Act, ...]:
        """Start it now, unless it runs."""

    def unload(self, job: Job) -> tuple[Act, ...]:
        """Before the file goes: stop it, and start it with no session any more."""

    def left(self, job: Job, path: str) -> tuple[str, ...]:
        """Links to the file that have to go with it."""

    def forget(self, job: Job) -> tuple[Act, ...]:
        """After the file has gone."""

    def beyond(self, user: str) -> str | None:
        """The command by which it runs without a login too; None where that is so, or cannot be."""


def job_of(paths: Paths, environ: Mapping[str, str]) -> Job:
    """The job for an installation.

    Raises MbxError `usage` for a path that no service manager can hold: it has to be UTF-8 without
    control characters (XML, and the values of systemd.exec(5)).
    """
    usual = Paths.from_environ({"HOME": home_of_user(environ)}).home()
    home, run_dir = paths.home(), paths.run_dir()
    command = tuple(daemon_argv("--foreground"))
    for text in (*command, home, run_dir):
        if printable(text) != text or any(char < " " or char == "\x7f" for char in text):
            raise MbxError(
                "usage",
                f"{printable(text)!r} is no plain text: service managers cannot hold it",
                "install mbx, and set MBX_HOME, below folders with plain names",
            )
    digest = hashlib.sha256(home.encode("utf-8")).hexdigest()[:_HASH_CHARS]
    return Job("mbx" if home == usual else f"mbx-{digest}", command, home, run_dir)


def is_program(path: str) -> bool:
    """Whether a file is there that can be started."""
    return os.path.isfile(path) and os.access(path, os.X_OK)
