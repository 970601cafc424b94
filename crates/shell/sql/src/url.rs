//! Database URLs.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

const USAGE: &str = "write sqlite:PATH, or postgresql:// or mysql://USER:PASSWORD@HOST:PORT/DATABASE";

/// URL of a database: `sqlite:PATH`, `postgresql://USER:PASSWORD@HOST:PORT/DATABASE` or
/// `mysql://USER:PASSWORD@HOST:PORT/DATABASE`.
///
/// User, password and database may be percent-encoded. Displayed without the password.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    /// An existing file.
    Sqlite(PathBuf),
    /// PostgreSQL.
    Postgres(Server),
    /// MariaDB or MySQL.
    MariaDb(Server),
}

/// A database on a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Server {
    /// Host name or literal address; an IPv6 address without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// User, if given.
    pub user: Option<String>,
    /// Password, if given.
    pub password: Option<String>,
    /// Name of the database.
    pub database: String,
}

/// SQL dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite's.
    Sqlite,
    /// PostgreSQL's.
    Postgres,
    /// MariaDB's and MySQL's.
    MariaDb,
}

impl DatabaseUrl {
    /// Returns the SQL dialect.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
            Self::MariaDb(_) => Dialect::MariaDb,
        }
    }
}

impl FromStr for DatabaseUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path {
                "" => Err("\"sqlite:\" has no file name; write sqlite:PATH".to_owned()),
                _ => Ok(Self::Sqlite(PathBuf::from(path))),
            };
        }
        // Only the scheme is shown; the rest may contain a password.
        match text.split_once("://").unwrap_or_default() {
            ("postgresql" | "postgres", rest) => server(rest, 5_432).map(Self::Postgres),
            ("mysql" | "mariadb", rest) => server(rest, 3_306).map(Self::MariaDb),
            ("", _) => Err(format!("this is not a database URL; {USAGE}")),
            (scheme, _) => Err(format!("{scheme}: is not a supported database; {USAGE}")),
        }
    }
}

fn server(text: &str, usual_port: u16) -> Result<Server, String> {
    // A password may contain an unencoded slash or @: the last @ ends it.
    let (user, address) = match text.rsplit_once('@') {
        Some((user, address)) => (Some(user), address),
        None => (None, text),
    };
    let (address, database) = address.split_once('/').unwrap_or((address, ""));
    if database.is_empty() {
        return Err(format!("the database name is missing; {USAGE}"));
    }
    if database.contains('?') {
        return Err(format!("options after the database name are not supported; {USAGE}"));
    }
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            (host, port.parse().map_err(|_| format!("the port is not a number; {USAGE}"))?)
        }
        _ => (address, usual_port),
    };
    let host = host.trim_matches(['[', ']']);
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    if host.is_empty() || !host.chars().all(fits) {
        return Err(format!("the host is missing; {USAGE}"));
    }
    let (user, password) = match user.map(|user| user.split_once(':').map_or((user, None), |(u, p)| (u, Some(p)))) {
        Some((user, password)) => (Some(percent_decode(user)?), password.map(percent_decode).transpose()?),
        None => (None, None),
    };
    Ok(Server {
        host: host.to_owned(),
        port,
        user: user.filter(|user| !user.is_empty()),
        password: password.filter(|password| !password.is_empty()),
        database: percent_decode(database)?,
    })
}

fn percent_decode(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(String::from).map_err(|_| format!("the percent-encoded text is not UTF-8; {USAGE}"))
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(server) => write!(f, "postgresql://{server}"),
            Self::MariaDb(server) => write!(f, "mysql://{server}"),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}/{}", self.host, self.port, self.database),
            false => write!(f, "{}:{}/{}", self.host, self.port, self.database),
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({self})")
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> DatabaseUrl {
        text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn all_url_forms_parse_and_display_without_the_password() {
        for (text, shown) in [
            ("sqlite:data/kamailio.db", "sqlite:data/kamailio.db"),
            ("sqlite:///etc/kamailio.db", "sqlite:/etc/kamailio.db"),
            ("postgres://a:b@db/k", "postgresql://a@db:5432/k"),
            ("postgresql://a@[2001:db8::1]:99/k", "postgresql://a@[2001:db8::1]:99/k"),
            ("mariadb://192.0.2.1/k", "mysql://192.0.2.1:3306/k"),
            ("mysql://kamailio:pa%40s/s@w@db:3307/k%20x", "mysql://kamailio@db:3307/k x"),
        ] {
            assert_eq!(parsed(text).to_string(), shown);
            assert!(!format!("{:?}", parsed(text)).contains("w@db"));
        }
    }

    #[test]
    fn passwords_are_decoded() {
        let DatabaseUrl::MariaDb(server) = parsed("mysql://kamailio:pa%40s/s@w@db:3307/k") else { panic!() };
        assert_eq!(server.password.as_deref(), Some("pa@s/s@w"));
        let DatabaseUrl::Postgres(server) = parsed("postgres://kamailio:@db/k") else { panic!() };
        assert_eq!(server.password, None);
    }

    #[test]
    fn invalid_database_urls_are_rejected_without_the_password() {
        for text in [
            "sqlite:",
            "secret",
            "oracle://u:secret@db/k",
            "mysql://u:secret@db",
            "mysql://u:secret@db:x/k",
            "mysql://u:secret@/k",
            "mysql://u:secret@d b/k",
            "mysql://u:secret%ff@db/k",
            "postgresql://u:secret@db/k?sslmode=require",
        ] {
            let why = text.parse::<DatabaseUrl>().expect_err(text);
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
