//! The users database, which has the gateways too, as a running server follows it.

mod shared;

use std::sync::Arc;

use strowger_control::config::Config;
use strowger_control::config::values::StoreUrl;
use strowger_control::protocol;
use strowger_directory::{Change, Directory};
use strowger_store::{Anywhere, Changes, Seq, StoreError, UserStore};

use shared::SharedUsers;

/// The directory, and the database that it is a state of.
pub(crate) struct Users {
    store: Option<(UserStore, Seq)>,
    /// The database that the file is a copy of, where several servers share one.
    shared: Option<Arc<SharedUsers>>,
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
        Self::open_with(config, seed, None)
    }

    /// Everything anew, as `config` says.
    pub(crate) fn reopen(&self, config: &Config) -> Result<Self, StoreError> {
        Self::open_with(config, self.seed, self.shared.clone())
    }

    fn open_with(config: &Config, seed: u64, known: Option<Arc<SharedUsers>>) -> Result<Self, StoreError> {
        let StoreUrl::Sqlite(path) = config.store_url() else {
            return Ok(Self { store: None, shared: None, directory: Directory::empty(seed), seed, trouble: None });
        };
        let urls = config.shared_users();
        let shared = match known.filter(|known| known.is_of(&urls, &path)) {
            None if urls.is_empty() => None,
            None => Some(Arc::new(SharedUsers::start(urls, path.clone())?)),
            known => known,
        };
        let store = UserStore::open(path)?;
        let (directory, seq) = store.load(seed)?;
        Ok(Self { store: Some((store, seq)), shared, directory, seed, trouble: None })
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Where users and gateways are written, if anywhere; what is changed there is followed as what others change.
    pub(crate) fn store(&self, config: &Config) -> Option<Result<UserStore<Anywhere>, StoreError>> {
        match (&self.shared, config.store_url()) {
            (Some(shared), _) => Some(shared.store()),
            (None, StoreUrl::Sqlite(path)) => Some(UserStore::open(path).map(UserStore::from)),
            (None, StoreUrl::Memory) => None,
        }
    }

    /// The database that servers share, where they do.
    pub(crate) fn shared_status(&self) -> Option<protocol::SharedUsers> {
        self.shared.as_ref().map(|shared| shared.status())
    }

    /// As [`follow`](Self::follow), with what stands in the shared database now.
    pub(crate) fn follow_now(&mut self) -> Followed {
        if let Some(shared) = &self.shared {
            shared.look();
        }
        self.follow()
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
