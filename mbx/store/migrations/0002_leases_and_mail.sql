-- Leases and local mail in full: cards, copies that wake, what sessions may resume, who waits.

ALTER TABLE identities ADD COLUMN card TEXT;

-- wakes: this copy wakes an idle recipient (by its kind, its need of a reply, or a mention).
ALTER TABLE deliveries ADD COLUMN wakes INTEGER NOT NULL DEFAULT 0 CHECK (wakes IN (0, 1));

CREATE INDEX deliveries_waking ON deliveries (recipient_no, message_no)
    WHERE wakes = 1 AND stage < 4;

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
