"""The standard descriptors of a process that others start as they like."""

import os


def fill() -> None:
    """Where a client closed one of them, have one that is at its end and takes nothing.

    Else a file or socket of ours would get its number, and be read as what the client says, or
    written into with what is said to it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)
