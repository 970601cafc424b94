-- Addresses are canonical: user@domain, the user part unescaped, the domain (after the last '@') in lower case.
-- rtrim(x, replace(x, '@', '')) is x up to and including its last '@'.

CREATE TABLE users (
    aor            TEXT NOT NULL PRIMARY KEY
                   CHECK (length(rtrim(aor, replace(aor, '@', ''))) BETWEEN 2 AND length(aor) - 1)
                   CHECK (substr(aor, length(rtrim(aor, replace(aor, '@', ''))) + 1)
                          = lower(substr(aor, length(rtrim(aor, replace(aor, '@', ''))) + 1)))
                   CHECK (instr(rtrim(aor, replace(aor, '@', '')), ':') = 0 AND instr(aor, ' ') = 0),
    realm          TEXT NOT NULL CHECK (realm <> ''),
    -- H(user ":" realm ":" password) in hexadecimal digits.
    ha1_md5        TEXT CHECK (length(ha1_md5) = 32 AND ha1_md5 NOT GLOB '*[^0-9a-fA-F]*'),
    ha1_sha256     TEXT CHECK (length(ha1_sha256) = 64 AND ha1_sha256 NOT GLOB '*[^0-9a-fA-F]*'),
    ha1_sha512_256 TEXT CHECK (length(ha1_sha512_256) = 64 AND ha1_sha512_256 NOT GLOB '*[^0-9a-fA-F]*'),
    enabled        INTEGER NOT NULL DEFAULT 1 CHECK (enabled IN (0, 1)),
    -- Seconds since 1970.
    created        INTEGER NOT NULL DEFAULT (unixepoch()),
    CHECK (coalesce(ha1_md5, ha1_sha256, ha1_sha512_256) IS NOT NULL)
) STRICT, WITHOUT ROWID;

CREATE TABLE aliases (
    alias TEXT NOT NULL PRIMARY KEY
          CHECK (length(rtrim(alias, replace(alias, '@', ''))) BETWEEN 2 AND length(alias) - 1)
          CHECK (substr(alias, length(rtrim(alias, replace(alias, '@', ''))) + 1)
                 = lower(substr(alias, length(rtrim(alias, replace(alias, '@', ''))) + 1)))
          CHECK (instr(rtrim(alias, replace(alias, '@', '')), ':') = 0 AND instr(alias, ' ') = 0),
    aor   TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX aliases_aor ON aliases (aor);

-- The keys of changed rows in the order of the changes; the current values are in their tables.
-- AUTOINCREMENT keeps the numbers of deleted rows from being reused.
CREATE TABLE changes (
    seq  INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL CHECK (kind IN ('user', 'alias')),
    key  TEXT NOT NULL
) STRICT;

CREATE TRIGGER changes_bounded AFTER INSERT ON changes BEGIN
    DELETE FROM changes WHERE seq <= NEW.seq - 10000;
END;

CREATE TRIGGER users_inserted AFTER INSERT ON users BEGIN
    INSERT INTO changes (kind, key) VALUES ('user', NEW.aor);
END;

CREATE TRIGGER users_updated AFTER UPDATE ON users BEGIN
    INSERT INTO changes (kind, key) VALUES ('user', NEW.aor);
    INSERT INTO changes (kind, key) SELECT 'user', OLD.aor WHERE OLD.aor <> NEW.aor;
    UPDATE aliases SET aor = NEW.aor WHERE aor = OLD.aor AND OLD.aor <> NEW.aor;
END;

CREATE TRIGGER users_deleted AFTER DELETE ON users BEGIN
    INSERT INTO changes (kind, key) VALUES ('user', OLD.aor);
    DELETE FROM aliases WHERE aor = OLD.aor;
END;

CREATE TRIGGER aliases_inserted AFTER INSERT ON aliases BEGIN
    INSERT INTO changes (kind, key) VALUES ('alias', NEW.alias);
END;

CREATE TRIGGER aliases_updated AFTER UPDATE ON aliases BEGIN
    INSERT INTO changes (kind, key) VALUES ('alias', NEW.alias);
    INSERT INTO changes (kind, key) SELECT 'alias', OLD.alias WHERE OLD.alias <> NEW.alias;
END;

CREATE TRIGGER aliases_deleted AFTER DELETE ON aliases BEGIN
    INSERT INTO changes (kind, key) VALUES ('alias', OLD.alias);
END;

-- An address is a user or an alias, and an alias names a user, never another alias. Triggers enforce this, since SQLite clients
-- enforce foreign keys only if told to.

CREATE TRIGGER users_no_alias_on_insert BEFORE INSERT ON users
WHEN EXISTS (SELECT 1 FROM aliases WHERE alias = NEW.aor) BEGIN
    SELECT RAISE(ABORT, 'this address is an alias; remove the alias first');
END;

CREATE TRIGGER users_no_alias_on_update BEFORE UPDATE OF aor ON users
WHEN EXISTS (SELECT 1 FROM aliases WHERE alias = NEW.aor) BEGIN
    SELECT RAISE(ABORT, 'this address is an alias; remove the alias first');
END;

CREATE TRIGGER aliases_sound_on_insert BEFORE INSERT ON aliases BEGIN
    SELECT RAISE(ABORT, 'this alias is the address of a user') WHERE EXISTS (SELECT 1 FROM users WHERE aor = NEW.alias);
    SELECT RAISE(ABORT, 'this alias leads to no user') WHERE NOT EXISTS (SELECT 1 FROM users WHERE aor = NEW.aor);
END;

CREATE TRIGGER aliases_sound_on_update BEFORE UPDATE ON aliases BEGIN
    SELECT RAISE(ABORT, 'this alias is the address of a user') WHERE EXISTS (SELECT 1 FROM users WHERE aor = NEW.alias);
    SELECT RAISE(ABORT, 'this alias leads to no user') WHERE NOT EXISTS (SELECT 1 FROM users WHERE aor = NEW.aor);
END;
