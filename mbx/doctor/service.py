"""The check of the service that starts the daemon: whether it still starts this one."""

from collections.abc import Callable
from typing import Final, NamedTuple

from mbx.doctor.verdict import Check
from mbx.paths import quoted
from mbx.service.platforms import Found
from mbx.service.seal import version_of

NAME: Final = "service"
_AGAIN: Final = "mbx daemon install"


class Around(NamedTuple):
    """What lies around the file: programs, links of the manager's, the process that runs.

    `groups`: the control groups of the daemon that runs; None where none does or nobody can say.
    """

    is_program: Callable[[str], bool]
    is_there: Callable[[str], bool]
    groups: str | None


def checks(found: Found | None, around: Around) -> list[Check]:
    """Whether the service does what the installed one would; nothing where there is none."""
    if found is None:
        return []
    name = found.name
    if found.whose == "changed":
        detail = f"{found.path} was changed since mbx wrote it, so that mbx leaves it alone"
        return [
            Check(
                NAME,
                "warn",
                detail,
                f"mv {quoted(found.path)} {quoted(found.path)}.aside, then {_AGAIN}",
            )
        ]
    started = found.manager.read(found.text)
    if started is not None and not around.is_program(started.program):
        detail = f"{name} starts {started.program}, which is gone"
        return [Check(NAME, "fail", detail, _AGAIN)]
    if started is not None and started.home != found.job.home:
        detail = f"{name} starts the daemon of {started.home}, not of {found.job.home}"
        return [Check(NAME, "warn", detail, _AGAIN)]
    program = found.job.command[0]
    if started is not None and started.program != program:
        detail = f"{name} starts {started.program}, and this is the mbx of {program}"
        return [Check(NAME, "warn", detail, _AGAIN)]
    written = version_of(found.text) or "?"
    if found.text != found.manager.text(found.job._replace(version=written)):
        detail = f"{name} is not as this version writes it (written by mbx {written})"
        return [Check(NAME, "warn", detail, _AGAIN)]
    return _in_use(found, around)


def _in_use(found: Found, around: Around) -> list[Check]:
    name = found.name
    links = found.manager.left(found.job, found.path)
    if not all(map(around.is_there, links)):
        detail = f"{name} is written, and does not start with your session"
        return [Check(NAME, "warn", detail, _AGAIN)]
    if around.groups is not None and f"/{name}" not in around.groups:
        detail = f"{name} starts with your session; the daemon of now was started by a command"
        return [Check(NAME, "info", detail, "mbx daemon restart")]
    return [Check(NAME, "ok", f"{name} starts the daemon with your session")]
