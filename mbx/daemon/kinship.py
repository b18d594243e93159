"""Kin in the daemon: kept when a session is about to hold something, asked for when it writes.

The walk upwards is made once for each process that is granted anything, never for a send or a read;
what it found is in the store, so that neither the end of an ancestor nor a restart changes it.
"""

from collections.abc import Callable

from mbx.core.errors import MbxError
from mbx.core.evidence import Process
from mbx.core.exposure import Exposure
from mbx.core.kinship import Above
from mbx.core.terminal import TOO_FAR
from mbx.daemon.authority import Authority
from mbx.store import exposures, kin
from mbx.store.bindings import Binding
from mbx.store.database import Tx
from mbx.store.sessions import SessionRow

See = Callable[[Process], Above]
"""Tells what stands above a process now."""


def nobody(process: Process) -> Above:
    """Where no process is looked at: nothing is above anybody."""
    return Above()


def settle(tx: Tx, see: See, session: SessionRow, now_ms: int) -> None:
    """Know what stands above a session, before it may read or write anything.

    Raises MbxError no-lease where too much does: whoever is far up could not be found.
    """
    heard = kin.read(tx, session.no, now_ms) if kin.comes(tx, session) else []
    if not kin.called(tx, session, now_ms) or kin.is_unseen(tx, session.no):
        above = see(session.process)
        if above.end is not None and above.end.is_too_far:
            told = f"no session was found that could hold an identity: {TOO_FAR}"
            raise MbxError("no-lease", told)
        kin.place(tx, session, above.ancestors, now_ms, unseen=above.end is not None)
    kin.bring(tx, session, heard, now_ms)


def read_by_kin(tx: Tx, authority: Authority, own: Binding, now_ms: int) -> list[Exposure]:
    """What others read within the hour that may stand in what this session writes.

    Where it is not known whom it runs below: what anybody read.
    """
    if kin.is_unseen(tx, own.session_no):
        return [*kin.read_by_all(tx, now_ms), *authority.glimpses.of_all()]
    conversations = kin.conversations(tx, own.session_no)
    if not conversations:
        return []
    read = kin.read(tx, own.session_no, now_ms)
    for cli, session_id in conversations:
        read += authority.glimpses.of(cli, session_id)
    return read


def read_by(tx: Tx, authority: Authority, own: Binding) -> list[Exposure]:
    """What the conversation itself read lately."""
    glimpsed = authority.glimpses.of(own.cli, own.session_id)
    return [*exposures.of_session(tx, own.cli, own.session_id), *glimpsed]
