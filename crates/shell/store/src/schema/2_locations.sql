-- The checkpoint of registered contacts, which replaces the older part of the server's journal. Only the server writes it.
-- Each row has a checksum, so damage can lose a row but never produce a wrong one.

CREATE TABLE locations (
    -- The lowest byte of the CRC-32C of aor. It divides the table into equal parts, in which it is read and counted.
    slot    INTEGER NOT NULL,
    -- The canonical address. A BLOB, because the unescaped user part of a SIP URI may contain any bytes.
    aor     BLOB NOT NULL,
    -- When the last contact expires, in ms on the monotonic clock of the store.
    expires INTEGER NOT NULL,
    -- All contacts, in the server's own encoding.
    record  BLOB NOT NULL,
    -- CRC-32C of the other columns.
    sum     INTEGER NOT NULL,
    PRIMARY KEY (slot, aor)
) STRICT, WITHOUT ROWID;

CREATE TABLE settings (
    key   TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL,
    -- CRC-32C of key, a zero byte and value.
    sum   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
