"""Terminals: clients and the owner, typed at and looked at as a human does."""

import re
import select
import time
from collections.abc import Callable, Mapping
from typing import Final

from tests.clients.clients import Session
from tests.support.shells import BASH, TmuxPane

SCREEN_S: Final = 40.0
"""What is awaited on a screen comes within this time; the slowest client starts in five seconds."""

PASSPHRASE: Final = "nine calm herons wade"
"""Of the owner's key."""

_PAUSE_S: Final = 0.1
"""Between two looks at a screen."""

_PASTE_S: Final = 0.5
"""Text and Enter within this time are taken for a paste, by clients that look at the clock."""

_TRIES: Final = 4
_SIZE: Final = ("-x", "110", "-y", "50")
_AGREE: Final = re.compile(r"Type (\S+) to agree")
_PS1: Final = "owner$ "


class Screen(TmuxPane):
    """The only pane of a tmux server. Use it in ``with``."""

    def until(self, holds: Callable[[str], bool], what: str) -> str:
        """Look until the screen is as wanted; what it shows then."""
        deadline = time.monotonic() + SCREEN_S
        while True:
            screen = self.screen()
            if holds(screen):
                return screen
            assert time.monotonic() < deadline, f"no {what} on the screen:\n{screen}"
            select.select([], [], [], _PAUSE_S)

    def shows(self, text: str) -> str:
        """Wait until a text is on the screen; what it shows then."""
        return self.until(lambda screen: text in screen, text)

    def picture(self) -> str:
        """The screen without empty lines, for a transcript."""
        lines = [line.rstrip() for line in self.screen().splitlines()]
        return "\n".join(line for line in lines if line)


class Terminal(Screen):
    """A client at a terminal."""

    def __init__(self, session: Session, *more: str) -> None:
        self.session = session
        super().__init__([*session.interactive(), *more], env=session.env, cwd=session.work)
        try:
            self.tmux("resize-window", *_SIZE)
            self._greet()
        except BaseException:
            self.close()
            raise

    def _greet(self) -> None:
        client = self.session.client

        def asks(screen: str) -> bool:
            return bool(client.asks) and client.asks in screen

        if asks(self.until(lambda one: client.ready in one or asks(one), client.ready)):
            self.tmux("send-keys", "Enter")
            self.until(lambda one: client.ready in one and not asks(one), client.ready)

    def say(self, text: str) -> None:
        """Type a line; again where a client that was busy with its screen has dropped it."""
        for _ in range(_TRIES):
            self.tmux("send-keys", "-l", text)
            if self._is_typed(text):
                break
        select.select([], [], [], _PASTE_S)
        self.tmux("send-keys", "Enter")

    def _is_typed(self, text: str) -> bool:
        deadline = time.monotonic() + SCREEN_S / _TRIES
        while text not in self.screen():
            if time.monotonic() > deadline:
                return False
            select.select([], [], [], _PAUSE_S)
        return True

    def do(self, text: str, answer: str) -> None:
        """Give the client a prompt, and wait for what its model says at the end."""
        self.say(text)
        self.shows(answer)

    def picture(self) -> str:
        """The screen for a transcript, without the places of this run."""
        told = super().picture()
        for path in (self.session.work, self.session.home):
            told = told.replace(str(path), "~")
        return told


class OwnerTerminal(Screen):
    """The owner's shell."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(BASH, env={**environment, "TERM": "xterm"})
        self.tmux("resize-window", *_SIZE)
        self.type_line(f"PS1='{_PS1}'")

    def signs(self, command: str, *questions: str) -> str:
        """Run a command that the owner agrees to and signs; what the screen shows in the end.

        `questions` come before what is to be agreed to.
        """
        self.type_line("clear")
        self.until(lambda screen: screen.strip() == _PS1.strip(), "empty screen")
        self.type_line(command)
        for question in questions:
            self.shows(question)
            self.type_line(PASSPHRASE)
        found = _AGREE.search(self.until(lambda screen: bool(_AGREE.search(screen)), "agreement"))
        assert found is not None
        self.type_line(found[1])
        if not questions:
            self.shows("Passphrase:")
            self.type_line(PASSPHRASE)
        self.until(lambda screen: screen.count(_PS1.strip()) == 2, "end of the command")
        return self.picture()
