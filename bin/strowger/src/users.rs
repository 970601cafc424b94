//! The users database, which has the gateways too, as a running server follows it.

use strowger_control::config::Config;
use strowger_control::config::values::StoreUrl;
use strowger_directory::{Change, Directory};
use strowger_store::{Changes, Seq, StoreError, UserStore};

/// The directory, and the database that it is a state of.
pub(crate) struct Users {
    store: Option<(UserStore, Seq)>,
    directory: Directory,
    seed: u64,
    /// What following failed with last; the same is not reported twice.
    trouble: Option<String>,
}

/// What following has found.
pub(crate) enum Followed {
    /// Nothing new.
    Same,
    /// A few rows; these addresses may not be reached any more.
    Changed {
        gone: Vec<Box<[u8]>>,
        /// The sets of gateways that changed.
        sets: Vec<Box<[u8]>>,
    },
    /// Another directory.
    Replaced,
}

impl Users {
    pub(crate) fn open(config: &Config, seed: u64) -> Result<Self, StoreError> {
        let (store, directory) = match config.store_url() {
            StoreUrl::Memory => (None, Directory::empty(seed)),
            StoreUrl::Sqlite(path) => {
                let store = UserStore::open(path)?;
                let (directory, seq) = store.load(seed)?;
                (Some((store, seq)), directory)
            }
        };
        Ok(Self { store, directory, seed, trouble: None })
    }

    /// Everything anew, as `config` says.
    pub(crate) fn reopen(&self, config: &Config) -> Result<Self, StoreError> {
        Self::open(config, self.seed)
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The database, where there is one; what is changed there is followed as what others change.
    pub(crate) fn store(&mut self) -> Option<&mut UserStore> {
        self.store.as_mut().map(|(store, _)| store)
    }

    /// Looks what changed. Where the database cannot be read the directory stays as it is, and the log says so.
    pub(crate) fn follow(&mut self) -> Followed {
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
        changed.unwrap_or(Followed::Same)
    }

    fn try_follow(&mut self) -> Result<Followed, StoreError> {
        let Some((store, seen)) = &mut self.store else { return Ok(Followed::Same) };
        match store.changes_since(*seen)? {
            Changes::Since { seq, .. } if seq == *seen => Ok(Followed::Same),
            Changes::Since { changes, seq } => {
                let gone = changes.iter().filter_map(gone).collect();
                let sets = changes.iter().filter_map(set).collect();
                self.directory = self.directory.with_changes(changes);
                *seen = seq;
                Ok(Followed::Changed { gone, sets })
            }
            Changes::Reload => {
                (self.directory, *seen) = store.load(self.seed)?;
                Ok(Followed::Replaced)
            }
        }
    }
}

/// The set that a change is of.
fn set(change: &Change) -> Option<Box<[u8]>> {
    match change {
        Change::PutGateways { set, .. } => Some(set.clone()),
        _ => None,
    }
}

/// Whom a change bars from being called.
fn gone(change: &Change) -> Option<Box<[u8]>> {
    match change {
        Change::RemoveUser(aor) => Some(aor.clone()),
        Change::PutUser(user) if !user.enabled => Some(user.aor.clone()),
        _ => None,
    }
}
