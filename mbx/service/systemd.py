"""The unit of the user's systemd, by systemd.unit(5), systemd.service(5) and systemd.exec(5).

A word stands in double quotes, where a backslash and a quote are escaped by a backslash, and a
percent sign, which would begin a specifier, by another one. In the arguments of ``ExecStart=``, and
only there, a dollar sign is doubled too. The path of the program itself may have no backslash,
quote or dollar sign: such a one is started by a shell, to which it is an argument.
"""

import os
from collections.abc import Mapping
from typing import Final

from mbx.paths import home_of_user
from mbx.service.job import FAILURES_MAX, FAILURES_S, RESTART_S, STOP_S, Act, Job, Started
from mbx.service.seal import PLACE, WRITTEN_BY, sealed

_CONTROL: Final = ("systemctl", "--user")
_TARGET: Final = "default.target"
_LINGER: Final = "/var/lib/systemd/linger"
_BY_SHELL: Final = ("/bin/sh", "-c", 'exec "$0" "$@"')
_NOT_IN_PROGRAM: Final = frozenset("\\\"'$")

_UNIT: Final = """\
# sha256 {place}
# mbx: the daemon of {home}, {written_by} (mbx {version}).
# Do not change it: systemctl --user edit {name} makes a file of your own beside it.

[Unit]
Description=mbx, the mailbox of AI coding agents
Documentation=man:mbx(1)
StartLimitIntervalSec={failures_s}
StartLimitBurst={failures}

[Service]
Type=exec
ExecStart={command}
Environment={environ}
WorkingDirectory=/
UMask=0077
Restart=on-failure
RestartSec={restart_s}
KillMode=mixed
TimeoutStopSec={stop_s}

[Install]
WantedBy={target}
"""


class Systemd:
    """The manager of a user's session on Linux."""

    title = "systemd"
    program = _CONTROL[0]

    def name(self, job: Job) -> str:
        """The unit."""
        return f"{job.name}.service"

    def path(self, job: Job, environ: Mapping[str, str]) -> str:
        """In the folder of units that the user writes."""
        asked = environ.get("XDG_CONFIG_HOME", "")
        folder = asked if os.path.isabs(asked) else os.path.join(home_of_user(environ), ".config")
        return os.path.join(folder, "systemd", "user", self.name(job))

    def text(self, job: Job) -> str:
        """The unit's file."""
        places = (f"MBX_HOME={job.home}", f"MBX_RUN={job.run_dir}")
        return sealed(
            _UNIT.format(
                home=job.home,
                written_by=WRITTEN_BY,
                version=job.version,
                name=self.name(job),
                place=PLACE,
                failures=FAILURES_MAX,
                failures_s=FAILURES_S,
                command=command_line(job.command),
                environ=" ".join(quoted(place) for place in places),
                restart_s=RESTART_S,
                stop_s=STOP_S,
                target=_TARGET,
            )
        )

    def read(self, text: str) -> Started | None:
        """By the lines that `text` writes."""
        lines = dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)
        command = [word.replace("$$", "$") for word in words(lines.get("ExecStart", ""))]
        is_by_shell = tuple(command[: len(_BY_SHELL)]) == _BY_SHELL
        program = command[len(_BY_SHELL) if is_by_shell else 0 :][:1]
        environ = dict(one.partition("=")[::2] for one in words(lines.get("Environment", "")))
        return (
            Started(program[0], environ["MBX_HOME"]) if program and "MBX_HOME" in environ else None
        )

    def probe(self) -> Act:
        """It reads the units anew."""
        return Act((*_CONTROL, "daemon-reload"))

    def pid(self, job: Job) -> Act:
        """The unit's main process."""
        return Act((*_CONTROL, "show", "--property=MainPID", "--value", self.name(job)), True)

    def pid_in(self, told: str) -> int | None:
        """A number; 0 for none."""
        word = told.strip()
        return (int(word) or None) if word.isascii() and word.isdigit() else None

    def load(self, job: Job, path: str) -> tuple[Act, ...]:
        """It was read by the probe."""
        return (Act((*_CONTROL, "enable", self.name(job))),)

    def start(self, job: Job) -> tuple[Act, ...]:
        """Also after as many failures as there may be."""
        name = self.name(job)
        return (Act((*_CONTROL, "reset-failed", name), True), Act((*_CONTROL, "start", name)))

    def unload(self, job: Job) -> tuple[Act, ...]:
        """Stopped, and wanted by nothing."""
        return (Act((*_CONTROL, "disable", "--now", self.name(job))),)

    def left(self, job: Job, path: str) -> tuple[str, ...]:
        """The link by which the session's target wants the unit."""
        return (os.path.join(os.path.dirname(path), f"{_TARGET}.wants", self.name(job)),)

    def forget(self, job: Job) -> tuple[Act, ...]:
        """The unit is known no more."""
        reset = Act((*_CONTROL, "reset-failed", self.name(job)), True)
        return (Act((*_CONTROL, "daemon-reload")), reset)

    def beyond(self, user: str) -> str | None:
        """Lingering: the user's manager starts with the machine (loginctl(1))."""
        is_set = not user or os.path.exists(os.path.join(_LINGER, user))
        return None if is_set else "loginctl enable-linger"


def quoted(word: str) -> str:
    """One word of a unit's line, outside of ``ExecStart=``."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"'


def command_line(command: tuple[str, ...]) -> str:
    """A command as ``ExecStart=`` takes it."""
    is_plain = not _NOT_IN_PROGRAM & set(command[0])
    program, *rest = command if is_plain else (*_BY_SHELL, *command)
    return " ".join([quoted(program), *(quoted(word).replace("$", "$$") for word in rest)])


def words(line: str) -> list[str]:
    """What `quoted` made one line of."""
    found: list[str] = []
    rest = line.strip()
    while rest.startswith('"'):
        word, end = "", 1
        while end < len(rest) and rest[end] != '"':
            end += rest[end] in "\\%"
            word += rest[end : end + 1]
            end += 1
        found.append(word)
        rest = rest[end + 1 :].lstrip()
    return found
