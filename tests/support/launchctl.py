"""Stands for macOS's `launchctl`, as far as a user's agents go; run as a program.

It keeps to launchctl(1) and launchd.plist(5): what is loaded is loaded once, a job starts when it
is loaded (`RunAtLoad`), runs once, in the environment that its list says, and is forgotten with its
process. What it does not know it refuses.
"""

import os
import plistlib
import select
import signal
import subprocess
import sys
from pathlib import Path

LOADED = Path(__file__).with_name("loaded")
"""A folder of what is loaded: label -> its list, and beside it the process."""


def main(words: list[str]) -> int:
    """One command; its exit status."""
    LOADED.mkdir(exist_ok=True)
    match words:
        case ["print", domain]:
            return 0 if domain == f"gui/{os.getuid()}" else 113
        case ["enable", target]:
            return 0 if target.startswith(f"gui/{os.getuid()}/") else 113
        case ["bootstrap", domain, path] if domain == f"gui/{os.getuid()}":
            return load(Path(path))
        case ["kickstart", target]:
            return start(target.rpartition("/")[2])
        case ["bootout", target]:
            return unload(target.rpartition("/")[2])
        case ["list", label]:
            return show(label)
    return 64


def load(path: Path) -> int:
    told = plistlib.loads(path.read_bytes())
    if path.name != f"{told['Label']}.plist":
        return 125
    if (LOADED / told["Label"]).exists():
        return 5
    (LOADED / told["Label"]).write_bytes(path.read_bytes())
    return start(told["Label"]) if told["RunAtLoad"] else 0


def start(label: str) -> int:
    if not (LOADED / label).exists():
        return 113
    if running(label) is not None:
        return 0
    told = plistlib.loads((LOADED / label).read_bytes())
    usual = {"PATH": "/usr/bin:/bin", "HOME": os.environ["HOME"]}
    started = subprocess.Popen(
        told["ProgramArguments"],
        env=usual | told["EnvironmentVariables"],
        cwd=told["WorkingDirectory"],
        umask=told["Umask"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    (LOADED / f"{label}.pid").write_text(str(started.pid))
    return 0


def unload(label: str) -> int:
    if not (LOADED / label).exists():
        return 3
    pid = running(label)
    if pid is not None:
        end = os.pidfd_open(pid)
        signal.pidfd_send_signal(end, signal.SIGTERM)
        select.select([end], [], [])  # no child of ours: it is waited for by its descriptor
    (LOADED / label).unlink()
    return 0


def show(label: str) -> int:
    if not (LOADED / label).exists():
        return 113
    pid = running(label)
    line = f'\t"PID" = {pid};\n' if pid is not None else ""
    sys.stdout.write(f'{{\n\t"Label" = "{label}";\n{line}}};\n')
    return 0


def running(label: str) -> int | None:
    """The process of a job, if it is there and no zombie."""
    try:
        pid = int((LOADED / f"{label}.pid").read_text())
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else pid


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
