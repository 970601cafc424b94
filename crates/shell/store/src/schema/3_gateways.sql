-- Targets of calls to other domains, in sets that routes name.

CREATE TABLE gateways (
    -- The name of the set.
    set_name    TEXT NOT NULL CHECK (length(set_name) BETWEEN 1 AND 64 AND set_name NOT GLOB '*[^-A-Za-z0-9_.]*'),
    -- A SIP URI, as in the targets of a route. These checks are only a first filter; the server parses the URI.
    uri         TEXT NOT NULL CHECK (length(uri) BETWEEN 5 AND 255 AND lower(substr(uri, 1, 4)) = 'sip:'
                                     AND uri NOT GLOB '*[^!-~]*' AND uri NOT GLOB '*[<>"?]*'),
    -- Gateways of lower priority are tried first; weight is the share among those of equal priority.
    priority    INTEGER NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 65535),
    weight      INTEGER NOT NULL DEFAULT 1 CHECK (weight BETWEEN 0 AND 65535),
    -- Maximum number of concurrent calls; NULL: no limit.
    capacity    INTEGER CHECK (capacity BETWEEN 1 AND 1000000),
    enabled     INTEGER NOT NULL DEFAULT 1 CHECK (enabled IN (0, 1)),
    description TEXT NOT NULL DEFAULT '' CHECK (length(description) <= 255),
    -- Seconds since 1970.
    created     INTEGER NOT NULL DEFAULT (unixepoch()),
    PRIMARY KEY (set_name, uri)
) STRICT, WITHOUT ROWID;

-- Adds a kind of change. A server that follows the old log supports only the older schema and stops following, so no server
-- needs the deleted entries. The numbers continue, so that each denotes one change.
CREATE TABLE changes_kept AS SELECT max(seq) AS seq FROM sqlite_sequence WHERE name = 'changes';
DROP TABLE changes;

CREATE TABLE changes (
    seq  INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL CHECK (kind IN ('user', 'alias', 'gateway')),
    -- The address or the name of the set.
    key  TEXT NOT NULL
) STRICT;

INSERT INTO sqlite_sequence (name, seq) SELECT 'changes', seq FROM changes_kept WHERE seq IS NOT NULL;
DROP TABLE changes_kept;

CREATE TRIGGER changes_bounded AFTER INSERT ON changes BEGIN
    DELETE FROM changes WHERE seq <= NEW.seq - 10000;
END;

CREATE TRIGGER gateways_inserted AFTER INSERT ON gateways BEGIN
    INSERT INTO changes (kind, key) VALUES ('gateway', NEW.set_name);
END;

CREATE TRIGGER gateways_updated AFTER UPDATE ON gateways BEGIN
    INSERT INTO changes (kind, key) VALUES ('gateway', NEW.set_name);
    INSERT INTO changes (kind, key) SELECT 'gateway', OLD.set_name WHERE OLD.set_name <> NEW.set_name;
END;

CREATE TRIGGER gateways_deleted AFTER DELETE ON gateways BEGIN
    INSERT INTO changes (kind, key) VALUES ('gateway', OLD.set_name);
END;

-- These limits exist because the gateways of a set are tried in turn, and all sets are kept in memory.

CREATE TRIGGER gateways_bounded_on_insert BEFORE INSERT ON gateways BEGIN
    SELECT RAISE(ABORT, 'a set has 64 gateways at most')
    WHERE (SELECT count(*) FROM gateways WHERE set_name = NEW.set_name AND uri <> NEW.uri) >= 64;
    SELECT RAISE(ABORT, 'there are 4096 gateways at most') WHERE (SELECT count(*) FROM gateways) >= 4096;
END;

CREATE TRIGGER gateways_bounded_on_update BEFORE UPDATE OF set_name ON gateways BEGIN
    SELECT RAISE(ABORT, 'a set has 64 gateways at most')
    WHERE NEW.set_name <> OLD.set_name AND (SELECT count(*) FROM gateways WHERE set_name = NEW.set_name) >= 64;
END;
