//! The compared servers.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::engine::Kind;

/// A server, and what its 200 to a REGISTER guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
pub enum Contender {
    /// Strowger alone, `store.mode = "memory"`
    AloneMemory,
    /// Strowger alone, write-behind
    AloneBehind,
    /// Strowger alone, write-through
    Alone,
    /// A member with Redis, 200 after writing to its own disk
    RedisDisk,
    /// A member with Redis, 200 after writing to Redis and its own disk
    Redis,
    /// A member with Redis, 200 after writing to Redis
    RedisMemory,
    /// A member with Redis and a replica, 200 after writing to both and its own disk
    RedisReplica,
    /// A member with PostgreSQL, 200 after writing to its own disk
    PostgresDisk,
    /// A member with PostgreSQL, 200 after writing to PostgreSQL and its own disk
    Postgres,
    /// A member with PostgreSQL, 200 after writing to PostgreSQL
    PostgresMemory,
    /// A member with MariaDB, 200 after writing to its own disk
    MariadbDisk,
    /// A member with MariaDB, 200 after writing to MariaDB and its own disk
    Mariadb,
    /// A member with MariaDB, 200 after writing to MariaDB
    MariadbMemory,
    /// Kamailio, memory only
    #[value(name = "kamailio-0")]
    Kamailio0,
    /// Kamailio, write-through into MariaDB
    #[value(name = "kamailio-1")]
    Kamailio1,
    /// Kamailio, write-back into MariaDB
    #[value(name = "kamailio-2")]
    Kamailio2,
    /// Kamailio, MariaDB only
    #[value(name = "kamailio-3")]
    Kamailio3,
    /// Kamailio, memory, replicated to a second one by DMQ
    KamailioDmq,
}

impl Contender {
    /// All contenders in the order of the tables.
    pub const ALL: [Self; 18] = [
        Self::AloneMemory,
        Self::AloneBehind,
        Self::Alone,
        Self::RedisDisk,
        Self::Redis,
        Self::RedisMemory,
        Self::RedisReplica,
        Self::PostgresDisk,
        Self::Postgres,
        Self::PostgresMemory,
        Self::MariadbDisk,
        Self::Mariadb,
        Self::MariadbMemory,
        Self::Kamailio0,
        Self::Kamailio1,
        Self::Kamailio2,
        Self::Kamailio3,
        Self::KamailioDmq,
    ];

    /// Returns the engine that it needs.
    #[must_use]
    pub const fn engine(self) -> Option<Kind> {
        match self {
            Self::RedisDisk | Self::Redis | Self::RedisMemory | Self::RedisReplica => Some(Kind::Redis),
            Self::PostgresDisk | Self::Postgres | Self::PostgresMemory => Some(Kind::Postgres),
            Self::MariadbDisk | Self::Mariadb | Self::MariadbMemory => Some(Kind::Mariadb),
            Self::Kamailio1 | Self::Kamailio2 | Self::Kamailio3 => Some(Kind::Mariadb),
            _ => None,
        }
    }

    /// Returns whether its engine has a replica that a 200 waits for.
    #[must_use]
    pub const fn has_replica(self) -> bool {
        matches!(self, Self::RedisReplica)
    }

    /// Returns `store.mode` of a Strowger server.
    #[must_use]
    pub const fn store(self) -> Option<&'static str> {
        match self {
            Self::AloneMemory | Self::RedisMemory | Self::PostgresMemory | Self::MariadbMemory => Some("memory"),
            Self::AloneBehind => Some("write-behind"),
            _ if self.kamailio().is_none() => Some("write-through"),
            _ => None,
        }
    }

    /// Returns `cluster.durability` of a member.
    #[must_use]
    pub const fn durability(self) -> Option<&'static str> {
        match self {
            Self::RedisDisk | Self::PostgresDisk | Self::MariadbDisk => Some("disk"),
            _ if self.is_member() => Some("engine"),
            _ => None,
        }
    }

    /// Returns `db_mode` of Kamailio's usrloc.
    #[must_use]
    pub const fn kamailio(self) -> Option<u8> {
        match self {
            Self::Kamailio0 | Self::KamailioDmq => Some(0),
            Self::Kamailio1 => Some(1),
            Self::Kamailio2 => Some(2),
            Self::Kamailio3 => Some(3),
            _ => None,
        }
    }

    /// Returns whether it is a Strowger server that shares registrations.
    #[must_use]
    pub const fn is_member(self) -> bool {
        self.kamailio().is_none() && self.engine().is_some()
    }

    /// Returns the same program as a single server, the base of comparison.
    #[must_use]
    pub const fn base(self) -> Self {
        if self.kamailio().is_some() { Self::Kamailio0 } else { Self::Alone }
    }

    /// Returns whether a second server receives the registrations of the first.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        self.is_member() || matches!(self, Self::KamailioDmq | Self::Kamailio3)
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AloneMemory => "alone, memory",
            Self::AloneBehind => "alone, write-behind",
            Self::Alone => "alone, write-through",
            Self::RedisDisk => "Redis: disk",
            Self::Redis => "Redis: engine and disk",
            Self::RedisMemory => "Redis: engine",
            Self::RedisReplica => "Redis: engine, replica and disk",
            Self::PostgresDisk => "PostgreSQL: disk",
            Self::Postgres => "PostgreSQL: engine and disk",
            Self::PostgresMemory => "PostgreSQL: engine",
            Self::MariadbDisk => "MariaDB: disk",
            Self::Mariadb => "MariaDB: engine and disk",
            Self::MariadbMemory => "MariaDB: engine",
            Self::Kamailio0 => "Kamailio, memory (0)",
            Self::Kamailio1 => "Kamailio, MariaDB write-through (1)",
            Self::Kamailio2 => "Kamailio, MariaDB write-back (2)",
            Self::Kamailio3 => "Kamailio, MariaDB alone (3)",
            Self::KamailioDmq => "Kamailio, memory, DMQ",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_says_what_a_200_means() {
        let of = |one: Contender| (one.engine(), one.store(), one.durability(), one.kamailio());
        assert_eq!(of(Contender::Alone), (None, Some("write-through"), None, None));
        assert_eq!(of(Contender::RedisDisk), (Some(Kind::Redis), Some("write-through"), Some("disk"), None));
        assert_eq!(of(Contender::PostgresMemory), (Some(Kind::Postgres), Some("memory"), Some("engine"), None));
        assert_eq!(of(Contender::Kamailio2), (Some(Kind::Mariadb), None, None, Some(2)));
        assert_eq!(of(Contender::KamailioDmq), (None, None, None, Some(0)));
        let members = Contender::ALL.into_iter().filter(|one| one.is_member());
        assert!(members.clone().all(Contender::is_shared) && members.count() == 10);
    }
}
