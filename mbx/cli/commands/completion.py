"""`mbx completion`."""

import click

from mbx.cli.command import command, completed
from mbx.cli.session import Session
from mbx.core.errors import MbxError


@command(
    "completion",
    "Print the completion script for your shell.",
    examples="""
    eval "$(mbx completion bash)"
    eval "$(mbx completion zsh)"
    mbx completion fish | source
    """,
)
@click.argument("shell", metavar="bash|zsh|fish", shell_complete=completed("shells"))
def completion(session: Session, shell: str) -> None:
    """Print the script that completes commands, options, names, roles and ids of messages.

    Put the line of your shell into its start file. Completing starts no daemon; without one only
    commands and options are completed.
    """
    from mbx.cli.completion.scripts import SCRIPTS

    if shell not in SCRIPTS:
        raise MbxError("usage", f"no completion for {shell!r}", "mbx completion bash|zsh|fish")
    if session.output.as_json:
        session.output.document({"shell": shell, "script": SCRIPTS[shell]})
    else:
        session.output.raw(SCRIPTS[shell].encode("ascii"))
