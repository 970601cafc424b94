CREATE TABLE IF NOT EXISTS strowger_calls (
    -- Of the process that served the call, and counted there.
    id       VARCHAR(64) PRIMARY KEY,
    started  TIMESTAMPTZ NOT NULL,
    answered TIMESTAMPTZ,
    ended    TIMESTAMPTZ NOT NULL,
    setup_s  DOUBLE PRECISION NOT NULL,
    talk_s   DOUBLE PRECISION NOT NULL,
    reason   VARCHAR(32) NOT NULL,
    status   INTEGER,
    -- What peers wrote, with control characters escaped: a row that does not fit would keep all others waiting.
    caller   TEXT NOT NULL,
    callee   TEXT NOT NULL,
    call_id  TEXT NOT NULL,
    source   VARCHAR(64) NOT NULL,
    target   VARCHAR(64)
);
CREATE INDEX IF NOT EXISTS strowger_calls_started ON strowger_calls (started);
-- Columns that a table of an earlier version lacks.
ALTER TABLE strowger_calls ADD COLUMN IF NOT EXISTS source_trunk TEXT;
ALTER TABLE strowger_calls ADD COLUMN IF NOT EXISTS target_trunk TEXT;
ALTER TABLE strowger_calls ADD COLUMN IF NOT EXISTS target_uri TEXT;
