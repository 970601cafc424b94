-- Addresses are canonical: user@domain, the user part unescaped, the domain in lower case.
CREATE TABLE strowger_users (
    aor            VARCHAR(255) PRIMARY KEY CHECK (aor ~ '^[^ :]+@[^@A-Z ]+$'),
    realm          VARCHAR(255) NOT NULL CHECK (realm <> ''),
    -- H(user ":" realm ":" password) in hexadecimal digits.
    ha1_md5        VARCHAR(32) CHECK (ha1_md5 ~ '^[0-9a-fA-F]{32}$'),
    ha1_sha256     VARCHAR(64) CHECK (ha1_sha256 ~ '^[0-9a-fA-F]{64}$'),
    ha1_sha512_256 VARCHAR(64) CHECK (ha1_sha512_256 ~ '^[0-9a-fA-F]{64}$'),
    enabled        BOOLEAN NOT NULL DEFAULT TRUE,
    -- Seconds since 1970.
    created        BIGINT NOT NULL DEFAULT (extract(epoch FROM now())::bigint),
    CHECK (coalesce(ha1_md5, ha1_sha256, ha1_sha512_256) IS NOT NULL)
);

CREATE TABLE strowger_aliases (
    alias VARCHAR(255) PRIMARY KEY CHECK (alias ~ '^[^ :]+@[^@A-Z ]+$'),
    aor   VARCHAR(255) NOT NULL
);
CREATE INDEX strowger_aliases_aor ON strowger_aliases (aor);

CREATE TABLE strowger_gateways (
    set_name    VARCHAR(64) NOT NULL CHECK (set_name ~ '^[-A-Za-z0-9_.]+$'),
    uri         VARCHAR(255) NOT NULL CHECK (uri ~* '^sip:[!-~]+$' AND uri !~ '[<>"?]'),
    priority    INTEGER NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 65535),
    weight      INTEGER NOT NULL DEFAULT 1 CHECK (weight BETWEEN 0 AND 65535),
    -- Maximum number of concurrent calls; NULL: no limit.
    capacity    INTEGER CHECK (capacity BETWEEN 1 AND 1000000),
    enabled     BOOLEAN NOT NULL DEFAULT TRUE,
    description VARCHAR(255) NOT NULL DEFAULT '',
    created     BIGINT NOT NULL DEFAULT (extract(epoch FROM now())::bigint),
    PRIMARY KEY (set_name, uri)
);

-- The keys of changed rows, and the number of changes on each server. A writer locks the row of its server until it commits, so changes
-- become visible in the order of their numbers. The mark distinguishes a change from a later one with the same number, which can exist
-- if a server has lost the first.
CREATE TABLE strowger_directory_ends (
    server BIGINT PRIMARY KEY,
    seq    BIGINT NOT NULL,
    mark   VARCHAR(36) NOT NULL
);
CREATE TABLE strowger_directory_changes (
    server BIGINT NOT NULL,
    seq    BIGINT NOT NULL,
    kind   VARCHAR(8) NOT NULL,
    name   VARCHAR(255) NOT NULL,
    mark   VARCHAR(36) NOT NULL,
    PRIMARY KEY (server, seq)
);

CREATE FUNCTION strowger_directory_note(of_kind TEXT, of_name TEXT) RETURNS VOID AS $$
DECLARE
    number BIGINT;
    new_mark TEXT := gen_random_uuid();
BEGIN
    INSERT INTO strowger_directory_ends AS ends (server, seq, mark) VALUES (0, 1, new_mark)
        ON CONFLICT (server) DO UPDATE SET seq = ends.seq + 1, mark = new_mark RETURNING seq INTO number;
    INSERT INTO strowger_directory_changes (server, seq, kind, name, mark) VALUES (0, number, of_kind, of_name, new_mark);
END $$ LANGUAGE plpgsql;

CREATE FUNCTION strowger_users_changed() RETURNS TRIGGER AS $$
BEGIN
    IF TG_OP <> 'DELETE' THEN
        IF EXISTS (SELECT 1 FROM strowger_aliases WHERE alias = NEW.aor) THEN
            RAISE EXCEPTION 'this address is an alias; remove the alias first';
        END IF;
        PERFORM strowger_directory_note('user', NEW.aor);
    END IF;
    IF TG_OP = 'DELETE' THEN
        DELETE FROM strowger_aliases WHERE aor = OLD.aor;
        PERFORM strowger_directory_note('user', OLD.aor);
    ELSIF TG_OP = 'UPDATE' AND OLD.aor <> NEW.aor THEN
        UPDATE strowger_aliases SET aor = NEW.aor WHERE aor = OLD.aor;
        PERFORM strowger_directory_note('user', OLD.aor);
    END IF;
    RETURN NULL;
END $$ LANGUAGE plpgsql;

CREATE FUNCTION strowger_aliases_changed() RETURNS TRIGGER AS $$
BEGIN
    IF TG_OP <> 'DELETE' THEN
        IF EXISTS (SELECT 1 FROM strowger_users WHERE aor = NEW.alias) THEN
            RAISE EXCEPTION 'this alias is the address of a user';
        END IF;
        IF NOT EXISTS (SELECT 1 FROM strowger_users WHERE aor = NEW.aor) THEN
            RAISE EXCEPTION 'this alias leads to no user';
        END IF;
        PERFORM strowger_directory_note('alias', NEW.alias);
    END IF;
    IF TG_OP = 'DELETE' THEN
        PERFORM strowger_directory_note('alias', OLD.alias);
    ELSIF TG_OP = 'UPDATE' AND OLD.alias <> NEW.alias THEN
        PERFORM strowger_directory_note('alias', OLD.alias);
    END IF;
    RETURN NULL;
END $$ LANGUAGE plpgsql;

CREATE FUNCTION strowger_gateways_changed() RETURNS TRIGGER AS $$
BEGIN
    IF TG_OP <> 'DELETE' THEN
        PERFORM strowger_directory_note('gateway', NEW.set_name);
    END IF;
    IF TG_OP = 'DELETE' THEN
        PERFORM strowger_directory_note('gateway', OLD.set_name);
    ELSIF TG_OP = 'UPDATE' AND OLD.set_name <> NEW.set_name THEN
        PERFORM strowger_directory_note('gateway', OLD.set_name);
    END IF;
    RETURN NULL;
END $$ LANGUAGE plpgsql;

CREATE FUNCTION strowger_directory_emptied() RETURNS TRIGGER AS $$
BEGIN
    PERFORM strowger_directory_note('all', '');
    RETURN NULL;
END $$ LANGUAGE plpgsql;

CREATE TRIGGER strowger_users_changed AFTER INSERT OR UPDATE OR DELETE ON strowger_users
    FOR EACH ROW EXECUTE FUNCTION strowger_users_changed();
CREATE TRIGGER strowger_aliases_changed AFTER INSERT OR UPDATE OR DELETE ON strowger_aliases
    FOR EACH ROW EXECUTE FUNCTION strowger_aliases_changed();
CREATE TRIGGER strowger_gateways_changed AFTER INSERT OR UPDATE OR DELETE ON strowger_gateways
    FOR EACH ROW EXECUTE FUNCTION strowger_gateways_changed();
CREATE TRIGGER strowger_users_emptied AFTER TRUNCATE ON strowger_users EXECUTE FUNCTION strowger_directory_emptied();
CREATE TRIGGER strowger_aliases_emptied AFTER TRUNCATE ON strowger_aliases EXECUTE FUNCTION strowger_directory_emptied();
CREATE TRIGGER strowger_gateways_emptied AFTER TRUNCATE ON strowger_gateways EXECUTE FUNCTION strowger_directory_emptied();

-- Created last: its presence means that the rest of the schema exists.
CREATE TABLE strowger_directory_schema (
    version INTEGER NOT NULL,
    -- Identifies this database in the files that follow it.
    id      VARCHAR(36) NOT NULL
);
INSERT INTO strowger_directory_schema (version, id) VALUES (1, gen_random_uuid());
