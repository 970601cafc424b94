//! Users and their aliases.

use std::collections::BTreeMap;
use std::path::PathBuf;

use strowger_administration::{User, UserPage, Users};
use strowger_control::config::Config;
use strowger_store::{Address, AliasEntry, AnyBackend, StoreError, UserEntry, UserSelection, UserStore};

use super::{Database, OperationError};
use crate::address;

/// Operations on users.
pub(crate) struct UserOperations<'a> {
    config: &'a Config,
}

/// A user to add, or whose password to change: everything but the password.
pub(crate) struct PasswordChange {
    store: UserStore<AnyBackend>,
    pub(crate) address: Address,
    /// Realm of the server's challenges to this user.
    pub(crate) realm: String,
    /// The database that was created for it, if any.
    pub(crate) new_database: Option<PathBuf>,
}

impl PasswordChange {
    pub(crate) fn add(&mut self, password: &str) -> Result<(), OperationError> {
        self.store.add_user(self.address.as_str(), &self.realm, password)?;
        Ok(())
    }

    pub(crate) fn set(&mut self, password: &str) -> Result<(), OperationError> {
        self.store.set_password(self.address.as_str(), &self.realm, password)?;
        Ok(())
    }
}

impl<'a> UserOperations<'a> {
    pub(crate) const fn new(config: &'a Config) -> Self {
        Self { config }
    }

    /// Opens the database, which is created if necessary.
    pub(crate) fn open_or_make(&self) -> Result<UserStore<AnyBackend>, OperationError> {
        self.database().open_or_make()
    }

    /// Returns the address that an operator means.
    pub(crate) fn full(&self, typed: &str) -> Result<Address, OperationError> {
        Ok(address::typed(self.config, typed)?)
    }

    /// Prepares to add a user.
    pub(crate) fn adding(&self, typed: &str) -> Result<PasswordChange, OperationError> {
        let database = self.database();
        let new_database = database.path_of_new()?;
        let address = self.full(typed)?;
        let realm = self.realm_of(&address);
        Ok(PasswordChange { store: database.open_or_make()?, address, realm, new_database })
    }

    /// Prepares to change a user's password.
    pub(crate) fn changing(&self, typed: &str) -> Result<PasswordChange, OperationError> {
        let address = self.full(typed)?;
        let realm = self.realm_of(&address);
        Ok(PasswordChange { store: self.database().open()?, address, realm, new_database: None })
    }

    pub(crate) fn remove(&self, typed: &str) -> Result<Address, OperationError> {
        Ok(self.database().open()?.remove_user(self.full(typed)?.as_str())?)
    }

    pub(crate) fn set_enabled(&self, typed: &str, enabled: bool) -> Result<Address, OperationError> {
        Ok(self.database().open()?.set_enabled(self.full(typed)?.as_str(), enabled)?)
    }

    /// Returns all users.
    pub(crate) fn all(&self) -> Result<Users, OperationError> {
        let mut store = self.database().open()?;
        Ok(Users { users: with_aliases(store.list()?, store.list_aliases()?), more: false })
    }

    /// Returns a page of users.
    pub(crate) fn page(&self, page: &UserPage) -> Result<Users, OperationError> {
        let UserPage { search, limit, after } = page;
        let selection = UserSelection { search: search.as_deref(), after: after.as_deref(), limit: *limit };
        let found = self.database().open()?.page(&selection)?;
        Ok(Users { users: with_aliases(found.users, found.aliases), more: found.more })
    }

    /// Returns a user.
    pub(crate) fn show(&self, typed: &str) -> Result<User, OperationError> {
        let address = self.full(typed)?;
        let found = self.database().open()?.find(&address)?;
        let shown = found.and_then(|(user, aliases)| with_aliases(vec![user], aliases).pop());
        let shown = shown.map(|user| User { note: self.foreign_note(&address), ..user });
        shown.ok_or_else(|| StoreError::UnknownUser { aor: address.to_string() }.into())
    }

    /// Adds an alias and returns it with its user.
    pub(crate) fn add_alias(&self, alias: &str, user: &str) -> Result<(Address, Address), OperationError> {
        let mut store = self.database().open()?;
        Ok(store.add_alias(self.full(alias)?.as_str(), self.full(user)?.as_str())?)
    }

    pub(crate) fn remove_alias(&self, alias: &str) -> Result<Address, OperationError> {
        Ok(self.database().open()?.remove_alias(self.full(alias)?.as_str())?)
    }

    pub(crate) fn aliases(&self) -> Result<Vec<AliasEntry>, OperationError> {
        Ok(self.database().open()?.list_aliases()?)
    }

    /// Whether the server does not serve this domain.
    pub(crate) fn is_foreign(&self, domain: &str) -> bool {
        let domains = &self.config.server.domains;
        !domains.is_empty() && !domains.iter().any(|own| own.0 == domain)
    }

    /// Returns what to tell about an address in a domain that the server does not serve.
    pub(crate) fn foreign_note(&self, address: &Address) -> Option<String> {
        let domain = address.domain();
        self.is_foreign(domain)
            .then(|| format!("{domain} is not in server.domains, so the server does not serve {address}"))
    }

    /// Returns the realm of the server's challenges to this user.
    fn realm_of(&self, address: &Address) -> String {
        let realm = self.config.auth.realm.as_ref().map(ToString::to_string);
        realm.unwrap_or_else(|| address.domain().to_owned())
    }

    const fn database(&self) -> Database<'a> {
        Database { config: self.config, what: ("users", "user") }
    }
}

fn with_aliases(users: Vec<UserEntry>, aliases: Vec<AliasEntry>) -> Vec<User> {
    let mut of_user: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for AliasEntry { alias, aor } in aliases {
        of_user.entry(aor).or_default().push(alias);
    }
    let with = |user: UserEntry| User {
        aliases: of_user.remove(&user.aor).unwrap_or_default(),
        aor: user.aor,
        realm: user.realm,
        algorithms: user.algorithms.into_iter().map(str::to_owned).collect(),
        enabled: user.enabled,
        created_s: user.created_s,
        note: None,
    };
    users.into_iter().map(with).collect()
}
