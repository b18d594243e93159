"""The agent of macOS's launchd, by launchd.plist(5) and launchctl(1).

A property list holds any text: only XML's own characters are escaped, and nothing in a word stands
for anything else.
"""

import os
import plistlib
import re
from collections.abc import Mapping
from typing import Final
from xml.parsers.expat import ExpatError

from mbx.paths import home_of_user
from mbx.service.job import RESTART_S, STOP_S, Act, Job, Started
from mbx.service.seal import PLACE, WRITTEN_BY, sealed

_CONTROL: Final = "launchctl"
_UMASK: Final = 0o077
_THROTTLE_S: Final = max(RESTART_S, 10)
_HEAD: Final = "<plist "
_PID: Final = re.compile(r'"PID"\s*=\s*([0-9]{1,10});')


class Launchd:
    """The manager of a user's session on macOS. `user_id` is the user's."""

    title = "launchd"
    program = _CONTROL

    def __init__(self, user_id: int) -> None:
        self._domain = f"gui/{user_id}"

    def name(self, job: Job) -> str:
        """The label."""
        return f"{job.name}.daemon"

    def path(self, job: Job, environ: Mapping[str, str]) -> str:
        """In the folder of agents that the user writes."""
        folder = os.path.join(home_of_user(environ), "Library", "LaunchAgents")
        return os.path.join(folder, f"{self.name(job)}.plist")

    def text(self, job: Job) -> str:
        """The property list."""
        told = {
            "Label": self.name(job),
            "ProgramArguments": list(job.command),
            "EnvironmentVariables": {"MBX_HOME": job.home, "MBX_RUN": job.run_dir},
            "WorkingDirectory": "/",
            "Umask": _UMASK,
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": _THROTTLE_S,
            "ExitTimeOut": STOP_S,
        }
        text = plistlib.dumps(told, sort_keys=False).decode("utf-8")
        note = f"<!-- mbx: {WRITTEN_BY} (mbx {job.version}). sha256 {PLACE} -->\n"
        head, mark, rest = text.partition(_HEAD)
        return sealed(head + note + mark + rest)

    def read(self, text: str) -> Started | None:
        """By the keys that `text` writes."""
        try:
            told = plistlib.loads(text.encode("utf-8"), fmt=plistlib.FMT_XML)
            return Started(told["ProgramArguments"][0], told["EnvironmentVariables"]["MBX_HOME"])
        except (ValueError, KeyError, IndexError, TypeError, ExpatError):
            return None

    def probe(self) -> Act:
        """Whether there is a session to which agents belong; none over a bare ssh."""
        return Act((_CONTROL, "print", self._domain))

    def pid(self, job: Job) -> Act:
        """What it says of the label, in the old form of property lists."""
        return Act((_CONTROL, "list", self.name(job)), True)

    def pid_in(self, told: str) -> int | None:
        """The line of the process; there is none while none runs."""
        found = _PID.search(told)
        return int(found[1]) if found else None

    def load(self, job: Job, path: str) -> tuple[Act, ...]:
        """An older file of the label has to go first."""
        target = f"{self._domain}/{self.name(job)}"
        return (
            Act((_CONTROL, "bootout", target), True),
            Act((_CONTROL, "enable", target)),
            Act((_CONTROL, "bootstrap", self._domain, path)),
        )

    def start(self, job: Job) -> tuple[Act, ...]:
        """Nothing happens where it runs."""
        return (Act((_CONTROL, "kickstart", f"{self._domain}/{self.name(job)}")),)

    def unload(self, job: Job) -> tuple[Act, ...]:
        """Stopped and forgotten; it may not be loaded."""
        return (Act((_CONTROL, "bootout", f"{self._domain}/{self.name(job)}"), True),)

    def left(self, job: Job, path: str) -> tuple[str, ...]:
        """Nothing."""
        return ()

    def forget(self, job: Job) -> tuple[Act, ...]:
        """Nothing is left."""
        return ()

    def beyond(self, user: str) -> str | None:
        """An agent lives with the user's session."""
        return None
