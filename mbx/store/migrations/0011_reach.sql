-- How a paired host says that the holder of one of its identities is reached.

-- reach: live-wake or live-next-prompt; null where nobody holds it, or the host did not say.
ALTER TABLE directory ADD COLUMN reach TEXT;

PRAGMA user_version = 11;
