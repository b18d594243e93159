"""The daemon of a day from outside: asked, killed, and started again as after a reboot.

Commands start it on demand, as always. Only after the reboot of a day it is started from here, in
a process in which the kernel's boot id is replaced by another one.
"""

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, Final

from scripts.dayseats import Ground
from scripts.terminals import TIMEOUT_S, await_end

_OTHER_BOOT: Final = """
import sys
import mbx.daemon.app
for module in list(sys.modules.values()):
    if module.__name__.startswith("mbx.daemon") and hasattr(module, "boot_id"):
        module.boot_id = lambda: sys.argv[1]
from mbx.daemon.__main__ import main
sys.exit(main([]))
"""


class DayDaemon:
    """Whichever daemon serves the home of a day now."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self._mbx = str(Path(sys.executable).with_name("mbx"))
        self._started: subprocess.Popen[bytes] | None = None

    def ask(self, *words: str) -> Any:
        """The JSON answer of a command that needs no lease. Raises CalledProcessError."""
        return json.loads(self.say(*words, "--json"))

    def say(self, *words: str) -> str:
        """What a command that needs no lease prints."""
        done = subprocess.run(
            [self._mbx, *words],
            env=self.ground.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=TIMEOUT_S,
        )
        return done.stdout

    def pid(self) -> int:
        """The process that serves now."""
        pid: int = self.ask("daemon", "status")["pid"]
        return pid

    def kill(self, pid: int) -> None:
        """`kill -9`, and wait until it has ended."""
        pidfd = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            await_end(pidfd)
        finally:
            os.close(pidfd)

    def start_after_boot(self) -> str:
        """Start it in a process whose boot id is new; that id."""
        boot_id = str(uuid.uuid4())
        self._started = subprocess.Popen(
            [sys.executable, "-I", "-c", _OTHER_BOOT, boot_id],
            env=self.ground.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )
        assert self._started.stdout is not None
        said = json.loads(self._started.stdout.readline() or b"{}")
        if said.get("ready") is not True:
            raise OSError(f"the daemon does not start after the reboot: {said}")
        return boot_id

    def stop(self) -> None:
        """Leave nothing running. Raises CalledProcessError when it does not stop."""
        self.say("daemon", "stop")
        if self._started is not None:
            self._started.communicate(timeout=TIMEOUT_S)
            self._started = None
