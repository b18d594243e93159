"""Rows of the chains that are drafted on other hosts of the same owner: where each begins and ends.

The records themselves lie with all that the owner ever signed (`mbx.store.owners`).
"""

from typing import Final, NamedTuple

from mbx.store.database import Tx

_COLUMNS: Final = (
    "SELECT f.chain, f.first_version, f.ended_version,"
    " (SELECT p.label FROM peers AS p WHERE p.key_id = f.chain ORDER BY p.no DESC LIMIT 1)"
    " FROM followed_chains AS f"
)
_ALL: Final = _COLUMNS + " ORDER BY f.chain"
_ONE: Final = _COLUMNS + " WHERE f.chain = ?"


class FollowedRow(NamedTuple):
    """One chain; see the migrations for what each column says. `label`: ours for its host."""

    chain: str
    first_version: int
    ended_version: int
    label: str


def everything(tx: Tx) -> list[FollowedRow]:
    """Every chain that is, or was, followed."""
    return [FollowedRow(*row) for row in tx.all(_ALL)]


def find(tx: Tx, chain: str) -> FollowedRow | None:
    """The chain of the host with this key id, if anything of it came."""
    row = tx.one(_ONE, (chain,))
    return FollowedRow(*row) if row else None


def extend(tx: Tx, chain: str, version: int) -> None:
    """A record of the chain is kept; the first one is where our knowledge begins."""
    tx.run(
        "INSERT INTO followed_chains (chain, first_version, version) VALUES (?1, ?2, ?2)"
        " ON CONFLICT (chain) DO UPDATE SET version = ?2 WHERE version < ?2",
        (chain, version),
    )


def end(tx: Tx, chain: str) -> None:
    """The pairing with the host is over, so that nobody tells what is taken back any more.

    What came of its chain so far grants nothing again, also not after another pairing; what it took
    back stays so.
    """
    tx.run("UPDATE followed_chains SET ended_version = version WHERE chain = ?", (chain,))
