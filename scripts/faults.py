"""Planted faults: each is planted for real, named by `mbx doctor`, and mended.

`mbx doctor --json` is run as a user would run it. It must name the fault by its check within ten
seconds and change nothing. Then the command that it gives is run, or, where it asks for a backup,
the backup is put back; and doctor must be content with that check.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scripts.demostage import Stage
from scripts.planting import DAMAGED_PAGE, LATER_S, OTHER_VERSION, PLANTED, change_store, contents
from scripts.terminals import TIMEOUT_S, Terminal, bare_environment

BOUND_S: Final = 10.0
"""Whatever is broken, doctor has said so by then."""
AT_LEAST: Final = 12
_LEVELS: Final = ("ok", "info", "warn", "fail")
_WELL: Final = ("ok", "info")
_TEMPORARY: Final = "a small memory file system"


class UnplantableError(Exception):
    """This fault cannot be planted here; the argument says what is missing."""


@dataclass
class Place:
    """One installation for one fault, and a good one that serves as its backup."""

    work: Path
    home: Path
    backup: Path
    env: dict[str, str]
    is_serving: bool = False
    """A daemon runs here and answers."""

    def start_daemon(self) -> None:
        """As a user would."""
        self.run("mbx daemon start")
        self.is_serving = True

    def run(self, command: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a line of shell as a user would."""
        return subprocess.run(
            ["bash", "-c", command],
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=check,
            timeout=TIMEOUT_S,
        )

    def daemon_pid(self) -> int:
        """The daemon that serves this place."""
        pid: int = json.loads(self.run("mbx daemon status --json").stdout)["pid"]
        return pid

    def state(self) -> object:
        """What looking must not change.

        A daemon at work writes its log of writes when it likes: then the digest of its state says
        whether anything changed. One that stands still writes nothing.
        """
        files = contents(self.home)
        if not self.is_serving:
            return files
        del files[str(self.home / "store.db-wal")]
        asked = self.run("mbx daemon status --hash --json", check=False)
        return files, json.loads(asked.stdout).get("state_hash")


Mend = Callable[[], object] | None
"""How it is mended: None stands for the command that doctor gives."""
Plant = Callable[[Place], AbstractContextManager[Mend]]


@dataclass(frozen=True)
class Fault:
    """A fault: what it is for people, the check that must name it, its level, how it is planted."""

    title: str
    check: str
    level: str
    plant: Plant


# -- plants ---------------------------------------------------------------------------------------


def _without_daemon(fault: str, mend: Callable[[Place], object] | None = None) -> Plant:
    @contextlib.contextmanager
    def plant(place: Place) -> Iterator[Mend]:
        PLANTED[fault][0](place.home)
        yield None if mend is None else lambda: mend(place)

    return plant


def _key_from_backup(place: Place) -> None:
    shutil.copy2(place.backup / "host.key", place.home / "host.key")


@contextlib.contextmanager
def _nothing(place: Place) -> Iterator[Mend]:
    yield None


@contextlib.contextmanager
def _stopped(place: Place) -> Iterator[Mend]:
    place.run("mbx daemon start")
    os.kill(place.daemon_pid(), signal.SIGSTOP)
    yield None


@contextlib.contextmanager
def _other_version(place: Place) -> Iterator[Mend]:
    with subprocess.Popen(
        [sys.executable, "-c", OTHER_VERSION, "9"], env=place.env, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        place.is_serving = True
        try:
            yield None
        finally:
            other.kill()


@contextlib.contextmanager
def _second_install(place: Place) -> Iterator[Mend]:
    other = place.work / "other" / "mbx"
    other.parent.mkdir(exist_ok=True)
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    place.env["PATH"] += f"{os.pathsep}{other.parent}"
    yield None


@contextlib.contextmanager
def _full_disk(place: Place) -> Iterator[Mend]:
    if os.geteuid() != 0:
        raise UnplantableError(f"{_TEMPORARY} needs root")
    home = str(place.home)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "none", home]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        raise UnplantableError(f"{_TEMPORARY} cannot be mounted")
    try:
        yield lambda: place.run(f"mount -o remount,size=1g {home}")
    finally:
        subprocess.run(["umount", home], check=True)


@contextlib.contextmanager
def _damaged_page(place: Place) -> Iterator[Mend]:
    change_store(place.home, *DAMAGED_PAGE)
    place.start_daemon()

    def restore() -> None:
        place.run("mbx daemon stop")
        for name in ("store.db", "store.db-wal", "store.db-shm"):
            (place.home / name).unlink(missing_ok=True)
        shutil.copy2(place.backup / "store.db", place.home / "store.db")
        place.start_daemon()

    yield restore


@contextlib.contextmanager
def _missing_credential(place: Place) -> Iterator[Mend]:
    with Terminal(place.env, str(place.work)) as shell:
        shell.run("mbx identity claim ana")
        place.is_serving = True
        for credential in (place.home / "run" / "sessions").iterdir():
            credential.unlink()
        yield None


@contextlib.contextmanager
def _stranded(place: Place) -> Iterator[Mend]:
    earlier = f"UPDATE messages SET accepted_ms = accepted_ms - {LATER_S * 1_000}"
    change_store(place.home, earlier)
    place.start_daemon()
    with Terminal(place.env, str(place.work)) as shell:
        yield lambda: shell.run("mbx identity claim ben")


FAULTS: Final = (
    Fault("no daemon runs", "daemon", "warn", _nothing),
    Fault("the daemon hangs", "daemon", "fail", _stopped),
    Fault("the daemon is of another version", "versions", "fail", _other_version),
    Fault("two installations on the PATH", "path", "warn", _second_install),
    Fault("the home folder is open to others", "home", "fail", _without_daemon("home open")),
    Fault("a file lies where the socket was", "socket", "fail", _without_daemon("socket a file")),
    Fault(
        "the host key is damaged",
        "host key",
        "fail",
        _without_daemon("key damaged", _key_from_backup),
    ),
    Fault(
        "the host key is missing",
        "host key",
        "fail",
        _without_daemon("key missing", _key_from_backup),
    ),
    Fault("the log has grown", "log", "warn", _without_daemon("log grown")),
    Fault("the disk is full", "disk", "fail", _full_disk),
    Fault("a page of the store is damaged", "store pages", "fail", _damaged_page),
    Fault("a credential is missing", "credentials", "warn", _missing_credential),
    Fault("mail waits for an identity nobody holds", "stranded mail", "warn", _stranded),
)
"""Twelve for everybody, and a full disk for root."""


# -- the show -------------------------------------------------------------------------------------


class Examination:
    """Plants the faults one by one, and shows what doctor makes of them."""

    def __init__(self, stage: Stage, work: Path) -> None:
        self._stage = stage
        self._work = work
        self._backup = work / "backup"
        self.rows: list[dict[str, Any]] = []
        """One for each fault: title, check, level, seconds, and what was wrong."""
        self.skipped: list[str] = []

    def run(self) -> list[str]:
        """All faults; what was not as it must be."""
        self._live_a_little()
        for number, fault in enumerate(FAULTS, 1):
            self._stage.chapter(number, fault.title)
            try:
                self._one(number, fault)
            except UnplantableError as error:
                self._stage.note(f"skipped: {error}")
                self.skipped.append(fault.title)
        wrong = [f"{row['title']}: {one}" for row in self.rows for one in row["wrong"]]
        if len(self.rows) < AT_LEAST:
            wrong.append(f"too little: {len(self.rows)} faults planted, wanted {AT_LEAST}")
        return wrong

    def _environment(self, home: Path) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return bare_environment(path, str(self._work), str(home))

    def _live_a_little(self) -> None:
        """A home in which mail was sent and everything has ended in order."""
        place = Place(self._work, self._backup, self._backup, self._environment(self._backup))
        place.run("mbx run --as ben --role tester -- true")
        place.run("mbx run --as ana --role tester -- mbx send --to ben --subject Hello -m Hello")
        place.run("mbx daemon stop")

    def _one(self, number: int, fault: Fault) -> None:
        home = self._work / f"home-{number}"
        shutil.copytree(self._backup, home)
        place = Place(self._work, home, self._backup, self._environment(home))
        try:
            with fault.plant(place) as mend:
                before = place.state()
                began = time.monotonic()
                check, status = self._named(place, fault.check)
                took_s = time.monotonic() - began
                changed = place.state() != before
                wrong = self._judged(fault, check, status, took_s, changed=changed)
                self._show(check, status, took_s, changed=changed)
                if check is not None:
                    wrong += self._mended(place, fault, check, mend)
        finally:
            place.run("mbx daemon stop", check=False)
        row = {"title": fault.title, "check": fault.check, "level": (check or {}).get("level")}
        self.rows.append({**row, "took_s": round(took_s, 2), "wrong": wrong})
        for one in wrong:
            self._stage.claim(one, False)

    @staticmethod
    def _named(place: Place, name: str) -> tuple[dict[str, str] | None, int]:
        """The worst check of this name, if doctor tells of one; and its exit status."""
        done = place.run("mbx doctor --json", check=False)
        checks = [one for one in json.loads(done.stdout)["checks"] if one["name"] == name]
        worst = max(checks, key=lambda one: _LEVELS.index(one["level"]), default=None)
        return worst, done.returncode

    @staticmethod
    def _judged(
        fault: Fault, check: dict[str, str] | None, status: int, took_s: float, *, changed: bool
    ) -> list[str]:
        level = check["level"] if check else "not named"
        wrong = []
        if level != fault.level:
            wrong.append(f"{fault.check} is {level}, not {fault.level}")
        if fault.level == "fail" and status != 1:
            wrong.append(f"exit {status}, not 1")
        if took_s > BOUND_S:
            wrong.append(f"it took {took_s:.1f} s")
        if changed:
            wrong.append("doctor changed something")
        return wrong

    def _show(
        self, check: dict[str, str] | None, status: int, took_s: float, *, changed: bool
    ) -> None:
        if check is not None:
            colour = "NOT" if check["level"] == "fail" else "strong"
            level = self._stage.painted(colour, check["level"])
            self._stage.note(f"{check['name']}: {level}: {_on_one_line(check['detail'])}")
            self._stage.note(f"next: {check['fix']}")
        same = "something changed" if changed else "nothing changed"
        self._stage.note(f"(exit {status}, {took_s:.1f} s, {same})")

    def _mended(self, place: Place, fault: Fault, check: dict[str, str], mend: Mend) -> list[str]:
        if mend is None:
            how = "by that command"
            place.run(check["fix"], check=False)
        else:
            how = "by hand"
            mend()
        after, _ = self._named(place, fault.check)
        level = after["level"] if after else "ok"
        if level not in _WELL:
            return [f"{fault.check} is still {level} when it was mended {how}: {after}"]
        self._stage.claim(f"mended {how}", True)
        return []


def _on_one_line(text: str) -> str:
    return "; ".join(line.strip(" *") for line in text.splitlines())
