"""TOML edits: tables of ours go in and out to the byte; what is laid out otherwise still works."""

import tomllib
from typing import Any

import pytest

from mbx.setup.steps import Append, Put, Refused, Remove, carried_out
from mbx.setup.tomltext import Toml

ENTRY = {"command": "/opt/my mbx/mbx", "args": ["mcp"], "env": {"MBX_HOME": 'a "b" \\c'}}
PUT = Put(("mcp_servers", "mbx"), ENTRY)
TAKE = Remove(("mcp_servers", "mbx"))
HOOK = {"event": "Stop", "command": 'sh "/x/bin/hook.sh" kimi Stop', "timeout": 5}

SHAPES = {
    "empty": "",
    "one line": 'model = "m"\n',
    "no final newline": 'model = "m"',
    "comment at the end": 'model = "m"\n# that is all',
    "blank lines at the end": 'model = "m"\n\n\n',
    "CRLF": 'model = "m"\r\n\r\n[a]\r\nb = 1\r\n',
    "BOM": '\ufeffmodel = "m"\n',
    "other servers": '[mcp_servers.other]\ncommand = "x"\n\n[mcp_servers.other.env]\nA = "1"\n',
    "dotted keys": 'mcp_servers.other.command = "x"\n\n[z]\n',
    "dotted table": "[mcp_servers]\nother.command = 'x' # why not\n",
    "inline table": "mcp_servers = { other = { command = 'x' } } # one line\nz = 1\n",
    "arrays of tables": "[[a]]\nb = 1\n[[a.c]]\nd = 2\n[[a]]\nb = 3\n",
    "nested arrays": "a = [[1, 2,], ['x', [[]]],\n  # in between\n]\n",
    "tables out of order": "[a.b]\nc = 1\n[d]\n[a]\ne = 2\n",
    "a text that looks like ours": "t = '''\n[mcp_servers.mbx]\ncommand = 1\n'''\n",
    "tabs and odd blanks": "a\t=\t1\n[ mcp_servers . other ]\n\tcommand\t=   'x'\n",
    "special numbers": "a = nan\nb = -inf\nc = 1979-05-27T07:32:00Z\nd = 0x_ff\n".replace(
        "0x_", "0x"
    ),
}


def plain(value: Any) -> Any:
    """Comparable: NaN is unequal to itself."""
    return repr(value)


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES)
def test_a_table_goes_in_and_out_and_the_same_bytes_are_there(text: str) -> None:
    before = tomllib.loads(text.removeprefix("\ufeff"))
    added = carried_out(Toml(), text, [PUT])
    data = tomllib.loads(added.removeprefix("\ufeff"))
    assert data["mcp_servers"].pop("mbx") == ENTRY
    if "mcp_servers" not in before:
        del data["mcp_servers"]
    assert plain(data) == plain(before)
    assert carried_out(Toml(), added, [TAKE]) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a = 1\n",
        "a = 1",
        "hooks = [] # none\n",
        "hooks = [{ event = 'Stop', command = 'mine' }]\n",
        "[[hooks]]\nevent = 'Stop'\ncommand = 'mine'\n\n[other]\n",
        "[[hooks]]\r\nevent = 'Stop'\r\n",
        "[[hooks]]\nevent = 'Stop'\n# mine\n\n[[hooks]]\nevent = 'Start'",
    ],
)
def test_a_table_of_an_array_goes_in_and_out_beside_those_of_people(text: str) -> None:
    before = tomllib.loads(text).get("hooks", [])
    added = carried_out(Toml(), text, [Append(("hooks",), HOOK)])
    assert tomllib.loads(added)["hooks"] == [*before, HOOK]
    assert carried_out(Toml(), added, [Remove(("hooks", len(before)))]) == text


def test_lines_end_as_those_around_them() -> None:
    added = carried_out(Toml(), SHAPES["CRLF"], [PUT])
    assert added.count("\r\n") == added.count("\n")


def test_what_stands_behind_our_table_stays_when_it_goes() -> None:
    text = carried_out(Toml(), "a = 1\n", [PUT]) + "\n# trusted\n[hooks.state.x]\nhash = 'h'\n"
    left = carried_out(Toml(), text, [TAKE])
    assert left == "a = 1\n\n# trusted\n[hooks.state.x]\nhash = 'h'\n"


def test_a_remark_goes_to_the_end_of_its_line_whatever_it_holds() -> None:
    note = "\n# a\u2028b\x85[mcp_servers.mbx]\n"
    assert (
        carried_out(Toml(), carried_out(Toml(), "a = 1\n", [PUT]) + note, [TAKE])
        == "a = 1\n" + note
    )


def test_a_value_of_our_table_changes_and_remarks_of_people_stay() -> None:
    text = '[mcp_servers.mbx] # ours\ncommand = "/old" # why\nargs = ["mcp"]\ntimeout = 9\n'
    new = carried_out(Toml(), text, [Put(("mcp_servers", "mbx", "command"), "/new")])
    assert new == text.replace("/old", "/new")


def test_a_table_with_tables_below_it_goes_as_a_whole() -> None:
    text = "[mcp_servers.mbx]\ncommand = 'x'\n[mcp_servers.mbx.env]\nA = '1'\n[z]\nb = 1\n"
    assert tomllib.loads(carried_out(Toml(), text, [TAKE])) == {"z": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = \n", "at line 1, column 5"),
        ("a = 1\na = 2\n", "at line 2"),
        ("[a]\n[a]\n", "at line 2"),
        ("mcp_servers = 1\n", "mcp_servers is not an object"),
        ("[[mcp_servers]]\n", "mcp_servers is not an object"),
        ("x = " + "[" * 100_000, "more levels"),
    ],
    ids=["no value", "key twice", "table twice", "a number", "an array", "depth"],
)
def test_what_cannot_be_read_for_sure_is_refused(text: str, words: str) -> None:
    with pytest.raises(Refused) as refused:
        carried_out(Toml(), text, [PUT])
    assert words in str(refused.value)
