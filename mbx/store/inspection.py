"""What doctor, tests and checks need of the store: nobody else can open the file."""

import hashlib
from typing import Final

from mbx.store.database import Tx

_STATE: Final = (
    "SELECT 'host', key_id, public_key, label, store_id FROM host",
    (
        "SELECT 'identity', no, peer_no, identity, name, role, description, project, created_ms,"
        " retired_ms, forward_no FROM identities ORDER BY no"
    ),
    "SELECT 'mailbox', identity_no, unread FROM mailboxes ORDER BY identity_no",
    (
        "SELECT 'session', no, cli, conversation, pid, start_ticks, boot_id, identity_no, epoch"
        " FROM sessions WHERE identity_no IS NOT NULL ORDER BY no"
    ),
    (
        "SELECT 'lease', identity_no, epoch, state, session_no, since_ms FROM leases"
        " ORDER BY identity_no"
    ),
    "SELECT 'message', no, digest, signature, payload FROM messages ORDER BY no",
    (
        "SELECT 'delivery', recipient_no, message_no, stage, stage_ms, epoch, outcome, did, note,"
        " error"
        " FROM deliveries ORDER BY recipient_no, message_no"
    ),
    "SELECT 'receipt', no, record_id, payload, signature FROM receipts ORDER BY no",
    "SELECT 'answer', scope, key, request, answer FROM answers ORDER BY scope, key",
    "SELECT 'audit', no, hash FROM audit ORDER BY no",
    (
        "SELECT 'peer', no, key_id, certificate, label, addresses, record_id, version, ended_ms"
        " FROM peers ORDER BY no"
    ),
    "SELECT 'owner', key_id, public_key, since_ms, until_version FROM owner_keys ORDER BY no",
    (
        "SELECT 'record', kind, record_id, version, payload, signatures, applied_ms, acceptance"
        " FROM owner_records ORDER BY no"
    ),
    (
        "SELECT 'exposure', cli, session_id, source_no, root_ms, hop, hop_limit, read_ms"
        " FROM exposures ORDER BY cli, session_id, source_no"
    ),
    (
        "SELECT 'kin', ancestor, process, cli, session_id, is_agent FROM kin"
        " ORDER BY ancestor, process, cli, session_id"
    ),
)
"""Everything a refused call must leave alone.

Not tokens, last-seen, counters, renewals, the index, wakes, sessions that hold nothing.
"""


def state_hash(tx: Tx) -> str:
    """SHA-256 over the state, 64 hexadecimal digits. Reads every row: on request only."""
    digest = hashlib.sha256()
    for query in _STATE:
        for row in tx.each(query):
            digest.update(repr(row).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()
