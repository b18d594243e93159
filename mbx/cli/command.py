"""How a command is declared: its options, `--json`, its examples, the session it gets.

A command's function receives a `Session` first and may return an exit status (None is 0)::

    @command("whoami", "Show who you are.", examples="mbx whoami")
    def whoami(session: Session) -> None:
        ...
"""

from collections.abc import Callable
from typing import Any

import click

from mbx.cli.session import Session

Body = Callable[..., int | None]
"""The function of a command: ``(session, **parameters) -> exit status or None``."""

_WHOLE_MAX = 10**15
"""Beyond every limit, and within the digits that a request may have (`JSON_DIGITS_MAX`)."""

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Settings of click for every command and group."""


class ExampleCommand(click.Command):
    """A command whose help ends with examples, one shell line each (or a comment)."""

    def __init__(self, *args: Any, examples: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they are, unfolded."""
        formatter.write_paragraph()
        formatter.write("Examples:\n")
        for line in self.examples.strip().splitlines():
            formatter.write(f"  {line.strip()}\n")


def command(
    name: str,
    short_help: str,
    *,
    examples: str,
    **settings: Any,
) -> Callable[[Body], ExampleCommand]:
    """Declare a command; the function's docstring is its help, `settings` go to `click.Command`."""

    def declared(body: Body) -> ExampleCommand:
        @click.pass_context
        def invoke(context: click.Context, /, **parameters: Any) -> int:
            parameters.pop("as_json")
            session = context.find_object(Session)
            assert session is not None, "run() puts the session there"
            return body(session, **parameters) or 0

        help_text = "\n".join(line.strip() for line in (body.__doc__ or "").strip().splitlines())
        params = [*reversed(getattr(body, "__click_params__", [])), json_option()]
        return ExampleCommand(
            name,
            callback=invoke,
            params=params,
            help=help_text,
            short_help=short_help,
            examples=examples,
            context_settings=dict(CONTEXT_SETTINGS, **settings.pop("context_settings", {})),
            **settings,
        )

    return declared


class _WholeNumber(click.types.IntParamType):
    """A whole number, brought near enough to be sent: the daemon says which it takes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Raises click.BadParameter for what is no whole number."""
        number: int = super().convert(value, param, ctx)
        return max(-_WHOLE_MAX, min(_WHOLE_MAX, number))


WHOLE = _WholeNumber()
"""The type of every number that the daemon judges."""


def json_option() -> click.Option:
    """`--json`, which every command has. It is eager, so that errors honour it too."""
    return click.Option(
        ["--json", "as_json"],
        is_flag=True,
        is_eager=True,
        callback=_remember_json,
        help="One JSON document on one line of standard output, errors too.",
    )


def completed(source: str) -> Callable[[click.Context, click.Parameter, str], Any]:
    """The `shell_complete` of a parameter: a function of `mbx.cli.completion.candidates`, by name.

    By name, so that commands need not load it.
    """

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> Any:
        from mbx.cli.completion.candidates import SOURCES

        return SOURCES[source](context, incomplete)

    return complete


def body_options(function: Body) -> Body:
    """Add `-m`, `--body-file` and `-`, of which exactly one gives the body."""
    for decorate in (
        click.argument("dash", metavar="[-]", required=False),
        click.option(
            "--body-file",
            metavar="FILE",
            shell_complete=completed("files"),
            help="Read the body from FILE, byte for byte; - is stdin.",
        ),
        click.option("-m", "--message", metavar="BODY", help="The body itself; it may be empty."),
    ):
        function = decorate(function)
    return function


def signed_option(function: Body) -> Body:
    """Add `--owner`: signed with the owner's key instead of sent under a lease."""
    told = "Signed with your own key, for the human; asks for the passphrase."
    return click.option("--owner", is_flag=True, help=told)(function)


def owner_option(function: Body) -> Body:
    """Add `--owner`: the human's mailbox instead of the caller's own (`mailbox_method`)."""
    told = "The owner's mail instead: for the human, at a terminal outside any agent CLI."
    return click.option("--owner", is_flag=True, help=told)(function)


def mailbox_method(verb: str, owner: object) -> str:
    """The method that does `verb` in the caller's own mailbox, or in the owner's."""
    return f"owner.{verb}" if owner else f"mail.{verb}"


def _remember_json(context: click.Context, _: click.Parameter, value: bool) -> bool:
    session = context.find_object(Session)
    if value and session is not None:
        session.output.as_json = True
    return value
