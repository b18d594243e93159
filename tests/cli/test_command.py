"""How commands are declared."""

import click
import pytest

from mbx.cli.command import body_options, command
from mbx.cli.output import Output
from mbx.cli.session import Session


@command("probe", "Probe it.", examples="\n  mbx probe -m x\n  mbx probe -\n")
@click.argument("first")
@body_options
def probe(
    session: Session, first: str, message: str | None, body_file: str | None, dash: str | None
) -> int | None:
    """Probe FIRST.

    A second paragraph.
    """
    session.output.note(repr((first, message, body_file, dash, session.output.as_json)))
    return 7 if first == "seven" else None


def call(*arguments: str) -> int:
    session = Session(Output({}), {})
    with probe.make_context("probe", list(arguments), obj=session) as context:
        status: int = probe.invoke(context)
        return status


def test_the_functions_status_is_the_commands_and_none_is_zero(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert call("seven", "-m", "x") == 7
    assert call("x", "-") == 0
    assert capfd.readouterr().err == (
        "('seven', 'x', None, None, False)\n('x', None, None, '-', False)\n"
    )


def test_json_is_known_before_other_options_are_checked() -> None:
    session = Session(Output({}), {})
    with pytest.raises(click.UsageError):
        probe.make_context("probe", ["--json"], obj=session)
    assert session.output.as_json


def test_help_shows_the_paragraphs_and_the_examples_as_they_are() -> None:
    text = probe.get_help(click.Context(probe, info_name="probe"))
    assert "Probe FIRST.\n\n  A second paragraph.\n" in text
    assert text.endswith("Examples:\n  mbx probe -m x\n  mbx probe -")
    assert "Usage: probe [OPTIONS] FIRST [-]" in text
