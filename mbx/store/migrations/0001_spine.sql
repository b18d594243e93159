-- The spine: host, identities, sessions, leases, mail, receipts, audit, search.
-- Units: *_ms are integer milliseconds UTC; *_no are integer keys in commit order; id8 is the first
-- eight bytes of a SHA-256 as a signed integer (random 16-byte keys leave 0.42 of the insert rate).

CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO counters (name, value) VALUES ('commit_seq', 0), ('indexed_message', 0);

-- One row: who this store belongs to. store_id changes after a restore.
CREATE TABLE host (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    key_id TEXT NOT NULL CHECK (length(key_id) = 26),
    public_key BLOB NOT NULL CHECK (length(public_key) = 32),
    label TEXT NOT NULL,
    store_id TEXT NOT NULL CHECK (length(store_id) = 26),
    created_ms INTEGER NOT NULL
) STRICT;

-- skeleton: the name folded so that look-alikes collide.
CREATE TABLE identities (
    no INTEGER PRIMARY KEY,
    identity TEXT NOT NULL UNIQUE CHECK (length(identity) = 26),
    name TEXT NOT NULL UNIQUE,
    skeleton TEXT NOT NULL UNIQUE,
    role TEXT NOT NULL,
    description TEXT NOT NULL,
    project TEXT,
    created_ms INTEGER NOT NULL,
    retired_ms INTEGER,
    last_seen_ms INTEGER
) STRICT;

-- unread: deliveries before the stage 'read', kept beside them so that a listing need not count.
CREATE TABLE mailboxes (
    identity_no INTEGER PRIMARY KEY REFERENCES identities (no),
    unread INTEGER NOT NULL CHECK (unread >= 0)
) STRICT;

-- A session is one conversation in one process. conversation is '' where the process has only one.
-- identity_no and epoch say what it was last granted; both null after its own release.
CREATE TABLE sessions (
    no INTEGER PRIMARY KEY,
    cli TEXT NOT NULL,
    session_id TEXT NOT NULL,
    conversation TEXT NOT NULL,
    pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    identity_no INTEGER REFERENCES identities (no),
    epoch INTEGER,
    created_ms INTEGER NOT NULL,
    UNIQUE (pid, start_ticks, boot_id, conversation),
    CHECK ((identity_no IS NULL) = (epoch IS NULL))
) STRICT;

-- state: 0 free, 1 held, 2 lapsed. epoch grows by one with each grant and is never reused.
-- payload and signature are the newest signed lease record of the current epoch.
CREATE TABLE leases (
    identity_no INTEGER PRIMARY KEY REFERENCES identities (no),
    epoch INTEGER NOT NULL CHECK (epoch >= 0),
    state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 2),
    session_no INTEGER REFERENCES sessions (no),
    since_ms INTEGER NOT NULL,
    record_id TEXT,
    payload TEXT,
    signature BLOB,
    expires_ms INTEGER,
    CHECK (state = 0 OR (epoch > 0 AND session_no IS NOT NULL AND payload IS NOT NULL))
) STRICT;

-- Hashes of the credentials of an epoch; a new grant leaves the old ones to answer lease-lost.
CREATE TABLE tokens (
    hash BLOB PRIMARY KEY CHECK (length(hash) = 32),
    identity_no INTEGER NOT NULL REFERENCES identities (no),
    epoch INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX tokens_by_identity ON tokens (identity_no, epoch);

-- payload is the exact signed text; the columns before it are what listings need of it.
-- id is what people see of the digest. thread is the record id of the thread's first message. plain: no text needs bigrams in the index.
CREATE TABLE messages (
    no INTEGER PRIMARY KEY,
    id8 INTEGER NOT NULL,
    id TEXT NOT NULL CHECK (length(id) = 26),
    thread TEXT NOT NULL CHECK (length(thread) = 26),
    reply_no INTEGER REFERENCES messages (no),
    sender_no INTEGER REFERENCES identities (no),
    accepted_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    needs_reply INTEGER NOT NULL CHECK (needs_reply IN (0, 1)),
    plain INTEGER NOT NULL CHECK (plain IN (0, 1)),
    body_bytes INTEGER NOT NULL CHECK (body_bytes BETWEEN 0 AND 262144),
    subject TEXT NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    signature BLOB NOT NULL CHECK (length(signature) = 64),
    payload TEXT NOT NULL
) STRICT;

CREATE INDEX messages_by_id ON messages (id8);
CREATE INDEX messages_by_sender ON messages (sender_no, no);
CREATE INDEX messages_by_thread ON messages (thread, no) WHERE reply_no IS NOT NULL;

-- stage: 2 delivered, 3 notified, 4 read, 5 acked (0 queued, 1 handed over: other hosts). Only grows.
-- The key is the mailbox in order of arrival; it is also the cursor.
CREATE TABLE deliveries (
    recipient_no INTEGER NOT NULL REFERENCES identities (no),
    message_no INTEGER NOT NULL REFERENCES messages (no),
    stage INTEGER NOT NULL CHECK (stage BETWEEN 0 AND 5),
    stage_ms INTEGER NOT NULL,
    epoch INTEGER,
    outcome TEXT,
    did TEXT,
    note TEXT,
    PRIMARY KEY (recipient_no, message_no)
) STRICT, WITHOUT ROWID;

CREATE INDEX deliveries_by_message ON deliveries (message_no);
CREATE INDEX deliveries_open ON deliveries (recipient_no, message_no) WHERE stage < 5;

-- Signed facts about deliveries (read, acked), one record for the messages of one call.
CREATE TABLE receipts (
    no INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    record_id TEXT NOT NULL,
    payload TEXT NOT NULL,
    signature BLOB NOT NULL CHECK (length(signature) = 64)
) STRICT;

-- The first answer to each idempotency key, for ever. scope: 'i' and an identity_no, or 's' and a
-- session (process, start, boot, conversation) for the calls that change what it holds.
CREATE TABLE answers (
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    request BLOB NOT NULL CHECK (length(request) = 16),
    answer TEXT NOT NULL,
    PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID;

-- hash = SHA-256(previous hash + canonical JSON of the row): no row can be changed, removed or moved alone.
CREATE TABLE audit (
    no INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    act TEXT NOT NULL,
    identity TEXT,
    detail TEXT NOT NULL,
    hash BLOB NOT NULL CHECK (length(hash) = 32)
) STRICT;

-- The text lives in messages; this holds only the index, filled behind the commit.
CREATE VIRTUAL TABLE search USING fts5 (
    subject,
    body,
    content = '',
    tokenize = 'unicode61 remove_diacritics 2'
);

PRAGMA application_id = 1835169841;
PRAGMA user_version = 1;
