"""Putting a service's file in its place, and taking it away: planned first, then carried out."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from mbx.core.errors import MbxError
from mbx.paths import quoted
from mbx.service.job import Act, Job, Manager
from mbx.service.seal import Whose, whose
from mbx.setup import files
from mbx.setup.plan import Change
from mbx.setup.steps import Refused

ACT_S: Final = 30.0
"""How long a service manager may take for one command: it waits for the end of a daemon."""

MODE: Final = 0o644
"""The mode of the file: it holds no secrets, and a service manager may read it as another user."""


class Said(NamedTuple):
    """How a command of the service manager ended. `why` is its own word, on one line."""

    is_done: bool
    told: str
    why: str


def plan(manager: Manager, job: Job, environ: Mapping[str, str], *, installing: bool) -> Change:
    """What is to happen to the file.

    Raises MbxError `conflict` for one that is not ours, or that somebody changed: it stays.
    """
    path, user_id = manager.path(job, environ), os.geteuid()
    try:
        old = files.read(path, user_id)
    except Refused as refusal:
        raise MbxError("conflict", f"{path} {refusal}; it is left as it is", _aside(path)) from None
    wanted = manager.text(job).encode("utf-8")
    new = wanted if installing else None
    if old.content is None:
        absent = old._replace(mode=MODE)
        return Change(path, "write" if installing else "unchanged", absent, wanted)
    if old.content == wanted:
        return Change(path, "unchanged" if installing else "remove", old, new)
    owner = whose_file(old.content)
    if owner != "ours":
        why = "was changed since mbx wrote it" if owner == "changed" else "was not written by mbx"
        raise MbxError("conflict", f"{path} {why}; it is left as it is", _aside(path))
    return Change(path, "write" if installing else "remove", old, new)


def whose_file(content: bytes) -> Whose:
    """Whose a file is; one that is no text is nobody's of ours."""
    try:
        return whose(content.decode("utf-8"))
    except UnicodeDecodeError:
        return "foreign"


def write(change: Change) -> None:
    """Put the file in its place, whole. Raises MbxError where it cannot be written."""
    assert change.old is not None
    try:
        files.make_folders(os.path.dirname(change.old.target))
        files.write(change.path, change.old, change.new)
    except Refused as refusal:
        raise MbxError("conflict", f"{change.path} {refusal}", "look at it, then repeat") from None
    except OSError as error:
        why = f"{error.filename or change.path}: {error.strerror}"
        raise MbxError("conflict", f"cannot write there: {why}", _aside(change.path)) from None


def remove(change: Change, links: Sequence[str]) -> None:
    """Take the file away, and the links that lead to it. Raises MbxError as `write` does."""
    for link in links:
        if os.path.islink(link) and os.path.realpath(link) == os.path.realpath(change.path):
            os.unlink(link)
    write(change._replace(new=None))


def is_here(manager: Manager, environ: Mapping[str, str]) -> bool:
    """Whether this machine has the manager's command."""
    return shutil.which(manager.program, path=environ.get("PATH", os.defpath)) is not None


def run(act: Act, environ: Mapping[str, str]) -> Said:
    """One command to the manager, waited for."""
    try:
        done = subprocess.run(
            act.argv,
            env=_reaching(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ACT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Said(False, "", f"{act.argv[0]} did not end within {ACT_S:g} s")
    except OSError as error:
        return Said(False, "", f"{act.argv[0]}: {error.strerror}")
    lines = done.stderr.decode("utf-8", "replace").split("\n")
    why = next((line.strip() for line in lines if line.strip()), f"exit {done.returncode}")
    told = done.stdout.decode("utf-8", "replace")
    return Said(done.returncode == 0, told, "" if done.returncode == 0 else why)


def _reaching(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment, with the folder of the user's bus where a scrubbed one does not name it."""
    folder = f"/run/user/{os.getuid()}"
    is_missing = not environ.get("XDG_RUNTIME_DIR") and os.path.isdir(folder)
    return dict(environ) | ({"XDG_RUNTIME_DIR": folder} if is_missing else {})


def run_all(acts: Sequence[Act], environ: Mapping[str, str]) -> Said:
    """Commands that belong together, up to the first that fails and may not."""
    for act in acts:
        said = run(act, environ)
        if not said.is_done and not act.may_fail:
            return said
    return Said(True, "", "")


def shown(acts: Sequence[Act]) -> list[str]:
    """Commands for people to type; those that may fail are of no use to them."""
    return [" ".join(quoted(word) for word in act.argv) for act in acts if not act.may_fail]


def _aside(path: str) -> str:
    return f"mv {quoted(path)} {quoted(path)}.aside"
