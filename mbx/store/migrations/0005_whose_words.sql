-- Words by whose mail they are in: a search for somebody with little mail walks only that.

-- The index is made anew and filled again behind the commits; indexed_message says how far. It is emptied first: DROP TABLE would hold all of it in memory.
INSERT INTO search (search) VALUES ('delete-all');
DROP TABLE search;

UPDATE counters SET value = 0 WHERE name = 'indexed_message';

-- who: f and the sender's key, k and the kind, t and the key of each who got a copy. It brings a search near to its hits; whose mail they are is asked of messages and deliveries. A copy that is given later, by a forward, adds its word to the row.
-- columnsize = 0: nothing is ranked, so no row more for each message.
CREATE VIRTUAL TABLE search USING fts5 (
    subject,
    body,
    who,
    content = '',
    columnsize = 0,
    tokenize = 'unicode61 remove_diacritics 2'
);

-- The earliest and the latest time of each 1,024 indexed messages: a clock may have been set back.
CREATE TABLE search_blocks (
    block INTEGER PRIMARY KEY,
    first_ms INTEGER NOT NULL,
    last_ms INTEGER NOT NULL
) STRICT;

PRAGMA user_version = 5;
