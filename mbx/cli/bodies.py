"""Where the body of a message comes from: an option, a file, standard input; bytes, strict UTF-8.

Read to the end, whatever the size of the pipe; no line end is translated; what is too large or no
UTF-8 is refused by name before anything is sent.
"""

import errno
import os
import stat
import sys
from typing import Final

from mbx.core.errors import MbxError
from mbx.core.limits import BODY_MAX_BYTES

COUNTED_MAX_BYTES: Final = 64 * 1024 * 1024
"""How far an over-large input is read to tell its size; an endless one ends here."""
_CHUNK_BYTES: Final = 64 * 1024


class BodySource:
    """One of the three ways to give a body; `waits` when it is read from standard input."""

    def __init__(self, text: str | None, file: str | None) -> None:
        self._text = text
        self._file = file
        self.waits = text is None and file == "-"

    def read(self) -> str:
        """The body, byte for byte as it was given.

        Raises MbxError: `usage` (unreadable, no UTF-8) or `body-too-large`.
        """
        if self._text is not None:
            return _decoded(self._text.encode("utf-8", "surrogatepass"), "the body")
        if self._file is None or self.waits:
            return _decoded(_standard_input(), "standard input")
        return _decoded(_file(self._file), self._file)


def source_of(message: str | None, body_file: str | None, dash: str | None) -> BodySource:
    """The source that exactly one of `-m`, `--body-file` and `-` names. Raises MbxError `usage`."""
    step = "give exactly one of -m BODY, --body-file FILE, -"
    if dash not in (None, "-"):
        raise MbxError("usage", f"unexpected argument {dash!r}", step)
    given = [way for way in (message, body_file, dash) if way is not None]
    if not given:
        raise MbxError("usage", "no body was given", step)
    if len(given) > 1:
        raise MbxError("usage", "more than one body was given", step)
    return BodySource(message, body_file if dash is None else "-")


def _decoded(raw: bytes, where: str) -> str:
    if len(raw) > BODY_MAX_BYTES:
        raise too_large(len(raw))
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MbxError(
            "usage",
            f"{where} is not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}",
            "convert it to UTF-8, for example with iconv",
            offset_bytes=error.start,
        ) from None


def too_large(size_bytes: int, at_least: str = "") -> MbxError:
    """The refusal of a body over the limit."""
    return MbxError(
        "body-too-large",
        f"the body has {at_least}{size_bytes:,} bytes of UTF-8; the limit is {BODY_MAX_BYTES:,}",
        "shorten the body, split it, or say with --ref where the text is",
        limit_bytes=BODY_MAX_BYTES,
        size_bytes=size_bytes,
    )


def _standard_input() -> bytes:
    if sys.stdin is None:  # closed by the caller: an empty body would be an invention
        raise MbxError("usage", "standard input is closed", "give the body as -m BODY or a file")
    try:
        return _read_all(0)
    except OSError as error:
        raise MbxError("usage", f"cannot read standard input: {error.strerror}") from None


def _file(name: str) -> bytes:
    """The bytes of a file. Names are bytes to the system: UTF-8 under any locale."""
    try:
        descriptor = os.open(name.encode("utf-8"), os.O_RDONLY | os.O_CLOEXEC)
        try:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            return _read_all(descriptor)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise MbxError(
            "usage", f"cannot read {name}: {why}", "give a file that can be read"
        ) from None


def _read_all(descriptor: int) -> bytes:
    """Everything up to the end of input. Raises MbxError `body-too-large`, OSError."""
    pieces: list[bytes] = []
    size_bytes = 0
    while piece := _read(descriptor):
        size_bytes += len(piece)
        if size_bytes > COUNTED_MAX_BYTES:
            raise too_large(size_bytes, at_least="at least ")
        if size_bytes <= BODY_MAX_BYTES + _CHUNK_BYTES:
            pieces.append(piece)
    if size_bytes > BODY_MAX_BYTES:
        raise too_large(size_bytes)
    return b"".join(pieces)


def _read(descriptor: int) -> bytes:
    """The next piece; a non-blocking pipe that is empty for now is waited for, not ended."""
    while True:
        try:
            return os.read(descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            import select

            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll()
