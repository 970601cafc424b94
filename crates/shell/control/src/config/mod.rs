//! Configuration in TOML. Every key has a default, and unknown keys are errors.
//!
//! A text is parsed once into typed values ([`values`]); constraints between keys are checked afterwards;
//! [`Config::snapshot`] then creates the snapshot for the shards.

mod admin;
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
mod machine_warnings;
mod media;
mod overload;
mod reload;
mod role;
mod routing;
mod secrets;
mod snapshot;
mod stages;
mod streams;
mod trace;
mod validate;
pub mod values;
mod watch;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use admin::Admin;
pub use balancing::{Balancer, Candidates, Key, Policy, Probe, Probing, TransactionCost};
pub use ban::Ban;
pub use cluster::{Cluster, Durability};
pub use duration::Span;
pub use error::ConfigError;
use error::{Fault, Source as ConfigText};
pub use gateways::UnreachableTarget;
pub(crate) use gateways::share_of;
pub use kamailio::{Flavor as KamailioFlavor, FollowedTable, Kamailio};
pub use media::{Media, MediaFailure, MediaWhen};
pub use overload::{Class, Overload};
pub use reload::{Reload, reload_of};
pub use role::{ConfigSource, Role, host_name};
pub use routing::{Action, Country, Match, Rewrite, Route, Stateless, Trunk};
pub(crate) use snapshot::route_target;
pub use stages::{FirstStage, SecondStage, StageMember};
pub use streams::{Certificate, ClientCertificates, Dns, Tcp, Tls, TlsVersion, WebSocket};
use strowger_foundation::Transport;
use strowger_sql::DatabaseUrl;
pub use trace::{Hep, Otlp, Trace};
use values::{
    Affinity, Algorithm, Domain, ListenAddress, LooseRoute, MethodName, OneOrMany, Realm, SharedDatabase, Source, Spin,
    StoreUrl,
};
pub use watch::{Watch, WatchedRecord};

/// Default file in the current directory, read if it exists and no other is named.
pub const DEFAULT_FILE: &str = "strowger.toml";
/// The configuration file of the server that the machine runs as a service, if there is no [`DEFAULT_FILE`].
pub const SYSTEM_FILE: &str = "/etc/strowger/strowger.toml";

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

/// `[server]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Transport, address and port of each listener. 0.0.0.0 and [::] create one listener for each address of their
    /// family that the machine has at start.
    pub listen: Vec<ListenAddress>,
    /// Domains whose users the server serves. Each listening address is an alias of the first one.
    pub domains: Vec<Domain>,
    /// Folder of the server's data, relative to the working directory.
    pub data: PathBuf,
    /// File of the server's signing key. Servers that share requests need the same key. Default: DATA/key, which is
    /// created if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// Number of threads that process messages. Default: one per core.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub workers: Option<u16>,
    /// Minimum number of workers with work; the others join under load. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub min_workers: Option<u16>,
    /// CPU affinity of the workers: none (the system schedules them), auto (each on its own core), or a list of
    /// cores, one per worker.
    pub affinity: Affinity,
    /// Distribution of datagrams to workers: peers (all datagrams of a peer go to one worker, which preserves their
    /// order) or packets (any worker, so that a single busy peer uses all of them).
    pub steering: Steering,
    /// Whether messages of equal length to one peer leave as one packet that the kernel splits: never, auto (not
    /// while a packet capture is open) or always. Joining is cheaper if a few peers get most of the traffic, but a
    /// capture on this machine shows the joined packet.
    pub segmentation: Segmentation,
    /// Maximum time for which a worker polls for the next message before it sleeps, if messages usually follow that
    /// soon. 0s: never; always: a worker with shards does not sleep, which occupies a core and avoids wake-ups.
    pub spin: Spin,
    /// Whether the times of packets are measured, for `strowger ctl timing`. Takes at most 2 % of the CPU time.
    pub timing: bool,
}

/// `server.steering`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Server::steering` says what they mean")]
pub enum Steering {
    Peers,
    Packets,
}

/// `server.segmentation`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Server::segmentation` says what they mean")]
pub enum Segmentation {
    Never,
    Auto,
    Always,
}

impl Default for Server {
    fn default() -> Self {
        //= rfc3261#18.2.1:default-ports
        let any = |transport| ListenAddress { transport, address: ([0, 0, 0, 0], 5060).into() };
        let listen = vec![any(Transport::Udp), any(Transport::Tcp)];
        Self {
            listen,
            domains: vec![Domain("localhost".to_owned())],
            data: PathBuf::from("data"),
            key_file: None,
            workers: None,
            min_workers: None,
            affinity: Affinity::None,
            steering: Steering::Peers,
            segmentation: Segmentation::Auto,
            spin: Spin::UpTo(Span(Duration::from_micros(10))),
            timing: true,
        }
    }
}

/// `[store]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// Storage of users: sqlite:FILE, or memory: for none. Default: sqlite:DATA/strowger.db.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<StoreUrl>,
    /// Database of users and gateways that several servers share: postgresql:// or
    /// mysql://USER:PASSWORD@HOST:PORT/DATABASE. If several are given, the first writable one is used. Its contents
    /// are copied to url.
    #[serde(skip_serializing_if = "OneOrMany::is_any")]
    pub shared_users: OneOrMany<SharedDatabase>,
    /// What a 200 to a REGISTER guarantees: write-through (the registration survives a crash), write-behind (it will
    /// survive after a moment) or memory (it ends with the process). Default: write-through, or memory if url is
    /// memory:.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

/// `store.mode`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Store::mode` says what they mean")]
pub enum Mode {
    WriteThrough,
    WriteBehind,
    Memory,
}

impl Mode {
    /// Returns the name as written in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WriteThrough => "write-through",
            Self::WriteBehind => "write-behind",
            Self::Memory => "memory",
        }
    }

    /// Whether registrations outlive the process.
    #[must_use]
    pub const fn is_durable(self) -> bool {
        !matches!(self, Self::Memory)
    }
}

/// `[registrar]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Registrar {
    /// Registration lifetimes.
    pub expires: Expires,
    /// Maximum number of contacts per address; a REGISTER that exceeds it is answered 403.
    #[schemars(range(min = 1, max = 32))]
    pub max_contacts: u16,
    /// Destination of requests to a registered contact: auto (the source of its REGISTER if that shows a NAT), always
    /// (the source) or never (the contact's own address).
    pub nat: Nat,
    /// Contacts that lead to this machine (a loopback address, or one that the server listens on), registered from
    /// elsewhere: refuse (with 403) or accept. Redirections from elsewhere are treated alike.
    pub local_contacts: LocalContacts,
    /// Keep-alive for contacts behind NAT: crlf (an empty line), options (a request) or off.
    pub keepalive: KeepAlive,
    /// Interval between keep-alives.
    pub keepalive_interval: Span,
    /// Whether devices that ask for it get a GRUU (RFC 5627).
    pub gruu: bool,
    /// Maximum time between keep-alives that a phone sends over its registered connection (RFC 5626).
    pub flow_timer: Span,
    /// Service-Route for registered phones (RFC 3608): SIP URIs with lr, in order.
    pub service_route: Vec<LooseRoute>,
}

impl Default for Registrar {
    fn default() -> Self {
        Self {
            expires: Expires::default(),
            max_contacts: 10,
            nat: Nat::Auto,
            local_contacts: LocalContacts::Refuse,
            keepalive: KeepAlive::Crlf,
            keepalive_interval: Span::from_secs(30),
            gruu: true,
            flow_timer: Span::from_secs(120),
            service_route: Vec::new(),
        }
    }
}

/// `registrar.expires`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Expires {
    /// Lifetime if the phone asks for none.
    pub default: Span,
    /// Minimum lifetime; a shorter request is answered 423.
    pub min: Span,
    /// Maximum lifetime; a longer request is shortened.
    pub max: Span,
}

impl Default for Expires {
    fn default() -> Self {
        Self { default: Span::from_secs(3600), min: Span::from_secs(60), max: Span::from_secs(7200) }
    }
}

/// `registrar.nat`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Registrar::nat` says what they mean")]
pub enum Nat {
    Auto,
    Always,
    Never,
}

/// `registrar.local_contacts`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Registrar::local_contacts` says what they mean")]
pub enum LocalContacts {
    Refuse,
    Accept,
}

/// `registrar.keepalive`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Registrar::keepalive` says what they mean")]
pub enum KeepAlive {
    Crlf,
    Options,
    Off,
}

/// `[auth]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// Realm of all challenges. Default: each domain is its own realm. Passwords are stored as hashes that include
    /// the realm, so after a change they must be set again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realm: Option<Realm>,
    /// Digest algorithms (MD5, SHA-256, SHA-512-256): one challenge each, in this order. Many phones reject a
    /// challenge that offers more than MD5.
    pub algorithms: Vec<Algorithm>,
    /// Methods that require a password; [] requires none.
    pub require: Vec<MethodName>,
    /// Whether users need a password for these methods inside calls too. ACK and CANCEL never need one, nor do
    /// gateways and trunks.
    pub in_dialog: bool,
    /// Addresses and networks (192.0.2.0/24) that need no password and whose asserted identity is trusted.
    pub trusted: Vec<Source>,
    /// Time for which a challenge can be answered.
    pub nonce_age: Span,
    /// Offered quality of protection: auth, or "auth,auth-int".
    pub qop: Qop,
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            realm: None,
            algorithms: vec![Algorithm(strowger_auth::Algorithm::Md5)],
            require: ["REGISTER", "INVITE"].map(|name| MethodName(name.to_owned())).to_vec(),
            in_dialog: false,
            trusted: Vec::new(),
            nonce_age: Span::from_secs(300),
            qop: Qop::Auth,
        }
    }
}

/// `auth.qop`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Auth::qop` says what they mean")]
pub enum Qop {
    #[serde(rename = "auth")]
    Auth,
    #[serde(rename = "auth,auth-int")]
    AuthOrAuthInt,
}

/// `[proxy]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Proxy {
    /// Maximum ringing time before the caller gets 408 (Timer C).
    pub ring_timeout: Span,
    /// Maximum ringing time before the next phone is tried, in serial forking.
    pub fork_timeout: Span,
    /// Time to wait for a silent target before trying the next one, or the next address of its name.
    pub failover_timeout: Span,
    /// Time for which a failed target is tried after the others. 0s: none.
    pub avoid_for: Span,
    /// Whether the server follows redirections (3xx) instead of passing them to the caller.
    pub recurse: bool,
    /// Maximum size in bytes of a request sent over UDP if TCP is possible.
    #[schemars(range(min = 500, max = 65000))]
    pub mtu: u16,
    /// Whether the server stays in the path of a call after it is answered.
    pub record_route: bool,
    /// Whether requests inside a record-routed call may be forwarded statelessly: never, when-possible or always.
    pub stateless: Stateless,
    /// Whether requests to a phone whose REGISTER was forwarded return over the phone's own flow (edge proxy of RFC
    /// 5626: Path with a flow token).
    pub outbound: bool,
    /// Status for requests that are for none of the server's users and match no route: 403, 404 or 603.
    pub unrouted_status: u16,
}

impl Default for Proxy {
    fn default() -> Self {
        Self {
            ring_timeout: Span::from_secs(180),
            fork_timeout: Span::from_secs(20),
            failover_timeout: Span::from_secs(4),
            avoid_for: Span::from_secs(30),
            recurse: false,
            mtu: 1300,
            record_route: true,
            stateless: Stateless::Never,
            outbound: false,
            unrouted_status: 404,
        }
    }
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

/// `[log]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Minimum level to log: error, warn, info, debug or trace.
    pub level: Level,
    /// text, or json: one object per line.
    pub format: Format,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: Level::Info, format: Format::Text }
    }
}

/// `log.level`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "the names say what they mean")]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// `log.format`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "the names say what they mean")]
pub enum Format {
    Text,
    Json,
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

    /// Loads `file`, or the first of [`DEFAULT_FILE`] and [`SYSTEM_FILE`] that exists, or the defaults. Also returns
    /// the path of the file read.
    ///
    /// # Errors
    /// The file cannot be read or has faults.
    pub fn load<'a>(wanted: impl Into<ConfigSource<'a>>) -> Result<(Self, Option<PathBuf>), ConfigError> {
        let loaded = Self::load_any(wanted.into())?;
        loaded.0.needs_role()?;
        Ok(loaded)
    }

    /// Returns warnings about former names in a file that was loaded. None of them prevents a start.
    #[must_use]
    pub fn former_names(file: &Path) -> Vec<ConfigError> {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        ConfigText::new(&text).warnings().into_iter().map(|warning| warning.in_file(file)).collect()
    }

    /// Like [`load`](Self::load), but accepts a file for several servers without a selected one.
    fn load_any(wanted: ConfigSource<'_>) -> Result<(Self, Option<PathBuf>), ConfigError> {
        let Some((path, text)) = read(wanted.file)? else { return Ok((Self::default().of(wanted)?, None)) };
        match Self::parse(&text).and_then(|config| config.of(wanted)) {
            Ok(config) => Ok((config, Some(path))),
            Err(error) => Err(error.in_file(&path)),
        }
    }

    /// Returns the configuration of the selected server, or the whole file if only the host name is known and no
    /// server has it.
    fn of(self, wanted: ConfigSource<'_>) -> Result<Self, ConfigError> {
        let fault = |Fault { key, message }| ConfigError { file: None, line: None, key, message, others: Vec::new() };
        match wanted.member {
            Some(name) if self.has_stages() => self.for_member(name).map_err(fault),
            Some(name) => {
                let message = format!(
                    "--as {name}: the configuration is for one server, and has no [[first_stage]] or [[second_stage]]"
                );
                Err(fault(Fault::new("", message)))
            }
            None if self.has_stages() => Ok(self.for_member(&host_name()).unwrap_or(self)),
            None => Ok(self),
        }
    }

    /// Checks that a server is selected if the file is for several.
    fn needs_role(&self) -> Result<(), ConfigError> {
        if !self.has_stages() || self.role.is_some() {
            return Ok(());
        }
        let names = self.stage_names().join(", ");
        let message = format!("the configuration is for several servers; choose one with --as NAME: {names}");
        Err(ConfigError { file: None, line: None, key: String::new(), message, others: Vec::new() })
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

/// Returns the configuration file that is used if none is named: the first that exists, else [`DEFAULT_FILE`].
#[must_use]
pub fn default_file() -> &'static Path {
    let system = Path::new(SYSTEM_FILE);
    // A folder that this user may not search has the file, as far as one can tell.
    let has_system = system.try_exists().unwrap_or(true);
    if has_system && !Path::new(DEFAULT_FILE).exists() { system } else { Path::new(DEFAULT_FILE) }
}

/// Reads the configuration file. Returns `None` if none is named and no default file exists.
fn read(file: Option<&Path>) -> Result<Option<(PathBuf, String)>, ConfigError> {
    let path = file.unwrap_or_else(|| default_file()).to_owned();
    let error = match std::fs::read_to_string(&path) {
        Ok(text) => return Ok(Some((path, text))),
        Err(error) if file.is_none() && error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => error,
    };
    let message = match error.kind() {
        io::ErrorKind::NotFound => "the file does not exist; give an existing one with -c".to_owned(),
        io::ErrorKind::InvalidData => "this is not valid TOML: it is not UTF-8".to_owned(),
        io::ErrorKind::PermissionDenied if file.is_none() => {
            "cannot be read: it belongs to the server of this machine; run the command as root, or give another file with -c"
                .to_owned()
        }
        _ => format!("cannot be read: {error}; give this user read permission"),
    };
    Err(ConfigError { file: Some(path), line: None, key: String::new(), message, others: Vec::new() })
}

/// Maximum number of workers of one server.
pub const MAX_WORKERS: u16 = 256;
