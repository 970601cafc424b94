//! Configuration in TOML. Every key has a default, and unknown keys are errors.
//!
//! A text is parsed once into typed values ([`values`]); constraints between keys are checked afterwards;
//! [`Config::snapshot`] then creates the snapshot for the shards.

mod admin;
mod auth;
mod balancing;
mod ban;
mod changes;
mod cluster;
mod duration;
mod error;
mod exposed_secrets;
mod former_names;
mod gateways;
mod kamailio;
mod lenient;
mod load;
mod log;
mod machine_warnings;
mod media;
mod overload;
mod proxy;
mod registrar;
mod reload;
mod role;
mod routing;
mod secrets;
mod server;
mod snapshot;
mod stages;
mod store;
mod streams;
mod trace;
mod validate;
pub mod values;
mod watch;

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use admin::Admin;
pub use auth::{Auth, Qop};
pub use balancing::{Balancer, Candidates, Key, Policy, Probe, Probing, TransactionCost};
pub use ban::Ban;
pub use cluster::{Cluster, Durability};
pub use duration::Span;
pub use error::ConfigError;
use error::{Fault, Source as ConfigText};
pub use gateways::UnreachableTarget;
pub(crate) use gateways::share_of;
pub use kamailio::{Flavor as KamailioFlavor, FollowedTable, Kamailio};
pub use load::{DEFAULT_FILE, SYSTEM_FILE, default_file};
pub use log::{Format, Level, Log};
pub use media::{Media, MediaFailure, MediaWhen};
pub use overload::{Class, Overload};
pub use proxy::Proxy;
pub use registrar::{Expires, KeepAlive, LocalContacts, Nat, Registrar};
pub use reload::{Reload, reload_of};
pub use role::{ConfigSource, Role, host_name};
pub use routing::{Action, Country, Match, Rewrite, Route, Stateless, Trunk};
pub use server::{MAX_WORKERS, Segmentation, Server, Steering};
pub(crate) use snapshot::route_target;
pub use stages::{FirstStage, SecondStage, StageMember};
pub use store::{Mode, Store};
pub use streams::{Certificate, ClientCertificates, Dns, Tcp, Tls, TlsVersion, WebSocket};
use strowger_sql::DatabaseUrl;
pub use trace::{Hep, Otlp, Trace};
use values::{OneOrMany, SharedDatabase, StoreUrl};
pub use watch::{Watch, WatchedRecord};

/// The complete configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Configuration of Strowger")]
pub struct Config {
    /// Listeners and domains.
    pub server: Server,
    /// TCP connections.
    pub tcp: Tcp,
    /// Secure connections.
    pub tls: Tls,
    /// Connections of web pages.
    pub websocket: WebSocket,
    /// Name resolution.
    pub dns: Dns,
    /// Storage of users and registrations.
    pub store: Store,
    /// Servers that share registrations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cluster>,
    /// Database of another server to follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kamailio: Option<Kamailio>,
    /// Servers that `strowger watch` monitors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<Watch>,
    /// Registrations.
    pub registrar: Registrar,
    /// Passwords.
    pub auth: Auth,
    /// Addresses that are not served.
    pub ban: Ban,
    /// Forwarding.
    pub proxy: Proxy,
    /// Overload control.
    pub overload: Overload,
    /// Media engines.
    pub media: Media,
    /// The timers of RFC 3261 §17.
    pub timers: Timers,
    /// Call records.
    pub cdr: Cdr,
    /// The control socket used by `strowger ctl`.
    pub control: Control,
    /// The HTTP listener.
    pub admin: Admin,
    /// Logging.
    pub log: Log,
    /// Messages and calls for other tools.
    pub trace: Trace,
    /// Carriers and other servers that routes name.
    #[serde(rename = "trunk", skip_serializing_if = "Vec::is_empty")]
    pub trunks: Vec<Trunk>,
    /// Target sets that routes spread calls over.
    #[serde(rename = "balancer", skip_serializing_if = "Vec::is_empty")]
    pub balancers: Vec<Balancer>,
    /// Routes; the first match applies.
    #[serde(rename = "route", skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Servers that pass each request to the cluster of its user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub first_stage: Vec<FirstStage>,
    /// Clusters that users are spread over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub second_stage: Vec<SecondStage>,
    /// Role of this server, if the file describes several servers.
    #[serde(skip)]
    role: Option<Role>,
}

/// `[cdr]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cdr {
    /// File to which one line of JSON is appended for each ended call. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Database that gets one row for each ended call: postgresql:// or mysql://USER:PASSWORD@HOST:PORT/DATABASE. If
    /// several are given, the first writable one is used.
    #[serde(skip_serializing_if = "OneOrMany::is_any")]
    pub database: OneOrMany<SharedDatabase>,
}

/// `[timers]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Timers {
    /// Round-trip time estimate; a transaction times out after 64 times T1.
    pub t1: Span,
    /// Maximum retransmission interval.
    pub t2: Span,
    /// Maximum lifetime of a message in the network.
    pub t4: Span,
}

impl Default for Timers {
    fn default() -> Self {
        Self { t1: Span::from_millis(500), t2: Span::from_secs(4), t4: Span::from_secs(5) }
    }
}

/// `[control]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Control {
    /// Path of the socket. Default: DATA/control.sock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
}

impl Config {
    /// Parses a configuration.
    ///
    /// # Errors
    /// The faults, with lines and keys: the first syntax fault, otherwise the first fault of each section, trunk and
    /// route.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let place = ConfigText::new(text);
        let config: Self = place.read().map_err(|error| place.explain(&error))?;
        match place.place_all(config.validate()) {
            Some(error) => Err(error),
            None => Ok(config),
        }
    }

    /// Builds the error for a fault of `key`, with the file and line if known.
    #[must_use]
    pub fn located(file: Option<&Path>, key: &str, message: String) -> ConfigError {
        let text = file.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        let placed = ConfigText::new(&text).place(Fault::new(key, message));
        ConfigError { file: file.map(Path::to_owned), ..placed }
    }

    /// Returns the published JSON schema of the file, ending with a newline.
    #[must_use]
    pub fn schema() -> String {
        let schema = schemars::schema_for!(Self);
        serde_json::to_string_pretty(&schema).map(|text| text + "\n").unwrap_or_default()
    }

    /// Returns whether any listener uses TLS.
    #[must_use]
    pub fn uses_tls(&self) -> bool {
        self.server.listen.iter().any(|listen| listen.transport.is_secure())
    }

    /// Returns the storage of users.
    #[must_use]
    pub fn store_url(&self) -> StoreUrl {
        self.store.url.clone().unwrap_or_else(|| StoreUrl::Sqlite(self.server.data.join("strowger.db")))
    }

    /// Returns the shared databases of users and gateways; empty if the server has its own.
    #[must_use]
    pub fn shared_users(&self) -> Vec<DatabaseUrl> {
        self.store.shared_users.0.iter().map(|database| database.0.clone()).collect()
    }

    /// Returns the databases for call records, of which one is used.
    #[must_use]
    pub fn calls_databases(&self) -> Vec<DatabaseUrl> {
        self.cdr.database.0.iter().map(|database| database.0.clone()).collect()
    }

    /// Returns what a 200 to a REGISTER guarantees.
    #[must_use]
    pub fn store_mode(&self) -> Mode {
        let default = if self.store_url() == StoreUrl::Memory { Mode::Memory } else { Mode::WriteThrough };
        self.store.mode.unwrap_or(default)
    }

    /// Returns the folder of the registration journal, which does not exist in mode memory.
    #[must_use]
    pub fn journal_folder(&self) -> PathBuf {
        self.server.data.join("journal")
    }

    /// Returns the path of the signing key.
    #[must_use]
    pub fn key_file(&self) -> PathBuf {
        let folder = self.role.as_ref().map_or(&self.server.data, |role| &role.common);
        self.server.key_file.clone().unwrap_or_else(|| folder.join("key"))
    }

    /// Returns the path of the control socket.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.control.socket.clone().unwrap_or_else(|| self.server.data.join("control.sock"))
    }

    /// Returns the minimum number of workers with work, given the number of workers.
    #[must_use]
    pub fn min_workers(&self, workers: u16) -> u16 {
        self.server.min_workers.unwrap_or(1).clamp(1, workers.max(1))
    }

    /// Returns the number of workers on a machine with `cores`.
    #[must_use]
    pub fn workers(&self, cores: usize) -> u16 {
        self.server.workers.unwrap_or_else(|| u16::try_from(cores).unwrap_or(MAX_WORKERS).clamp(1, MAX_WORKERS))
    }
}
