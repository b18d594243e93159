"""Who sits at the owner's terminal: tables over chains of ancestors, nearest first."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mbx.core import terminal
from mbx.core.evidence import HARNESSES, ProcessEntry, Unreadable
from mbx.core.terminal import Terminal, owners_terminal

PTS_0 = 34816
MBX = "python3 /usr/bin/mbx inbox --owner"
INIT = "/sbin/init"


def chain(*lines: str, tty: int = PTS_0) -> list[ProcessEntry | Unreadable]:
    """Processes 900, 899, …: `?` cannot be read, `` has no command line, `&` forked; init: pid 1.

    Only the caller has the terminal `tty`; those above it have none that counts.
    """
    entries: list[ProcessEntry | Unreadable] = []
    for place, line in enumerate(lines):
        pid = 1 if line in (INIT, "?1") else 900 - place
        argv = tuple(line.lstrip("&").split(" ")) if line else ()
        entry = ProcessEntry(pid, pid - 1, pid * 10, "comm", argv, line[:1] == "&")
        caller = replace(entry, tty=tty) if place == 0 else entry
        entries.append(Unreadable(pid) if line[:1] == "?" else caller)
    return entries


OWNERS = {
    "a shell in a terminal window": (MBX, "bash", "gnome-terminal-server", "systemd --user", INIT),
    "a login over ssh": (MBX, "-zsh", "sshd: me@pts/0", "sshd: me [priv]", "sshd -D", INIT),
    "a console": (MBX, "-bash", "login -- me", INIT),
    "tmux": (MBX, "bash", "tmux new-session -d", INIT),
    "su in a shell": (MBX, "-su", "su - me", "bash", "konsole", INIT),
    "below mbx run": (MBX, "bash", "python3 /usr/bin/mbx run --as api -- bash", "bash", INIT),
    "an editor on a file of that name": (MBX, "sh", "vim claude.md", "bash", INIT),
    "the shell is pid 1": (MBX, INIT),
    "pid 1 is closed to us": (MBX, "bash", "?1"),
    "pid 1 tells no program": (MBX, "bash", INIT),
}


@pytest.mark.parametrize("lines", OWNERS.values(), ids=OWNERS.keys())
def test_a_terminal_with_no_agent_cli_above_it_is_the_owners(lines: tuple[str, ...]) -> None:
    assert owners_terminal(chain(*lines)) == Terminal(True)


def test_pid_1_may_keep_its_program_to_itself() -> None:
    *below, top = chain(MBX, "bash", INIT)
    assert isinstance(top, ProcessEntry)
    assert owners_terminal([*below, replace(top, argv=())]).ok


BELOW_AN_AGENT = {
    "the caller itself": (("claude", "bash", INIT), "claude", 900),
    "its command": ((MBX, "bash", "claude", "bash", INIT), "claude", 898),
    "in a pty that it opened": ((MBX, "bash", "script -q", "sh", "codex", INIT), "codex", 896),
    "in a tmux that it started": ((MBX, "bash", "tmux new", "gemini", INIT), "gemini", 897),
    "through ssh to this host": ((MBX, "-sh", "sshd: me", "sshd -D", "kimi", INIT), "kimi", 896),
    "through su and sudo": ((MBX, "sh", "su me", "sudo su me", "opencode", INIT), "opencode", 896),
    "under cron": ((MBX, "sh", "CRON -f", "qwen", INIT), "qwen", 897),
    "a fork of it": ((MBX, "&copilot", "copilot", INIT), "copilot", 899),
    "a fork whose parent hides": ((MBX, "&claude", "?"), "claude", 899),
    "below mbx run": ((MBX, "sh", "claude", "mbx run --as a -- claude", INIT), "claude", 898),
    "mbx run below it": ((MBX, "sh", "mbx run --as a -- sh", "claude", INIT), "claude", 897),
    "above something that hides": ((MBX, "", "claude", INIT), "claude", 898),
    "node that runs it": ((MBX, "sh", "node /opt/claude-code/cli.js", INIT), "claude", 898),
}


@pytest.mark.parametrize(
    ("lines", "cli", "pid"), BELOW_AN_AGENT.values(), ids=BELOW_AN_AGENT.keys()
)
def test_below_an_agent_cli_nobody_is_the_owner_and_it_is_named(
    lines: tuple[str, ...], cli: str, pid: int
) -> None:
    for tty in (PTS_0, 0):
        found = owners_terminal(chain(*lines, tty=tty))
        where = "is the caller" if pid == 900 else "is above the caller"
        assert found == Terminal(False, f"the agent CLI {cli} (process {pid}) {where}")


def test_every_agent_cli_that_is_known_counts() -> None:
    names = [name for looks in HARNESSES.values() for name in looks.names]
    assert len(names) >= 7
    for name in names:
        assert not owners_terminal(chain(MBX, "bash", name, "bash", INIT)).ok


REFUSED = {
    "no process at all": ([], terminal.NO_PROCESS, True),
    "the caller cannot be read": (chain("?"), terminal.NO_PROCESS, True),
    "the caller is a pid 1 that cannot be read": (chain("?1"), terminal.NO_PROCESS, True),
    "cron": (chain(MBX, "sh", "CRON -f", INIT, tty=0), terminal.NO_TERMINAL, False),
    "setsid": (chain(MBX, "bash", INIT, tty=0), terminal.NO_TERMINAL, False),
    "no terminal below what hides": (chain(MBX, "?", tty=0), terminal.NO_TERMINAL, False),
    "an ancestor cannot be read": (chain(MBX, "bash", "?"), terminal.UNREADABLE, True),
    "an ancestor tells no program": (chain(MBX, "", INIT), terminal.UNREADABLE, True),
    "the caller tells no program": (chain("", INIT), terminal.UNREADABLE, True),
    "another pid namespace above": (chain(MBX, "bash"), terminal.OUT_OF_SIGHT, False),
    "too many ancestors": (
        [*chain(MBX, "bash"), Unreadable(1, is_too_far=True)],
        terminal.TOO_FAR,
        False,
    ),
}


@pytest.mark.parametrize(("entries", "reason", "unknown"), REFUSED.values(), ids=REFUSED.keys())
def test_unknown_is_not_a_yes_and_the_failed_condition_is_told(
    entries: list[ProcessEntry | Unreadable], reason: str, unknown: bool
) -> None:
    assert owners_terminal(entries) == Terminal(False, reason, unknown)


def test_the_chain_is_read_no_further_than_to_the_first_agent_cli() -> None:
    def entries() -> Iterator[ProcessEntry | Unreadable]:
        yield from chain(MBX, "claude")
        raise AssertionError("the parent of an agent CLI was read")

    assert not owners_terminal(entries()).ok


LINES = st.sampled_from(["bash", "tmux new", "sshd: me", "su", "mbx run -- sh", "sudo sh", ""])
AGENTS = st.sampled_from([name for looks in HARNESSES.values() for name in sorted(looks.names)])


@given(st.lists(LINES, max_size=8), st.lists(LINES, max_size=8), AGENTS)
def test_an_agent_cli_anywhere_in_a_chain_refuses_it(
    below: list[str], above: list[str], agent: str
) -> None:
    assert not owners_terminal(chain(MBX, *below, agent, *above, INIT)).ok
