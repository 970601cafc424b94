CREATE TABLE IF NOT EXISTS strowger_calls (
    -- Of the process that served the call, and counted there.
    id       VARCHAR(64) NOT NULL PRIMARY KEY,
    -- In UTC.
    started  DATETIME(3) NOT NULL,
    answered DATETIME(3),
    ended    DATETIME(3) NOT NULL,
    setup_s  DOUBLE NOT NULL,
    talk_s   DOUBLE NOT NULL,
    reason   VARCHAR(32) NOT NULL,
    status   INTEGER,
    -- What peers wrote, with control characters escaped: a row that does not fit would keep all others waiting.
    caller   TEXT NOT NULL,
    callee   TEXT NOT NULL,
    call_id  TEXT NOT NULL,
    source   VARCHAR(64) NOT NULL,
    target   VARCHAR(64),
    KEY strowger_calls_started (started)
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4;
-- Columns that a table of an earlier version lacks.
ALTER TABLE strowger_calls ADD COLUMN IF NOT EXISTS source_trunk TEXT;
ALTER TABLE strowger_calls ADD COLUMN IF NOT EXISTS target_trunk TEXT;
ALTER TABLE strowger_calls ADD COLUMN IF NOT EXISTS target_uri TEXT;
