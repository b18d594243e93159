"""Other clocks, boots and limits for a daemon, made from outside or in the started process.

Nothing in mbx can be switched: limits and the monotonic clock are replaced in the started process,
the wall clock is faketime's, boots and namespaces are the kernel's.
"""

import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

DAY_S: Final = 86_400
_MAIN: Final = "from mbx.daemon.__main__ import main; sys.exit(main(sys.argv[1:]))"
_FAKETIME: Final = "libfaketime.so.1"


def with_limits(**limits: int) -> tuple[str, ...]:
    """How Python starts a daemon with other limits, which keeps house once a second."""
    replaced = "; ".join(f"limits.{name} = {value}" for name, value in limits.items())
    code = (
        f"import sys; from mbx.core import limits; {replaced}; "
        "from mbx.daemon.workers import timers; timers._ROUND_POLLS = 1; "
    )
    return ("-I", "-c", code + _MAIN)


def without_module(name: str) -> tuple[str, ...]:
    """How Python starts a daemon that cannot import a module."""
    return ("-I", "-c", f"import sys; sys.modules[{name!r}] = None; {_MAIN}")


def with_steady_clock_of(path: Path) -> tuple[str, ...]:
    """How Python starts a daemon whose monotonic clock is ahead by the ms that a file says."""
    code = (
        "import sys, time; from mbx.daemon.world import SystemWorld; "
        f"ahead = lambda: int(open({str(path)!r}).read()); "
        "SystemWorld.monotonic_ms = lambda self: time.monotonic_ns() // 1_000_000 + ahead(); "
    )
    return ("-I", "-c", code + _MAIN)


def set_ahead(path: Path, ms: int) -> None:
    """Have such a clock ahead by so much, under a running daemon: the file is whole at any time."""
    aside = path.with_suffix(".new")
    aside.write_text(str(ms))
    aside.rename(path)


class WallClock:
    """The wall clock of the processes that get `environment`: ours, moved by `step` seconds."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.ahead_s = 0
        self.step(0)

    @staticmethod
    def is_available() -> bool:
        """Whether faketime is installed, and its library found."""
        return _library() is not None

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to have this clock."""
        return {
            "LD_PRELOAD": str(_library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # Else each timed wait for another thread takes many times as long.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            "NO_FAKE_STAT": "1",
        }

    def step(self, seconds: int) -> None:
        """Set the clock so far forward (or back) from where it is, under running processes."""
        self.ahead_s += seconds
        aside = self._file.with_suffix(".new")
        aside.write_text(f"{self.ahead_s:+d}\n")
        aside.rename(self._file)

    def now_ms(self) -> int:
        """What it shows, ms UTC."""
        return time.time_ns() // 1_000_000 + self.ahead_s * 1_000


def _library() -> Path | None:
    program = shutil.which("faketime")
    if program is None:
        return None
    found = sorted(Path(program).parent.parent.glob(f"lib/**/faketime/{_FAKETIME}"))
    return found[0] if found else None


def unshared(*options: str) -> tuple[str, ...]:
    """The prefix that runs a program in namespaces of its own; it ends with it."""
    return ("unshare", *options, "--fork", "--kill-child", "--")


def can_unshare(*options: str) -> bool:
    """Whether such namespaces can be made here."""
    if shutil.which("unshare") is None:
        return False
    asked = [*unshared(*options), "true"]
    return subprocess.run(asked, check=False, capture_output=True, timeout=20).returncode == 0


def with_boot_id(file: Path) -> tuple[str, ...]:
    """The prefix that runs a program for which the kernel's boot id is what a file says."""
    bind = f"mount --bind {file} /proc/sys/kernel/random/boot_id"
    return ("unshare", "--mount", "--", "sh", "-c", f'{bind} && exec "$0" "$@"')
