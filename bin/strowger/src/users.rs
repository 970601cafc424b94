//! Users and gateways of a running server: follows its own database, and adds the contents of another server's
//! database.

mod shared;

use std::sync::Arc;

use strowger_control::config::Config;
use strowger_control::config::values::StoreUrl;
use strowger_control::protocol;
use strowger_directory::{Directory, DirectoryChange};
use strowger_kamailio::TableContents;
use strowger_store::{AnyBackend, Changes, Seq, StoreError, UserStore};

use crate::kamailio::KamailioUsers;
use shared::SharedUsers;

/// The directory, and the databases that it is built from.
pub(crate) struct Users {
    store: Option<(UserStore, Seq)>,
    /// The shared database that the local file is a copy of, if any.
    shared: Option<Arc<SharedUsers>>,
    /// Contents of our own database.
    own: Directory,
    /// Contents of the other server's database, used where ours has no entry.
    kamailio: Option<KamailioUsers>,
    /// Combined contents.
    directory: Directory,
    seed: u64,
    /// Last failure, to avoid repeated reports.
    trouble: Option<String>,
}

/// Result of following the databases.
pub(crate) enum DirectoryUpdate {
    /// No change.
    Unchanged,
    /// Some rows changed. Lists the addresses that are barred.
    Changed {
        gone: Vec<Box<[u8]>>,
        /// Changed gateway sets.
        sets: Vec<Box<[u8]>>,
    },
    /// The whole directory was replaced.
    Replaced,
}

impl Users {
    pub(crate) fn open(config: &Config, seed: u64) -> Result<Self, StoreError> {
        Self::open_with(config, seed, None)
    }

    /// Reopens everything according to `config`. If the other server's database is unavailable, its known contents
    /// are kept.
    pub(crate) fn reopen(&self, config: &Config) -> Result<Self, StoreError> {
        Self::open_with(config, self.seed, Some(self))
    }

    fn open_with(config: &Config, seed: u64, before: Option<&Self>) -> Result<Self, StoreError> {
        let (shared, store, own) = match config.store_url() {
            StoreUrl::Memory => (None, None, Directory::empty(seed)),
            StoreUrl::Sqlite(path) => {
                let shared = before.and_then(|before| before.shared.clone());
                let shared = SharedUsers::follow(config.shared_users(), &path, shared)?;
                let store = UserStore::open(path)?;
                let (directory, seq) = store.load(seed)?;
                (shared, Some((store, seq)), directory)
            }
        };
        let kamailio = KamailioUsers::start(config, before.and_then(|before| before.kamailio.as_ref()));
        let directory = with_kamailio(&own, kamailio.as_ref());
        Ok(Self { store, shared, own, kamailio, directory, seed, trouble: None })
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Opens the database where users and gateways are written, if any. Changes made there are followed like those of
    /// other processes.
    pub(crate) fn store(&self, config: &Config) -> Option<Result<UserStore<AnyBackend>, StoreError>> {
        match (&self.shared, config.store_url()) {
            (Some(shared), _) => Some(shared.store()),
            (None, StoreUrl::Sqlite(path)) => Some(UserStore::open(path).map(UserStore::from)),
            (None, StoreUrl::Memory) => None,
        }
    }

    /// Returns the state of the shared database, if any.
    pub(crate) fn shared_status(&self) -> Option<protocol::Database> {
        self.shared.as_ref().map(|shared| shared.status())
    }

    /// Like [`follow`](Self::follow), but reads the current contents of the shared database first.
    pub(crate) fn follow_now(&mut self) -> DirectoryUpdate {
        if let Some(shared) = &self.shared {
            shared.look();
        }
        self.follow()
    }

    /// Reads changes. If the database cannot be read, the directory stays unchanged and the log says so.
    pub(crate) fn follow(&mut self) -> DirectoryUpdate {
        let changed = self.try_follow();
        let trouble = changed.as_ref().err().map(ToString::to_string);
        match (&trouble, &self.trouble) {
            (Some(now), before) if before.as_ref() != Some(now) => {
                tracing::error!("users and gateways are not followed: {now}");
            }
            (None, Some(_)) => tracing::info!("users and gateways are followed again"),
            _ => {}
        }
        self.trouble = trouble;
        self.follow_kamailio(changed.unwrap_or(DirectoryUpdate::Unchanged))
    }

    fn try_follow(&mut self) -> Result<DirectoryUpdate, StoreError> {
        let Some((store, seen)) = &mut self.store else { return Ok(DirectoryUpdate::Unchanged) };
        match store.changes_since(*seen)? {
            Changes::Since { seq, .. } if seq == *seen => Ok(DirectoryUpdate::Unchanged),
            Changes::Since { changes, seq } => {
                *seen = seq;
                self.own = self.own.with_changes(changes.clone());
                let known = self.kamailio.as_ref().map(KamailioUsers::known);
                Ok(self.take(changes.into_iter().flat_map(|change| merge_change(change, known)).collect()))
            }
            Changes::Reload => {
                (self.own, *seen) = store.load(self.seed)?;
                self.directory = with_kamailio(&self.own, self.kamailio.as_ref());
                Ok(DirectoryUpdate::Replaced)
            }
        }
    }

    fn take(&mut self, changes: Vec<DirectoryChange>) -> DirectoryUpdate {
        let gone = changes.iter().filter_map(barred_address).collect();
        let sets = changes.iter().filter_map(set).collect();
        self.directory = self.directory.with_changes(changes);
        DirectoryUpdate::Changed { gone, sets }
    }

    /// Adds the changes of the other server's database.
    fn follow_kamailio(&mut self, followed: DirectoryUpdate) -> DirectoryUpdate {
        let Some(kamailio) = &mut self.kamailio else { return followed };
        let mut changes = kamailio.changes();
        changes.retain(|change| !is_own(&self.own, change));
        if changes.is_empty() {
            return followed;
        }
        match (followed, self.take(changes)) {
            (DirectoryUpdate::Changed { gone: a, sets: b }, DirectoryUpdate::Changed { gone: c, sets: d }) => {
                DirectoryUpdate::Changed { gone: [a, c].concat(), sets: [b, d].concat() }
            }
            (DirectoryUpdate::Unchanged, changed) => changed,
            (followed, _) => followed,
        }
    }
}

/// Combines our own directory with the other server's database.
fn with_kamailio(own: &Directory, kamailio: Option<&KamailioUsers>) -> Directory {
    let Some(kamailio) = kamailio else { return own.clone() };
    own.with_changes(kamailio.known().all().filter(|change| !is_own(own, change)))
}

/// Whether our own database has an entry for the subject of the change.
fn is_own(own: &Directory, change: &DirectoryChange) -> bool {
    match change {
        DirectoryChange::PutUser(user) => is_address(own, &user.aor),
        DirectoryChange::RemoveUser(aor) => is_address(own, aor),
        DirectoryChange::PutAlias { alias, .. } | DirectoryChange::RemoveAlias(alias) => is_address(own, alias),
        DirectoryChange::PutGateways { set, .. } => !own.gateways().members(set).is_empty(),
    }
}

fn is_address(own: &Directory, aor: &[u8]) -> bool {
    own.user(aor).is_some() || own.resolve(aor) != aor
}

/// Returns a change of our own database and its effect on the other server's entries: they apply again where ours has
/// none, and an alias in ours hides a user.
fn merge_change(change: DirectoryChange, known: Option<&TableContents>) -> Vec<DirectoryChange> {
    let Some(known) = known else { return vec![change] };
    let put = |aor: &[u8]| known.user(aor).cloned().map(DirectoryChange::PutUser);
    match &change {
        DirectoryChange::RemoveUser(aor) => vec![put(aor).unwrap_or(change)],
        DirectoryChange::RemoveAlias(alias) => put(alias).into_iter().chain([change]).collect(),
        DirectoryChange::PutAlias { alias, .. } if known.user(alias).is_some() => {
            vec![DirectoryChange::RemoveUser(alias.clone()), change]
        }
        DirectoryChange::PutGateways { set, gateways } if gateways.is_empty() => {
            vec![DirectoryChange::PutGateways { set: set.clone(), gateways: known.members(set).to_vec() }]
        }
        _ => vec![change],
    }
}

/// Returns the gateway set of a change.
fn set(change: &DirectoryChange) -> Option<Box<[u8]>> {
    match change {
        DirectoryChange::PutGateways { set, .. } => Some(set.clone()),
        _ => None,
    }
}

/// Returns the address that a change bars from being called.
fn barred_address(change: &DirectoryChange) -> Option<Box<[u8]>> {
    match change {
        DirectoryChange::RemoveUser(aor) => Some(aor.clone()),
        DirectoryChange::PutUser(user) if !user.enabled => Some(user.aor.clone()),
        _ => None,
    }
}
