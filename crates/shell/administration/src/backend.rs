//! What the API needs of the server.

use std::net::SocketAddr;
use std::path::PathBuf;

use strowger_control::socket::Handler;

use crate::types::{
    Alias, ApiConfiguration, Gateway, GatewayChange, Gateways, NewGateway, NewUser, User, UserChange, UserPage, Users,
};

/// The server behind the API. Every method may block.
pub trait Backend: Send + Sync + 'static {
    /// Returns who answers requests, as for `strowger ctl`.
    fn handler(&self) -> &dyn Handler;

    /// Returns the version of the server.
    fn version(&self) -> &str;

    /// Returns the domains that the server is responsible for.
    fn domains(&self) -> Vec<String>;

    /// Returns the names that clients may call the server by, besides `localhost` and every address.
    fn hosts(&self) -> Vec<String> {
        self.domains()
    }

    /// Returns whether the server passes requests to clusters.
    fn has_clusters(&self) -> bool {
        false
    }

    /// Returns the address of record that an operator means: a name without a domain is in the first one.
    ///
    /// # Errors
    /// This is not an address.
    fn aor(&self, typed: &str) -> Result<String, Refusal>;

    /// Lists users.
    ///
    /// # Errors
    /// The database cannot be read.
    fn users(&self, page: &UserPage) -> Result<Users, Refusal>;

    /// Returns a user.
    ///
    /// # Errors
    /// There is none, or the database cannot be read.
    fn user(&self, user: &str) -> Result<User, Refusal>;

    /// Adds a user.
    ///
    /// # Errors
    /// The reason why it is not added.
    fn add_user(&self, new: &NewUser) -> Result<User, Refusal>;

    /// Changes a user.
    ///
    /// # Errors
    /// The reason why it is not changed.
    fn change_user(&self, user: &str, change: &UserChange) -> Result<User, Refusal>;

    /// Removes a user and its aliases.
    ///
    /// # Errors
    /// The reason why it is not removed.
    fn remove_user(&self, user: &str) -> Result<(), Refusal>;

    /// Adds an alias.
    ///
    /// # Errors
    /// The reason why it is not added.
    fn add_alias(&self, user: &str, alias: &str) -> Result<Alias, Refusal>;

    /// Removes an alias of a user.
    ///
    /// # Errors
    /// The reason why it is not removed.
    fn remove_alias(&self, user: &str, alias: &str) -> Result<(), Refusal>;

    /// Lists the gateways of a set, or all.
    ///
    /// # Errors
    /// The database cannot be read.
    fn gateways(&self, set: Option<&str>) -> Result<Gateways, Refusal>;

    /// Adds a gateway.
    ///
    /// # Errors
    /// The reason why it is not added.
    fn add_gateway(&self, new: &NewGateway) -> Result<Gateway, Refusal>;

    /// Changes a gateway.
    ///
    /// # Errors
    /// The reason why it is not changed.
    fn change_gateway(&self, set: &str, uri: &str, change: &GatewayChange) -> Result<Gateway, Refusal>;

    /// Removes a gateway.
    ///
    /// # Errors
    /// The reason why it is not removed.
    fn remove_gateway(&self, set: &str, uri: &str) -> Result<(), Refusal>;

    /// Returns the configuration, without passwords.
    fn configuration(&self) -> ApiConfiguration;

    /// Checks the configuration file, without using it. Returns what is worth knowing.
    ///
    /// # Errors
    /// Its faults.
    fn check_configuration(&self) -> Result<String, Refusal>;

    /// Returns the path of a backup of this name, in a folder that exists.
    ///
    /// # Errors
    /// The folder cannot be made.
    fn backup_file(&self, name: &str) -> Result<PathBuf, Refusal>;

    /// Called for each request with an unknown or expired token.
    fn on_wrong_token(&self, _client: SocketAddr) {}
}

/// Why an operation is refused. The text says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// What it names does not exist.
    NotFound(String),
    /// It contradicts what exists.
    Conflict(String),
    /// A value cannot be used.
    Invalid {
        /// The member of the request with the value.
        field: Option<&'static str>,
        /// What is wrong with it.
        why: String,
    },
    /// It may succeed later.
    Busy(String),
    /// The server cannot do it: its disk, its database, its configuration.
    Failed(String),
}

impl Refusal {
    /// Returns the text.
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            Self::NotFound(why)
            | Self::Conflict(why)
            | Self::Invalid { why, .. }
            | Self::Busy(why)
            | Self::Failed(why) => why,
        }
    }
}
