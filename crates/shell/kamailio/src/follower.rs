//! Detection of changes in the tables between polls.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use strowger_directory::{DirectoryChange, Gateway, User};
use strowger_sql::DatabaseUrl;

use crate::row::BadRow;
use crate::subscriber::{Identity, Subscriber};
use crate::tables::Tables;
use crate::versions::{Flavor, Table, VersionError};

/// Maximum number of bad rows kept per poll.
const MAX_BAD_ROWS: usize = 100;

/// Configuration of a follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowConfig {
    /// The database.
    pub url: DatabaseUrl,
    /// Whether the database is Kamailio's or OpenSIPS's.
    pub flavor: Flavor,
    /// Tables to follow: [`Table::Subscriber`], [`Table::Dispatcher`] or both.
    pub tables: Vec<Table>,
    /// Domain and realm of subscribers whose row does not have them.
    pub identity: Identity,
    /// Prefix of a dispatcher set's name, before its number.
    pub set_prefix: String,
    /// Whether unknown table versions are accepted.
    pub allows_any_version: bool,
    /// Timeout of the database.
    pub timeout: Duration,
}

/// Contents of the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableContents {
    users: HashMap<Box<[u8]>, User>,
    sets: BTreeMap<Box<[u8]>, Vec<Gateway>>,
}

impl TableContents {
    /// Returns the user with this address of record.
    #[must_use]
    pub fn user(&self, aor: &[u8]) -> Option<&User> {
        self.users.get(aor)
    }

    /// Returns the number of users.
    #[must_use]
    pub fn users(&self) -> usize {
        self.users.len()
    }

    /// Returns the members of a set. Empty if there is no such set.
    #[must_use]
    pub fn members(&self, set: &[u8]) -> &[Gateway] {
        self.sets.get(set).map_or(&[], |members| members)
    }

    /// Returns everything as changes of an empty directory.
    pub fn all(&self) -> impl Iterator<Item = DirectoryChange> {
        let users = self.users.values().cloned().map(DirectoryChange::PutUser);
        users.chain(self.sets.iter().map(|(set, members)| put(set, members)))
    }

    /// Returns the changes that turn `before` into `self`.
    fn changes_since(&self, before: &Self) -> Vec<DirectoryChange> {
        let new = self.users.values().filter(|user| before.user(&user.aor) != Some(user));
        let gone = before.users.keys().filter(|aor| !self.users.contains_key(*aor));
        let new_sets = self.sets.iter().filter(|(set, members)| before.members(set) != &members[..]);
        let gone_sets = before.sets.keys().filter(|set| !self.sets.contains_key(*set));
        let users = new.cloned().map(DirectoryChange::PutUser).chain(gone.cloned().map(DirectoryChange::RemoveUser));
        let sets = new_sets.map(|(set, members)| put(set, members)).chain(gone_sets.map(|set| put(set, &[])));
        users.chain(sets).collect()
    }
}

fn put(set: &[u8], members: &[Gateway]) -> DirectoryChange {
    DirectoryChange::PutGateways { set: set.into(), gateways: members.to_vec() }
}

/// Result of a poll.
#[derive(Clone, Debug)]
pub struct PollResult {
    /// Present contents.
    pub contents: Arc<TableContents>,
    /// Changes since the previous poll.
    pub changes: Vec<DirectoryChange>,
    /// Some of the skipped rows.
    pub bad: Vec<BadRow>,
    /// Number of skipped rows.
    pub bad_row_count: usize,
}

/// Polls the tables. Each poll reads them in full, because the tables do not record changes.
pub struct Follower {
    config: FollowConfig,
    tables: Tables,
    is_checked: bool,
    known: Arc<TableContents>,
}

impl Follower {
    /// Creates a follower without contents.
    #[must_use]
    pub fn new(config: FollowConfig) -> Self {
        let tables = Tables::new(&config.url, config.flavor, config.timeout);
        Self { config, tables, is_checked: false, known: Arc::default() }
    }

    /// Creates a follower that continues with the contents of another one of the same configuration.
    #[must_use]
    pub fn resume(config: FollowConfig, known: Arc<TableContents>) -> Self {
        Self { known, ..Self::new(config) }
    }

    /// Polls all tables.
    ///
    /// # Errors
    /// [`VersionError`]; the known contents are kept.
    pub fn poll(&mut self) -> Result<PollResult, VersionError> {
        if !self.is_checked && !self.config.allows_any_version {
            self.tables.check(&self.config.tables)?;
        }
        self.is_checked = true;
        let mut seen = PollState::default();
        if self.config.tables.contains(&Table::Subscriber) {
            self.tables.for_each_subscriber(&self.config.identity, &mut |row| seen.take(row))?;
        }
        if self.config.tables.contains(&Table::Dispatcher) {
            let (sets, bad) = self.tables.sets(&self.config.set_prefix)?;
            bad.into_iter().for_each(|row| seen.refuse(row));
            let members = |set: crate::DestinationSet| {
                let members = set.members.into_iter().map(|member| member.gateway).collect();
                (set.name.into_bytes().into(), members)
            };
            seen.known.sets = sets.into_iter().map(members).collect();
        }
        let PollState { known, bad, bad_rows } = seen;
        let changes = known.changes_since(&self.known);
        if !changes.is_empty() {
            self.known = Arc::new(known);
        }
        Ok(PollResult { contents: Arc::clone(&self.known), changes, bad, bad_row_count: bad_rows })
    }
}

/// State within a poll.
#[derive(Default)]
struct PollState {
    known: TableContents,
    bad: Vec<BadRow>,
    bad_rows: usize,
}

impl PollState {
    fn take(&mut self, row: Result<Subscriber, BadRow>) {
        match row {
            Ok(Subscriber { address, ha1, .. }) => {
                let aor: Box<[u8]> = address.as_str().as_bytes().into();
                self.known.users.insert(aor.clone(), User { aor, ha1, enabled: true });
            }
            Err(bad) => self.refuse(bad),
        }
    }

    fn refuse(&mut self, bad: BadRow) {
        self.bad_rows += 1;
        if self.bad.len() < MAX_BAD_ROWS {
            self.bad.push(bad);
        }
    }
}
