DELETE FROM aliases WHERE alias IN (SELECT alias FROM gone_aliases);
DELETE FROM users WHERE aor IN (SELECT aor FROM gone_users);
INSERT INTO users (aor, realm, ha1_md5, ha1_sha256, ha1_sha512_256, enabled, created)
SELECT aor, realm, ha1_md5, ha1_sha256, ha1_sha512_256, enabled, created FROM incoming_users
WHERE aor IN (SELECT aor FROM new_users)
ON CONFLICT (aor) DO UPDATE SET realm = excluded.realm, ha1_md5 = excluded.ha1_md5, ha1_sha256 = excluded.ha1_sha256,
    ha1_sha512_256 = excluded.ha1_sha512_256, enabled = excluded.enabled, created = excluded.created;
INSERT INTO aliases (alias, aor)
SELECT alias, aor FROM incoming_aliases AS there
WHERE alias IN (SELECT alias FROM new_aliases)
  AND EXISTS (SELECT 1 FROM users WHERE users.aor = there.aor)
  AND NOT EXISTS (SELECT 1 FROM users WHERE users.aor = there.alias)
ON CONFLICT (alias) DO UPDATE SET aor = excluded.aor;
DELETE FROM gateways WHERE (set_name, uri) IN (SELECT set_name, uri FROM gone_gateways UNION SELECT set_name, uri FROM new_gateways);
INSERT INTO gateways (set_name, uri, priority, weight, capacity, enabled, description, created)
SELECT set_name, uri, priority, weight, capacity, enabled, description, created FROM incoming_gateways
WHERE (set_name, uri) IN (SELECT set_name, uri FROM new_gateways);
