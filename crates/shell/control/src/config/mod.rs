//! The configuration: TOML in which every key has a default and no unknown key is let pass.
//!
//! A text is read once into what it means ([`values`]); what concerns several keys is checked afterwards; then
//! [`Config::snapshot`] makes of it what shards are told.

mod balancing;
mod cluster;
mod duration;
mod error;
mod gateways;
mod kamailio;
mod lenient;
mod machine_warnings;
mod overload;
mod role;
mod routing;
mod secrets;
mod snapshot;
mod stages;
mod streams;
mod validate;
pub mod values;
mod watch;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use balancing::{Balancer, Candidates, Key, Policy, Probe, Probing, Work};
pub use cluster::{Cluster, Promise};
pub use duration::Span;
pub use error::ConfigError;
use error::{Fault, Source as Place};
pub use gateways::UnreachableTarget;
pub(crate) use gateways::share_of;
pub use kamailio::{Flavor as KamailioFlavor, FollowedTable, Kamailio};
pub use overload::{Class, Overload};
pub use role::{ConfigSource, Role};
pub use routing::{Action, Country, Match, Rewrite, Route, Stateless, Trunk};
pub(crate) use snapshot::route_target;
pub use stages::{FirstStage, SecondStage, StageMember};
pub use streams::{Dns, Tcp};
use strowger_foundation::Transport;
use strowger_sql::DatabaseUrl;
use values::{
    Affinity, Algorithm, Domain, Listen, LooseRoute, MethodName, OneOrMany, Realm, SharedDatabase, Source, Spin,
    StoreUrl,
};
pub use watch::{Watch, WatchedRecord};

/// The file that is read where none is named and it exists, in the current folder.
pub const DEFAULT_FILE: &str = "strowger.toml";

/// Everything that an operator decides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Configuration of Strowger")]
pub struct Config {
    /// Where the server listens and what it is responsible for.
    pub server: Server,
    /// Connections.
    pub tcp: Tcp,
    /// How names are looked up.
    pub dns: Dns,
    /// Where users and registrations are kept.
    pub store: Store,
    /// Servers that share registrations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cluster>,
    /// The database of another server, which is followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kamailio: Option<Kamailio>,
    /// What `strowger watch` watches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<Watch>,
    /// Registrations.
    pub registrar: Registrar,
    /// Passwords.
    pub auth: Auth,
    /// Forwarding.
    pub proxy: Proxy,
    /// What is done when there is too much to do.
    pub overload: Overload,
    /// The timers of RFC 3261 §17.
    pub timers: Timers,
    /// What is written of each call.
    pub cdr: Cdr,
    /// The socket of `strowger ctl`.
    pub control: Control,
    /// What is logged.
    pub log: Log,
    /// Carriers and other servers that routes name.
    #[serde(rename = "trunk", skip_serializing_if = "Vec::is_empty")]
    pub trunks: Vec<Trunk>,
    /// Sets of targets that routes spread calls over.
    #[serde(rename = "balancer", skip_serializing_if = "Vec::is_empty")]
    pub balancers: Vec<Balancer>,
    /// Where requests go; the first match is used.
    #[serde(rename = "route", skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Servers that pass each request to the cluster of its user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub first_stage: Vec<FirstStage>,
    /// Clusters that users are spread over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub second_stage: Vec<SecondStage>,
    /// What this server is among those that the file is for.
    #[serde(skip)]
    role: Option<Role>,
}

/// `[server]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Transport, address and port of each listener. 0.0.0.0 and [::] stand for every address of their family that the
    /// machine has at start.
    pub listen: Vec<Listen>,
    /// The domains whose users are served. Each address that is listened on stands for the first of them.
    pub domains: Vec<Domain>,
    /// The folder of what the server keeps; relative to where it is started.
    pub data: PathBuf,
    /// The file of the key that the server signs with; servers that stand in for one another have the same. Not given:
    /// DATA/key, which is made where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// Threads that handle messages. Not given: one a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub workers: Option<u16>,
    /// How many of them have work at least; the others join them when there is much to do. Not given: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub min_workers: Option<u16>,
    /// Which core each worker is kept on: none (wherever the system likes), auto (each on one of its own), or a list of
    /// cores, one for each worker.
    pub affinity: Affinity,
    /// Which worker receives a datagram: that of its peer, so that what one peer sends stays in its order (peers), or any, so
    /// that a single busy peer keeps all of them busy (packets).
    pub spread: Spread,
    /// Whether messages of one length to one peer leave as one packet, which the kernel cuts apart: cheaper where a few peers get
    /// most of what is sent, but whatever looks at packets on this machine sees the one. Never, while nothing looks (unwatched), or
    /// always.
    pub segmentation: Segmentation,
    /// How long a worker waits awake at most for a message, where messages usually follow one another that soon. 0s: never;
    /// always: it does not sleep as long as it has shards, which takes a core and saves wake-ups.
    pub spin: Spin,
}

/// `server.spread`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Server::spread` says what they mean")]
pub enum Spread {
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
    Unwatched,
    Always,
}

impl Default for Server {
    fn default() -> Self {
        let any = |transport| Listen { transport, address: ([0, 0, 0, 0], 5060).into() };
        let listen = vec![any(Transport::Udp), any(Transport::Tcp)];
        Self {
            listen,
            domains: vec![Domain("localhost".to_owned())],
            data: PathBuf::from("data"),
            key_file: None,
            workers: None,
            min_workers: None,
            affinity: Affinity::None,
            spread: Spread::Peers,
            segmentation: Segmentation::Unwatched,
            spin: Spin::UpTo(Span(Duration::from_micros(10))),
        }
    }
}

/// `[store]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// Where users are kept: sqlite:FILE, or memory: for no users. Not given: sqlite:DATA/strowger.db.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<StoreUrl>,
    /// The database that has users and gateways for several servers: postgresql:// or mysql://USER:PASSWORD@HOST:PORT/DATABASE. Where
    /// several are named, the first one that can be written to is used. What stands in it is copied to url.
    #[serde(skip_serializing_if = "OneOrMany::is_any")]
    pub users: OneOrMany<SharedDatabase>,
    /// What the 200 to a REGISTER promises: write-through (the registration survives), write-behind (it will, from a moment
    /// later) or memory (it ends with the process). Not given: write-through, and memory where url is memory:.
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
    /// As it is written.
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
    /// How long a registration lasts.
    pub expires: Expires,
    /// Contacts of one address; a REGISTER that would make more is refused with 403.
    #[schemars(range(min = 1, max = 32))]
    pub max_contacts: u16,
    /// Where requests to a registered contact go: auto (to the source of its REGISTER wherever that shows a translation),
    /// always (to the source) or never (to the contact's own address).
    pub nat: Nat,
    /// How a translated contact is kept reachable: crlf (an empty line), options (a request) or off.
    pub keepalive: KeepAlive,
    /// How often.
    pub keepalive_interval: Span,
    /// Whether a device that asks for it gets an address of its own (GRUU, RFC 5627).
    pub gruu: bool,
    /// How often at least a phone must send something over the connection that it registered (RFC 5626).
    pub flow_timer: Span,
    /// Where registered phones send their requests (Service-Route, RFC 3608): SIP URIs with lr, in their order.
    pub service_route: Vec<LooseRoute>,
}

impl Default for Registrar {
    fn default() -> Self {
        Self {
            expires: Expires::default(),
            max_contacts: 10,
            nat: Nat::Auto,
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
    /// For a phone that asks for nothing.
    pub default: Span,
    /// A shorter one is refused with 423.
    pub min: Span,
    /// A longer one is shortened.
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
    /// The realm of all challenges. Not given: each domain is its own. Passwords are kept as hashes with the realm, so
    /// changing it means setting them anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realm: Option<Realm>,
    /// Digest algorithms (MD5, SHA-256, SHA-512-256): one challenge each, in this order. Many phones refuse a challenge
    /// that offers more than MD5.
    pub algorithms: Vec<Algorithm>,
    /// The methods that need a password; [] asks nobody.
    pub require: Vec<MethodName>,
    /// Whether users need it for those methods inside calls too. ACK and CANCEL never do, nor do gateways and trunks.
    pub in_dialog: bool,
    /// Addresses and networks (192.0.2.0/24) that need none, and whose asserted identity is believed.
    pub trusted: Vec<Source>,
    /// How long a challenge can be answered.
    pub nonce_age: Span,
    /// The quality of protection that is offered: auth, or "auth,auth-int".
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
    /// How long a phone may ring before the caller is told 408 (Timer C).
    pub ring_timeout: Span,
    /// How long a phone may ring before the next one is tried, where phones are tried one after the other.
    pub fork_timeout: Span,
    /// How long a target may be silent before the next target, or the next address of its name, is tried.
    pub failover_timeout: Span,
    /// How long a target that failed is tried only after the others. 0s: not at all.
    pub avoid_for: Span,
    /// Whether the server itself follows a redirection (3xx), instead of handing it to the caller.
    pub recurse: bool,
    /// The most bytes of a request that leaves by UDP where TCP may be chosen.
    #[schemars(range(min = 500, max = 65000))]
    pub mtu: u16,
    /// Whether the server stays on the way of a call once it is answered.
    pub record_route: bool,
    /// Whether requests inside a call that the server stays on the way of may be forwarded without keeping state: never,
    /// when-possible or always.
    pub stateless: Stateless,
    /// Whether requests to a phone whose REGISTER was forwarded elsewhere come back over the phone's own flow (the edge of
    /// RFC 5626: Path with a flow token).
    pub outbound: bool,
    /// What requests are refused with that are for none of our users and that no route takes: 403, 404 or 603.
    pub unrouted: u16,
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
            unrouted: 404,
        }
    }
}

/// `[cdr]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cdr {
    /// The file to which a line of JSON is added for each call that ended. Not given: nothing is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The database that gets a row for each call that ended: postgresql:// or mysql://USER:PASSWORD@HOST:PORT/DATABASE. Where several are
    /// named, the first one that can be written to is used.
    #[serde(skip_serializing_if = "OneOrMany::is_any")]
    pub database: OneOrMany<SharedDatabase>,
}

/// `[timers]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Timers {
    /// The estimate of a round trip; a transaction ends after 64 of them.
    pub t1: Span,
    /// The longest interval between retransmissions.
    pub t2: Span,
    /// How long a message stays in the network.
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
    /// The socket's path. Not given: DATA/control.sock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
}

/// `[log]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// The least that is logged: error, warn, info, debug or trace.
    pub level: Level,
    /// text, or json: one object a line.
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
    /// The configuration that `text` is.
    ///
    /// # Errors
    /// What is wrong, with lines and keys: of what cannot be read the first fault, else the first of each section, trunk and
    /// route.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let place = Place::new(text);
        let config: Self = toml::from_str(text).map_err(|error| place.explain(&error))?;
        match place.place_all(config.validate()) {
            Some(error) => Err(error),
            None => Ok(config),
        }
    }

    /// The configuration in `file`; without one, that in [`DEFAULT_FILE`] where it exists, else the defaults. Returns
    /// the file that was read beside it.
    ///
    /// # Errors
    /// The file cannot be read, or its first fault.
    pub fn load<'a>(wanted: impl Into<ConfigSource<'a>>) -> Result<(Self, Option<PathBuf>), ConfigError> {
        let loaded = Self::load_any(wanted.into())?;
        loaded.0.needs_role()?;
        Ok(loaded)
    }

    /// As [`load`](Self::load), but it may be for several servers, none of which is meant.
    fn load_any(wanted: ConfigSource<'_>) -> Result<(Self, Option<PathBuf>), ConfigError> {
        let Some((path, text)) = read(wanted.file)? else { return Ok((Self::default().of(wanted)?, None)) };
        match Self::parse(&text).and_then(|config| config.of(wanted)) {
            Ok(config) => Ok((config, Some(path))),
            Err(error) => Err(error.in_file(&path)),
        }
    }

    /// What this is for the server that is meant; for all of them where only the machine's name is known, and no server has it.
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
            None if self.has_stages() => Ok(self.for_member(&role::host_name()).unwrap_or(self)),
            None => Ok(self),
        }
    }

    /// That a server is meant where the configuration is for several.
    fn needs_role(&self) -> Result<(), ConfigError> {
        if !self.has_stages() || self.role.is_some() {
            return Ok(());
        }
        let names = self.stage_names().join(", ");
        let message =
            format!("the configuration is for several servers; say which one is meant with --as NAME: {names}");
        Err(ConfigError { file: None, line: None, key: String::new(), message, others: Vec::new() })
    }

    /// `message` as it is told of a fault of `key`: with the file and the line, as far as these are there.
    #[must_use]
    pub fn located(file: Option<&Path>, key: &str, message: String) -> ConfigError {
        let text = file.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        let placed = Place::new(&text).place(Fault::new(key, message));
        ConfigError { file: file.map(Path::to_owned), ..placed }
    }

    /// The published JSON schema of the file, with a line end.
    #[must_use]
    pub fn schema() -> String {
        let schema = schemars::schema_for!(Self);
        serde_json::to_string_pretty(&schema).map(|text| text + "\n").unwrap_or_default()
    }

    /// Where users are kept.
    #[must_use]
    pub fn store_url(&self) -> StoreUrl {
        self.store.url.clone().unwrap_or_else(|| StoreUrl::Sqlite(self.server.data.join("strowger.db")))
    }

    /// The databases that have users and gateways for several servers; none where the server has its own.
    #[must_use]
    pub fn shared_users(&self) -> Vec<DatabaseUrl> {
        self.store.users.0.iter().map(|database| database.0.clone()).collect()
    }

    /// The databases that get a row for each call; of several, one is used.
    #[must_use]
    pub fn calls_databases(&self) -> Vec<DatabaseUrl> {
        self.cdr.database.0.iter().map(|database| database.0.clone()).collect()
    }

    /// What the 200 to a REGISTER promises.
    #[must_use]
    pub fn store_mode(&self) -> Mode {
        let default = if self.store_url() == StoreUrl::Memory { Mode::Memory } else { Mode::WriteThrough };
        self.store.mode.unwrap_or(default)
    }

    /// Where the journal of registrations is; not there in mode memory.
    #[must_use]
    pub fn journal_folder(&self) -> PathBuf {
        self.server.data.join("journal")
    }

    /// Where the key is that the server signs with.
    #[must_use]
    pub fn key_file(&self) -> PathBuf {
        let folder = self.role.as_ref().map_or(&self.server.data, |role| &role.common);
        self.server.key_file.clone().unwrap_or_else(|| folder.join("key"))
    }

    /// Where the control socket is.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.control.socket.clone().unwrap_or_else(|| self.server.data.join("control.sock"))
    }

    /// How many of so many workers have work at least.
    #[must_use]
    pub fn min_workers(&self, workers: u16) -> u16 {
        self.server.min_workers.unwrap_or(1).clamp(1, workers.max(1))
    }

    /// How many workers there are on a machine with `cores`.
    #[must_use]
    pub fn workers(&self, cores: usize) -> u16 {
        self.server.workers.unwrap_or_else(|| u16::try_from(cores).unwrap_or(MAX_WORKERS).clamp(1, MAX_WORKERS))
    }
}

/// The configuration that is meant, and its text; `None` where none is named and there is none.
fn read(file: Option<&Path>) -> Result<Option<(PathBuf, String)>, ConfigError> {
    let path = file.unwrap_or(Path::new(DEFAULT_FILE)).to_owned();
    let error = match std::fs::read_to_string(&path) {
        Ok(text) => return Ok(Some((path, text))),
        Err(error) if file.is_none() && error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => error,
    };
    let message = match error.kind() {
        io::ErrorKind::NotFound => "there is no such file; name one that exists with -c".to_owned(),
        io::ErrorKind::InvalidData => "this is no TOML: it is not UTF-8 text".to_owned(),
        _ => format!("cannot be read: {error}; give this user the right to read it"),
    };
    Err(ConfigError { file: Some(path), line: None, key: String::new(), message, others: Vec::new() })
}

/// The most workers of one server.
pub const MAX_WORKERS: u16 = 256;
