-- The checkpoint of registered contacts: what the server's journal need not be read for. Written by the server alone.
-- Each row has a checksum of itself, so that damage can lose a row, and never give a wrong one.

CREATE TABLE locations (
    -- The lowest byte of CRC-32C of aor: equal parts for those who read or count the table in parts.
    slot    INTEGER NOT NULL,
    -- The canonical address. Bytes, because the user part of a SIP URI may unescape to any.
    aor     BLOB NOT NULL,
    -- When the last contact expires, in milliseconds on the clock of the store (which only goes forward).
    expires INTEGER NOT NULL,
    -- All contacts, in the server's own form.
    record  BLOB NOT NULL,
    -- CRC-32C of the others.
    sum     INTEGER NOT NULL,
    PRIMARY KEY (slot, aor)
) STRICT, WITHOUT ROWID;

CREATE TABLE settings (
    key   TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL,
    -- CRC-32C of key, a zero byte and value.
    sum   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
