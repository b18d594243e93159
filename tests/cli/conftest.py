"""The real command and a real daemon, from shells that are nobody's children."""

import contextlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.shells import Finished, Shell, bare_environment

MBX = Path(sys.executable).parent / "mbx"


class Desk:
    """One installation: a home, and shells in which commands run as people and agents run them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        path = f"{MBX.parent}{os.pathsep}{os.environ['PATH']}"
        self.env = bare_environment(MBX_HOME=str(home), PATH=path, HOME=str(home.parent))
        self._shells: dict[str, Shell] = {}

    def shell(self, name: str) -> Shell:
        """The shell that holds the identity of that name; made when first asked for."""
        if name not in self._shells:
            self._shells[name] = Shell(env=self.env, cwd=self.home.parent)
            done = self._shells[name].run(f"mbx identity register {name} --role tester")
            assert done.status == 0, done.err
        return self._shells[name]

    def bare(self) -> Shell:
        """A shell that holds nothing."""
        if "" not in self._shells:
            self._shells[""] = Shell(env=self.env, cwd=self.home.parent)
        return self._shells[""]

    def run(self, *arguments: str, timeout_s: float = 15) -> subprocess.CompletedProcess[str]:
        """A command from here, for what needs no session."""
        return subprocess.run(
            [str(MBX), *arguments],
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )

    def status(self) -> dict[str, Any]:
        """What `daemon status` says."""
        said: dict[str, Any] = json.loads(self.run("daemon", "status", "--json").stdout)
        return said

    def close(self) -> None:
        """End the shells and the daemon."""
        for shell in self._shells.values():
            shell.close()
        self.run("daemon", "stop")


def contents(folder: Path) -> Iterator[tuple[Path, os.stat_result, bytes]]:
    """Path, status and bytes (of a plain file) of all that lies below a folder.

    A daemon that runs replaces files: what is gone before it was looked at is left out.
    """
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            found = path.lstat()
            yield path, found, path.read_bytes() if stat.S_ISREG(found.st_mode) else b""


def document(done: Finished) -> dict[str, Any]:
    """The one JSON document that a command printed on one line."""
    assert done.out.endswith("\n")
    assert done.out.count("\n") == 1
    assert done.out.isascii()
    assert done.err == ""
    found: dict[str, Any] = json.loads(done.out)
    return found


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """One installation for a module."""
    desk = Desk(tmp_path_factory.mktemp("desk") / "home")
    yield desk
    desk.close()


@pytest.fixture
def own_desk(tmp_path: Path) -> Iterator[Desk]:
    """An installation for one test, which may break it."""
    desk = Desk(tmp_path / "home")
    yield desk
    desk.close()
