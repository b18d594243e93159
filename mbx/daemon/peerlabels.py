"""A paired host by the label that the owner gave it, and the refusal of a label that none has."""

from mbx.core import names
from mbx.core.errors import MbxError
from mbx.store import peers
from mbx.store.database import Tx
from mbx.store.peers import PeerRow


def standing(tx: Tx, label: str) -> PeerRow:
    """The pairing that stands with the host of this label. Raises MbxError not-paired."""
    peer = peers.by_label(tx, label)
    if peer is None:
        raise unknown(tx, label)
    return peer


def listed(tx: Tx) -> list[PeerRow]:
    """The pairings that stand, and those that only the other host has ended."""
    return [row for row in peers.everything(tx) if is_listed(tx, row)]


def is_listed(tx: Tx, row: PeerRow) -> bool:
    """Whether a pairing is among the `listed` ones."""
    return row.ended_ms is None or (row.ended_by == "peer" and peers.is_latest(tx, row))


def unknown(tx: Tx, label: str) -> MbxError:
    """The refusal of a label that no paired host has, with the labels close to it."""
    former = peers.called(tx, label)
    if former is not None:
        words = f"{label} is not paired with this host any more"
        return MbxError("not-paired", words, "mbx peers list --all")
    close = names.suggest(label, [row.label for row in listed(tx)])
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return MbxError(
        "not-paired", f"no paired host is called {label}{hint}", "mbx peers list", suggestions=close
    )
