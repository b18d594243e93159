-- The digest of a followed chain's newest record was read by nobody: the records lie in
-- owner_records, where another one for the same place, and a successor that names another
-- predecessor, are found out.

ALTER TABLE followed_chains DROP COLUMN digest;

PRAGMA user_version = 10;
