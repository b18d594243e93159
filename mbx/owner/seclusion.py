"""Closing the process before a key is opened in it (`mbx.seclusion`), or opening none."""

import sys

from mbx.core.errors import MbxError
from mbx.seclusion import close_process, is_secluded

__all__ = ["is_secluded", "seclude"]


def seclude() -> None:
    """Close this process; harmless to repeat. Raises MbxError owner-locked where it cannot be."""
    if not close_process() and sys.platform == "linux":
        raise MbxError(
            "owner-locked",
            "this process cannot be closed to others of the same user (prctl was refused)",
            "sign on another machine: write the request with --draft FILE",
        )
