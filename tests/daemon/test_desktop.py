"""Notices on the desktop of a session: by a real command, and never by what an address starts."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mbx.daemon.holders import Target
from mbx.daemon.wakes import Seen, Told
from mbx.daemon.wakes.desktop import COMMAND, Desktop
from tests.support.children import process_of, sleeper

TEXT = "mbx: 2 messages wait for ben; call mbx_inbox"
BUS = "unix:path=/run/user/0/bus"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the command, which keeps its words and its bus."""
    command = tmp_path / COMMAND
    command.write_text(
        f"""#!/bin/sh
for word; do printf '%s\\n' "$word"; done >{tmp_path}/words
printf '%s' "$DBUS_SESSION_BUS_ADDRESS" >{tmp_path}/bus
exit "$(cat {tmp_path}/status)"
"""
    )
    command.chmod(0o700)
    (tmp_path / "status").write_text("0")
    return tmp_path


@contextmanager
def session(folder: Path, **variables: str) -> Iterator[Target]:
    """A process with this environment, as the holder of a mailbox."""
    environment = {"PATH": f"{folder}:{os.defpath}", **variables}
    with sleeper(env=environment) as child:
        yield Target(7, 1, 1, "gemini", "s", process_of(child.pid), "")


async def test_a_person_is_shown_a_count_and_a_name(folder: Path) -> None:
    with session(folder, DISPLAY=":0", DBUS_SESSION_BUS_ADDRESS=BUS) as target:
        assert Desktop().look(target) == Seen("ready")
        told = await Desktop().wake(target, TEXT, lambda: True)
    assert told == Told("unknown", "a notice was shown on the desktop")
    assert (folder / "words").read_text().splitlines() == [
        "--app-name=mbx",
        "--",
        "mbx",
        "2 messages wait for ben; its agent hears of it at your next prompt",
    ]
    assert (folder / "bus").read_text() == BUS


@pytest.mark.parametrize(
    "variables",
    [
        {"DBUS_SESSION_BUS_ADDRESS": BUS},
        {"DISPLAY": "", "DBUS_SESSION_BUS_ADDRESS": BUS},
        {"WAYLAND_DISPLAY": "wayland-0", "DBUS_SESSION_BUS_ADDRESS": BUS, "PATH": "/nowhere"},
    ],
)
async def test_where_no_desktop_is_nothing_is_shown(
    folder: Path, variables: dict[str, str]
) -> None:
    with session(folder, **variables) as target:
        assert Desktop().look(target).status == "none"
        assert (await Desktop().wake(target, TEXT, lambda: True)).outcome == "failed"
    assert not (folder / "words").exists()


@pytest.mark.parametrize(
    "address",
    [
        "unixexec:path=/bin/sh,argv1=-c,argv2=date",
        "tcp:host=10.0.0.1,port=1",
        "unix:path=/run/x;unixexec:path=/bin/sh",
        "autolaunch:",
        "",
    ],
)
async def test_an_address_that_starts_a_program_or_leads_away_is_never_used(
    folder: Path, address: str
) -> None:
    with session(folder, DISPLAY=":0", DBUS_SESSION_BUS_ADDRESS=address) as target:
        told = await Desktop().wake(target, TEXT, lambda: True)
    used = folder / "bus"
    if told.outcome == "unknown":
        assert used.read_text() == f"unix:path=/run/user/{os.geteuid()}/bus"
    else:
        assert not used.exists()


async def test_a_desktop_that_refuses_has_shown_nothing(folder: Path) -> None:
    (folder / "status").write_text("1")
    with session(folder, DISPLAY=":0", DBUS_SESSION_BUS_ADDRESS=BUS) as target:
        told = await Desktop().wake(target, TEXT, lambda: True)
        assert told == Told("failed", "the desktop did not show a notice")
        (folder / "words").unlink()
        told = await Desktop().wake(target, TEXT, lambda: False)
        assert told.outcome == "failed"
    assert not (folder / "words").exists()
