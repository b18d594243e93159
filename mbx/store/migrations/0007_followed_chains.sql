-- The owner's records that were drafted on other hosts of the same owner, and came from there.

-- chain: key id of the host whose chain a followed policy or revocation belongs to, with its place
-- there; null for what was applied here by the owner itself, whose place in our own chain is version.
ALTER TABLE owner_records ADD COLUMN chain TEXT CHECK (length(chain) = 26);
ALTER TABLE owner_records ADD COLUMN chain_version INTEGER CHECK (chain_version >= 1);

CREATE INDEX owner_records_followed ON owner_records (chain, chain_version)
    WHERE chain IS NOT NULL;

-- One row for each chain that is followed. first_version: where our knowledge of it begins. version
-- and digest: of the newest record. ended_version: up to there nothing counts any more, since a
-- pairing with its host has ended.
CREATE TABLE followed_chains (
    chain TEXT PRIMARY KEY CHECK (length(chain) = 26),
    first_version INTEGER NOT NULL CHECK (first_version >= 1),
    version INTEGER NOT NULL CHECK (version >= first_version),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    ended_version INTEGER NOT NULL DEFAULT 0 CHECK (ended_version >= 0)
) STRICT, WITHOUT ROWID;

-- What the owner signed and a host does not have yet, among all the mail that waits.
CREATE INDEX outbox_signed ON outbox (peer_no, seq) WHERE kind IN ('policy', 'revoke', 'rotate');

PRAGMA user_version = 7;
