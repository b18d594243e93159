"""Each query on the way of a message finds its rows by the index that was made for it.

Without a hint SQLite may walk a whole mailbox; that shows only in stores nobody has on the first
day.
"""

import pytest

from mbx.store import (
    bindings,
    exposures,
    forwards,
    history,
    identities,
    kin,
    leases,
    messages,
    outbox,
    owners,
    peers,
    search,
    unread,
    wakes,
)
from mbx.store.migrate import open_store

WHOLE_WALKS = (
    "SCAN d",
    "SCAN m",
    "SCAN i",
    "SCAN s ",
    "SCAN l",
    "SCAN mine",
    "SCAN theirs",
    "SCAN exposures",
    "SCAN deliveries",
    "SCAN messages",
)

QUERIES = {
    "open page": (messages._OPEN_PAGE, "deliveries_open"),
    "whole page": (messages._WHOLE_PAGE, "USING PRIMARY KEY (recipient_no=? AND message_no>?"),
    "end of an open page": (messages._OPEN_BEHIND, "deliveries_open"),
    "end of a whole page": (messages._WHOLE_BEHIND, "PRIMARY KEY (recipient_no=? AND message_no>?"),
    "words of copies": (search._ROWS, "deliveries_by_message"),
    "weight of a batch": (search._WEIGHTS, "deliveries_by_message"),
    "received": (messages._RECEIVED, "messages_by_id"),
    "sent page": (messages._SENT_PAGE, "messages_by_sender"),
    "sent one": (messages._SENT_ONE, "messages_by_id"),
    "copies": (messages._COPIES, "deliveries_by_message"),
    "thread": (history._OF_THREAD, "messages_by_thread"),
    "thread's first message": (history._OF_THREAD, "messages_by_id"),
    "own message": (history._ONE, "messages_by_id"),
    "of whom a receipt tells": (messages._COPY_STATED, "messages_by_id"),
    "its copy": (messages._COPY_STATED, "PRIMARY KEY (recipient_no=? AND message_no=?)"),
    "copies handed over": (messages._HANDED_OVER, "deliveries_by_message"),
    "what was handed over": (messages._HANDED_OVER, "PRIMARY KEY (peer_no=? AND seq>?"),
    "whom a sender reached": (messages._REACHED, "messages_by_sender"),
    "their copies": (messages._REACHED, "deliveries_by_message"),
    "exposures": (exposures._OF_SESSION, "PRIMARY KEY (cli=? AND session_id=?)"),
    "one exposure": (exposures._ONE, "PRIMARY KEY (cli=? AND session_id=? AND source_no=?)"),
    "exposures of a clock ahead": (exposures._AHEAD, "exposures_by_age"),
    "old exposures": (exposures._OLD, "exposures_by_age"),
    "what stands above": (kin._CONVERSATIONS, "kin_by_process (process=? AND counts=?)"),
    "where it was before": (kin._CONVERSATIONS, "kin_by_label"),
    "who else is below that": (kin._CONVERSATIONS, "PRIMARY KEY (ancestor=?)"),
    "what kin read": (kin._READ, "e USING PRIMARY KEY (cli=? AND session_id=?)"),
    "what anybody read": (kin._READ_BY_ALL, "exposures_by_age"),
    "whether all is seen above": (kin._IS_UNSEEN, "kin_by_process"),
    "a label of a process": (kin._CALLED, "kin_by_process"),
    "what counts from now on": (kin._COUNTS, "PRIMARY KEY (ancestor=?)"),
    "an owner record": (owners._BY_ID, "sqlite_autoindex_owner_records_1"),
    "search": (history._FOUND, "VIRTUAL TABLE"),
    "gate by process": (bindings._BY_PROCESS, "sqlite_autoindex_sessions_1"),
    "gate by token": (bindings._BY_TOKEN, "PRIMARY KEY (hash=?)"),
    "mail to hand on": (forwards._OPEN, "deliveries_open"),
    "whether mail is open": (forwards._HAS_OPEN, "deliveries_open"),
    "recipient": (leases._BY_NAME, "identities_by_name"),
    "identity by id": (identities._BY_ID, "identities_by_id"),
    "identity by skeleton": (identities._BY_SKELETON, "identities_by_skeleton"),
    "identity of a peer": (peers._OF_PEER, "identities_of_peers"),
    "name on a peer": (peers._NAMED, "identities_of_peers_by_name"),
    "newest unread": (unread._NEWEST, "deliveries_open"),
    "places of a stream": (outbox._PLACES, "PRIMARY KEY (peer_no=? AND seq>?)"),
    "mail announced to nobody": (wakes._WAITING, "deliveries_unannounced"),
    "wakes of a mailbox": (wakes._NEWEST, "wakes_of_identity"),
    "messages never offered": (outbox._NEVER_OFFERED, "PRIMARY KEY (peer_no=? AND seq>?)"),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_uses_its_index_and_walks_no_table(name: str) -> None:
    query, index = QUERIES[name]
    connection = open_store(":memory:")
    explained = connection.execute(f"EXPLAIN QUERY PLAN {query}", [1] * _wanted(query))
    plan = [row[3] for row in explained]
    connection.close()
    assert any(index in step for step in plan), plan
    walks = [step for step in plan if step.startswith(WHOLE_WALKS) and "VIRTUAL" not in step]
    assert walks == []


def _wanted(query: str) -> int:
    """How many parameters a query has, numbered or not."""
    numbered = [n for n in range(1, 12) if f"?{n}" in query]
    return max(numbered) if numbered else query.count("?")
