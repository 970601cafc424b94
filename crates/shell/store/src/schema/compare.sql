DELETE FROM gone_users;
DELETE FROM new_users;
DELETE FROM gone_aliases;
DELETE FROM new_aliases;
DELETE FROM gone_gateways;
DELETE FROM new_gateways;

INSERT INTO gone_users SELECT aor FROM users AS here
WHERE NOT EXISTS (SELECT 1 FROM incoming_users AS there WHERE there.aor = here.aor)
  AND (EXISTS (SELECT 1 FROM scope WHERE kind = 'all') OR aor IN (SELECT name FROM scope WHERE kind = 'user'));
INSERT INTO new_users SELECT there.aor FROM incoming_users AS there LEFT JOIN users AS here ON here.aor = there.aor
WHERE here.aor IS NULL
   OR (here.realm, here.ha1_md5, here.ha1_sha256, here.ha1_sha512_256, here.enabled, here.created)
      IS NOT (there.realm, there.ha1_md5, there.ha1_sha256, there.ha1_sha512_256, there.enabled, there.created);

-- An alias with the address of a new user is removed, even if it is outside the scope.
INSERT INTO gone_aliases SELECT alias FROM aliases AS here
WHERE NOT EXISTS (SELECT 1 FROM incoming_aliases AS there WHERE there.alias = here.alias)
  AND (EXISTS (SELECT 1 FROM scope WHERE kind = 'all') OR alias IN (SELECT name FROM scope WHERE kind = 'alias')
       OR alias IN (SELECT aor FROM new_users));
INSERT INTO new_aliases SELECT there.alias FROM incoming_aliases AS there LEFT JOIN aliases AS here ON here.alias = there.alias
WHERE here.aor IS NOT there.aor;

INSERT INTO gone_gateways SELECT set_name, uri FROM gateways AS here
WHERE NOT EXISTS (SELECT 1 FROM incoming_gateways AS there WHERE there.set_name = here.set_name AND there.uri = here.uri)
  AND (EXISTS (SELECT 1 FROM scope WHERE kind = 'all') OR set_name IN (SELECT name FROM scope WHERE kind = 'gateway'));
INSERT INTO new_gateways SELECT there.set_name, there.uri FROM incoming_gateways AS there
LEFT JOIN gateways AS here ON here.set_name = there.set_name AND here.uri = there.uri
WHERE here.uri IS NULL
   OR (here.priority, here.weight, here.capacity, here.enabled, here.description, here.created)
      IS NOT (there.priority, there.weight, there.capacity, there.enabled, there.description, there.created);
