"""The root of `mbx`: a table of commands, loaded when invoked, and the one way out of the process.

`run` turns every end (result, refusal, bad usage, closed pipe, Ctrl-C) into an exit status and at
most two lines; no stack trace reaches a user for anything foreseen.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

import click

from mbx.cli.command import CONTEXT_SETTINGS
from mbx.cli.output import Output, OutputFailed, ReaderGone
from mbx.cli.session import Session
from mbx.core.errors import MbxError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "status": ("status:status", "See daemon, identity and waiting mail on one screen."),
    "whoami": ("whoami:whoami", "Show your identity, your lease and what waits for you."),
    "agents": ("agents:agents", "See who there is to write to, and who is there now."),
    "identity list": ("identity:list_", "List identities: who holds which, and which are free."),
    "identity show": ("identity:show", "Show one identity."),
    "identity register": ("identity:register", "Create an identity and hold it."),
    "identity claim": ("identity:claim", "Hold an identity that is free."),
    "identity set": ("identity:set_", "Change what your identity says of itself."),
    "identity rename": ("identity:rename", "Give your identity another name."),
    "identity release": ("identity:release", "Give the identity you hold back."),
    "identity retire": ("retiring:retire", "End an identity for good; its mail stays."),
    "identity forward": ("retiring:forward", "Let another identity have the mail of one."),
    "identity prune": (
        "retiring:prune",
        "List identities that nobody uses; with --apply, retire them.",
    ),
    "identity takeover": (
        "takeover:takeover",
        "Give an identity to another session, whoever holds it.",
    ),
    "policy set": ("policy:set_", "Let mail of some make an agent do more, for a time."),
    "policy list": ("policy:list_", "List the policies in effect."),
    "policy show": ("policy:show", "Show one policy."),
    "policy revoke": ("policy:revoke", "Take policies back, for ever."),
    "peers list": ("peers:list_", "List paired hosts, their links and what waits for them."),
    "peers show": ("peers:show", "Show one paired host: key, addresses, link, streams."),
    "peers ping": ("peers:ping", "Ask a paired host for a sign of life."),
    "peers addr": (
        "peers:addr",
        "Change where a paired host is dialled, or what it is called here.",
    ),
    "peers remove": (
        "peers:remove",
        "End a pairing: nothing is sent there or taken from there any more.",
    ),
    "inbox": ("inbox:inbox", "List mail that waits for you; changes nothing."),
    "read": ("read:read", "Read messages and mark them read."),
    "send": ("send:send", "Send a message."),
    "reply": ("reply:reply", "Answer a message."),
    "ack": ("ack:ack", "Say that you are done with messages."),
    "thread": ("thread:thread", "Show a whole conversation."),
    "search": ("search:search", "Find your mail by words."),
    "watch": ("watch:watch", "Wait until mail arrives that wakes you."),
    "sent": ("sent:sent", "See what became of the mail you sent."),
    "run": ("run:run", "Hold an identity while a command runs."),
    "owner init": ("owner:init", "Make the owner's key and tell the daemon of it."),
    "owner show": ("owner:show", "Show the owner's key and whether its file fits."),
    "owner passwd": ("owner:passwd", "Change the passphrase of the owner's key."),
    "owner export": ("owner:export", "Write a copy of the owner's key file."),
    "owner sign": ("owner:sign", "Sign a request that another command wrote."),
    "owner apply": ("owner:apply", "Bring a signed record to the daemon."),
    "owner rotate": ("owner:rotate", "Give the owner a new key."),
    "owner clock": ("owner:clock", "Say that the clock is right although it was set back."),
    "pair": ("pair:pair", "Invite another machine: show a code, then compare and sign."),
    "join": ("join:join", "Pair with a machine that shows a code."),
    "audit": ("audit:audit", "See what was done here, and whether the log of it is whole."),
    "setup": ("setup:setup", "Enter mbx into the agent CLIs of this machine, or take it out."),
    "mcp": ("mcp:mcp", "Speak MCP on standard input and output, for an agent CLI."),
    "hook": ("hook:hook", "Print what an agent CLI's hook says at an event; setup installs it."),
    "statusline": (
        "hook:statusline",
        "Print the status line of this process's session; setup installs it.",
    ),
    "guide": ("guide:guide", "Print how an agent works with its mailbox."),
    "daemon status": ("daemon:status", "Say whether the daemon runs; never starts it."),
    "daemon start": ("daemon:start", "Start the daemon in the background."),
    "daemon stop": ("daemon:stop", "Stop the daemon; nothing accepted is lost."),
    "daemon restart": ("daemon:restart", "Stop the daemon and start it again."),
    "daemon run": ("daemon:run", "Run the daemon in the foreground."),
    "daemon install": (
        "service:install",
        "Have systemd or launchd start the daemon with your session.",
    ),
    "daemon uninstall": ("service:uninstall", "Take away what `mbx daemon install` wrote."),
    "doctor": ("doctor:doctor", "Check this installation; name each fault and its remedy."),
    "diagnostics": (
        "diagnostics:diagnostics",
        "Show holder, lease, queue and receipts of one mailbox or session.",
    ),
    "completion": ("completion:completion", "Print the completion script for your shell."),
    "version": ("version:version", "Print the version."),
}
"""Command -> (module:attribute below `mbx.cli.commands`, one line of help).

A test holds the lines equal to the commands' own, so that the list needs no import."""

GROUPS: Final[Mapping[str, str]] = {
    "identity": "Identities: lasting named mailboxes, held by one session at a time.",
    "owner": "The human's key, and what only the human may sign.",
    "policy": "What mail of whom may make which agent do, by the owner's signature.",
    "peers": "Paired hosts: their links, what waits, the end of a pairing.",
    "daemon": "The daemon that owns the store; commands start it on demand.",
}
"""Group of commands -> one line of help."""

EPILOG: Final = """\b
Start with:
  mbx identity register NAME --role ROLE
  mbx send --to NAME --subject S -m BODY
  mbx inbox
  mbx read ID
  mbx ack ID --did "what you did"

\b
Completion for your shell (bash, zsh, fish):
  eval "$(mbx completion bash)"
"""
"""The end of `mbx --help`."""

COMPLETE_VARIABLE: Final = "_MBX_COMPLETE"
"""Set by the completion scripts: `mbx` then completes its last argument instead of running."""


class LazyGroup(click.Group):
    """A group that lists its commands from `COMMANDS` and imports only the one that is invoked.

    `path` is the group's own name with a blank behind it, empty for the root.
    """

    def __init__(self, name: str, path: str, **settings: object) -> None:
        super().__init__(name, context_settings=CONTEXT_SETTINGS, **settings)  # type: ignore[arg-type]
        self.path = path

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names directly below this group, in the order of the table."""
        below = (name[len(self.path) :] for name in COMMANDS if name.startswith(self.path))
        return list(dict.fromkeys(name.split(" ")[0] for name in below))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, its module imported now; None when there is none."""
        full = self.path + cmd_name
        if full in GROUPS:
            return LazyGroup(cmd_name, f"{full} ", help=GROUPS[full])
        if full not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[full][0].partition(":")
        found: click.Command = getattr(import_module(f"mbx.cli.commands.{module}"), attribute)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with names close to a mistyped one."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            from difflib import get_close_matches

            close = get_close_matches(name, self.list_commands(ctx))
            meant = f" Did you mean {' or '.join(close)}?" if close else ""
            raise click.UsageError(f"No such command {name!r}.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from the table alone."""
        rows = [(name, self.short_help_of(name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
        """The commands that begin as typed, from the table alone; options as click does."""
        from click.shell_completion import CompletionItem

        found = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=self.short_help_of(name)) for name in found]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def short_help_of(self, name: str) -> str:
        """The line of help of a command below this group."""
        full = self.path + name
        return GROUPS[full] if full in GROUPS else COMMANDS[full][1]


def _version(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from mbx import __version__

        click.echo(f"mbx {__version__}")
        context.exit()


mbx = LazyGroup(
    "mbx",
    "",
    help="A signed mailbox for the AI coding agents of this machine and those paired with it.",
    epilog=EPILOG,
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_version,
            help="Print the version.",
        )
    ],
)
"""The root command."""


def run(raw_arguments: Sequence[str]) -> int:
    """Run one command line; the exit status of the process. KeyboardInterrupt passes through."""
    output = Output(os.environ)
    session = Session(output, os.environ)
    try:
        _open_missing_streams()
        if COMPLETE_VARIABLE in os.environ:
            return _complete(raw_arguments, session)
        status = _invoke(raw_arguments, session)
        if sys.stdout is not None:
            sys.stdout.flush()  # the help texts of click
    except (ReaderGone, BrokenPipeError):
        return _end_quietly()
    except click.Abort:
        raise KeyboardInterrupt from None
    except OutputFailed as error:
        output.note(f"error: cannot write the output: {error}")
        return _end_quietly(1)
    except OSError as error:
        if error.filename is not None:
            raise
        output.note(f"error: cannot write the output: {error.strerror}")  # help, printed by click
        return _end_quietly(1)
    return status


def _invoke(raw_arguments: Sequence[str], session: Session) -> int:
    output = session.output
    try:
        arguments = _decoded(raw_arguments)
        with mbx.make_context("mbx", list(arguments), obj=session) as context:
            status: int = mbx.invoke(context)
            return status
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        output.as_json = output.as_json or _asks_for_json(raw_arguments)
        refusal = _usage(error)
        if isinstance(error, click.exceptions.NoArgsIsHelpError) and not output.as_json:
            output.note(error.format_message())  # its help, which teaches more than a refusal
            return refusal.exit_status
    except MbxError as error:
        output.as_json = output.as_json or _asks_for_json(raw_arguments)
        refusal = error
    try:
        output.error(refusal)
    except ReaderGone:
        return _end_quietly(refusal.exit_status)
    return refusal.exit_status


def _usage(error: click.ClickException) -> MbxError:
    """A click error as ours; its `next` is the help of the command that was meant."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context is not None else "mbx"
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        message = f"`{path}` needs a command"
    else:
        message = " ".join(error.format_message().split())
    return MbxError("usage", message, f"{path} --help")


def _decoded(arguments: Sequence[str]) -> list[str]:
    """The arguments as UTF-8 under any locale; a command behind `run … --` stays as it came.

    Raises MbxError `usage` naming the argument that is no UTF-8 and the offset in it.
    """
    texts: list[str] = []
    for number, argument in enumerate(arguments, start=1):
        if argument == "--" and "run" in arguments[:1]:
            return texts + list(arguments[number - 1 :])
        raw = os.fsencode(argument)
        try:
            texts.append(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise MbxError(
                "usage",
                f"argument {number} is not UTF-8: byte 0x{raw[error.start]:02x}"
                f" at offset {error.start}",
                "give it in UTF-8, or put the text into a file for --body-file",
            ) from None
    return texts


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether `--json` stands among the options, for errors that come before they are parsed."""
    options = list(arguments)
    return "--json" in options[: options.index("--") if "--" in options else None]


def _complete(words: Sequence[str], session: Session) -> int:
    from mbx.cli.completion.answer import complete

    return complete(mbx, words, session)


def _open_missing_streams() -> None:
    """Fill closed standard streams, so that no socket or file takes the number of one."""
    if sys.stdin is None or sys.stdout is None or sys.stderr is None:
        descriptor = os.open(os.devnull, os.O_RDWR)
        while descriptor < 2:
            descriptor = os.dup(descriptor)
        if descriptor > 2:
            os.close(descriptor)


def _end_quietly(status: int = 0) -> int:
    """Point standard output at nothing, so that the interpreter's last flush cannot fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    return status
