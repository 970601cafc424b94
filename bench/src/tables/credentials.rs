//! Source of a user's password hash each time credentials are checked: memory, a database in this process, or a
//! database in another process.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};
use strowger_directory::{Directory, DirectoryChange, Ha1s, User};

use super::postgres::{self, Cluster};
use super::table::{DOMAIN, Names};
use crate::tables::lookup::{Credentials, read_hash};

/// Source of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Source {
    /// The server's user directory.
    Memory,
    /// SQLite, in this process.
    Sqlite,
    /// PostgreSQL over a local socket, with one backend process per client thread.
    Postgres,
}

impl Source {
    /// All sources, the fastest first.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Sqlite, Self::Postgres];

    /// Returns the name in options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        })
    }
}

/// The users, in memory and in databases.
pub struct UserStores {
    directory: Option<Arc<Directory>>,
    sqlite: Option<tempfile::TempDir>,
    cluster: Option<Cluster>,
    users: u32,
}

impl UserStores {
    /// Creates `users` users in each source. Reports the reason if PostgreSQL is not available.
    ///
    /// # Errors
    /// If SQLite's file cannot be written.
    pub fn make(users: u32, sources: &[Source]) -> Result<Self, String> {
        let mut stock = Self { directory: None, sqlite: None, cluster: None, users };
        for source in sources {
            match source {
                Source::Memory => stock.directory = Some(Arc::new(directory(users))),
                Source::Sqlite => {
                    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
                    fill_sqlite(&file_in(&folder), users).map_err(|error| format!("SQLite: {error}"))?;
                    stock.sqlite = Some(folder);
                }
                Source::Postgres => {
                    let cluster = Cluster::start(users, DOMAIN);
                    stock.cluster = cluster.inspect_err(|error| eprintln!("SKIPPED: PostgreSQL: {error}")).ok();
                }
            }
        }
        Ok(stock)
    }

    /// Returns the number of users in the databases.
    #[must_use]
    pub fn users(&self) -> u32 {
        self.users
    }

    /// Returns the available sources.
    pub fn sources(&self) -> impl Iterator<Item = Source> + '_ {
        Source::ALL.into_iter().filter(|source| match source {
            Source::Memory => self.directory.is_some(),
            Source::Sqlite => self.sqlite.is_some(),
            Source::Postgres => self.cluster.is_some(),
        })
    }

    /// Opens a source for one thread.
    ///
    /// # Errors
    /// If the database cannot be reached.
    pub fn open(&self, source: Source) -> Result<Box<dyn Credentials + Send>, String> {
        let missing = || format!("there is no {source}");
        Ok(match source {
            Source::Memory => Box::new(Memory(Arc::clone(self.directory.as_ref().ok_or_else(missing)?))),
            Source::Sqlite => Box::new(Sqlite::open(&file_in(self.sqlite.as_ref().ok_or_else(missing)?))?),
            Source::Postgres => Box::new(postgres::Client::connect(self.cluster.as_ref().ok_or_else(missing)?)?),
        })
    }
}

fn file_in(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("users.db")
}

fn directory(users: u32) -> Directory {
    let mut names = Names::default();
    let put = |user: u32| {
        let md5 = Some(u128::from(user).to_be_bytes());
        let ha1 = Ha1s { md5, sha256: None, sha512_256: None };
        DirectoryChange::PutUser(User { aor: names.aor(user).into(), ha1, enabled: true })
    };
    Directory::empty(3).with_changes((0..users).map(put))
}

struct Memory(Arc<Directory>);

/// Creates the table as in the server's own store, without the constraints that only validate input.
fn fill_sqlite(file: &Path, users: u32) -> rusqlite::Result<()> {
    let connection = Connection::open(file)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;
         CREATE TABLE users (aor TEXT NOT NULL PRIMARY KEY, realm TEXT NOT NULL, ha1_md5 TEXT) STRICT, WITHOUT ROWID;",
    )?;
    connection.execute(
        "WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?1)
         INSERT INTO users SELECT printf('u%08d@%s', n, ?2), ?2, printf('%032x', n) FROM numbers",
        params![users, DOMAIN],
    )?;
    Ok(())
}

struct Sqlite(Connection);

impl Sqlite {
    fn open(file: &Path) -> Result<Self, String> {
        let open = || -> rusqlite::Result<Self> {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(file, flags)?;
            // The cache holds the whole file, so no row is read from it twice.
            connection.execute_batch("PRAGMA cache_size = -262144; PRAGMA mmap_size = 1073741824;")?;
            Ok(Self(connection))
        };
        open().map_err(|error| format!("SQLite: {error}"))
    }
}

impl Credentials for Memory {
    fn hash(&mut self, aor: &[u8]) -> Option<[u8; 16]> {
        self.0.user(self.0.resolve(aor))?.ha1.md5
    }
}

impl Credentials for Sqlite {
    fn hash(&mut self, aor: &[u8]) -> Option<[u8; 16]> {
        let aor = std::str::from_utf8(aor).ok()?;
        let mut query = self.0.prepare_cached("SELECT ha1_md5 FROM users WHERE aor = ?1").ok()?;
        let text: String = query.query_row([aor], |row| row.get(0)).optional().ok()??;
        read_hash(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sources_know_the_same_users() {
        let stock = UserStores::make(100, &Source::ALL).expect("databases can be written");
        let mut names = Names::default();
        for source in stock.sources() {
            let mut credentials = stock.open(source).expect("it can be asked");
            for user in [0, 7, 99] {
                assert_eq!(credentials.hash(names.aor(user)), Some(u128::from(user).to_be_bytes()), "{source}: {user}");
            }
            assert_eq!(credentials.hash(names.aor(100)), None, "{source}");
        }
    }

    #[test]
    fn only_wanted_stores_are_made() {
        let stock = UserStores::make(100, &[Source::Sqlite]).expect("a database can be written");
        assert_eq!(stock.sources().collect::<Vec<_>>(), [Source::Sqlite]);
        assert!(stock.open(Source::Memory).is_err_and(|error| error == "there is no memory"));
    }
}
