"""Steps of errors are told in the words of tools."""

import pytest

from mbx.mcp.next_steps import for_tools

STEPS = [
    ("mbx inbox", "mbx_inbox"),
    ("mbx inbox --all", "mbx_inbox with all true"),
    ("mbx identity list", 'mbx_identity with action "list"'),
    ("mbx identity list --all", 'mbx_identity with action "list", all true'),
    ("mbx identity show ana", 'mbx_identity with action "list"'),
    ("mbx identity claim ana", 'mbx_identity with action "claim", name "ana"'),
    (
        "mbx identity claim NAME, or mbx identity register NAME --role ROLE",
        (
            'mbx_identity with action "claim", name "NAME", or mbx_identity with action "register",'
            ' name "NAME", role "ROLE"'
        ),
    ),
    (
        "mbx identity release, or mbx run --as ana -- COMMAND",
        'mbx_identity with action "release", or mbx run --as ana -- COMMAND',
    ),
    ("tell the owner: mbx send --to owner; or wait an hour", None),
    ("mbx reply abcdef without --final", 'mbx_reply with id "abcdef", without final'),
    ("mbx agents", "mbx_agents"),
    ("split it, or say with --ref where it is", "split it, or say with refs where it is"),
    ("the human reads it at a terminal: mbx inbox --owner", ""),
    ("mbx daemon restart", ""),
    ("mbx peers remove lap, then pair again", ""),
    ("mbx policy list", ""),
]


@pytest.mark.parametrize(("step", "wanted"), STEPS)
def test_a_step_names_the_tool_where_there_is_one(step: str, wanted: str | None) -> None:
    if wanted is None:
        wanted = 'tell the owner: mbx_send with to "owner"; or wait an hour'
    assert for_tools(step) == (wanted or step)
