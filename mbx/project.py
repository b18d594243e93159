"""The project of the caller: the real path of the git root around the current folder."""

import os

from mbx.core.errors import MbxError
from mbx.paths import printable


def current_project() -> str | None:
    """The real path of the git root that holds the current folder, else None.

    Raises MbxError `usage` when that path is no UTF-8.
    """
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # the folder is gone or closed to us
        return None
    return _root_of(here)


def project_at(path: str) -> str:
    """The project that `--project PATH` names: PATH's git root, or PATH itself outside of git."""
    place = os.path.realpath(path)
    return _root_of(place) or place


def existing_project(path: str) -> str:
    """As `project_at`, for what is written down: a right, or a project of one's own.

    Raises MbxError `usage` where there is no such folder: it would be about nothing, or about
    whatever somebody puts there later.
    """
    if not os.path.isdir(path):
        what = "is not a folder" if os.path.lexists(path) else "does not exist"
        raise MbxError(
            "usage", f"the project {printable(path)} {what}", "name a folder that is there"
        )
    return project_at(path)


def _root_of(folder: str) -> str | None:
    while True:
        if os.path.lexists(
            os.path.join(folder, ".git")
        ):  # a folder, or a file in a linked work tree
            return _utf8(folder)
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def _utf8(path: str) -> str:
    try:
        return os.fsencode(path).decode("utf-8")
    except UnicodeDecodeError:
        raise MbxError(
            "usage",
            f"the project's path is not UTF-8: {os.fsencode(path)!r}",
            "work from another folder or give --project PATH",
        ) from None
