-- Leases and local mail in full: cards, quiet deliveries, what sessions may resume, who waits.

ALTER TABLE identities ADD COLUMN card TEXT;

-- quiet: this copy came by an address that reaches everybody; it wakes nobody.
ALTER TABLE deliveries ADD COLUMN quiet INTEGER NOT NULL DEFAULT 0 CHECK (quiet IN (0, 1));

-- What a conversation held last, so that it gets it again when it comes back in another process.
-- Forgotten when it gives the identity back by itself, or learns that it lost it.
CREATE TABLE remembered (
    cli TEXT NOT NULL,
    session_id TEXT NOT NULL,
    identity_no INTEGER NOT NULL REFERENCES identities (no),
    since_ms INTEGER NOT NULL,
    PRIMARY KEY (cli, session_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX remembered_by_identity ON remembered (identity_no);

-- Sessions that wait for an identity somebody else holds, served in order of no; gone with their
-- process, and when the session gets an identity.
CREATE TABLE pending (
    no INTEGER PRIMARY KEY,
    session_no INTEGER NOT NULL UNIQUE REFERENCES sessions (no),
    identity_no INTEGER NOT NULL REFERENCES identities (no),
    since_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX pending_by_identity ON pending (identity_no, no);

PRAGMA user_version = 2;
