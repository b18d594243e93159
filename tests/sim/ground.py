"""What every run starts from: a host with its key, and the pages of its empty store."""

import atexit
import contextlib
import functools
import hashlib
import os
import tempfile
from dataclasses import dataclass

from mbx.core.keys import crockford, key_id
from mbx.daemon import keystore
from mbx.daemon.journal import Journal
from mbx.paths import Paths
from mbx.store import audit, hosts
from mbx.store.database import Tx, run_group
from mbx.store.hosts import HostRow
from mbx.store.migrate import open_store
from tests.sim.clients import HOST


@dataclass(frozen=True)
class Ground:
    """Places (only the host key and the floor are really there) and a store that belongs to it."""

    paths: Paths
    pages: bytes
    journal: Journal

    def forget_floor(self) -> None:
        """No second place is left of the run before: one run at a time."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.paths.floor_path())


@functools.cache
def ground() -> Ground:
    """Made once a process; the key is the same for ever, so that traces are."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # its syncs cost nothing
    folder = tempfile.TemporaryDirectory(prefix="mbx-sim-", dir=memory)
    atexit.register(folder.cleanup)
    paths = Paths(folder.name, os.path.join(folder.name, "run"))
    seed = hashlib.sha256(b"the simulated host").digest()
    key = keystore.load_or_create(paths.host_key_path(), seed, must_exist=False)
    own_id = key_id(keystore.ROLE, key.public)

    def settle(tx: Tx) -> None:
        hosts.create(tx, HostRow(own_id, key.public, HOST, crockford(seed)), 0)
        audit.append(tx, at_ms=0, act="host", identity=None, key_id=own_id)

    connection = open_store(":memory:")
    run_group(connection, [settle])
    pages = connection.serialize()
    connection.close()
    return Ground(paths, pages, Journal(paths.log_path(), lambda: 0))
