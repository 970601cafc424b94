-- Rows of a shared database, from which the tables are updated. `scope` names the rows that were read; the kind 'all' means all of them.
CREATE TEMP TABLE IF NOT EXISTS scope (kind TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (kind, name)) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS incoming_users (
    aor TEXT NOT NULL PRIMARY KEY, realm TEXT, ha1_md5 TEXT, ha1_sha256 TEXT, ha1_sha512_256 TEXT, enabled INTEGER, created INTEGER
) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS incoming_aliases (alias TEXT NOT NULL PRIMARY KEY, aor TEXT) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS incoming_gateways (
    set_name TEXT NOT NULL, uri TEXT NOT NULL, priority INTEGER, weight INTEGER, capacity INTEGER, enabled INTEGER, description TEXT,
    created INTEGER, PRIMARY KEY (set_name, uri)
) WITHOUT ROWID;

-- Keys of the rows that differ.
CREATE TEMP TABLE IF NOT EXISTS gone_users (aor TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS new_users (aor TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS gone_aliases (alias TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS new_aliases (alias TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS gone_gateways (set_name TEXT NOT NULL, uri TEXT NOT NULL, PRIMARY KEY (set_name, uri)) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS new_gateways (set_name TEXT NOT NULL, uri TEXT NOT NULL, PRIMARY KEY (set_name, uri)) WITHOUT ROWID;

DELETE FROM scope;
DELETE FROM incoming_users;
DELETE FROM incoming_aliases;
DELETE FROM incoming_gateways;
