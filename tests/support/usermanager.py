"""A real systemd for a user, alone with its files: it manages what a test writes below a folder.

It needs root: it stands in a mount namespace with a `/run` of its own (systemd runs only where the
machine seems to be booted with it), and below a control group of its own.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.patience import looks
from tests.support.shells import TIMEOUT_S

_PROGRAMS: Final = ("/lib/systemd/systemd", "/usr/lib/systemd/systemd")
_GROUPS: Final = (Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup"))
_RUN: Final = "/run/user/0"
_BEGIN: Final = f"""
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system {_RUN}
chmod 700 {_RUN}
echo $$ >"$1/cgroup.procs"
exec env -i PATH="$PATH" HOME="$2" XDG_RUNTIME_DIR={_RUN} unshare --cgroup "$3" --user
"""


def missing() -> str | None:
    """Why there can be none here; None: there can, as far as is known before."""
    if os.geteuid() != 0:
        return "needs the rights of root"
    for program in ("systemctl", "systemd-analyze", "unshare", "nsenter"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return None if any(map(os.path.exists, _PROGRAMS)) else "systemd is not installed"


class UserManager:
    """A running one. `home` is the home folder of its user."""

    def __init__(self, pid: int, home: Path) -> None:
        self.pid = pid
        self.home = home

    def run(self, *argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """A command where the manager can be reached, with little in its environment."""
        inside = ("nsenter", "-t", str(self.pid), "-m", "--wd=/")
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return subprocess.run(
            [*inside, *argv],
            env={"PATH": path, "HOME": str(self.home), **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=3 * TIMEOUT_S,
        )

    def control(self, *words: str) -> str:
        """What `systemctl --user` says, whatever its status."""
        return self.run("systemctl", "--user", *words, XDG_RUNTIME_DIR=_RUN).stdout.strip()

    def main_pid(self, unit: str) -> int:
        """The process of a unit; 0 for none."""
        return int(self.control("show", "--property=MainPID", "--value", unit) or 0)


@contextmanager
def user_manager(home: Path) -> Iterator[UserManager | None]:
    """One for the time of a test; None where it does not start here."""
    program = next(filter(os.path.exists, _PROGRAMS))
    parent = next((one for one in _GROUPS if (one / "cgroup.procs").exists()), _GROUPS[-1])
    group = parent / f"mbx-test-{os.getpid()}-{home.name}"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _BEGIN, "sh"]
    started = subprocess.Popen(
        [*command, str(group), str(home), program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    manager = UserManager(started.pid, home)
    try:
        yield manager if _is_up(manager, started) else None
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait(TIMEOUT_S)
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def _is_up(manager: UserManager, started: subprocess.Popen[bytes]) -> bool:
    for _ in looks():
        if started.poll() is not None:
            return False
        if manager.control("is-system-running") in ("running", "degraded"):
            return True
    return False
