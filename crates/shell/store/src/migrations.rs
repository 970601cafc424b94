//! The versions of the schema.

/// Migrations in order. A released one never changes.
pub(crate) const MIGRATIONS: [&str; 3] =
    [include_str!("schema/1_users.sql"), include_str!("schema/2_locations.sql"), include_str!("schema/3_gateways.sql")];

/// Latest schema version that this program supports.
pub(crate) const LATEST: i64 = MIGRATIONS.len() as i64;
