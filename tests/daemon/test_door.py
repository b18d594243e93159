"""The socket file: there for as long as the daemon runs, and only ever its own."""

import asyncio
import shutil
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mbx.daemon.faces.door import Door
from tests.support.entries import entry_of


class Greeter(asyncio.Protocol):
    """Says one word to whoever comes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")
        transport.close()


class Place:
    """A door in a folder of its own, and what it logged."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path / "run" / "mbx.sock"
        self.path.parent.mkdir(mode=0o700)
        self.logged: list[str] = []
        self.door = Door(str(self.path), Greeter, lambda event, **facts: self.logged.append(event))

    async def greeting(self) -> bytes:
        reader, writer = await asyncio.open_unix_connection(self.path)
        word = await reader.read()
        writer.close()
        return word


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path)
    await made.door.open()
    yield made
    made.door.close()


async def test_a_socket_file_in_its_place_is_left_as_it_is(place: Place) -> None:
    before = entry_of(place.path)
    await place.door.look()
    assert entry_of(place.path).inode == before.inode
    assert before.permissions == 0o600
    assert (await place.greeting(), place.logged) == (b"hello", [])


@pytest.mark.parametrize("whole_folder", [False, True])
async def test_a_removed_socket_file_is_made_again_in_private(
    place: Place, whole_folder: bool
) -> None:
    if whole_folder:
        shutil.rmtree(place.path.parent)
    else:
        place.path.unlink()
    await place.door.look()
    assert await place.greeting() == b"hello"
    assert stat.S_IMODE(place.path.lstat().st_mode) == 0o600
    assert stat.S_IMODE(place.path.parent.lstat().st_mode) == 0o700
    assert len(place.logged) == 1


async def test_where_it_cannot_be_made_the_daemon_goes_on_and_tries_again(place: Place) -> None:
    shutil.rmtree(place.path.parent)
    place.path.parent.touch()
    await place.door.look()
    assert len(place.logged) == 2
    place.path.parent.unlink()
    await place.door.look()
    assert await place.greeting() == b"hello"


async def test_what_somebody_else_put_there_is_neither_replaced_nor_removed(place: Place) -> None:
    place.path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(place.path))
        inode = place.path.lstat().st_ino
        await place.door.look()
        place.door.remove()
        assert place.path.lstat().st_ino == inode


async def test_its_own_socket_file_is_removed_once(place: Place) -> None:
    place.door.remove()
    assert not place.path.exists()
    place.door.remove()
