-- That a link to a paired host was stopped stays known after a store has come that fits again.

-- parted: why a comparison with that host stopped the link last; parted_ms: when it did (ms UTC).
-- Unlike stopped, no link that stands takes them back.
ALTER TABLE streams ADD COLUMN parted TEXT;
ALTER TABLE streams ADD COLUMN parted_ms INTEGER;

PRAGMA user_version = 9;
