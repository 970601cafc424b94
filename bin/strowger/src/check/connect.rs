//! `strowger check --connect`: tests the engine and databases in the configuration.

use serde_json::{Value, json};
use strowger_control::config::Config;
use strowger_sql::{Database, DatabaseUrl};
use strowger_store::UserStore;

use crate::cluster;

/// An engine, a database, or a group of alternative servers.
pub(super) struct ConnectionCheck {
    /// Configuration key.
    key: &'static str,
    urls: Vec<String>,
    /// Reason why it cannot be used.
    why: Option<String>,
}

impl ConnectionCheck {
    /// Tries each one in the configuration. Blocks until a timeout if one does not answer.
    pub(super) fn all(config: &Config) -> Vec<Self> {
        let (users, calls) = (config.shared_users(), config.calls_databases());
        let engine = config.cluster.as_ref().and_then(|cluster| {
            let urls = cluster.store.0.iter().map(ToString::to_string).collect();
            let why = cluster::try_engine(cluster)?.err().map(|error| error.to_string());
            Some(Self { key: "cluster.store", urls, why })
        });
        let of_users =
            (!users.is_empty()).then(|| UserStore::connect(&users).map(drop).map_err(|error| error.to_string()));
        let of_calls = (!calls.is_empty()).then(|| {
            Database::connect_to_writable(&calls, Database::TIMEOUT).map(drop).map_err(|error| error.to_string())
        });
        let of_kamailio = config.kamailio.as_ref().map(|kamailio| {
            let tried = Database::connect(&kamailio.database.0, Database::TIMEOUT).map(drop);
            Self::new(
                "kamailio.database",
                std::slice::from_ref(&kamailio.database.0),
                tried.map_err(|error| error.to_string()),
            )
        });
        let databases = [
            of_users.map(|tried| Self::new("store.shared_users", &users, tried)),
            of_calls.map(|tried| Self::new("cdr.database", &calls, tried)),
            of_kamailio,
        ];
        engine.into_iter().chain(databases.into_iter().flatten()).collect()
    }

    fn new(key: &'static str, urls: &[DatabaseUrl], tried: Result<(), String>) -> Self {
        Self { key, urls: urls.iter().map(ToString::to_string).collect(), why: tried.err() }
    }

    pub(super) const fn is_usable(&self) -> bool {
        self.why.is_none()
    }

    pub(super) fn line(&self) -> String {
        let urls = self.urls.join(", ");
        match &self.why {
            None => format!("{}: {urls} is usable", self.key),
            Some(why) => format!("{}: {urls} is NOT USABLE: {why}", self.key),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "key": self.key, "urls": self.urls, "usable": self.is_usable(), "why": self.why })
    }
}
