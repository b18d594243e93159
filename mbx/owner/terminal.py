"""The owner's terminal: `/dev/tty`, opened here, and nothing else.

Whatever stands on standard input, in the arguments or in the environment is not looked at. A hidden
answer is read with echo off. The terminal gets its own state back on every way out: an answer, the
end of input, Ctrl-C, SIGTERM, SIGHUP, SIGQUIT; over a stop (Ctrl-Z) too. While a question stands,
signals are only noted (a wake-up descriptor ends the wait), so that none falls between two steps;
what was noted takes its course afterwards. What was typed before a question is thrown away.
"""

import errno
import os
import select
import signal
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, NoReturn, Self

from mbx.core.errors import MbxError
from mbx.core.text import fold, visible

PATH: Final = "/dev/tty"
"""The controlling terminal of the process, whatever its streams are."""

ANSWER_MAX_BYTES: Final = 4_095
"""A terminal hands over no longer line (MAX_CANON of Linux, with its end)."""

# A terminal that does not tell its width, and the least that a row needs.
COLUMNS_DEFAULT: Final = 80
COLUMNS_MIN: Final = 20

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_PAUSING: Final = (signal.SIGTSTP, signal.SIGCONT)
_LOCAL: Final = 3
_INPUT: Final = 0
_ECHOES: Final = termios.ECHO | termios.ECHOE | termios.ECHOK | termios.ECHONL


class Interrupted(Exception):
    """A signal that ends the process came while a question stood."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Terminal:
    """The controlling terminal, open for questions. Use it in ``with``."""

    def __init__(self, path: str = PATH) -> None:
        """Raises MbxError owner-required when this process has no terminal."""
        flags = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            self._descriptor = os.open(path, flags)
        except OSError:
            raise no_terminal() from None
        if not os.isatty(self._descriptor):
            os.close(self._descriptor)
            raise no_terminal()

    def columns(self) -> int:
        """Its width."""
        with suppress(OSError):
            told = os.get_terminal_size(self._descriptor).columns
            return max(told or COLUMNS_DEFAULT, COLUMNS_MIN)
        return COLUMNS_DEFAULT

    def show(self, *lines: str) -> None:
        """Write lines that are harmless already; none is cut, and a long one is folded."""
        columns = self.columns()
        rows = [row for line in lines for row in fold(line, columns)]
        self._write("".join(f"{row}\n" for row in rows))

    def ask(self, question: str) -> str:
        """A visible answer, as text without its line end. Raises as `ask_hidden` does."""
        answer = self._answer(question, echo=True)
        return bytes(answer).decode("utf-8", "replace")

    def ask_hidden(self, question: str) -> bytearray:
        """An answer that is not shown; the caller wipes it.

        Raises MbxError owner-required at the end of input, KeyboardInterrupt for Ctrl-C; other
        ending signals end the process as they would have.
        """
        return self._answer(question, echo=False)

    def close(self) -> None:
        """Give the terminal back."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- one question -----------------------------------------------------------------------------

    def _answer(self, question: str, *, echo: bool) -> bytearray:
        try:
            before = _retried(termios.tcgetattr, self._descriptor)
            with _noted() as signals:
                try:
                    answer = self._dialogue(question, before, signals, echo=echo)
                finally:
                    self._restore(before)
                    if not echo:
                        self._end_line()
            # What came after the answer was read takes its course too.
            signals.raise_ending()
        except Interrupted as end:
            _die(end.number)
        except (OSError, termios.error):
            raise no_terminal() from None
        return answer

    def _dialogue(
        self, question: str, before: list[Any], signals: "_Signals", *, echo: bool
    ) -> bytearray:
        """Ask until there is an answer; over every stop the terminal has its own state."""
        answer = bytearray()
        while True:
            self._switch(before, echo=echo)
            self._write(visible(question) + " ")
            while not signals.wait(self._descriptor):
                if self._read_into(answer):
                    return answer
            wipe(answer)
            signals.raise_ending()
            if signals.take_stop():
                self._restore(before)
                signals.stop()
            self._write("\n")

    def _read_into(self, answer: bytearray) -> bool:
        """Take what was typed; whether the line is complete. Raises MbxError at its end."""
        piece = bytearray(ANSWER_MAX_BYTES + 1)
        try:
            count = os.readv(self._descriptor, [piece])
        except BlockingIOError:
            return False  # another reader of the same terminal was faster
        if not count:
            raise MbxError(
                "owner-required",
                "the terminal gave no answer (end of input); nothing was signed",
                "run the command again and answer its questions",
            )
        answer += memoryview(piece)[:count]
        wipe(piece)
        if not answer.endswith(b"\n"):
            return False
        del answer[-1:]
        return True

    def _switch(self, before: list[Any], *, echo: bool) -> None:
        """Whole lines, keys that raise signals, echo as asked; what was typed before is dropped."""
        wanted = [*before]
        wanted[_INPUT] |= termios.ICRNL
        wanted[_LOCAL] |= termios.ICANON | termios.ISIG
        if echo:
            wanted[_LOCAL] |= termios.ECHO | termios.ECHOE | termios.ECHOK
        else:
            wanted[_LOCAL] &= ~_ECHOES
        _retried(termios.tcsetattr, self._descriptor, termios.TCSAFLUSH, wanted)

    def _restore(self, before: list[Any]) -> None:
        """The terminal's own state. One that has hung up needs none."""
        with suppress(termios.error):
            _retried(termios.tcsetattr, self._descriptor, termios.TCSANOW, before)

    def _end_line(self) -> None:
        """The line end that was not echoed."""
        with suppress(MbxError):
            self._write("\n")

    def _write(self, text: str) -> None:
        view = memoryview(text.encode("utf-8", "backslashreplace"))
        try:
            while view:
                try:
                    view = view[os.write(self._descriptor, view) :]
                except BlockingIOError:
                    select.select([], [self._descriptor], [])
        except OSError:
            raise no_terminal() from None


def wipe(secret: bytearray) -> None:
    """Overwrite a secret where it lies, and empty it."""
    secret[:] = bytes(len(secret))
    secret.clear()


def no_terminal() -> MbxError:
    """The refusal where nobody can be asked."""
    return MbxError(
        "owner-required",
        "the owner's passphrase is typed on a terminal, and this process has none",
        "run the command in a terminal of your own; or write the request with --draft FILE and"
        " sign it there with `mbx owner sign FILE`",
    )


# -- signals --------------------------------------------------------------------------------------


class _Signals:
    """Signals that were noted while a question stood."""

    def __init__(self, wake: int) -> None:
        self._wake = wake
        self._noted: list[int] = []

    def note(self, number: int, _: FrameType | None) -> None:
        """The handler: nothing happens here."""
        self._noted.append(number)

    def wait(self, descriptor: int) -> bool:
        """Wait for input or a signal; whether a signal was noted."""
        # Not poll: on macOS it does not know /dev/tty.
        select.select([descriptor, self._wake], [], [])
        with suppress(BlockingIOError):
            while os.read(self._wake, 64):
                pass
        return bool(self._noted)

    def raise_ending(self) -> None:
        """Raise Interrupted for the first signal that ends the process, if one was noted."""
        for number in self._noted:
            if number in _ENDING:
                raise Interrupted(number)

    def take_stop(self) -> bool:
        """Whether Ctrl-Z was noted; what was noted of pauses is forgotten."""
        noted, self._noted = self._noted, []
        return signal.SIGTSTP in noted

    def stop(self) -> None:
        """Stop as Ctrl-Z asks, until somebody lets this process go on."""
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self.note)
        self._noted = [number for number in self._noted if number in _ENDING]


class Departed(BaseException):
    """A signal that ends the process came inside `departing`: what is under way is cleaned up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Departure:
    """What becomes of signals that end the process while something must be cleaned up."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._is_held = False

    def hold(self) -> None:
        """The cleaning up begins: from now on a signal waits until it is done."""
        self._is_held = True

    def take(self, number: int, _: FrameType | None) -> None:
        """The handler. Raises Departed for the first signal; a closed terminal sends several."""
        self.number = self.number or number
        if not self._is_held:
            self._is_held = True
            raise Departed(number)


@contextmanager
def departing() -> Iterator[Departure]:
    """Whatever ends this process (a closed terminal, SIGTERM) first unwinds what runs inside.

    Then it ends as the signal would have ended it. Ignored signals stay ignored.
    """
    departure = Departure()
    numbers = [n for n in _ENDING if signal.getsignal(n) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, departure.take)
    try:
        with suppress(Departed):
            yield departure
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        if departure.number is not None:
            _die(departure.number)


@contextmanager
def _noted() -> Iterator[_Signals]:
    """Note ending and pausing signals instead of letting them act; ignored ones stay ignored."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signals = _Signals(reading)
    old_wake = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    numbers = [n for n in (*_ENDING, *_PAUSING) if signal.getsignal(n) is not signal.SIG_IGN]
    kept = {number: signal.signal(number, signals.note) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(old_wake)
        os.close(reading)
        os.close(writing)


def _die(number: int) -> NoReturn:
    """End as the signal would have ended the process; inside `departing`, unwind first."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    if signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN):
        signal.raise_signal(number)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise SystemExit(128 + number)


def _retried(call: Callable[..., Any], *arguments: Any) -> Any:
    """A call of `termios`, which does not repeat by itself what a signal interrupted."""
    while True:
        try:
            return call(*arguments)
        except termios.error as error:
            if error.args[0] != errno.EINTR:
                raise
