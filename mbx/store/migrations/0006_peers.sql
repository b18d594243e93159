-- Paired hosts: who they are, their identities, the streams between them and us, the outbox.

-- Where this host listens for others: canonical JSON, a list of host:port; null: nowhere.
ALTER TABLE host ADD COLUMN listen TEXT;

-- A row for each pairing; one that ended stays, remembered. certificate: the DER of its TLS
-- certificate, whose SHA-256 the owner's record pins. label: ours for it; told_label: its own.
-- addresses: canonical JSON, a list of host:port, by our owner; told_addresses: likewise, by the
-- host itself over its link. own_addresses: what it was last told of ours. owner_key: the key id of
-- its owner, as the pairing told. ended_by: 'us' or 'peer'.
CREATE TABLE peers (
    no INTEGER PRIMARY KEY,
    key_id TEXT NOT NULL CHECK (length(key_id) = 26),
    public_key BLOB NOT NULL CHECK (length(public_key) = 32),
    certificate BLOB NOT NULL CHECK (length(certificate) BETWEEN 1 AND 1024),
    label TEXT NOT NULL,
    told_label TEXT NOT NULL,
    addresses TEXT NOT NULL,
    told_addresses TEXT NOT NULL DEFAULT '[]',
    own_addresses TEXT NOT NULL DEFAULT '[]',
    owner_key TEXT,
    record_id TEXT NOT NULL CHECK (length(record_id) = 26),
    version INTEGER NOT NULL CHECK (version >= 1),
    paired_ms INTEGER NOT NULL,
    seen_ms INTEGER,
    ended_ms INTEGER,
    ended_by TEXT CHECK (ended_by IN ('us', 'peer')),
    CHECK ((ended_ms IS NULL) = (ended_by IS NULL))
) STRICT;

CREATE UNIQUE INDEX peers_by_key ON peers (key_id) WHERE ended_ms IS NULL;
CREATE UNIQUE INDEX peers_by_label ON peers (label) WHERE ended_ms IS NULL;

-- One row for each pairing. The running head is SHA-256(head before + digest of the record).
-- offered_seq: the last place that was ever handed to a link. acked_seq: the last one that the peer
-- committed. queued_*: messages not yet acknowledged. in_stream (the peer's stream) and in_store (its
-- store) are null until its first hello. lag_ms: how long after it was signed, by the clocks of the
-- two hosts, the last record came. stopped: why nothing goes on (a rollback, a fork), null
-- while it does.
CREATE TABLE streams (
    peer_no INTEGER PRIMARY KEY REFERENCES peers (no),
    out_stream TEXT NOT NULL CHECK (length(out_stream) = 26),
    out_seq INTEGER NOT NULL DEFAULT 0 CHECK (out_seq >= offered_seq),
    out_head BLOB NOT NULL CHECK (length(out_head) = 32),
    offered_seq INTEGER NOT NULL DEFAULT 0 CHECK (offered_seq >= acked_seq),
    acked_seq INTEGER NOT NULL DEFAULT 0 CHECK (acked_seq >= 0),
    queued_messages INTEGER NOT NULL DEFAULT 0 CHECK (queued_messages >= 0),
    queued_bytes INTEGER NOT NULL DEFAULT 0 CHECK (queued_bytes >= 0),
    in_stream TEXT,
    in_seq INTEGER NOT NULL DEFAULT 0 CHECK (in_seq >= 0),
    in_head BLOB NOT NULL CHECK (length(in_head) = 32),
    in_store TEXT,
    stopped TEXT,
    lag_ms INTEGER
) STRICT;

-- The places of the streams out. The text of a message lies in messages and that of a receipt in
-- receipts; every other record is here, as canonical JSON (payload, signatures). An acknowledged
-- place stays for a week, so that it can be offered again and its head be compared.
CREATE TABLE outbox (
    peer_no INTEGER NOT NULL REFERENCES peers (no),
    seq INTEGER NOT NULL CHECK (seq >= 1),
    kind TEXT NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    head BLOB NOT NULL CHECK (length(head) = 32),
    size_bytes INTEGER NOT NULL,
    message_no INTEGER REFERENCES messages (no),
    receipt_no INTEGER REFERENCES receipts (no),
    record TEXT,
    queued_ms INTEGER NOT NULL,
    acked_ms INTEGER,
    withdrawn_ms INTEGER,
    PRIMARY KEY (peer_no, seq),
    CHECK ((message_no IS NOT NULL) + (receipt_no IS NOT NULL) + (record IS NOT NULL) = 1)
) STRICT, WITHOUT ROWID;

CREATE INDEX outbox_acknowledged ON outbox (acked_ms) WHERE acked_ms IS NOT NULL;

-- Identities of this host (peer_no null) and of paired ones. Names are unique here; a paired host
-- speaks for its own names, so its ids and names may be anything that ours are.
CREATE TABLE identities_new (
    no INTEGER PRIMARY KEY,
    peer_no INTEGER REFERENCES peers (no),
    identity TEXT NOT NULL CHECK (length(identity) = 26),
    name TEXT NOT NULL,
    skeleton TEXT NOT NULL,
    role TEXT NOT NULL,
    description TEXT NOT NULL,
    project TEXT,
    created_ms INTEGER NOT NULL,
    retired_ms INTEGER,
    last_seen_ms INTEGER,
    card TEXT,
    forward_no INTEGER REFERENCES identities (no)
) STRICT;

INSERT INTO identities_new (no, identity, name, skeleton, role, description, project, created_ms,
    retired_ms, last_seen_ms, card, forward_no)
SELECT no, identity, name, skeleton, role, description, project, created_ms, retired_ms,
    last_seen_ms, card, forward_no FROM identities;

DROP TABLE identities;
ALTER TABLE identities_new RENAME TO identities;

CREATE UNIQUE INDEX identities_by_id ON identities (identity) WHERE peer_no IS NULL;
CREATE UNIQUE INDEX identities_by_name ON identities (name) WHERE peer_no IS NULL;
CREATE UNIQUE INDEX identities_by_skeleton ON identities (skeleton) WHERE peer_no IS NULL;
CREATE UNIQUE INDEX identities_of_peers ON identities (peer_no, identity)
    WHERE peer_no IS NOT NULL;
CREATE INDEX identities_of_peers_by_name ON identities (name) WHERE peer_no IS NOT NULL;

-- What a paired host last told of an identity of its own that changes often.
CREATE TABLE directory (
    identity_no INTEGER PRIMARY KEY REFERENCES identities (no),
    state TEXT NOT NULL,
    cli TEXT,
    told_ms INTEGER NOT NULL
) STRICT;

-- What a paired host was last told of an identity of ours: 16 bytes of the entry's SHA-256.
CREATE TABLE directory_told (
    peer_no INTEGER NOT NULL REFERENCES peers (no),
    identity_no INTEGER NOT NULL REFERENCES identities (no),
    entry BLOB NOT NULL CHECK (length(entry) = 16),
    PRIMARY KEY (peer_no, identity_no)
) STRICT, WITHOUT ROWID;

-- error: why the copy came back (a code); null for every other copy.
ALTER TABLE deliveries ADD COLUMN error TEXT;

-- A message of a paired host may answer one that is not here, so that being in a thread is told by
-- the thread, not by the message that it answers.
DROP INDEX messages_by_thread;
CREATE INDEX messages_by_thread ON messages (thread, no) WHERE thread <> id;

PRAGMA user_version = 6;
