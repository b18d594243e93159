-- Kin: sessions of which one runs below the other, or that run below the same third. And what a
-- listing needs to know of mail from outside.

-- What each conversation that may read or write runs below: one row for each ancestor of its
-- process, and one for the process itself. Processes are told as boot id, blank, PID-STARTTICKS;
-- the ancestor '?' stands for those that could not be read. is_agent: the ancestor is an agent CLI
-- or mbx run. counts: it is a session for that reason, or because it held something within the hour.
-- seen_ms: when the session below was last known to hold something, or to wait for it.
CREATE TABLE kin (
    ancestor TEXT NOT NULL,
    process TEXT NOT NULL,
    cli TEXT NOT NULL,
    session_id TEXT NOT NULL,
    is_agent INTEGER NOT NULL CHECK (is_agent IN (0, 1)),
    counts INTEGER NOT NULL CHECK (counts IN (0, 1)),
    seen_ms INTEGER NOT NULL,
    PRIMARY KEY (ancestor, process, cli, session_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX kin_by_process ON kin (process, counts);
CREATE INDEX kin_by_label ON kin (cli, session_id, counts);

-- root_ms: of what is external, when it first came from outside; null: as of its reading.
ALTER TABLE messages ADD COLUMN root_ms INTEGER;

UPDATE messages SET root_ms = json_extract(payload, '$.external_since')
    WHERE external = 1 AND json_type(payload, '$.external_since') = 'integer'
    AND json_type(payload, '$.origin') = 'null';

PRAGMA user_version = 4;
