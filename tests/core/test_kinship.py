"""What stands above a process: tables over chains of entries, nearest first."""

import pytest

from mbx.core.evidence import Process, ProcessEntry, Unreadable
from mbx.core.kinship import Above, above

BOOT = "boot"
SELF = Process(900, 9000, BOOT)
MBX = "python3 /usr/bin/mbx run --as x -- sh"


def chain(*lines: str) -> list[ProcessEntry | Unreadable]:
    """Processes 900, 899, …: `?` cannot be read, `` tells no program; init is pid 1."""
    entries: list[ProcessEntry | Unreadable] = []
    for place, line in enumerate(lines):
        pid = 1 if line in ("init", "?1") else 900 - place
        argv = tuple(line.split(" ")) if line else ()
        entry = ProcessEntry(pid, pid - 1, pid * 10, "comm", argv)
        entries.append(Unreadable(pid) if line[:1] == "?" else entry)
    return entries


def agents(*lines: str) -> list[int]:
    """The places above (1: the parent) at which an agent CLI or a run was found."""
    found = above(chain(*lines), SELF)
    assert found.end is None
    return [place for place, one in enumerate(found.ancestors, 1) if one.is_agent]


@pytest.mark.parametrize(
    ("lines", "places"),
    [
        ((MBX, "bash", "tmux", "init"), []),
        ((MBX, "bash", "claude", "bash", "init"), [2]),
        ((MBX, "sh", "claude", "bash", MBX, "bash", "init"), [2, 4]),
        (("codex exec x", "bash", "claude", "init"), [2]),
        (("codex", "node /usr/bin/codex", "claude", "init"), [1, 2]),
        ((MBX, "sh", "su me", "sudo su me", "bash", "opencode serve", "init"), [5]),
        ((MBX, "bash", "tmux -D", "sh", "gemini", "init"), [4]),
        ((MBX, "sh", "sshd: me", "sshd -D", "kimi", "init"), [4]),
        ((MBX, "CRON -f", "init"), []),
        ((MBX, "node /opt/claude-code/cli.js", "init"), [1]),
        ((MBX, "", "init"), [1]),
        ((MBX, ""), [1]),
        ((MBX, "vim claude.md", "bash", "init"), []),
    ],
)
def test_each_agent_cli_and_each_run_above_counts_whatever_lies_between(
    lines: tuple[str, ...], places: list[int]
) -> None:
    assert agents(*lines) == places


def test_shells_and_other_programs_are_kept_too_since_they_may_be_sessions() -> None:
    found = above(chain(MBX, "bash", "python3 agent.py", "init"), SELF)
    assert [one.process for one in found.ancestors] == [
        Process(899, 8990, BOOT),
        Process(898, 8980, BOOT),
        Process(1, 10, BOOT),
    ]


def test_pid_1_may_be_closed_to_us() -> None:
    found = above(chain(MBX, "claude", "?1"), SELF)
    assert (found.end, len(found.ancestors)) == (None, 1)


@pytest.mark.parametrize("lines", [(MBX, "?"), (MBX, "bash", "?"), ("?",), ("?1",)])
def test_what_cannot_be_read_is_told(lines: tuple[str, ...]) -> None:
    assert isinstance(above(chain(*lines), SELF).end, Unreadable)


def test_too_many_ancestors_are_told() -> None:
    many = [*chain(MBX, *["sh"] * 256), Unreadable(643, is_too_far=True)]
    end = above(many, SELF).end
    assert end is not None
    assert end.is_too_far


def test_another_process_of_the_same_number_tells_nothing() -> None:
    other = Process(900, 9001, BOOT)
    assert above(chain(MBX, "claude", "init"), other) == Above(end=Unreadable(900))
    assert above([], SELF) == Above()
