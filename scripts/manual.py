"""The manual page `mbx(1)`, made from the help that the commands give of themselves."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import click

from mbx import __version__
from mbx.cli.command import ExampleCommand
from mbx.cli.main import COMMANDS, mbx
from mbx.core.errors import EXIT_STATUS

_DESCRIPTION: Final = """\
An agent works under a named, lasting identity, which it holds by a lease; one living session holds
it at a time. Mail to the name waits there, signed, and the sender sees what becomes of it. People
and scripts use the same mailbox.

Commands start the daemon on demand, except those whose text says otherwise. A message is data,
never an instruction."""

_OPTIONS: Final[Mapping[str, str]] = {
    "--json": "One JSON document on one line of standard output, errors too.",
    "-h, --help": "Show the help of a command or a group and exit.",
    "--version": "Print the version; without a command.",
}
"""What every command has, told once."""

_ENVIRONMENT: Final[Mapping[str, str]] = {
    "MBX_HOME": "The state folder: store, keys, log; ~/.local/share/mbx by default.",
    "MBX_RUN": "Socket and session files; $MBX_HOME/run by default.",
    "MBX_CLI, MBX_SESSION": "Which conversation of one agent program this is.",
    "MBX_AGENT": "The identity that `mbx run` holds where --as is not given.",
    "NO_COLOR": "Nothing is shown in bold.",
    "COLUMNS": "The width that tables fit into, instead of the terminal's.",
}

_MEANINGS: Final[Mapping[int, str]] = {
    0: "Done.",
    1: "Refused, or some of several things failed.",
    2: "The command line is wrong.",
    3: "There is no such message, identity or recipient.",
    4: "The beginning of an id fits several messages.",
    5: "This session holds no identity, or lost it.",
    6: "The daemon cannot be reached, or is of another version.",
    75: "The answer was lost: it may have been carried out.",
}
"""Exit status -> what it says; a code without a row here stops the generator."""


def manual() -> str:
    """The whole page, as roff."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield ".\\\" Made by scripts/gen-docs from the commands' own help; change it there."
    yield f'.TH MBX 1 "" "mbx {__version__}" "User Commands"'
    line = (mbx.help or "").rstrip(".")
    yield from (".SH NAME", rf"mbx \- {_text(line[:1].lower() + line[1:])}")
    yield from (".SH SYNOPSIS", r".B mbx", "COMMAND [OPTIONS] ...")
    yield ".SH DESCRIPTION"
    yield from _paragraphs(_DESCRIPTION)
    yield ".SH OPTIONS OF EVERY COMMAND"
    yield from _terms(_OPTIONS)
    yield ".SH COMMANDS"
    for name in COMMANDS:
        yield from _command(name)
    yield ".SH ENVIRONMENT"
    yield from _terms(_ENVIRONMENT)
    yield ".SH EXIT STATUS"
    yield from _terms({str(status): _meaning(status) for status in sorted({0, *_statuses()})})
    yield ".SH SEE ALSO"
    yield "The documents that come with the source: concepts, operations, threat model, protocol."


def _statuses() -> set[int]:
    return set(EXIT_STATUS.values())


def _meaning(status: int) -> str:
    codes = [code for code, one in EXIT_STATUS.items() if one == status]
    return f"{_MEANINGS[status]} Codes: {', '.join(codes)}." if codes else _MEANINGS[status]


def _command(name: str) -> Iterator[str]:
    context = click.Context(mbx, info_name="mbx")
    for word in name.split():
        group = context.command
        assert isinstance(group, click.Group)
        command = group.get_command(context, word)
        assert command is not None
        context = click.Context(command, info_name=word, parent=context)
    assert isinstance(context.command, ExampleCommand)
    command = context.command
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f".SS mbx {_text(name)} {_text(pieces)}"
    yield from _paragraphs(command.help or "")
    options = [one for one in command.params if isinstance(one, click.Option)]
    records = [one.get_help_record(context) for one in options if one.name != "as_json"]
    yield from _terms(dict(record for record in records if record is not None))
    yield from (".PP", "Examples:", ".PP", ".RS 4", ".nf")
    yield from (_text(line.strip()) for line in command.examples.strip().splitlines())
    yield from (".fi", ".RE")


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        yield from (".PP", _text(" ".join(paragraph.split())))


def _terms(terms: Mapping[str, str]) -> Iterator[str]:
    for term, meaning in terms.items():
        yield from (".TP", f".B {_text(term)}", _text(meaning))


_SIGNS: Final = str.maketrans(
    {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq"}
)
"""Signs that a formatter would take for others, or that begin a request."""


def _text(text: str) -> str:
    """Text as a formatter shows it; a line that begins with a dot is no request."""
    shown = text.translate(_SIGNS)
    return rf"\&{shown}" if shown.startswith(".") else shown


WHOLE: Final[Mapping[str, Callable[[], str]]] = {"man/mbx.1": manual}
"""File -> what makes all of it."""
