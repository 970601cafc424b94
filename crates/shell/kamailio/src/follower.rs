//! What has changed in the tables since they were looked at last.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use strowger_directory::{DirectoryChange, Gateway, User};
use strowger_sql::DatabaseUrl;

use crate::subscriber::{Identity, Subscriber};
use crate::tables::{BadRow, Tables};
use crate::versions::{Flavor, Table, VersionError};

/// Bad rows that are kept of a look.
const MAX_BAD_ROWS: usize = 100;

/// What is followed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowConfig {
    /// The database.
    pub url: DatabaseUrl,
    /// Whose it is.
    pub flavor: Flavor,
    /// The tables: [`Table::Subscriber`], [`Table::Dispatcher`] or both.
    pub tables: Vec<Table>,
    /// What subscribers are called where the table does not say it.
    pub identity: Identity,
    /// What stands before the number of a dispatcher set in its name.
    pub set_prefix: String,
    /// Versions of tables may be unknown ones.
    pub allows_any_version: bool,
    /// How long the database may take to answer.
    pub timeout: Duration,
}

/// All that the tables have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableContents {
    users: HashMap<Box<[u8]>, User>,
    sets: BTreeMap<Box<[u8]>, Vec<Gateway>>,
}

impl TableContents {
    /// The user at this address of record.
    #[must_use]
    pub fn user(&self, aor: &[u8]) -> Option<&User> {
        self.users.get(aor)
    }

    /// How many users there are.
    #[must_use]
    pub fn users(&self) -> usize {
        self.users.len()
    }

    /// The members of a set; none where there is no such set.
    #[must_use]
    pub fn members(&self, set: &[u8]) -> &[Gateway] {
        self.sets.get(set).map_or(&[], |members| members)
    }

    /// All of it as changes of an empty directory.
    pub fn all(&self) -> impl Iterator<Item = DirectoryChange> {
        let users = self.users.values().cloned().map(DirectoryChange::PutUser);
        users.chain(self.sets.iter().map(|(set, members)| put(set, members)))
    }

    /// What makes `self` of what was `before`.
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

/// What a look has found.
#[derive(Clone, Debug)]
pub struct PollResult {
    /// All that there is now.
    pub contents: Arc<TableContents>,
    /// What makes it of what there was before.
    pub changes: Vec<DirectoryChange>,
    /// Some of the rows that are left out.
    pub bad: Vec<BadRow>,
    /// How many are left out.
    pub bad_row_count: usize,
}

/// Looks at the tables again and again. Each look reads them whole, for they do not say what has changed.
pub struct Follower {
    config: FollowConfig,
    tables: Tables,
    is_checked: bool,
    known: Arc<TableContents>,
}

impl Follower {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(config: FollowConfig) -> Self {
        let tables = Tables::new(&config.url, config.flavor, config.timeout);
        Self { config, tables, is_checked: false, known: Arc::default() }
    }

    /// One that goes on from what another one of the same configuration knew.
    #[must_use]
    pub fn resume(config: FollowConfig, known: Arc<TableContents>) -> Self {
        Self { known, ..Self::new(config) }
    }

    /// Looks at all tables.
    ///
    /// # Errors
    /// [`VersionError`]; then what was known stays known.
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

/// What a look has seen so far.
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
