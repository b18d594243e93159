-- Wakes of sessions for mail that waits: each is written down before it is tried.

-- session_no, epoch: whom it is for. upto_no: the newest message that it announces, messages: how
-- many. outcome: how it ended, null while that is not known; then, after the end of the daemon that
-- tried it, it is unknown. reason: constant words, never of a message.
CREATE TABLE wakes (
    no INTEGER PRIMARY KEY,
    identity_no INTEGER NOT NULL REFERENCES identities (no),
    session_no INTEGER NOT NULL,
    epoch INTEGER NOT NULL CHECK (epoch >= 1),
    way TEXT NOT NULL CHECK (length(way) BETWEEN 1 AND 40),
    at_ms INTEGER NOT NULL,
    upto_no INTEGER NOT NULL,
    messages INTEGER NOT NULL CHECK (messages >= 1),
    outcome TEXT CHECK (outcome IN ('admitted', 'busy', 'blocked', 'unknown', 'failed')),
    reason TEXT CHECK (length(reason) <= 200)
) STRICT;

CREATE INDEX wakes_of_identity ON wakes (identity_no, no);
CREATE INDEX wakes_under_way ON wakes (no) WHERE outcome IS NULL;

-- The threads that a wake was for, each with the message of it that woke.
CREATE TABLE wake_threads (
    wake_no INTEGER NOT NULL REFERENCES wakes (no),
    thread TEXT NOT NULL CHECK (length(thread) = 26),
    message_no INTEGER NOT NULL,
    PRIMARY KEY (wake_no, thread)
) STRICT, WITHOUT ROWID;

-- Copies that wake and were announced to nobody yet.
CREATE INDEX deliveries_unannounced ON deliveries (recipient_no, message_no)
    WHERE wakes = 1 AND stage = 2;

PRAGMA user_version = 8;
