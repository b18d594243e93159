"""Fetch the clients at their pinned versions: ``python -m tests.clients.install FOLDER [NAME…]``.

Each client gets a folder of its own below FOLDER, and FOLDER/node a Node that is new enough for all
of them. No install scripts run; what is there already at the pinned versions is kept. One line a
step; what cannot be installed is said, and does not hold up the others.
"""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.clients.clients import CLIENTS
from tests.clients.inspector import INSPECTOR

_NODE: Final = "24.21.0"
"""Kimi Code and the Inspector need 22.19, whatever the system has."""

_INSTALL_S: Final = 600
_STAMP: Final = "installed"
_MACHINES: Final = {"x86_64": "x64", "aarch64": "arm64"}


def node_package() -> str:
    """The package that holds Node itself for this machine."""
    machine = _MACHINES.get(platform.machine(), platform.machine())
    return f"node-{platform.system().lower()}-{machine}@{_NODE}"


def parts() -> dict[str, tuple[str, ...]]:
    """What can be installed: name -> packages."""
    clients = {name: client.packages for name, client in CLIENTS.items()}
    return {"node": (node_package(),), **clients, "inspector": (INSPECTOR,)}


def install(folder: Path, name: str, packages: tuple[str, ...]) -> str:
    """Install one part, or keep it; what there is to say. Raises LookupError, OSError."""
    stamp = folder / name / _STAMP
    if stamp.exists() and stamp.read_text().split() == list(packages):
        return "kept"
    shutil.rmtree(folder / name, ignore_errors=True)
    (folder / name).mkdir(parents=True)
    steps = _with_pip(folder / name, packages) if name == "kimi-cli" else _with_npm(packages)
    for argv in steps:
        done = subprocess.run(
            argv,
            cwd=folder / name,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_INSTALL_S,
            check=False,
        )
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise LookupError(f"{argv[0]} failed: {said[-1] if said else done.returncode}")
    stamp.write_text("\n".join(packages) + "\n")
    return "installed"


def _with_npm(packages: tuple[str, ...]) -> list[list[str]]:
    if shutil.which("npm") is None:
        raise LookupError("npm is not installed")
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--save-exact"]
    return [["npm", "install", "--prefix", ".", *quiet, *packages]]


def _with_pip(folder: Path, packages: tuple[str, ...]) -> list[list[str]]:
    """It runs into a defect of 3.12, so it needs Python 3.13 or newer; PYTHON313 names one."""
    names = [os.environ.get("PYTHON313", ""), sys.executable, "python3.13", "python3.14"]
    program = next((name for name in names if name and _is_new_enough(name)), None)
    if program is None:
        raise LookupError("no Python 3.13 or newer (PYTHON313 may name one)")
    name, _, version = packages[0].partition("@")
    pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    return [[program, "-m", "venv", "."], [*pip, f"{name}=={version}"]]


def _is_new_enough(program: str) -> bool:
    code = "import sys; sys.exit(sys.version_info < (3, 13))"
    try:
        return (
            subprocess.run([program, "-c", code], capture_output=True, check=False).returncode == 0
        )
    except OSError:
        return False


def main(argv: list[str]) -> int:
    """Install what was asked for, or everything; 0 even where something could not be."""
    folder, wanted = Path(argv[0]).resolve(), argv[1:]
    known = parts()
    if unknown := [name for name in wanted if name not in known]:
        sys.stderr.write(f"unknown: {' '.join(unknown)}; there are: {' '.join(known)}\n")
        return 2
    for name, packages in known.items():
        if wanted and name not in ("node", *wanted):
            continue
        try:
            told = install(folder, name, packages)
        except (LookupError, OSError, subprocess.TimeoutExpired) as error:
            shutil.rmtree(folder / name, ignore_errors=True)
            told = f"SKIPPED: {error}"
        sys.stdout.write(f"== {name:10} {' '.join(packages)}: {told}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
