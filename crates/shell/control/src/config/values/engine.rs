//! Engines for sharing registrations.

use std::fmt;
use std::str::FromStr;

use strowger_message::Host;

/// An engine, such as `redis://HOST:PORT`. Displayed without its password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineUrl {
    /// Kind of engine.
    pub kind: EngineKind,
    /// Hosts and ports of alternative servers, of sentinels, or of some cluster nodes.
    pub authorities: Vec<String>,
    /// User name and password.
    pub password: Option<(Option<String>, String)>,
    /// Database: a name, or a number for Redis; empty for the default. With sentinels, the master's name, with a
    /// number after a slash.
    pub database: String,
}

/// Kinds of engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// Redis or Valkey.
    Redis,
    /// Redis or Valkey with sentinels that name the master.
    RedisSentinel,
    /// Redis or Valkey cluster.
    RedisCluster,
    /// PostgreSQL.
    Postgres,
    /// MariaDB or MySQL.
    MariaDb,
}

impl EngineKind {
    const fn scheme(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::RedisSentinel => "redis+sentinel",
            Self::RedisCluster => "redis+cluster",
            Self::Postgres => "postgresql",
            Self::MariaDb => "mysql",
        }
    }

    const fn port(self) -> u16 {
        match self {
            Self::Redis | Self::RedisCluster => 6_379,
            Self::RedisSentinel => 26_379,
            Self::Postgres => 5_432,
            Self::MariaDb => 3_306,
        }
    }
}

impl FromStr for EngineUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const WANTED: &str = "write redis://HOST:PORT, redis+sentinel://HOST:PORT/MASTER, redis+cluster://HOST:PORT, or postgresql:// or \
                              mysql://USER:PASSWORD@HOST:PORT/DATABASE";
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        let kind = match scheme {
            "redis" => EngineKind::Redis,
            "redis+sentinel" => EngineKind::RedisSentinel,
            "redis+cluster" => EngineKind::RedisCluster,
            "postgresql" | "postgres" => EngineKind::Postgres,
            "mysql" | "mariadb" => EngineKind::MariaDb,
            // Only the scheme is shown: the rest may contain a password.
            "" => return Err(format!("this is not an engine URL; {WANTED}")),
            _ => return Err(format!("{scheme}: is not a supported engine; {WANTED}")),
        };
        let (rest, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, addresses) = match rest.rsplit_once('@') {
            Some((user, addresses)) => (Some(user), addresses),
            None => (None, rest),
        };
        let password = user.map(|text| match text.split_once(':') {
            Some(("", password)) => (None, password.to_owned()),
            Some((user, password)) => (Some(user.to_owned()), password.to_owned()),
            None => (Some(text.to_owned()), String::new()),
        });
        let authority = |address: &str| {
            let (host, port) = match address.rsplit_once(':') {
                Some((host, port)) if !port.ends_with(']') => {
                    (host, port.parse().map_err(|_| format!("the port is not a number; {WANTED}"))?)
                }
                _ => (address, kind.port()),
            };
            Host::parse(host.as_bytes()).ok_or_else(|| format!("the host is missing; {WANTED}"))?;
            Ok(format!("{host}:{port}"))
        };
        let authorities = addresses.split(',').map(authority).collect::<Result<Vec<_>, String>>()?;
        check_database(kind, database)?;
        Ok(Self { kind, authorities, password, database: database.to_owned() })
    }
}

/// Checks that the database is valid for this kind of engine.
fn check_database(kind: EngineKind, database: &str) -> Result<(), String> {
    let is_number = |text: &str| text.is_empty() || text.parse::<u32>().is_ok();
    match kind {
        EngineKind::Redis if !is_number(database) => {
            Err("a Redis database is a number, as in redis://192.0.2.10/1".to_owned())
        }
        EngineKind::RedisSentinel => {
            let (master, number) = database.split_once('/').unwrap_or((database, ""));
            let is_right = !master.is_empty() && is_number(number);
            let wanted = "the sentinels' name of the master is missing; write it as in redis+sentinel://192.0.2.10:26379/mymaster";
            is_right.then_some(()).ok_or_else(|| wanted.to_owned())
        }
        EngineKind::RedisCluster if !database.is_empty() => {
            Err("a Redis cluster has only one database; write redis+cluster://192.0.2.10:6379".to_owned())
        }
        EngineKind::Redis | EngineKind::RedisCluster | EngineKind::Postgres | EngineKind::MariaDb => Ok(()),
    }
}

impl fmt::Display for EngineUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.kind.scheme(), self.authorities.join(","))?;
        if self.database.is_empty() { Ok(()) } else { write!(f, "/{}", self.database) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(EngineKind, String, String), String> {
        let url: EngineUrl = text.parse()?;
        Ok((url.kind, url.authorities.join(" "), url.database))
    }

    #[test]
    fn urls_name_servers_and_databases() {
        let is = |kind, authorities: &str, database: &str| Ok((kind, authorities.to_owned(), database.to_owned()));
        assert_eq!(read("redis://192.0.2.10/1"), is(EngineKind::Redis, "192.0.2.10:6379", "1"));
        assert_eq!(
            read("redis+sentinel://:secret@a,b:26380,[2001:db8::1]/mymaster"),
            is(EngineKind::RedisSentinel, "a:26379 b:26380 [2001:db8::1]:26379", "mymaster")
        );
        assert_eq!(read("redis+cluster://a,b:7000"), is(EngineKind::RedisCluster, "a:6379 b:7000", ""));
        assert_eq!(read("mysql://me:pw@a,b/sip"), is(EngineKind::MariaDb, "a:3306 b:3306", "sip"));
        let shown: EngineUrl = "redis+sentinel://:secret@a,b/mymaster/2".parse().expect("valid");
        assert_eq!(shown.to_string(), "redis+sentinel://a:26379,b:26379/mymaster/2", "without the password");
    }

    #[test]
    fn invalid_engine_urls_are_rejected_with_a_hint() {
        for (text, why) in [
            ("redis+sentinel://a", "the sentinels' name of the master"),
            ("redis+sentinel://a/mymaster/x", "the sentinels' name of the master"),
            ("redis+cluster://a/1", "has only one database"),
            ("redis://a/x", "is a number"),
            ("redis://a,", "the host is missing"),
            ("redis://a:x", "the port is not a number"),
            ("http://a", "is not a supported engine"),
        ] {
            let said = read(text).expect_err(text);
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
