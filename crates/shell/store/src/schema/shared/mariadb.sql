-- Addresses are canonical: user@domain, the user part unescaped, the domain in lower case.
CREATE TABLE IF NOT EXISTS strowger_users (
    aor            VARCHAR(255) COLLATE utf8mb4_nopad_bin NOT NULL PRIMARY KEY CHECK (aor REGEXP '^[^ :]+@[^@A-Z ]+$'),
    realm          VARCHAR(255) COLLATE utf8mb4_nopad_bin NOT NULL CHECK (realm <> ''),
    -- H(user ":" realm ":" password) in hexadecimal digits.
    ha1_md5        VARCHAR(32) CHECK (ha1_md5 REGEXP '^[0-9a-fA-F]{32}$'),
    ha1_sha256     VARCHAR(64) CHECK (ha1_sha256 REGEXP '^[0-9a-fA-F]{64}$'),
    ha1_sha512_256 VARCHAR(64) CHECK (ha1_sha512_256 REGEXP '^[0-9a-fA-F]{64}$'),
    enabled        BOOLEAN NOT NULL DEFAULT TRUE,
    -- Seconds since 1970.
    created        BIGINT NOT NULL DEFAULT (unix_timestamp()),
    CHECK (coalesce(ha1_md5, ha1_sha256, ha1_sha512_256) IS NOT NULL)
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4;

CREATE TABLE IF NOT EXISTS strowger_aliases (
    alias VARCHAR(255) COLLATE utf8mb4_nopad_bin NOT NULL PRIMARY KEY CHECK (alias REGEXP '^[^ :]+@[^@A-Z ]+$'),
    aor   VARCHAR(255) COLLATE utf8mb4_nopad_bin NOT NULL,
    KEY strowger_aliases_aor (aor)
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4;

CREATE TABLE IF NOT EXISTS strowger_gateways (
    set_name    VARCHAR(64) COLLATE utf8mb4_nopad_bin NOT NULL CHECK (set_name REGEXP '^[-A-Za-z0-9_.]+$'),
    uri         VARCHAR(255) COLLATE utf8mb4_nopad_bin NOT NULL CHECK (uri REGEXP '^[sS][iI][pP]:[!-~]+$' AND uri NOT REGEXP '[<>"?]'),
    priority    INTEGER NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 65535),
    weight      INTEGER NOT NULL DEFAULT 1 CHECK (weight BETWEEN 0 AND 65535),
    -- Maximum number of concurrent calls; NULL: no limit.
    capacity    INTEGER CHECK (capacity BETWEEN 1 AND 1000000),
    enabled     BOOLEAN NOT NULL DEFAULT TRUE,
    description VARCHAR(255) NOT NULL DEFAULT '',
    created     BIGINT NOT NULL DEFAULT (unix_timestamp()),
    PRIMARY KEY (set_name, uri)
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4;

-- The keys of changed rows, and the number of changes on each server. A writer locks the row of its server until it commits, so changes
-- become visible in the order of their numbers. Servers that replicate one another number their own changes. The mark distinguishes a
-- change from a later one with the same number, which can exist if a server has lost the first.
CREATE TABLE IF NOT EXISTS strowger_directory_ends (
    server BIGINT NOT NULL PRIMARY KEY,
    seq    BIGINT NOT NULL,
    mark   VARCHAR(36) NOT NULL
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4;
CREATE TABLE IF NOT EXISTS strowger_directory_changes (
    server BIGINT NOT NULL,
    seq    BIGINT NOT NULL,
    kind   VARCHAR(8) NOT NULL,
    name   VARCHAR(255) COLLATE utf8mb4_nopad_bin NOT NULL,
    mark   VARCHAR(36) NOT NULL,
    PRIMARY KEY (server, seq)
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4;

CREATE OR REPLACE TRIGGER strowger_directory_numbered BEFORE INSERT ON strowger_directory_changes FOR EACH ROW BEGIN
    SET NEW.server = @@server_id;
    SET NEW.mark = uuid();
    INSERT INTO strowger_directory_ends (server, seq, mark) VALUES (@@server_id, 1, NEW.mark)
        ON DUPLICATE KEY UPDATE seq = seq + 1, mark = NEW.mark;
    SET NEW.seq = (SELECT seq FROM strowger_directory_ends WHERE server = @@server_id);
END;

CREATE OR REPLACE TRIGGER strowger_users_before_insert BEFORE INSERT ON strowger_users FOR EACH ROW BEGIN
    IF EXISTS (SELECT 1 FROM strowger_aliases WHERE alias = NEW.aor) THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'this address is an alias; remove the alias first';
    END IF;
END;
CREATE OR REPLACE TRIGGER strowger_users_before_update BEFORE UPDATE ON strowger_users FOR EACH ROW BEGIN
    IF EXISTS (SELECT 1 FROM strowger_aliases WHERE alias = NEW.aor) THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'this address is an alias; remove the alias first';
    END IF;
END;
CREATE OR REPLACE TRIGGER strowger_users_inserted AFTER INSERT ON strowger_users FOR EACH ROW BEGIN
    INSERT INTO strowger_directory_changes (server, seq, kind, name, mark) VALUES (0, 0, 'user', NEW.aor, '');
END;
CREATE OR REPLACE TRIGGER strowger_users_updated AFTER UPDATE ON strowger_users FOR EACH ROW BEGIN
    INSERT INTO strowger_directory_changes (server, seq, kind, name, mark) VALUES (0, 0, 'user', NEW.aor, '');
    IF OLD.aor <> NEW.aor THEN
        UPDATE strowger_aliases SET aor = NEW.aor WHERE aor = OLD.aor;
        INSERT INTO strowger_directory_changes (server, seq, kind, name, mark) VALUES (0, 0, 'user', OLD.aor, '');
    END IF;
END;
CREATE OR REPLACE TRIGGER strowger_users_deleted AFTER DELETE ON strowger_users FOR EACH ROW BEGIN
    DELETE FROM strowger_aliases WHERE aor = OLD.aor;
    INSERT INTO strowger_directory_changes (server, seq, kind, name, mark) VALUES (0, 0, 'user', OLD.aor, '');
END;

CREATE OR REPLACE TRIGGER strowger_aliases_before_insert BEFORE INSERT ON strowger_aliases FOR EACH ROW BEGIN
    IF EXISTS (SELECT 1 FROM strowger_users WHERE aor = NEW.alias) THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'this alias is the address of a user';
    END IF;
    IF NOT EXISTS (SELECT 1 FROM strowger_users WHERE aor = NEW.aor) THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'this alias leads to no user';
    END IF;
END;
CREATE OR REPLACE TRIGGER strowger_aliases_inserted AFTER INSERT ON strowger_aliases FOR EACH ROW BEGIN
    INSERT INTO strowger_directory_changes (server, seq, kind, name, mark) VALUES (0, 0, 'alias', NEW.alias, '');
END;
CREATE OR REPLACE TRIGGER strowger_aliases_updated AFTER UPDATE ON strowger_aliases FOR EACH ROW BEGIN
    INSERT INTO strowger_directory_changes (server, seq, kind, name, mark) VALUES (0, 0, 'alias', NEW.alias, '');
    IF OLD.alias <> NEW.alias THEN
        INSERT INTO strowger_directory_changes (server, seq, kind, name, mark) VALUES (0, 0, 'alias', OLD.alias, '');
    END IF;
END;
CREATE OR REPLACE TRIGGER strowger_aliases_deleted AFTER DELETE ON strowger_aliases FOR EACH ROW BEGIN
    INSERT INTO strowger_directory_changes (server, seq, kind, name, mark) VALUES (0, 0, 'alias', OLD.alias, '');
END;

CREATE OR REPLACE TRIGGER strowger_gateways_inserted AFTER INSERT ON strowger_gateways FOR EACH ROW BEGIN
    INSERT INTO strowger_directory_changes (server, seq, kind, name, mark) VALUES (0, 0, 'gateway', NEW.set_name, '');
END;
CREATE OR REPLACE TRIGGER strowger_gateways_updated AFTER UPDATE ON strowger_gateways FOR EACH ROW BEGIN
    INSERT INTO strowger_directory_changes (server, seq, kind, name, mark) VALUES (0, 0, 'gateway', NEW.set_name, '');
    IF OLD.set_name <> NEW.set_name THEN
        INSERT INTO strowger_directory_changes (server, seq, kind, name, mark) VALUES (0, 0, 'gateway', OLD.set_name, '');
    END IF;
END;
CREATE OR REPLACE TRIGGER strowger_gateways_deleted AFTER DELETE ON strowger_gateways FOR EACH ROW BEGIN
    INSERT INTO strowger_directory_changes (server, seq, kind, name, mark) VALUES (0, 0, 'gateway', OLD.set_name, '');
END;

-- Created last: its presence means that the rest of the schema exists.
CREATE TABLE IF NOT EXISTS strowger_directory_schema (
    version INTEGER NOT NULL PRIMARY KEY,
    -- Identifies this database in the files that follow it.
    id      VARCHAR(36) NOT NULL
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4;
INSERT IGNORE INTO strowger_directory_schema (version, id) VALUES (1, uuid());
