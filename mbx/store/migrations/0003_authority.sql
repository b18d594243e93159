-- The owner's authority: keys, records and the chain of policies; what conversations were exposed to.

-- until_version: null for the key of now; a former key verifies the chain up to that version.
CREATE TABLE owner_keys (
    no INTEGER PRIMARY KEY,
    key_id TEXT NOT NULL UNIQUE CHECK (length(key_id) = 26),
    public_key BLOB NOT NULL CHECK (length(public_key) = 32),
    since_ms INTEGER NOT NULL,
    until_version INTEGER CHECK (until_version >= 0)
) STRICT;

-- Every owner record that was applied, once. version: its place in the chain of policies and
-- revocations, null for the others. signatures: canonical JSON, key id -> base64. answer: what the
-- first application answered. acceptance: the host's signed word that it applied it.
CREATE TABLE owner_records (
    no INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    record_id TEXT NOT NULL UNIQUE CHECK (length(record_id) = 26),
    version INTEGER UNIQUE CHECK (version >= 1),
    payload TEXT NOT NULL,
    signatures TEXT NOT NULL,
    applied_ms INTEGER NOT NULL,
    answer TEXT NOT NULL,
    acceptance TEXT NOT NULL,
    acceptance_signature BLOB NOT NULL CHECK (length(acceptance_signature) = 64)
) STRICT;

-- What a conversation read of one sender within the hour (source_no); see mbx/core/exposure.py.
CREATE TABLE exposures (
    cli TEXT NOT NULL,
    session_id TEXT NOT NULL,
    source_no INTEGER NOT NULL REFERENCES identities (no),
    root_ms INTEGER,
    hop INTEGER NOT NULL CHECK (hop >= 0),
    hop_limit INTEGER,
    read_ms INTEGER NOT NULL,
    PRIMARY KEY (cli, session_id, source_no)
) STRICT, WITHOUT ROWID;

CREATE INDEX exposures_by_age ON exposures (read_ms);

-- hop: how often its content was passed on. external: it came from outside, or was written under
-- the influence of what did. owner_key: the owner's key that signed it, null: the host's.
ALTER TABLE messages ADD COLUMN hop INTEGER NOT NULL DEFAULT 0 CHECK (hop >= 0);
ALTER TABLE messages ADD COLUMN external INTEGER NOT NULL DEFAULT 0 CHECK (external IN (0, 1));
ALTER TABLE messages ADD COLUMN owner_key TEXT;

-- forward_no: where mail for a retired identity goes on, by the owner's word.
ALTER TABLE identities ADD COLUMN forward_no INTEGER REFERENCES identities (no);

-- clock_high_ms: the latest wall clock that something was recorded at.
INSERT INTO counters (name, value) VALUES ('clock_high_ms', 0);

PRAGMA user_version = 3;
