"""A paired host for recordings: a row in the store of a daemon that does not run."""

from pathlib import Path

from mbx.core.keys import SigningKey, crockford, key_id
from mbx.daemon import certificates
from mbx.paths import Paths
from mbx.store import hosts, outbox, peers
from mbx.store.database import Committed, Tx, run_group
from mbx.store.migrate import open_store
from mbx.store.peers import NewPeer


def plant_peer(home: Path, seed: bytes, now_ms: int) -> None:
    """A host called laptop, of which no address is known, so that nobody dials it."""
    key, paths = SigningKey.from_seed(seed), Paths(str(home), str(home / "run"))

    def unit(tx: Tx) -> None:
        host = hosts.find(tx)
        assert host is not None
        certificates.load_or_create(paths.tls_key_path(), seed, host.key_id, must_exist=False)
        peer = NewPeer(
            key_id("host", key.public),
            key.public,
            seed,
            "laptop",
            "anas-laptop",
            (),
            None,
            crockford(seed[::-1]),
            1,
        )
        no = peers.add(tx, peer, now_ms)
        outbox.begin(tx, no, crockford(seed))
        peers.seen(tx, no, now_ms)

    connection = open_store(paths.store_path())
    try:
        outcome = run_group(connection, [unit])[0]
    finally:
        connection.close()
    assert isinstance(outcome, Committed), outcome
